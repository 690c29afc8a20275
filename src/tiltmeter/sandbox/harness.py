"""Grade code by the values it returns: only code and inputs enter the sandbox, and expected values stay outside.

A harness that runs tests beside the code it tests can be paid without work: the code may end the process with success,
return an object that equals everything, read what is expected from a frame, or print a verdict (`forgeries.py`). Here
a candidate can only return values, and they are compared in this process, in type and value. One way is left,
hard-coded answers: `hidden_inputs.py` draws inputs that nobody has seen, and `CodeGrade.hard_coded` flags expected
values that occur as literals in the code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from tiltmeter.sandbox.contract import Ended, Sandbox
from tiltmeter.sandbox.harness_programs import calling_program, job_line, parse_messages
from tiltmeter.sandbox.values import NotPlain, clipped, decode, encode, same

Kind = Literal["passed", "failed", "timeout", "limit", "infra"]
#: Values that any program may contain: they are no sign of hard-coding.
PLAIN_NUMBERS = range(-10, 11)
OUT_OF_MEMORY = "MemoryError"  # how a limit of ours looks from inside; to raise it on purpose gains nothing
UNREADABLE = "what it returned cannot be read"
MIN_LITERALS = 2  # expected values that must stand in the code before it is called hard-coded


class NotRun(RuntimeError):  # noqa: N818  # what happened, as Ended's kind "infra"
    """The grader or the sandbox broke, so there is no grade."""


@dataclass(frozen=True, slots=True)
class Case:
    """One call of a function and the value it must return. The value stays with whoever grades.

    >>> Case((2, 3), 5).expected
    5
    >>> Case((object(),), 5)
    Traceback (most recent call last):
    ...
    ValueError: a case holds plain values (numbers, texts, lists, tuples, sets, dictionaries), and this one has: object
    """

    args: tuple[Any, ...]
    expected: Any
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            encode((tuple(self.args), dict(self.kwargs), self.expected))
        except NotPlain as error:
            kinds = "numbers, texts, lists, tuples, sets, dictionaries"
            raise ValueError(f"a case holds plain values ({kinds}), and this one has: {error}") from None

    @property
    def encoded_input(self) -> Any:
        """The input as it enters the sandbox."""
        return encode((tuple(self.args), dict(self.kwargs)))


class GradingJob(NamedTuple):
    """Code to grade by the values of one of its functions. `strict=False` compares as Python's `==` does."""

    code: str
    function: str
    cases: Sequence[Case]
    strict: bool = True
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class CodeGrade:
    """The grade of code by its tests, or why there is none.

    `infra` means that something of ours broke: there is no grade, and it must not become 0, or a broken machine would
    teach the policy. `hard_coded` says that expected values stand as literals in the code (how many: `literals`); it is
    a hint, not a grade.

    >>> CodeGrade("failed", "case 1: the value differs", passed=1, cases=2, first_failed=1).share
    0.5
    """

    kind: Kind
    reason: str
    passed: int = 0
    cases: int = 0
    first_failed: int | None = None
    hard_coded: bool = False
    literals: int = 0

    @property
    def share(self) -> float:
        return self.passed / self.cases if self.cases else 0.0


def grade(sandbox: Sandbox, code: str, function: str, cases: Sequence[Case], **how: Any) -> CodeGrade:
    """Grade a function of the code on these cases. `how`: `strict`, `tolerance`, as in `GradingJob`."""
    return grade_many(sandbox, [GradingJob(code, function, cases, **how)])[0]


def grade_many(sandbox: Sandbox, jobs: Sequence[GradingJob | tuple[Any, ...]], workers: int = 2) -> list[CodeGrade]:
    """The same for many at once, `workers` of them side by side; a job may be a plain `(code, function, cases)`."""
    grading_jobs = [GradingJob(*job) for job in jobs]
    marks, runs = [], []
    for job in grading_jobs:
        mark, line = job_line(
            {
                "code": job.code,
                "function": job.function,
                "inputs": [case.encoded_input for case in job.cases],
                "literals": True,
            }
        )
        marks.append(mark)
        runs.append((calling_program(), line))
    ended = sandbox.run_many(runs, workers)
    return [grade_run(job, end, mark) for job, end, mark in zip(grading_jobs, ended, marks, strict=True)]


def answers_of(end: Ended, mark: str, count: int) -> tuple[dict[int, tuple[str, Any]], str, list[str]]:
    """What a candidate answered by case (`value`, `raised` or `unencodable`), why it gave none, and its literals."""
    answers: dict[int, tuple[str, Any]] = {}
    trouble = ""
    literals: list[str] = []
    for kind, payload in parse_messages(end.stdout, mark):
        if kind == "literals" and not literals and isinstance(payload, list):
            literals = [one for one in payload if isinstance(one, str)]
        elif kind in ("broken", "missing") and isinstance(payload, str):
            trouble = trouble or (f"it could not be loaded: {payload}" if kind == "broken" else f"it has no {payload}")
        elif kind in ("value", "raised", "unencodable") and isinstance(payload, list) and len(payload) == 2:
            number, value = payload
            if type(number) is not int or not 0 <= number < count or number in answers:
                trouble = trouble or "it answered a case twice, or one that was not asked"
            elif kind != "value" and not isinstance(value, str):
                trouble = trouble or UNREADABLE
            else:
                answers[number] = (kind, value)
    return answers, trouble, literals


def started(end: Ended, mark: str) -> bool:
    """Whether the program that loads candidates ran at all: it says so before it loads one."""
    return any(kind == "started" for kind, _ in parse_messages(end.stdout, mark))


def no_grade_reason(end: Ended, mark: str) -> str:
    """Why there can be no grade; "" if there can."""
    if end.kind == "infra":
        return end.reason or "the sandbox did not run the program"
    if end.kind == "ended" and not started(end, mark):
        return f"the program that loads candidates did not start: {end.reason or end.stderr[-200:]}"
    return ""


def grade_run(job: GradingJob, end: Ended, mark: str) -> CodeGrade:
    """The grade from a program's output: the only place where values are compared with expected ones."""
    if not job.cases:
        return CodeGrade("infra", "there are no cases to grade by")
    if why := no_grade_reason(end, mark):
        return CodeGrade("infra", why, cases=len(job.cases))
    answers, trouble, literals = answers_of(end, mark, len(job.cases))
    reasons = [_failure_reason(job, case, answers.get(number)) for number, case in enumerate(job.cases)]
    failed = [number for number, reason in enumerate(reasons) if reason]
    passed = len(reasons) - len(failed)
    first = failed[0] if failed else None
    hard_coding = hard_coded(literals, [case.expected for case in job.cases])
    result = CodeGrade("passed", "", passed, len(reasons), first, *hard_coding)
    if end.kind in ("timeout", "limit"):
        return replace(result, kind=end.kind, reason=end.reason or end.kind)
    if trouble:
        kind: Kind = "limit" if f" {OUT_OF_MEMORY}" in trouble else "failed"
        return replace(result, kind=kind, reason=trouble, passed=0, first_failed=0)
    if first is not None:
        kind = "limit" if reasons[first].endswith(OUT_OF_MEMORY) else "failed"
        return replace(result, kind=kind, reason=f"case {first}: {reasons[first]}")
    return result


def _failure_reason(job: GradingJob, case: Case, answer: tuple[str, Any] | None) -> str:
    """Why an answer does not pass; "" if it does."""
    if answer is None:
        return "the program ended before it answered"
    kind, payload = answer
    if kind == "raised":
        return f"it raised {payload}"
    if kind == "unencodable":
        return f"it returned what is not a plain value: {payload}"
    try:
        value = decode(payload)
        if same(value, case.expected, job.tolerance, job.strict):
            return ""
    except (NotPlain, RecursionError):
        return UNREADABLE
    if type(value) is not type(case.expected):
        return f"it returned {type(value).__name__}, and {type(case.expected).__name__} is expected"
    return "the value differs"


def hard_coded(literals: Sequence[str], expected: Sequence[Any]) -> tuple[bool, int]:
    """Whether most of the distinctive expected values occur as literals in the code, and how many do.

    Small numbers, truth values, None, single characters and empty containers are in every program and tell nothing. Nor
    do values that several cases expect: those are names of classes ("valid", "Tuesday"), which honest code has as well.

    >>> hard_coded([clipped(120), clipped(5040)], [1, 120, 5040]), hard_coded([clipped(120)], [1, 120, 5040, 40320])
    ((True, 2), (False, 1))
    """
    counted = Counter(clipped(encode(value)) for value in expected if not _is_common(value))
    distinctive = {value for value, times in counted.items() if times == 1}
    count = len(distinctive.intersection(literals))
    return count >= MIN_LITERALS and 2 * count >= len(distinctive), count


def _is_common(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return value in PLAIN_NUMBERS
    return len(value) <= (1 if isinstance(value, (str, bytes)) else 0) if hasattr(value, "__len__") else False
