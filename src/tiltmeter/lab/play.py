"""A made run watched by the product's own parts: the sampler that spends the labels and the ledger that decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiltmeter.detectors.ledger import Ledger
from tiltmeter.gold.sampler import FLOOR, Sampler
from tiltmeter.lab.simulate import Trace
from tiltmeter.lab.world import Floats
from tiltmeter.records import Alarm, Reading


@dataclass(frozen=True, eq=False)
class Played:
    """What came of it: the alarm, if any; the labels spent until then; the largest evidence; the audited u by step."""

    alarm: Alarm | None
    labels: int
    evidence: float
    steps: Floats  # of each slope bet, with its u
    us: Floats
    gold_steps: Floats  # of each slope bet's two labels, with their mean
    gold: Floats


def play(
    trace: Trace,
    seed: int,
    share: float = 0.02,
    *,
    alpha: float = 0.01,
    delay: int = 0,
    floor: float = FLOOR,
    until: int | None = None,
) -> Played:
    """Watch a run with labels for a share of its rollouts.

    `delay`: steps until a label arrives. `floor`: as the sampler has it. `until`: stop after this many steps.
    """
    count, groups, size = trace.reward.shape
    sampler, ledger = Sampler(share, count, floor=floor), Ledger(alpha)
    starts = np.arange(0, groups * size + 1, size)
    labels = trace.label.reshape(count, -1)
    centred = trace.reward - trace.reward.mean(2, keepdims=True)
    if trace.normalised:
        spread = trace.reward.std(2, keepdims=True)
        dead = spread < 1e-9 * (1.0 + np.abs(trace.reward).max())
        centred = np.where(dead, 0.0, centred / np.where(dead, 1.0, spread))
    advantage = centred.reshape(count, -1)
    waiting: list[tuple[int, list[float], list[float], int]] = []
    spent, highest = 0, 0.0
    steps: list[int] = []
    us: list[float] = []
    means: list[float] = []
    told: list[int] = []

    def played(alarm: Alarm | None) -> Played:
        return Played(alarm, spent, highest, *(np.array(seen, np.float64) for seen in (steps, us, told, means)))

    for step in range(count if until is None else until):
        rng = np.random.Generator(np.random.Philox(key=[seed, step]))
        bets = sampler.draw(0, step, advantage[step], starts, trace.prompt[step].tolist(), rng)
        made: dict[str, list[float]] = {"slope": [], "duel": []}
        for bet in bets:
            up, down = labels[bet.up[1], bet.up[2]], labels[bet.down[1], bet.down[2]]
            made[bet.purpose].append(bet.weight * (up - down))
            if bet.purpose == "slope":
                told.append(step)
                means.append((up + down) / 2.0)
        waiting.append((step, made["slope"], made["duel"], 2 * len(bets)))
        while waiting and waiting[0][0] <= step - delay:
            data, slopes, duels, asked = waiting.pop(0)
            spent += asked
            sampler.close(slopes, duels)
            steps += [data] * len(slopes)
            us += slopes
            for name, values in (("gold.slope", slopes), ("gold.duel", duels)):
                if values:
                    reading = Reading(0, data, name, float(np.mean(values)), len(values), None, tuple(values))
                    alarm = ledger.update(reading)
                    highest = max(highest, ledger.evidence)
                    if alarm is not None:
                        return played(alarm)
    return played(None)
