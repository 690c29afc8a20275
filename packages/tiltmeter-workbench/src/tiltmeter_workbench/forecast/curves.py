"""Gold, proxy and KL as a reward is optimised further: along the exact tilt and the best of n, as far as samples reach.

How far that is, is decided by figures that were fixed on the development families of `lab` (see docs/forecast.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_workbench.stats.reweighting import (
    Reweighted,
    SampleTable,
    rank_weights,
    split_halves,
    tilt_kl,
    tilt_weights,
)
from tiltmeter_workbench.stats.tilting import best_of_n_kl

Floats = NDArray[np.float64]

COVER = 0.8
GRID = 25  # points of the tilt, even in sqrt(KL)
SPLITS = 4  # ways to halve the samples
EFFECTIVE = 50.0  # pooled effective sample size
DRIFT = 0.05  # nats of KL that half of the samples may miss
EARLY, MAX_HALVING_CHANGE = 0.3, 1.6  # nats, and N times what halving may change there
MIN_LABELS = 30.0  # effective labels at a point
MIN_REACH = 0.5  # nats: a reach below this says nothing about a run
FALL_CONFIDENCE = 0.975  # one-sided, that gold falls from its peak to the end of the reach
BOOTSTRAP_FACTOR = 1.15  # intervals of a bootstrap of so few labels are too narrow by nearly that: see docs/forecast.md


class ForecastInterval(NamedTuple):
    """A figure and the ends between which it lies with 80 %, if the samples are what the run will meet."""

    mean: float
    low: float
    high: float


NO_INTERVAL = ForecastInterval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class CurvePoint:
    """The result of optimising the reward that far: `at` is β of the tilt, or n of the best of n."""

    at: float
    kl: ForecastInterval
    proxy: ForecastInterval
    gold: ForecastInterval
    gain: ForecastInterval  # of gold over the reference
    labels: float  # effective number of labels behind it


@dataclass(frozen=True)
class Curve:
    """Points from the reference outwards, why they end where they do, and where gold peaks (None: not before the end).

    `fall` is gold lost from the peak to the end. `peak` is an index; `near` and `far` enclose it at 80 %, `far` being
    the last index where a peak at or beyond the end is not excluded.

    >>> Curve((), "the labels there count as 3").reach
    0.0
    """

    points: tuple[CurvePoint, ...]
    ended: str
    whole: bool = False  # the end is the limit of optimising the reward: nothing lies beyond
    peak: int | None = None
    near: int = 0
    far: int = 0
    fall: ForecastInterval = NO_INTERVAL

    @property
    def reach(self) -> float:
        """The KL up to which it says anything."""
        return self.points[-1].kl.mean if self.points else 0.0


def along_tilt(means: Reweighted, size: int, seed: int) -> Curve:
    """The optimum of reward minus β KL for falling β, until something in the samples says no further."""
    sheet = means.table
    rng = np.random.default_rng(seed + 1)
    parts = [half for _ in range(SPLITS) for half in split_halves(sheet.sampled, rng)]
    counts = [part.sum(1) for part in parts]
    betas, whole = _betas(sheet, size)
    points, gains, ended = [], [], f"N = {size} samples a prompt reach no further than KL (1/2) ln N"
    start = means.gold(tilt_weights(sheet.score, math.inf))
    for beta in betas:
        weights = tilt_weights(sheet.score, beta)
        halved = [tilt_weights(sheet.score, beta, part) for part in parts]
        nats = tilt_kl(weights, sheet.sizes)
        half_nats = np.mean([tilt_kl(w, n) for w, n in zip(halved, counts, strict=True)], axis=0)
        why = _why_stop(means, weights, float((nats - half_nats).mean()))
        if why:
            ended, whole = why, False
            break
        half_weights = np.mean(halved, axis=0)
        gold, rest = means.gold(weights), means.gold(half_weights)
        scores, half_scores = _mean_score(sheet, weights), _mean_score(sheet, half_weights)
        gains.append(2.0 * gold - rest - start)
        points.append(
            CurvePoint(
                beta,
                _interval(means, 2.0 * means.mean(nats) - means.mean(half_nats), float((nats - half_nats).mean())),
                _interval(
                    means, 2.0 * means.mean(scores) - means.mean(half_scores), float((scores - half_scores).mean())
                ),
                _clip_gold(means, _interval(means, 2.0 * gold - rest, float(gold[0] - rest[0]))),
                _interval(means, gains[-1], float(gold[0] - rest[0])),
                means.labels_at(weights),
            )
        )
    return _with_peak(means, points, gains, ended, whole)


def along_best(means: Reweighted, size: int) -> Curve:
    """The best of n, for n up to a quarter of the samples; unbiased, so that halves need not be asked."""
    sheet = means.table
    start = means.gold(rank_weights(sheet, 1))
    points, gains, ended = [], [], f"N = {size} samples a prompt tell the best of at most N / 4"
    for n in _n_values(size // 4):
        weights = rank_weights(sheet, n)
        if why := _why_stop(means, weights, 0.0):
            ended = why
            break
        nats = np.array(
            [
                best_of_n_kl(np.full(many, 1.0 / many), scores[:many], n)
                for scores, many in zip(sheet.score, sheet.sizes.tolist(), strict=True)
            ]
        )
        gold = means.gold(weights)
        gains.append(gold - start)
        points.append(
            CurvePoint(
                float(n),
                _interval(means, means.mean(nats)),
                _interval(means, means.mean(_mean_score(sheet, weights))),
                _clip_gold(means, _interval(means, gold)),
                _interval(means, gains[-1]),
                means.labels_at(weights),
            )
        )
    return _with_peak(means, points, gains, ended, False)


def drop_if_short(curve: Curve) -> Curve:
    """The curve, or an empty one where it ends too near the reference to say anything about a run."""
    if curve.reach >= MIN_REACH or curve.whole:
        return curve
    return Curve((), f"{curve.ended}; that is before KL {MIN_REACH:g}, too near the reference to say anything of a run")


def few_samples_dominate(sheet: SampleTable, size: int, seed: int) -> bool:
    """Whether a few samples carry what a tilt of 0.3 nats would tell: then the score's tail is too heavy for so many.

    Halving N samples of a light tail changes that KL by about 0.6 / N, of the heavy tails of `lab` by 2 / N or more.
    """
    logs, far = _tilt_path(sheet)
    if far[-1] < math.sqrt(EARLY):
        return False
    beta = math.exp(float(np.interp(math.sqrt(EARLY), far, logs)))
    rng = np.random.default_rng(seed + 1)
    nats = float(tilt_kl(tilt_weights(sheet.score, beta), sheet.sizes).mean())
    parts = [half for _ in range(SPLITS) for half in split_halves(sheet.sampled, rng)]
    half_kls = [tilt_kl(tilt_weights(sheet.score, beta, part), part.sum(1)).mean() for part in parts]
    return size * (nats - float(np.mean(half_kls))) > MAX_HALVING_CHANGE


def _tilt_path(sheet: SampleTable) -> tuple[Floats, Floats]:
    """ln β from far above the scores' spread down to far below it, and sqrt(KL) of the tilt there, rising."""
    spread = float(np.nanmean(np.nanstd(sheet.score, axis=1)))
    logs = np.linspace(math.log(spread) + 5.0, math.log(spread) - 9.0, 141)
    nats = [float(tilt_kl(tilt_weights(sheet.score, math.exp(log)), sheet.sizes).mean()) for log in logs]
    far = np.sqrt(np.maximum.accumulate(nats))
    rising = np.append(True, np.diff(far) > 1e-9)
    return logs[rising], far[rising]


def _betas(sheet: SampleTable, size: int) -> tuple[list[float], bool]:
    """β from infinity down, even in sqrt(KL), to (1/2) ln N; and whether that ends at β = 0 instead."""
    logs, far = _tilt_path(sheet)
    most = math.sqrt(0.5 * math.log(size))
    roots = np.linspace(0.0, min(most, 0.999 * float(far[-1])), GRID)[1:]
    return [math.inf, *np.exp(np.interp(roots, far, logs)).tolist()], bool(far[-1] < most)


def _why_stop(means: Reweighted, weights: Floats, drift: float) -> str:
    """Why nothing is said at these weights, if so."""
    label_count, coverage = means.labels_at(weights), means.coverage(weights)
    pooled = len(weights) ** 2 / float(np.square(weights).sum())
    if pooled < EFFECTIVE:
        return f"the samples weigh as much as {pooled:.0f} there, and {EFFECTIVE:.0f} are needed"
    if drift > DRIFT:
        return "more samples a prompt would tell another KL there: what a policy finds is not yet sampled"
    if label_count < MIN_LABELS:
        return (
            f"the labels there count as {label_count:.0f}, and {MIN_LABELS:.0f} are needed: "
            "label more of the best by score"
        )
    if abs(coverage[0] - 1.0) > max(0.25, 3.0 * float(coverage[1:].std())):
        return f"the labels' chances add up to {coverage[0]:.2f} of what they should there"
    return ""


def _mean_score(sheet: SampleTable, weights: Floats) -> Floats:
    return np.asarray((np.where(sheet.sampled, sheet.score, 0.0) * weights).sum(1), np.float64)


def _interval(means: Reweighted, draws: Floats, drift: float = 0.0) -> ForecastInterval:
    """Student's over prompts from the bootstrap's spread, and what halving the samples changed."""
    prompts = len(means.table.score)
    reach = math.hypot(BOOTSTRAP_FACTOR * student_t_quantile(prompts - 1, COVER) * float(draws[1:].std()), drift)
    return ForecastInterval(float(draws[0]), float(draws[0]) - reach, float(draws[0]) + reach)


def _clip_gold(means: Reweighted, interval: ForecastInterval) -> ForecastInterval:
    """Gold from 0 to 1 stays there."""
    gold = means.table.gold
    if np.nanmin(gold) < 0.0 or np.nanmax(gold) > 1.0:
        return interval
    return ForecastInterval(*(min(max(value, 0.0), 1.0) for value in interval))


def _with_peak(means: Reweighted, points: list[CurvePoint], gains: list[Floats], ended: str, whole: bool) -> Curve:
    """The curve with its peak, if gold is sure to have fallen by the end of the reach."""
    curve = Curve(tuple(points), ended, whole)
    if len(points) < 3:
        return curve
    table = np.stack(gains)
    top = int(table[:, 0].argmax())
    fall = table[top] - table[-1]
    needed = (
        BOOTSTRAP_FACTOR
        * student_t_quantile(len(means.table.score) - 1, 2.0 * FALL_CONFIDENCE - 1.0)
        * float(fall[1:].std())
    )
    if top == len(points) - 1 or fall[0] <= needed:
        return curve
    near, far = np.quantile(table[:, 1:].argmax(0), [0.1, 0.9], method="nearest").tolist()
    return Curve(curve.points, ended, whole, top, min(near, top), max(far, top), _interval(means, fall))


def _n_values(top: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to the largest."""
    candidates = {1, *(2**power for power in range(1, 20)), *(3 * 2**power for power in range(19))}
    return sorted(n for n in candidates if n <= top)
