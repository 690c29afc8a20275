"""The log of actions as the page shows it, and the requests that page and command line leave alike."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.view.as_sent import as_sent

from tiltmeter.data.records import Action
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.interventions.roll_back import RollbackAction
from tiltmeter.rundir import journal, requests
from tiltmeter.rundir.receipts import ReceiptLog
from tiltmeter.rundir.requests import Knob, Receipt
from tiltmeter.rundir.signing import make_token, read_token, receipt_key
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.overview import ActionRequest
from tiltmeter.view.screens import actions as actions_screen
from tiltmeter.view.screens.actions import submit_action_request
from tiltmeter.view.screens.run_reader import RunReader

actions = as_sent(actions_screen.actions)

KNOBS = {
    "beta": Knob("beta", 0.04, 1e-6, 1.0),
    "learning_rate": Knob("learning_rate", 1e-5, 1e-7, 1e-5),
    "rollback": Knob("rollback", 0.0, 0.0, math.inf),
    "entropy_coef": Knob("entropy_coef", 0.0, 0.0, 0.05, "TRL's own control is on"),
}
APPLIED = Action("0-80-learning_rate", 0, 80, "kl_failure", "learning_rate", 1e-5, 2e-6, "too fast", "applied")
WAITING = Action("0-120-beta", 0, 120, "length_hacking", "beta", 0.04, 0.08, "<img src=x onerror=alert(1)>")
BACK = RollbackAction(
    "0-119-rollback", 0, 119, "hedging", "rollback", 119.0, 60.0, "x", with_knob="beta", with_value=0.16
)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run with a proposal, an applied action with an outcome, and a rollback that waits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    requests.publish_knobs(run, attempt, "advise", KNOBS)
    make_token(run)
    append(run, opened())
    append(run, *(journal.event(record, 0, 120, "c") for record in (APPLIED, WAITING, BACK)))
    told = {"note": "outcome", "action": APPLIED.id, "verdict": "better", "sentence": "after that: better"}
    append(run, journal.Event("note", 0, 120, told, "note|outcome"))
    append(run, *done(120))
    return run


def opened() -> journal.Event:
    facts: dict[str, Any] = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": [], "gold": None}
    return journal.Event("attempt", 0, -1, facts, "attempt|0|open")


def done(step: int) -> Iterator[journal.Event]:
    data = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 0, "seen": 1, "lost": {}}
    yield journal.Event("step_done", 0, step, data, f"step_done|0|{step}")


def append(run: RunDirectory, *events: journal.Event) -> None:
    book = journal.Journal(run.path / "events", len(journal.read_events(run.path / "events")))
    for event in events:
        book.commit([event])
    book.close()


def rows(run: RunDirectory) -> dict[str, dict[str, Any]]:
    told = actions(RunReader(run))
    json.dumps(told, allow_nan=False)
    return {row["id"]: row for row in told["rows"]}


def test_every_action_has_a_row_with_its_bounds_and_outcome(run: RunDirectory) -> None:
    told = rows(run)
    assert list(told) == ["0-119-rollback", "0-120-beta", "0-80-learning_rate"], "newest first"
    assert told["0-120-beta"]["change"] == "beta 0.04 → 0.08"
    assert (told["0-120-beta"]["floor"], told["0-120-beta"]["ceiling"]) == (1e-6, 1.0)
    assert told["0-120-beta"]["reason"] == "<img src=x onerror=alert(1)>", "text arrives as it is"
    assert told["0-119-rollback"]["ceiling"] is None, "JSON has no infinity"
    assert told["0-119-rollback"]["change"] == "back to step 60, beta 0.16"
    assert told["0-80-learning_rate"]["outcome"] == "after that: better"
    assert told["0-80-learning_rate"]["time"] > 1e9


def test_what_can_be_done_follows_the_state(run: RunDirectory) -> None:
    can = {name: row["can"] for name, row in rows(run).items()}
    assert can == {
        "0-120-beta": ["approve", "reject"],
        "0-119-rollback": ["approve", "reject"],
        "0-80-learning_rate": ["undo"],
    }


def test_a_request_without_an_answer_is_pending_and_cannot_be_made_again(run: RunDirectory) -> None:
    assert submit_action_request(run, "0-120-beta", "approve").value == 0.08
    row = rows(run)["0-120-beta"]
    assert (row["pending"], row["can"]) == ("approve", [])
    with pytest.raises(StoreError, match="asked already"):
        submit_action_request(run, "0-120-beta", "approve")
    log = ReceiptLog(run, receipt_key(read_token(run)))
    log.append(0, Receipt("0-120-beta.approve", 0, "applied", "beta", 0.04, 0.08, 121))
    assert rows(run)["0-120-beta"]["pending"] == ""


def test_a_rejection_is_pending_until_the_monitor_has_written_it_down(run: RunDirectory) -> None:
    request = submit_action_request(run, "0-120-beta", "reject")
    assert rows(run)["0-120-beta"]["pending"] == "reject"
    told = {"note": "decision", "file": request.id, "told": {"id": request.id, "kind": "reject", "text": ""}}
    append(run, journal.Event("note", 0, 120, told, "note|decision"))
    assert rows(run)["0-120-beta"]["pending"] == ""


def test_a_planted_request_is_not_pending(run: RunDirectory) -> None:
    request = requests.request_for(WAITING, "approve", "operator", expires_step=10**6)
    requests.write_request(run, request, b"x" * 64)
    assert rows(run)["0-120-beta"]["pending"] == ""


def test_who_has_no_token_sees_the_log_and_may_ask_nothing(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    submit_action_request(run, "0-120-beta", "approve")
    assert read_token(run)
    monkeypatch.setenv("XDG_STATE_HOME", str(run.path / "elsewhere"))
    assert rows(run)["0-120-beta"]["pending"] == ""
    with pytest.raises(AttachError, match="no token"):
        submit_action_request(run, "0-119-rollback", "approve")


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("nothing", "approve", "has no action"),
        ("0-80-learning_rate", "approve", "is applied, not"),
        ("0-120-beta", "undo", "is proposed, not"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_reason(
    run: RunDirectory, name: str, kind: ActionRequest, why: str
) -> None:
    with pytest.raises(StoreError, match=why):
        submit_action_request(run, name, kind)
    assert not list((run.path / "control").glob("requests/*"))


def test_the_knobs_stand_where_actions_have_put_them(run: RunDirectory) -> None:
    told = {knob["name"]: knob for knob in actions(RunReader(run))["knobs"]}
    assert told["learning_rate"]["value"] == 2e-6
    assert told["beta"]["value"] == 0.04, "a proposal changes nothing"
    assert told["entropy_coef"]["why"] == "TRL's own control is on"


def test_nothing_can_be_asked_of_an_attempt_that_has_ended(run: RunDirectory) -> None:
    append(run, journal.Event("attempt", 0, 120, {"state": "end", "seen": 1, "lost": {}}, "attempt|0|end"))
    assert {tuple(row["can"]) for row in rows(run).values()} == {()}


def test_a_loop_that_lets_nothing_be_changed_has_an_empty_page(tmp_path: Path) -> None:
    told = actions(RunReader(RunDirectory.create(tmp_path / "run")))
    assert told == {"rows": [], "mode": "", "knobs": [], "dry_run": []}
