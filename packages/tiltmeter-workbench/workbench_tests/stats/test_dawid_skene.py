"""Dawid and Skene's estimate against closed cases, an oracle written out in loops, and raters of known reliability."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from numpy.typing import NDArray

from tiltmeter_workbench.stats.dawid_skene import DawidSkeneFit, dawid_skene

Floats = NDArray[np.float64]


def simulated(
    rng: np.random.Generator, items: int, right: Floats, *, kinds: int = 2, missing: float = 0.0
) -> tuple[Floats, Floats]:
    """The truth, and answers of raters who give it with a chance of their own and else any other."""
    truth = rng.integers(0, kinds, items)
    other = (truth[:, None] + rng.integers(1, kinds, (items, len(right)))) % kinds
    answers = np.where(rng.random((items, len(right))) < right, truth[:, None], other).astype(float)
    answers[rng.random(answers.shape) < missing] = np.nan
    return truth.astype(float), answers


def majority(answers: Floats) -> Floats:
    """Of two kinds, ties for the first."""
    return np.asarray(np.nanmean(answers, axis=1) > 0.5, float)


def in_loops(ratings: Floats, rounds: int, smoothing: float) -> tuple[Floats, Floats]:
    """The same model, one vote after the other."""
    kinds = sorted({float(value) for value in ratings[np.isfinite(ratings)]})
    items, raters = ratings.shape
    posterior = np.array([[np.sum(row == kind) for kind in kinds] for row in ratings], float)
    posterior /= posterior.sum(axis=1, keepdims=True)
    table = np.zeros((raters, len(kinds), len(kinds)))
    for _ in range(rounds):
        for r in range(raters):
            for k in range(len(kinds)):
                row = [smoothing * (2 if a == k else 1) for a in range(len(kinds))]
                for i in range(items):
                    if np.isfinite(ratings[i, r]):
                        row[kinds.index(ratings[i, r])] += posterior[i, k]
                table[r, k] = np.array(row) / sum(row)
        prior = (posterior.sum(axis=0) + smoothing) / (posterior.sum() + smoothing * len(kinds))
        for i in range(items):
            chance = prior.copy()
            for r in range(raters):
                if np.isfinite(ratings[i, r]):
                    chance = chance * table[r, :, kinds.index(ratings[i, r])]
            posterior[i] = chance / chance.sum()
    return posterior, table


def test_it_is_the_model_written_out_in_loops() -> None:
    _, answers = simulated(np.random.default_rng(3), 40, np.array([0.9, 0.7, 0.6, 0.8]), kinds=3, missing=0.3)
    answers = answers[np.isfinite(answers).any(axis=1)]
    found = dawid_skene(answers, most=7, tolerance=-math.inf)
    posterior, table = in_loops(answers, 7, 0.5)
    assert len(found.path) == 7
    np.testing.assert_allclose(found.posterior, posterior, atol=1e-10)
    np.testing.assert_allclose(found.confusion, table, atol=1e-10)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_maximised_never_falls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    _, answers = simulated(rng, 150, rng.uniform(0.2, 0.95, 6), kinds=3, missing=0.5)
    path = dawid_skene(answers, tolerance=-math.inf, most=60).path
    assert len(path) == 60
    assert np.diff(path).min() >= -1e-9 * abs(path[0])


def test_raters_who_all_agree_are_believed() -> None:
    truth = np.array([0.0, 1.0] * 50)
    found = dawid_skene(np.column_stack([truth] * 3))
    assert found.best.tolist() == truth.tolist()
    assert found.posterior.max(axis=1).min() > 0.999
    # With 50 items of each kind, half an answer of each kind and half a right one more: 51 of 51.5.
    assert found.reliability == pytest.approx(51.0 / 51.5, abs=1e-3)


def test_reliability_is_recovered_within_its_error() -> None:
    right = np.array([0.95, 0.85, 0.75, 0.65, 0.55])
    apart = []
    for seed in range(20):
        _, answers = simulated(np.random.default_rng(100 + seed), 1500, right, missing=0.2)
        apart.append(dawid_skene(answers).reliability - right)
    error = np.sqrt(right * (1.0 - right) / 1200)
    assert np.abs(np.mean(apart, axis=0)).max() < 0.01
    assert (np.std(apart, axis=0) < 2.5 * error).all()


def test_one_who_answers_the_other_way_round_is_turned_round() -> None:
    truth, answers = simulated(np.random.default_rng(8), 400, np.array([0.85, 0.8, 0.8, 0.05]))
    found = dawid_skene(answers)
    assert found.reliability[3] < 0.12
    assert (found.best == truth).mean() > (majority(answers[:, :3]) == truth).mean() + 0.02


def test_careful_raters_outweigh_a_careless_majority() -> None:
    gains = []
    for seed in range(10):
        right = np.array([0.95, 0.93, 0.55, 0.55, 0.52, 0.5, 0.55])
        truth, answers = simulated(np.random.default_rng(40 + seed), 500, right)
        gains.append((dawid_skene(answers).best == truth).mean() - (majority(answers) == truth).mean())
    assert min(gains) > 0.1


def test_a_tie_is_an_answer_like_another() -> None:
    votes = np.array([[1.0, 1.0, 1.0], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0], [0.5, 0.5, 1.0]] * 20)
    found = dawid_skene(votes)
    assert found.categories.tolist() == [0.0, 0.5, 1.0]
    assert found.best[:4].tolist() == [1.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    "ratings",
    [np.zeros((0, 3)), np.full((4, 2), np.nan), np.zeros((1, 1)), np.ones((5, 1)), np.array([[1.0, 0.0]])],
    ids=["no items", "no votes", "one vote", "one rater", "two who disagree"],
)
def test_little_or_nothing_to_go_by(ratings: Floats) -> None:
    found: DawidSkeneFit = dawid_skene(ratings)
    assert found.posterior.shape == (len(ratings), len(found.categories))
    assert len(found.best) == len(ratings)
    assert np.isfinite(found.reliability).all()
    assert np.isnan(found.best).tolist() == np.isnan(ratings).all(axis=1).tolist()


def test_two_who_disagree_leave_it_open() -> None:
    assert dawid_skene(np.array([[1.0, 0.0]] * 30)).posterior == pytest.approx(0.5, abs=0.2)


def test_an_item_without_votes_stays_unknown_and_changes_nothing() -> None:
    _, answers = simulated(np.random.default_rng(5), 60, np.array([0.9, 0.8, 0.7]))
    more = np.vstack((answers, np.full((1, 3), np.nan)))
    assert np.isnan(dawid_skene(more).best[-1])
    np.testing.assert_allclose(dawid_skene(more).confusion, dawid_skene(answers).confusion)


def test_a_hundred_thousand_votes_take_no_time() -> None:
    rng = np.random.default_rng(1)
    _, answers = simulated(rng, 20_000, rng.uniform(0.6, 0.95, 50), kinds=3, missing=0.9)
    begun = time.process_time()
    dawid_skene(answers)
    assert time.process_time() - begun < 5.0
