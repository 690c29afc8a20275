"""Parts that several terminal reports share: an interval as a bar, small tables, examples and lists."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from tiltmeter.safety.safe_text import terminal
from tiltmeter.view.check_report.tables import Rows, cell, is_numeric, titles

PICTURE, ROWS, COLUMNS, CELL = 17, 6, 6, 24  # characters of a bar; rows, columns and characters of a table
INSIDE = (0, 0, 0, 2)  # below a title


def interval_bar(value: float, low: float, high: float, *, left: float, zero: float, right: float, style: str) -> Text:
    """The interval on an axis from `left` to `right`, with a stroke at `zero`, which means no effect: an interval clear
    of the stroke is an effect. An unknown end is drawn at the value."""

    def at(place: float) -> int:
        return round((PICTURE - 1) * min(1.0, max(0.0, (place - left) / (right - left))))

    low, high = (end if math.isfinite(end) else value for end in (low, high))
    line = [" "] * PICTURE
    line[at(zero)] = "│"
    line[at(low) : at(high) + 1] = "━" * (at(high) + 1 - at(low))
    if at(low) <= at(zero) <= at(high):
        line[at(zero)] = "┿"
    line[at(value)] = "●"
    return Text("".join(line), style=style)


def rows_table(rows: Rows, leave_out: Sequence[str] = ()) -> Table:
    """The small table of a check, as far as a terminal has room for it."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    names = [name for name in titles(rows) if name not in leave_out][:COLUMNS]
    for name in names:
        title = terminal(name.replace("_", " "), CELL)
        words = Text("\n".join(title.plain.split()))  # below each other: a wide heading would push others out
        table.add_column(words, justify="right" if is_numeric(rows, name) else "left", no_wrap=True)
    for row in rows[:ROWS]:
        table.add_row(*(terminal(cell(row.get(name)), CELL) for name in names))
    if len(rows) > ROWS:
        table.add_row(Text(f"… {len(rows) - ROWS} more", style="dim"))
    return table


def render_example(title: str, why: str, texts: Mapping[str, str]) -> Iterator[RenderableType]:
    """An example: its title, why it is shown, and each text beside its name."""
    yield Text.assemble("\n", terminal(f"{title}{f': {why}' if why else ''}", 200), style="bold")
    grid = Table.grid(padding=(0, 2))
    for name, text in texts.items():
        grid.add_row(Text(name, style="dim"), terminal(text, 240))
    yield Padding(grid, INSIDE)


def render_lists(parts: Mapping[str, Sequence[str]]) -> Iterator[RenderableType]:
    """Lines under titles; a title without lines is left out."""
    for title, lines in parts.items():
        if lines:
            yield Text(f"\n{title}", style="bold")
            yield from (Padding(terminal(f"· {line}", 800), INSIDE) for line in lines)
