"""Code graded by the values it returns: only code and inputs enter the sandbox, and what is expected stays outside.

A harness that runs tests beside the code it tests can be paid without work: the code may end the process with success,
return an object that equals everything, read what is expected from a frame, or print a verdict (`forgeries.py`). Here
a candidate can only say values, and they are compared in this process, in type and value. One way is left, to know the
answers by heart: `hidden.py` draws inputs that nobody has seen, and `Outcome.hard_coded` says when the expected values
stand in the code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from tiltmeter.sandbox import Ended, Sandbox
from tiltmeter.sandbox.candidate import calling, job_line, said
from tiltmeter.sandbox.values import NotPlain, clipped, decode, encode, same

Kind = Literal["passed", "failed", "timeout", "limit", "infra"]
#: Values that any program may contain: knowing them by heart is knowing nothing.
PLAIN_NUMBERS = range(-10, 11)
OUT_OF_MEMORY = "MemoryError"  # how a limit of ours looks from inside; to raise it on purpose gains nothing
UNREADABLE = "what it returned cannot be read"
FEW = 2  # expected values that must stand in the code before it is called hard-coded


class NotRun(RuntimeError):  # noqa: N818  # what happened, as Ended's kind "infra"
    """Something of ours broke before there could be a grade."""


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
    def asked(self) -> Any:
        """The input as it enters the sandbox."""
        return encode((tuple(self.args), dict(self.kwargs)))


class Job(NamedTuple):
    """Code to grade by the values of one of its functions. `strict=False` compares as Python's `==` does."""

    code: str
    function: str
    cases: Sequence[Case]
    strict: bool = True
    tolerance: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What code is worth by its tests, or why that is not known.

    `infra` means that something of ours broke: there is no grade, and it must not become 0, or a broken machine would
    teach the policy. `hard_coded` says that expected values stand as literals in the code (how many: `literals`); it is
    a hint, not a grade.

    >>> Outcome("failed", "case 1: the value differs", passed=1, cases=2, first_failed=1).share
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


def grade(sandbox: Sandbox, code: str, function: str, cases: Sequence[Case], **how: Any) -> Outcome:
    """What the code's function is worth on these cases. `how`: `strict`, `tolerance`, as in `Job`."""
    return grade_many(sandbox, [Job(code, function, cases, **how)])[0]


def grade_many(sandbox: Sandbox, jobs: Sequence[Job | tuple[Any, ...]], workers: int = 2) -> list[Outcome]:
    """The same for many at once, `workers` of them side by side; a job may be a plain `(code, function, cases)`."""
    wanted = [Job(*job) for job in jobs]
    marks, runs = [], []
    for job in wanted:
        mark, line = job_line(
            {"code": job.code, "function": job.function, "inputs": [case.asked for case in job.cases], "literals": True}
        )
        marks.append(mark)
        runs.append((calling(), line))
    ended = sandbox.run_many(runs, workers)
    return [outcome_of(job, end, mark) for job, end, mark in zip(wanted, ended, marks, strict=True)]


def answers_of(end: Ended, mark: str, count: int) -> tuple[dict[int, tuple[str, Any]], str, list[str]]:
    """What a candidate answered by case (`value`, `raised` or `unencodable`), why it gave none, and its literals."""
    answers: dict[int, tuple[str, Any]] = {}
    trouble = ""
    literals: list[str] = []
    for kind, told in said(end.stdout, mark):
        if kind == "literals" and not literals and isinstance(told, list):
            literals = [one for one in told if isinstance(one, str)]
        elif kind in ("broken", "missing") and isinstance(told, str):
            trouble = trouble or (f"it could not be loaded: {told}" if kind == "broken" else f"it has no {told}")
        elif kind in ("value", "raised", "unencodable") and isinstance(told, list) and len(told) == 2:
            number, value = told
            if type(number) is not int or not 0 <= number < count or number in answers:
                trouble = trouble or "it answered a case twice, or one that was not asked"
            elif kind != "value" and not isinstance(value, str):
                trouble = trouble or UNREADABLE
            else:
                answers[number] = (kind, value)
    return answers, trouble, literals


def started(end: Ended, mark: str) -> bool:
    """Whether the program that loads candidates ran at all: it says so before it loads one."""
    return any(kind == "started" for kind, _ in said(end.stdout, mark))


def unknown(end: Ended, mark: str) -> str:
    """Why there can be no grade; "" if there can."""
    if end.kind == "infra":
        return end.reason or "the sandbox did not run the program"
    if end.kind == "ended" and not started(end, mark):
        return f"the program that loads candidates did not start: {end.reason or end.stderr[-200:]}"
    return ""


def outcome_of(job: Job, end: Ended, mark: str) -> Outcome:
    """A grade from what the sandbox told: the only place where values meet what is expected."""
    if not job.cases:
        return Outcome("infra", "there are no cases to grade by")
    if why := unknown(end, mark):
        return Outcome("infra", why, cases=len(job.cases))
    answers, trouble, literals = answers_of(end, mark, len(job.cases))
    reasons = [_wrong(job, case, answers.get(number)) for number, case in enumerate(job.cases)]
    failed = [number for number, reason in enumerate(reasons) if reason]
    passed = len(reasons) - len(failed)
    first = failed[0] if failed else None
    known = hard_coded(literals, [case.expected for case in job.cases])
    result = Outcome("passed", "", passed, len(reasons), first, *known)
    if end.kind in ("timeout", "limit"):
        return replace(result, kind=end.kind, reason=end.reason or end.kind)
    if trouble:
        kind: Kind = "limit" if f" {OUT_OF_MEMORY}" in trouble else "failed"
        return replace(result, kind=kind, reason=trouble, passed=0, first_failed=0)
    if first is not None:
        kind = "limit" if reasons[first].endswith(OUT_OF_MEMORY) else "failed"
        return replace(result, kind=kind, reason=f"case {first}: {reasons[first]}")
    return result


def _wrong(job: Job, case: Case, answer: tuple[str, Any] | None) -> str:
    """Why an answer does not pass; "" if it does."""
    if answer is None:
        return "the program ended before it answered"
    kind, told = answer
    if kind == "raised":
        return f"it raised {told}"
    if kind == "unencodable":
        return f"it returned what is not a plain value: {told}"
    try:
        value = decode(told)
        if same(value, case.expected, job.tolerance, job.strict):
            return ""
    except (NotPlain, RecursionError):
        return UNREADABLE
    if type(value) is not type(case.expected):
        return f"it returned {type(value).__name__}, and {type(case.expected).__name__} is expected"
    return "the value differs"


def hard_coded(literals: Sequence[str], expected: Sequence[Any]) -> tuple[bool, int]:
    """Whether most of the expected values that tell something stand in the code, and how many do.

    Small numbers, truth values, None, single characters and empty containers are in every program and tell nothing. Nor
    do values that several cases expect: those are names of classes ("valid", "Tuesday"), which honest code has as well.

    >>> hard_coded([clipped(120), clipped(5040)], [1, 120, 5040]), hard_coded([clipped(120)], [1, 120, 5040, 40320])
    ((True, 2), (False, 1))
    """
    counted = Counter(clipped(encode(value)) for value in expected if not _everywhere(value))
    telling = {value for value, times in counted.items() if times == 1}
    count = len(telling.intersection(literals))
    return count >= FEW and 2 * count >= len(telling), count


def _everywhere(value: Any) -> bool:
    if value is None or isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return value in PLAIN_NUMBERS
    return len(value) <= (1 if isinstance(value, (str, bytes)) else 0) if hasattr(value, "__len__") else False
