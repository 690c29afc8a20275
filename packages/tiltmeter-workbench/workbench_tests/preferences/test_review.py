"""What people should look at again comes with its reason, worst first; the balanced subset takes length out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences import balanced_subset, review_queue
from tiltmeter_workbench.preferences.finding import example_pair
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.reader import read_preferences

DATA = Path(__file__).parents[5] / "shared" / "data"
shared = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")


def rated(seed: int = 0, items: int = 200) -> Comparisons:
    """Three raters: two careful, one who guesses."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, (items, 1))
    votes = np.where(rng.random((items, 3)) < np.array([0.97, 0.95, 0.55]), truth, 1 - truth).astype(float)
    texts = [f"question {at}" for at in range(items)]
    return Comparisons(texts, ["yes"] * items, ["no"] * items, votes, ("ann", "bob", "eve"))


def longer_wins(seed: int, items: int = 1000, share: float = 0.75) -> Comparisons:
    rng = np.random.default_rng(seed)
    lengths = rng.geometric(0.01, (items, 2)) + 1
    longer = rng.random(items) < share
    votes = np.where(longer, lengths[:, 0] > lengths[:, 1], lengths[:, 0] < lengths[:, 1]).astype(float)
    texts = [["x" * int(size) + str(at) for at, size in enumerate(lengths[:, side])] for side in (0, 1)]
    return Comparisons([f"q{at}" for at in range(items)], texts[0], texts[1], votes[:, None])


def test_the_two_careful_raters_against_each_other_are_looked_at() -> None:
    pairs = rated()
    rows = {row["row"]: row for row in review_queue.review_queue(pairs, ())}
    ann, bob, eve = pairs.votes.T
    apart = {int(at) + 1 for at in np.flatnonzero(ann != bob)}
    assert apart <= rows.keys()
    # Both careful ones against the one who guesses: nobody needs to look.
    agreed = {int(at) + 1 for at in np.flatnonzero((ann == bob) & (eve != ann))}
    assert not agreed & rows.keys()


def test_the_worst_come_first_and_the_order_stays() -> None:
    pairs = Comparisons(
        ["r", "q", "p", "p"],
        ["u", "x", "a", "b"],
        ["v", "y", "b", "a"],
        np.array([[1.0, 1.0, 1.0], [1.0, 0.0, np.nan], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
        ("ann", "bob", "eve"),
        splits=("t", "s", "s", "s"),
    )
    finding = Check("length", "found", "", examples=[example_pair(1, "r", "u", "v", "longer")])
    rows = review_queue.review_queue(pairs, [finding])
    assert [row["row"] for row in rows] == [3, 4, 2, 1]
    assert str(rows[1]["reason"]) == "the same two answers have another winner elsewhere (row 3)"
    assert (rows[1]["chosen"], rows[1]["rejected"]) == ("b", "a")
    assert "raters are divided (1 second, 1 first)" in str(rows[2]["reason"])
    assert (rows[3]["reason"], rows[3]["split"]) == ("length: longer", "t")
    worries = [float(str(row["worry"])) for row in rows]
    assert worries == sorted(worries, reverse=True)
    assert rows == review_queue.review_queue(pairs, [finding])
    json.dumps(rows, allow_nan=False)


def test_findings_that_found_nothing_add_nothing() -> None:
    example = [example_pair(1, "question 0", "yes", "no", "so")]
    pairs = longer_wins(0, 20)
    assert review_queue.review_queue(pairs, [Check("form", "clear", "", examples=example)]) == []


def test_rows_of_two_files_are_not_mistaken_for_each_other() -> None:
    pairs = Comparisons(["p", "q"], ["a", "c"], ["b", "d"], np.ones((2, 1)), splits=("one", "two"), rows=(1, 1))
    rows = review_queue.review_queue(
        pairs, [Check("form", "found", "", examples=[example_pair(1, "p", "a", "b", "so")])]
    )
    assert [row["prompt"] for row in rows] == ["p"]


@pytest.mark.parametrize("seed", range(5))
def test_the_balanced_subset_takes_length_out_at_every_difference(seed: int) -> None:
    pairs = longer_wins(seed)
    items, facts = balanced_subset.balanced_subset(pairs, seed)
    assert facts["before"]["longer_chosen"] > 0.7
    assert facts["after"]["longer_chosen"] == 0.5
    assert abs(facts["after"]["characters_more"]) < 0.06 * abs(facts["before"]["characters_more"])
    kept = pairs.at(items)
    gap = np.array([len(a) - len(b) for a, b in zip(kept.first, kept.second, strict=True)])
    won = np.where(kept.winner > 0.5, gap, -gap)
    for low, high in ((0, 30), (30, 80), (80, 10_000)):
        part = won[(np.abs(won) > low) & (np.abs(won) <= high)]
        assert np.mean(part > 0) == pytest.approx(0.5, abs=0.06)
    assert facts["kept_share"] > 0.4  # half is what a bias of three quarters costs


def test_what_is_dropped_is_said_and_adds_up() -> None:
    pairs = Comparisons(
        ["p", "p", "q", "q", "r", "s", "t"],
        ["aa", "b", "cc", "cc", "same", "xx", "y"],
        ["b", "aa", "d", "d", "same", "y", "xx"],
        np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.5, np.nan])[:, None],
    )
    items, facts = balanced_subset.balanced_subset(pairs, 0)
    assert (facts["dropped_undecided"], facts["dropped_copies"]) == (2, 4)
    assert len(items) + facts["dropped_undecided"] + facts["dropped_copies"] + facts["dropped_for_balance"] == 7


def test_the_seed_decides_and_order_is_kept() -> None:
    pairs = longer_wins(1)
    once, again, other = (balanced_subset.balanced_subset(pairs, seed)[0].tolist() for seed in (3, 3, 4))
    assert once == again == sorted(once)
    assert once != other


@pytest.mark.parametrize(
    "pairs",
    [
        Comparisons((), (), (), np.zeros((0, 1))),
        Comparisons(["?"], [""], [""], np.ones((1, 1))),
        Comparisons(["\ud800"] * 3, ["a"] * 3, ["bb"] * 3, np.full((3, 4), 0.5), tuple("abcd")),
        Comparisons(["?"] * 30, ["a"] * 30, ["bb"] * 30, np.full((30, 2), np.nan), tuple("ab")),
    ],
    ids=["nothing", "empty", "all ties", "no votes"],
)
def test_strange_data_are_no_trouble(pairs: Comparisons) -> None:
    items, facts = balanced_subset.balanced_subset(pairs, 0)
    assert len(items) <= len(pairs)
    json.dumps([dict(facts), review_queue.review_queue(pairs, ())], allow_nan=False)


@shared
def test_real_data_lose_their_length_bias() -> None:
    _, facts = balanced_subset.balanced_subset(
        read_preferences(DATA / "pandalm_multi_rater" / "testset.jsonl.gz").pairs, 0
    )
    assert facts["before"]["longer_chosen"] > 0.65
    assert facts["after"]["longer_chosen"] == 0.5
    assert abs(facts["after"]["characters_more"]) < 0.1 * facts["before"]["characters_more"]
