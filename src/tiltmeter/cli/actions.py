"""`tiltmeter actions`, `approve`, `reject`, `undo`: what could be changed in a run, what was, and what came of it."""

from __future__ import annotations

import json as json_module
import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from tiltmeter.cli.screen import number
from tiltmeter.cli.show import Json, Run
from tiltmeter.control import CHANGES, Kind, Offer, Receipt, Request, ask, read_knobs, receipts, request_for
from tiltmeter.diagnosis import FAILURES, knobs_for
from tiltmeter.encode import terminal
from tiltmeter.errors import StoreError
from tiltmeter.interventions.docket import OPEN
from tiltmeter.interventions.steward import PATIENCE, Steward, onsets
from tiltmeter.journal import Event, read, readings_of, record_of
from tiltmeter.records import Action, Alarm, Finding, Reading
from tiltmeter.signing import read_token
from tiltmeter.store import RunDirectory

HOUR = 3600.0  # how long an operator's request waits for the end of a step
CHECKPOINT = "training.checkpoint"

Id = Annotated[str, typer.Argument(help="The action, as `tiltmeter actions` names it.", metavar="ID")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="What mode act would do now, without doing it.")]


def actions(run: Run, dry_run: DryRun = False, json: Json = False) -> None:
    """List what was proposed for a run, what was done about it, and what came of it.

    Example: tiltmeter actions runs/tonight --dry-run

    Reads the run directory and changes nothing. Exit code: 0.
    """
    directory = RunDirectory(run)
    directory.identity()
    events = read(directory.path / "events")
    console = Console(highlight=False, markup=False, soft_wrap=json)
    if dry_run:
        asked = rehearsed(directory, events)
        if json:
            console.out(json_module.dumps([_facts(request) for request in asked], indent=1))
            return
        console.print("Mode act would ask the trainer now:" if asked else "Mode act would change nothing now.")
        for request in asked:
            console.print(terminal(f"  {_wanted(request)}", 300))
        return
    rows = listed(directory, events)
    if json:
        console.out(json_module.dumps(rows, indent=1, allow_nan=False))
    elif rows:
        console.print(_lines(rows))
    else:
        console.print("Nothing was proposed.")


def approve(run: Run, action: Id) -> None:
    """Approve a proposal: the trainer makes the change at the end of its step, reads it back and writes a receipt.

    Example: tiltmeter approve runs/tonight 0-120-beta

    Only the user who started training can do this. Exit code: 0 asked, 2 could not.
    """
    _operate(run, action, "approve", OPEN)


def reject(run: Run, action: Id) -> None:
    """Reject a proposal: it is not made again in this attempt, and the next thing that could help is proposed instead.

    Example: tiltmeter reject runs/tonight 0-120-beta

    Exit code: 0 written down, 2 could not.
    """
    _operate(run, action, "reject", OPEN)


def undo(run: Run, action: Id) -> None:
    """Undo a change that was applied: the knob goes back to the value it had before.

    Example: tiltmeter undo runs/tonight 0-120-beta

    A stop or a rollback cannot be undone from here: start training again from the checkpoint. Exit code: 0 asked, 2
    could not.
    """
    _operate(run, action, "undo", ("applied",))


def listed(run: RunDirectory, events: Sequence[Event]) -> list[dict[str, Any]]:
    """Every action in its newest state, oldest first, with its outcome and an undo that the trainer refused."""
    found: dict[str, dict[str, Any]] = {}
    for event in events:
        if event.kind == "action":
            row = found.setdefault(event.data["id"], {"outcome": None, "sentence": "", "undo_refused": ""})
            row |= {**event.data, "told": event.step}
        elif event.kind == "note" and event.data.get("note") == "outcome" and event.data["action"] in found:
            found[event.data["action"]] |= {"outcome": event.data["verdict"], "sentence": event.data["sentence"]}
    for receipt in receipts(run, set())[0]:
        name, _, kind = receipt.id.rpartition(".")
        if kind == "undo" and receipt.state == "refused" and name in found:
            found[name]["undo_refused"] = receipt.why
    return list(found.values())


def rehearsed(run: RunDirectory, events: Sequence[Event]) -> list[Request]:
    """What mode act would ask for after the last step: the journal told to a steward that may act."""
    steward: Steward | None = None
    findings: list[Finding] = []
    alarms: dict[tuple[object, ...], Alarm] = {}
    readings: list[Reading] = []
    saved: dict[int, set[int]] = {}
    gold: dict[str, Any] = {}
    canaries = False
    for event in events:
        record = record_of(event) if event.kind in ("alarm", "finding", "action") else None
        if event.kind == "attempt" and event.data["state"] == "open":
            gold = event.data.get("gold") or {}
            steward = _entered(run, event.attempt, steward, judged=bool(gold.get("judged", False)))
        elif isinstance(record, Alarm):
            key = (record.attempt, record.name, record.detector, record.direction, record.step)
            alarms = {known: alarm for known, alarm in alarms.items() if known != key}
            alarms |= {key: record} if record.resolved is None else {}
        elif isinstance(record, Finding):
            findings.append(record)
        elif isinstance(record, Action) and steward is not None:
            steward.recall(record, event.step)
        elif event.kind == "note" and event.data.get("note") == "receipt" and steward is not None:
            steward.heard(Receipt(**event.data["told"]), event.step)
        if "measured" in event.data:
            readings += [*readings_of(event), *readings_of(event, "derived")]
            canaries = bool(event.data.get("canaries_pass", canaries))
        if event.kind == "step_done":
            steps = saved.setdefault(event.attempt, set())
            steps |= {int(reading.value) for reading in readings if reading.name == CHECKPOINT}
            if steward is not None:
                since = onsets(findings, alarms.values())
                steward.consider(event.attempt, event.step, findings, readings, sorted(steps), since)
                steward.judge_outcome(event.step)
            findings, readings = [], []
    return [] if steward is None else steward.requests(steward.open, canaries_pass=canaries)


def _entered(run: RunDirectory, attempt: int, steward: Steward | None, *, judged: bool) -> Steward | None:
    try:
        offer = read_knobs(run, attempt)
    except StoreError:
        return steward  # a loop that lets nothing be changed
    if steward is None:
        order = {failure: knobs_for(failure) for failure in FAILURES}
        ranks = int(run.attempt(attempt).get("ranks", 1))
        steward = Steward("act", offer.knobs, judged=judged, target_kl=offer.target_kl, order=order, ranks=ranks)
    steward.enter(attempt, "act", offer.knobs)
    return steward


def _operate(run: Any, name: str, kind: Kind, states: Sequence[str]) -> None:
    """Sign and leave an operator's request about an action that is in one of these states."""
    directory = RunDirectory(run)
    directory.identity()
    rows = {row["id"]: row for row in listed(directory, read(directory.path / "events"))}
    if name not in rows:
        raise StoreError(f"{run} has no action {name!r}; see: tiltmeter actions {run}")
    row = rows[name]
    if row["state"] not in states:
        raise StoreError(f"{name} is {row['state']}, not {' or '.join(states)}: there is nothing to {kind}")
    offer: Offer = read_knobs(directory, row["attempt"])
    if offer.mode == "observe":
        raise StoreError(f"{run} is only observed: attach with mode='advise' to let changes be made")
    action = Action(**{key: row[key] for key in Action.__dataclass_fields__})
    until = {"expires_time": time.time() + HOUR} if kind == "undo" else {"expires_step": action.step + PATIENCE}
    back = {key: row[key] for key in ("with_knob", "with_value") if key in row}
    try:
        request = request_for(action, kind, "operator", **until, **back)
        ask(directory, request, read_token(directory))
    except ValueError as error:
        raise StoreError(str(error)) from None
    except FileExistsError:
        raise StoreError(f"that was asked already; see: tiltmeter actions {run}") from None
    answer = "the trainer answers at the end of its step" if request.kind in CHANGES else "the monitor writes it down"
    Console(highlight=False, markup=False).print(terminal(f"{_wanted(request)}: asked, {answer}.", 300))


def _wanted(request: Request) -> str:
    extra = "" if request.with_knob is None else f" with {request.with_knob} {number(request.with_value or 0.0)}"
    return f"{request.kind} {request.action}: {request.knob} to {number(request.value)}{extra}"


def _facts(request: Request) -> dict[str, Any]:
    names = ("action", "attempt", "knob", "value", "with_knob", "with_value", "expires_step")
    return {name: getattr(request, name) for name in names}


def _lines(rows: Sequence[dict[str, Any]]) -> Table:
    """Two lines an action: what, and why it was proposed or what came of it. Reasons are long, terminals narrow."""
    lines = Table.grid()
    for row in rows:
        undone = f"; undo refused: {row['undo_refused']}" if row["undo_refused"] else ""
        head = (row["id"], _change(row), row["state"], row["outcome"] or "–")
        lines.add_row(terminal("   ".join(str(cell) for cell in head), 200))
        lines.add_row(Padding(terminal(f"{row['sentence'] or row['reason']}{undone}", 400), (0, 0, 1, 4)))
    return lines


def _change(row: dict[str, Any]) -> str:
    if row["knob"] == "rollback" and row.get("with_knob"):
        return f"back to step {number(row['after'])}, {row['with_knob']} {number(row['with_value'])}"
    if row["before"] == row["after"]:
        return str(row["knob"])
    return f"{row['knob']} {number(row['before'])} → {number(row['after'])}"
