"""Flagged rollouts that would gain leave; those that their own pay speaks against stay."""

from __future__ import annotations

import numpy as np
import pytest

from tiltmeter.stats.screened_rows import screened_rows


@pytest.mark.parametrize(
    ("pay", "flags", "out"),
    [
        ([1.0, 0.5, 0.5, 0.0], [1, 0, 0, 0], [1, 0, 0, 0]),
        ([0.0, 0.5, 0.5, 1.0], [1, 0, 0, 0], [0, 0, 0, 0]),
        ([0.5, 0.5, 0.5, 0.5], [1, 0, 0, 1], [0, 0, 0, 0]),  # nobody gains where all are paid the same
        ([0.1, 0.2, 0.3, 0.4], [1, 1, 1, 1], [1, 1, 1, 1]),  # nothing to compare with
        ([0.55, 0.0, 0.0, 1.0], [1, 1, 1, 0], [1, 0, 0, 0]),  # below the others, above the mean of those that stay
        ([np.nan, 0.5, 0.9, 0.1], [0, 0, 1, 0], [0, 0, 1, 0]),
        ([np.nan, np.nan, 0.9, 0.1], [0, 0, 1, 1], [0, 0, 1, 1]),
    ],
)
def test_who_leaves(pay: list[float], flags: list[int], out: list[int]) -> None:
    rows = screened_rows(np.array(pay), np.array(flags, bool), np.zeros(4, np.int64))
    assert rows.tolist() == [bool(one) for one in out]


def test_whatever_is_paid_no_flagged_row_that_stays_gains_and_no_unflagged_row_leaves() -> None:
    rng = np.random.default_rng(3)
    left = stayed = 0
    for _ in range(500):
        pay, flags = rng.choice([0.0, 0.3, 1.0, rng.random()], 24), rng.random(24) < 0.4
        groups = np.repeat(rng.permutation(4), 6)
        out = screened_rows(pay, flags, groups)
        assert not (out & ~flags).any()
        for group in range(4):
            rows = groups == group
            kept = rows & ~out
            if kept.any():
                assert (pay[kept & flags] <= pay[kept].mean() + 1e-6).all()
                assert (pay[rows & out] > pay[kept].mean()).all()  # each that leaves would have gained
        left, stayed = left + int(out.sum()), stayed + int((flags & ~out).sum())
    assert left > 100 and stayed > 100
