"""Series for the page: what is sent of a run's readings, on runs written as journals."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.view.as_sent import as_sent

from tiltmeter.data.records import Action, Alarm, Reading
from tiltmeter.rundir.journal import Event, Journal, event, reading_event
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens import readings as readings_screen
from tiltmeter.view.screens import series as series_screen
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader
from tiltmeter.view.screens.series import non_finite_values, values_at

readings, series = as_sent(readings_screen.readings), as_sent(series_screen.series)


def write(
    path: Path,
    values: Mapping[str, Sequence[float | None]],
    *,
    first: int = 0,
    parent: int | None = None,
    records: Sequence[Alarm | Action] = (),
    absent: Mapping[str, str] | None = None,
    n: int = 64,
) -> RunReader:
    """A run, or one more attempt of it, whose readings have these values step by step; None: no reading there."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="test", ranks=1, resume_step=first if parent is not None else None)
    journal = Journal(path / "events", seq=100_000 * attempt)
    facts: dict[str, Any] = {"state": "open", "facts": run.attempt(attempt), "detectors": [], "gold": None}
    journal.commit([Event("attempt", attempt, first, facts, f"open-{attempt}")])
    if absent is not None:
        journal.commit([Event("note", attempt, first, {"note": "absent", "absent": dict(absent)}, "absent")])
    last = max(map(len, values.values()), default=0) - 1
    for row in range(last + 1):
        step = first + row
        told = [
            Reading(attempt, step, name, float(line[row] or 0.0), n, 0.01)
            for name, line in values.items()
            if row < len(line) and line[row] is not None
        ]
        journal.commit([reading_event(attempt, step, told, [], "config")])
        done = {
            "ranks": [[0, 0]],
            "sha256": "",
            "rows": n,
            "missing": [],
            "unreadable": [],
            "seen": row + 1,
            "lost": {},
        }
        done |= {"written": float(step)}
        if row in (0, last):  # each is synced, and nothing here asks for those between
            journal.commit([Event("step_done", attempt, step, done, f"done-{attempt}-{step}")])
    for record in records:
        journal.commit([event(record, attempt, record.step, "config")])
    journal.close()
    book = RunReader(run)
    book.refresh()
    return book


def noise(length: int, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(0.0, 1.0, length).tolist())


def test_a_long_line_is_short_and_keeps_its_extremes_and_the_steps_of_alarms_and_actions(tmp_path: Path) -> None:
    values = noise(3000)
    values[1234], values[2345] = 50.0, -50.0
    alarm = Alarm(0, "reward.mean", "departure", "warning", "up", 1501, 1501, 1447, 1440, 1450, 9.0, 5.0)
    action = Action("0-1777-beta", 0, 1777, "reward hacking", "beta", 0.04, 0.08, "because")
    told = series(write(tmp_path / "run", {"reward.mean": values}, records=[alarm, action]), ["reward.mean"])
    assert told["of"] == 3000
    assert told["shown"] == len(told["steps"]) < 330
    assert {0, 2999, 1234, 2345, 1501, 1447, 1777} <= set(told["steps"])
    line = told["lines"][0]
    assert max(line["values"]) == 50.0
    assert line["high"][0] == pytest.approx(values[0] + 1.96 * 0.01, abs=1e-3)
    json.dumps(told, allow_nan=False)


def test_up_to_600_steps_are_all_sent_and_a_zoom_gives_back_what_was_left_out(tmp_path: Path) -> None:
    book = write(tmp_path / "run", {"reward.mean": noise(2000)})
    assert series(book, ["reward.mean"])["shown"] < 400
    zoomed = series(book, ["reward.mean"], 500, 1099)
    assert zoomed["steps"] == list(range(500, 1100))
    assert zoomed["lines"][0]["values"][7] == pytest.approx(noise(2000)[507], rel=1e-5)


def test_lines_share_their_steps_and_a_silence_is_null(tmp_path: Path) -> None:
    one, two = noise(1000), [None if 400 <= step < 500 else 1.0 for step in range(1000)]
    told = series(write(tmp_path / "run", {"a": one, "b": two}), ["a", "b"])
    steps, b = np.array(told["steps"]), told["lines"][1]["values"]
    assert {399, 400, 500} <= set(told["steps"])
    inside = [value for step, value in zip(steps, b, strict=True) if 400 <= step < 500]
    assert inside and set(inside) == {None}
    assert None not in [value for step, value in zip(steps, b, strict=True) if not 400 <= step < 500]


def test_steps_that_no_line_has_are_a_gap_and_no_point(tmp_path: Path) -> None:
    values = [None if 100 <= step < 200 else 1.0 for step in range(300)]
    told = series(write(tmp_path / "run", {"a": values}), ["a"])
    assert told["of"] == told["shown"] == 200
    assert told["lines"][0]["values"][told["steps"].index(100)] is None


def test_abandoned_steps_are_a_branch_and_not_in_the_line(tmp_path: Path) -> None:
    write(tmp_path / "run", {"a": [1.0] * 50})
    book = write(tmp_path / "run", {"a": [2.0] * 30}, first=20, parent=0)
    told = series(book, ["a"])
    assert told["steps"] == list(range(50))
    assert told["lines"][0]["values"] == [1.0] * 20 + [2.0] * 30
    assert told["branches"] == [{"attempt": 0, "steps": list(range(20, 50)), "values": [[1.0] * 30]}]


def test_a_name_that_is_not_there_is_a_key_error(tmp_path: Path) -> None:
    book = write(tmp_path / "run", {"a": [1.0]})
    with pytest.raises(KeyError, match="no such"):
        series(book, ["no such"])


def test_values_that_are_no_numbers_are_flagged_with_their_step() -> None:
    line = ReadingSeries(np.arange(4), np.array([1.0, np.nan, np.inf, -np.inf]), np.ones(4, np.int64), np.zeros(4))
    assert non_finite_values([line]) == [(0, 1, "nan"), (0, 2, "+inf"), (0, 3, "-inf")]
    assert np.isnan(values_at(line.steps, line.values, np.array([9]))).all()


def test_readings_say_how_far_they_moved_and_what_is_absent(tmp_path: Path) -> None:
    absent = {"policy.kl": "logprob, ref_logprob", "gold.slope": "gold, gold_chance"}
    rising = [0.01 * step for step in range(100)]
    told = readings(write(tmp_path / "run", {"up": rising, "flat": [1.0] * 100}, absent=absent))
    rows = {row["name"]: row for row in told["readings"]}
    assert rows["up"]["moved"] > 10 > rows["flat"]["moved"] == 0.0
    assert len(rows["up"]["spark"]) == 24
    assert (rows["up"]["first"], rows["up"]["last"]) == (0.0, 0.99)
    assert told["absent"][1] == {
        "name": "gold.slope", "lacks": "gold", "fix": 'tiltmeter.attach(trainer, gold="checks.py:score")'
    }  # fmt: skip
    json.dumps(told, allow_nan=False)
