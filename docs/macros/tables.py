"""How a result becomes text of a page: a number, a cell, a table, and where it came from."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tiltmeter.safety.safe_text import log_line

PENDING, UNREADABLE = "*not measured yet*", "*the results file could not be read*"
#: What `benchmarks/record.py` adds to the figures: how they were made.
ORIGIN = ("command", "seed", "version", "revision", "rooms", "python", "cpu", "cores", "load_1min")

_MEANINGS = {"<": "&lt;", "\n": " "} | {char: f"\\{char}" for char in "\\|*_[]>"}

Record = Mapping[str, Any]


def number(value: object, digits: int = 3) -> str:
    """A value as it may stand in a sentence. Text is Markdown: what others wrote goes through `literal` or `cell`."""
    if value is None:
        return "–"
    if isinstance(value, list):
        between = "; " if any(isinstance(one, list) for one in value) else ", "
        return between.join(number(one, digits) for one in value) or "none"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}g}"


def cell(value: object, digits: int = 4) -> str:
    """A value of a results file as it may stand in a table: its text does nothing there."""
    return escape(number(value, digits))


def escape(text: str) -> str:
    """Text on one line that Markdown and HTML read nothing into."""
    return "".join(_MEANINGS.get(char, char) for char in text)


def literal(text: str, limit: int = 400) -> str:
    """What a model wrote, in one safe line of limited length: what could mean something in a page is an entity."""
    return "".join(char if char.isalnum() or char in " ./-:," else f"&#{ord(char)};" for char in log_line(text, limit))


def one_line(text: str) -> str:
    """Markdown of ours as it may stand in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(heads: str, rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table, its heads as `a | b`; one without rows was not measured."""
    return _lines(heads, (" | ".join(map(number, row)) for row in rows))


def columns(heads: str, cells: str, rows: Iterable[Record]) -> str:
    """Records as a table with the same cells for each.

    `{gain}` is a figure of the record, `{gain:+.2f}` in Python's format (each, if it is a list), `{hack:code}` a name
    of ours, `{prompt:literal}` what a model wrote, `{gain:interval}` a figure with its interval.
    """
    cells = re.sub(r"{(\w+):interval}", r"{\1} [{\1_low}, {\1_high}]", cells)
    return _lines(heads, (_Cells().vformat(cells, (), row) for row in rows))


def _lines(heads: str, rows: Iterable[str]) -> str:
    lines = [f"| {row} |" for row in rows]
    return "\n".join([f"| {heads} |", "|" + "---|" * len(heads.split(" | ")), *lines]) if lines else PENDING


class _Cells(string.Formatter):
    def format_field(self, value: Any, form: str) -> str:
        if isinstance(value, list) and form:
            return ", ".join(self.format_field(one, form) for one in value)
        named = {"": lambda: cell(value, 3), "code": lambda: f"`{value}`", "literal": lambda: literal(value)}
        return named[form]() if form in named else format(value, form)


def walked(figures: Record, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure with its full name, those inside others after a dot."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from walked(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def is_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def is_series(value: object) -> bool:
    """What was measured again and again; the file has it, and a table has no room for it."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, (int, float)) for one in value)


def records(rows: Sequence[Record]) -> str:
    """Records as one table; a column for everything that any of them has."""
    if not is_records(rows):
        return UNREADABLE if rows else PENDING
    flat = [dict(walked(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    return table(" | ".join(names).replace("_", " "), ([cell(row.get(name, "")) for name in names] for row in flat))


def whole(result: Any) -> str:
    """All that a results file holds: figures, each list of records as a table of its own, and the origin below."""
    if isinstance(result, list):
        return records(result)
    pairs = list(walked({name: value for name, value in result.items() if name not in ORIGIN}))
    single = [(f"`{name}`", cell(value)) for name, value in pairs if not is_records(value) and not is_series(value)]
    tables = [table("figure | value", single)] if single else []
    tables += [f"`{name}`:\n\n{records(value)}" for name, value in pairs if is_records(value)]
    shown = (name for name in ORIGIN[1:] if name in result and name != "rooms")
    facts = [f"{name.replace('_', ' ')} {cell(result[name])}" for name in shown]
    command = f"`{result['command']}`" if "command" in result else "unknown command"
    return "\n\n".join([*tables, f"Made by {command}: {'; '.join(facts)}."])


def origin(result: Record) -> str:
    """How a result was made, in the beginning of a sentence."""
    load = f"{result['cores']} cores, load {result['load_1min']}"
    return f"Made by `{result['command']}`, revision `{result['revision']}`, {load}"
