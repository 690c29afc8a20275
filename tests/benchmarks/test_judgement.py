"""The record of the judgement: parts are merged, what was not run has no figure, and each count can fail."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def judgement(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import record_parts as module  # benchmarks are scripts, not a package

    yield module
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            sys.modules.pop(name)


def test_a_part_that_is_measured_again_replaces_its_own_figures_alone(judgement: ModuleType) -> None:
    old = judgement.merge({}, {"own": {"a": 1, "gone": 2}, "tiny": {"b": 3}}, {"revision": "one"})
    new = judgement.merge({**old, "revision": "one"}, {"own": {"a": 5}}, {"revision": "two"})
    assert {name: new[name] for name in ("a", "b")} == {"a": 5, "b": 3}
    assert "gone" not in new and "revision" not in new
    assert {name: part["revision"] for name, part in new["parts"].items()} == {"own": "two", "tiny": "one"}


def test_exit_code_0_over_a_trouble_is_calm_unless_it_says_that_gold_cannot_see_it(judgement: ModuleType) -> None:
    from judged_runs import count_rows

    seen = {"kind": "T", "name": "a", "exit_code": 0, "gold_sees": True, "says_blind": False, "state": "OK"}
    rows = [seen, {**seen, "exit_code": 1}, {**seen, "gold_sees": False, "says_blind": True}]
    figures = count_rows(rows)
    assert (figures["false_calm"], figures["false_calm_by_exit_code"], figures["false_calm_of"]) == (1, 2, 3)
    assert (figures["unseen_said"], figures["unseen_said_of"]) == (1, 1)
    assert "healthy_act" not in figures, "no healthy run was played"


def test_there_are_25_troubled_and_15_healthy_kinds_and_each_makes_a_step(judgement: ModuleType) -> None:
    from judged_runs import KINDS

    letters = [kind.kind for kind in KINDS.values()]
    assert (letters.count("T"), letters.count("H")) == (25, 15)
    unseen = {name for name, kind in KINDS.items() if not kind.gold_sees}
    assert unseen == {"stale_cache", "languages", "dead_sandbox", "by_prompt"}
    for name, kind in KINDS.items():
        made = kind.make(120, np.random.default_rng(0))
        assert len(made.rows) == len(made.truth) == len(made.reward) == len(made.texts), name


def test_a_number_that_differs_from_the_verdict_is_counted_and_a_rounded_one_is_not(judgement: ModuleType) -> None:
    from judged_surfaces import agrees, in_payload, in_text

    text = "Level: gold 0.31 (steps 3-9), 0.62 at its best (steps 1-2): -0.31 [-0.4, -0.2]"
    text += "; since about step 46 (odds 167 to 1)"
    shown = {one.about: one for one in in_text("terminal", text)}
    assert {name: one.value for name, one in shown.items()} == {
        "level_now": 0.31, "level_best": 0.62, "level_change": -0.31, "onset": 46.0, "odds": 167.0
    }  # fmt: skip
    assert agrees(shown["level_now"], [0.3149]) and not agrees(shown["level_now"], [0.33])
    assert agrees(shown["onset"], [12, 46]) and not agrees(shown["onset"], [47])
    (checkpoint,) = in_payload("page", {"last_good": None})
    assert agrees(checkpoint, []) and not agrees(checkpoint, [40.0])
    assert not agrees(shown["odds"]._replace(value=180.0), [167.2])
