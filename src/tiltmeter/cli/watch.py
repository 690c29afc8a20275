"""`tiltmeter watch`: the monitor, in the foreground or beside a trainer."""

from __future__ import annotations

import logging
import os
import subprocess
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

from tiltmeter.cli.screen import emit, screen
from tiltmeter.cli.show import Json, Plain, Run
from tiltmeter.cli.track import ADDRESS
from tiltmeter.config import GOLD_SHARE, Config
from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.loading import load_function
from tiltmeter.monitor import follow, only_monitor
from tiltmeter.page.book import Book
from tiltmeter.page.summary import summary
from tiltmeter.placing import Placing
from tiltmeter.store import RunDirectory
from tiltmeter.watch import Watch

PLACING_SECONDS = 5.0  # that `--once` waits for rows without a step
HEARTBEAT_SECONDS = 60.0  # between two lines about a run in which nothing happens
STARTS = 4  # of the process that posts alerts: the first, and again when it dies
START_SECONDS = 5.0  # between two of them

log = logging.getLogger("tiltmeter")

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", help="Your own instrument, derived reading or detector: file.py:Class.", metavar="FILE:CLASS"
    ),
]


Gold = Annotated[
    str | None,
    typer.Option(
        "--gold", help="Who says what a completion is worth: file.py:function, judge.toml, or people.", metavar="GOLD"
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


Once = Annotated[bool, typer.Option("--once", help="Measure what is stored now, print the verdict and end.")]


def watch(
    run: Run,
    plugin: Plugins = None,
    gold: Gold = None,
    gold_share: GoldShare = GOLD_SHARE,
    gold_steps: GoldSteps = None,
    experiment: Experiment = None,
    once: Once = False,
    json: Json = False,
    plain: Plain = False,
    attached: Annotated[int | None, typer.Option("--attached", hidden=True, metavar="PID")] = None,
) -> None:
    """Measure a run while it is written, or catch up with it; ends when the run has ended or fallen silent.

    Example: tiltmeter watch runs/tonight

    On a terminal it shows one screen that keeps itself up to date; with --plain a line for each thing that happens, for
    logs and pipes. Where a trainer's own monitor is already at work, this reads along. Restartable at any time:
    measuring continues from what was written. Exit code: 0 healthy, 1 an alarm, 2 could not judge.
    """
    directory = RunDirectory(run)
    directory.identity()
    config = Config.standard(plugin or (), gold=gold, gold_share=gold_share, gold_steps=gold_steps)
    reward = None if experiment is None else FunctionSource(experiment, load_function(experiment))
    alerts = Alerts(directory, 0 if once else STARTS)
    if attached is not None:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
        follow(directory, config, reward=reward, parent=attached, on_poll=alerts.look)
        return
    book = Book(directory)
    book.refresh()
    if gold is None and book.story.gold is not None and book.story.attempt not in book.story.ended:
        sys.stderr.write(f"Watching without gold; this run was judged by {book.story.gold['name']}: see --gold.\n")
    try:
        if once:
            _catch_up(directory, config, reward)
        else:
            on_screen = sys.stdout.isatty() and not (json or plain)
            _keep_looking(book, config, reward, alerts, on_screen=on_screen, lines=plain)
    except KeyboardInterrupt:
        pass  # the verdict so far is the answer
    verdict = book.refresh(impatient=True)
    emit(directory, verdict, book.story, book.events, json_=json, plain_=plain)
    raise typer.Exit(verdict.exit_code)


class Alerts:
    """Where the operator's environment names a webhook, alerts go there from a process of its own: whatever becomes of
    it, measuring goes on. It finds the address in the environment, because a command line is for everybody to see. It
    ends after this process; one that ended before has died, and is started again a few times."""

    def __init__(self, run: RunDirectory, starts: int = STARTS) -> None:
        self._command = [sys.executable, "-m", "tiltmeter", "track", str(run.path), "--attached", str(os.getpid())]
        self._starts = starts if os.environ.get(ADDRESS) else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self.look()

    def look(self, measured: int = 0) -> None:
        if self._process is not None:
            if (code := self._process.poll()) is None:
                return
            self._process = None
            self._failed(f"the process that posts alerts ended with {code}")
        if self._starts and time.monotonic() >= self._not_before:
            self._starts, self._not_before = self._starts - 1, time.monotonic() + START_SECONDS
            try:
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            except OSError as error:
                self._failed(f"no process that posts alerts could be started ({error.strerror})")

    def _failed(self, why: str) -> None:
        then = "it is started again" if self._starts else "no alert is posted until you run: tiltmeter track RUN"
        log.warning("%s; %s", why, then)


def _catch_up(run: RunDirectory, config: Config, reward: FunctionSource | None) -> None:
    """Measure what is stored; where somebody else does that, there is nothing to do."""
    try:
        with only_monitor(run):
            _place(run)
            watch = Watch(run, config, reward=reward)
            while watch.poll():
                pass
            watch.close()
    except AttachError:
        pass


def _place(run: RunDirectory) -> None:
    """Let rows of a captured reward into their steps; some have to wait a little for those of other workers."""
    placing, deadline = Placing(run), time.monotonic() + PLACING_SECONDS
    attempts = run.attempts()
    over = bool(attempts) and run.ended(attempts[-1])
    while placing.place(over=over) and time.monotonic() < deadline:
        time.sleep(0.1)


def _keep_looking(
    book: Book, config: Config, reward: FunctionSource | None, alerts: Alerts, *, on_screen: bool, lines: bool
) -> None:
    """Measure, or read along, and show what is new: on a screen, as lines, or not at all until the end."""
    console = Console(highlight=False, markup=False)
    canvas = Live(Text("measuring…"), console=console, auto_refresh=False, transient=True) if on_screen else None
    ticker = told(book) if lines else None
    if ticker is not None:
        next(ticker)  # what is there now was there before
    with canvas or nullcontext():

        def refresh(measured: int) -> None:
            alerts.look()
            verdict = book.refresh()
            if canvas is not None:
                canvas.update(Cropped(screen(book.run, verdict, book.story, book.events), console.height), refresh=True)
            elif ticker is not None:
                for line in next(ticker):
                    sys.stdout.write(f"{line}\n")
                sys.stdout.flush()

        def silent() -> bool:
            """The trainer is gone without a word: what is stored is measured, and waiting would help nobody."""
            return not book.refresh(impatient=True).checks["fresh"].ok

        try:
            follow(book.run, config, reward=reward, give_up=silent, on_poll=refresh)
        except AttachError:
            _read_along(book, refresh)


def told(book: Book) -> Iterator[list[str]]:
    """Each time it is asked, the lines to print: what has happened since watching began, and now and then that nothing
    has. What happened before is in the verdict at the end."""
    first = summary(book)
    since, state, spoke = max((entry["time"] for entry in first["entries"]), default=0.0), "", time.monotonic()
    while True:
        lines: list[str] = []
        now = summary(book, since)
        for entry in now["entries"]:
            if entry["time"] > since:
                since = entry["time"]
                clock = time.strftime("%H:%M:%S", time.localtime(entry["time"]))
                lines.append(_ascii(f"{clock}  s{entry['step']}  {entry['kind']:8}  {entry['text']}"))
        if lines or now["state"] != (state or now["state"]) or time.monotonic() - spoke > HEARTBEAT_SECONDS:
            spoke = time.monotonic()
            lines.append(_ascii(f"{time.strftime('%H:%M:%S')}  s{now['step']}  {now['state']:8}  {now['sentence']}"))
        state = now["state"]
        yield lines


def _ascii(text: str) -> str:
    return log_line(text, 300).encode("ascii", "backslashreplace").decode()


class Cropped:
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
            yield Text(f"… {len(rows) - room + 1} more lines: tiltmeter show RUN", style="dim")


def _read_along(book: Book, refresh: Callable[[int], None]) -> None:
    """Look until the run has ended, or until it is stale: somebody else measures."""
    while book.refresh().checks["fresh"].ok and book.story.attempt not in book.story.ended:
        refresh(0)
        time.sleep(1.0)
