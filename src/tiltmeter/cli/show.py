"""`tiltmeter show`: the verdict on a run, in five lines."""

from __future__ import annotations

import typer

from tiltmeter.cli.options import Json, More, Plain, Run, open_run
from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.verdict.verdict import judge_run


def show(run: Run, more: More = False, json: Json = False, plain: Plain = False) -> None:
    """Show what is known of a run, in five lines: its state, since when, why, what to do, where to look.

    Example: tiltmeter show runs/tonight

    Reads the run directory and changes nothing. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    directory = open_run(run)
    verdict, run_state, events = judge_run(directory)
    emit(directory, verdict, run_state, events, json_=json, plain_=plain, more=more, place=str(run))
    raise typer.Exit(verdict.exit_code)
