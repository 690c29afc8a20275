"""`tiltmeter diff`: two runs side by side, from which step on they differ, and what was set differently."""

from __future__ import annotations

import json as json_module
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from tiltmeter.audit import audit
from tiltmeter.audit.engine.open_engine import open_engine
from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.cli.options import Json, Markdown, Plain, write_report
from tiltmeter.cli.terminal.run_screen import write_stdout
from tiltmeter.errors import StoreError
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.locate_run import run_around
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line, terminal
from tiltmeter.verdict.states import STATES
from tiltmeter.view.markdown_text import escape_line as safe
from tiltmeter.view.payloads.compare import ComparedMeasure, CurveDifference
from tiltmeter.view.payloads.encode import plain
from tiltmeter.view.screens.compare import MEASURES, compare, difference
from tiltmeter.view.screens.compare import RunCurve as Line
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.wording import finite_or_none

ENDS = 5  # steps at either end of a run whose mean is called first and last
SHOWN = 12  # further readings: those that diverge first
RUNS = "AB"

First = Annotated[Path, typer.Argument(help="A run, or another tool's files.", metavar="A")]
Second = Annotated[Path, typer.Argument(help="Another one.", metavar="B")]


def diff(a: First, b: Second, json: Json = False, md: Markdown = None, plain: Plain = False) -> None:
    """Compare two runs: verdicts, readings with intervals, the first step from which they differ, and settings.

    Example: tiltmeter diff runs/before runs/after

    They differ lastingly from where on five stretches in a row have an interval without 0. Exit code: 0 both were
    judged and do not differ lastingly, 1 one of them has an alarm or they differ, 2 could not judge.
    """
    printed = str(md) == "-"
    if json + printed + plain > 1:
        raise typer.BadParameter("choose one of --json, --md - and --plain")
    with tempfile.TemporaryDirectory(prefix="tiltmeter-diff-") as scratch:
        readers = [RunReader(_run(path, Path(scratch) / name)) for path, name in zip((a, b), RUNS, strict=True)]
        for reader in readers:
            reader.refresh()
        comparison = compare_runs(readers)
    if md is not None:
        write_report("\n".join(markdown(comparison)) + "\n", md, "diff.md", "--md")
    if json:
        write_stdout(json_module.dumps(comparison, allow_nan=False) + "\n")
    elif printed:
        pass
    elif plain or not sys.stdout.isatty():
        safe_lines = (
            log_line(text, 400).encode("ascii", "backslashreplace").decode() for text in text_lines(comparison)
        )
        write_stdout("".join(f"{text}\n" for text in safe_lines))
    else:
        Console(highlight=False, markup=False).print(render_diff(comparison))
    raise typer.Exit(exit_code(readers, comparison))


def exit_code(readers: Sequence[RunReader], comparison: dict[str, Any]) -> int:
    """1 for an alarm whatever else there is, then 3 for a hollow run; 2 if one could not be judged or nothing could be
    compared."""
    codes = [reader.verdict.exit_code for reader in readers]
    for code in (1, 3):
        if code in codes:
            return code
    if 2 in codes or all(row["difference"] is None for row in comparison["readings"]):
        return 2
    return 1 if comparison["diverged"] else 0


def _run(place: Path, home: Path) -> RunDirectory:
    """The run at a path; another tool's files are audited first, so that there is something to compare."""
    if (around := run_around(place)) is not None:
        directory = RunDirectory(around)
        directory.identity()
        return directory
    audits = list(audit(place, home, ReadOptions(), Config.standard(), engine=open_engine("processes")))
    if len(audits) != 1:
        raise StoreError(f"{place} holds {len(audits)} runs: name one of them")
    return audits[0].run


def compare_runs(readers: Sequence[RunReader]) -> dict[str, Any]:
    """What two runs have in common and what not. Texts of completions are left to the page."""
    comparison = compare(readers)
    main = dict(MEASURES)
    rows = [_measure_row(measure) for measure in comparison.measures]
    names = [set(reader.columns.names()) for reader in readers]
    for reader in readers:
        reader.columns.gather(reader.columns.names())
    others = [_other_row(readers, name) for name in sorted(names[0] & names[1]) if name not in main]
    others.sort(key=lambda row: (row["from"] is None, row["from"] or 0.0, row["name"]))
    return {
        "runs": [{"is": letter, **plain(run)} for letter, run in zip(RUNS, comparison.runs, strict=True)],
        "diverged": comparison.diverged,
        "readings": [*rows, *others],
        "settings": plain(comparison.config),
        "settings_same": comparison.same,
        "only_in": {"A": sorted(names[0] - names[1]), "B": sorted(names[1] - names[0])},
    }


def _measure_row(measure: ComparedMeasure) -> dict[str, Any]:
    ends = [_ends(np.array([np.nan if y is None else y for y in run.y], np.float64)) for run in measure.runs]
    return _row(measure.name, measure.label, ends, measure.difference, main=True)


def _other_row(readers: Sequence[RunReader], name: str) -> dict[str, Any]:
    paths = []
    for reader in readers:
        series = reader.columns.lineage_series(name)
        mask = np.isfinite(series.values)
        steps, values = series.steps[mask], series.values[mask]
        paths.append(Line(steps, steps.astype(np.float64), values, series.stderr[mask], None, True))
    return _row(name, name, [_ends(path.y) for path in paths], difference(paths[0], paths[1]), main=False)


def _ends(values: Any) -> tuple[float | None, float | None]:
    values = values[np.isfinite(values)]
    if not len(values):
        return None, None
    return float(values[:ENDS].mean()), float(values[-ENDS:].mean())


def _row(name: str, label: str, ends: Any, way: CurveDifference | None, *, main: bool) -> dict[str, Any]:
    last = None if way is None else {"y": way.y[-1], "low": way.low[-1], "high": way.high[-1]}
    return {
        "name": name,
        "label": label,
        "main": main,
        **{letter: {"first": first, "last": end} for letter, (first, end) in zip(RUNS, ends, strict=True)},
        "difference": last,  # B less A, over the last stretch that both have been through, with a 95 % interval
        "from": None if way is None else finite_or_none(way.first),  # step from which on they differ lastingly
    }


# -- output -----------------------------------------------------------------------------------------------------------


def rows_to_show(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    """The main readings, then others that diverge, earliest first."""
    others = [row for row in comparison["readings"] if not row["main"] and row["from"] is not None]
    return [row for row in comparison["readings"] if row["main"]] + others[:SHOWN]


def headline(comparison: dict[str, Any]) -> str:
    if comparison["diverged"]:
        return f"They differ lastingly, first in: {comparison['diverged']}."
    if all(row["difference"] is None for row in comparison["readings"]):
        return "Nothing could be compared: they have too few steps in common."
    return "They do not differ lastingly in reward, gold, KL, entropy or length."


def footer(comparison: dict[str, Any]) -> str:
    count = sum(row["from"] is not None for row in comparison["readings"] if not row["main"])
    more = f" {count - SHOWN} more readings differ: --json." if count > SHOWN else ""
    return f"{comparison['settings_same']} settings are the same.{more}"


def cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """First and last value of A and of B, their difference at the end, and the step from which they differ."""
    arcs = [f"{_number(row[run]['first'])} → {_number(row[run]['last'])}" for run in RUNS]
    way = row["difference"]
    apart = "–" if way is None else f"{_number(way['y'])} [{_number(way['low'])}, {_number(way['high'])}]"
    return arcs[0], arcs[1], apart, "–" if row["from"] is None else f"step {row['from']:.0f}"


def _number(value: float | None) -> str:
    """Three digits: two arcs and an interval must fit beside each other."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value if abs(value) > 1e-12 else 0.0:.3g}"


def text_lines(comparison: dict[str, Any]) -> list[str]:
    output = [
        f"{run['is']}: {run['name']}  {run['state']}  step {run['step']}  {run['sentence']}"
        for run in comparison["runs"]
    ]
    output.append(headline(comparison))
    for row in rows_to_show(comparison):
        first, second, apart, since = cells(row)
        text = f"{row['label']}: A {first}; B {second}; B - A {apart}; differs from {since}"
        output.append(text.replace("→", "->").replace("–", "-"))
    settings = [f"setting {row['name']}: A {row['values'][0]}; B {row['values'][1]}" for row in comparison["settings"]]
    return [*output, *settings, footer(comparison)]


def markdown(comparison: dict[str, Any]) -> list[str]:
    output = [f"## {safe(headline(comparison))}", ""]
    output += [
        f"- {run['is']}: {safe(run['name'])}, **{run['state']}** at step {run['step']}: {safe(run['sentence'])}"
        for run in comparison["runs"]
    ]
    output += ["", "| reading | A | B | B - A at the end (95 %) | differs from |", "|---|---|---|---|---|"]
    output += [f"| {safe(row['label'])} | {' | '.join(cells(row))} |" for row in rows_to_show(comparison)]
    if comparison["settings"]:
        output += ["", "| setting | A | B |", "|---|---|---|"]
        output += [
            f"| {safe(row['name'])} | {' | '.join(safe(one) for one in row['values'])} |"
            for row in comparison["settings"]
        ]
    return [*output, "", footer(comparison)]


def render_diff(comparison: dict[str, Any]) -> RenderableType:
    heads = []
    for run in comparison["runs"]:
        colour = STATES[run["state"]].colour.terminal
        mark = (f" {STATES[run['state']].icon} {run['state']} ", f"{colour} reverse")
        heads.append(Text.assemble(f"{run['is']} ", mark, "  ", terminal(run["name"], 40), f" · step {run['step']}"))
        heads.append(Text.assemble("  ", terminal(run["sentence"], 300)))
    readings = Table(box=None, pad_edge=False, header_style="dim")
    readings.add_column("", min_width=18)
    for title in ("A", "B", "B - A (95 %)", "from"):
        readings.add_column(title, no_wrap=title != "B - A (95 %)")
    for row in rows_to_show(comparison):
        # Eighty columns are few for two arcs and an interval.
        shorter = [cell.replace(" → ", "→").removeprefix("step ") for cell in cells(row)]
        readings.add_row(terminal(row["label"], 40), *shorter)
    parts: list[RenderableType] = [*heads, Text(), Text(headline(comparison), "bold"), Text(), readings]
    if comparison["settings"]:
        settings = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("setting", "A", "B"):
            settings.add_column(title)
        for row in comparison["settings"]:
            settings.add_row(terminal(row["name"], 40), *(terminal(one, 40) for one in row["values"]))
        parts += [Text(), settings]
    return Group(*parts, Text(), Text(footer(comparison), "dim"))
