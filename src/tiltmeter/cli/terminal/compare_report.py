"""Terminal report of a comparison: the verdict, the table of measures, and examples of each cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tiltmeter.cli.terminal.report_parts import INSIDE, PICTURE, interval_bar, render_example, render_lists, rows_table
from tiltmeter.safety.safe_text import terminal
from tiltmeter.workbench.compare.measures.measure import Measure
from tiltmeter.workbench.compare.render import axis, difference, figure, fixes, missing, notes, shows_table

if TYPE_CHECKING:
    from tiltmeter.workbench.compare.report import ComparisonReport

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


def render_comparison(report: ComparisonReport, width: int = WIDE) -> Iterator[RenderableType]:
    """The report for a person at a terminal."""
    state = report.verdict.state
    yield Text.assemble((state.upper(), STYLES[state]), " ", terminal(report.verdict.sentence, 1200))
    yield terminal(f"{report.checkpoint} against {report.base}", 400)
    yield Text()
    yield _measure_table(report.ordered, width >= WIDE)
    for measure in report.ordered:
        yield from _measure_section(measure)
    for measure in report.costs[:3]:
        for sample in measure.examples[:1]:
            texts = {"prompt": sample.prompt, "base": sample.base, "checkpoint": sample.checkpoint}
            yield from render_example(measure.title, sample.why, texts)
    yield from render_lists(
        {
            "What to do": fixes(report),
            "Not asked": missing(report),
            "What was read": report.input_notes,
            "Before you believe it": notes(report),
        }
    )


def _measure_table(measures: Sequence[Measure], with_bars: bool) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("measure", max_width=26)
    for name in ("base", "checkpoint", "difference"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("", "state") if with_bars else ("state",):
        table.add_column(name, no_wrap=True)
    for measure in measures:
        style = STYLES[measure.state]
        bars = (interval_picture(measure),) if with_bars else ()
        table.add_row(
            Text(terminal(measure.title, 48).plain, style=style), figure(measure.base), figure(measure.checkpoint),
            difference(measure, 2), *bars, Text(measure.state, style=style),
        )  # fmt: skip
    return table


def interval_picture(measure: Measure) -> Text:
    """The measure's interval, no difference in the middle; blank where there is nothing to draw."""
    scale = axis(measure)
    if scale is None:
        return Text(" " * PICTURE)
    return interval_bar(
        measure.difference, measure.low, measure.high, left=scale.left, zero=0.0, right=scale.right,
        style=STYLES[measure.state],
    )  # fmt: skip


def _measure_section(measure: Measure) -> Iterator[RenderableType]:
    """A measure's sentence, and its small table where something was found."""
    name = Text(f"\n{terminal(measure.title, 48).plain}", style="bold")
    unit = f" ({measure.unit})" if measure.unit else ""
    yield Text.assemble(name, Text(unit, style="dim"))
    yield Padding(terminal(measure.sentence, 600), INSIDE)
    if shows_table(measure):
        yield Padding(rows_table(measure.rows), INSIDE)
