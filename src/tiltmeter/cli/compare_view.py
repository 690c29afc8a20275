"""A comparison for a person at a terminal: the verdict, the table that prices it, and examples of each cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tiltmeter.compare.measure import Measure
from tiltmeter.compare.telling import axis, cell, difference, figure, fixes, missing, notes, tabled, titles
from tiltmeter.encode import terminal

if TYPE_CHECKING:
    from tiltmeter.compare.report import Report

STYLES = {
    "worse": "bold red",
    "better": "green",
    "same": "green",
    "cannot tell": "yellow",
    "shown": "cyan",
    "healthy": "green",
    "costs": "bold red",
    "drift": "bold red",
}
PICTURE, ROWS, COLUMNS, CELL = 17, 6, 6, 24  # characters of a bar; rows, columns and characters of a table
WIDE = 100  # characters of a terminal that has room for the bars


def screen(report: Report, width: int = WIDE) -> Iterator[RenderableType]:
    """The report for a person at a terminal."""
    state = report.verdict.state
    yield Text.assemble((state.upper(), STYLES[state]), " ", terminal(report.verdict.sentence, 1200))
    yield terminal(f"{report.checkpoint} against {report.base}", 400)
    yield Text()
    yield _priced(report.priced, width >= WIDE)
    for measure in report.priced:
        yield from _said(measure)
    for measure in report.costs[:3]:
        yield from _example(measure)
    for title, lines in (
        ("What to do", fixes(report)),
        ("Not asked", missing(report)),
        ("What was read", report.told),
        ("Before you believe it", notes(report)),
    ):
        if lines:
            yield Text(f"\n{title}", style="bold")
            yield from (Padding(terminal(f"· {line}", 800), (0, 0, 0, 2)) for line in lines)


def _priced(measures: Sequence[Measure], drawn: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("measure", max_width=26)
    for name in ("base", "checkpoint", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("", "state") if drawn else ("state",):
        table.add_column(name, no_wrap=True)
    for measure in measures:
        style = STYLES[measure.state]
        picture_of = (picture(measure),) if drawn else ()
        table.add_row(
            Text(terminal(measure.title, 48).plain, style=style), figure(measure.base), figure(measure.checkpoint),
            difference(measure, 2), *picture_of, Text(measure.state, style=style),
        )  # fmt: skip
    return table


def picture(measure: Measure) -> Text:
    """The interval on a line with no difference in its middle."""
    drawn = axis(measure)
    if drawn is None:
        return Text(" " * PICTURE)

    def at(value: float) -> int:
        return round((PICTURE - 1) * (value - drawn.left) / (drawn.right - drawn.left))

    low, high = (end if math.isfinite(end) else measure.difference for end in (measure.low, measure.high))
    line = [" "] * PICTURE
    line[at(0.0)] = "│"
    line[at(low) : at(high) + 1] = "━" * (at(high) + 1 - at(low))
    if at(low) <= at(0.0) <= at(high):
        line[at(0.0)] = "┿"
    line[at(measure.difference)] = "●"
    return Text("".join(line), style=STYLES[measure.state])


def _said(measure: Measure) -> Iterator[RenderableType]:
    """A measure's sentence, and its small table where something was found."""
    name = Text(f"\n{terminal(measure.title, 48).plain}", style="bold")
    unit = f" ({measure.unit})" if measure.unit else ""
    yield Text.assemble(name, Text(unit, style="dim"))
    yield Padding(terminal(measure.sentence, 600), (0, 0, 0, 2))
    if tabled(measure):
        yield Padding(_rows(measure.rows), (0, 0, 0, 2))


def _rows(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    names = titles(rows)[:COLUMNS]
    for name in names:
        number = all(isinstance(row.get(name), (int, float, type(None))) for row in rows)
        words = Text("\n".join(terminal(name.replace("_", " "), CELL).plain.split()))
        table.add_column(words, justify="right" if number else "left", no_wrap=True)
    for row in rows[:ROWS]:
        table.add_row(*(terminal(cell(row.get(name)), CELL) for name in names))
    if len(rows) > ROWS:
        table.add_row(Text(f"… {len(rows) - ROWS} more", style="dim"))
    return table


def _example(measure: Measure) -> Iterator[RenderableType]:
    if not measure.examples:
        return
    shown = measure.examples[0]
    why = f": {shown.why}" if shown.why else ""
    yield Text.assemble("\n", terminal(f"{measure.title}{why}", 200), style="bold")
    grid = Table.grid(padding=(0, 2))
    for name, text in (("prompt", shown.prompt), ("base", shown.base), ("checkpoint", shown.checkpoint)):
        grid.add_row(Text(name, style="dim"), terminal(text, 240))
    yield Padding(grid, (0, 0, 0, 2))
