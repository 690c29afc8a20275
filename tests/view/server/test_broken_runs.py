"""Runs that are damaged, hostile, deleted or replaced while somebody looks: never green, and never in others' way."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from tests.sizes import size
from tests.view.as_sent import as_sent

from tiltmeter.data.batches import from_columns
from tiltmeter.errors import StoreError, TiltmeterError
from tiltmeter.gold.people import PeopleSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir import journal
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.parquet import FORMAT
from tiltmeter.rundir.rank_summary import expand_ranges
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.health import health
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.server import labelling, state
from tiltmeter.view.server.access import AccessTokens, TrustedHosts
from tiltmeter.view.server.run_list import RunList, list_run
from tiltmeter.view.server.state import ServerState

next_task, submit_answer = as_sent(labelling.next_task), as_sent(labelling.submit_answer)

PLACE = {"attempt": 0, "step": 39}
#: Each a line that its writer sealed: what stands in it is the only thing that is wrong.
EVENTS: dict[str, dict[str, Any]] = {
    "an alarm without its fields": {"kind": "alarm", "data": {"attempt": 0}},
    "an id that is a list": {"kind": "note", "data": {}, "id": [1]},
    "a fault of nothing": {"kind": "fault", "data": {**PLACE, "part": None, "error": 5, "off": True}},
    "a finding of no reading": {"kind": "finding", "data": {**PLACE, "failure": "x", "confidence": 1.0}},
    "a step that is no number": {"kind": "step_done", "data": {"rows": "x"}},
    "a time that is a word": {"kind": "note", "data": {}, "time": "noon"},
    "readings that are none": {"kind": "reading", "data": {"measured": {"reward.mean": 3}, "derived": {}}},
}


def made(path: Path, *, harm: bool, steps: int = 40) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        reward = np.random.default_rng(step).normal(size=16)
        gold = (reward < 0 if harm else reward > 0).astype(float)
        texts = [f"answer {row} of {step}" for row in range(16)]
        batch = from_columns(step, np.repeat(np.arange(4), 4), reward=reward, gold=gold, completion=texts)
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})
    run.close_rank(0, 0, {"seen": steps, "written": steps})
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    return run


def add(run: RunDirectory, given: dict[str, Any]) -> None:
    event = {"id": "planted", "kind": "note", **PLACE, "data": {}, **given}
    plain = {"format": FORMAT, "seq": 10**6, "time": event.pop("time", 0.0), "events": [event]}
    text = json.dumps(plain, separators=(",", ":")).encode()
    with (run.path / "events" / "0.jsonl").open("ab") as file:
        file.write(b'%b,"crc":"%08x"}\n' % (text[:-1], zlib.crc32(text)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    made(folder / "healthy", harm=False)
    made(folder / "harmed", harm=True)
    return folder


def copied(runs: Path, name: str, to: Path) -> RunDirectory:
    shutil.copytree(runs / name, to)
    return RunDirectory(to)


@pytest.mark.parametrize("what", EVENTS)
def test_one_event_that_cannot_be_read_hides_its_run_and_no_other(runs: Path, tmp_path: Path, what: str) -> None:
    copied(runs, "healthy", tmp_path / "runs" / "good")
    add(copied(runs, "healthy", tmp_path / "runs" / "planted"), EVENTS[what])
    shelf = RunList([tmp_path / "runs"])
    for _ in range(3):
        rows, unread, unreadable = shelf.rows(list_run)
        assert [row.row.name for row in rows if row.row.name == "good"] == ["good"]
        assert len(rows) + unread + unreadable == 2


def test_an_alarm_that_cannot_be_read_is_never_passed_over(runs: Path, tmp_path: Path) -> None:
    run = copied(runs, "harmed", tmp_path / "run")
    lines = (run.path / "events" / "0.jsonl").read_bytes().splitlines(keepends=True)
    commits = [journal.parse(line) for line in lines]
    ((at, where),) = [
        (number, place)
        for number, commit in enumerate(commits)
        for place, event in enumerate(commit)
        if event.kind == "alarm" and event.data["tier"] == "alarm"
    ]
    commit = commits[at]
    commit[where] = dataclasses.replace(commit[where], data={**commit[where].data, "onset": "x", "data_step": ""})
    worse = journal.encode_commit(commit, commit[0].seq)
    (run.path / "events" / "0.jsonl").write_bytes(b"".join([*lines[:at], worse, *lines[at + 1 :]]))
    book = RunReader(run)
    for _ in range(3):
        with pytest.raises(StoreError, match="cannot be read"):
            book.refresh(force=True)
    (run.path / "events" / "0.jsonl").write_bytes(b"".join(lines))
    assert book.refresh(force=True).state == "ACT"


def test_a_fold_that_failed_is_told_everything_again(runs: Path, tmp_path: Path) -> None:
    class Counting:
        def __init__(self) -> None:
            self.seen: list[str] = []

        def add(self, event: Event) -> None:
            self.seen.append(event.id)
            if fails and event.id == "planted":
                raise ValueError

    run, fails = copied(runs, "healthy", tmp_path / "run"), True
    book = RunReader(run)
    book.refresh()
    book.get_fold("counting", Counting)
    add(run, {})
    book.refresh(force=True)
    with pytest.raises(ValueError):
        book.get_fold("counting", Counting)
    fails = False
    assert book.get_fold("counting", Counting).seen == [event.id for event in book.events]


def test_a_run_that_was_deleted_and_begun_anew_is_another_run(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "runs" / "tonight"
    copied(runs, "healthy", path)
    place = ServerState(RunList([tmp_path / "runs"]), AccessTokens(tmp_path / "state"), TrustedHosts(8787))
    (row,) = place.run_list.rows(list_run).listed
    id, before = row.row.run, place.index(row.row.run)
    before.update()
    assert row.row.state == place.run_list.reader(id).refresh().state == "OK" and before.rollouts == 640
    shutil.rmtree(path)  # and nobody asks in between
    made(path, harm=False, steps=3)
    assert place.run_list.reader(id).refresh(force=True).state == "BLIND"
    (row,) = place.run_list.rows(list_run).listed
    assert (row.row.state, row.row.step) == ("BLIND", 2)
    after = place.index(id)
    after.update()
    assert after.rollouts == 48 and place.index(id) is after
    after.close()


def test_however_many_runs_are_looked_at_few_tables_are_kept_and_none_is_taken_from_whoever_asks(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state, "BUSY_INDEXES", 3)
    for number in range(6):
        copied(runs, "healthy", tmp_path / "runs" / str(number))
    place = ServerState(RunList([tmp_path / "runs"]), AccessTokens(tmp_path / "state"), TrustedHosts(8787))
    first, *others = place.run_list.ids()
    used = place.index(first)
    used.update()
    with used.cursor() as cursor:
        for id in others:
            place.index(id)
        assert len(place._indexes) == 3 and first not in place._indexes
        assert cursor.execute("SELECT count(*) FROM rollouts").fetchone() == (640,)


def test_threads_that_read_one_packed_file_do_not_disturb_each_other(runs: Path, tmp_path: Path) -> None:
    """In a process of its own: what goes wrong here ends the process."""
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(64):
        texts = [f"text {row} of {step} " * 20 for row in range(128)]
        batch = from_columns(step, np.repeat(np.arange(16), 8), reward=np.arange(128.0), completion=texts, prompt=texts)
        run.write(batch, 0, {"counters": {"seen": step + 1}})
    run.close_rank(0, 0, {"seen": 64})
    pack(run)
    assert list((run.path / "rollouts" / "0" / "packed").iterdir())
    program = """
import sys, threading
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
run, wrong = RunDirectory(sys.argv[1]), []
def read(first):
    for step in range(STEPS):
        columns = ("group", "completion", *(("prompt",), ("reward",), ("length", "reward"), ())[(first + step) % 4])
        batch = read_step(run, 0, (7 * first + 5 * step) % 64, [[0, 0]], columns)
        if batch.completion[3] != f"text 3 of {batch.step} " * 20:
            wrong.append(batch.step)
threads = [threading.Thread(target=read, args=(k,)) for k in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
sys.exit(bool(wrong))
"""
    program = program.replace("STEPS", str(size(50, 300)))
    done = subprocess.run([sys.executable, "-c", program, str(run.path)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-500:]


def test_two_numbers_that_stand_for_a_billion_ranks_are_refused() -> None:
    with pytest.raises(StoreError, match="ranks"):
        expand_ranges([[0, 10**9]])


@pytest.mark.parametrize("broken", ["events", "identity", "request"])
def test_a_run_that_cannot_be_read_keeps_nobody_from_labelling_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    labelling._SESSIONS.clear()
    labelling._ASSIGNMENTS.clear()
    labelling._secret_in.cache_clear()
    asked = []
    for name in ("good", "bad"):
        run = made(tmp_path / name, harm=False, steps=0)
        number = run.open_attempt(launch="y", ranks=1, resume_step=None)
        for step in range(3):
            texts = [f"answer {row}" for row in range(16)]
            batch = from_columns(
                step, np.repeat(np.arange(4), 4), reward=np.tile([0.0, 1.0], 8), completion=texts, prompt=["?"] * 16
            )
            run.write(dataclasses.replace(batch, attempt=number), 0, {"counters": {"seen": step + 1}})
        watch = MonitorLoop(run, Config.standard().with_gold(PeopleSource(), 0.5))
        watch.poll()
        watch.close()
        asked.append(run)
    bad = asked[1]
    books = [RunReader(run) for run in asked]
    if broken == "events":
        add(bad, EVENTS["an alarm without its fields"])
    elif broken == "identity":
        (bad.path / "run.json").write_text("[" * 100_000)
    else:
        for path in (bad.path / "gold" / "requests").iterdir():
            path.write_text(path.read_text().replace('"row": [', '"row": ["x", '))
    task = next_task(books, "ada")
    assert task["task"] and submit_answer(books, "ada", task["task"], "tie", 5)["task"] != task["task"]
    assert any((asked[0].path / "gold" / "people").rglob("*.json"))


def test_a_line_without_end_is_passed_over_and_what_follows_is_read(tmp_path: Path) -> None:
    written = journal.Journal(tmp_path)
    written.commit([journal.Event("note", 0, 1, {"note": "one"}, "one")])
    tail = journal.JournalReader(tmp_path)
    with (tmp_path / "0.jsonl").open("ab") as file:
        file.write(b"y" * (3 * journal.LINE_LIMIT))
    assert [event.id for event in tail.poll()] == ["one"]
    with (tmp_path / "0.jsonl").open("ab") as file:
        file.write(b"z\n")
    written.commit([journal.Event("note", 0, 2, {"note": "two"}, "two")])
    assert [event.id for event in tail.poll()] == ["two"]
    assert tail.skipped == 1
    written.close()


@pytest.mark.parametrize(
    "place",
    ("run.json", "rollouts/0/attempt.json", "rollouts/0/0.counters.json", "rollouts/0/000039-0.parquet", "events",
     "events/0.jsonl", "rollouts", "gold", "control", "pinned", "reference.parquet"),
)  # fmt: skip
def test_a_pipe_in_one_run_holds_up_no_other(runs: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    shutil.copytree(folder / "healthy", folder / "broken")
    pipe = folder / "broken" / place
    if pipe.is_dir():
        shutil.rmtree(pipe)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    listed: list[Any] = []

    def read() -> None:
        several = RunList([folder])
        listed.append(several.rows(list_run)[0])
        for reader in map(several.reader, several.ids()):
            try:
                reader.refresh()
                summary(reader)
                health(reader)
            except TiltmeterError as error:
                assert "broken" in str(error)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    reading.join(30.0)
    assert not reading.is_alive(), "the page waits for a pipe"
    assert {"healthy", "harmed"} <= {item.row.name for item in listed[0]}
