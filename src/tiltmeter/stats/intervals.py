"""Confidence intervals from few values: of a mean (Student's t) and of a share (Wilson's, and an exact bound)."""

from __future__ import annotations

import math
from statistics import NormalDist


def student_t_quantile(freedom: int, confidence: float) -> float:
    """The two-sided quantile of Student's t, to within 1 % from three degrees of freedom on, exact for one and two.

    Formula: Cornish-Fisher expansion in 1/ν, Abramowitz and Stegun 26.7.5

    >>> [round(student_t_quantile(df, 0.95), 2) for df in (1, 2, 9, 31)]
    [12.71, 4.3, 2.26, 2.04]
    """
    p = 0.5 + confidence / 2.0
    if freedom == 1:
        return math.tan(math.pi * (p - 0.5))
    if freedom == 2:
        return (2.0 * p - 1.0) * math.sqrt(2.0 / (4.0 * p * (1.0 - p)))
    z, v = NormalDist().inv_cdf(p), float(freedom)
    terms = (
        z,
        (z**3 + z) / 4.0,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96.0,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384.0,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160.0,
    )
    return sum(term / v**power for power, term in enumerate(terms))


def wilson_interval(share: float, n: float, z: float = 1.959964) -> tuple[float, float]:
    """Interval of a share of n (Wilson 1927).

    >>> [round(end, 3) for end in wilson_interval(1.0, 20)]
    [0.839, 1.0]
    """
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return centre - reach, centre + reach


def upper_bound(events: int, runs: int, level: float = 0.95) -> float:
    """The one-sided Clopper-Pearson bound: the rate at which so few events would have chance 1 - level.

    Exact for any number of runs; no normal approximation, which would call 0 of 40 a rate of zero.

    Formula: p with P(Binomial(runs, p) <= events) = 1 - level, by bisection. Source: Clopper and Pearson 1934.

    >>> [round(upper_bound(*counts), 4) for counts in ((0, 40), (0, 299), (2, 628), (3, 3))]
    [0.0722, 0.01, 0.01, 1.0]
    """
    if runs < 1 or not 0 <= events <= runs:
        raise ValueError(f"{events} of {runs} is no count")
    if events == runs:
        return 1.0
    ways = [math.lgamma(runs + 1) - math.lgamma(k + 1) - math.lgamma(runs - k + 1) for k in range(events + 1)]
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        logs = [way + k * math.log(middle) + (runs - k) * math.log1p(-middle) for k, way in enumerate(ways)]
        low, high = (middle, high) if sum(map(math.exp, logs)) > 1 - level else (low, middle)
    return high
