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

from tiltmeter.adapters.readers.foreign import Asked
from tiltmeter.audit import audit
from tiltmeter.cli.screen import COLOURS, printed
from tiltmeter.cli.show import Json, Plain
from tiltmeter.config import Config
from tiltmeter.encode import log_line, terminal
from tiltmeter.engine import open_engine
from tiltmeter.errors import StoreError
from tiltmeter.page.book import Book
from tiltmeter.page.compare import MEASURES, compare, difference
from tiltmeter.page.compare import Path as Line
from tiltmeter.page.words import finite
from tiltmeter.report.markdown import line as safe
from tiltmeter.store import RunDirectory
from tiltmeter.verdict import ICONS

ENDS = 5  # steps at either end of a run whose mean is called first and last
SHOWN = 12  # readings beside the main ones, those that part first
RUNS = "AB"

First = Annotated[Path, typer.Argument(help="A run directory, or another tool's files.", metavar="A")]
Second = Annotated[Path, typer.Argument(help="Another one.", metavar="B")]
Markdown = Annotated[bool, typer.Option("--md", help="Markdown, to paste into an issue.")]


def diff(a: First, b: Second, json: Json = False, md: Markdown = False, plain: Plain = False) -> None:
    """Compare two runs: verdicts, readings with intervals, the first step from which they differ, and settings.

    Example: tiltmeter diff runs/before runs/after

    They differ lastingly from where on five stretches in a row have an interval without 0. Exit code: 0 both were
    judged and do not differ lastingly, 1 one of them has an alarm or they differ, 2 could not judge.
    """
    if json + md + plain > 1:
        raise typer.BadParameter("choose one of --json, --md and --plain")
    with tempfile.TemporaryDirectory(prefix="tiltmeter-diff-") as scratch:
        books = [Book(_run(place, Path(scratch) / name)) for place, name in zip((a, b), RUNS, strict=True)]
        for book in books:
            book.refresh()
        told = compared(books)
    if json:
        printed(json_module.dumps(told, allow_nan=False) + "\n")
    elif md:
        printed("\n".join(markdown(told)) + "\n")
    elif plain or not sys.stdout.isatty():
        safe_lines = (log_line(text, 400).encode("ascii", "backslashreplace").decode() for text in lines(told))
        printed("".join(f"{text}\n" for text in safe_lines))
    else:
        Console(highlight=False, markup=False).print(screen(told))
    raise typer.Exit(exit_code(books, told))


def exit_code(books: Sequence[Book], told: dict[str, Any]) -> int:
    """1 for an alarm whatever else there is; 2 if one could not be judged or nothing could be compared."""
    codes = [book.verdict.exit_code for book in books]
    if 1 in codes:
        return 1
    if 2 in codes or all(row["difference"] is None for row in told["readings"]):
        return 2
    return 1 if told["diverged"] else 0


def _run(place: Path, home: Path) -> RunDirectory:
    """The run at a place; another tool's files are audited first, so that there is something to compare."""
    if (place / "run.json").exists():
        RunDirectory(place).identity()
        return RunDirectory(place)
    found = list(audit(place, home, Asked(), Config.standard(), engine=open_engine("processes")))
    if len(found) != 1:
        raise StoreError(f"{place} holds {len(found)} runs: name one of them")
    return found[0].run


def compared(books: Sequence[Book]) -> dict[str, Any]:
    """What two runs have in common and what not. Texts of completions are left to the page."""
    told = compare(books)
    main = dict(MEASURES)
    rows = [_measure(measure) for measure in told["measures"]]
    known = [set(book.columns.names()) for book in books]
    for book in books:
        book.columns.gather(book.columns.names())
    others = [_other(books, name) for name in sorted(known[0] & known[1]) if name not in main]
    others.sort(key=lambda row: (row["from"] is None, row["from"] or 0.0, row["name"]))
    return {
        "runs": [{"is": letter, **run} for letter, run in zip(RUNS, told["runs"], strict=True)],
        "diverged": told["diverged"],
        "readings": [*rows, *others],
        "settings": told["config"],
        "settings_same": told["same"],
        "only_in": {"A": sorted(known[0] - known[1]), "B": sorted(known[1] - known[0])},
    }


def _measure(measure: dict[str, Any]) -> dict[str, Any]:
    ends = [_ends(np.array([np.nan if y is None else y for y in run["y"]], np.float64)) for run in measure["runs"]]
    return _row(measure["name"], measure["label"], ends, measure["difference"], main=True)


def _other(books: Sequence[Book], name: str) -> dict[str, Any]:
    paths = []
    for book in books:
        found = book.columns.line(name)
        known = np.isfinite(found.values)
        steps, values = found.steps[known], found.values[known]
        paths.append(Line(steps, steps.astype(np.float64), values, found.stderr[known], None, True))
    return _row(name, name, [_ends(path.y) for path in paths], difference(*paths), main=False)


def _ends(values: Any) -> tuple[float | None, float | None]:
    values = values[np.isfinite(values)]
    if not len(values):
        return None, None
    return float(values[:ENDS].mean()), float(values[-ENDS:].mean())


def _row(name: str, label: str, ends: Any, way: dict[str, Any] | None, *, main: bool) -> dict[str, Any]:
    last = None if way is None else {key: way[key][-1] for key in ("y", "low", "high")}
    return {
        "name": name,
        "label": label,
        "main": main,
        **{letter: {"first": first, "last": end} for letter, (first, end) in zip(RUNS, ends, strict=True)},
        "difference": last,  # B less A, over the last stretch that both have been through, with a 95 % interval
        "from": None if way is None else finite(way["first"]),  # step from which on they differ lastingly
    }


# -- words ------------------------------------------------------------------------------------------------------------


def shown(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The main readings, then others that part, first who parts first."""
    others = [row for row in told["readings"] if not row["main"] and row["from"] is not None]
    return [row for row in told["readings"] if row["main"]] + others[:SHOWN]


def headline(told: dict[str, Any]) -> str:
    if told["diverged"]:
        return f"They differ lastingly, first in: {told['diverged']}."
    if all(row["difference"] is None for row in told["readings"]):
        return "Nothing could be compared: they have too few steps in common."
    return "They do not differ lastingly in reward, gold, KL, entropy or length."


def rest(told: dict[str, Any]) -> str:
    parted = sum(row["from"] is not None for row in told["readings"] if not row["main"])
    more = f" {parted - SHOWN} more readings differ: --json." if parted > SHOWN else ""
    return f"{told['settings_same']} settings are the same.{more}"


def cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """A from where to where, B likewise, how far apart at the end, and since when."""
    arcs = [f"{_number(row[run]['first'])} → {_number(row[run]['last'])}" for run in RUNS]
    way = row["difference"]
    apart = "–" if way is None else f"{_number(way['y'])} [{_number(way['low'])}, {_number(way['high'])}]"
    return arcs[0], arcs[1], apart, "–" if row["from"] is None else f"step {row['from']:.0f}"


def _number(value: float | None) -> str:
    """Three digits: two arcs and an interval must fit beside each other."""
    if value is None or not np.isfinite(value):
        return "–"
    return f"{value if abs(value) > 1e-12 else 0.0:.3g}"


def lines(told: dict[str, Any]) -> list[str]:
    found = [
        f"{run['is']}: {run['name']}  {run['state']}  step {run['step']}  {run['sentence']}" for run in told["runs"]
    ]
    found.append(headline(told))
    for row in shown(told):
        first, second, apart, since = cells(row)
        text = f"{row['label']}: A {first}; B {second}; B - A {apart}; differs from {since}"
        found.append(text.replace("→", "->").replace("–", "-"))
    settings = [f"setting {row['name']}: A {row['values'][0]}; B {row['values'][1]}" for row in told["settings"]]
    return [*found, *settings, rest(told)]


def markdown(told: dict[str, Any]) -> list[str]:
    found = [f"## {safe(headline(told))}", ""]
    found += [
        f"- {run['is']}: {safe(run['name'])}, **{run['state']}** at step {run['step']}: {safe(run['sentence'])}"
        for run in told["runs"]
    ]
    found += ["", "| reading | A | B | B - A at the end (95 %) | differs from |", "|---|---|---|---|---|"]
    found += [f"| {safe(row['label'])} | {' | '.join(cells(row))} |" for row in shown(told)]
    if told["settings"]:
        found += ["", "| setting | A | B |", "|---|---|---|"]
        found += [
            f"| {safe(row['name'])} | {' | '.join(safe(one) for one in row['values'])} |" for row in told["settings"]
        ]
    return [*found, "", rest(told)]


def screen(told: dict[str, Any]) -> RenderableType:
    heads = []
    for run in told["runs"]:
        colour = COLOURS[run["state"]]
        mark = (f" {ICONS[run['state']]} {run['state']} ", f"{colour} reverse")
        heads.append(Text.assemble(f"{run['is']} ", mark, "  ", terminal(run["name"], 40), f" · step {run['step']}"))
        heads.append(Text.assemble("  ", terminal(run["sentence"], 300)))
    readings = Table(box=None, pad_edge=False, header_style="dim")
    readings.add_column("", min_width=18)
    for title in ("A", "B", "B - A (95 %)", "from"):
        readings.add_column(title, no_wrap=title != "B - A (95 %)")
    for row in shown(told):
        # Eighty columns are few for two arcs and an interval.
        shorter = [cell.replace(" → ", "→").removeprefix("step ") for cell in cells(row)]
        readings.add_row(terminal(row["label"], 40), *shorter)
    parts: list[RenderableType] = [*heads, Text(), Text(headline(told), "bold"), Text(), readings]
    if told["settings"]:
        settings = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("setting", "A", "B"):
            settings.add_column(title)
        for row in told["settings"]:
            settings.add_row(terminal(row["name"], 40), *(terminal(one, 40) for one in row["values"]))
        parts += [Text(), settings]
    return Group(*parts, Text(), Text(rest(told), "dim"))
