"""Where a row of a dataset keeps its tests, and where a completion keeps its code."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tiltmeter.sandbox.harness import Case
from tiltmeter.sandbox.recorded import BrokenTask, Recorded, cases_in

PYTHON = ("", "py", "python", "python3", "py3")
_DEFINED = re.compile(r"^def +(\w+)", re.M)
_CALLED = re.compile(r"assert[ (]+(?:not +)?(?:\w+\()*?(\w+)\(")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns that hold a row's tests."""

    cases: str = "cases"
    tests: str = "tests"
    reference: str = "reference"
    entry_point: str = "entry_point"
    setup: str = "setup"

    def key(self, row: Mapping[str, Any]) -> str:
        """Rows with the same key have the same tests."""
        names = (self.cases, self.tests, self.reference, self.entry_point, self.setup)
        return repr([row.get(name) for name in names])


@dataclass(frozen=True, slots=True)
class Tests:
    """What a row's code is graded by: cases, or a program that was recorded; and inputs drawn for this call."""

    __test__ = False  # not a test class of pytest's

    function: str
    cases: tuple[Case, ...] = ()
    strict: bool = True
    program: str = ""
    reference: str = ""
    setup: str = ""
    recorded: Recorded | None = None
    hidden: tuple[Case, ...] = ()


def read_tests(row: Mapping[str, Any], columns: Columns) -> Tests:
    """The tests of one row. Raises `BrokenTask` with what the row lacks.

    >>> read_tests({"tests": ["assert add(1, 2) == 3"]}, Columns()).function
    'add'
    """
    reference, setup = str(row.get(columns.reference) or ""), str(row.get(columns.setup) or "")
    reference, setup = reference.replace("\r\n", "\n"), f"{setup.rstrip()}\n" if setup.strip() else ""
    function = str(row.get(columns.entry_point) or "")
    if row.get(columns.cases) is not None:
        cases = _cases(row[columns.cases])
        function = function or (_DEFINED.findall(reference) or [""])[-1]
        if not function or not cases:
            raise BrokenTask(f"the row has no {columns.entry_point!r}" if cases else f"{columns.cases!r} is empty")
        return Tests(function, cases, reference=reference, setup=setup)
    given = row.get(columns.tests)
    program = "\n".join(map(str, given)) if isinstance(given, (list, tuple)) else str(given or "")
    program = program.replace("\r\n", "\n")
    if not program.strip():
        raise BrokenTask(f"the row has neither {columns.cases!r} nor {columns.tests!r}")
    function = function or _asked(program, reference)
    plain = cases_in(program, function)
    if plain is None and not reference:
        raise BrokenTask(f"tests that are more than assert f(...) == value need the column {columns.reference!r}")
    return Tests(
        function, tuple(plain or ()), False, setup + program, setup + reference if not plain else reference, setup
    )


def _asked(program: str, reference: str) -> str:
    """The function that the tests ask: of those the reference defines, the first that an assert calls."""
    defined: list[str] = _DEFINED.findall(reference)
    called: list[str] = _CALLED.findall(program)
    named = [name for name in re.findall(r"\b(\w+)\(", program) if name in defined]
    found = [name for name in called if not defined or name in defined] or named or defined[-1:]
    if not found:
        raise BrokenTask("the row does not say which function is asked for")
    return found[0]


def _cases(given: Any) -> tuple[Case, ...]:
    if isinstance(given, str):
        given = _parsed(given)
    if not isinstance(given, (list, tuple)):
        raise BrokenTask('cases are a list of {"args": [...], "expected": ...}')
    try:
        return tuple(_case(case) for case in given)
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenTask(f'a case is {{"args": [...], "expected": ...}}: {error}') from None


def _case(given: Any) -> Case:
    if isinstance(given, Case):
        return given
    if isinstance(given, Mapping):
        return Case(tuple(given["args"]), given["expected"], dict(given.get("kwargs") or {}))
    args, expected = given
    return Case(tuple(args), expected)


def _parsed(text: str) -> Any:
    """A list as JSON, or as Python where it holds tuples, sets or bytes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise BrokenTask("cases are neither JSON nor a Python literal") from None


def code_in(text: str, blocks: Literal["last", "all"] = "last") -> str:
    """The code of a completion: its last fenced Python block, all of them, or the whole text if it has no fence.

    A block that is not closed counts: models often end there.
    """
    found: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.split("\n"):
        mark = line.lstrip()
        if mark.startswith("```") and not (inside and mark.strip("` \r")):
            inside = not inside
            if inside:
                found.append((mark.strip("` \r").lower(), []))
        elif inside:
            found[-1][1].append(line)
    if not found:
        return text
    python = [lines for tag, lines in found if tag in PYTHON] or [lines for _, lines in found]
    chosen = python[-1:] if blocks == "last" else python
    return "\n".join(line for lines in chosen for line in [*lines, ""])
