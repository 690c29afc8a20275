"""`tiltmeter actions`, `approve`, `reject`, `undo`: what could be changed in a run, what was, and what came of it; and
`alarms`, `acknowledge`, `dismiss`: what a person says of an alarm."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from tiltmeter.cli.show import Json, Run
from tiltmeter.control import CHANGES, Kind, Request
from tiltmeter.encode import terminal
from tiltmeter.journal import read
from tiltmeter.monitor import at_work
from tiltmeter.page.actions import listed, operate, rehearsed, wanted
from tiltmeter.page.alarms import alarms as listed_alarms
from tiltmeter.page.alarms import say
from tiltmeter.page.book import Book
from tiltmeter.page.words import change
from tiltmeter.store import RunDirectory
from tiltmeter.story import Said

Id = Annotated[str, typer.Argument(help="The action, as `tiltmeter actions` names it.", metavar="ID")]
AlarmId = Annotated[str, typer.Argument(help="The alarm, as `tiltmeter alarms` names it.", metavar="ALARM")]
Reason = Annotated[str, typer.Option("--reason", help="Why it is false; stays on record.", metavar="TEXT")]
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
            console.print(terminal(f"  {wanted(request)}", 300))
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
    _operate(run, action, "approve")


def reject(run: Run, action: Id) -> None:
    """Reject a proposal: it is not made again in this attempt, and the next thing that could help is proposed instead.

    Example: tiltmeter reject runs/tonight 0-120-beta

    Exit code: 0 written down, 2 could not.
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
    """List the alarms and warnings of a run, open ones first, and what was said of them.

    Example: tiltmeter alarms runs/tonight

    Reads the run directory and changes nothing. Exit code: 0.
    """
    book = _opened(run)
    found = listed_alarms(book)
    console = Console(highlight=False, markup=False, soft_wrap=json)
    if json:
        console.out(json_module.dumps(found, indent=1, allow_nan=False))
        return
    for row in found["rows"]:
        head = (row["id"], row["tier"], row["status"], f"{row['name']}, step {row['step']}", f"{row['count']}x")
        console.print(terminal("   ".join(head), 200))
        said = f" ({row['said']})" if row["said"] else ""
        console.print(Padding(terminal(f"{row['summary']}{said}", 500), (0, 0, 1, 4)))
    console.print(terminal(found["promise"] if found["rows"] else "Nothing was raised.", 300))


def acknowledge(run: Run, alarm: AlarmId) -> None:
    """Say that an alarm or warning was seen. It stays open, and the verdict stays what it is.

    Example: tiltmeter acknowledge runs/tonight 1f8c2f3911a4

    Exit code: 0 written down, 2 could not.
    """
    _say(run, alarm, "acknowledge", "")


def dismiss(run: Run, alarm: AlarmId, reason: Reason) -> None:
    """Call an alarm false: it is resolved, stays on record with the reason, and the next one needs more evidence.

    Example: tiltmeter dismiss runs/tonight 1f8c2f3911a4 --reason "the gold source was down"

    A warning that is called false is only shown so. Exit code: 0 written down, 2 could not.
    """
    _say(run, alarm, "false_alarm", reason)


def _opened(run: Any) -> Book:
    directory = RunDirectory(run)
    directory.identity()
    book = Book(directory)
    book.refresh()
    return book


def _say(run: Any, alarm: str, kind: Said, reason: str) -> None:
    book = _opened(run)
    say(book.run, book.story, alarm, kind, reason=reason)
    end = "the monitor writes it down"
    if at_work(book.run) is False:
        end = f"and no monitor runs to write it down; run: tiltmeter watch {run} --once"
    Console(highlight=False, markup=False).print(terminal(f"{kind} {alarm}: said, {end}.", 300))


def _operate(run: Any, name: str, kind: Kind) -> None:
    """Sign and leave an operator's request about an action."""
    directory = RunDirectory(run)
    directory.identity()
    request = operate(directory, name, kind)
    answer = "the trainer answers at the end of its step" if request.kind in CHANGES else "the monitor writes it down"
    Console(highlight=False, markup=False).print(terminal(f"{wanted(request)}: asked, {answer}.", 300))


def _facts(request: Request) -> dict[str, Any]:
    names = ("action", "attempt", "knob", "value", "with_knob", "with_value", "expires_step")
    return {name: getattr(request, name) for name in names}


def _lines(rows: Sequence[dict[str, Any]]) -> Table:
    """Two lines an action: what, and why it was proposed or what came of it. Reasons are long, terminals narrow."""
    lines = Table.grid()
    for row in rows:
        undone = f"; undo refused: {row['undo_refused']}" if row["undo_refused"] else ""
        head = (row["id"], change(row), row["state"], row["outcome"] or "–")
        lines.add_row(terminal("   ".join(str(cell) for cell in head), 200))
        lines.add_row(Padding(terminal(f"{row['sentence'] or row['reason']}{undone}", 400), (0, 0, 1, 4)))
    return lines
