"""n-gram statistics against nltk, Python sets and direct formulas."""

from __future__ import annotations

import time
import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tiltmeter.stats.hash_sampling import draw_rows, splitmix64
from tiltmeter.stats.ngrams import (
    corpus_distinct,
    expected_distinct,
    group_ngrams,
    group_totals,
    heads,
    heads_of_groups,
)

Rows = list[list[int]]
LOWEST, HIGHEST = -(2**31), 2**31 - 1


def ragged(rows: Rows) -> tuple[Any, Any]:
    flat = np.array([token for row in rows for token in row], np.int32)
    return flat, np.concatenate(([0], np.cumsum([len(row) for row in rows]))).astype(np.int64)


def bounds(groups: list[Rows]) -> Any:
    return np.concatenate(([0], np.cumsum([len(group) for group in groups]))).astype(np.int64)


def grams(rows: Rows, n: int) -> list[tuple[int, ...]]:
    return [tuple(row[i : i + n]) for row in rows for i in range(len(row) - n + 1)]


def random_groups(rng: np.random.Generator, most: int = 5) -> list[Rows]:
    """Groups with empty and very short rows, equal rows, loops, tiny vocabularies and the ends of int32."""
    groups = []
    for _ in range(rng.integers(0, most)):
        types = int(rng.choice([1, 2, 3, 8, 50]))
        low = int(rng.choice([LOWEST, -3, 0, 100_000, HIGHEST - 50]))
        lengths = rng.choice([0, 1, 2, 3, 4, 5, 9, 30], rng.integers(1, 9))
        rows = [(rng.integers(0, types, n) + low).tolist() for n in lengths]
        if rng.random() < 0.4:
            rows[-1] = list(rows[0])
        if rng.random() < 0.2:
            rows[0] = rows[0][:3] * 7
        groups.append(rows)
    return groups


def nltk_self_bleu(rows: Rows) -> list[float]:
    bleu = pytest.importorskip("nltk.translate.bleu_score")
    smoothing = bleu.SmoothingFunction().method1
    if len(rows) < 2:
        return [float("nan")] * len(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nltk says so when nothing matches
        return [
            bleu.sentence_bleu(rows[:i] + rows[i + 1 :], row, smoothing_function=smoothing)
            for i, row in enumerate(rows)
        ]


def test_self_bleu_is_nltk_s_and_distinct_n_is_the_size_of_a_set() -> None:
    rng = np.random.default_rng(0)
    scored = 0
    for _ in range(500):
        groups = random_groups(rng)
        flat, offsets = ragged([row for group in groups for row in group])
        scores, distinct = group_ngrams(flat, offsets, bounds(groups))
        expected = np.array([score for group in groups for score in nltk_self_bleu(group)])
        np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-12)
        assert distinct.tolist() == [[len(set(grams(group, n))) for n in (1, 2, 3, 4)] for group in groups]
        totals = group_totals(offsets, bounds(groups))
        assert totals.tolist() == [[len(grams(group, n)) for n in (1, 2, 3, 4)] for group in groups]
        scored += int(np.isfinite(scores).sum())
    assert scored > 2_000


def test_fewer_orders_count_the_same_n_grams() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        groups = random_groups(rng)
        flat, offsets = ragged([row for group in groups for row in group])
        whole = group_ngrams(flat, offsets, bounds(groups))[1]
        for orders in (1, 2, 3):
            assert np.array_equal(group_ngrams(flat, offsets, bounds(groups), orders)[1], whole[:, :orders])


def test_self_bleu_does_not_depend_on_the_order_of_rows_or_on_the_names_of_tokens() -> None:
    rng = np.random.default_rng(2)
    for _ in range(100):
        rows = [rng.integers(0, 9, rng.integers(0, 20)).tolist() for _ in range(6)]
        order = rng.permutation(6)
        names = rng.permutation(9) * 7919 - 30_000
        flat, offsets = ragged(rows)
        scores, _ = group_ngrams(flat, offsets, np.array([0, 6]))
        flat, offsets = ragged([names[rows[i]].tolist() for i in order])
        np.testing.assert_allclose(group_ngrams(flat, offsets, np.array([0, 6]))[0], scores[order], rtol=1e-12)


def test_a_group_after_another_is_counted_as_if_it_were_alone() -> None:
    rng = np.random.default_rng(3)
    groups = [[rng.integers(0, 30, size).tolist() for _ in range(4)] for size in (200, 3, 0, 90, 700, 1)]
    flat, offsets = ragged([row for group in groups for row in group])
    scores, distinct = group_ngrams(flat, offsets, bounds(groups))
    for k, group in enumerate(groups):
        alone, counts = group_ngrams(*ragged(group), np.array([0, 4]))
        assert np.array_equal(alone, scores[4 * k : 4 * k + 4])
        assert counts.tolist() == [distinct[k].tolist()]


def test_distinct_n_of_a_corpus_is_the_size_of_a_set() -> None:
    rng = np.random.default_rng(4)
    for _ in range(600):
        rows = [row for group in random_groups(rng) for row in group]
        assert corpus_distinct(*ragged(rows)).tolist() == [len(set(grams(rows, n))) for n in (1, 2, 3, 4)]


def test_more_token_types_than_64_bits_hold_four_of_are_hashed_and_still_counted() -> None:
    rng = np.random.default_rng(5)
    row = np.concatenate([rng.permutation(70_000), rng.integers(0, 70_000, 5_000), np.arange(5_000)]).tolist()
    assert corpus_distinct(*ragged([row, row[:100]])).tolist() == [len(set(grams([row], n))) for n in (1, 2, 3, 4)]


def test_arrays_that_may_not_be_written_to_are_read() -> None:
    flat, offsets = ragged([[1, 2, 3], [1, 2, 4]])
    starts = np.array([0, 2])
    for array in (flat, offsets, starts):
        array.flags.writeable = False
    assert group_ngrams(flat, offsets, starts)[1].tolist() == [[4, 3, 2, 0]]
    assert corpus_distinct(flat, offsets).tolist() == [4, 3, 2, 0]


@pytest.mark.parametrize("types", [1, 3, 100_000])
def test_a_completion_of_a_million_tokens_passes_in_linear_time(types: int) -> None:
    rng = np.random.default_rng(6)
    flat = rng.integers(0, types, 1_000_000).astype(np.int32)
    offsets, starts = np.array([0, 999_000, 1_000_000]), np.array([0, 2])
    small = flat[:1_000].copy(), np.array([0, 500, 1_000]), np.array([0, 2])
    group_ngrams(*small)  # compiled
    began = time.process_time()
    scores, distinct = group_ngrams(flat, offsets, starts)
    corpus = corpus_distinct(flat, offsets)
    assert time.process_time() - began < 5.0  # quadratic work would take hours
    assert np.array_equal(distinct[0], corpus)
    assert np.isfinite(scores).all()
    if types == 1:
        assert corpus.tolist() == [1, 1, 1, 1]
    if types == 3:
        assert corpus.tolist() == [3, 9, 27, 81]


def test_cost_per_token_does_not_grow_with_the_size_of_a_group() -> None:
    rng = np.random.default_rng(7)
    flat = (rng.zipf(1.3, 100_000) % 5_000).astype(np.int32)
    offsets = np.arange(0, 100_001, 100)
    spent: dict[int, list[float]] = {8: [], 500: []}
    for _ in range(5):
        for size, times in spent.items():
            began = time.process_time()
            group_ngrams(flat, offsets, np.arange(0, 1_001, size))
            times.append(time.process_time() - began)
    assert min(spent[500][1:]) < 4 * min(spent[8][1:])  # pair by pair it would be 60 times


def test_heads_are_the_first_tokens_of_each_row() -> None:
    rng = np.random.default_rng(8)
    for _ in range(200):
        rows = [rng.integers(0, 9, rng.integers(0, 9)).tolist() for _ in range(rng.integers(0, 6))]
        first = int(rng.integers(1, 9))
        flat, offsets = heads(*ragged(rows), first)
        expected = ragged([row[:first] for row in rows])
        assert flat.tolist() == expected[0].tolist()
        assert offsets.tolist() == expected[1].tolist()


def test_the_completion_drawn_from_a_group_depends_on_its_tokens_and_not_on_its_place() -> None:
    rng = np.random.default_rng(9)
    for _ in range(200):
        groups = [[rng.integers(0, 5, rng.integers(0, 6)).tolist() for _ in range(4)] for _ in range(5)]
        mixed_up = [[group[i] for i in rng.permutation(4)] for group in groups]
        one, one_ends = heads_of_groups(*ragged([row for group in groups for row in group]), bounds(groups), 4)
        two, two_ends = heads_of_groups(*ragged([row for group in mixed_up for row in group]), bounds(groups), 4)
        assert one.tolist() == two.tolist()
        assert one_ends.tolist() == two_ends.tolist()
        filled = [[row[:4] for row in group if row] for group in groups]
        chosen = [one[a:b].tolist() for a, b in pairwise(one_ends)]
        assert len(chosen) == sum(map(bool, filled))
        assert all(row in group for row, group in zip(chosen, filter(None, filled), strict=True))


def test_equal_rows_are_drawn_as_often_as_they_occur() -> None:
    """The row of least hash would be the odd one out in half of all groups, not in one of eight."""
    rng = np.random.default_rng(10)
    common, odd = rng.integers(0, 2**63, 4_000).astype(np.uint64), rng.integers(0, 2**63, 4_000).astype(np.uint64)
    hashes = np.repeat(common, 8)
    hashes[::8] = odd
    rows = draw_rows(hashes, np.arange(0, 32_001, 8), 1)
    share = float(np.mean(hashes[rows] == odd))
    assert abs(share - 1 / 8) < 4 * np.sqrt(1 / 8 * 7 / 8 / 4_000)
    rows = draw_rows(hashes, np.arange(0, 32_001, 8), 4)
    assert len(rows) == 16_000
    assert abs(float(np.mean(hashes[rows] == np.repeat(odd, 4))) - 1 / 8) < 4 * np.sqrt(1 / 8 * 7 / 8 / 16_000)


def test_draws_never_repeat_a_row_and_stay_in_their_group() -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        sizes = rng.integers(0, 6, rng.integers(1, 6))
        starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        hashes = rng.integers(0, 3, starts[-1]).astype(np.uint64)
        most = int(rng.integers(1, 5))
        rows = draw_rows(hashes, starts, most)
        assert len(set(rows.tolist())) == len(rows)
        inside = [int(((rows >= a) & (rows < b)).sum()) for a, b in pairwise(starts)]
        assert inside == np.minimum(sizes, most).tolist()


def test_the_mixer_is_the_finaliser_of_splitmix64() -> None:
    state, published = 0, [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    for value in published:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        assert int(splitmix64(np.array([state], np.uint64))[0]) == value


def test_expected_distinct_is_its_formula_and_one_on_even_draws() -> None:
    rng = np.random.default_rng(12)
    for _ in range(500):
        vocabulary, total = int(rng.integers(1, 2_000)), int(rng.integers(1, 5_000))
        distinct = int(rng.integers(1, total + 1))
        expected = vocabulary * (1 - ((vocabulary - 1) / vocabulary) ** total)
        found = expected_distinct(np.array([distinct]), np.array([total]), vocabulary)[0]
        assert found == pytest.approx(distinct / expected, rel=1e-9)
    assert np.isnan(expected_distinct(np.array([0]), np.array([0]), 10)[0])
    even = [len(set(rng.integers(0, 300, 800).tolist())) for _ in range(200)]
    assert np.mean(expected_distinct(np.array(even), np.full(200, 800), 300)) == pytest.approx(1.0, abs=0.005)
