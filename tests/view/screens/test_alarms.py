"""Alarms as the page shows them: evidence that replays exactly, and what an operator says of one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from tests.view.as_sent import as_sent
from typer.testing import CliRunner

from tiltmeter.cli.run import actions
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.errors import StoreError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.requests import ControlRequest, write_request
from tiltmeter.rundir.signing import make_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.betting import alpha_share
from tiltmeter.verdict.run_facts import AlarmNote, alarm_id
from tiltmeter.view.screens import alarms as alarms_screen
from tiltmeter.view.screens.alarms import EvidenceCurves, assumptions, submit_note
from tiltmeter.view.screens.run_reader import RunReader

alarm, alarms = as_sent(alarms_screen.alarm), as_sent(alarms_screen.alarms)
evidence_curve = as_sent(alarms_screen.evidence_curve)

INSTRUMENTS = ("reward.mean", "gold.mean", "gold.slope")


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # what is tested here is not power cuts


def settings(alpha: float = 0.05) -> Config:
    standard = Config.standard()
    parts = tuple(part for part in standard.instruments if part.name in INSTRUMENTS)
    return Config(parts, standard.derived, (lambda: GoldLossTest(alpha=alpha),))


def store(run: RunDirectory, attempt: int, steps: range, turn: int) -> None:
    """Steps whose reward follows gold, and from `turn` on its opposite."""
    for step in steps:
        rng = np.random.default_rng(step)
        gold = rng.random(32)
        reward = (gold if step < turn else 1.0 - gold) + 0.1 * rng.random(32)
        batch = from_columns(step, np.arange(32) // 8, attempt=attempt, reward=reward, gold=gold)
        run.write(batch, 0, {"counters": {"seen": step + 1}})


def watched(run: RunDirectory, config: Config) -> RunReader:
    watch = MonitorLoop(run, config, strict=True)
    watch.poll()
    watch.close()
    book = RunReader(run)
    book.refresh()
    return book


def raised(events: list[Event]) -> list[Alarm]:
    found = [event.payload for event in events if event.kind == "alarm"]
    return [told for told in found if isinstance(told, Alarm) and told.resolved is None and told.tier == "alarm"]


def check_evidence(run: RunDirectory) -> int:
    """Hold the replayed evidence at every alarm against what the journal says; how many there were."""
    evidence, events = EvidenceCurves(), read_events(run.path / "events")
    for event in events:
        evidence.add(event)
    for told in raised(events):
        assert evidence.curves[alarm_id(told)][-1][2] == told.evidence
        assert max(odds for _, _, odds in evidence.curves[alarm_id(told)][:-1]) < told.threshold
    return len(raised(events))


def test_replayed_evidence_is_that_of_the_alarm_on_the_demo(
    tmp_path: Path, copy_demo_run: Callable[[str, Path], RunDirectory]
) -> None:
    run = copy_demo_run("hacked", tmp_path / "hacked")
    assert check_evidence(run) == 1


def test_replayed_evidence_survives_a_rewind_and_a_dismissal(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    store(run, attempt, range(40), turn=20)
    watched(run, settings())
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=10)
    store(run, attempt, range(10, 50), turn=25)
    book = watched(run, settings())
    assert len(book.verdict.alarms) == 1
    submit_note(run, book.run_facts, alarm_id(book.verdict.alarms[0]), "false_alarm", reason="a test")
    watched(run, settings())
    store(run, attempt, range(50, 80), turn=0)
    watched(run, settings())
    assert check_evidence(run) == 3


def test_a_dismissed_alarm_is_resolved_and_the_next_one_needs_more(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    store(run, attempt, range(40), turn=15)
    book = watched(run, settings())
    first = book.verdict.alarms[0]
    assert book.verdict.state == "ACT"
    submit_note(run, book.run_facts, alarm_id(first), "false_alarm", reason="the gold source was down")
    (row,) = alarms(book)["rows"]
    assert row["status"] == "open" and "waiting for the monitor" in row["said"], "said is not yet written down"
    book = watched(run, settings())
    assert book.verdict.alarms == ()
    (row,) = alarms(book)["rows"]
    assert (row["status"], row["resolved"], row["said"]) == ("false", 39, "called false: the gold source was down")
    store(run, attempt, range(40, 80), turn=0)
    book = watched(run, settings())
    second = book.verdict.alarms[0]
    assert second.step > 39
    assert (first.threshold, second.threshold) == tuple(float(np.log(1 / alpha_share(0.05, k))) for k in (1, 2))
    (row,) = alarms(book)["rows"]
    assert (row["status"], row["count"], row["id"]) == ("open", 2, alarm_id(second))
    again = replay(run, settings(), strict=True)
    assert again.difference is None


@pytest.mark.parametrize("cut", range(4))
def test_a_monitor_killed_around_a_dismissal_says_the_same(tmp_path: Path, cut: int) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    store(run, attempt, range(40), turn=15)
    book = watched(run, settings())
    submit_note(run, book.run_facts, alarm_id(book.verdict.alarms[0]), "false_alarm", reason="a test", nonce="one")
    watched(run, settings())
    path = run.path / "events" / "0.jsonl"
    assert [event.kind for event in read_events(run.path / "events")[-2:]] == ["note", "alarm"]
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    kept = lines[:-cut] if cut else lines
    path.write_bytes(b"".join(kept) + (lines[-cut][:30] if cut else b""))
    watched(run, settings())
    now = [(event.id, event.data) for event in read_events(run.path / "events")]
    path.write_bytes(whole)
    assert now == [(event.id, event.data) for event in read_events(run.path / "events")]


def test_what_is_dismissed_at_random_replays(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    run = RunDirectory.create(tmp_path / "run")
    dismissed, config = 0, settings(alpha=0.9)
    for first in (0, 20, 8):
        attempt = run.open_attempt(launch="x", ranks=1, resume_step=first or None)
        for begin in range(first, first + 40, 5):
            store(run, attempt, range(begin, begin + 5), turn=int(rng.integers(0, 60)))
            book = watched(run, config)
            for told in book.verdict.alarms:
                if rng.random() < 0.7:
                    submit_note(run, book.run_facts, alarm_id(told), "false_alarm", reason="a test")
                    dismissed += 1
    assert dismissed >= 3
    watched(run, config)
    assert replay(run, config, strict=True).difference is None
    assert check_evidence(run) >= dismissed


def test_to_acknowledge_or_mute_changes_no_verdict(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    store(run, attempt, range(40), turn=15)
    book = watched(run, settings())
    name, before = alarm_id(book.verdict.alarms[0]), book.verdict
    for kind, until, status in (("acknowledge", None, "acknowledged"), ("mute", 60, "muted")):
        submit_note(run, book.run_facts, name, kind, until=until)  # type: ignore[arg-type]
        book = watched(run, settings())
        assert alarms(book)["rows"][0]["status"] == status
        assert (book.verdict.state, book.verdict.alarms) == (before.state, before.alarms)
    store(run, attempt, range(40, 70), turn=0)
    book = watched(run, settings())
    assert alarms(book)["rows"][0]["status"] == "open", "a mute has an end"


def test_a_note_is_refused_with_the_reason(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    store(run, attempt, range(40), turn=15)
    story = watched(run, settings()).run_facts
    name = alarm_id(story.open_alarms("alarm")[0])
    for about, kind, reason, until, why in (
        ("nobody", "acknowledge", "", None, "has no alarm"),
        (name, "false_alarm", "  ", None, "say why"),
        (name, "false_alarm", "x" * 201, None, "at most 200"),
        (name, "mute", "", None, "name that step"),
        (name, "mute", "", 39, "name that step"),
    ):
        with pytest.raises(StoreError, match=why):
            submit_note(run, story, about, kind, reason=reason, until=until)  # type: ignore[arg-type]
    submit_note(run, story, name, "false_alarm", reason="\U0001f600" * 200, nonce="one")
    with pytest.raises(StoreError, match="sent already"):
        submit_note(run, story, name, "false_alarm", reason="again", nonce="one")
    book = watched(run, settings())
    assert alarms(book)["rows"][0]["status"] == "false", "the longest reason fits into its file"


def test_a_note_that_is_not_one_resolves_nothing(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    store(run, attempt, range(40), turn=15)
    book = watched(run, settings())
    name = alarm_id(book.verdict.alarms[0])
    texts = [
        "",
        "[]",
        "{",
        "[" * 2000,
        AlarmNote("another", "false_alarm", reason="x").text(),
        json.dumps({"about": name, "kind": "false_alarm", "until": None, "reason": " "}),
        json.dumps({"about": name, "kind": "stop", "until": None, "reason": "x"}),
        json.dumps({"about": name, "kind": "false_alarm", "until": 3, "reason": "x"}),
    ]
    token = make_token(run)
    for number, text in enumerate(texts):
        request = ControlRequest(f"note-{number}", name, 0, "", 0.0, "note", "operator", expires_step=10**6, text=text)
        write_request(run, request, token)
    unsigned = ControlRequest("note-x", name, 0, "", 0.0, "note", "operator", 10**6, text=_false(name))
    write_request(run, unsigned, b"x" * 64)
    book = watched(run, settings())
    assert len(book.verdict.alarms) == 1
    assert alarms(book)["rows"][0]["status"] == "open"


def _false(name: str) -> str:
    return AlarmNote(name, "false_alarm", reason="x").text()


def test_a_detail_has_a_short_curve_that_ends_where_it_was_raised(
    tmp_path: Path, copy_demo_run: Callable[[str, Path], RunDirectory]
) -> None:
    book = RunReader(copy_demo_run("hacked", tmp_path / "hacked"))
    told = [alarm(book, row["id"]) for row in alarms(book)["rows"]]
    json.dumps(told, allow_nan=False)
    one = next(item for item in told if item is not None and item["alarm"]["tier"] == "alarm")
    curve = one["evidence"]
    assert len(curve["labels"]) == len(curve["steps"]) == len(curve["odds"]) <= 300
    assert curve["odds"][curve["raised"]] == one["alarm"]["evidence"] >= curve["threshold"]
    assert curve["labels"] == sorted(curve["labels"])
    assert one["readings"]["lines"][0]["name"] == one["alarm"]["name"]
    assert len(one["exemplars"]) > 5
    assert alarm(book, "nobody") is None


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    rng = np.random.default_rng(0)
    points = [(2 * at, at, float(odds)) for at, odds in enumerate(np.cumsum(rng.normal(size=9000)))]
    made = evidence_curve([*points, (18_000, 9000, 500.0)], 4.8)
    assert 200 < len(made["odds"]) <= 300
    assert (made["labels"][made["raised"]], made["odds"][made["raised"]]) == (18_000, 500.0)
    assert min(made["odds"]) == min(odds for _, _, odds in points)
    assert evidence_curve([], 4.8)["raised"] == -1


def test_the_verbs_name_alarms_and_take_words_for_them(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    store(run, attempt, range(40), turn=15)
    name = alarm_id(watched(run, settings()).verdict.alarms[0])
    app = typer.Typer()
    for verb in (actions.alarms, actions.dismiss):
        app.command()(verb)
    told = CliRunner().invoke(app, ["alarms", str(run.path)])
    assert name in told.output
    assert "?   labels: of code or a column: each bet counts" in told.output
    listing = json.loads(CliRunner().invoke(app, ["alarms", str(run.path), "--json"]).output)
    assert set(listing) == {"rows", "promise", "assumptions"}
    assert {one["about"]: one["holds"] for one in listing["assumptions"]} == {"labels": None, "steps are alike": True}
    told = CliRunner().invoke(app, ["alarms", str(run.path), "--acknowledge", name])
    assert "no monitor is running" in told.output
    told = CliRunner().invoke(app, ["dismiss", str(run.path), name])
    assert told.exit_code == 2 and "say why it is false" in told.output
    told = CliRunner().invoke(app, ["dismiss", str(run.path), name, "--reason", "a test"])
    assert told.exit_code == 0
    book = watched(run, settings())
    assert [note.kind for note in book.run_facts.notes[name]] == ["acknowledge", "false_alarm"]
    assert book.verdict.alarms == ()


@pytest.mark.parametrize(("jackpot", "holds"), [(0.0, True), (60.0, False)])
def test_a_run_with_sampled_labels_says_whether_its_advantages_have_heavy_tails(
    tmp_path: Path, jackpot: float, holds: bool
) -> None:
    run, rng = RunDirectory.create(tmp_path / "run"), np.random.default_rng(0)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(8):
        advantage = rng.normal(size=128)
        advantage[0] += jackpot
        texts = {"prompt": [f"question {k // 8}" for k in range(128)], "completion": ["an answer"] * 128}
        batch = from_columns(step, np.arange(128) // 8, attempt=0, reward=advantage, advantage=advantage, **texts)
        run.write(batch, 0, {"counters": {"seen": 8}})
    run.close_rank(0, 0, {"seen": 8})
    source = FunctionSource("gold.py:half", lambda completion: 0.5)
    watch = MonitorLoop(run, settings().with_gold(source, 0.3, 8))
    watch.poll()
    watch.close()

    def weights() -> dict[str, bool | None]:
        reader = RunReader(run)
        reader.refresh()
        return {one.about: one.holds for one in assumptions(reader)}

    assert weights()["advantages have no heavy tails"] is holds
    for file in (run.path / "gold" / "requests").iterdir():
        file.write_text('{"state": []}')
    assert weights()["advantages have no heavy tails"] is None
