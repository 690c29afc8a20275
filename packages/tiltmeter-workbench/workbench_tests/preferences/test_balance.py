"""Kinds of prompts whose labels pull another way are found; kinds that do not are left alone."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tiltmeter.stats.word_hashes import Texts
from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks import balance
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.themes import themes

KITCHEN = ("bread", "flour", "oven", "yeast", "butter", "dough", "pastry", "sugar", "recipe", "bake", "whisk", "salt")
PROOFS = (
    "lemma",
    "theorem",
    "proof",
    "axiom",
    "integer",
    "prime",
    "matrix",
    "vector",
    "algebra",
    "corollary",
    "induction",
    "modulo",
)
GARDEN = (
    "rose",
    "tulip",
    "soil",
    "compost",
    "hedge",
    "lawn",
    "prune",
    "mulch",
    "seedling",
    "orchard",
    "trellis",
    "weed",
)


def labelled(
    seed: int, shares: tuple[float, float, float], count: int = 600, each: int = 1
) -> tuple[Comparisons, list[int]]:
    """Prompts about three things, the longer answer winning with the chance given for each."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 3, count // each).repeat(each)
    prompts = [" ".join(rng.choice((KITCHEN, PROOFS, GARDEN)[topic], 6)) for topic in topics[::each]]
    lengths = rng.integers(5, 200, (count, 2))
    longer = rng.random(count) < np.array(shares)[topics]
    votes = np.where(longer, lengths[:, 0] > lengths[:, 1], lengths[:, 0] < lengths[:, 1]).astype(float)
    first, second = (["x" * int(size) for size in lengths[:, side]] for side in (0, 1))
    asked = [prompts[at // each] for at in range(count)]
    return Comparisons(asked, first, second, votes[:, None], order_known=True), topics.tolist()


def checked(pairs: Comparisons, alpha: float = 0.01) -> Check:
    return balance.check(pairs, alpha=alpha, seed=0)


def test_a_kind_that_pulls_the_other_way_is_found_and_named() -> None:
    for seed in range(5):
        found = checked(labelled(seed, (0.75, 0.25, 0.75))[0])
        assert found.state == "found"
        named = [row for row in found.rows if row["differs"] == "longer" and row["longer_chosen"] < 0.4]
        assert named
        assert all(set(str(row["kind"]).split(", ")) <= set(PROOFS) for row in named)
        assert found.examples
        json.dumps(list(found.rows), allow_nan=False)


def test_even_labels_are_not_called_uneven() -> None:
    wrong = sum(checked(labelled(100 + seed, (0.6, 0.6, 0.6), 400, each)[0], 0.05).state == "found"
                for seed in range(60) for each in (1, 2))  # fmt: skip
    assert wrong <= 12  # at most 6 expected of 120; more than 12 happens once in 100


def test_comparisons_of_one_prompt_do_not_count_as_many() -> None:
    """Ten labels of a prompt that are always the same are one: their kind is not accused for a few prompts."""
    wrong = 0
    for seed in range(40):
        rng = np.random.default_rng(900 + seed)
        pairs, _ = labelled(seed, (0.5, 0.5, 0.5), 700, 10)
        side = rng.integers(0, 2, 70).repeat(10).astype(float)
        longer = np.array([len(a) > len(b) for a, b in zip(pairs.first, pairs.second, strict=True)])
        votes = np.where(longer, side, 1.0 - side)
        wrong += checked(Comparisons(pairs.prompts, pairs.first, pairs.second, votes[:, None]), 0.05).state == "found"
    assert wrong <= 5


def test_kinds_are_what_prompts_are_about() -> None:
    pairs, topics = labelled(3, (0.5, 0.5, 0.5), 900)
    labels = themes(Texts.of(list(pairs.prompts)), 3, seed=1).labels
    table = np.zeros((3, 3))
    np.add.at(table, (labels, np.array(topics)), 1)
    assert table.max(axis=1).sum() / table.sum() > 0.95


def test_the_same_seed_gives_the_same_kinds_and_equal_prompts_one() -> None:
    pairs, _ = labelled(4, (0.5, 0.5, 0.5), 600, 2)
    once = themes(Texts.of(list(pairs.prompts)), 4, seed=7)
    again = themes(Texts.of(list(pairs.prompts)), 4, seed=7)
    assert (once.labels.tolist(), once.words) == (again.labels.tolist(), again.words)
    found = balance.kinds(pairs, 7)
    assert found.labels[::2].tolist() == found.labels[1::2].tolist()


def test_few_labels_rule_nothing_out() -> None:
    assert checked(labelled(5, (0.5, 0.5, 0.5), 120)[0]).state == "cannot tell"
    assert checked(labelled(5, (0.5, 0.5, 0.5), 3000)[0]).state == "clear"


@pytest.mark.parametrize(
    "pairs",
    [
        Comparisons((), (), (), np.zeros((0, 1))),
        Comparisons(["?"], ["a"], ["bb"], np.ones((1, 1))),
        Comparisons([""] * 100, ["a"] * 100, ["bb"] * 100, np.ones((100, 1))),
        Comparisons([f"{k} {k}" for k in range(100)], ["a"] * 100, ["bb"] * 100, np.full((100, 1), 0.5)),
        Comparisons([f"same words {k % 70}" for k in range(100)], ["a"] * 100, ["bb"] * 100, np.ones((100, 1))),
        Comparisons([f"\ud800 好的 {k % 70}" for k in range(100)], [""] * 100, [""] * 100, np.ones((100, 1))),
    ],
    ids=["nothing", "one", "no prompts", "all ties", "always the longer", "no answers"],
)
def test_strange_data_are_no_trouble(pairs: Comparisons) -> None:
    found = checked(pairs)
    assert found.state in ("cannot tell", "clear")
    json.dumps(list(found.rows), allow_nan=False)
