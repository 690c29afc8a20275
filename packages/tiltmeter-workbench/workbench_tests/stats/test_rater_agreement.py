"""Agreement of raters against slow references and another library."""

from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np
import pytest
from statsmodels.stats.inter_rater import fleiss_kappa as statsmodels_kappa

from tiltmeter_workbench.stats.rater_agreement import Floats, count_ratings, fleiss_kappa, krippendorff_alpha

#: Four observers, twelve units, from Krippendorff's note on computing alpha (2011); 0 = not rated.
OBSERVERS = """
1 2 3 3 2 1 4 1 2 0 0 0
1 2 3 3 2 2 4 1 2 5 0 3
0 3 3 3 2 3 4 2 2 5 1 0
1 2 3 3 2 4 4 1 2 5 1 0
"""


def coincidences(ratings: Floats, level: str) -> float:
    """Alpha from the table of coincidences, pair by pair."""
    table: dict[tuple[float, float], float] = {}
    for unit in ratings:
        known = [value for value in unit if not math.isnan(value)]
        for a, b in itertools.permutations(range(len(known)), 2):
            pair = (known[a], known[b])
            table[pair] = table.get(pair, 0.0) + 1.0 / (len(known) - 1)
    margin: dict[float, float] = {}
    for (value, _), weight in table.items():
        margin[value] = margin.get(value, 0.0) + weight
    n = sum(margin.values())

    def apart(a: float, b: float) -> float:
        return float(a != b) if level == "nominal" else (a - b) ** 2

    seen = sum(weight * apart(a, b) for (a, b), weight in table.items()) / n if n else 0.0
    expected = sum(margin[a] * margin[b] * apart(a, b) for a in margin for b in margin) / (n * (n - 1)) if n else 0.0
    return 1.0 - seen / expected if expected else float("nan")


def test_kappa_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        items, raters, categories = rng.integers(2, 30), rng.integers(2, 6), rng.integers(2, 5)
        ratings = np.where(rng.random((items, raters)) < 0.5, 0, rng.integers(0, categories, (items, raters)))
        table = count_ratings(ratings.astype(float))
        if table.shape[1] < 2:
            assert math.isnan(fleiss_kappa(table))
        else:
            assert fleiss_kappa(table) == pytest.approx(statsmodels_kappa(table), rel=1e-10, abs=1e-12)


def test_kappa_by_hand() -> None:
    # P = (1 + 1 + 1/3) / 3 = 7/9, P_e = (5/9)^2 + (4/9)^2 = 41/81.
    assert fleiss_kappa(np.array([[3, 0], [0, 3], [2, 1]])) == pytest.approx((7 / 9 - 41 / 81) / (1 - 41 / 81))
    with pytest.raises(ValueError, match="as many of one as of another"):
        fleiss_kappa(np.array([[3, 0], [1, 1]]))


@pytest.mark.parametrize("level", ["nominal", "interval"])
def test_alpha_is_that_of_the_coincidence_table(level: Literal["nominal", "interval"]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        ratings = rng.integers(0, rng.integers(1, 5), (rng.integers(1, 12), rng.integers(1, 6))).astype(float)
        ratings[rng.random(ratings.shape) < 0.3] = np.nan
        expected = coincidences(ratings, level)
        assert krippendorff_alpha(ratings, level) == pytest.approx(expected, rel=1e-10, abs=1e-12, nan_ok=True)


def test_alpha_of_krippendorffs_own_example() -> None:
    rows = [[float(word) or np.nan for word in line.split()] for line in OBSERVERS.strip().splitlines()]
    ratings = np.array(rows).T
    assert round(krippendorff_alpha(ratings), 3) == 0.743
    assert round(krippendorff_alpha(ratings, "interval"), 3) == 0.849
    with pytest.raises(ValueError, match="nominal or interval"):
        krippendorff_alpha(ratings, "ordinal")  # type: ignore[arg-type]
