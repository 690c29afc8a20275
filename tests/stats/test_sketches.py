"""Sketches against sorting and sets: relative error, rank error, and that merged equals one pass."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tiltmeter.stats.sketches import ERROR, LogHistogram, RankSketch, distinct_count, distinct_registers


def _drawn(rng: np.random.Generator) -> np.ndarray:
    n = int(rng.integers(0, 60))
    values = rng.choice([-1.0, 0.0, 1.0], n, p=[0.4, 0.1, 0.5]) * 10.0 ** rng.uniform(-300, 300, n)
    if rng.random() < 0.5:
        values = rng.normal(size=n).round(1)
    values[rng.random(n) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
    return values


def test_every_quantile_of_the_histogram_is_within_one_percent_of_the_sorted_value() -> None:
    rng = np.random.default_rng(1)
    for _ in range(600):
        values = _drawn(rng)
        known = np.sort(values[np.isfinite(values)])
        histogram = LogHistogram.of(values)
        assert histogram.count == len(known)
        assert histogram.nonfinite == len(values) - len(known)
        for share in (*rng.random(5), 0.0, 0.5, 1.0):
            told = histogram.quantile(share)
            if not len(known):
                assert math.isnan(told)
                continue
            exact = known[math.floor(share * (len(known) - 1))]
            assert abs(told - exact) <= (ERROR + 1e-9) * abs(exact)


def test_merged_histograms_equal_one_pass_in_any_split_and_order() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        values = _drawn(rng)
        whole = LogHistogram.of(values)
        parts = np.array_split(rng.permutation(values), int(rng.integers(1, 6)))
        merged = LogHistogram()
        for part in parts:
            merged = merged.merged(LogHistogram.of(part))
        assert merged.to_bytes() == whole.to_bytes()
        assert LogHistogram.from_bytes(whole.to_bytes()).to_bytes() == whole.to_bytes()


def test_the_ends_of_float64_have_a_bucket() -> None:
    edge = np.array([np.finfo(float).max, -np.finfo(float).max, np.finfo(float).tiny, 1e300, 5e-324])
    histogram = LogHistogram.of(edge)
    assert histogram.count == 5
    assert math.isfinite(histogram.quantile(1.0))
    assert histogram.quantile(1.0) == pytest.approx(np.finfo(float).max, rel=0.01)
    assert histogram.quantile(0.0) == pytest.approx(-np.finfo(float).max, rel=0.01)


@pytest.mark.parametrize("raw", [b"", b"x" * 16, b"\xff" * 28, LogHistogram.of(np.ones(3)).to_bytes()[:-1]])
def test_bytes_that_are_no_histogram_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no histogram"):
        LogHistogram.from_bytes(raw)


def test_the_rank_sketch_stays_within_its_rank_error_after_merging() -> None:
    """1.33 % at 99 %: of five quantiles of 40 streams two are expected to miss; above six has a chance of 1 in 200."""
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(40):
        values = rng.normal(size=20_000).astype(np.float32)
        sketch = RankSketch()
        for part in np.array_split(values, 4):
            piece = RankSketch()
            piece.add(part)
            sketch.merge(RankSketch.from_bytes(piece.to_bytes()))
        assert sketch.count == len(values)
        for share in (0.01, 0.25, 0.5, 0.9, 0.99):
            rank = float((values <= sketch.quantile(share)).mean())
            missed += abs(rank - share) > 0.0133
    assert missed <= 6


def test_a_small_rank_sketch_is_exact_and_counts_what_is_no_number() -> None:
    rng = np.random.default_rng(4)
    for _ in range(500):
        values = rng.normal(size=int(rng.integers(1, 100))).astype(np.float32)
        sketch = RankSketch()
        sketch.add(np.concatenate((values, [np.nan, np.inf, 1e300])))
        assert sketch.nonfinite == 3
        assert sketch.count == len(values)
        share = float(rng.random())
        assert sketch.quantile(share) == np.sort(values)[max(math.ceil(share * len(values)) - 1, 0)]
    assert math.isnan(RankSketch().quantile(0.5))


def test_distinct_counts_stay_within_four_standard_errors_of_a_set() -> None:
    rng = np.random.default_rng(5)
    errors = []
    for size in np.unique(np.geomspace(1, 200_000, 60).astype(int)):
        keys = rng.integers(-(2**63), 2**63 - 1, size, dtype=np.int64)
        repeated = rng.choice(keys, size // 2)
        told = distinct_count(distinct_registers(np.concatenate((keys, repeated))))
        exact = len(set(keys.tolist()))
        assert abs(told - exact) <= max(4 * 0.0081 * exact, 0.5)
        if exact > 1000:
            errors.append(told / exact - 1)
    assert abs(float(np.mean(errors))) < 0.005  # the classic formula is off by 2.4 % near 40,000


def test_small_counts_of_small_integers_equal_a_set() -> None:
    """Token ids are small and consecutive; the hash must spread them."""
    rng = np.random.default_rng(6)
    for _ in range(500):
        keys = rng.integers(0, 50_000, int(rng.integers(0, 60))).astype(np.int32)
        told = distinct_count(distinct_registers(keys))
        assert abs(told - len(set(keys.tolist()))) <= 2.5  # two of sixty may share a register


def test_merged_registers_equal_one_pass() -> None:
    rng = np.random.default_rng(7)
    for _ in range(500):
        keys = rng.integers(0, 10_000, int(rng.integers(0, 400)))
        cut = int(rng.integers(0, len(keys) + 1))
        merged = np.maximum(distinct_registers(keys[:cut]), distinct_registers(rng.permutation(keys[cut:])))
        assert np.array_equal(merged, distinct_registers(keys))


def test_nothing_counted_is_zero_and_full_registers_are_finite() -> None:
    assert distinct_count(np.zeros(1 << 14, np.uint8)) == 0.0
    assert distinct_count(np.full(1 << 14, 50, np.uint8)) > 1e17
