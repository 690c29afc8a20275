"""A report for a person at a terminal: no markup is read in foreign text, and no escape passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tiltmeter.safety.safe_text import terminal
from tiltmeter_workbench.check_report.report import Check, CheckGroup, Example, Report, Tone
from tiltmeter_workbench.check_report.tables import Rows, cell, is_numeric, titles

STYLES: Mapping[Tone, str] = {
    "bad": "bold red",
    "good": "green",
    "doubt": "yellow",
    "plain": "cyan",
    "faint": "dim",
}
WIDE = 100  # characters of a terminal that has room for figures and bars
PICTURE, ROWS, COLUMNS, CELL = 17, 6, 6, 24  # characters of a bar; rows, columns and characters of a table
NAME = 28  # characters of a line of a check's name
SHOWN = 3  # bad checks of a group of which an example is shown
INSIDE = (0, 0, 0, 2)  # below a title


def print_report(report: Report) -> None:
    """The report on standard output."""
    console = Console(highlight=False, markup=False)
    for part in render_report(report, console.width):
        console.print(part)


def render_report(report: Report, width: int = WIDE) -> Iterator[RenderableType]:
    """The report, part by part."""
    yield Text.assemble((report.state.upper(), STYLES[report.tone]), " ", terminal(report.headline, 1200))
    yield terminal(": ".join(part for part in (report.title, report.size) if part), 400)
    yield from render_lists(report.opening)
    groups = [group for group in report.groups if group.checks]
    for group in groups:
        yield Text(f"\n{group.title}" if len(groups) > 1 else "", style="bold")
        yield check_table(group, width)
        for check in group.in_short():
            yield from _details(check, with_sentence=bool(group.columns))
        yield from _examples(group)
    yield from render_lists(report.all_lists)


def check_table(group: CheckGroup, width: int) -> Table:
    """A row for each check. Its sentence tells its figures; where there are columns, it stands below the table."""
    columns, checks = group.columns, group.in_short()
    with_words = group.has_sentences and not columns
    with_figures = group.has_figures and not with_words
    with_bars = group.has_figures and (width >= WIDE or not columns)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(group.noun, max_width=NAME)
    for name in columns:
        numeric = is_numeric([check.columns for check in checks], name)
        table.add_column(name, justify="right" if numeric else "left", no_wrap=numeric)
    if with_figures:
        table.add_column(group.estimate, justify="right", no_wrap=True)
    for name in ("", "state") if with_bars else ("state",):
        table.add_column(name, no_wrap=True)
    if with_words:
        table.add_column("in words")
    for check in checks:
        style = STYLES[check.tone]
        cells: list[RenderableType] = [Text(terminal(check.heading, 80).plain, style=style, overflow="fold")]
        cells += [terminal(cell(check.columns.get(name)), CELL) for name in columns]
        cells += [check.figure(2) or "–"] if with_figures else []
        cells += [interval_picture(check)] if with_bars else []
        cells += [Text(check.state, style=style)]
        cells += [terminal(check.sentence, 1000)] if with_words else []
        table.add_row(*cells)
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
    yield Text.assemble(Text(f"\n{terminal(check.heading, 80).plain}", style="bold"), unit)
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


def _examples(group: CheckGroup) -> Iterator[RenderableType]:
    """One example of each of the first bad checks, and how many more there are."""
    with_examples = [check for check in group.checks if check.tone == "bad" and check.examples]
    for check in with_examples[:SHOWN]:
        yield from render_example(check.heading, check.examples[0])
    if more := sum(len(check.examples) for check in group.checks) - len(with_examples[:SHOWN]):
        yield Padding(Text(f"more examples in --json: {more}", style="dim"), INSIDE)


def render_example(title: str, example: Example) -> Iterator[RenderableType]:
    """An example: its title, why it is shown, and each text beside its name."""
    row = "" if example.row is None else f", row {example.row}"
    why = f": {example.why}" if example.why else ""
    yield Text.assemble("\n", terminal(f"{title}{row}{why}", 200), style="bold")
    grid = Table.grid(padding=(0, 2))
    for name, text in example.texts.items():
        grid.add_row(Text(terminal(name, CELL).plain, style="dim"), terminal(text, 400))
    yield Padding(grid, INSIDE)


def render_lists(parts: Mapping[str, Sequence[str]]) -> Iterator[RenderableType]:
    """Lines under titles; a title without lines is left out."""
    for title, lines in parts.items():
        if lines:
            yield Text(f"\n{title}", style="bold")
            yield from (Padding(terminal(f"· {line}", 800), INSIDE) for line in lines)
