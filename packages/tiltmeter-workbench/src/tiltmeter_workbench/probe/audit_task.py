"""A task that a reward is audited with, and answers in the form that its right answer has."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tiltmeter.gold.checks.code_tasks import extract_code

Kind = Literal["code", "math", "text"]
KINDS = ("code", "math", "text")

_FENCE = re.compile(r"(```[^\n`]*\n)(.*?)(```)", re.S)
_DEF = re.compile(r"^(?:async )?def +(\w+)", re.M)


@dataclass(frozen=True)
class AuditTask:
    """A question with an answer that is worth something and one that is not: what a reward is audited with.

    `columns` are the dataset's other columns, handed to the reward as a trainer would. `function` and `expected` (the
    values of the tests, or the answer) let forgeries aim; without them they are found in `right` and the columns, or
    the forgery takes its generic form.

    >>> AuditTask("What is 6 x 7?", "It is \\\\boxed{42}.", "\\\\boxed{41}", {"answer": "42"}, "math").answer
    '42'
    """

    prompt: str
    right: str
    wrong: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "text"
    function: str = ""
    expected: Sequence[Any] = ()

    @property
    def name(self) -> str:
        """The function that is asked for, as far as it can be known."""
        named = self.function or str(self.columns.get("function") or self.columns.get("entry_point") or "")
        defined = _DEF.findall(extract_code(self.right))
        return named or (defined[-1] if defined else "solution")

    @property
    def answer(self) -> str:
        """The right answer of a question, without the way to it."""
        reference = self.columns.get("answer", self.columns.get("solution"))
        if self.kind != "code" and isinstance(reference, (str, int, float)):
            return _last(str(reference))
        return str(self.expected[0]) if self.expected else _last(self.right)

    @property
    def known_cases(self) -> list[tuple[Any, Any]]:
        """Arguments and value of each test that somebody who has seen the tests could know by heart."""
        cases = self.columns.get("cases")
        if isinstance(cases, (list, tuple)) and all(isinstance(case, Mapping) for case in cases):
            return [(tuple(case.get("args", ())), case["expected"]) for case in cases if "expected" in case]
        texts = [self.columns.get(name) for name in ("tests", "test", "test_list")]
        return _assert_cases(
            "\n".join(line for text in texts for line in ([text] if isinstance(text, str) else text or []))
        )


def in_form(task: AuditTask, code: str) -> str:
    """Code as the right answer has it: in a fence with the same language, or bare."""
    blocks = _FENCE.findall(task.right)
    return f"{blocks[-1][0]}{code.strip()}\n```" if blocks else f"{code.strip()}\n"


def boxed(task: AuditTask, answer: str) -> str:
    """An answer in the form that the right one has: box, `####`, `Answer:`, or nothing."""
    if "\\boxed" in task.right:
        return f"\\boxed{{{answer}}}"
    if "####" in task.right:
        return f"#### {answer}"
    return f"Answer: {answer}" if re.search(r"answer:", task.right, re.I) else answer


def _last(text: str) -> str:
    """The final answer of a worked solution that is known to be plain."""
    if (at := text.rfind("\\boxed{")) >= 0:
        depth, start = 1, at + len("\\boxed{")
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return text[start:end]
    for mark in ("####", "nswer:"):
        if mark in text:
            return text.rpartition(mark)[2].strip()
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return numbers[-1] if numbers and len(text) > 40 else text.strip()


def _assert_cases(text: str) -> list[tuple[Any, Any]]:
    """The literal arguments and values of `assert f(...) == value` lines."""
    try:
        parsed = ast.parse(text.replace("\r", ""))
    except (SyntaxError, ValueError, RecursionError):
        return []
    cases = []
    for node in ast.walk(parsed):
        test = node.test if isinstance(node, ast.Assert) else None
        if isinstance(test, ast.Compare) and isinstance(test.left, ast.Call) and isinstance(test.ops[0], ast.Eq):
            try:
                arguments = tuple(ast.literal_eval(argument) for argument in test.left.args)
                cases.append((arguments, ast.literal_eval(test.comparators[0])))
            except (ValueError, TypeError, SyntaxError):
                continue
    return cases


def guess_kind(right: str, columns: Mapping[str, Any]) -> Kind:
    """The kind of a task that does not name it, from its right answer and its columns."""
    if columns.get("function") or columns.get("entry_point") or "```" in right or _DEF.search(right):
        return "code"
    number = re.fullmatch(r"-?[\d,./]+", str(columns.get("answer", right)).strip())
    return "math" if "\\boxed" in right or "####" in right or number else "text"
