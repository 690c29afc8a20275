"""Copies, contradictions, rings and leaks: planted ones are found, exactly those, and fast."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tiltmeter.stats.word_hashes import Texts, Words
from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks import copies
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.reader import read_preferences
from tiltmeter_workbench.stats.near_copies import families, near_copies
from tiltmeter_workbench.stats.strong_components import strong_components

DATA = Path(__file__).parents[5] / "shared" / "data"
shared = pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA}")


def compared(*rows: tuple[str, str, str, float], splits: tuple[str, ...] = ()) -> Comparisons:
    """Rows of prompt, first, second and vote."""
    prompts, first, second, votes = zip(*rows, strict=True)
    return Comparisons(prompts, first, second, np.array(votes, float)[:, None], splits=splits)


def checked(pairs: Comparisons) -> Check:
    return copies.check(pairs, alpha=0.01, seed=0)


def at(found: NDArray[np.bool_]) -> list[int]:
    return [int(place) for place in np.flatnonzero(found)]


def text(rng: np.random.Generator, words: int) -> str:
    return " ".join(f"w{word}" for word in rng.integers(0, 3000, words))


def test_each_kind_is_found_where_it_is() -> None:
    pairs = compared(
        ("p", "a", "b", 1.0),
        ("p", " b", "a", 0.0),  # a copy of the first, the other way round
        ("p", "b", "a", 1.0),  # contradicts both
        ("q", "x", "x ", 1.0),  # a text against itself
        ("q", "x", "y", 1.0),
        ("q", "y", "z", 1.0),
        ("q", "x", "z", 0.0),  # closes a ring
        ("q", "x", "w", 1.0),  # leads out of it
        ("p", "a", "c", 0.5),
    )
    found = copies.find_copies(pairs)
    assert at(found.duplicate) == [1, 2]
    assert at(found.contradiction) == [0, 1, 2]
    assert at(found.cycle) == [4, 5, 6]
    assert at(found.same) == [3]
    assert not found.leaked.any()
    finding = checked(pairs)
    assert finding.state == "found"
    assert finding.facts["contradictions"] == 3
    shown = {example.why: example for example in finding.examples}
    assert (shown["both answers are the same"].row, shown["the same two answers, another winner"].texts["chosen"]) == (
        4,
        "b",
    )
    assert finding.fix.startswith("Rate contradictions again")


def test_the_same_answers_to_another_prompt_are_no_copy() -> None:
    pairs = compared(
        ("p", "yes", "no", 1.0), ("q", "yes", "no", 0.0), ("r", "no", "maybe", 1.0), ("s", "maybe", "yes", 1.0)
    )
    assert not copies.find_copies(pairs).any.any()
    assert checked(pairs).state == "clear"


def test_a_tie_contradicts_nobody() -> None:
    found = copies.find_copies(compared(("p", "a", "b", 1.0), ("p", "a", "b", 0.5), ("p", "a", "b", np.nan)))
    assert not found.contradiction.any()
    assert at(found.duplicate) == [1, 2]


def test_a_prompt_of_another_split_leaks_also_when_nearly_the_same() -> None:
    rng = np.random.default_rng(0)
    asked = [text(rng, 40) for _ in range(60)]
    near = asked[3].replace(asked[3].split()[20], "changed", 1)
    pairs = compared(
        *((prompt, f"a{k}", f"b{k}", 1.0) for k, prompt in enumerate(asked)),
        (near, "c", "d", 1.0),
        (asked[5].upper() + "!", "e", "f", 1.0),
        (text(rng, 40), "g", "h", 1.0),
        splits=("train",) * 60 + ("test",) * 3,
    )
    found = copies.find_copies(pairs)
    assert at(found.leaked) == [3, 5, 60, 61]
    assert found.other[[60, 61, 3]].tolist() == [3, 5, 60]
    rows = {row["split"]: row for row in checked(pairs).rows}
    assert rows["test"] == {"split": "test", "pairs": 3, "leaked": 2, "share": 2 / 3}
    assert at(found.near) == [60, 61]


def test_a_small_split_that_leaks_is_found_in_a_large_file() -> None:
    rng = np.random.default_rng(1)
    rows = [(text(rng, 20), "a", "b", 1.0) for _ in range(2000)]
    pairs = compared(*rows, (rows[0][0], "c", "d", 1.0), splits=("train",) * 2000 + ("test",))
    finding = checked(pairs)
    assert (finding.state, finding.facts["leaked_share"]) == ("found", 1.0)


def test_near_copies_are_those_of_an_exact_comparison() -> None:
    """Every pair compared in full; a family may be joined through another member."""
    rng = np.random.default_rng(5)
    texts = [text(rng, int(rng.integers(1, 60))) for _ in range(150)]
    for _ in range(150):
        words = texts[int(rng.integers(0, 150))].split()
        for _ in range(int(rng.integers(0, 3))):
            words[int(rng.integers(len(words)))] = "other"
        texts.append(" ".join(words))

    def shingles(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[k : k + 3]) for k in range(max(len(words) - 2, 1))}

    sets = [shingles(entry.split()) for entry in texts]
    exact = [
        (a, b) for a in range(300) for b in range(a + 1, 300) if len(sets[a] & sets[b]) >= 0.8 * len(sets[a] | sets[b])
    ]
    pairs, _ = near_copies(Words.of(Texts.of(texts)))
    assert {tuple(sorted(pair)) for pair in pairs.tolist()} <= set(exact)
    assert families(pairs, 300).tolist() == families(np.array(exact), 300).tolist()


def test_a_hundred_thousand_texts_take_seconds() -> None:
    rng = np.random.default_rng(2)
    words = np.array([f"w{k}" for k in range(4000)])
    texts = [" ".join(row) for row in words[rng.integers(0, 4000, (100_000, 20))]]
    texts[50_000:51_000] = [entry + " more" for entry in texts[:1000]]
    texts[90_000:] = ["the same text again and again"] * 10_000  # a bucket in which each pair would be too many
    split = Words.of(Texts.of(texts))
    near_copies(Words.of(Texts.of(texts[:10])))
    begun = time.process_time()
    pairs, _ = near_copies(split)
    took = time.process_time() - begun
    family = families(pairs, len(texts))
    assert family[50_000:51_000].tolist() == list(range(1000))
    assert set(family[90_000:].tolist()) == {90_000}
    assert took < 8.0


def test_rings_are_those_of_reachability() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        tails, heads = rng.integers(0, 12, (2, 18))
        reach = np.eye(12, dtype=bool)
        reach[tails, heads] = True
        for middle in range(12):
            reach |= reach[:, [middle]] & reach[[middle]]
        part = strong_components(tails, heads, 12)
        assert ((part[:, None] == part) == (reach & reach.T)).all()


def test_a_ring_of_a_hundred_thousand_needs_no_recursion() -> None:
    count = 100_000
    nodes = np.arange(count)
    assert len(set(strong_components(nodes, (nodes + 1) % count, count).tolist())) == 1
    assert len(set(strong_components(nodes[:-1], nodes[1:], count).tolist())) == count


@pytest.mark.parametrize(
    "pairs",
    [
        Comparisons((), (), (), np.zeros((0, 1))),
        compared(("", "", "", 1.0)),
        compared(("", "", "a", 1.0)),
        compared(("\ud800", "好的", "🏳️‍🌈" * 1000, 0.5), ("\ud800", "x", "y", np.nan)),
        compared(("word " * 300_000, "a" * 1_000_000, "b", 1.0)),
    ],
    ids=["nothing", "empty texts", "one empty text", "strange characters", "huge texts"],
)
def test_strange_data_are_no_trouble(pairs: Comparisons) -> None:
    finding = checked(pairs)
    assert finding.state in ("clear", "cannot tell")


def test_prompts_without_words_do_not_leak_into_each_other() -> None:
    pairs = compared(("", "a", "b", 1.0), ("", "c", "d", 1.0), splits=("train", "test"))
    assert not copies.find_copies(pairs).leaked.any()


@shared
def test_copies_of_real_data() -> None:
    facts = checked(read_preferences(DATA / "pandalm_multi_rater" / "testset.jsonl.gz").pairs).facts
    assert (facts["duplicates"], facts["contradictions"], facts["in_cycles"]) == (136, 0, 3)
    leaks = {
        row["split"]: row["leaked"]
        for row in checked(read_preferences(DATA / "llmbar" / "pairs.jsonl.gz", {"split": "subset"}).pairs).rows
    }
    # The same questions asked straight and in the negative.
    assert leaks["CaseStudy/Negation"] == 16
    assert leaks["CaseStudy/Normal"] == 17
