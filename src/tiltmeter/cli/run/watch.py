"""`tiltmeter watch`: the monitor in the foreground. The one beside a trainer is `python -m tiltmeter.monitor`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Annotated

import typer
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.text import Text

from tiltmeter.cli.options import Json, More, Plain, Run, Trust, open_to_change
from tiltmeter.cli.terminal.run_screen import emit, screen
from tiltmeter.errors import AttachError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.function_process import FunctionProcess
from tiltmeter.monitor.alerts import STARTS, AlertProcess
from tiltmeter.monitor.list_entry_writer import leave_list_entry
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import monitor_lock, run_monitor
from tiltmeter.rundir.staging.assign_steps import StepAssembler
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.loading import load_function
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary

PLACING_SECONDS = 5.0  # that `--once` waits for rows without a step
HEARTBEAT_SECONDS = 60.0  # between two lines about a run in which nothing happens

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", help="Your own instrument, derived reading or detector: file.py:Class.", metavar="FILE:CLASS"
    ),
]


Gold = Annotated[
    str | None,
    typer.Option(
        "--gold", help="Gold source: file.py:function, judge.toml, people, tests, answers or auto.", metavar="GOLD"
    ),
]
GoldShare = Annotated[
    float | None,
    typer.Option(
        "--gold-share", help="Share of rollouts to label; 1: all. Without it, by what a label costs.", metavar="SHARE"
    ),
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


Once = Annotated[bool, typer.Option("--once", help="Measure what is stored now, print the verdict and end.")]


def watch(
    run: Run,
    plugin: Plugins = None,
    gold: Gold = None,
    gold_share: GoldShare = None,
    gold_steps: GoldSteps = None,
    experiment: Experiment = None,
    once: Once = False,
    trust: Trust = False,
    more: More = False,
    json: Json = False,
    plain: Plain = False,
) -> None:
    """Measure a run while it is written, or catch up with it; ends when the run has ended or fallen silent.

    Example: tiltmeter watch runs/tonight

    On a terminal it shows one screen that keeps itself up to date; with --plain a line for each thing that happens, for
    logs and pipes. Where a trainer's own monitor is at work, this shows its results. Restartable at any time:
    measuring continues from what was written. Exit code: 0 healthy, 1 an alarm or "stop", 2 cannot judge.
    """
    directory = open_to_change(run, trust)
    config = Config.standard(plugin or (), gold=gold, gold_share=gold_share, gold_steps=gold_steps)
    reward = None if experiment is None else FunctionProcess(experiment, load_function(experiment))
    alerts = AlertProcess(directory, 0 if once else STARTS)
    reader = RunReader(directory, cached=False)
    reader.refresh()
    if gold is None and reader.run_facts.gold is not None and reader.run_facts.attempt not in reader.run_facts.ended:
        sys.stderr.write(
            f"Watching without gold; this run was judged by {reader.run_facts.gold['name']}: see --gold.\n"
        )
    try:
        if once:
            _catch_up(directory, config, reward)
        else:
            on_screen = sys.stdout.isatty() and not (json or plain)
            _follow_live(reader, config, reward, alerts, on_screen=on_screen, lines=plain)
    except KeyboardInterrupt:
        pass  # the verdict so far is the answer
    verdict = reader.refresh(force=True)
    emit(directory, verdict, reader.run_facts, reader.events, json_=json, plain_=plain, more=more, place=str(run))
    raise typer.Exit(verdict.exit_code)


def _catch_up(run: RunDirectory, config: Config, reward: FunctionSource | None) -> None:
    """Measure what is stored; where somebody else does that, there is nothing to do."""
    try:
        with monitor_lock(run):
            _assign_steps(run)
            loop = MonitorLoop(run, config, reward=reward)
            while loop.poll():  # waits for labels, but not for those of people
                pass
            loop.close()
            leave_list_entry(run)
    except AttachError:
        pass


def _assign_steps(run: RunDirectory) -> None:
    """Assign the rows of a captured reward to their steps; some have to wait for rows of other workers."""
    assembler, deadline = StepAssembler(run), time.monotonic() + PLACING_SECONDS
    attempts = run.attempts()
    over = bool(attempts) and run.ended(attempts[-1])
    while assembler.assemble(over=over) and time.monotonic() < deadline:
        time.sleep(0.1)


def _follow_live(
    reader: RunReader,
    config: Config,
    reward: FunctionSource | None,
    alerts: AlertProcess,
    *,
    on_screen: bool,
    lines: bool,
) -> None:
    """Measure, or read along, and show what is new: on a screen, as lines, or not at all until the end."""
    console = Console(highlight=False, markup=False)
    canvas = Live(Text("measuring…"), console=console, auto_refresh=False, transient=True) if on_screen else None
    ticker = status_lines(reader) if lines else None
    if ticker is not None:
        next(ticker)  # what is there now was there before
    with canvas or nullcontext():

        def refresh(measured: int, force: bool = False) -> None:
            alerts.check()
            verdict = reader.refresh(force=force)
            if canvas is not None:
                canvas.update(
                    CroppedScreen(screen(reader.run, verdict, reader.run_facts, reader.events), console.height),
                    refresh=True,
                )
            elif ticker is not None:
                for line in next(ticker):
                    sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

        def silent() -> bool:
            """The trainer is gone without closing the run: what is stored is measured, so stop waiting."""
            return not reader.refresh(force=True).checks["fresh"].ok

        try:
            run_monitor(reader.run, config, reward=reward, give_up=silent, on_poll=refresh)
        except AttachError:
            _read_along(reader, refresh)
        refresh(0, force=True)  # a reader looks now and then, and what came last would not be told


def status_lines(reader: RunReader) -> Iterator[list[str]]:
    """Yields the lines to print, once per poll: what happened since watching began, and now and then that nothing did.
    What happened before is in the verdict at the end."""
    first = summary(reader)
    since, state, spoke = max((entry.time for entry in first.entries), default=0.0), "", time.monotonic()
    while True:
        lines: list[str] = []
        now = summary(reader, since)
        for entry in now.entries:
            if entry.time > since:
                since = entry.time
                clock = time.strftime("%H:%M:%S", time.localtime(entry.time))
                lines.append(_ascii(f"{clock}  s{entry.step}  {entry.kind:8}  {entry.text}"))
        if lines or now.state != (state or now.state) or time.monotonic() - spoke > HEARTBEAT_SECONDS:
            spoke = time.monotonic()
            lines.append(_ascii(f"{time.strftime('%H:%M:%S')}  s{now.step}  {now.state:8}  {now.sentence}"))
        state = now.state
        yield lines


def _ascii(text: str) -> str:
    return log_line(text, 300).encode("ascii", "backslashreplace").decode()


class CroppedScreen:
    """A renderable cut to the height of the terminal, so that one screen stays one screen and says what is below."""

    def __init__(self, whole: object, height: int) -> None:
        self.whole, self.height = whole, height

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = console.render_lines(self.whole, options, pad=False)  # type: ignore[arg-type]
        room = max(4, self.height - 1)
        for row in rows if len(rows) <= room else rows[: room - 1]:
            yield from row
            yield Segment.line()
        if len(rows) > room:
            yield Text(f"… {len(rows) - room + 1} more lines: tiltmeter show RUN --more", style="dim")


def _read_along(reader: RunReader, refresh: Callable[[int], None]) -> None:
    """Look until the run has ended, or until it is stale: somebody else measures."""
    while reader.refresh().checks["fresh"].ok and reader.run_facts.attempt not in reader.run_facts.ended:
        refresh(0)
        time.sleep(1.0)
