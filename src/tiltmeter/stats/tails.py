"""Whether the upper tail of a sample is heavy, light, or cannot be told: estimators, a test, and a verdict by prompt.

*Heavy* means E exp(tX) infinite for every t > 0. If a reward's error is heavy in this sense, some policy gains without
bound at a vanishing KL, and no KL penalty protects (arXiv 2407.14503). A tail index of 0 does not make a tail light:
the lognormal has index 0 and is heavy. So the verdict rests on the coefficient of variation of excesses over a
threshold, which is 1 for an exponential tail, above it for heavier and below it for lighter ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.groups import group_sums
from tiltmeter.stats.hash_sampling import splitmix64

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARES = (0.2, 0.1, 0.05, 0.025)  # of the sample, each above one threshold
MIDDLE = 1  # of SHARES: where tail index and variation are reported
FEWEST = 10  # excesses over a threshold below which it is left out
FIRM = 50  # excesses that the two thresholds of a heavy verdict need
ATOMS = 20  # values from which an atom at the maximum can be told
ATOM_GROUPS = 3  # prompt groups that must reach the maximum before it counts as a bound
TIES = 0.1  # share of the tail in one value above which the test is refused; rounding to bfloat16 gives up to that
REGROUPINGS = 19  # the scales of prompts differ if theirs spread more than all of these: 5 %

LIGHT, CANNOT_TELL, HEAVY = -1, 0, 1

#: Sample size, 99 % quantile of the largest and 1 % quantile of the second smallest sqrt(k) (CV - 1) over thresholds,
#: by `simulated_critical` of the tests with 1,000,000 draws, 400,000 from 3,200 and 100,000 from 12,800 on. Between two
#: sizes the stricter one holds, above the last the last. Thresholds are added at 200 and at 400, hence the pairs there.
_CRITICAL = np.array(
    [
        [100, 2.384, -1.314],
        [140, 2.523, -1.365],
        [199, 2.612, -1.408],
        [200, 2.689, -1.498],
        [280, 2.789, -1.554],
        [399, 2.865, -1.605],
        [400, 2.910, -1.640],
        [560, 2.960, -1.697],
        [800, 3.023, -1.753],
        [1130, 3.053, -1.804],
        [1600, 3.059, -1.858],
        [3200, 3.037, -1.944],
        [6400, 2.994, -2.014],
        [12800, 2.939, -2.071],
        [25600, 2.878, -2.119],
        [102400, 2.809, -2.165],
    ]
)


class UpperTail(NamedTuple):
    """What a sample says about its upper tail."""

    verdict: float  # LIGHT, CANNOT_TELL or HEAVY; NaN where `reason` says why there is none
    reason: str  # "", "bounded", "scales differ", "moment disagrees"; refused: "too few", "ties", "no spread"
    needed: float  # about how many values would settle it if the variation stays as it is; NaN where it is settled
    counts: Ints  # values above each threshold; this and what follows is empty where "bounded" or refused
    variation: Floats  # CV of the excesses over each
    hill: Floats  # tail index at each, of the values centred at their median
    moment: Floats


def upper_tail(values: Floats) -> UpperTail:
    """The verdict on one sample: heavy, light or cannot tell.

    Heavy: the largest sqrt(k) (CV - 1) over the thresholds exceeds its 99 % point under an exponential tail, and CV > 1
    at the two highest thresholds with 50 values or more. Light: the second smallest falls below its 1 % point (the CV
    is below 1 beyond doubt at two thresholds), or the maximum is an atom ("bounded"). Heavy is withdrawn where the
    moment estimator is below 0 beyond doubt, light where it is above. The exponential itself has E exp(tX) finite for
    small t: it is the boundary, "light" and "cannot tell" are right for it and "heavy" is wrong, in at most 1 % of
    samples. What voids it: values of different scale pooled together look heavy (see `prompt_tail`); a lognormal of σ
    below about 0.35 looks light within the reach of any sample. More than 10 % of the tail in one value is refused; a
    grid finer than that, as bfloat16 rewards have, changes no verdict.

    >>> rng = np.random.default_rng(0)
    >>> [upper_tail(draw).verdict for draw in (rng.pareto(2.0, 10_000), rng.normal(size=10_000), rng.random(50))]
    [1, -1, nan]
    >>> upper_tail(np.repeat([0.0, 1.0], 60)).reason
    'bounded'
    """
    return _judge(values[np.isfinite(values)])


def prompt_tail(values: Floats, starts: Ints) -> UpperTail:
    """The verdict on values that come in prompt groups, `starts` holding the row at which each begins, then the end.

    Prompts differ in level and in scale, and pooling different scales fakes a heavy tail. Dividing by each group's own
    interquartile range is no cure: in groups of 8 it makes normal values heavy (a small denominator now and then), in
    groups of 4 it makes all values bounded. So values are centred at their group's median, pooled and judged. Pooling
    can only make a tail look heavier, so light stands. Heavy stands if the groups' mean absolute deviations spread no
    more than in 19 regroupings of the same values, or else if the values in units of their group's deviation, which
    can only look lighter, are heavy too. Groups of fewer than four are left out, unless they are most of the sample;
    then all is pooled as it is, and a heavy verdict may be one about prompts.

    >>> rng = np.random.default_rng(1)
    >>> values = np.repeat(rng.lognormal(0.0, 1.0, 160), 64) * rng.normal(size=10_240)
    >>> upper_tail(values).verdict, prompt_tail(values, np.arange(0, 10_241, 64)).reason
    (1, 'scales differ')
    """
    finite = np.isfinite(values)
    scored = values[finite]
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[finite]
    if reason := _refusal(scored, owners):
        return _refusal_tail(reason)
    centred, spread, sizes = _centred(np.where(finite, values / np.abs(scored).max(), np.nan), starts)
    grouped = np.isfinite(centred)
    if 2 * int(grouped.sum()) < len(scored):
        return _judge(scored, owners)
    whole = _judge(centred[grouped])
    if whole.verdict == HEAVY and _scales_differ(np.sort(centred[grouped]), spread[spread > 0.0], sizes[sizes > 0]):
        scale = np.repeat(spread, np.diff(starts))[grouped]
        if _judge(centred[grouped][scale > 0.0] / scale[scale > 0.0]).verdict != HEAVY:
            return whole._replace(verdict=CANNOT_TELL, reason="scales differ")
    return whole


def tail_readings(tail: UpperTail) -> dict[str, Floats]:
    """What an instrument reports of a tail: the verdict, and at the top tenth its variation and index, one value each.

    >>> tail_readings(upper_tail(np.arange(5.0)))
    {'verdict': array([nan]), 'cv': array([nan]), 'moment': array([nan]), 'hill': array([nan])}
    """
    parts = {"cv": tail.variation, "moment": tail.moment, "hill": tail.hill}
    at_middle = {name: part[MIDDLE] if len(part) else np.nan for name, part in parts.items()}
    return {name: np.array([float(value)]) for name, value in {"verdict": tail.verdict, **at_middle}.items()}


def bounded(values: Floats) -> bool:
    """Whether the maximum is an atom: at least five values and 1 % of all are equal to it, and some are not.

    >>> bounded(np.array([0.2, 0.7, 1.0, 1.0, 1.0, 1.0, 1.0])), bounded(np.ones(9)), bounded(np.arange(9.0))
    (True, False, False)
    """
    at = int((values == values.max()).sum()) if len(values) else 0
    return max(5.0, 0.01 * len(values)) <= at < len(values)


def _refusal(values: Floats, owners: Ints | None = None) -> str:
    """Why there can be no verdict by excesses, if so. `owners`: the prompt group of each value, where they have one."""
    if len(values) < ATOMS:
        return "too few"
    if values.max() == values.min():
        return "no spread"
    # An atom that a few prompts make (one group that has collapsed onto its best answer) is no bound of the reward.
    if bounded(values) and (owners is None or len(np.unique(owners[values == values.max()])) >= ATOM_GROUPS):
        return "bounded"
    counts = tail_counts(len(values))
    if len(counts) < 2:
        return "too few"
    top = largest(values, int(counts[0]) + 1)
    cuts = np.flatnonzero(top[1:] != top[:-1])
    longest_tie = int(np.diff(cuts, prepend=-1, append=len(top) - 1).max())  # the longest run of equal values
    return "ties" if longest_tie > max(2.0, TIES * float(counts[0])) else ""


def _refusal_tail(reason: str) -> UpperTail:
    none, nan = np.zeros(0), float("nan")
    needed = FIRM / SHARES[1] if reason == "too few" else nan
    return UpperTail(LIGHT if reason == "bounded" else nan, reason, needed, np.zeros(0, np.int64), none, none, none)


def _judge(values: Floats, owners: Ints | None = None) -> UpperTail:
    if reason := _refusal(values, owners):
        return _refusal_tail(reason)
    counts = tail_counts(len(values))
    values = values / np.abs(values).max()  # squares of rewards near the end of float64 would overflow
    top = largest(values - np.median(values), int(counts[0]) + 1)
    variation, indices = excess_variation(top, counts), moment(top, counts)
    verdict, reason, needed = _decide(len(values), counts, variation, float(indices[MIDDLE]))
    return UpperTail(verdict, reason, needed, counts, variation, hill(top, counts), indices)


def _decide(n: int, counts: Ints, variation: Floats, index: float) -> tuple[int, str, float]:
    nan = float("nan")
    if np.isnan(variation).any():
        return CANNOT_TELL, "", nan
    statistic = np.sqrt(counts) * (variation - 1.0)
    upper, lower = critical_values(n)
    doubt = 2.33 * math.sqrt((1.0 + index * index) / counts[MIDDLE])  # 1 % of a standard normal
    firm = np.flatnonzero(counts >= FIRM)[-2:]
    if statistic.max() > upper and len(firm) == 2 and bool((variation[firm] > 1.0).all()):
        return (CANNOT_TELL, "moment disagrees", nan) if index < -doubt else (HEAVY, "", nan)
    if np.sort(statistic)[1] < lower:
        return (CANNOT_TELL, "moment disagrees", nan) if index > doubt else (LIGHT, "", nan)
    return CANNOT_TELL, "", _needed_size(n, counts, variation, upper, lower)


def _needed_size(n: int, counts: Ints, variation: Floats, upper: float, lower: float) -> float:
    """The sample size at which today's coefficients of variation would be enough: the statistic grows as sqrt(k)."""
    above, below = variation > 1.0, variation < 1.0
    sizes = [float("inf")]
    if above.any():
        sizes.append(float(np.min(n * (upper / (variation[above] - 1.0)) ** 2 / counts[above])))
    if below.sum() > 1:
        sizes.append(float(np.sort(n * (lower / (variation[below] - 1.0)) ** 2 / counts[below])[1]))
    enough = max(min(sizes), FIRM / SHARES[1])
    return float(math.ceil(enough)) if n < enough < 1e9 else float("nan")


def _centred(values: Floats, starts: Ints) -> tuple[Floats, Floats, Ints]:
    """Values less their group's median, the groups' mean absolute deviations, and how many values each is of; NaN and 0
    for groups of fewer than four."""
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    sizes = np.bincount(group[~np.isnan(values)], minlength=len(starts) - 1)
    enough = sizes >= 4
    order = np.lexsort((values, group))  # NaN last in each group
    first = starts[:-1][enough]
    low, high = order[first + (sizes[enough] - 1) // 2], order[first + sizes[enough] // 2]
    middle = np.full(len(enough), np.nan)
    middle[enough] = 0.5 * (values[low] + values[high])
    centred = values - middle[group]
    spread = np.full(len(enough), np.nan)
    np.divide(group_sums(np.abs(centred), starts)[0], sizes, out=spread, where=enough)
    return centred, spread, np.where(enough, sizes, 0)


def _scales_differ(pool: Floats, spread: Floats, sizes: Ints) -> bool:
    """Whether the groups' spreads vary more than in each regrouping of the pooled values, a test at 1 / (19 + 1).

    The regroupings are the same for the same pool, so that a replay decides alike; the pool comes sorted, so that the
    order of rows does not matter.
    """
    observed = np.log(spread).var()
    starts = np.concatenate(([0], np.cumsum(sizes)))
    place = np.arange(len(pool), dtype=np.uint64)
    for turn in range(REGROUPINGS):
        shuffled = pool[np.argsort(splitmix64(place + np.uint64(turn * len(pool))))]
        widths = _centred(shuffled, starts)[1]
        widths = widths[widths > 0.0]
        if not len(widths) or np.log(widths).var() >= observed:
            return False
    return True


def largest(values: Floats, count: int) -> Floats:
    """The `count` largest values, largest first; NaN must have been taken out."""
    cut = len(values) - count
    top = values if cut <= 0 else np.partition(values, cut)[cut:]
    return np.sort(top)[::-1]


def hill(top: Floats, counts: Sequence[int] | Ints) -> Floats:
    """Hill's tail index for each k: mean of ln X_(1..k) less ln X_(k+1); standard error ξ / sqrt(k).

    `top` holds the largest values, largest first, at least one more than the largest k. NaN where X_(k+1) is not
    positive. Not shift-invariant: where the zero lies is part of the definition.

    >>> hill(np.array([8.0, 4.0, 2.0, 1.0]), [3]).round(4).tolist()  # ln 2 · (3 + 2 + 1) / 3
    [1.3863]
    """
    return np.asarray(_log_moments(top, np.asarray(counts, np.int64))[0], np.float64)


def moment(top: Floats, counts: Sequence[int] | Ints) -> Floats:
    """The moment estimator of Dekkers, Einmahl and de Haan (1989) for each k: M1 + 1 - (1/2) / (1 - M1² / M2).

    M_j is the mean of (ln X_(i) - ln X_(k+1))^j over i <= k. Unlike Hill's it also gives indices of 0 and below, that
    is of exponential and of bounded tails; standard error sqrt(1 + ξ²) / sqrt(k) from 0 up. NaN where X_(k+1) is not
    positive or all of the k values are equal.

    >>> moment(np.array([8.0, 4.0, 2.0, 1.0]), [3]).round(4).tolist()  # M1 = 2 ln 2, M2 = 14/3 ln² 2
    [-1.1137]
    """
    first, second = _log_moments(top, np.asarray(counts, np.int64))
    varied = second > first * first * (1.0 + 1e-12)
    share = np.divide(first * first, second, out=np.full(len(first), np.nan), where=varied)
    return np.asarray(first + 1.0 - 0.5 / (1.0 - share), np.float64)


def _log_moments(top: Floats, counts: Ints) -> Floats:
    """Mean and mean square of ln X_(i) - ln X_(k+1) over i <= k, for each k."""
    moments = np.full((2, len(counts)), np.nan)
    for c, k in enumerate(counts.tolist()):
        if 0 < k < len(top) and top[k] > 0.0:
            logs = np.log(top[:k]) - math.log(top[k])
            moments[:, c] = logs.mean(), np.square(logs).mean()
    return moments


def excess_variation(top: Floats, counts: Sequence[int] | Ints) -> Floats:
    """Coefficient of variation (sample standard deviation over mean) of the k excesses over X_(k+1), for each k.

    For an exponential tail it is 1, and sqrt(k) (CV - 1) is about standard normal from k = 200 on.

    >>> excess_variation(np.array([4.0, 2.0, 1.0]), [2]).round(4).tolist()  # excesses 3 and 1
    [0.7071]
    """
    variation = np.full(len(counts), np.nan)
    for c, k in enumerate(map(int, counts)):
        if 1 < k < len(top) and top[0] > top[k]:
            excess = top[:k] - top[k]
            variation[c] = excess.std(ddof=1) / excess.mean()
    return variation


def tail_counts(n: int) -> Ints:
    """How many of n values lie above each threshold; thresholds with too few are left out."""
    counts = np.floor(n * np.array(SHARES) + 1e-9).astype(np.int64)
    return counts[counts >= FEWEST]


def critical_values(n: int) -> tuple[float, float]:
    """What the largest sqrt(k) (CV - 1) must exceed for heavy, and the second smallest fall below for light: 1 % each.

    Of the maximum over nested thresholds, which are dependent, so that looking at four of them costs nothing.
    """
    after = int(np.searchsorted(_CRITICAL[:, 0], n))
    near = _CRITICAL[max(after - 1, 0) : after + 1]
    return float(near[:, 1].max()), float(near[:, 2].min())
