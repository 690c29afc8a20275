"""Rules that compare the level of gold with that of the reward, or with its own past.

Rules of two series use the steps that have a label; their windows count such steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from tiltmeter_lab.baselines.rule import BaselineRule, RuleInput
from tiltmeter_lab.baselines.wealth import BLOCK, evidence
from tiltmeter_lab.baselines.windows import by_step, cusum, trailing, trailing_mean
from tiltmeter_lab.worlds.world import Floats

TwoSeriesScore = Callable[[Floats, Floats], Floats]

ALPHA = 0.01
TINY = 1e-12


def on_labelled_steps(rule: TwoSeriesScore, run: RuleInput) -> Floats:
    """A rule of (proxy, gold) on the steps that have both; the others get NaN."""
    both = np.isfinite(run.proxy) & np.isfinite(run.gold)
    score = np.full(run.steps, np.nan)
    score[both] = rule(run.proxy[both], run.gold[both])
    return score


def ma_trend(run: RuleInput, window: int | None) -> Floats:
    """`stats.trend.ma_trend` after every step; None: a window of a tenth of the run."""
    return on_labelled_steps(partial(_ma_trend, width=window or max(2, round(run.steps / 10))), run)


def _ma_trend(proxy: Floats, gold: Floats, width: int) -> Floats:
    score = np.full(len(proxy), np.nan)
    last = np.arange(2 * width - 1, len(proxy))
    back = last + 1 - np.minimum(width, (last + 2 - width) // 2)
    trends = []
    for series in (proxy, gold):
        mean = trailing_mean(series, width)
        trends.append((mean[last] - mean[back]) / (np.abs(mean[back]) + 1e-8))
    score[last] = np.maximum(0.0, trends[0] - trends[1])
    return score


def _since_start(proxy: Floats, gold: Floats, width: int, relative: bool) -> Floats:
    """max(0, change of proxy - change of gold), means of the last `width` steps against the first `width`."""
    changes = []
    for series in (proxy, gold):
        mean = trailing_mean(series, width)
        start = mean[width - 1] if len(mean) >= width else np.nan
        with np.errstate(divide="ignore", invalid="ignore"):
            changes.append((mean - start) / (abs(start) if relative else 1.0))
    score = np.maximum(0.0, changes[0] - changes[1])
    score[:width] = np.nan
    return score


def _gap(proxy: Floats, gold: Floats, relative: bool) -> Floats:
    """Ten-step mean of proxy minus gold; relative: minus that of the first ten steps."""
    gap = trailing_mean(proxy - gold, 10)
    return gap - gap[9] if relative and len(gap) > 9 else gap


def _noise(series: Floats, steps: int = 30) -> float:
    """Standard deviation of one step's value around a slow trend, from first differences of the first steps."""
    return float(np.diff(series[:steps]).std() / np.sqrt(2.0)) + TINY


def _gap_cusum(proxy: Floats, gold: Floats) -> Floats:
    gap = proxy - gold
    z = np.full(len(gap), np.nan)
    if len(gap) > 30:
        z[30:] = (gap[30:] - gap[:30].mean()) / _noise(gap)
    return cusum(z, 0.5)


def _gold_drop(proxy: Floats, gold: Floats) -> Floats:
    """How far 20-step gold is below its best, less 0.02, in its noise, while the proxy has not fallen by 0.02 since."""
    score = np.full(len(gold), np.nan)
    if len(gold) < 30:
        return score
    mean, paid = trailing_mean(gold, 20)[19:], trailing_mean(proxy, 20)[19:]
    best = np.maximum.accumulate(mean)
    fresh = np.concatenate([[True], mean[1:] > best[:-1]])
    at = np.maximum.accumulate(np.where(fresh, np.arange(len(mean)), 0))
    drop = (best - mean - 0.02) / (np.sqrt(2.0 / 20.0) * _noise(gold))
    score[19:] = np.where(paid >= paid[at] - 0.02, drop, -np.inf)
    score[:29] = np.nan
    return score


def rldk_gold(run: RuleInput, stated: bool) -> Floats:
    """Gain of the proxy, where gold gained under 0.05 and KL is out of range; looked at after every step.

    The package looks once, at the end. Out of range is, as stated, a mean of the last 50 KL above 0.15, and in effect
    any of them outside 0.05-0.15. Everywhere else the score is -inf.
    """
    assert run.kl is not None
    recent = trailing(run.kl, 50)
    out = recent.mean(1) > 0.15 if stated else ((recent < 0.05) | (recent > 0.15)).any(1)
    gain = on_labelled_steps(partial(_gain, of_gold=False), run)
    flat = on_labelled_steps(partial(_gain, of_gold=True), run) < 0.05
    return np.where(np.isnan(gain), np.nan, np.where(flat & out, gain, -np.inf))


def _gain(proxy: Floats, gold: Floats, of_gold: bool) -> Floats:
    """Mean of the last min(100, n/2) values minus that of as many first ones, from n = 100 on."""
    total = np.concatenate([[0.0], np.cumsum(gold if of_gold else proxy)])
    score = np.full(len(proxy), np.nan)
    n = np.arange(100, len(proxy) + 1)
    width = np.minimum(100, n // 2)
    score[n - 1] = (total[n] - total[n - width] - total[width]) / width
    return score


def gold_z(run: RuleInput) -> Floats:
    """z of the best 20 steps that ended before the last 20 began, against the last 20, by their labels."""
    sums = [by_step(run.label_step, run.label**power, run.steps) for power in (0, 1, 2)]
    count, total, square = (trailing(series, BLOCK).sum(1) for series in sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(count >= 10, total / count, np.nan)
        # One label's variance, never under that of the one label more that would disagree.
        variance = np.maximum(square / count - mean**2, 1.0 / (count + 1.0)) / count
    score = np.full(run.steps, np.nan)
    earlier = np.where(np.isfinite(mean), mean, -np.inf)[:-BLOCK]
    if not len(earlier):
        return score
    best = np.maximum.accumulate(earlier)
    at = np.maximum.accumulate(np.where(earlier >= best, np.arange(len(earlier)), 0))
    finite = np.isfinite(best)
    score[BLOCK:][finite] = ((best - mean[BLOCK:]) / np.sqrt(variance[at] + variance[BLOCK:]))[finite]
    return score


def level_test(run: RuleInput, alpha: float = ALPHA) -> Floats:
    """Log evidence that mean gold fell below that of its best block of 20 steps; valid at any number of looks.

    H0: at no step is the mean of gold below its mean over an earlier block. Each block's mean gets a lower bound at
    level alpha / 2 over all blocks (empirical Bernstein with a bet fixed before the block: Howard et al. 1810.08240,
    Waudby-Smith & Ramdas 2010.09686); later labels bet that they lie below the largest bound. Alarm at 2 / alpha: the
    two errors add up to alpha. Labels of "coin" or "value" worlds both lie in [0, 1], which is all that is used.
    """
    blocks = -(-run.steps // BLOCK)
    block = run.label_step // BLOCK
    bound, squares, past = -np.inf, 0.25, 1.0
    u = np.full(len(run.label), np.nan)
    for index in range(blocks):
        mine = np.flatnonzero(block == index)
        labels = run.label[mine]
        if np.isfinite(bound):
            u[mine] = (labels - bound) / max(bound, 1.0 - bound)
        if len(labels):
            n = len(labels)
            price = np.log(2.0 * blocks / alpha)
            stake = min(0.75, float(np.sqrt(2.0 * price * past / (n * squares))))
            guess = np.concatenate([[0.5], (0.5 + np.cumsum(labels[:-1])) / np.arange(2.0, n + 1.0)])
            deviation = float(((labels - guess) ** 2).sum())
            margin = (price + deviation * (-np.log1p(-stake) - stake)) / (n * stake)
            bound = max(bound, 0.0, float(labels.mean()) - margin)
            squares, past = squares + deviation, past + n
    has_bound = np.isfinite(u)
    return evidence(u[has_bound], run.label_step[has_bound], run.steps, begin=BLOCK)


def _two_series_rule(name: str, source: str, published: float, rule: TwoSeriesScore) -> BaselineRule:
    return BaselineRule(name, "level", source, published, partial(on_labelled_steps, rule), True)


_MA = "moving-average divergence, rule in circulation"
_START = "moving-average divergence since the start"
_FOUNDRY = "Microsoft Foundry guidance"

LEVELS: tuple[BaselineRule, ...] = (
    BaselineRule("ma_trend", "level", _MA, 0.3, partial(ma_trend, window=100), True),
    BaselineRule(
        "ma_trend_tenth", "level", f"{_MA}, window a tenth of the run", 0.3, partial(ma_trend, window=None), True
    ),
    *(
        _two_series_rule(
            f"ma_since_start_{width}{'_relative' if relative else ''}",
            _START,
            0.3,
            partial(_since_start, width=width, relative=relative),
        )
        for width in (100, 20)
        for relative in (False, True)
    ),
    _two_series_rule("gap_warn", _FOUNDRY, 0.05, partial(_gap, relative=False)),
    _two_series_rule("gap_stop", _FOUNDRY, 0.10, partial(_gap, relative=False)),
    _two_series_rule("gap_rise_warn", f"{_FOUNDRY}, relative to the start", 0.05, partial(_gap, relative=True)),
    _two_series_rule("gap_rise_stop", f"{_FOUNDRY}, relative to the start", 0.10, partial(_gap, relative=True)),
    _two_series_rule("gap_cusum", "CUSUM of proxy minus gold, k 0.5, h 8", 8.0, _gap_cusum),
    _two_series_rule("gold_drop", "20-step gold against its best", 3.0, _gold_drop),
    *(
        # "At least 0.2" as "more than the number before it".
        BaselineRule(
            name, "level", "RLDK", float(np.nextafter(0.2, 0.0)), partial(rldk_gold, stated=stated), True, ("kl",)
        )
        for name, stated in (("rldk_gold", False), ("rldk_gold_stated", True))
    ),
    BaselineRule("gold_z", "level", "two-sample z of gold, nominal 1%, every step", 2.3263, gold_z, True),
    BaselineRule(
        "level_test", "level", "e-process on mean gold, alpha 1%", float(np.log(2.0 / ALPHA)), level_test, True
    ),
)
