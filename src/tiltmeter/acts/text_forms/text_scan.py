"""A walk over an answer in which files stand as text, and what it has read so far."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tiltmeter.acts.text_forms.heading_paths import heading_path

MOST = 500  # files of one answer
WORK = 2_000_000  # characters that are looked at again, after which the rest of an answer is left as it is

CHANGES = re.compile(r"edit|update|modify|replace|patch|insert|append|change", re.IGNORECASE)
SEARCH = re.compile(r"^[ \t]{0,8}<{5,9}(?:[ \t]{0,4}[A-Za-z]{1,20})?[ \t]{0,8}$")
_MIDDLE = re.compile(r"^[ \t]{0,8}={5,9}[ \t]{0,8}$")
_REPLACE = re.compile(r"^[ \t]{0,8}>{5,9}(?:[ \t]{0,4}[A-Za-z]{1,20})?[ \t]{0,8}$")


class TextCall(NamedTuple):
    """A call that stands in an answer as text: what it is named, and its arguments."""

    line: int  # of the answer at which its text begins
    name: str
    values: Mapping[str, Any]
    is_run: bool = False  # whether it is a command, which only a harness that answers runs


@dataclass
class TextScan:
    """What is left of an answer and what was read from it."""

    text: str
    with_headings: bool
    lines: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)  # of each line
    calls: list[TextCall] = field(default_factory=list)
    endless: set[str] = field(default_factory=set)  # tags that never end
    closings: set[int] = field(default_factory=set)  # lines that close a fence whose inside is read
    work: int = 0  # characters that were looked at beside the walk over the lines
    path: str = ""  # the last that was named, for SEARCH blocks that name none


def line_above(scan: TextScan, number: int) -> str:
    """The last line above that is not empty, if it is near."""
    for line in reversed(scan.lines[max(number - 3, 0) : number]):
        if line.strip():
            return line
    return ""


def path_above(scan: TextScan, number: int) -> str:
    named = heading_path(line_above(scan, number))
    return "" if named is None else named[0]


def add_file(scan: TextScan, line: int, path: str, text: str, verb: str) -> bool:
    if not path:
        return False
    scan.path = path
    key = "new_str" if CHANGES.search(verb) else "content"
    scan.calls.append(TextCall(line, verb, {"path": path, key: text}))
    return True


def read_search_block(scan: TextScan, number: int, stop: int, path: str) -> int | None:
    """One block of SEARCH and REPLACE."""
    middle = end = 0
    for at in range(number + 1, stop):
        line = scan.lines[at]
        if not middle and _MIDDLE.match(line):
            middle = at
        elif middle and _REPLACE.match(line):
            end = at
            break
        elif SEARCH.match(line):
            break
    scan.path = path or scan.path
    if not end or not scan.path:
        return None
    old, new = ("\n".join(scan.lines[first:last]) for first, last in ((number + 1, middle), (middle + 1, end)))
    scan.calls.append(TextCall(middle + 2, "edit", {"path": scan.path, "old_str": old, "new_str": new}))
    return end + 1


def read_search_blocks(scan: TextScan, number: int, start: int, end: int, path: str) -> bool:
    """Blocks of SEARCH and REPLACE inside of an element."""
    stop = number + scan.text.count("\n", scan.starts[number], end) + 1
    count, at = len(scan.calls), number
    while at < stop:
        at = (read_search_block(scan, at, stop, path) or at + 1) if SEARCH.match(scan.lines[at]) else at + 1
    return len(scan.calls) > count
