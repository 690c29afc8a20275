"""Run the product's own gold sampler, gold-loss test and level test on a simulated run."""

from __future__ import annotations

from dataclasses import dataclass
from math import log

import numpy as np

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.level_stakes import LEVEL_SHARE
from tiltmeter.gold.level_sampler import LevelDraw, LevelSampler, level_readings, split_share
from tiltmeter.gold.sampler import FLOOR, Sampler
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.level_drop import LevelDropTest
from tiltmeter_lab.simulate import Trace
from tiltmeter_lab.worlds.world import Floats


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
    slope_share, level_share = split_share(share)
    sampler, gold_test = Sampler(slope_share, count, floor=floor), GoldLossTest(alpha)
    starts = np.arange(0, groups * size + 1, size)
    lengths = np.zeros_like(trace.reward) if trace.tokens is None else trace.tokens
    features = np.stack([trace.reward.reshape(count, -1), lengths.reshape(count, -1)], -1).astype(np.float64)
    prompts = [[str(prompt) for prompt in row] for row in trace.prompt.tolist()]
    level_sampler = LevelSampler(level_share, count, lambda _, step: (features[step], starts, prompts[step]))
    labels = trace.label.reshape(count, -1)
    centred = trace.reward - trace.reward.mean(2, keepdims=True)
    if trace.normalised:
        spread = trace.reward.std(2, keepdims=True)
        dead = spread < 1e-9 * (1.0 + np.abs(trace.reward).max())
        centred = np.where(dead, 0.0, centred / np.where(dead, 1.0, spread))
    advantage = centred.reshape(count, -1)
    waiting: list[tuple[int, list[float], list[float], int, LevelDraw]] = []
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
        draw = LevelDraw()
        if level_share > 0.0:
            draw = level_sampler.draw(0, step, features[step], starts, prompts[step], rng)
        waiting.append((step, values_by_purpose["slope"], values_by_purpose["duel"], 2 * len(bets), draw))
        while waiting and waiting[0][0] <= step - delay:
            bet_step, slopes, duels, label_count, draw = waiting.pop(0)
            gold = {row: float(labels[row[1], row[2]]) for row in draw.rows(0, bet_step)}
            spent += label_count + len(gold)
            sampler.close(slopes, duels)
            level_sampler.close(0, bet_step, draw, gold)
            steps += [bet_step] * len(slopes)
            us += slopes
            for reading in (
                *level_readings(draw, 0, bet_step, gold),
                *(
                    Reading(0, bet_step, name, float(np.mean(values)), len(values), None, tuple(values))
                    for name, values in (("gold.slope", slopes), ("gold.duel", duels))
                    if values
                ),
            ):
                alarm = gold_test.update(reading)
                highest = max(highest, gold_test.evidence)
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
