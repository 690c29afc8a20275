"""The share of something, from the answers of a test that errs, with the uncertainty of all shares in it."""

from __future__ import annotations

from functools import lru_cache
from math import sqrt
from typing import NamedTuple

from tiltmeter.stats.intervals import upper_bound

Z = 1.959964  # of a 95 % interval


class ShareCount(NamedTuple):
    """So many of so many, as a share with an exact interval (95 %, Clopper and Pearson 1934).

    >>> [round(number, 3) for number in (ShareCount(9, 10).share, *ShareCount(9, 10).interval)]
    [0.9, 0.555, 0.997]
    """

    hits: int
    total: int

    @property
    def share(self) -> float:
        return self.hits / self.total if self.total else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        return _exact_interval(self.hits, self.total)


@lru_cache(maxsize=4096)
def _exact_interval(hits: int, total: int) -> tuple[float, float]:
    if not total:
        return 0.0, 1.0
    return 1.0 - upper_bound(total - hits, total, 0.975), upper_bound(hits, total, 0.975)


class Prevalence(NamedTuple):
    """An estimate and a 95 % interval; the estimate is NaN where the test says nothing."""

    estimate: float
    low: float
    high: float


def corrected_prevalence(
    flagged: float, rows: float, sensitivity: ShareCount, false_positives: ShareCount
) -> Prevalence:
    """The share of rows that have it, where a test that errs flags so many of them.

    Formula: Rogan and Gladen 1978, (p + Sp - 1) / (Se + Sp - 1), with the interval of Lang and Reiczigel 2014, which
    counts the uncertainty of sensitivity and specificity too. `rows` may be an effective number.

    >>> [round(number, 3) for number in corrected_prevalence(30, 100, ShareCount(80, 100), ShareCount(5, 100))]
    [0.333, 0.207, 0.472]
    >>> corrected_prevalence(30, 100, ShareCount(5, 10), ShareCount(5, 10))[1:]
    (0.0, 1.0)
    """
    if not rows or not sensitivity.total or not false_positives.total:
        return Prevalence(float("nan"), 0.0, 1.0)
    share, hit_rate, specificity = flagged / rows, sensitivity.share, 1.0 - false_positives.share
    youden = hit_rate + specificity - 1.0
    if sensitivity.interval[0] <= false_positives.interval[1]:
        return Prevalence(float("nan"), 0.0, 1.0)  # it may flag what is not there as often as what is
    estimate = min(max((share + specificity - 1.0) / youden, 0.0), 1.0)
    n, p = rows + Z * Z, (flagged + Z * Z / 2.0) / (rows + Z * Z)
    n_se, se = sensitivity.total + 2.0, (sensitivity.hits + 1.0) / (sensitivity.total + 2.0)
    n_sp = false_positives.total + 2.0
    sp = (false_positives.total - false_positives.hits + 1.0) / n_sp
    reach = se + sp - 1.0
    centre = (p + sp - 1.0) / reach
    var_se, var_sp = se * (1.0 - se) / n_se, sp * (1.0 - sp) / n_sp
    shift = 2.0 * Z * Z * (centre * var_se - (1.0 - centre) * var_sp)
    error = sqrt(p * (1.0 - p) / n + centre**2 * var_se + (1.0 - centre) ** 2 * var_sp) / reach
    low, high = (min(max(centre + shift + side * Z * error, 0.0), 1.0) for side in (-1.0, 1.0))
    return Prevalence(estimate, min(low, estimate), max(high, estimate))


def effective_rows(flags_by_group: list[tuple[int, int]]) -> float:
    """How many independent rows groups of rows are worth, each with its flags and its rows.

    Rows of one prompt do alike. Where all or none are flagged nothing tells how much, so that each group counts once.

    >>> effective_rows([(0, 8)] * 5), round(effective_rows([(4, 8), (3, 8), (5, 8), (4, 8), (4, 8), (3, 8)]))
    (5.0, 48)
    """
    groups, rows = len(flags_by_group), sum(count for _, count in flags_by_group)
    flags = sum(hits for hits, _ in flags_by_group)
    if groups < 2 or flags in (0, rows):
        return float(groups)
    share = flags / rows
    spread = sum((hits - share * count) ** 2 for hits, count in flags_by_group) * groups / (groups - 1)
    return float(rows) if spread <= 0.0 else min(max(share * (1.0 - share) * rows**2 / spread, float(groups)), rows)
