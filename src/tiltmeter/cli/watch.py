"""`tiltmeter watch`: the monitor, in the foreground or beside a trainer."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tiltmeter.cli.screen import emit, screen
from tiltmeter.cli.show import Json, Plain
from tiltmeter.config import Config
from tiltmeter.monitor import follow
from tiltmeter.store import RunDirectory
from tiltmeter.verdict import look

Run = Annotated[Path, typer.Argument(help="A run directory.", metavar="RUN")]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", help="Your own instrument, derived reading or detector: file.py:Class.", metavar="FILE:CLASS"
    ),
]


def watch(
    run: Run,
    plugin: Plugins = None,
    json: Json = False,
    plain: Plain = False,
    attached: Annotated[bool, typer.Option("--attached", hidden=True)] = False,
) -> None:
    """Measure a run while it is written, or catch up with one that is not; ends when the run has ended.

    Example: tiltmeter watch runs/tonight

    Restartable at any time: it continues from what it wrote. Exit code: 0 healthy, 1 an alarm, 2 could not judge.
    """
    directory = RunDirectory(run)
    directory.identity()
    config = Config.standard(plugin or ())
    if attached:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
        follow(directory, config, parent=os.getppid())
        return
    if json or plain or not sys.stdout.isatty():
        follow(directory, config)
    else:
        with Live(Text("measuring…"), console=Console(highlight=False, markup=False), refresh_per_second=2) as live:

            def refresh(measured: int) -> None:
                if measured or live.renderable is None:
                    verdict, story, events = look(directory)
                    live.update(screen(directory, verdict, story, events))

            follow(directory, config, on_poll=refresh)
            live.update(Text())
    verdict, story, events = look(directory)
    emit(directory, verdict, story, events, json_=json, plain_=plain)
    raise typer.Exit(verdict.exit_code)
