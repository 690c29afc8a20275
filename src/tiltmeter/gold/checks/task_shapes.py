"""The tests of a task in the columns of well-known datasets, recognised by what the columns hold.

A row of a shape has the column `tests`, alone or with the others. What stands in it decides how it is read: assert
statements, our own cases, or pairs of input and output, of a function or of a program that reads and prints.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.gold.checks.code_tasks import PROGRAM_FUNCTION, TaskColumns, TaskTests, read_tests
from tiltmeter.sandbox.harness import Case
from tiltmeter.sandbox.recorded_tests import BrokenTask

LONGEST_COLUMN = 1 << 22  # characters of a column that are parsed
INPUTS, OUTPUTS = ("inputs", "input"), ("outputs", "output", "expected_output")
FUNCTION_NAMES = ("fn_name", "func_name", "function_name", "entry_point")


@dataclass(frozen=True, slots=True)
class TaskShape:
    """The columns of one dataset that tell how code is tested. A column may be absent, except the one with the tests.

    `inside`: where the column is an object, the key that holds the tests.
    """

    name: str
    tests: str
    inside: str = ""
    entry_point: str = ""
    reference: str = ""
    setup: str = ""


#: The first shape that a row has counts.
SHAPES = (
    TaskShape("tiltmeter", "cases", "", "entry_point", "reference", "setup"),
    TaskShape("HumanEval", "test", "", "entry_point", "canonical_solution"),
    TaskShape("MBPP", "test_list", "", "", "code", "test_setup_code"),
    TaskShape("APPS", "input_output"),
    TaskShape("LiveCodeBench", "public_test_cases"),
    TaskShape("open-r1", "verification_info", "test_cases"),
    TaskShape("verifiers", "info", "tests", "entry_point", "reference", "setup"),
    TaskShape("verifiers", "info", "test_cases"),
    TaskShape("veRL", "reward_model", "ground_truth"),
    TaskShape("veRL", "ground_truth"),
    TaskShape("verifiers", "answer"),
    *(
        TaskShape(name, name, "", "entry_point", "reference", "setup")
        for name in ("tests", "unit_tests", "test_cases", "testcases", "test_code")
    ),
)
_COLUMNS = [name for shape in SHAPES for name in (shape.tests, shape.entry_point, shape.reference, shape.setup) if name]
#: Every column that a shape reads.
SHAPE_COLUMNS = tuple(dict.fromkeys((*_COLUMNS, "prompt", "metadata")))


#: Columns that hold an answer as often as tests.
_OR_ANSWERS = ("answer", "ground_truth", "reward_model", "info")


def has_tests(row: Mapping[str, Any]) -> bool:
    """Whether a row is a task of code: it has a column for tests, whatever that holds, or tests in another one."""
    named = any(row.get(shape.tests) for shape in SHAPES if shape.tests not in _OR_ANSWERS)
    return named or recognise(row) is not None


def recognise(row: Mapping[str, Any]) -> tuple[TaskShape, TaskTests] | None:
    """The first shape whose tests this row has, and the tests; None if there is none.

    >>> shape, tests = recognise({"text": "Add.", "test_list": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]})
    >>> shape.name, tests.function, len(tests.cases)
    ('MBPP', 'add', 2)
    >>> recognise({"question": "2 + 2?", "answer": "4"}) is None
    True
    """
    for shape in SHAPES:
        value = _parsed(row.get(shape.tests))
        if shape.inside:
            value = _parsed(value.get(shape.inside)) if isinstance(value, Mapping) else None
        if not value:
            continue
        try:
            tests = _read_value(value, row, shape)
        except BrokenTask:
            continue
        if tests is not None:
            return shape, tests
    return None


def row_tests(row: Mapping[str, Any], columns: TaskColumns) -> TaskTests:
    """The tests of a row: from the named columns if it has them, else by its shape. Raises `BrokenTask`."""
    match = None if _has_named(row, columns) else recognise(row)
    return read_tests(row, columns) if match is None else match[1]


def task_key(row: Mapping[str, Any], columns: TaskColumns) -> str:
    """Rows with the same key have the same tests."""
    names = columns.names if _has_named(row, columns) else (*columns.names, *SHAPE_COLUMNS)
    return repr([row.get(name) for name in names])


def _has_named(row: Mapping[str, Any], columns: TaskColumns) -> bool:
    return row.get(columns.cases) is not None or _is_program(row.get(columns.tests))


def _is_program(value: Any) -> bool:
    """Whether it is text, or texts: what `read_tests` takes as assert statements."""
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value))


def _read_value(value: Any, row: Mapping[str, Any], shape: TaskShape) -> TaskTests | None:
    if isinstance(value, Mapping):
        inputs, outputs = _first(value, INPUTS), _first(value, OUTPUTS)
        if not isinstance(inputs, Sequence) or not isinstance(outputs, Sequence) or len(inputs) != len(outputs):
            return None
        return _pairs(list(zip(inputs, outputs, strict=True)), str(_first(value, FUNCTION_NAMES) or ""))
    if not isinstance(value, (str, list, tuple)) or not value:
        return None
    if isinstance(value, (list, tuple)) and isinstance(value[0], Mapping):
        if _first(value[0], INPUTS) is not None:
            name = _first(value[0], FUNCTION_NAMES) or _first(_parsed(row.get("metadata")), FUNCTION_NAMES)
            kinds = {str(one.get("testtype") or one.get("type") or "") for one in value}
            is_called = bool(name) and not kinds & {"stdin", "stdin_stdout"}
            pairs = [(_first(one, INPUTS), _first(one, OUTPUTS)) for one in value]
            return _pairs(
                [_parsed_pair(pair) for pair in pairs] if is_called else pairs, str(name) if is_called else ""
            )
        return read_tests({**row, "cases": value}, TaskColumns("cases", "", *_companions(shape)))
    texts = [value] if isinstance(value, str) else list(value)
    if not all(isinstance(text, str) for text in texts) or not any(re.search(r"\bassert\b", text) for text in texts):
        return None
    reference = str(row.get(shape.reference) or "")
    if reference and shape.name == "HumanEval":  # the body of the function that the prompt begins
        reference = f"{row.get('prompt') or ''}{reference}"
    setup = row.get(shape.setup) or row.get("test_imports") or ""  # the latter in sanitized MBPP
    setup = setup if isinstance(setup, str) else "\n".join(map(str, setup))
    facts = {"tests": texts, "entry_point": row.get(shape.entry_point), "reference": reference, "setup": setup}
    return read_tests(facts, TaskColumns())


def _companions(shape: TaskShape) -> tuple[str, str, str]:
    return shape.reference, shape.entry_point, shape.setup


def _pairs(pairs: Sequence[tuple[Any, Any]], function: str) -> TaskTests | None:
    """Tests of inputs and outputs: of this function, or of a program where there is no name."""
    try:
        if not function:
            if not all(isinstance(part, (str, list)) for pair in pairs for part in pair):
                return None
            cases = tuple(Case((_text(argument),), _lines(_text(wanted))) for argument, wanted in pairs)
            return TaskTests(PROGRAM_FUNCTION, cases, form="program") if cases else None
        if not all(isinstance(argument, list) for argument, _ in pairs):
            return None
        wrapped = all(isinstance(wanted, list) and len(wanted) == 1 for _, wanted in pairs)  # as APPS has them
        cases = tuple(Case(tuple(argument), wanted[0] if wrapped else wanted) for argument, wanted in pairs)
    except (ValueError, TypeError):
        return None
    return TaskTests(function, cases, strict=False, form="method") if cases else None


def _parsed_pair(pair: tuple[Any, Any]) -> tuple[Any, Any]:
    """The arguments of a call, a line of JSON each, and the value."""
    argument, wanted = pair
    if isinstance(argument, str):
        argument = [_parsed(line) for line in argument.split("\n") if line.strip()]
    return argument, _parsed(wanted)


def _first(value: Any, names: Sequence[str]) -> Any:
    if not isinstance(value, Mapping):
        return None
    return next((value[name] for name in names if value.get(name) is not None), None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "\n".join(map(str, value))


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _parsed(value: Any) -> Any:
    """What a text is as JSON, or as a Python literal; the text itself if it is neither. Nothing is unpickled."""
    if not isinstance(value, str) or not value or len(value) > LONGEST_COLUMN:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        pass
    if value.lstrip()[:1] not in ("[", "{", "("):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return value
