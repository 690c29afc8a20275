"""`tiltmeter approve`, `undo`: list and decide the changes proposed for a run; `alarms`: list its alarms;
`dismiss`: say no to a change or an alarm."""

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
from tiltmeter.errors import StoreError
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.requests import CHANGES, ControlRequest
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import terminal
from tiltmeter.verdict.run_facts import NoteKind
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.payloads.overview import ActionRequest
from tiltmeter.view.screens.actions import describe_request, dry_run_requests, list_actions, submit_action_request
from tiltmeter.view.screens.alarms import alarms as listed_alarms
from tiltmeter.view.screens.alarms import assumptions, find_alarm, submit_note
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.wording import describe_change

Id = Annotated[str, typer.Argument(help="The change, as `tiltmeter approve RUN` names it.", metavar="ID")]
Proposal = Annotated[
    str, typer.Argument(help="The proposal, as the list names it; without it, list them.", metavar="ID")
]
Dismissed = Annotated[
    str,
    typer.Argument(help="An alarm, as `tiltmeter alarms RUN` names it, or a proposal of `approve RUN`.", metavar="ID"),
]
Seen = Annotated[
    str, typer.Option("--acknowledge", help="Record that this alarm or warning was seen.", metavar="ALARM")
]
Reason = Annotated[
    str, typer.Option("--reason", help="Why an alarm is false, which stays on record; needed for one.", metavar="TEXT")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="What mode act would do now, without doing it.")]


def approve(run: Run, action: Proposal = "", dry_run: DryRun = False, json: Json = False) -> None:
    """Approve a proposed change, or list the changes proposed for a run, what was done about each, and its outcome.

    Example: tiltmeter approve runs/tonight 0-120-beta

    With an ID, the trainer makes the change at the end of its step, reads it back and writes a receipt; only the user
    who started training can do this. Without one, changes nothing. Exit code: 0 asked or listed, 2 could not.
    """
    if not action:
        _list_actions(run, dry_run, json)
    elif dry_run or json:
        raise typer.BadParameter("--dry-run and --json list proposals: leave the ID out")
    else:
        _operate(open_run(run, steps=0), action, "approve")


def _list_actions(run: Any, dry_run: bool, json: bool) -> None:
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


def undo(run: Run, action: Id) -> None:
    """Undo a change that was applied: the knob goes back to the value it had before.

    Example: tiltmeter undo runs/tonight 0-120-beta

    A stop or a rollback cannot be undone from here: start training again from the checkpoint. Exit code: 0 asked, 2
    could not.
    """
    _operate(open_run(run, steps=0), action, "undo")


def alarms(run: Run, acknowledge: Seen = "", json: Json = False) -> None:
    """List the alarms and warnings of a run, open ones first, the answers to them, and what their bound rests on.

    Example: tiltmeter alarms runs/tonight

    --acknowledge lists nothing: it records that one was seen, which stays open, and the verdict stays what it is. Exit
    code: 0, or 2 if that could not be recorded.
    """
    if acknowledge:
        if json:
            raise typer.BadParameter("--json lists alarms: leave it out")
        _send_response(_open_reader(run), run, acknowledge, "acknowledge", "")
        return
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


def dismiss(run: Run, name: Dismissed, reason: Reason = "") -> None:
    """Call an alarm false, or reject a proposed change.

    Example: tiltmeter dismiss runs/tonight 1f8c2f3911a4 --reason "the gold source was down"

    The alarm is resolved, stays on record with the reason, and the next one needs more evidence; a warning is only
    shown as false. A proposal is not made again in this attempt, and the next change that could help is proposed
    instead. Exit code: 0 recorded, 2 could not.
    """
    reader = _open_reader(run)
    if find_alarm(reader.run_facts, name) is not None:
        if not reason.strip():
            raise typer.BadParameter("say why it is false: a reason stays on record with it", param_hint="--reason")
        _send_response(reader, run, name, "false_alarm", reason)
    elif name not in reader.run_facts.actions:
        path = reader.run.path
        raise StoreError(
            f"{path} has neither an alarm nor a proposal {name!r}; see: tiltmeter alarms {path}, or: "
            f"tiltmeter approve {path}"
        )
    elif reason:
        raise typer.BadParameter("a reason is kept with alarms only: leave it out", param_hint="--reason")
    else:
        _operate(reader.run, name, "reject")


def _open_reader(run: Any) -> RunReader:
    directory = open_run(run, steps=0)
    reader = RunReader(directory)
    reader.refresh()
    return reader


def _send_response(reader: RunReader, run: Any, alarm: str, kind: NoteKind, reason: str) -> None:
    submit_note(reader.run, reader.run_facts, alarm, kind, reason=reason)
    end = "the monitor records it"
    if monitor_running(reader.run) is False:
        end = f"no monitor is running to record it; run: tiltmeter watch {run} --once"
    Console(highlight=False, markup=False).print(terminal(f"{kind} {alarm}: sent; {end}.", 300))


def _operate(run: RunDirectory, name: str, kind: ActionRequest) -> None:
    """Sign an operator's request about an action and write it to the run directory."""
    request = submit_action_request(run, name, kind)
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
