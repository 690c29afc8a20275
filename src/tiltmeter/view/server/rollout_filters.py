"""Filters and sort orders of the rollout table: a closed list, as fixed SQL with bound values.

Texts to find are not SQL, because text is not in the table: `find`, a query line, and `phrase`, words of a completion.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from tiltmeter.data.records import FLAGS
from tiltmeter.rundir.reading_room.notes import RunNotes
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.server.rollout_query import LONGEST, parse_query
from tiltmeter.view.server.text_match import TextMatch

SortKey = Literal["step", "reward", "gold", "length", "gap"]
SortOrder = Literal["up", "down"]
RolloutKey = tuple[int, int, int]  # attempt, step and row

NUMBER_LIMIT = 2**53
PHRASE_CHARACTERS = 200

_WHOLE = {"from": "step >= ?", "to": "step <= ?", "attempt": "attempt = ?", "length_min": "length >= ?"}
_WHOLE |= {"length_max": "length <= ?"}
_REAL = {"reward_min": "reward >= ?", "reward_max": "reward <= ?", "gold_min": "gold >= ?", "gold_max": "gold <= ?"}
_REAL |= {f"{name}_{word}": f"{name} {sign} ?" for name in ("reward", "gold", "length")
          for word, sign in (("above", ">"), ("below", "<"))}  # fmt: skip
#: The condition for 0 and for 1. Rows with an unknown value match neither.
_YES_NO = {
    "labelled": ("gold IS NULL", "gold IS NOT NULL"),
    "truncated": ("NOT truncated", "truncated"),
    "flagged": ("flag = 0", "flag <> 0"),
    "disagree": ("NOT disagrees", "disagrees"),
}
#: `gap` is how far the reward is above gold: its percentile rank in its step, minus gold.
_KEYS: dict[str, str] = {"reward": "reward", "gold": "gold", "length": "length", "gap": "(standing - gold)"}
_ID = re.compile(r"([0-9]{1,16})-([0-9]{1,16})-([0-9]{1,10})")
_CURSOR = re.compile(r"([a-z]+)\.(up|down)~([^~]*)~([0-9-]+)")


@dataclass(frozen=True)
class RolloutFilter:
    """Filters as SQL. `steps` is the requested range, if both ends are given.

    >>> chosen = RolloutFilter.of({"from": "3", "to": 3, "reward_min": "0.5", "labelled": 1})
    >>> chosen.where, chosen.values, chosen.steps
    ('step >= ? AND step <= ? AND reward >= ? AND gold IS NOT NULL AND NOT abandoned', (3, 3, 0.5), (3, 3))
    """

    where: str
    values: tuple[float, ...]
    texts: tuple[TextMatch, ...]
    attempt: int | None
    steps: tuple[int, int] | None
    tags: tuple[str, ...] = ()

    @classmethod
    def of(cls, filters: Mapping[str, Any]) -> RolloutFilter:
        """Read filters as a client sent them. Raises `ValueError` for anything that is not on the list."""
        query = parse_query(_text("find", filters, LONGEST))
        parts: list[str] = []
        values: list[float] = []
        numbers: dict[str, int] = {}
        # What a query bounds and a filter as well must pass both.
        for name, value in [*filters.items(), *query.filters.items()]:
            if name in _WHOLE:
                parts.append(_WHOLE[name])
                numbers[name] = _whole(name, value)
                values.append(numbers[name])
            elif name in _REAL:
                parts.append(_REAL[name])
                values.append(_real(name, value))
            elif name in _YES_NO:
                if str(value) not in ("0", "1"):
                    raise ValueError(f"{name} is 0 or 1")
                parts.append(_YES_NO[name][int(value)])
            elif name not in ("phrase", "find"):
                raise ValueError(f"there is no filter {str(name)[:40]!r}; there are {', '.join(_ALL_FILTERS)}")
        if "attempt" not in numbers:
            parts.append("NOT abandoned")  # as in plots; a filter on one attempt shows all of it
        steps = (numbers["from"], numbers["to"]) if {"from", "to"} <= set(numbers) else None
        texts = query.texts
        if phrase := _text("phrase", filters, PHRASE_CHARACTERS):
            texts = (*texts, TextMatch.of(phrase, where="completion"))
        return cls(" AND ".join(parts) or "TRUE", tuple(values), texts, numbers.get("attempt"), steps, query.tags)

    def with_tags(self, notes: RunNotes) -> RolloutFilter:
        """The same with its tags as SQL: those of the rollout, or of its step."""
        if not self.tags:
            return self
        notes.poll()
        where, values = self.where, self.values
        for tag in self.tags:
            parts = []
            for columns in ("attempt, step", "attempt, step, row"):
                size = columns.count(",") + 1
                keys = [target.split("-") for target in notes.targets_with_tag(tag) if target]
                numbers = [int(number) for key in keys if len(key) == size for number in key]
                if numbers:
                    rows = ", ".join([f"({', '.join('?' * size)})"] * (len(numbers) // size))
                    parts.append(f"({columns}) IN (VALUES {rows})")
                    values = (*values, *numbers)
            where += f" AND ({' OR '.join(parts) or 'FALSE'})"
        return replace(self, where=where, values=values, tags=())


@dataclass(frozen=True)
class Ordering:
    """A total order of rows: missing values last, then newest step first."""

    sort: SortKey
    order: SortOrder

    @classmethod
    def of(cls, sort: str, order: str) -> Ordering:
        if sort not in get_args(SortKey) or order not in get_args(SortOrder):
            raise ValueError(f"sort is one of {', '.join(get_args(SortKey))}, order is up or down")
        return cls(sort, order)  # type: ignore[arg-type]  # checked above

    @property
    def key(self) -> str:
        """The sort expression, as SQL."""
        return _KEYS.get(self.sort, "step::DOUBLE")

    @property
    def sql(self) -> str:
        way = "ASC" if self.order == "up" else "DESC"
        if self.sort == "step":
            return f"step {way}, attempt {way}, row"
        return f"{self.key} {way} NULLS LAST, step DESC, attempt DESC, row"

    def cursor(self, value: float | None, id: RolloutKey) -> str:
        """A position in this order, as a cursor for the next page."""
        return f"{self.sort}.{self.order}~{'' if value is None else repr(float(value))}~{rollout_id(*id)}"

    def after(self, cursor: str) -> tuple[str, tuple[float, ...]]:
        """The condition for rows after the cursor, as SQL."""
        match = _CURSOR.fullmatch(cursor)
        if match is None or (match[1], match[2]) != (self.sort, self.order):
            raise ValueError("after is no cursor of this list: ask without it, for the first page")
        attempt, step, row = parse_rollout_id(match[4])
        beyond = ">" if self.order == "up" else "<"
        if self.sort == "step":
            where = f"(step {beyond} ? OR (step = ? AND (attempt {beyond} ? OR (attempt = ? AND row > ?))))"
            return where, (step, step, attempt, attempt, row)
        tie = "(step < ? OR (step = ? AND (attempt < ? OR (attempt = ? AND row > ?))))"
        place = (step, step, attempt, attempt, row)
        if not match[3]:
            return f"({self.key} IS NULL AND {tie})", place
        value = _real("after", match[3])
        return f"({self.key} {beyond} ? OR {self.key} IS NULL OR ({self.key} = ? AND {tie}))", (value, value, *place)


def parse_rollout_id(id: str) -> RolloutKey:
    """A rollout's id, attempt-step-row, as numbers. Raises `ValueError` for anything else.

    >>> parse_rollout_id("0-12-3")
    (0, 12, 3)
    """
    match = _ID.fullmatch(id) if isinstance(id, str) else None
    if match is None or int(match[1]) > NUMBER_LIMIT or int(match[2]) > NUMBER_LIMIT or int(match[3]) >= 2**31:
        raise ValueError("a rollout is named attempt-step-row, as 0-12-3")
    return int(match[1]), int(match[2]), int(match[3])


def flag_word(code: int) -> str:
    """Why a reward is not a number; empty where it is one."""
    return "" if code == 0 else FLAGS[code]


_ALL_FILTERS = (*_WHOLE, *_REAL, *_YES_NO, "phrase", "find")


def _whole(name: str, value: object) -> int:
    text = str(value)
    if not re.fullmatch(r"[0-9]{1,16}", text) or int(text) > NUMBER_LIMIT:
        raise ValueError(f"{name} is a whole number from 0 on")
    return int(text)


def _real(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever it is, it is a number or an error
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, bool) or not math.isfinite(number):
        raise ValueError(f"{name} is a number")
    return number


def _text(name: str, filters: Mapping[str, Any], most: int) -> str:
    value = filters.get(name, "")
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"{name} is a text of at most {most} characters")
    return value
