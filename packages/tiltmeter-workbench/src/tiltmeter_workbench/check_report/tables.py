"""Format the cells of report tables: the same in terminal, HTML, Markdown and JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def titles(rows: Rows) -> list[str]:
    """Every column that any row has, in order of first appearance."""
    return list(dict.fromkeys(name for row in rows for name in row))


def is_numeric(rows: Rows, name: str) -> bool:
    """Whether a column holds nothing but numbers, and is set to the right."""
    return all(isinstance(row.get(name), (int, float, type(None))) for row in rows)


def people_number(value: float, digits: int = 3, sign: str = "") -> str:
    """A number rounded for people: so many digits, and no exponent from a thousandth to a million.

    >>> people_number(1.0491733333333335), people_number(123.4, 2), people_number(999.9), people_number(0.2, sign="+")
    ('1.05', '120', '1,000', '+0.2')
    """
    rounded = float(f"{value:.{digits}g}")
    if 10 ** (digits - 1) <= abs(rounded) < 1e6:
        return f"{rounded:{sign},.0f}"
    return f"{rounded:{sign}.{digits}g}"


def cell(value: object) -> str:
    """One value of a table.

    >>> cell(0.12345), cell(None), cell(3), cell(True), cell([0.5, 0.4, 0.6])
    ('0.123', '–', '3', 'yes', '0.5 [0.4, 0.6]')
    """
    if value is None or value != value:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):  # an estimate and its interval, or names
        first, *rest = map(cell, value) if value else ("–",)
        numbers = len(value) == 3 and all(isinstance(each, (int, float)) for each in value)
        return f"{first} [{', '.join(rest)}]" if numbers else ", ".join((first, *rest))
    return people_number(value) if isinstance(value, float) else str(value)


def json_safe(value: Any) -> Any:
    """For JSON, which has no NaN and no infinity.

    >>> json_safe({"a": [1.5, math.nan]})
    {'a': [1.5, None]}
    """
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json_safe(vars(value))
    if isinstance(value, Mapping):
        return {str(key): json_safe(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_safe(each) for each in value]
    return value
