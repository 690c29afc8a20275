"""`tiltmeter actions`, `approve`, `reject`, `undo`: list and decide the changes proposed for a run; and `alarms`,
`acknowledge`, `dismiss`: list and answer its alarms."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from tiltmeter.cli.options import Json, Run, open_run
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.requests import CHANGES, ControlRequest
from tiltmeter.safety.safe_text import terminal
from tiltmeter.verdict.run_facts import NoteKind
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.payloads.overview import ActionRequest
from tiltmeter.view.screens.actions import describe_request, dry_run_requests, list_actions, submit_action_request
from tiltmeter.view.screens.alarms import alarms as listed_alarms
from tiltmeter.view.screens.alarms import assumptions, submit_note
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.wording import describe_change

Id = Annotated[str, typer.Argument(help="The action, as `tiltmeter actions` names it.", metavar="ID")]
AlarmId = Annotated[str, typer.Argument(help="The alarm, as `tiltmeter alarms` names it.", metavar="ALARM")]
Reason = Annotated[str, typer.Option("--reason", help="Why it is false; stays on record.", metavar="TEXT")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="What mode act would do now, without doing it.")]


def actions(run: Run, dry_run: DryRun = False, json: Json = False) -> None:
    """List the changes proposed for a run, what was done about each, and its outcome.

    Example: tiltmeter actions runs/tonight --dry-run

    Reads the run directory and changes nothing. Exit code: 0.
    """
    directory = open_run(run, steps=0)
    events = read_events(directory.path / "events")
    console = Console(highlight=False, markup=False, soft_wrap=json)
    if dry_run:
        requests = dry_run_requests(directory, events)
        if json:
            console.out(json_module.dumps([_request_json(request) for request in requests], indent=1))
            return
        console.print("Mode act would ask the trainer now:" if requests else "Mode act would change nothing now.")
        for request in requests:
            console.print(terminal(f"  {describe_request(request)}", 300))
        return
    rows = list_actions(directory, events)
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
    _operate(run, action, "approve")


def reject(run: Run, action: Id) -> None:
    """Reject a proposal: it is not made again in this attempt, and the next thing that could help is proposed instead.

    Example: tiltmeter reject runs/tonight 0-120-beta

    Exit code: 0 recorded, 2 could not.
    """
    _operate(run, action, "reject")


def undo(run: Run, action: Id) -> None:
    """Undo a change that was applied: the knob goes back to the value it had before.

    Example: tiltmeter undo runs/tonight 0-120-beta

    A stop or a rollback cannot be undone from here: start training again from the checkpoint. Exit code: 0 asked, 2
    could not.
    """
    _operate(run, action, "undo")


def alarms(run: Run, json: Json = False) -> None:
    """List the alarms and warnings of a run, open ones first, the answers to them, and what their bound rests on.

    Example: tiltmeter alarms runs/tonight

    Reads the run directory and changes nothing. Exit code: 0.
    """
    reader = _open_reader(run)
    listing = listed_alarms(reader)
    console = Console(highlight=False, markup=False, soft_wrap=json)
    if json:
        rests_on = {"assumptions": [asdict(one) for one in assumptions(reader)]}
        console.out(json_module.dumps(plain(listing) | rests_on, indent=1, allow_nan=False))
        return
    for row in listing.rows:
        head = (row.id, row.tier, row.status, f"{row.name}, step {row.step}", f"{row.count}x")
        console.print(terminal("   ".join(head), 200))
        note = f" ({row.note})" if row.note else ""
        console.print(Padding(terminal(f"{row.summary}{note}", 500), (0, 0, 1, 4)))
    console.print(terminal(listing.promise if listing.rows else "Nothing was raised.", 300))
    for one in assumptions(reader):
        holds = {True: "yes", False: "no", None: "?"}[one.holds]
        console.print(terminal(f"  {holds:<4}{one.about}: {one.text}", 300))


def acknowledge(run: Run, alarm: AlarmId) -> None:
    """Say that an alarm or warning was seen. It stays open, and the verdict stays what it is.

    Example: tiltmeter acknowledge runs/tonight 1f8c2f3911a4

    Exit code: 0 recorded, 2 could not.
    """
    _send_response(run, alarm, "acknowledge", "")


def dismiss(run: Run, alarm: AlarmId, reason: Reason) -> None:
    """Call an alarm false: it is resolved, stays on record with the reason, and the next one needs more evidence.

    Example: tiltmeter dismiss runs/tonight 1f8c2f3911a4 --reason "the gold source was down"

    A warning that is called false is only shown so. Exit code: 0 recorded, 2 could not.
    """
    _send_response(run, alarm, "false_alarm", reason)


def _open_reader(run: Any) -> RunReader:
    directory = open_run(run, steps=0)
    reader = RunReader(directory)
    reader.refresh()
    return reader


def _send_response(run: Any, alarm: str, kind: NoteKind, reason: str) -> None:
    reader = _open_reader(run)
    submit_note(reader.run, reader.run_facts, alarm, kind, reason=reason)
    end = "the monitor records it"
    if monitor_running(reader.run) is False:
        end = f"no monitor is running to record it; run: tiltmeter watch {run} --once"
    Console(highlight=False, markup=False).print(terminal(f"{kind} {alarm}: sent; {end}.", 300))


def _operate(run: Any, name: str, kind: ActionRequest) -> None:
    """Sign an operator's request about an action and write it to the run directory."""
    directory = open_run(run, steps=0)
    request = submit_action_request(directory, name, kind)
    answer = "the trainer answers at the end of its step" if request.kind in CHANGES else "the monitor records it"
    Console(highlight=False, markup=False).print(terminal(f"{describe_request(request)}: requested; {answer}.", 300))


def _request_json(request: ControlRequest) -> dict[str, Any]:
    names = ("action", "attempt", "knob", "value", "with_knob", "with_value", "expires_step")
    return {name: getattr(request, name) for name in names}


def _lines(rows: Sequence[dict[str, Any]]) -> Table:
    """Two lines an action: the change, and its reason or outcome. Reasons are long, terminals narrow."""
    lines = Table.grid()
    for row in rows:
        undone = f"; undo refused: {row['undo_refused']}" if row["undo_refused"] else ""
        head = (row["id"], describe_change(row), row["state"], row["outcome"] or "–")
        lines.add_row(terminal("   ".join(str(cell) for cell in head), 200))
        lines.add_row(Padding(terminal(f"{row['sentence'] or row['reason']}{undone}", 400), (0, 0, 1, 4)))
    return lines
