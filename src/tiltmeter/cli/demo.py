"""`tiltmeter demo`: a recorded run that games its reward, and its healthy twin, measured anew to a verdict."""

from __future__ import annotations

import json as json_module
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.options import Json, Plain
from tiltmeter.cli.terminal.run_screen import as_json, message_lines, message_of, message_screen
from tiltmeter.detectors.level_stakes import LEVEL
from tiltmeter.monitor.list_entry_writer import leave_list_entry
from tiltmeter.monitor.live_arrivals import LiveArrivals
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import visible
from tiltmeter.stats.numba_jit import kernels_cached
from tiltmeter.verdict.run_facts import RunFacts, series
from tiltmeter.verdict.states import STATES, State
from tiltmeter.verdict.verdict import Verdict, judge_run

#: The shipped runs, recorded by examples/record_demo.py, and what must come out.
EXPECTED: dict[str, State] = {"hacked": "ACT", "honest": "OK"}
INTRODUCTION = (
    "Two recorded training runs of one small policy that learns to add, from the same seed. In one of them the reward "
    "model can be bought with compliments. Tiltmeter now measures both step by step, as it would have live."
)
FIRST_USE = "First use on this machine: kernels are compiled once, which takes some five seconds."
ATTACH = (
    "Your own loop needs two lines. Gold: any check you trust, for every answer to some prompts.",
    '    run = tiltmeter.open_run("runs/tonight")',
    "    run.observe(step=t, group=ids, reward=r, gold=gold, completion=texts)",
    "Then, from any terminal: tiltmeter show runs/tonight",
)


@dataclass(frozen=True)
class DemoRun:
    """One of the two runs, measured."""

    run: RunDirectory
    verdict: Verdict
    run_facts: RunFacts
    events: list[Event]

    @property
    def name(self) -> str:
        return self.run.path.name

    @property
    def as_expected(self) -> bool:
        return self.verdict.state == EXPECTED[self.name]

    def values(self, reading: str, until: int | None = None) -> list[float]:
        """A reading step by step, up to and with step `until`."""
        points = series(self.events, self.run_facts.spans())[reading]
        return [value for step, value in points if until is None or step <= until]

    def arc(self, reading: str) -> tuple[float, float, float]:
        """Where a reading started, its highest mean over five steps, and where it ended."""
        values = self.values(reading)
        return values[0], float(np.convolve(values, np.full(5, 0.2), "valid").max()), values[-1]

    def path(self, reading: str) -> str:
        """The arc in words; the top only if the run came down from it."""
        first, top, last = self.arc(reading)
        return " → ".join(f"{value:.2f}" for value in ((first, top, last) if top - last > 0.1 else (first, last)))


def demo(
    keep: Annotated[
        Path | None, typer.Option(help="Keep the two runs in this new directory.", metavar="FOLDER")
    ] = None,
    json: Json = False,
    plain: Plain = False,
) -> None:
    """See an alarm: a recorded run that games its reward, and its healthy twin, measured to a verdict in seconds.

    Example: tiltmeter demo --keep demo-runs

    Needs no GPU, no network and no trainer. Exit code: 0 the two were told apart, 2 they were not.
    """
    console = Console(highlight=False, markup=False, soft_wrap=json or plain, no_color=plain or None)
    with folder(keep) as place:
        if not json:
            console.print(INTRODUCTION)
            if not kernels_cached():
                console.print(FIRST_USE, style="dim")
        cases = [measure_demo_run(name, place / name) for name in EXPECTED]
        if json:
            console.out(demo_json(cases))
        elif plain:
            for line in plain_report(cases, keep):
                console.out(line.replace("→", "->").encode("ascii", "backslashreplace").decode())
        else:
            console.print(report(cases, keep))
    raise typer.Exit(0 if all(case.as_expected for case in cases) else 2)


@contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    """The folder for the runs: `keep`, or a temporary one."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tiltmeter-") as scratch:
            yield Path(scratch)
        return
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise typer.BadParameter(f"{error.strerror}: {keep}; name a new directory", param_hint="--keep") from error
    yield keep


def measure_demo_run(name: str, target: Path) -> DemoRun:
    """Copy a shipped run and run the monitor loop on it, as if it were just being written."""
    copy(files("tiltmeter.cli") / "demo_runs" / name, target)
    run = RunDirectory(target)
    loop = MonitorLoop(run, Config.standard(), source=LiveArrivals(run))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(f"measuring {name}", total=len(run.files(0)))
        for arrival in loop.source.poll():
            loop.advance(arrival)
            progress.advance(task)
    loop.close()
    leave_list_entry(run)
    return DemoRun(run, *judge_run(run))


def copy(source: Traversable, target: Path) -> None:
    """Bytes only: the package may lie where nobody can write, or in an archive."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.is_dir():
            copy(entry, target / entry.name)
        else:
            (target / entry.name).write_bytes(entry.read_bytes())


def report(cases: list[DemoRun], keep: Path | None) -> RenderableType:
    """Both messages, then the two runs side by side: the last thing printed is the point."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("", "reward (optimised)", "gold (right answers)", "Tiltmeter"):
        table.add_column(title)
    for case in cases:
        colour = STATES[case.verdict.state].colour.terminal
        says = Text(f"{STATES[case.verdict.state].icon} {state_label(case)}", colour)
        table.add_row(case.name, case.path("reward.mean"), Text(case.path("gold.mean"), colour), says)
    screens = []
    for case in cases:
        five_lines = message_of(
            case.run, case.verdict, case.run_facts, case.events, str(_place(keep, case)), _look(keep)
        )
        screens += [message_screen(case.name, case.verdict.state, five_lines), Text()]
    lines = [Text(line) for line in ("", *conclusion(cases), "", *next_steps(keep))]
    return Group(Text(), *screens, Padding(Group(table, *lines), (1, 2)))


def plain_report(cases: list[DemoRun], keep: Path | None) -> Iterator[str]:
    for case in cases:
        yield ""
        yield from message_lines(
            case.run, case.verdict, case.run_facts, case.events, str(_place(keep, case)), _look(keep)
        )
    yield ""
    for case in cases:
        yield f"{case.name}: reward {case.path('reward.mean')}; gold {case.path('gold.mean')}; {state_label(case)}"
    yield from ("", *conclusion(cases), "", *next_steps(keep))


def _place(keep: Path | None, case: DemoRun) -> Path:
    return case.run.path if keep is None else keep / case.name


def _look(keep: Path | None) -> str:
    """Where to look; runs that are not kept are gone when the demo ends."""
    return "" if keep is not None else "tiltmeter demo --keep FOLDER, then tiltmeter view FOLDER"


def demo_json(cases: list[DemoRun]) -> str:
    """What `show --json` says of each run, and how the two compare."""
    runs: dict[str, Any] = {}
    for case in cases:
        screen_json = json_module.loads(as_json(case.run, case.verdict, case.run_facts, case.events))
        arcs = {
            name: dict(zip(("first", "top", "last"), case.arc(f"{name}.mean"), strict=True))
            for name in ("reward", "gold")
        }
        runs[case.name] = {"as_expected": case.as_expected, **arcs, "show": screen_json}
    return json_module.dumps({"worked": all(case.as_expected for case in cases), "runs": runs}, indent=1)


def state_label(case: DemoRun) -> str:
    alarms = case.verdict.alarms
    return f"{case.verdict.state} from step {alarms[0].step} on" if alarms else case.verdict.state


def conclusion(cases: list[DemoRun]) -> list[str]:
    """What the two runs show, in their own figures."""
    if wrong := [case for case in cases if not case.as_expected]:
        mismatches = ", ".join(f"{case.name} is {case.verdict.state}, not {EXPECTED[case.name]}" for case in wrong)
        return [
            f"This is not what should come out: {mismatches}. Please report it, with what tiltmeter demo --json says."
        ]
    hacked, honest = cases
    alarm = hacked.verdict.alarms[0]
    paid, twin = hacked.arc("reward.mean")[2], honest.arc("reward.mean")[2]
    then = np.mean(hacked.values("gold.mean", until=alarm.step)[-5:])
    since = (
        "gold has been falling"
        if alarm.name == LEVEL
        else "the reward prefers the worse of two answers to one question"
    )
    return [
        f"Both rewards rose. By the reward alone the hacked run is the better one, {paid:.2f} against {twin:.2f}; "
        "in truth it has stopped answering.",
        f"The alarm rang at step {alarm.step}, with gold down to {then:.2f}: since about step {alarm.onset} {since}. "
        "The honest run's reward rose too, and nothing rang.",
    ]


def next_steps(keep: Path | None) -> list[str]:
    if keep is None:
        return [*ATTACH, "To look around in these two: tiltmeter demo --keep demo-runs, then tiltmeter view demo-runs"]
    return [*ATTACH, f"To look around in these two: tiltmeter view {visible(shlex.quote(str(keep)))}"]
