"""Dates, and numbers with a unit, compared as what they are: 2024-05-07 is no subtraction, and 12 km are not 12 m."""

from __future__ import annotations

import re
from datetime import date

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
           "november", "december")  # fmt: skip
_MONTH = "|".join(f"{name[:3]}(?:{name[3:]})?" if len(name) > 3 else name for name in _MONTHS) + "|sept"
_DATES = (
    re.compile(r"(?<![\d-])(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?![\d-])"),
    re.compile(rf"\b(?P<name>{_MONTH})\.?\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?,?\s+(?P<y>\d{{4}})\b", re.I),
    re.compile(rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:\s+of)?\s+(?P<name>{_MONTH})\.?,?\s+(?P<y>\d{{4}})\b", re.I),
    re.compile(r"(?<![\d/.-])(?P<a>\d{1,2})[/.-](?P<b>\d{1,2})[/.-](?P<y>\d{4})(?![\d/-])"),
)
#: Digits with marks between them that are a name and no term: a date, a time, a telephone number, a version, a range.
_NAMED = re.compile(r"[+(]?\d+(?:[-:/][\d ]+){2,}|\d+:\d+(?::\d+)?\s*(?:[ap]m)?|\d+-\d+|\d+(?:\.\d+){2,}", re.I)
_QUANTITY = re.compile(r"(?P<money>[$€£])?\s?(?P<number>-?\d[\d,]*(?:\.\d+)?)\s*(?P<unit>[A-Za-z%°]{1,12})?(?:\W|$)")

_SCALES: dict[str, dict[str, float]] = {
    "length": {"mm": 1e-3, "cm": 1e-2, "m": 1.0, "km": 1e3, "inch": 0.0254, "inches": 0.0254, "ft": 0.3048,
               "feet": 0.3048, "foot": 0.3048, "yd": 0.9144, "yard": 0.9144, "mi": 1609.344, "mile": 1609.344,
               "metre": 1.0, "meter": 1.0, "kilometre": 1e3, "kilometer": 1e3, "centimetre": 1e-2,
               "centimeter": 1e-2, "millimetre": 1e-3, "millimeter": 1e-3},
    "mass": {"mg": 1e-6, "g": 1e-3, "gram": 1e-3, "kg": 1.0, "kilogram": 1.0, "kilo": 1.0, "lb": 0.45359237,
             "pound": 0.45359237, "oz": 0.028349523125, "ounce": 0.028349523125, "tonne": 1e3},
    "time": {"ms": 1e-3, "s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0,
             "hr": 3600.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0},
    "volume": {"ml": 1e-3, "cl": 1e-2, "l": 1.0, "litre": 1.0, "liter": 1.0, "millilitre": 1e-3, "milliliter": 1e-3},
    "money": {"$": 1.0, "dollar": 1.0, "usd": 1.0, "cent": 0.01},
    "share": {"%": 1.0, "percent": 1.0},
}  # fmt: skip
_UNITS = {name: (kind, scale) for kind, table in _SCALES.items() for name, scale in table.items()}


def read_dates(text: str) -> list[frozenset[date]]:
    """The dates in a text, each with its readings: 05/07/2024 is in May or in July.

    >>> read_dates("on 7 May 2024") == read_dates("2024-05-07"), len(read_dates("05/07/2024")[0])
    (True, 2)
    """
    matches: dict[int, frozenset[date]] = {}
    for pattern in _DATES:
        for match in pattern.finditer(text):
            parts = match.groupdict()
            pairs: tuple[tuple[str, str], ...]
            if parts.get("a") is not None:
                pairs = ((parts["a"], parts["b"]), (parts["b"], parts["a"]))
            elif parts.get("name") is not None:
                month = next(at for at, name in enumerate(_MONTHS, 1) if name[:3] == parts["name"][:3].lower())
                pairs = ((str(month), parts["d"]),)
            else:
                pairs = ((parts["m"], parts["d"]),)
            readings = frozenset(day for m, d in pairs if (day := _day(parts["y"], m, d)) is not None)
            if readings:
                matches.setdefault(match.start(), readings)
    return [matches[at] for at in sorted(matches)]


def _day(year: str, month: str, day: str) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def is_date(text: str) -> bool:
    """Whether a text is one date and hardly anything else."""
    return len(text) <= 40 and len(read_dates(text)) == 1


def is_named_by_digits(text: str) -> bool:
    """Whether digits and marks name something, as a time, a version or a range, where a term would be another value.

    >>> is_named_by_digits("2024-05-07"), is_named_by_digits("3-5"), is_named_by_digits("x-5")
    (True, True, False)
    """
    return _NAMED.fullmatch(text.strip()) is not None


def read_quantity(text: str) -> tuple[float, str] | None:
    """A number with a unit that is known, in the base unit of its kind; None without such a unit, or of several.

    >>> read_quantity("12 km") == read_quantity("12,000 m"), read_quantity("12 apples")
    (True, None)
    """
    if len(text) > 200:
        return None
    matches = list(_QUANTITY.finditer(text))
    if len(matches) != 1:
        return None
    name = matches[0]["money"] or matches[0]["unit"] or ""
    unit = _UNITS.get(name) or _UNITS.get(name.lower()) or _UNITS.get(name.lower().removesuffix("s"))
    return None if unit is None else (round(float(matches[0]["number"].replace(",", "")) * unit[1], 9), unit[0])
