"""A comparison for a person at a terminal: the verdict, the table that prices it, and examples of each cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.checks_view import INSIDE, PICTURE, example, interval, lists, rows_table
from tiltmeter.compare.measure import Measure
from tiltmeter.compare.telling import axis, difference, figure, fixes, missing, notes, tabled
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
        for shown in measure.examples[:1]:
            texts = {"prompt": shown.prompt, "base": shown.base, "checkpoint": shown.checkpoint}
            yield from example(measure.title, shown.why, texts)
    yield from lists(
        {
            "What to do": fixes(report),
            "Not asked": missing(report),
            "What was read": report.told,
            "Before you believe it": notes(report),
        }
    )


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
    """The measure's interval, no difference in the middle; blank where there is nothing to draw."""
    drawn = axis(measure)
    if drawn is None:
        return Text(" " * PICTURE)
    return interval(
        measure.difference, measure.low, measure.high, left=drawn.left, zero=0.0, right=drawn.right,
        style=STYLES[measure.state],
    )  # fmt: skip


def _said(measure: Measure) -> Iterator[RenderableType]:
    """A measure's sentence, and its small table where something was found."""
    name = Text(f"\n{terminal(measure.title, 48).plain}", style="bold")
    unit = f" ({measure.unit})" if measure.unit else ""
    yield Text.assemble(name, Text(unit, style="dim"))
    yield Padding(terminal(measure.sentence, 600), INSIDE)
    if tabled(measure):
        yield Padding(rows_table(measure.rows), INSIDE)
