"""The summary and the fleet: the same verdict as everywhere, small, quick, and nothing that JSON lacks."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import convert
from tests.view.as_sent import as_sent

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import monitor_lock
from tiltmeter.rundir import journal
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.stop_advice import advise_on_run
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.payloads.overview import FleetRow, HistoryEntry
from tiltmeter.view.report.answers import collect_answers
from tiltmeter.view.screens import fleet as fleet_screen
from tiltmeter.view.screens import health as health_screen
from tiltmeter.view.screens import summary as summary_screen
from tiltmeter.view.screens.compare import compare
from tiltmeter.view.screens.history import RunHistory, newest_entries
from tiltmeter.view.screens.readings import readings
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server.rollouts import RolloutIndex, rollout, rollouts

summary, fleet = as_sent(summary_screen.summary), as_sent(fleet_screen.fleet)
health = as_sent(health_screen.health)


def in_order(books: list[RunReader]) -> list[FleetRow]:
    """The rows of these runs, the worst first."""
    rows = [(fleet_screen.fleet_row(book), fleet_screen.problem_since(book)) for book in books]
    return [row for row, _ in sorted(rows, key=lambda item: fleet_screen.worst_first(*item))]


DETECTORS = [{"name": "gold_loss", "tier": "alarm", "alpha": 0.01, "watches": ["gold.slope"], "least": 7}]


@pytest.fixture(scope="module")
def demo(
    tmp_path_factory: pytest.TempPathFactory, copy_demo_run: Callable[[str, Path], RunDirectory]
) -> dict[str, RunDirectory]:
    folder = tmp_path_factory.mktemp("demo")
    return {name: copy_demo_run(name, folder / name) for name in ("hacked", "honest")}


def told(run: RunDirectory, **given: Any) -> dict[str, Any]:
    made: dict[str, Any] = summary(RunReader(run), **given)
    text = json.dumps(made, allow_nan=False)
    assert len(gzip.compress(text.encode())) <= 8_000
    return made


def test_state_and_sentence_are_those_of_the_verdict(demo: dict[str, RunDirectory]) -> None:
    for name, state in (("hacked", "ACT"), ("honest", "OK")):
        made, (verdict, story, _) = told(demo[name]), judge_run(demo[name])
        assert made["state"] == verdict.state == state
        assert made["sentence"] == verdict.sentence
        assert [check["ok"] for check in made["checks"]] == [check.ok for check in verdict.checks.values()]
        assert (made["rows"], made["steps"], made["step"]) == (story.rows, story.steps, story.last_step)


def test_a_hacked_run_says_what_rose_and_what_fell_and_shows_ten_completions(demo: dict[str, RunDirectory]) -> None:
    made = told(demo["hacked"])
    assert made["symptom"].startswith("proxy +") and ", gold -" in made["symptom"]
    assert made["symptom"].endswith(f"since step {made['onset']}")
    assert made["onset_low"] <= made["onset"] <= made["onset_high"]
    assert len(made["proves"]) == 10
    named = made["findings"][0]["exemplars"]
    assert [one["id"] for one in made["proves"]][: len(named)] == named, "the surest finding's come first"
    kinds = [entry["kind"] for entry in made["entries"]]
    assert kinds[0] == "attempt" and "alarm" in kinds and "finding" in kinds and kinds[-1] == "end"
    times = [entry["time"] for entry in made["entries"]]
    assert times == sorted(times)


def test_a_proof_is_the_row_that_its_id_names(demo: dict[str, RunDirectory]) -> None:
    for one in told(demo["hacked"])["proves"]:
        attempt, step, row = map(int, one["id"].split("-"))
        batch = read_step(demo["hacked"], attempt, step, [[0, 0]])
        assert batch.completion is not None and batch.reward is not None and batch.gold is not None
        assert (batch.completion[row] or "").startswith(one["text"].removesuffix("…"))
        assert one["reward"] == batch.reward[row]
        assert one["gold"] == (None if np.isnan(batch.gold[row]) else batch.gold[row])


def test_entries_since_a_time_are_those_from_then_on(demo: dict[str, RunDirectory]) -> None:
    whole = told(demo["hacked"])["entries"]
    since = whole[2]["time"]
    assert told(demo["hacked"], since=since)["entries"] == [entry for entry in whole if entry["time"] >= since]
    assert told(demo["hacked"], since=time.time() + 1)["entries"] == []


def test_a_long_list_of_entries_keeps_what_weighs() -> None:
    entries = [
        HistoryEntry(time=0.0, attempt=0, step=at, kind="alarm" if at == 3 else "fault", text="", id="")
        for at in range(100)
    ]
    kept = newest_entries(entries, 10)
    assert [entry.step for entry in kept] == [3, *range(91, 100)]


def test_what_is_sent_has_the_types_that_are_declared(demo: dict[str, RunDirectory]) -> None:
    """The constructor of a Struct checks nothing, and some values come from tables and files without types."""
    for run in demo.values():
        book = RunReader(run)
        payloads = list(collect_answers(book).answers.values())
        payloads += [
            fleet_screen.fleet([fleet_screen.fleet_row(book)]),
            health_screen.health(book),
            readings(book),
            compare([book, book]),
        ]
        index = RolloutIndex(book)
        payloads += [rollouts(index, {}, "reward"), rollouts(index, {"phrase": "the"}), rollout(index, "0-3-5")]
        for payload in payloads:
            assert convert(plain(payload), type(payload)) == payload
        index.close()


def test_the_advice_shown_is_that_of_the_verdict(demo: dict[str, RunDirectory]) -> None:
    for run in demo.values():
        book = RunReader(run)
        book.refresh()
        assert book.verdict.advice == advise_on_run(book.run_facts)


def test_the_checkpoint_to_keep_is_the_one_that_is_advised_and_lies_before_the_turn_has_surely_come(
    demo: dict[str, RunDirectory], tmp_path: Path
) -> None:
    source = demo["hacked"]
    onset = told(source)["onset_low"]
    run = RunDirectory.create(tmp_path / "saved")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for count, file in enumerate(source.files(0), 1):
        batch = source.read(file)[0]
        saved = {"checkpoint": float(batch.step)} if batch.step in (4, onset, told(source)["onset_high"] + 10) else {}
        counters = {"seen": count, "written": count}
        run.write(replace(batch, scalars=saved), 0, {"counters": counters, "time": time.time()})
    run.close_rank(attempt, 0, {"seen": count, "written": count})
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    book = RunReader(run)
    book.refresh()
    advised, made = book.verdict.advice, told(run)
    assert advised is not None and advised.best is not None
    assert made["last_good"]["step"] == advised.best.step == onset
    assert made["onset_low"] <= made["onset"] <= made["onset_high"]


def test_nothing_was_measured_yet(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "tonight")
    made = told(run)
    assert (made["state"], made["name"], made["age_s"], made["step"]) == ("STALE", "tonight", None, -1)
    assert made["proves"] == made["lanes"] == made["entries"] == []
    assert made["last_good"] is made["advice"] is None
    assert json.dumps(fleet([fleet_screen.fleet_row(RunReader(run))]), allow_nan=False)
    assert json.dumps(health(RunReader(run)), allow_nan=False)


def test_a_rewound_run_has_a_lane_that_was_left(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    for first, steps in ((0, 30), (10, 25)):
        attempt = run.open_attempt(launch="x", ranks=1, resume_step=first or None)
        for step in range(first, first + steps):
            rng = np.random.default_rng(step)
            batch = from_columns(step, np.arange(16) // 4, attempt=attempt, reward=rng.random(16), gold=rng.random(16))
            run.write(batch, 0, {"counters": {"seen": step + 1}})
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    assert told(run)["lanes"] == [
        {"attempt": 0, "parent": None, "first": 0, "last": 29, "left": 10},
        {"attempt": 1, "parent": 0, "first": 10, "last": 34, "left": None},
    ]


def test_the_worst_run_comes_first_and_the_rest_are_counted(demo: dict[str, RunDirectory], tmp_path: Path) -> None:
    books = [RunReader(demo["honest"]), RunReader(RunDirectory.create(tmp_path / "new")), RunReader(demo["hacked"])]
    rows = in_order(books)
    made = fleet(rows)
    json.dumps(made, allow_nan=False)
    assert [row["state"] for row in made["runs"]] == ["ACT", "STALE", "OK"]
    assert made["runs"][0]["sentence"] == judge_run(demo["hacked"])[0].sentence
    assert len(json.dumps(made["runs"][0]["picture"])) < 4000 and made["runs"][0]["picture"]["paths"]
    assert "no step is measured yet" in json.dumps(made["runs"][1]["picture"])
    made = fleet(rows, unread=3, unreadable=1, shown=fleet_screen.FleetPage(rows[:1], len(rows)))
    assert (len(made["runs"]), made["left_out"], made["total"], made["states"]["ACT"]) == (1, 2, 7, 1)


def test_of_two_alarms_the_older_comes_first(tmp_path: Path) -> None:
    books = []
    for name, raised in (("young", 2e9), ("old", 1e9)):
        run = RunDirectory.create(tmp_path / name)
        alarm = Alarm(0, "gold.slope", "gold_loss", "alarm", "down", 20, 20, 10, 8, 12, 5.0, 4.8, None, "gold falls")
        data = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": DETECTORS, "gold": None}
        lines = [Event("attempt", 0, -1, data, "a", 0, raised - 9), _timed(alarm, raised)]
        folder = run.path / "events"
        folder.mkdir(exist_ok=True)
        (folder / "0.jsonl").write_bytes(b"".join(event.line() for event in lines))
        books.append(RunReader(run))
    assert [row["name"] for row in fleet(in_order(books))["runs"]] == ["old", "young"]


def _timed(alarm: Alarm, when: float) -> Event:
    event = journal.event(alarm, 0, 20, "c")
    return Event(event.kind, 0, 20, event.data, event.id, 1, when)


def test_names_and_texts_of_others_arrive_as_they_are_and_cut(tmp_path: Path) -> None:
    evil = "<script>\u202e\ud800" * 200
    history = RunHistory()
    history.add(Event("fault", 0, 3, {"attempt": 0, "step": 3, "part": evil, "error": evil, "off": True}, "f", 0, 1.0))
    assert history.entries[0].text.startswith("<script>\u202e\ud800")
    assert len(json.dumps(plain(history.entries))) < 2_000


def test_health_knows_whether_a_monitor_runs(demo: dict[str, RunDirectory]) -> None:
    run = demo["honest"]
    made = health(RunReader(run))
    json.dumps(made, allow_nan=False)
    assert made["monitor"]["running"] is False
    assert made["ranks"][0]["step"] == 83 and not made["ranks"][0]["late"]
    assert made["disk_bytes"] > 100_000
    with monitor_lock(run):
        assert health(RunReader(run))["monitor"]["running"] is True
    with monitor_lock(run):
        pass  # looking did not keep the lock


def test_a_rank_that_stays_behind_is_late(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=2, resume_step=None)
    for step in range(8):
        for rank in range(2 if step < 3 else 1):
            batch = from_columns(step, [0, 0], attempt=attempt, reward=[0.0, 1.0])
            run.write(batch, rank, {"counters": {"seen": step + 1}})
    book = RunReader(run)
    book.refresh()
    assert [(row["step"], row["late"]) for row in health(book)["ranks"]] == [(7, False), (2, True)]


def test_a_long_run_is_summed_up_from_columns(tmp_path: Path) -> None:
    """Ten times less work than the promise (10,000 steps x 50 readings in 50 ms), by the processor's clock."""
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    folder = run.path / "events"
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    names = ["reward.mean", "gold.mean", "gold.slope", "policy.kl.k3", *(f"subject{at}.value" for at in range(46))]
    facts = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": DETECTORS, "gold": None}
    lines = [Event("attempt", 0, -1, facts, "a", 0).line()]
    done = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 64, "lost": {}, "labels": 64}
    for step in range(2000):
        read: dict[str, Any] = {
            name: [float(value), 64, 0.05] for name, value in zip(names, rng.random(50), strict=True)
        }
        read |= {"training.checkpoint": [float(step), 1, None]} if step % 100 == 0 else {}
        lines.append(Event("reading", 0, step, {"measured": read, "derived": {}}, f"r{step}", 2 * step + 1).line())
        told = {**done, "seen": step + 1, "gold_differs": True, "segment": 0, "fingerprint": ""}
        lines.append(Event("step_done", 0, step, told, f"s{step}", 2 * step + 2).line())
    (folder / "0.jsonl").write_bytes(b"".join(lines))
    book = RunReader(run)
    book.refresh()
    first = summary(book)
    began = time.process_time()
    for _ in range(10):
        assert summary(book)["symptom"] == first["symptom"]
    assert (time.process_time() - began) / 10 < 0.02
    book._event_cache.clear()  # as after a new event
    began = time.process_time()
    summary(book)
    assert time.process_time() - began < 0.05
    assert first["last_good"] is not None
