"""`tiltmeter show`: the verdict on a run, on one screen."""

from __future__ import annotations

import typer

from tiltmeter.cli.options import Json, Plain, Run, open_run
from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.verdict.verdict import judge_run


def show(run: Run, json: Json = False, plain: Plain = False) -> None:
    """Show the verdict on a run: healthy or not, since when, and what cannot be seen.

    Example: tiltmeter show runs/tonight

    Reads the run directory and changes nothing. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    directory = open_run(run)
    verdict, run_state, events = judge_run(directory)
    emit(directory, verdict, run_state, events, json_=json, plain_=plain)
    raise typer.Exit(verdict.exit_code)
