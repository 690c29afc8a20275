"""`tiltmeter watch`: the monitor, in the foreground or beside a trainer."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.text import Text

from tiltmeter.cli.screen import emit, screen
from tiltmeter.cli.show import Json, Plain, Run
from tiltmeter.config import GOLD_SHARE, Config, load_function
from tiltmeter.errors import AttachError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor import follow
from tiltmeter.store import RunDirectory
from tiltmeter.verdict import Look

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", help="Your own instrument, derived reading or detector: file.py:Class.", metavar="FILE:CLASS"
    ),
]


Gold = Annotated[
    str | None,
    typer.Option(
        "--gold", help="Who says what a completion is worth: file.py:function, or judge.toml.", metavar="GOLD"
    ),
]
GoldShare = Annotated[
    float, typer.Option("--gold-share", help="How many of the rollouts it is asked about.", metavar="SHARE")
]

GoldSteps = Annotated[
    int | None,
    typer.Option(
        "--gold-steps", help="How many optimiser steps are planned; labels may then be spent in advance.", metavar="N"
    ),
]


Experiment = Annotated[
    str | None,
    typer.Option(
        "--experiment",
        help="Your reward function, to try edited completions on: file.py:function.",
        metavar="FILE:FUNCTION",
    ),
]


def watch(
    run: Run,
    plugin: Plugins = None,
    gold: Gold = None,
    gold_share: GoldShare = GOLD_SHARE,
    gold_steps: GoldSteps = None,
    experiment: Experiment = None,
    json: Json = False,
    plain: Plain = False,
    attached: Annotated[int | None, typer.Option("--attached", hidden=True, metavar="PID")] = None,
) -> None:
    """Measure a run while it is written, or catch up with it; ends when the run has ended or fallen silent.

    Example: tiltmeter watch runs/tonight

    Where a trainer's own monitor is already at work, this reads along. Restartable at any time: measuring continues
    from what was written. Exit code: 0 healthy, 1 an alarm, 2 could not judge.
    """
    directory = RunDirectory(run)
    directory.identity()
    config = Config.standard(plugin or (), gold=gold, gold_share=gold_share, gold_steps=gold_steps)
    reward = None if experiment is None else FunctionSource(experiment, load_function(experiment))
    if attached is not None:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
        follow(directory, config, reward=reward, parent=attached)
        return
    view = Look(directory)
    view.now()
    if gold is None and view.story.gold is not None and view.story.attempt not in view.story.ended:
        sys.stderr.write(f"Watching without gold; this run was judged by {view.story.gold['name']}: see --gold.\n")
    on_screen = sys.stdout.isatty() and not (json or plain)
    console = Console(highlight=False, markup=False)
    canvas = Live(Text("measuring…"), console=console, auto_refresh=False, transient=True) if on_screen else None
    with canvas or nullcontext():

        def refresh(measured: int) -> None:
            if canvas is not None:
                canvas.update(screen(directory, view.now(), view.story, view.events), refresh=True)

        def silent() -> bool:
            """The trainer is gone without a word: what is stored is measured, and waiting would help nobody."""
            return not view.now().checks["fresh"].ok

        try:
            try:
                follow(directory, config, reward=reward, give_up=silent, on_poll=refresh)
            except AttachError:
                _read_along(view, refresh)
        except KeyboardInterrupt:
            pass  # the verdict so far is the answer
    verdict = view.now()
    emit(directory, verdict, view.story, view.events, json_=json, plain_=plain)
    raise typer.Exit(verdict.exit_code)


def _read_along(view: Look, refresh: Callable[[int], None]) -> None:
    """Look until the run has ended, or until it is stale: somebody else measures."""
    while view.now().checks["fresh"].ok and view.story.attempt not in view.story.ended:
        refresh(0)
        time.sleep(1.0)
