"""Raters who are off are found, and others are not accused: neither by chance nor for having got the hard items."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks import raters
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.ratings import Ratings
from tiltmeter_workbench.preferences.reading.reader import read_preferences

Floats = NDArray[np.float64]
DATA = Path(__file__).parents[5] / "shared" / "data"
shared = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")


def drawn(rng: np.random.Generator, items: int, right: Floats, missing: float = 0.2) -> Floats:
    truth = rng.integers(0, 2, items)[:, None]
    votes = np.where(rng.random((items, len(right))) < right, truth, 1 - truth).astype(float)
    votes[rng.random(votes.shape) < missing] = np.nan
    return votes


def checked(votes: Floats, alpha: float = 0.05, order_known: bool = False) -> Check:
    texts = [str(at) for at in range(len(votes))]
    names = [f"r{at}" for at in range(votes.shape[1])]
    return raters.check(Comparisons(texts, texts, texts, votes, names, order_known=order_known), alpha=alpha, seed=0)


def off(found: Check) -> list[str]:
    return sorted(str(row["rater"]) for row in found.rows if row.get("off"))


def test_one_who_guesses_and_one_who_answers_the_other_way_round_are_found() -> None:
    for seed in range(10):
        right = np.array([0.9, 0.85, 0.9, 0.5, 0.9, 0.1])
        found = checked(drawn(np.random.default_rng(seed), 300, right))
        assert found.state == "found"
        assert off(found) == ["r3", "r5"]
        assert found.rows[0]["rater"] == "r5"
        assert "r5" in found.sentence


def test_raters_who_are_alike_are_not_accused() -> None:
    """Items differ in how hard they are; with alpha 0.05 at most one set in twenty may name anybody."""
    wrong = 0
    for seed in range(200):
        rng = np.random.default_rng(1000 + seed)
        items, count = int(rng.integers(15, 250)), int(rng.integers(3, 9))
        hard = np.repeat(0.5 * rng.beta(1, 3, (items, 1)), count, 1)
        truth = rng.integers(0, 2, (items, 1))
        votes = np.where(rng.random((items, count)) < hard, 1 - truth, truth).astype(float)
        votes[rng.random(votes.shape) < 0.2] = np.nan
        wrong += checked(votes).state == "found"
    assert wrong <= 10


def test_whoever_gets_the_hard_items_is_not_blamed() -> None:
    rng = np.random.default_rng(4)
    right = np.where(np.arange(600)[:, None] < 300, 0.95, 0.6)
    truth = rng.integers(0, 2, (600, 1))
    votes = np.where(rng.random((600, 5)) < right, truth, 1 - truth).astype(float)
    votes[:300, 0] = np.nan  # the first rater saw only the hard ones
    found = checked(votes)
    row = next(row for row in found.rows if row["rater"] == "r0")
    assert row["with_majority"] < 0.75  # looks bad
    assert found.state == "clear"


def test_a_bound_on_the_chance_is_never_too_small() -> None:
    """Against all assignments of an item's votes, counted out: which of them is this rater's is open."""
    rng = np.random.default_rng(2)
    codes = np.where(rng.random((6, 3)) < 0.4, 0.0, 2.0)
    ratings = Ratings(codes, ("second", "tie", "first"), ("a", "b", "c"), (), 1)
    lower, chance = raters._agreement_gaps(ratings)
    sums = np.zeros(1)
    for row in codes:
        gaps = []
        for mine in range(3):
            rest = [row[other] for other in range(3) if other != mine]
            gaps.append(np.mean([row[mine] == other for other in rest]) - float(rest[0] == rest[1]))
        sums = (sums[:, None] + np.array(gaps)).ravel()
    for value, bound in zip(lower * 6, chance, strict=True):
        exact = (sums <= value + 1e-9).mean()
        assert exact <= bound + 1e-9
        assert bound == 1.0 or bound < 12 * exact


def test_figures_of_each_rater() -> None:
    votes = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.5], [1.0, np.nan, 0.0]] * 10)
    found = checked(votes, order_known=True)
    rows = {row["rater"]: row for row in found.rows}
    assert (rows["r1"]["votes"], rows["r2"]["ties"]) == (30, 0.25)
    assert rows["r0"]["first"] == 0.75
    assert rows["r2"]["with_majority"] == 0.25  # of four kinds of items, one
    assert rows["r2"]["low"] < 0.25 < rows["r2"]["high"]
    assert rows["r2"]["reliability"] < rows["r0"]["reliability"]
    json.dumps(list(found.rows), allow_nan=False)


def test_a_place_is_not_spoken_of_when_the_order_is_not_known() -> None:
    assert all(row["first"] is None for row in checked(drawn(np.random.default_rng(0), 50, np.full(3, 0.8))).rows)


@pytest.mark.parametrize(
    "votes",
    [np.ones((40, 1)), drawn(np.random.default_rng(0), 40, np.array([0.9, 0.1])), np.zeros((0, 4)), np.ones((1, 2))],
    ids=["one rater", "two raters", "nothing", "one item"],
)
def test_with_fewer_than_three_nobody_can_be_told_off(votes: Floats) -> None:
    found = checked(votes)
    assert found.state == "cannot tell"
    json.dumps(list(found.rows), allow_nan=False)


def test_all_ties_are_agreement() -> None:
    found = checked(np.full((30, 4), 0.5))
    assert found.state == "clear"
    assert all(row["ties"] == 1.0 for row in found.rows)


@shared
def test_two_workers_of_bbq_stand_out() -> None:
    labels = read_preferences(DATA / "bbq_worker_labels" / "labels.csv.gz").labels
    assert labels is not None
    found = raters.check_ratings(labels, alpha=0.05 / 8)
    assert {"27", "36"} <= set(off(found))
    assert len(off(found)) < 4
    reliable = {row["rater"]: row["reliability"] for row in found.rows}
    assert reliable["27"] < reliable["36"] < 0.9


@shared
def test_no_rater_of_pandalm_stands_out() -> None:
    found = raters.check(
        read_preferences(DATA / "pandalm_multi_rater" / "testset.jsonl.gz").pairs, alpha=0.05 / 8, seed=0
    )
    assert (found.state, len(found.rows)) == ("clear", 3)


def test_a_handful_of_items_clears_nobody() -> None:
    votes = np.random.default_rng(0).integers(0, 2, (29, 3)).astype(np.float64)
    few = raters.check_ratings(Ratings(votes, ("no", "yes"), ("ann", "bob", "eve")), alpha=0.01)
    more = raters.check_ratings(Ratings(np.tile(votes, (4, 1)), ("no", "yes"), ("ann", "bob", "eve")), alpha=0.01)
    assert (few.state, more.state) == ("cannot tell", "clear")
