"""`tiltmeter show`: the verdict on a run, on one screen."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.errors import AttachError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.verdict import judge_run

Run = Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]
Trust = Annotated[bool, typer.Option("--trust", help="Write into a run directory that another user made.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")]
Plain = Annotated[bool, typer.Option("--plain", help="ASCII lines, for logs and pipes.")]


def open_to_change(run: Path, trust: bool) -> RunDirectory:
    """The run, to write into it or delete from it; one that another user made only after a question."""
    directory = RunDirectory(run)
    directory.identity()
    owner = run.stat().st_uid
    if trust or owner == os.geteuid():
        return directory
    question = f"{log_line(str(run))} belongs to user {owner}. Change files in it?"
    if not (sys.stdin.isatty() and typer.confirm(question)):
        raise AttachError(
            f"{run} belongs to user {owner}, and nothing was changed in it: look at it with "
            f"`tiltmeter verify --untrusted {run}`, then add --trust"
        )
    return directory


def show(run: Run, json: Json = False, plain: Plain = False) -> None:
    """Show the verdict on a run: healthy or not, since when, and what cannot be seen.

    Example: tiltmeter show runs/tonight

    Reads the run directory and changes nothing. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    directory = RunDirectory(run)
    directory.identity()
    verdict, run_state, events = judge_run(directory)
    emit(directory, verdict, run_state, events, json_=json, plain_=plain)
    raise typer.Exit(verdict.exit_code)
