"""An open alarm that was dated anew: every surface shows the onset of the verdict, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from tests.view.screens.test_alarms import raised, settings, watched

from tiltmeter.data.batches import from_columns
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import alarm_id
from tiltmeter.view.agent.run_choice import RunChoice
from tiltmeter.view.agent.tools import RunTools
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.report.markdown import render_markdown
from tiltmeter.view.run_tables import RunTables
from tiltmeter.view.screens.alarms import alarm, alarms
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.trackers.messages import MessageBuilder


@pytest.fixture(params=[20, 30])
def book(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunReader:
    """From one step on the reward prefers the worse answer, and gold falls."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(70):
        rng, late = np.random.default_rng(step), max(step - request.param, 0)
        gold = np.clip(rng.random(32) - 0.008 * late, 0.0, 1.0)
        reward = (1.0 - gold if late else gold) + 0.1 * rng.random(32)
        run.write(from_columns(step, np.arange(32) // 8, reward=reward, gold=gold), 0, {"counters": {"seen": step + 1}})
    return watched(run, settings())


def dates(text: str) -> set[int]:
    """The onsets that a text names."""
    found = re.findall(r"since about step (\d+)|began at step (\d+)|began between step (\d+) and (\d+)", text)
    return {int(number) for numbers in found for number in numbers if number}


def texts(book: RunReader) -> Iterator[tuple[str, str]]:
    page = plain(summary(book))
    yield "page", str({name: page[name] for name in ("sentence", "advice", "checks", "findings", "alarms", "warnings")})
    yield "alarms", str(plain(alarms(book)))
    yield "alarm", str(plain(alarm(book, alarm_id(book.verdict.alarms[0]))))
    yield "Markdown", render_markdown(book)
    yield "messages", " ".join(alert.text for alert in MessageBuilder(book).next_batch(last=True).alerts)
    choice = RunChoice([book.run.path])
    tools = RunTools(choice)
    yield "MCP", f"{tools.verdict()} {tools.findings()} {tools.report()}"
    choice.close()


def test_every_surface_names_the_onset_of_the_verdict(book: RunReader) -> None:
    (then,), (now,) = raised(read_events(book.run.path / "events")), book.verdict.alarms
    known, interval = {now.onset, now.onset_low, now.onset_high}, (now.onset, now.onset_low, now.onset_high)
    assert now.onset != then.onset and then.onset not in known, "the alarm of this run was not dated anew"
    for surface, text in texts(book):
        assert now.onset in dates(text) or now.onset_low in dates(text), surface
        assert dates(text) <= known, surface
    (row,), (table_row,) = alarms(book).rows, RunTables(book.run).alarms().to_pylist()
    (alert,) = MessageBuilder(book).next_batch(last=True).alerts
    assert (row.onset, row.onset_low, row.onset_high) == interval
    assert (alert.onset, alert.onset_low, alert.onset_high) == interval
    assert tuple(table_row[name] for name in ("onset", "onset_low", "onset_high")) == interval
    assert f"| {now.onset_low}-{now.onset_high} |" in render_markdown(book)


def test_the_history_says_what_was_said_when_the_alarm_was_raised(book: RunReader) -> None:
    (then,) = raised(read_events(book.run.path / "events"))
    (entry,) = [entry for entry in summary(book).entries if entry.kind == "alarm"]
    assert entry.text.startswith(f"said when it was raised, step {then.step}: ")
    assert f"since about step {then.onset} " in entry.text
