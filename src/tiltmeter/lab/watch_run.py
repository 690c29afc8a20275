"""Run the product's own gold sampler, gold-loss test and level test on a simulated run."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.gold_loss import LEVEL_SHARE, GoldLossTest
from tiltmeter.gold.sampler import FLOOR, Sampler
from tiltmeter.lab.simulate import Trace
from tiltmeter.lab.worlds.world import Floats
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.level_drop import LevelDropTest


@dataclass(frozen=True, eq=False)
class WatchResult:
    """The result: the alarm, if any; the labels spent until then; the largest evidence; the audited u by step."""

    alarm: Alarm | None
    labels: int
    evidence: float
    steps: Floats  # of each slope bet, with its u
    us: Floats
    gold_steps: Floats  # of each slope bet's two labels, with their mean
    gold: Floats

    @property
    def alarm_step(self) -> int | None:
        return None if self.alarm is None else self.alarm.step


def play(
    trace: Trace,
    seed: int,
    share: float = 0.02,
    *,
    alpha: float = 0.01,
    delay: int = 0,
    floor: float = FLOOR,
    until: int | None = None,
) -> WatchResult:
    """Monitor a run with gold labels for a share of its rollouts.

    `delay`: steps until a label arrives. `floor`: as the sampler has it. `until`: stop after this many steps.
    """
    count, groups, size = trace.reward.shape
    sampler, ledger = Sampler(share, count, floor=floor), GoldLossTest(alpha)
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
    gold_steps: list[int] = []

    def result(alarm: Alarm | None) -> WatchResult:
        return WatchResult(
            alarm, spent, highest, *(np.array(series, np.float64) for series in (steps, us, gold_steps, means))
        )

    for step in range(count if until is None else until):
        rng = np.random.Generator(np.random.Philox(key=[seed, step]))
        bets = sampler.draw(0, step, advantage[step], starts, trace.prompt[step].tolist(), rng)
        values_by_purpose: dict[str, list[float]] = {"slope": [], "duel": []}
        for bet in bets:
            up, down = labels[bet.up[1], bet.up[2]], labels[bet.down[1], bet.down[2]]
            values_by_purpose[bet.purpose].append(bet.weight * (up - down))
            if bet.purpose == "slope":
                gold_steps.append(step)
                means.append((up + down) / 2.0)
        waiting.append((step, values_by_purpose["slope"], values_by_purpose["duel"], 2 * len(bets)))
        while waiting and waiting[0][0] <= step - delay:
            bet_step, slopes, duels, label_count = waiting.pop(0)
            spent += label_count
            sampler.close(slopes, duels)
            steps += [bet_step] * len(slopes)
            us += slopes
            for name, values in (("gold.slope", slopes), ("gold.duel", duels)):
                if values:
                    reading = Reading(0, bet_step, name, float(np.mean(values)), len(values), None, tuple(values))
                    alarm = ledger.update(reading)
                    highest = max(highest, ledger.evidence)
                    if alarm is not None:
                        return result(alarm)
    return result(None)


def level_alarm(trace: Trace, alpha: float = 0.01) -> int | None:
    """The step at which the level of gold alone alarms, with every rollout labelled and its share of the wealth."""
    test, threshold = LevelDropTest(), log(1.0 / (LEVEL_SHARE * alpha_share(alpha, 1)))
    for step, (prompts, labels) in enumerate(zip(trace.prompt, trace.label, strict=True)):
        test.place(step, prompts, labels.mean(1), labels.shape[1])
        if test.evidence >= threshold:
            return step
    return None
