"""A report for a person at a terminal: no markup is read in foreign text, and no escape passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tiltmeter.safety.safe_text import terminal
from tiltmeter.view.check_report.report import Check, CheckGroup, Example, Report, Tone
from tiltmeter.view.check_report.tables import Rows, cell, is_numeric, titles

STYLES: Mapping[Tone, str] = {
    "bad": "bold red",
    "good": "green",
    "doubt": "yellow",
    "plain": "cyan",
    "faint": "dim",
}
WIDE = 100  # characters of a terminal that has room for figures and bars
PICTURE, ROWS, COLUMNS, CELL = 17, 6, 6, 24  # characters of a bar; rows, columns and characters of a table
NAME = 26  # characters of a line of a check's name
SHOWN = 3  # bad checks of which an example is shown
INSIDE = (0, 0, 0, 2)  # below a title


def render_report(report: Report, width: int = WIDE) -> Iterator[RenderableType]:
    """The report, part by part."""
    yield Text.assemble((report.state.upper(), STYLES[report.tone]), " ", terminal(report.headline, 1200))
    yield terminal(": ".join(part for part in (report.title, report.size) if part), 400)
    yield from render_lists(report.opening)
    for group in report.groups:
        if group.checks:
            yield Text(f"\n{group.title}" if len(report.groups) > 1 else "", style="bold")
            yield check_table(group, width)
            for check in group.in_short():
                yield from _details(check, with_sentence=bool(group.columns))
    for check in [check for check in report.checks if check.tone == "bad"][:SHOWN]:
        for example in check.examples[:1]:
            yield from render_example(check.heading, example)
    yield from render_lists(report.all_lists)


def check_table(group: CheckGroup, width: int) -> Table:
    """A row for each check. Where it has figures of its own, its sentence stands below the table."""
    columns, checks = group.columns, group.in_short()
    with_bars = (width >= WIDE or not columns) and any(check.axis is not None for check in checks)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(group.noun, max_width=NAME)
    for name in columns:
        numeric = is_numeric([check.columns for check in checks], name)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=True)
    if columns:
        table.add_column(group.estimate, justify="right", no_wrap=True)
    for name in ("", "state") if with_bars else ("state",):
        table.add_column(name, no_wrap=True)
    if not columns:
        table.add_column("in words")
    for check in checks:
        style = STYLES[check.tone]
        figures = [*(terminal(cell(check.columns.get(name)), CELL) for name in columns)]
        table.add_row(
            Text(terminal(check.heading, 60).plain, style=style, overflow="fold"), *figures,
            *((check.figure(2) or "–",) if columns else ()), *((interval_picture(check),) if with_bars else ()),
            Text(check.state, style=style), *(() if columns else (terminal(check.sentence, 500),)),
        )  # fmt: skip
    if len(checks) < len(group.checks):
        states = ", ".join(dict.fromkeys(check.state for check in group.checks if check not in checks))
        table.add_row(Text(f"… {len(group.checks) - len(checks)} more: {states}", style="dim", overflow="fold"))
    return table


def interval_picture(check: Check) -> Text:
    """The interval on its axis, with a stroke at no effect: an interval clear of the stroke is an effect."""
    axis = check.axis
    if axis is None or not math.isfinite(check.estimate):
        return Text(" " * PICTURE)

    def at(value: float) -> int:
        return round((PICTURE - 1) * axis.share(value))

    low, high = map(at, check.drawn_ends())
    line = [" "] * PICTURE
    line[at(axis.zero)] = "│"
    line[low : high + 1] = "━" * (high + 1 - low)
    if low <= at(axis.zero) <= high:
        line[at(axis.zero)] = "┿"
    line[at(check.estimate)] = "●"
    return Text("".join(line), style=STYLES[check.tone])


def _details(check: Check, *, with_sentence: bool) -> Iterator[RenderableType]:
    rows = check.rows if check.rows_in_short else ()
    if not rows and not (with_sentence and check.sentence):
        return
    unit = Text(f" ({terminal(check.unit, 60).plain})" if check.unit and with_sentence else "", style="dim")
    yield Text.assemble(Text(f"\n{terminal(check.heading, 60).plain}", style="bold"), unit)
    if with_sentence:
        yield Padding(terminal(check.sentence, 600), INSIDE)
    if rows:
        yield Padding(rows_table(rows), INSIDE)


def rows_table(rows: Rows) -> Table:
    """The small table of a check, as far as a terminal has room for it: the ends of intervals go first."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    names = titles(rows)
    names = names if len(names) <= COLUMNS else [name for name in names if name not in ("low", "high")][:COLUMNS]
    for name in names:
        title = terminal(name.replace("_", " "), CELL)
        words = Text("\n".join(title.plain.split()))  # below each other: a wide heading would push others out
        table.add_column(words, justify="right" if is_numeric(rows, name) else "left", no_wrap=True)
    for row in rows[:ROWS]:
        table.add_row(*(terminal(cell(row.get(name)), CELL) for name in names))
    if len(rows) > ROWS:
        table.add_row(Text(f"… {len(rows) - ROWS} more", style="dim"))
    return table


def render_example(title: str, example: Example) -> Iterator[RenderableType]:
    """An example: its title, why it is shown, and each text beside its name."""
    row = "" if example.row is None else f", row {example.row}"
    why = f": {example.why}" if example.why else ""
    yield Text.assemble("\n", terminal(f"{title}{row}{why}", 200), style="bold")
    grid = Table.grid(padding=(0, 2))
    for name, text in example.texts.items():
        grid.add_row(Text(terminal(name, CELL).plain, style="dim"), terminal(text, 240))
    yield Padding(grid, INSIDE)


def render_lists(parts: Mapping[str, Sequence[str]]) -> Iterator[RenderableType]:
    """Lines under titles; a title without lines is left out."""
    for title, lines in parts.items():
        if lines:
            yield Text(f"\n{title}", style="bold")
            yield from (Padding(terminal(f"· {line}", 800), INSIDE) for line in lines)
