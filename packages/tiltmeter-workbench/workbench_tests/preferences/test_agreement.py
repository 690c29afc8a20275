"""Agreement of raters: closed cases, an interval that covers, and the published figures of real data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tiltmeter_workbench.preferences.checks import agreement
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.ratings import Ratings
from tiltmeter_workbench.preferences.reading.reader import read_preferences
from tiltmeter_workbench.stats.rater_agreement import count_ratings, krippendorff_alpha

Floats = NDArray[np.float64]
DATA = Path(__file__).parents[5] / "shared" / "data"
shared = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")


def voted(votes: Floats) -> Comparisons:
    texts = [f"text {at}" for at in range(len(votes))]
    return Comparisons(
        texts, [text + " a" for text in texts], [text + " b" for text in texts], votes, tuple("abcdefgh")
    )


def drawn(seed: int, items: int, error: float, raters: int = 3) -> Floats:
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, items)[:, None]
    return np.asarray(truth ^ (rng.random((items, raters)) < error), float)


def test_votes_that_split_in_a_known_way() -> None:
    # Of 20 items 10 are unanimous, 5 are two to one, 5 have a vote for each side and a tie.
    rows = [[1, 1, 1]] * 5 + [[0, 0, 0]] * 5 + [[1, 1, 0]] * 5 + [[1, 0, 0.5]] * 5
    found = agreement.check(voted(np.array(rows, float)), alpha=0.01, seed=0)
    assert found.state == "known"
    assert found.facts["pair_agreement"] == pytest.approx((10 * 6 + 5 * 2) / (20 * 6))
    assert found.facts["ties"] == pytest.approx(5 / 60)
    assert found.facts["without_majority"] == 5
    assert found.facts["overruled_share"] == pytest.approx(5 / 45)
    assert found.facts["unanimous_share"] == 0.5
    assert found.examples[0].why == "1 for one answer, 2 for the other" or "1 for the other" in found.examples[0].why


def test_the_figure_is_krippendorffs_and_its_interval_covers() -> None:
    """0.9 of answers right, two kinds alike: chance-corrected agreement is (2 · 0.9 - 1)² = 0.64."""
    covered = 0
    for seed in range(40):
        votes = drawn(seed, 200, 0.1)
        found = agreement.check(voted(votes), alpha=0.01, seed=seed)
        assert found.estimate == pytest.approx(krippendorff_alpha(votes))
        covered += found.low <= 0.64 <= found.high
    assert covered >= 34  # 38 expected; fewer than 34 happens once in 50


def test_kappa_is_told_for_the_items_it_is_about() -> None:
    votes = drawn(1, 60, 0.1)
    votes[:10, 2] = np.nan
    facts = agreement.check(voted(votes), alpha=0.01, seed=0).facts
    assert (facts["fleiss_items"], facts["items_rated_twice"]) == (50, 60)


@pytest.mark.parametrize(("error", "said"), [(0.0, "enough to rely on"), (0.08, "first look"), (0.4, "too little")])
def test_a_person_is_told_what_to_make_of_it(error: float, said: str) -> None:
    found = agreement.check(voted(drawn(2, 400, error)), alpha=0.01, seed=0)
    assert said in found.sentence
    assert bool(found.fix) == (error > 0.0)


@pytest.mark.parametrize(
    "votes",
    [np.ones((50, 1)), np.zeros((0, 3)), np.full((20, 3), np.nan), np.ones((1, 3))],
    ids=["one rater", "nothing", "no votes", "one item"],
)
def test_without_two_ratings_of_an_item_nothing_is_said(votes: Floats) -> None:
    found = agreement.check(voted(votes), alpha=0.01, seed=0)
    assert (found.state, bool(found.fix)) == ("cannot tell", True)


def test_all_ties_say_nothing_about_agreement() -> None:
    found = agreement.check(voted(np.full((30, 3), 0.5)), alpha=0.01, seed=0)
    assert "says nothing" in found.sentence
    assert found.facts["ties"] == 1.0
    assert (found.facts["krippendorff_alpha"], found.figure()) == (None, "")
    json.dumps(dict(found.facts), allow_nan=False)


def test_counts_are_those_of_the_statistics_layer() -> None:
    votes = drawn(3, 50, 0.2, raters=4)
    votes[np.random.default_rng(0).random(votes.shape) < 0.3] = np.nan
    assert Ratings.of(voted(votes)).counts[:, [0, 2]].tolist() == count_ratings(votes).tolist()


@shared
def test_three_raters_of_pandalm_agree_as_published() -> None:
    found = agreement.check(
        read_preferences(DATA / "pandalm_multi_rater" / "testset.jsonl.gz").pairs, alpha=0.01, seed=0
    )
    assert (round(found.facts["fleiss_kappa"], 3), found.facts["fleiss_items"]) == (0.864, 999)
    assert found.low < 0.864 < found.high


@shared
def test_five_workers_of_bbq_agree_as_published() -> None:
    """2154 items have five answers; twelve answers are given twice by the same worker, and count once here."""
    labels = read_preferences(DATA / "bbq_worker_labels" / "labels.csv.gz").labels
    assert labels is not None
    facts = agreement.check_ratings(labels, seed=0).facts
    assert round(facts["fleiss_kappa"], 3) == 0.863
    assert facts["fleiss_items"] == pytest.approx(2154, abs=2)


@shared
def test_two_raters_of_xstest_agree_as_published() -> None:
    labels = read_preferences(DATA / "xstest" / "completions_labelled.jsonl.gz").labels
    assert labels is not None
    found = agreement.check_ratings(labels, seed=0)
    assert found.facts["pair_agreement"] == pytest.approx(0.964)
    assert {row["category"] for row in found.rows} == {"1_full_compliance", "2_full_refusal", "3_partial_refusal"}
