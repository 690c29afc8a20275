"""Labels by cost: a check of microseconds labels every rollout, and what that says is what a gold column would say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.gold import CompletionToLabel, GoldAnswer
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_files import COLUMN_FILE, read_labels, read_request
from tiltmeter.gold.people import PeopleSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events, readings_of
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.checks import Ages
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import verdict_of
from tiltmeter.view.screens.wording import describe_gold_source

GROUPS, SIZE = 8, 8
GOLD_PARTS = ("gold.mean", "gold.slope", "gold.prompts", "gold.agreement")


def score(completion: str) -> float:
    return float(completion.endswith("right"))


def slow(completion: str) -> float:
    time.sleep(0.05)
    return score(completion)


def picky(completion: str) -> float:
    if "1" in completion:
        raise LookupError("no tests for this one")
    return score(completion)


def batch(step: int, *, fall: float = 0.0, gold: bool = False) -> RolloutBatch:
    """The reward pays right answers a little and long ones more; right answers become rare."""
    rng = np.random.default_rng(step)
    right = rng.random(GROUPS * SIZE) < 0.8 - fall
    columns: dict[str, Any] = {
        "reward": 0.1 * right + 0.05 * rng.integers(0, 4 + step // 5, len(right)),
        "prompt": [f"prompt {(step * GROUPS + k) % 24}" for k in np.repeat(np.arange(GROUPS), SIZE)],
        "completion": [f"answer {row} is {'right' if one else 'wrong'}" for row, one in enumerate(right)],
    }
    columns |= {"gold": right.astype(float)} if gold else {}
    return from_columns(step, np.repeat(np.arange(GROUPS), SIZE), **columns)


def stored(path: Path, batches: Sequence[RolloutBatch]) -> RunDirectory:
    run = RunDirectory.create(path, {"id": path.name})
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for item in batches:
        run.write(item, 0, {"counters": {"seen": len(batches)}})
    run.close_rank(attempt, 0, {"seen": len(batches)})
    return run


def lean() -> Config:
    standard = Config.standard()
    names = ("reward.mean", *GOLD_PARTS)
    return Config(tuple(part for part in standard.instruments if part.name in names), (), standard.detectors)


def watched(run: RunDirectory, config: Config) -> list[Event]:
    loop = MonitorLoop(run, config, strict=True)
    while loop.poll() or loop.waiting:
        pass
    loop.close()
    return read_events(run.path / "events")


def gold_readings(events: Sequence[Event]) -> list[tuple[object, ...]]:
    found = [one for event in events if "measured" in event.data for one in readings_of(event)]
    return sorted(
        (one.step, one.name, one.value, one.n, one.values, one.keys) for one in found if one.name in GOLD_PARTS
    )


def test_a_fast_function_labels_every_rollout_as_a_gold_column_would(tmp_path: Path) -> None:
    falls = [max(0, step - 20) * 0.02 for step in range(60)]
    asked = stored(tmp_path / "asked", [batch(step, fall=fall) for step, fall in enumerate(falls)])
    passed = stored(tmp_path / "passed", [batch(step, fall=fall, gold=True) for step, fall in enumerate(falls)])
    events = watched(asked, lean().with_gold(FunctionSource("checks.py:score", score)))
    column = watched(passed, lean())
    assert gold_readings(events) == gold_readings(column)
    run_facts = RunFacts.from_events(events)
    assert run_facts.labels == run_facts.rows == 60 * GROUPS * SIZE
    assert "every rollout is labelled" in run_facts.gold_cost
    assert f"{run_facts.gold_cost}." in describe_gold_source(run_facts, None)
    verdict, by_column = (verdict_of(RunFacts.from_events(one), Ages(1.0, None)) for one in (events, column))
    assert verdict.state == "ACT"
    assert verdict.alarms[0].name == "gold.prompts"
    assert [one.step for one in verdict.alarms] == [one.step for one in by_column.alarms]
    assert verdict.agreement is not None
    assert (verdict.agreement, verdict.level) == (by_column.agreement, by_column.level)
    assert replay(asked, lean()).difference is None


def test_a_slow_function_is_asked_about_what_a_second_a_step_allows(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", [batch(step) for step in range(3)])
    events = watched(run, lean().with_gold(FunctionSource("checks.py:slow", slow)))
    note = next(event for event in events if event.data.get("note") == "gold_share")
    assert note.data["seconds"] == pytest.approx(0.05, rel=0.5)
    assert note.data["share"] == pytest.approx(1.0 / (note.data["seconds"] * GROUPS * SIZE), abs=0.01)
    assert RunFacts.from_events(events).labels < 0.8 * 3 * GROUPS * SIZE
    assert replay(run, lean()).difference is None


def test_the_choice_is_made_once_and_survives_a_kill_at_any_event(tmp_path: Path) -> None:
    steps = [batch(step) for step in range(4)]
    source = FunctionSource("checks.py:score", score)
    whole = watched(stored(tmp_path / "whole", steps), lean().with_gold(source))
    for polls in range(1, 8):
        run = stored(tmp_path / f"killed-{polls}", steps)
        loop = MonitorLoop(run, lean().with_gold(source), strict=True)
        for arrival in islice(loop.source.poll(), polls):
            loop._close_labelled_steps()
            loop.advance(arrival)
        loop.close()  # the last step was drawn, and nobody was asked yet
        events = watched(run, lean().with_gold(source))
        assert gold_readings(events) == gold_readings(whole)
        assert sum(event.data.get("note") == "gold_share" for event in events) == 1
        assert replay(run, lean()).difference is None


def test_share_one_means_all_and_people_are_never_asked_about_all(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", [batch(step) for step in range(3)])
    events = watched(run, lean().with_gold(FunctionSource("checks.py:slow", score), 1.0))
    run_facts = RunFacts.from_events(events)
    assert run_facts.labels == run_facts.rows
    assert not run_facts.gold_cost  # nothing was chosen
    people = MonitorLoop(stored(tmp_path / "people", [batch(0), batch(1)]), lean().with_gold(PeopleSource(), 1.0))
    assert people.label_queue is not None
    assert not people.label_queue.labels_whole_steps
    people.close()


def test_a_missing_label_counts_in_favour_of_the_run_and_is_named(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", [batch(step) for step in range(3)])
    events = watched(run, lean().with_gold(FunctionSource("checks.py:picky", picky), 1.0))
    run_facts = RunFacts.from_events(events)
    assert run_facts.unanswered == 3 * sum("1" in str(row) for row in range(GROUPS * SIZE))
    assert "LookupError: no tests for this one" in run_facts.gold_error
    assert "LookupError" in verdict_of(run_facts, Ages(1.0, None)).sentence
    complete = watched(
        stored(tmp_path / "complete", [batch(step) for step in range(3)]),
        lean().with_gold(FunctionSource("checks.py:score", score), 1.0),
    )
    slopes = [
        {row[0]: np.array(row[4]) for row in gold_readings(one) if row[1] == "gold.slope"} for one in (events, complete)
    ]
    assert all((slopes[0][step] >= slopes[1][step] - 1e-12).all() for step in range(3))
    assert any((slopes[0][step] > slopes[1][step]).any() for step in range(3))


class Late(FunctionSource):
    """A source that has no answer the first time."""

    calls = 0

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        self.calls += 1
        if self.calls == 1:
            raise ConnectionError("the sandbox is down")
        return super().label(requests)


def test_a_source_that_fails_while_it_is_timed_is_asked_all_the_same(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", [batch(0)])
    assert RunFacts.from_events(watched(run, lean().with_gold(Late("checks.py:score", score)))).labels == GROUPS * SIZE


def test_a_file_of_labels_that_was_tampered_with_is_never_a_label(tmp_path: Path) -> None:
    run = stored(tmp_path / "run", [batch(0)])
    watched(run, lean().with_gold(FunctionSource("checks.py:score", score)))
    request = read_request(run, 0, 0)
    assert request is not None
    path = run.path / "gold" / "labels" / "0-000000" / COLUMN_FILE
    text = path.read_text()
    for damaged, why in (
        (text.replace(request.digest, "0" * 64), "answered without a request"),
        (text.replace("[", "[0.5, ", 1), "answered without a request"),
        (text[:-9], "unreadable answer"),
        (text.replace("[1.0", "[87.0").replace("[0.0", "[87.0"), "not a number from 0 to 1"),
    ):
        path.write_text(damaged)
        labels = read_labels(run, request)
        assert labels[0] is not None
        assert labels[0].value is None
        assert why in labels[0].why
    assert replace(request, time=0.0).digest == request.digest
