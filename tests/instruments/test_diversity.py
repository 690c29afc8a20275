"""Vendi scores, compression, answer classes, and the diversity instruments on batches made to be hard."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns, take
from tiltmeter.data.records import Ragged, RolloutBatch
from tiltmeter.instruments.answer_classes import AnswerClasses
from tiltmeter.instruments.compression import CompressionRatio
from tiltmeter.instruments.distinct_across import DistinctAcross
from tiltmeter.instruments.expected_across import ExpectedAcross
from tiltmeter.instruments.expected_distinct import ExpectedDistinct
from tiltmeter.instruments.openings import RepeatedOpenings
from tiltmeter.instruments.prompt_dependence import CHOICE, PromptDependence
from tiltmeter.instruments.prompt_diversity import PromptDiversity
from tiltmeter.monitor.panel import readings
from tiltmeter.stats.answer_clusters import ALIKE, SHORT, final_answer, word_classes
from tiltmeter.stats.compression import compression_ratio
from tiltmeter.testing import check_instrument
from tiltmeter_workbench.diversity.semantic import SemanticDiversity
from tiltmeter_workbench.stats.vendi import unit_rows, vendi_of_state, vendi_score, vendi_state


class ByLetters(SemanticDiversity):
    """Letters counted: an embedding that needs no model.

    >>> ByLetters().embed(["abba"])[0, :2].tolist()
    [2, 2]
    """

    def embed(self, texts: Sequence[str]) -> Any:
        return np.array([[text.count(letter) for letter in "abcdefghijklmnopqrstuvwxyz0123456789"] for text in texts])


INSTRUMENTS: tuple[Callable[[], Any], ...] = (
    PromptDiversity,
    ExpectedDistinct,
    DistinctAcross,
    ExpectedAcross,
    PromptDependence,
    CompressionRatio,
    RepeatedOpenings,
    AnswerClasses,
    ByLetters,
)


def measured(make: Callable[[], Any], batch: RolloutBatch, baseline: Baseline | None = None) -> dict[str, float]:
    with np.errstate(all="raise", under="ignore"):
        return {reading.name: reading.value for reading in readings(make(), batch, baseline)}


def batch_of(groups: list[list[list[int]]]) -> RolloutBatch:
    rows = [row for group in groups for row in group]
    texts = [" ".join(f"w{token}" for token in row) for row in rows]
    ids = [k for k, group in enumerate(groups) for _ in group]
    return from_columns(0, ids, tokens=rows, completion=texts)


# Vendi


def plain_vendi(rows: Any, order: int) -> float:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    shares = np.linalg.eigvalsh(unit @ unit.T / len(unit))
    shares = shares[shares > 1e-12]
    return float(1 / np.sum(shares**2)) if order == 2 else float(np.exp(-np.sum(shares * np.log(shares))))


@pytest.mark.parametrize("order", [1, 2])
def test_the_vendi_score_is_that_of_the_full_kernel_whichever_side_is_smaller(order: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        n, d = rng.integers(1, 24, 2)
        rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
        rows[rng.random(n) < 0.3] = rows[0]
        assert vendi_score(rows, order) == pytest.approx(plain_vendi(rows, order), abs=1e-9, rel=1e-9)
        assert vendi_of_state(*vendi_state(rows), order) == pytest.approx(plain_vendi(rows, order), abs=1e-9, rel=1e-9)


def test_states_of_parts_add_up_to_the_state_of_the_whole() -> None:
    rng = np.random.default_rng(1)
    for _ in range(100):
        rows = rng.normal(size=(rng.integers(2, 60), 12))
        cut = int(rng.integers(1, len(rows)))
        (n, s), (m, t) = vendi_state(rows[:cut]), vendi_state(rows[cut:])
        assert vendi_of_state(n + m, s + t) == pytest.approx(vendi_score(rows), rel=1e-9)
        assert vendi_of_state(n + m, s + t, 2) == pytest.approx(vendi_score(rows, 2), rel=1e-9)


def test_orthogonal_rows_count_fully_equal_ones_once_and_rows_without_direction_not_at_all() -> None:
    assert vendi_score(np.eye(7)) == pytest.approx(7)
    assert vendi_score(np.ones((9, 3))) == pytest.approx(1)
    odd = np.array([[0.0, 0.0], [np.nan, 1.0], [np.inf, 1.0], [1e300, 1e300], [1e-300, 0.0]])
    assert len(unit_rows(odd)) == 2
    assert vendi_score(odd) == pytest.approx(vendi_score(np.array([[1.0, 1.0], [1.0, 0.0]])))
    assert np.isnan(vendi_score(np.zeros((3, 4))))


# Compression


def test_the_compression_ratio_is_bytes_over_deflated_bytes() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        texts = [rng.integers(97, 101, rng.integers(0, 40)).astype(np.uint8).tobytes() for _ in range(rng.integers(4))]
        data = b"\n".join(texts)
        found = compression_ratio(texts)
        assert np.isnan(found) if not any(texts) else found == len(data) / len(zlib.compress(data, 6))


# Answer classes


def plain_classes(texts: list[list[int]]) -> list[int]:
    leaders: list[set[int]] = []
    labels = []
    for words in map(set, texts):
        best, chosen = -1.0, -1
        for c, leader in enumerate(leaders):
            part = len(words & leader) / len(words | leader) if words | leader else 1.0
            if part > best and (part >= 0.5 or min(len(words), len(leader)) > SHORT):
                best, chosen = part, c
        if best < ALIKE:
            chosen = len(leaders)
            leaders.append(words)
        labels.append(chosen)
    return labels


def test_word_classes_are_those_of_sets_of_words() -> None:
    rng = np.random.default_rng(3)
    lexicon = rng.integers(0, 2**63, 25)  # as hashes are: the upper bits tell them apart
    classes = 0
    for _ in range(600):
        groups = [
            [rng.choice(lexicon, rng.integers(0, 14)).tolist() for _ in range(size)]
            for size in rng.integers(0, 7, rng.integers(0, 4))
        ]
        starts = np.concatenate(([0], np.cumsum([len(group) for group in groups]))).astype(np.int64)
        texts = Ragged.of([text for group in groups for text in group], np.uint64)
        expected = [label for group in groups for label in plain_classes(group)]
        assert word_classes(texts.values, texts.offsets, starts).tolist() == expected  # type: ignore[arg-type]
        classes += len(set(expected))
    assert classes > 1_000


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"Hence \boxed{42}.", "42"),
        (r"First \boxed{1}, then \boxed{ \frac{a}{b+1} }", r"\frac{a}{b+1}"),
        (r"cut off \boxed{1 + {2", None),
        ("6 * 7 = 42\n#### 42", "42"),
        ("#### $1,000.00\nthanks", "1000"),
        ("The answer is **B**.", "b"),
        ("Answer: Paris", "paris"),
        ("answer: 12. That was easy.", "12"),
        ("The short answer is that " + "nobody has ever known " * 9, None),
        ("no mark at all", None),
        ("", None),
        ("#### ", None),
        ("the answer is 1" + "x" * 500, None),
        ("\ud800 #### \0\ud800", "\0\ud800"),
        ("#### 1e999", "inf"),
    ],
)
def test_a_marked_final_answer_is_found(text: str, answer: str | None) -> None:
    assert final_answer(text) == answer


def test_hostile_answers_pass_in_linear_time() -> None:
    began = time.process_time()
    for text in ("\\boxed{" * 200_000, "#" * 1_000_000, "answer is " * 100_000, "{" * 1_000_000, "1" * 1_000_000):
        batch = from_columns(0, [0] * 4, completion=[text, text + "x", "\0\ud800", "x"])
        assert 1.0 <= measured(AnswerClasses, batch)["diversity.answer_classes.count"] <= 4.0
    assert time.process_time() - began < 2.0


def test_the_share_of_differing_pairs_is_counted_over_pairs() -> None:
    rng = np.random.default_rng(4)
    for _ in range(100):
        said = [f"#### {rng.integers(0, 4)}" for _ in range(rng.integers(2, 9))]
        found = measured(AnswerClasses, from_columns(0, [0] * len(said), completion=said))
        differ = np.mean([a != b for a, b in combinations(said, 2)])
        assert found["diversity.answer_classes.count"] == len(set(said))
        assert found["diversity.answer_classes.differing_share"] == pytest.approx(float(differ))


def test_the_share_of_differing_pairs_does_not_depend_on_the_size_of_a_group() -> None:
    rng = np.random.default_rng(5)
    means = []
    for size in (2, 8, 64):
        said = [f"#### {k}" for k in rng.choice(4, 6_400, p=[0.6, 0.2, 0.1, 0.1])]
        batch = from_columns(0, np.arange(6_400) // size, completion=said)
        means.append(measured(AnswerClasses, batch)["diversity.answer_classes.differing_share"])
    assert np.abs(np.array(means) - (1 - 0.36 - 0.04 - 0.02)).max() < 0.05


# Instruments


@pytest.mark.parametrize("make", INSTRUMENTS)
def test_every_diversity_instrument_keeps_the_contract(make: Callable[[], Any]) -> None:
    check_instrument(make)


@pytest.mark.parametrize("make", INSTRUMENTS)
def test_the_order_of_prompts_does_not_matter_to_what_a_step_reads(make: Callable[[], Any]) -> None:
    rng = np.random.default_rng(6)
    groups = [[rng.integers(0, 30, rng.integers(0, 90)).tolist() for _ in range(6)] for _ in range(40)]
    start = Baseline(batch_of(groups))
    one = measured(make, batch_of(groups), start)
    two = measured(make, batch_of([groups[k] for k in rng.permutation(40)]), start)
    assert one == pytest.approx(two, rel=1e-12)
    assert one


@pytest.mark.parametrize("make", INSTRUMENTS)
@pytest.mark.parametrize(
    "groups",
    [
        [],
        [[[5]]],
        [[[]]],
        [[[], []]],
        [[[7], [7]], [[7], [7]]],
        [[[7] * 9] * 4] * 3,
        [[list(range(20))] * 8],
        [[[-1, -(2**31)] * 5, [2**31 - 1] * 9], [[0], []]],
        [[[1]], [[2]], [[3]]],
    ],
    ids=["empty", "one row", "no token", "two without", "one token each", "all equal", "one group", "ids", "ones"],
)
def test_degenerate_batches_give_a_number_in_bounds_or_none(make: Callable[[], Any], groups: Any) -> None:
    batch = batch_of(groups)
    for baseline in (None, Baseline(batch)):
        low, high = make().bounds
        for value in measured(make, batch, baseline).values():
            assert np.isfinite(value)
            assert low is None or value >= low
            assert high is None or value <= high


@pytest.mark.parametrize("make", INSTRUMENTS)
def test_a_completion_of_a_million_tokens_does_not_hold_up_a_step(make: Callable[[], Any]) -> None:
    long = np.random.default_rng(7).integers(0, 1_000, 1_000_000)
    texts = ["ab " * 700_000, "ab", "\0" * 10**6, "b"]
    tokens = Ragged.of([long, [1] * 99, long, [2] * 99], np.int32)  # `from_columns` would cut them
    batch = replace(from_columns(0, [0, 0, 1, 1], completion=texts), tokens=tokens)
    measured(make, batch, Baseline(batch))
    began = time.process_time()
    measured(make, batch, Baseline(batch))
    assert time.process_time() - began < 1.0


def test_text_that_is_not_there_is_not_an_answer() -> None:
    batch = from_columns(0, [0, 0, 1, 1], completion=[None, "x", None, None])
    assert measured(AnswerClasses, batch) == {}
    assert measured(CompressionRatio, batch) == {}
    assert measured(ByLetters, batch) == {}


def test_collapse_onto_one_answer_moves_every_reading_and_sharpening_only_those_inside_prompts() -> None:
    rng = np.random.default_rng(8)
    fresh = [[rng.integers(0, 5_000, 80).tolist() for _ in range(8)] for _ in range(32)]
    sharp = [[group[0]] * 8 for group in fresh]
    collapsed = [[fresh[0][0]] * 8 for _ in fresh]
    start = Baseline(batch_of(fresh))
    read = [
        {name: value for make in INSTRUMENTS for name, value in measured(make, batch_of(groups), start).items()}
        for groups in (fresh, sharp, collapsed)
    ]
    falls = {name for name in read[0] if read[1][name] < 0.5 * read[0][name]}
    assert falls == {
        "diversity.distinct_1",
        "diversity.distinct_2",
        "diversity.distinct_3",
        "diversity.distinct_4",
        "diversity.expected_distinct",
        "diversity.answer_classes.count",
        "diversity.answer_classes.differing_share",
        "diversity.semantic.per_prompt",
    }
    gone = {name for name in read[0] if read[2][name] < 0.5 * read[0][name]}
    across = {f"diversity.across.distinct_{n}" for n in (1, 2, 3, 4)}
    across |= {"diversity.expected_across", "diversity.semantic.across"}
    assert gone == falls | across
    assert [values["diversity.prompt_dependence"] for values in read] == [pytest.approx(0.5, abs=0.05), 1.0, 0.5]
    bleu = [values["diversity.self_bleu"] for values in read]
    assert bleu[0] < 0.1 < 0.99 < bleu[1] == bleu[2]
    openings = [values["diversity.repeated_opening_share.across"] for values in read]
    assert openings == [0.0, 0.0, 1.0]
    assert [values["diversity.repeated_opening_share.within"] for values in read] == [0.0, 1.0, 1.0]
    ratios = [values["diversity.compression_ratio"] for values in read]
    assert ratios[2] > 5 * ratios[1] > 4.5 * ratios[0]


def test_repeated_openings_are_those_of_a_comparison_of_all_pairs() -> None:
    rng = np.random.default_rng(9)
    for _ in range(300):
        group = np.sort(rng.integers(0, 4, rng.integers(0, 12)))
        rows = [[*([int(rng.integers(0, 3))] * 7), int(rng.integers(0, 3))][: rng.choice([3, 8, 8])] for _ in group]
        found = RepeatedOpenings().measure(from_columns(0, group, tokens=rows), None)
        long = [i for i, row in enumerate(rows) if len(row) == 8]
        for i in range(len(rows)):
            others = [j for j in long if j != i]
            away = [rows[j] == rows[i] for j in others if group[j] != group[i]]
            near = [rows[j] == rows[i] for j in others if group[j] == group[i]]
            if i not in long:
                assert np.isnan(found["across"][i])
                assert np.isnan(found["within"][i])
            else:
                assert found["across"][i] == float(any(away)) if len({group[j] for j in long}) > 1 else True
                assert found["within"][i] == float(any(near)) if near else np.isnan(found["within"][i])


def test_growth_beyond_the_tokens_that_count_changes_nothing_across_prompts() -> None:
    rng = np.random.default_rng(10)
    groups = [[rng.integers(0, 500, 64).tolist() for _ in range(4)] for _ in range(20)]
    longer = [[row + rng.integers(0, 500, 300).tolist() for row in group] for group in groups]
    start = Baseline(batch_of(groups))
    for make in (DistinctAcross, ExpectedAcross):
        assert measured(make, batch_of(groups), start) == measured(make, batch_of(longer), start)


def test_expected_distinct_holds_where_plain_distinct_falls_with_length() -> None:
    rng = np.random.default_rng(11)
    start = Baseline(batch_of([[rng.integers(0, 2_000, 200).tolist() for _ in range(8)] for _ in range(32)]))
    short, long = ([[rng.integers(0, 2_000, n).tolist() for _ in range(8)] for _ in range(32)] for n in (50, 250))
    plain = [measured(PromptDiversity, batch_of(groups))["diversity.distinct_1"] for groups in (short, long)]
    adjusted = [
        measured(ExpectedDistinct, batch_of(groups), start)["diversity.expected_distinct"] for groups in (short, long)
    ]
    assert plain[1] < 0.75 * plain[0]
    assert adjusted[1] == pytest.approx(adjusted[0], rel=0.02)


# Semantic


def test_an_embedding_model_sees_a_bounded_sample_that_does_not_depend_on_order() -> None:
    seen: list[list[str]] = []

    class Listening(ByLetters):
        def embed(self, texts: Sequence[str]) -> Any:
            seen.append(list(texts))
            return super().embed(texts)

    rng = np.random.default_rng(12)
    texts = ["".join(rng.choice(list("abcdefgh"), 20)) for _ in range(1_600)]
    batch = from_columns(0, np.repeat(np.arange(100), 16), completion=texts)
    shuffled = take(batch, np.concatenate([rng.permutation(16) + 16 * k for k in range(100)]))
    one, two = Listening().measure(batch, None), Listening().measure(shuffled, None)
    assert sorted(seen[0]) == sorted(seen[1])
    assert len(seen[0]) == 64
    assert {name: values[0] for name, values in one.items()} == pytest.approx({k: v[0] for k, v in two.items()})
    assert 0.0 < one["per_prompt"][0] < 1.0


def test_semantic_diversity_is_vendi_s_share_of_its_range() -> None:
    texts = ["a", "aa", "b", "c", "d", "d"]
    found = ByLetters().measure(from_columns(0, [0, 0, 0, 1, 1, 1], completion=texts), None)
    expected = [(plain_vendi(ByLetters().embed(part) * 1.0, 1) - 1) / 2 for part in (texts[:3], texts[3:])]
    assert found["per_prompt"][0] == pytest.approx(np.mean(expected))
    assert found["across"][0] == pytest.approx(1.0)


def test_an_embedding_model_is_never_handed_text_it_could_not_encode() -> None:
    class Strict(ByLetters):
        def embed(self, texts: Sequence[str]) -> Any:
            assert all(text.encode("utf-8") for text in texts)
            return super().embed(texts)

    batch = from_columns(0, [0, 0, 1, 1], completion=["a\ud800", "b\0", "\udfffc", "d"])
    assert measured(Strict, batch)["diversity.semantic.across"] == pytest.approx(1.0)


def test_a_model_that_answers_with_the_wrong_number_of_rows_is_told_so() -> None:
    class Broken(SemanticDiversity):
        def embed(self, texts: Sequence[str]) -> Any:
            return np.zeros((1, 3))

    batch = from_columns(0, [0, 0], completion=["a", "b"])
    with pytest.raises(ValueError, match=r"\(1, 3\) for 2 texts"):
        Broken().measure(batch, None)
    with pytest.raises(NotImplementedError, match="subclass SemanticDiversity"):
        SemanticDiversity().measure(batch, None)


def test_the_dependence_on_the_prompt_is_that_of_a_comparison_of_all_triples() -> None:
    rng = np.random.default_rng(11)
    pool = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7], [9, 9, 9, 9, 9, 9], [], [3, 4]]

    def similarity(one: list[int], other: list[int]) -> float:
        a, b = ({*row, *pairwise(row)} for row in (one, other))
        return len(a & b) / len(a | b) if a | b else 1.0

    for _ in range(200):
        group = np.sort(rng.integers(0, 4, rng.integers(2, 9)))
        rows = [pool[rng.integers(0, 5)] for _ in group]
        value = PromptDependence().measure(from_columns(0, group, tokens=rows), None)[0]
        shares = []
        for i in range(len(rows)):
            own = [similarity(rows[i], rows[j]) for j in range(len(rows)) if j != i and group[j] == group[i]]
            other = [similarity(rows[i], rows[j]) for j in range(len(rows)) if group[j] != group[i]]
            if own and other:
                wins = [(a > b) + 0.5 * (a == b) for a in own for b in other]
                shares.append(1.0 if 0 < len(rows[i]) <= CHOICE else float(np.mean(wins)))
        assert value == pytest.approx(np.mean(shares)) if shares else np.isnan(value)


def test_a_prompt_in_two_groups_is_one_prompt_and_one_prompt_alone_has_no_value() -> None:
    same = [[1, 2, 3, 4, 5, 6]] * 4
    assert measured(PromptDependence, from_columns(0, [0, 0, 1, 1], tokens=same, prompt=["a"] * 4)) == {}
    two = from_columns(0, [0, 0, 1, 1], tokens=same, prompt=["a", "a", "b", "b"])
    assert measured(PromptDependence, two) == {"diversity.prompt_dependence": 0.5}


def test_one_word_of_a_fixed_sentence_is_enough_to_depend_on_the_prompt() -> None:
    sentence = np.random.default_rng(12).integers(0, 5_000, 100).tolist()
    rows = [[*sentence, 9_000 + number // 2] for number in range(16)]
    batch = from_columns(0, np.arange(16) // 2, tokens=rows)
    assert measured(PromptDependence, batch) == {"diversity.prompt_dependence": 1.0}


def test_a_large_step_is_read_by_whole_prompts_in_any_order() -> None:
    rng = np.random.default_rng(13)
    group = np.repeat(np.arange(100), 4)
    rows = [[*([int(number)] * 3), *rng.integers(0, 50, 9).tolist()] for number in group]
    value = measured(PromptDependence, from_columns(0, group, tokens=rows))
    order = rng.permutation(len(rows))
    assert measured(PromptDependence, from_columns(0, group[order], tokens=[rows[at] for at in order])) == value
    assert 0.9 < value["diversity.prompt_dependence"] <= 1.0
