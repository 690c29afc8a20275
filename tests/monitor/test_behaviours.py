"""Behaviours: what is new becomes one, keeps its number, and is called bad by labels alone; odd texts break nothing."""

from __future__ import annotations

import random

import numpy as np
from msgspec.structs import replace

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.monitor.behaviour_sketch import MOST, find_behaviours
from tiltmeter.monitor.behaviour_tracker import LASTS, BehaviourTracker, rows_to_look_at
from tiltmeter.monitor.behaviour_tracker import MOST as REMEMBERED
from tiltmeter.rundir.payloads import BehaviourSeen
from tiltmeter.verdict.behaviours import BehaviourState, add_gold
from tiltmeter.view.screens.claims.run_claims import behaviour_claims

GROUPS = [row // 8 for row in range(128)]
WORDS = ("apple", "river", "stone", "cloud", "seven", "green", "table", "north", "quiet", "paper", "glass", "light")


def texts(seed: int, rows: int = 128) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=12)) + "." for _ in range(rows)]


def batch(step: int, completion: list[str | None], paid: list[bool] | None = None) -> RolloutBatch:
    reward = None if paid is None else np.array(paid, float)
    return from_columns(
        step, GROUPS, completion=completion, reward=reward, prompt=[f"question {group}" for group in GROUPS]
    )


START = Baseline(batch(0, [*texts(0)]))


def test_nothing_is_new_where_nothing_changes() -> None:
    assert [find_behaviours(batch(step, [*texts(step)]), START) for step in range(1, 9)] == [()] * 8


def test_what_is_new_is_one_behaviour_with_its_pay() -> None:
    rng = random.Random(5)
    has_it = [rng.random() < 0.5 for _ in GROUPS]
    now = [
        f"{text} so it is so it is so it is so it is" if it else text for text, it in zip(texts(5), has_it, strict=True)
    ]
    first, *rest = find_behaviours(batch(5, [*now], has_it), START)
    assert first.share > 0.35 and first.before == 0.0 and (first.paid_with, first.paid_without) == (1.0, 0.0)
    assert all(has_it[row] for row in first.rows) and len(rest) < MOST
    assert find_behaviours(batch(5, [*now], has_it), START) == (first, *rest)  # the same again


def test_the_subject_of_a_few_prompts_is_no_behaviour() -> None:
    now = [f"{text} [ ] [ ]" if group < 3 else text for text, group in zip(texts(6), GROUPS, strict=True)]
    assert find_behaviours(batch(6, [*now]), START) == ()


def test_odd_texts_break_nothing() -> None:
    odd: list[str | None] = [
        None,
        "",
        "\ud800 \x1b[31m",
        "a" * 100_000,
        "\n" * 5_000,
        "[ " * 9_000,
        "🙂 " * 300,
        "\x00",
    ]
    for seen in find_behaviours(batch(7, odd * 16), START):
        "".join([*seen.features, seen.excerpt]).encode()  # JSON carries it
    assert find_behaviours(batch(8, [None] * 128), START) == ()
    assert find_behaviours(batch(8, [*texts(8)]), None) == ()


def seen(*features: str, share: float = 0.3) -> BehaviourSeen:
    return BehaviourSeen(features=list(features), share=share, before=0.0, paid_with=1.0, paid_without=0.2, rows=[3])


def test_a_behaviour_keeps_its_number_and_memory_is_bounded() -> None:
    tracker = BehaviourTracker()
    (one,) = tracker.fold(4, [seen('"hope this helps"', "ends with helps !")])
    (again,) = tracker.fold(9, [seen('"i hope this helps"')])
    other, back = tracker.fold(12, [seen("repeats itself"), seen('"this helps"')])
    assert (one.number, again.number, back.number, other.number) == (1, 1, 1, 2)
    assert (back.first, back.times, other.first) == (4, 3, 12)
    assert rows_to_look_at(12, [other, back]) == {"behaviour-1": [[3], []]} and back.times == LASTS
    for step in range(200):
        tracker.fold(20 + step, [seen(f'"word{step}"')])
    assert len(vars(tracker)["_known_ones"]) == REMEMBERED
    tracker.rewind(100)
    (new,) = tracker.fold(101, [seen('"word150"')])
    assert new.first == 101  # what was first seen after the rewind has not happened


def test_only_labels_call_it_bad() -> None:
    state = BehaviourState().update(30, replace(seen('"great question"'), number=7, first=20, times=5))
    behaviours = {7: state}
    (claim,) = behaviour_claims(behaviours, 0, 31)
    assert claim.says == "behaviour 7" and claim.id == "0-30-3" and not claim.accuracy
    assert claim.many == "30 % of completions at step 30, 0 % at the start, since step 20"
    add_gold(behaviours, {"behaviours.7.gold_with": [0.1, 12], "behaviours.7.gold_without": [0.2, 12]})
    assert not state.is_worse  # within chance
    add_gold(
        behaviours, {"behaviours.7.gold_without": [1.0, 28], "behaviours.x.gold_with": [0, 9], "acts.gold.with": [1, 1]}
    )
    assert state.is_worse and behaviour_claims(behaviours, 0, 31)[0].says == "bad behaviour 7"
