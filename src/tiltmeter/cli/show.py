"""`tiltmeter show`: the verdict on a run, in five lines."""

from __future__ import annotations

import typer

from tiltmeter.cli.options import Json, More, Plain, Run, open_run
from tiltmeter.cli.terminal.picture import picture_lines
from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.rundir.remote.address import parse_address
from tiltmeter.view.screens.picture.curves import read_curves
from tiltmeter.view.screens.run_reader import RunReader

EXAMPLE_STEPS = 16  # the newest, of which answers are shown


def show(run: Run, more: More = False, json: Json = False, plain: Plain = False) -> None:
    """Show what is known of a run, in five lines: its state, since when, why, what to do, where to look.

    Example: tiltmeter show runs/tonight

    Reads the run directory and changes nothing. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    reader = RunReader(open_run(run, steps=EXAMPLE_STEPS), cached=False)
    verdict = reader.refresh()
    picture = picture_lines(read_curves(reader)) if more and not (json or plain) else ()
    emit(
        reader.run, verdict, reader.run_facts, reader.events,
        json_=json, plain_=plain, more=more, place=parse_address(run) or str(run), picture=picture,
    )  # fmt: skip
    raise typer.Exit(verdict.exit_code)
