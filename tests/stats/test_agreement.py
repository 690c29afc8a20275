"""Agreement, win chances and strengths against slow references and other libraries."""

from __future__ import annotations

import itertools
import time

import numpy as np
import pytest

from tiltmeter.stats.agreement import Floats, Ints, pair_agreement
from tiltmeter.stats.win_share import prepare_reference, win_share


def paired(gold: Floats, reward: Floats, weights: Floats) -> float:
    """Every pair, one at a time."""
    right = total = 0.0
    for i, j in itertools.permutations(range(len(gold)), 2):
        if gold[i] > gold[j] and np.isfinite(reward[i]) and np.isfinite(reward[j]):
            total += weights[i] * weights[j]
            right += weights[i] * weights[j] * (0.5 if reward[i] == reward[j] else float(reward[i] > reward[j]))
    return right / total if total else float("nan")


def test_pair_agreement_counts_every_pair_once() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        sizes = rng.integers(1, 12, rng.integers(1, 5))
        starts: Ints = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        rows = int(starts[-1])
        gold = rng.integers(0, rng.integers(1, 6), rows) / 4.0
        reward = rng.integers(-3, 4, rows).astype(float) if rng.random() < 0.5 else rng.normal(size=rows)
        gold[rng.random(rows) < 0.1] = np.nan
        reward[rng.random(rows) < 0.1] = np.nan
        weights = 1.0 / rng.uniform(0.1, 1.0, rows) if rng.random() < 0.5 else np.ones(rows)
        found = pair_agreement(gold, reward, starts, weights)
        for k, (first, stop) in enumerate(itertools.pairwise(starts)):
            expected = paired(gold[first:stop], reward[first:stop], weights[first:stop])
            assert found[k] == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_pair_agreement_does_not_grow_with_the_square_of_the_group() -> None:
    rng = np.random.default_rng(3)
    rows = 200_000  # 2 * 10^10 pairs
    gold = rng.random(rows)
    pair_agreement(gold[:10], gold[:10], np.array([0, 10]))
    began = time.process_time()
    assert pair_agreement(gold, gold, np.array([0, rows])).tolist() == [1.0]
    assert time.process_time() - began < 5.0


def test_win_share_counts_the_sample_below_and_half_of_the_ties() -> None:
    rng = np.random.default_rng(7)
    for _ in range(500):
        sample = rng.integers(0, 6, rng.integers(1, 20)).astype(float)
        values = rng.integers(-1, 7, 9).astype(float)
        weights = rng.uniform(0.5, 3.0, len(sample))
        weights[0] = 1.0
        sample[1:][rng.random(len(sample) - 1) < 0.2] = np.nan
        known = np.isfinite(sample)
        for given, weight in ((None, known.astype(float)), (weights, np.where(known, weights, 0.0))):
            beats = (values[:, None] > sample) + 0.5 * (values[:, None] == sample)
            expected = (beats * weight).sum(axis=1) / weight.sum()
            assert win_share(values, prepare_reference(sample, given)) == pytest.approx(expected, rel=1e-12)
    assert np.isnan(win_share(np.ones(2), prepare_reference(np.full(3, np.nan)))).all()
