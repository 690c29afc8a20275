"""Facts that divide the rows well become slices without being named; what names a prompt or its answer does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.slice_facts import MOST_FACTS, MOST_PARTS, choose_facts
from tiltmeter.data.slices import AND, LABEL, by_slice, group_slices, row_slices, slice_words


def steps(fact: Callable[[int], dict[str, Any]], prompts: int = 48, answers: int = 4, **columns: Any) -> RolloutBatch:
    rows = [k for k in range(prompts) for _ in range(answers)]
    given = {"reward": [0.0] * len(rows), "facts": [fact(k) for k in rows], "prompt": [f"p{k}" for k in rows]}
    return from_columns(0, rows, **{**given, **columns})


@pytest.mark.parametrize(
    ("fact", "chosen"),
    [
        (lambda k: {"topic": f"t{k % 6}"}, ("topic",)),
        (lambda k: {"level": k % 5, "language": "C" if k % 2 else "Go"}, ("language", "level")),
        (lambda k: {"answer": k % 6, "id": k % 3}, ()),  # by their names
        (lambda k: {"url": f"u{k}"}, ()),  # no two prompts share it
        (lambda k: {"source": "one"}, ()),
        (lambda k: {"source": "one" if k else "other"}, ()),
        (lambda k: {"source": f"s{k % 3}"} if k % 2 else {}, ()),  # half of the prompts have none
        (lambda k: {"essay": "x" * 100 + str(k % 3), "score": k % 3 / 10, "tags": [k % 3]}, ()),
        (lambda k: {"topic": k % 4, "subject": f"s{k % 4}"}, ("subject",)),  # one division
        (lambda k: {"number": k if k % 6 else 0}, ()),  # most prompts have a value of their own: more will come
    ],
)
def test_facts_with_few_values_that_prompts_share_are_chosen(
    fact: Callable[[int], dict[str, Any]], chosen: tuple[str, ...]
) -> None:
    assert choose_facts(steps(fact)) == chosen


def test_forty_topics_are_mostly_seen_in_the_first_steps_although_half_of_them_are_still_to_come() -> None:
    rng, count = np.random.default_rng(0), 0
    for _ in range(100):
        facts = [{"topic": f"t{topic}", "number": str(k)} for k, topic in enumerate(rng.integers(0, 40, 48))]
        count += choose_facts(steps(facts.__getitem__)) == ("topic",)
    assert count >= 80


def test_neither_reward_nor_gold_decides() -> None:
    def fact(k: int) -> dict[str, Any]:
        return {"topic": k % 6, "level": k // 9}

    rng = np.random.default_rng(0)
    first = choose_facts(steps(fact))
    assert first == choose_facts(steps(fact, reward=rng.random(192), gold=rng.integers(0, 2, 192)))


def test_slices_are_bounded_and_an_environment_is_not_divided_twice() -> None:
    many = choose_facts(steps(lambda k: {f"fact{n}": k % (2 + n) for n in range(9)}))
    assert len(many) == MOST_FACTS
    wide = choose_facts(steps(lambda k: {f"fact{n}": (k + n * (k % 3)) % 16 for n in range(9)}, prompts=160))
    assert 16 * len(wide) <= MOST_PARTS
    assert not choose_facts(steps(lambda k: {"source": k % 4}, env=[f"e{k % 4}" for k in range(48) for _ in range(4)]))


def test_a_row_belongs_to_its_environment_and_to_one_slice_of_each_fact() -> None:
    batch = steps(lambda k: {"topic": f"t{k % 6}", "level": k % 4}, env=["shell"] * 192)
    first_steps = Baseline(batch)
    groups = group_slices(batch, first_steps)
    assert groups is not None and groups[1] == AND.join(["shell", "fact.level-1", "fact.topic-t1"])
    places = by_slice(groups, [True] * 48)
    assert len(places["shell"]) == 48 and places["fact.topic-t1"] == [1, 7, 13, 19, 25, 31, 37, 43]
    assert slice_words("fact.topic-t1") == "where topic is t1"
    assert row_slices(batch) == ["shell"] * 192
    later = Baseline(batch, "later")
    assert row_slices(batch, later) == ["shell"] * 192


def test_a_value_that_comes_later_is_a_slice_and_a_row_without_facts_is_in_none() -> None:
    first_steps = Baseline(steps(lambda k: {"topic": f"t{k % 6}"}))
    new = from_columns(9, [0, 1], reward=[0, 1], facts=[{"topic": "new"}, None])
    assert row_slices(new, first_steps) == ["fact.topic-new", ""]
    assert row_slices(from_columns(9, [0, 1], reward=[0, 1]), first_steps) is None


def test_names_that_do_not_fit_are_left_out_whole() -> None:
    batch = steps(lambda k: {"a" * 50: f"{'v' * 30}{k % 3}", "b" * 50: f"{'w' * 30}{k % 4}"})
    slices = group_slices(batch, Baseline(batch))
    assert slices is not None and max(map(len, slices)) <= LABEL
    assert {len(name.split(AND)) for name in slices} == {1}
