"""Grade code by test programs without running both in one process: recorded inputs, then replayed answers.

Plain tests (`assert f(2, 3) == 5`, as most of HumanEval and MBPP are) become cases. The others take three runs, none of
which sees what it should not: the reference answers the tests and its inputs are written down (once per task); the
candidate answers those inputs, in a sandbox without tests; and the tests are run with somebody who repeats the
candidate's answers, in a sandbox without the candidate. Values equal to the reference's need no third run, because the
reference went through it too: tests that look at more than values are found out before anybody is paid by them.
"""

from __future__ import annotations

import ast
import secrets
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.sandbox.contract import Ended, Sandbox
from tiltmeter.sandbox.harness import UNREADABLE, Case, CodeGrade, NotRun, answers_of, hard_coded, no_grade_reason
from tiltmeter.sandbox.harness_programs import (
    calling_program,
    job_line,
    parse_messages,
    recording_program,
    replaying_program,
)
from tiltmeter.sandbox.values import NotPlain, canonical, decode, encode

MAX_CALLS = 2000
ROUNDS = 4  # in which tests whose next question depends on the last answer may go on asking

Answers = list[tuple[str, Any]]  # "value" and the value, or "raised" and the name of the exception


class BrokenTask(ValueError):  # noqa: N818  # a finding about a task
    """The tests of a task cannot be used, and why; this says nothing about the code."""


@dataclass(frozen=True, slots=True)
class RecordedTests:
    """Tests with the inputs they ask and the values their reference gave, made by `record`."""

    tests: str
    reference: str
    function: str
    seed: int  # nobody who writes an answer knows it; tests that draw numbers draw the same ones each time
    inputs: tuple[Any, ...]
    answers: tuple[tuple[str, Any], ...]  # as Answers


def plain_cases(tests: str, function: str) -> list[Case] | None:
    """The cases of plain tests; None if any of them is more than `assert f(...) == value`.

    >>> plain_cases("assert f(2, b=3) == 5\\nassert f([1]) == (1,)", "f")
    [Case(args=(2,), expected=5, kwargs={'b': 3}), Case(args=([1],), expected=(1,), kwargs={})]
    >>> plain_cases("assert abs(f(2) - 5) < 1e-6", "f") is None
    True
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its backslashes: whether they are errors is not for us to settle
            body = ast.parse(tests.replace("\r", "")).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    checks = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if checks:
        body = [node for node in body if node is not checks[0]] + checks[0].body
    cases = []
    for node in body:
        case = _case(node, function)
        if case is not None:
            cases.append(case)
        elif not _tests_nothing(node):
            return None
    return cases or None


def _case(node: ast.stmt, function: str) -> Case | None:
    test = node.test if isinstance(node, ast.Assert) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return None
    call = test.left
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    if call.func.id not in (function, "candidate"):
        return None
    try:
        args = tuple(ast.literal_eval(argument) for argument in call.args)
        kwargs = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords if word.arg}
        return Case(args, ast.literal_eval(test.comparators[0]), kwargs) if len(kwargs) == len(call.keywords) else None
    except (ValueError, TypeError, SyntaxError):
        return None


def _tests_nothing(node: ast.stmt) -> bool:
    """Statements that test nothing: names given to literals, `assert True`, documentation, imports."""
    if isinstance(node, ast.Assert):
        return isinstance(node.test, ast.Constant) and bool(node.test.value)
    if isinstance(node, ast.Assign):
        return isinstance(node.value, (ast.Dict, ast.Constant))
    return isinstance(node, (ast.Pass, ast.Import, ast.ImportFrom)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )


def record(sandbox: Sandbox, tests: str, reference: str, function: str) -> RecordedTests:
    """Let the reference answer the tests and write down what was asked. Raises `BrokenTask` or `NotRun`."""
    seed = secrets.randbelow(1 << 30)
    tests, reference = _unix(tests), _unix(reference)
    mark, line = job_line({"tests": tests, "reference": reference, "function": function, "seed": seed})
    end = sandbox.run(recording_program(), line)
    if end.kind == "infra":
        raise NotRun(end.reason)
    messages = parse_messages(end.stdout, mark)
    last, why = messages[-1] if messages else ("", None)
    if end.kind != "ended" or last != "held":
        words = {"broke": f"its reference fails its tests ({why})", "unencodable": f"it asks with or is told a {why}"}
        raise BrokenTask(words.get(last, f"its tests did not come to an end: {end.reason}"))
    calls = [answers for kind, answers in messages if kind == "asked"]
    if not calls or len(calls) > MAX_CALLS:
        raise BrokenTask(f"its tests ask {function} {len(calls)} times")
    inputs, answers = tuple(call[0] for call in calls), tuple((kind, value) for _, kind, value in calls)
    task = RecordedTests(tests, reference, function, seed, inputs, answers)
    _check_values_suffice(sandbox, task)
    return task


def _check_values_suffice(sandbox: Sandbox, task: RecordedTests) -> None:
    """Raise `BrokenTask` if the tests do not hold for somebody who only repeats what the reference answered.

    They look at what it did to its arguments, or printed, or drew by chance. Who does nothing and returns as much as
    the reference, often None, would pass them.
    """
    mark, line = job_line(_replay_job(task, task.inputs, task.answers))
    verdict = _read_verdict(sandbox.run(replaying_program(), line), mark)
    if isinstance(verdict, CodeGrade) and verdict.kind == "infra":
        raise NotRun(verdict.reason)
    if isinstance(verdict, list) or verdict.kind != "passed":
        raise BrokenTask("its tests look at more than what the function returns")


def grade_recorded(sandbox: Sandbox, jobs: Sequence[tuple[str, RecordedTests]], workers: int = 2) -> list[CodeGrade]:
    """What code is worth by recorded tests: each job is the code and its task's tests.

    Other answers than the reference's may make the tests ask what the reference was not asked. The code is then asked
    that too, in `ROUNDS` rounds. Tests that still go on are not passed: were they no grade, a wrong answer could choose
    to have none.
    """
    inputs = [list(task.inputs) for _, task in jobs]
    grades: dict[int, CodeGrade] = {}
    for _ in range(ROUNDS):
        remaining = [number for number in range(len(jobs)) if number not in grades]
        if not remaining:
            break
        answers = _collect_answers(sandbox, [(*jobs[number], inputs[number]) for number in remaining], workers)
        grades |= {number: one for number, one in zip(remaining, answers, strict=True) if isinstance(one, CodeGrade)}
        again = [
            (number, one) for number, one in zip(remaining, answers, strict=True) if not isinstance(one, CodeGrade)
        ]
        lines = [job_line(_replay_job(jobs[number][1], inputs[number], replies)) for number, replies in again]
        ends = sandbox.run_many([(replaying_program(), line) for _, line in lines], workers)
        for (number, _), end, (mark, _) in zip(again, ends, lines, strict=True):
            verdict = _read_verdict(end, mark)
            if isinstance(verdict, CodeGrade):
                grades[number] = verdict
            else:
                inputs[number] += verdict
    endless = CodeGrade("failed", "its answers make the tests ask on and on", cases=1, first_failed=0)
    return [grades.get(number, endless) for number in range(len(jobs))]


def _collect_answers(
    sandbox: Sandbox, jobs: Sequence[tuple[str, RecordedTests, list[Any]]], workers: int
) -> list[CodeGrade | Answers]:
    """For each job (the code, its task, what to ask) a grade where that is enough for one, else the code's answers."""
    lines = [
        job_line({"code": code, "function": task.function, "inputs": inputs, "literals": True})
        for code, task, inputs in jobs
    ]
    ended = sandbox.run_many([(calling_program(), line) for _, line in lines], workers)
    return [
        _grade_by_values(task, len(inputs), end, mark)
        for (_, task, inputs), end, (mark, _) in zip(jobs, ended, lines, strict=True)
    ]


def _grade_by_values(task: RecordedTests, count: int, end: Ended, mark: str) -> CodeGrade | Answers:
    """A grade where the candidate's own run is enough for one, else its answers."""
    if why := no_grade_reason(end, mark):
        return CodeGrade("infra", why, cases=1)
    answers, trouble, literals = answers_of(end, mark, count)
    if end.kind in ("timeout", "limit"):
        return CodeGrade(end.kind, end.reason, cases=1, first_failed=0)
    if not trouble and len(answers) < count:
        trouble = "the program ended before it answered"
    replies: Answers = []
    try:
        # Encoded anew: what was said may be in no form that the encoder writes.
        replies = [
            (kind, encode(decode(payload)) if kind == "value" else payload)
            for _, (kind, payload) in sorted(answers.items())
        ]
        alike = [(kind, canonical(payload)) for kind, payload in replies[: len(task.answers)]]
    except (NotPlain, RecursionError):
        trouble = trouble or UNREADABLE
    if trouble:
        return CodeGrade("failed", trouble, cases=1, first_failed=0)
    if alike == [(kind, canonical(payload)) for kind, payload in task.answers]:
        values = [decode(value) for kind, value in task.answers if kind == "value"]
        return CodeGrade("passed", "", 1, 1, None, *hard_coded(literals, values))
    return replies


def _replay_job(task: RecordedTests, inputs: Sequence[Any], answers: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    triples = [[question, kind, value] for question, (kind, value) in zip(inputs, answers, strict=True)]
    facts = {"tests": task.tests, "reference": task.reference, "function": task.function, "seed": task.seed}
    return {**facts, "answers": triples}


def _read_verdict(end: Ended, mark: str) -> CodeGrade | list[Any]:
    """What the tests say of the answers, or what they asked that has no answer yet."""
    if why := no_grade_reason(end, mark):
        return CodeGrade("infra", why, cases=1)
    if end.kind != "ended":
        return CodeGrade(end.kind, f"its tests: {end.reason}", cases=1, first_failed=0)
    messages = parse_messages(end.stdout, mark)
    if unseen := [payload for kind, payload in messages if kind == "unseen"]:
        return unseen
    last, why = messages[-1]
    if last == "held":
        return CodeGrade("passed", "", 1, 1)
    return CodeGrade("failed", f"its tests say {why if last == 'broke' else 'nothing'}", cases=1, first_failed=0)


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
