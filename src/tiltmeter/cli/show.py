"""`tiltmeter show`: the verdict on a run, on one screen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

Run = Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object, for machines.")]
Plain = Annotated[bool, typer.Option("--plain", help="ASCII lines, for logs and pipes.")]


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
