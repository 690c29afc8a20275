"""`tiltmeter show`: the verdict on a run, in five lines."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from tiltmeter.cli.options import Json, More, Plain, Run, open_run
from tiltmeter.cli.terminal.picture import picture_lines
from tiltmeter.cli.terminal.run_screen import emit
from tiltmeter.rundir.remote.address import parse_address
from tiltmeter.view.screens.picture.curves import caption, read_curves
from tiltmeter.view.screens.run_reader import RunReader

EXAMPLE_STEPS = 16  # the newest, of which answers are shown
Picture = Annotated[
    bool, typer.Option("--picture", help="Only the picture: reward and gold, where they parted, the alarm.")
]


def show(run: Run, more: More = False, picture: Picture = False, json: Json = False, plain: Plain = False) -> None:
    """Show what is known of a run, in five lines: its state, since when, why, what to do, where to look.

    Example: tiltmeter show runs/tonight

    Reads the run directory and changes nothing. `tiltmeter report` writes the picture to a file. Exit code: 0 healthy,
    1 an alarm or "stop", 2 cannot judge.
    """
    if picture and (more or json):
        raise typer.BadParameter("--picture is drawn alone: without --more and --json")
    reader = RunReader(open_run(run, steps=0 if picture else EXAMPLE_STEPS), cached=picture)
    verdict = reader.refresh()
    if picture:
        _print_picture(reader, plain)
        raise typer.Exit(verdict.exit_code)
    drawing = picture_lines(read_curves(reader)) if more and not (json or plain) else ()
    emit(
        reader.run, verdict, reader.run_facts, reader.events,
        json_=json, plain_=plain, more=more, place=parse_address(run) or str(run), picture=drawing,
    )  # fmt: skip
    raise typer.Exit(verdict.exit_code)


def _print_picture(reader: RunReader, plain: bool) -> None:
    console = Console(highlight=False, markup=False, soft_wrap=plain, no_color=plain or None)
    curves = read_curves(reader)
    if plain:
        for line in caption(curves):
            console.out(line.replace("→", "->").encode("ascii", "backslashreplace").decode())
    else:
        for text in picture_lines(curves, min(console.width, 100), 12):
            console.print(text)
