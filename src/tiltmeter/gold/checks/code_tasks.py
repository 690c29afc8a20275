"""Read the tests of a dataset row from columns that are named, and extract the code of a completion."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tiltmeter.sandbox.harness import Case
from tiltmeter.sandbox.recorded_tests import BrokenTask, RecordedTests, plain_cases

PYTHON = ("", "py", "python", "python3", "py3")
_DEFINED = re.compile(r"^def +(\w+)", re.M)
_CALLED = re.compile(r"assert[ (]+(?:not +)?(?:\w+\()*?(\w+)\(")


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """The names of the columns that hold a row's tests."""

    cases: str = "cases"
    tests: str = "tests"
    reference: str = "reference"
    entry_point: str = "entry_point"
    setup: str = "setup"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.cases, self.tests, self.reference, self.entry_point, self.setup)


@dataclass(frozen=True, slots=True)
class TaskTests:
    """The tests of a row: cases, or a test program with recorded inputs; and hidden cases drawn for this call."""

    __test__ = False  # not a test class of pytest's

    function: str
    cases: tuple[Case, ...] = ()
    strict: bool = True
    program: str = ""
    reference: str = ""
    setup: str = ""
    recorded: RecordedTests | None = None
    hidden: tuple[Case, ...] = ()
    is_divided: bool = False  # some of its cases were kept back
    #: What a completion has to be: a function; a function or a method of a class `Solution`; a program that reads its
    #: input and prints.
    form: Literal["function", "method", "program"] = "function"

    def prepare(self, code: str) -> str:
        """The code of a completion with what lets `function` be called."""
        if self.form == "program":
            return _PROGRAM.format(code=code)
        return f"{self.setup}{code}{_METHOD.format(name=self.function) if self.form == 'method' else ''}"


#: Calls a program as a function: its input as text in, the lines that it prints out.
PROGRAM_FUNCTION = "lines_printed"
_PROGRAM = """
def lines_printed(text, code={code!r}):
    import contextlib, io, sys
    printed = io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(text.encode()))
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        exec(compile(code, "program", "exec"), {{"__name__": "__main__"}})
    return [line.rstrip() for line in printed.getvalue().rstrip().splitlines()]
"""
_METHOD = """
if "{name}" not in globals() and "Solution" in globals():
    {name} = Solution().{name}
"""


def read_tests(row: Mapping[str, Any], columns: TaskColumns) -> TaskTests:
    """The tests of one row. Raises `BrokenTask` with what the row lacks.

    >>> read_tests({"tests": ["assert add(1, 2) == 3"]}, TaskColumns()).function
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
        return TaskTests(function, cases, reference=reference, setup=setup)
    value = row.get(columns.tests)
    program = "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value or "")
    program = program.replace("\r\n", "\n")
    if not program.strip():
        raise BrokenTask(f"the row has neither {columns.cases!r} nor {columns.tests!r}")
    function = function or _tested_function(program, reference)
    plain = plain_cases(program, function)
    if plain is None and not reference:
        raise BrokenTask(f"tests that are more than assert f(...) == value need the column {columns.reference!r}")
    return TaskTests(
        function, tuple(plain or ()), False, setup + program, setup + reference if not plain else reference, setup
    )


def _tested_function(program: str, reference: str) -> str:
    """The function under test: of those that the reference defines, the first that an assert calls."""
    defined: list[str] = _DEFINED.findall(reference)
    called: list[str] = _CALLED.findall(program)
    named = [name for name in re.findall(r"\b(\w+)\(", program) if name in defined]
    names = [name for name in called if not defined or name in defined] or named or defined[-1:]
    if not names:
        raise BrokenTask("the row does not say which function is asked for")
    return names[0]


def _cases(value: Any) -> tuple[Case, ...]:
    if isinstance(value, str):
        value = _parse_list(value)
    if not isinstance(value, (list, tuple)):
        raise BrokenTask('cases are a list of {"args": [...], "expected": ...}')
    try:
        return tuple(_case(case) for case in value)
    except (ValueError, TypeError, KeyError) as error:
        raise BrokenTask(f'a case is {{"args": [...], "expected": ...}}: {error}') from None


def _case(value: Any) -> Case:
    if isinstance(value, Case):
        return value
    if isinstance(value, Mapping):
        return Case(tuple(value["args"]), value["expected"], dict(value.get("kwargs") or {}))
    args, expected = value
    return Case(tuple(args), expected)


def _parse_list(text: str) -> Any:
    """A list as JSON, or as Python where it holds tuples, sets or bytes."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        raise BrokenTask("cases are neither JSON nor a Python literal") from None


def extract_code(text: str, blocks: Literal["last", "all"] = "last") -> str:
    """The code of a completion: its last fenced Python block, all of them, or the whole text if it has no fence.

    A block that is not closed counts: models often end there.
    """
    fences: list[tuple[str, list[str]]] = []
    inside = False
    for line in text.split("\n"):
        mark = line.lstrip()
        if mark.startswith("```") and not (inside and mark.strip("` \r")):
            inside = not inside
            if inside:
                fences.append((mark.strip("` \r").lower(), []))
        elif inside:
            fences[-1][1].append(line)
    if not fences:
        return text
    python = [lines for tag, lines in fences if tag in PYTHON] or [lines for _, lines in fences]
    chosen = python[-1:] if blocks == "last" else python
    return "\n".join(line for lines in chosen for line in [*lines, ""])
