"""Counting phrases, log-odds and false discoveries against counters, formulas, scipy, statsmodels and null data."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from tiltmeter.stats.logodds import (
    PhraseTable,
    benjamini_hochberg,
    count_contained,
    design_effect,
    fewest_texts,
    log_odds,
    merge_phrases,
    overused_phrases,
    phrase_key,
    student_to_normal,
)
from tiltmeter.stats.word_hashes import Texts, Words

RATE, SHARE, LEAST = 0.01, 0.02, 10


def grams(text: str) -> set[tuple[str, ...]]:
    words = text.split()
    return {tuple(words[k : k + n]) for n in range(1, 5) for k in range(len(words) - n + 1)}


def table_of(groups: list[list[str]], least: int = 1) -> tuple[PhraseTable, Words]:
    texts = Texts.of([text for group in groups for text in group])
    words = Words.of(texts)
    starts = np.cumsum([0, *map(len, groups)])
    return PhraseTable.of(words, texts.present, starts, least), words


def key_of(gram: tuple[str, ...]) -> int:
    return phrase_key(Words.of(Texts.of([" ".join(gram)])).hashes)


def random_groups(rng: np.random.Generator, vocabulary: str = "abcd") -> list[list[str]]:
    return [
        [" ".join(rng.choice(list(vocabulary), rng.integers(0, 9))) for _ in range(rng.integers(1, 5))]
        for _ in range(rng.integers(1, 6))
    ]


def test_phrases_are_counted_once_per_text_as_a_counter_does() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        groups = random_groups(rng)
        table, words = table_of(groups)
        expected = Counter(gram for group in groups for text in group for gram in grams(text))
        assert dict(zip(table.keys.tolist(), table.counts.tolist(), strict=True)) == {
            key_of(gram): count for gram, count in expected.items()
        }
        assert (np.diff(table.keys.astype(object)) > 0).all()
        assert table.texts == sum(map(len, groups))
        assert table.words == sum(len(text.split()) for group in groups for text in group)
        for key, first, order in zip(table.keys.tolist(), table.first, table.orders, strict=True):
            assert phrase_key(words.hashes[first : first + order]) == key


def test_leaving_out_rare_phrases_leaves_the_common_ones_alone() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        groups = random_groups(rng)
        least = int(rng.integers(2, 6))
        full, _ = table_of(groups)
        pruned, _ = table_of(groups, least)
        kept = full.counts >= least
        assert pruned.keys.tolist() == full.keys[kept].tolist()
        assert pruned.counts.tolist() == full.counts[kept].tolist()
        assert pruned.likeness.tolist() == full.likeness[kept].tolist()


def test_the_design_effect_is_the_clustered_variance_over_the_binomial_one() -> None:
    rng = np.random.default_rng(2)
    checked = 0
    for _ in range(300):
        groups = random_groups(rng)
        table, _ = table_of(groups)
        sizes = np.array([len(group) for group in groups])
        n = sizes.sum()
        assert table.crowd == pytest.approx(np.square(sizes).sum() / n)
        effect = 1.0 + (table.crowd - 1.0) * table.likeness
        by_key = dict(zip(table.keys.tolist(), effect.tolist(), strict=True))
        for gram in {gram for group in groups for text in group for gram in grams(text)}:
            inside = np.array([sum(gram in grams(text) for text in group) for group in groups])
            p = inside.sum() / n
            if len(groups) == 1:
                expected = float(n)
            elif p == 1.0 or table.crowd == 1.0:
                expected = 1.0
            else:
                clustered = np.square(inside - p * sizes).sum() * len(groups) / (len(groups) - 1) / n**2
                expected = max(1.0, clustered / (p * (1 - p) / n))
            assert by_key[key_of(gram)] == pytest.approx(expected, rel=1e-10)
            checked += 1
    assert checked > 5000


def test_a_phrase_of_all_or_none_of_a_prompt_has_the_size_of_the_prompt_as_its_effect() -> None:
    sizes = np.full(1000, 8)
    effect = design_effect(np.array([800]), np.array([6400]), np.array([6400]), sizes)
    assert effect[0] == pytest.approx(8.0, rel=0.01)


def test_log_odds_equal_the_formula() -> None:
    rng = np.random.default_rng(3)
    for _ in range(500):
        n1, n2 = (int(n) for n in rng.integers(1, 600, 2))
        y1, y2 = int(rng.integers(0, n1 + 1)), int(rng.integers(0, n2 + 1))
        prior = float(rng.uniform(0.5, 100))
        with np.errstate(all="raise"):
            delta, own, other = log_odds(np.array([y1]), n1, np.array([y2]), n2, prior)
        a = prior * (y1 + y2 + 0.5) / (n1 + n2 + 1)
        expected = math.log((y1 + a) / (n1 + prior - y1 - a)) - math.log((y2 + a) / (n2 + prior - y2 - a))
        assert delta[0] == pytest.approx(expected, abs=1e-10)
        assert own[0] == pytest.approx(1 / (y1 + a) + 1 / (n1 + prior - y1 - a), rel=1e-10)
        assert other[0] == pytest.approx(1 / (y2 + a) + 1 / (n2 + prior - y2 - a), rel=1e-10)


def test_a_share_that_grew_only_with_the_length_has_log_odds_near_zero() -> None:
    p = np.array([0.01, 0.1, 0.5, 0.9])
    for growth in (1.5, 3.0):
        longer = 1 - (1 - p) ** growth
        n = 1_000_000
        delta, _, _ = log_odds((longer * n).astype(int), n, (p * n).astype(int), n, prior=1.0, growth=growth)
        assert np.abs(delta).max() < 1e-3
        naive, _, _ = log_odds((longer * n).astype(int), n, (p * n).astype(int), n, prior=1.0)
        assert naive.min() > 0.4


def test_discoveries_are_those_of_a_slow_reading_and_of_statsmodels() -> None:
    rng = np.random.default_rng(4)
    for _ in range(500):
        m = int(rng.integers(1, 40))
        p = rng.random(m) ** rng.choice([1, 4])
        p[rng.random(m) < 0.2] = p[0]  # ties
        rate = float(rng.choice([0.01, 0.05, 0.3]))
        ranked = sorted(p)
        passing = [k for k in range(1, m + 1) if ranked[k - 1] <= rate * k / m]
        slow = p <= (ranked[max(passing) - 1] if passing else -1.0)
        chosen = benjamini_hochberg(p, rate)
        assert chosen.tolist() == slow.tolist()
        assert chosen.tolist() == multipletests(p, rate, method="fdr_bh")[0].tolist()
        padded = np.concatenate((p, np.ones(7)))
        assert benjamini_hochberg(p, rate, m + 7).tolist() == benjamini_hochberg(padded, rate)[:m].tolist()
    assert benjamini_hochberg(np.zeros(0), 0.01).tolist() == []


def test_tails_of_students_t_become_normal_tails() -> None:
    for freedom in (5, 20, 100, 1000):
        t = np.linspace(-6, 6, 25)
        exact = stats.norm.isf(stats.t.sf(t, freedom))
        assert np.abs(student_to_normal(t, freedom) - exact).max() < 0.03


def test_contained_phrases_are_counted_once_per_text() -> None:
    rng = np.random.default_rng(5)
    for _ in range(500):
        given = [text for group in random_groups(rng) for text in group]
        wanted = sorted({gram for text in given for gram in grams(text) if rng.random() < 0.3} | {("q", "q")})
        keys = np.array([key_of(gram) for gram in wanted], np.uint64)
        counts = count_contained(Words.of(Texts.of(given)), keys)
        assert counts.tolist() == [len(grams(text) & set(wanted)) for text in given]


def source(rng: np.random.Generator, prompts: int, size: int, words: int = 30) -> list[list[str]]:
    """Texts of one and the same source: common words, and for each prompt a topic whose words all its texts share."""
    common = np.array([f"w{k}" for k in range(200)])
    weight = 1.0 / np.arange(1, 201)
    groups = []
    for _ in range(prompts):
        subject = rng.integers(12)
        topic = np.array([f"t{subject}x{k}" for k in range(6)])
        mixed = np.concatenate((common, topic))
        chance = np.concatenate((weight, np.full(6, 0.5)))
        groups.append([" ".join(rng.choice(mixed, words, p=chance / chance.sum())) for _ in range(size)])
    return groups


def found(now: list[list[str]], before: list[list[str]]) -> list[str]:
    base, _ = table_of(before)
    texts = Texts.of([text for group in now for text in group])
    table, words = table_of(now, fewest_texts(len(texts), base.texts, SHARE, LEAST))
    chosen, z = overused_phrases(table, base, RATE, SHARE, LEAST)
    return [words.text(texts, first, count) for _, first, count in merge_phrases(table, words, chosen, z).tolist()]


def test_two_samples_of_one_source_show_no_more_false_discoveries_than_promised() -> None:
    rng = np.random.default_rng(6)
    draws = 200
    false = 0
    for draw in range(draws):
        one, two = ((12, 16), (12, 16)) if draw % 2 else ((4, 48), (24, 8))
        false += bool(found(source(rng, *one), source(rng, *two)))
    assert stats.binom.sf(false - 1, draws, RATE) > 0.001, f"{false} of {draws}"


def test_without_the_design_effect_the_same_samples_are_full_of_false_discoveries() -> None:
    rng = np.random.default_rng(6)
    false = 0
    for _ in range(30):
        now, before = source(rng, 12, 16), source(rng, 12, 16)
        single = [[[text] for group in side for text in group] for side in (now, before)]
        false += bool(found(single[0], single[1]))
    assert false >= 12


def test_longer_texts_of_the_same_source_are_no_over_use() -> None:
    rng = np.random.default_rng(7)
    false = sum(bool(found(source(rng, 24, 8, words=70), source(rng, 24, 8, words=35))) for _ in range(40))
    assert stats.binom.sf(false - 1, 40, RATE) > 0.001, false


def test_a_planted_phrase_is_found_and_named_whole() -> None:
    rng = np.random.default_rng(8)
    hits = 0
    for _ in range(20):
        now = [
            [text + " i hope that this helps" if rng.random() < 0.2 else text for text in group]
            for group in source(rng, 24, 8)
        ]
        hits += "i hope that this helps" in found(now, source(rng, 24, 8))
    assert hits >= 18


def test_a_part_of_a_longer_phrase_is_dropped_unless_it_lives_by_itself() -> None:
    filler = [f"f{k} g{k} h{k}" for k in range(80)]
    before = [[text] for text in filler]
    now = [[text + " my dear friend"] for text in filler]
    assert found(now, before) == ["my dear friend"]
    half = [[text + (" my dear friend" if k % 2 else " dear")] for k, text in enumerate(filler)]
    assert set(found(half, before)) == {"my dear friend", "dear"}


def test_every_test_counts_even_those_that_only_the_past_could_have_passed() -> None:
    """A phrase of the baseline that is gone now was tested too: it must raise the bar."""
    now, _ = table_of([[f"a {k}"] for k in range(30)] + [[f"b {k}"] for k in range(20)] + [["e"]] * 30, 5)
    alone, _ = table_of([[f"a {k}"] for k in range(30)] + [[f"e {k}"] for k in range(50)])
    crowded, _ = table_of(
        [[f"a {k}"] for k in range(30)] + [["e " + " ".join(f"d{k}" for k in range(300))] for _ in range(50)]
    )
    chosen, z = overused_phrases(now, alone, RATE, SHARE, LEAST)
    assert len(chosen) == 1
    fewer, other = overused_phrases(now, crowded, RATE, SHARE, LEAST)
    assert len(fewer) == 0
    assert other.max() <= z.max()


def test_fewest_leaves_out_nothing_that_could_be_over_used() -> None:
    rng = np.random.default_rng(9)
    for _ in range(500):
        n1, n2 = (int(n) for n in rng.integers(1, 3000, 2))
        y1, y2 = int(rng.integers(0, n1 + 1)), int(rng.integers(0, n2 + 1))
        tested = y1 + y2 >= max(SHARE * (n1 + n2), LEAST)
        if tested and y1 / n1 > y2 / n2:
            assert y1 >= fewest_texts(n1, n2, SHARE, LEAST)


def test_empty_tables_have_no_phrases() -> None:
    empty, words = table_of([])
    chosen, z = overused_phrases(empty, empty, RATE, SHARE, LEAST)
    assert len(chosen) == len(z) == 0
    assert merge_phrases(empty, words, chosen, z).shape == (0, 3)
    assert empty.at(np.array([3], np.uint64))[0].tolist() == [0]
