"""`code`: a verifier that runs code in a sandbox and compares the returned values outside it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

from tiltmeter.gold.checks.code_tasks import TaskColumns, TaskTests, extract_code
from tiltmeter.gold.checks.keep_back import divide_tests
from tiltmeter.gold.checks.task_shapes import row_tests, task_key
from tiltmeter.gold.guards.composed_reward import is_column
from tiltmeter.gold.guards.reward import InfraError, Scores, texts
from tiltmeter.sandbox import Limits, Sandbox, open_sandbox
from tiltmeter.sandbox.harness import Case, CodeGrade, GradingJob, NotRun, grade_many
from tiltmeter.sandbox.hidden_inputs import hidden_cases, vary_examples
from tiltmeter.sandbox.recorded_tests import BrokenTask, grade_recorded, record
from tiltmeter.sandbox.values import decode

LONGEST = 1 << 18  # characters; longer code is not run
MAX_REMEMBERED_TASKS = 20_000  # tasks whose recorded tests are remembered
COMPOSED = 4  # inputs that are composed for a task of which no test can be kept back

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CodeSettings:
    """How code is graded (where it runs is in `Limits` and the sandbox)."""

    columns: TaskColumns
    blocks: Literal["last", "all"]
    partial: bool
    strict: bool | None
    tolerance: float
    hidden: int
    draw: Callable[[random.Random, Row], tuple[Any, ...]] | None
    on_infra: Literal["none", "raise"]
    workers: int
    keep_back: float = 0.0
    part: Literal["paid", "kept"] = "paid"  # the part of divided tests that is graded by


class CodeReward:
    """A verifier of code, as a reward function: 1.0 if every test passes, else 0.0; None if it could not be graded.

    Most coding runs train on tests, and tests that run beside the code are the first thing a policy learns to fool.
    Here the code never sees its tests: it returns values in a sandbox, and these are compared outside. `outcomes` has
    the grade and reason of each row of the last call. A broken sandbox gives None: a 0 would count as a wrong answer.

    >>> from tiltmeter.gold.checks.code_reward import extract_code
    >>> extract_code("So:\\n```python\\ndef add(a, b):\\n    return a + b\\n```\\nDone.")
    'def add(a, b):\\n    return a + b\\n'
    """

    bounds: tuple[float | None, float | None] = (0.0, 1.0)
    components: tuple[str, ...] = ()

    def __init__(self, settings: CodeSettings, opener: _SandboxOpener, sandbox: Sandbox | None = None) -> None:
        self.__name__ = "code"
        self.settings = settings
        self.told: dict[str, Scores] = {}
        self.infra: list[bool] = []
        self.outcomes: list[CodeGrade] = []
        self.unhidden = 0  # rows of the last call for which hidden inputs were wanted and none could be drawn
        self.undivided = 0  # rows of the last call of whose tests nothing could be kept back
        self._open = opener
        self._tests_by_key: dict[str, TaskTests] = {}
        # Opened here, so that a machine without a sandbox fails before training begins.
        self._sandbox: Sandbox | None = sandbox or opener()
        self._pid = os.getpid()

    @property
    def sandbox(self) -> Sandbox:
        """Where the code runs. A process that was forked off does not share its parent's."""
        if self._sandbox is None or self._pid != os.getpid():
            self._sandbox, self._pid = self._open(), os.getpid()
        return self._sandbox

    @property
    def limits(self) -> Limits:
        """What one program may use."""
        return self._open.limits

    @property
    def identity(self) -> tuple[object, ...]:
        """What the reward fingerprint is made of: how it grades and the limits on code, not what it has graded."""
        how = self.settings
        graded = (how.blocks, how.partial, how.strict, how.tolerance, how.hidden, how.draw)
        share = (how.keep_back,) if how.keep_back else ()
        return (astuple(how.columns), *graded, *share, astuple(self._open.limits))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sandbox": None, "_tests_by_key": {}}

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        codes = [extract_code(text, self.settings.blocks) for text in texts(completions)]
        rows = [
            {name: values[number] for name, values in columns.items() if is_column(values, len(codes))}
            for number in range(len(codes))
        ]
        if is_column(prompts, len(codes)):
            rows = [{"prompt": text, **row} for text, row in zip(texts(prompts), rows, strict=True)]
        self.outcomes = self.grade(codes, rows)
        self.infra = [outcome.kind == "infra" for outcome in self.outcomes]
        if self.settings.on_infra == "raise" and any(self.infra):
            why = self.outcomes[self.infra.index(True)].reason
            raise InfraError(f"{sum(self.infra)} of {len(codes)} programs could not be graded: {why}")
        return [None if outcome.kind == "infra" else self._score(outcome) for outcome in self.outcomes]

    def grade(self, codes: Sequence[str], rows: Sequence[Row]) -> list[CodeGrade]:
        """The outcome of each program by the tests of its row."""
        cache: dict[str, TaskTests | str] = {}
        outcomes: dict[int, CodeGrade] = {}
        jobs: list[tuple[int, str, TaskTests]] = []
        for number, (text, row) in enumerate(zip(codes, rows, strict=True)):
            tests = self._tests(row, cache)
            if isinstance(tests, str):
                outcomes[number] = CodeGrade("infra", tests)
            elif len(text) > LONGEST:
                outcomes[number] = CodeGrade("failed", f"longer than {LONGEST} characters", cases=1, first_failed=0)
            else:
                jobs.append((number, tests.prepare(text), tests))
        self.unhidden = sum(not tests.hidden for _, _, tests in jobs) if self.settings.hidden else 0
        self.undivided = sum(not tests.is_divided for _, _, tests in jobs) if self.settings.keep_back else 0
        outcomes |= self._by_cases([job for job in jobs if job[2].cases])
        outcomes |= self._by_record([job for job in jobs if not job[2].cases])
        return [outcomes[number] for number in range(len(codes))]

    def _score(self, outcome: CodeGrade) -> float:
        return outcome.share if self.settings.partial else float(outcome.kind == "passed")

    def _tests(self, row: Row, cache: dict[str, TaskTests | str]) -> TaskTests | str:
        """The tests of a row, with hidden cases that are the same for all rows of this call that share them."""
        key = task_key(row, self.settings.columns)
        if key not in cache:
            try:
                cache[key] = self._build_tests(key, row)
            except (NotRun, BrokenTask) as error:
                cache[key] = str(error)
        return cache[key]

    def _build_tests(self, key: str, row: Row) -> TaskTests:
        if key not in self._tests_by_key:
            tests = self._part(row_tests(row, self.settings.columns))
            if not tests.cases:
                tests = replace(tests, recorded=record(self.sandbox, tests.program, tests.reference, tests.function))
            if len(self._tests_by_key) >= MAX_REMEMBERED_TASKS:
                self._tests_by_key.clear()
            self._tests_by_key[key] = tests
        tests = self._tests_by_key[key]
        return replace(tests, hidden=tuple(self._hidden(tests, row))) if self.settings.hidden else tests

    def _part(self, tests: TaskTests) -> TaskTests:
        """The part of a task's tests that this reward grades by. Raises `BrokenTask` where nothing was kept back."""
        paid, held_out = divide_tests(tests, self.settings.keep_back)
        if self.settings.part == "paid":
            return replace(paid, is_divided=bool(held_out.cases))
        return held_out if held_out.cases else replace(held_out, cases=self._composed(tests))

    def _composed(self, tests: TaskTests) -> tuple[Case, ...]:
        """Cases for a task of which nothing can be kept back: inputs that vary its only one, answered by its reference.
        The same ones each time."""
        examples = [case.args for case in tests.cases if case.args]
        if not examples or not tests.reference:
            raise BrokenTask("nothing of its tests is kept back: they are one case, or a program and no list of cases")
        rng = random.Random(repr((tests.function, examples)))
        reference = tests.prepare(tests.reference)
        composed = hidden_cases(self.sandbox, reference, tests.function, vary_examples(examples), COMPOSED, rng)
        if not composed:
            raise BrokenTask("nothing of its one test is kept back, and its reference answers no other input")
        return tuple(composed)

    def _hidden(self, tests: TaskTests, row: Row) -> list[Case]:
        if not tests.reference:
            raise BrokenTask(f"hidden inputs need a reference: see the column {self.settings.columns.reference!r}")
        inputs = tests.recorded.inputs if tests.recorded else ()
        examples = [case.args for case in tests.cases] or [decode(encoded)[0] for encoded in inputs]
        draw = self.settings.draw
        draw_args = vary_examples(examples) if draw is None else lambda rng: draw(rng, row)
        return hidden_cases(
            self.sandbox, tests.setup + tests.reference, tests.function, draw_args, self.settings.hidden
        )

    def _by_cases(self, jobs: list[tuple[int, str, TaskTests]]) -> dict[int, CodeGrade]:
        graded = grade_many(
            self.sandbox,
            [self._job(text, tests, (*tests.cases, *tests.hidden)) for _, text, tests in jobs],
            self.settings.workers,
        )
        return {number: outcome for (number, _, _), outcome in zip(jobs, graded, strict=True)}

    def _by_record(self, jobs: list[tuple[int, str, TaskTests]]) -> dict[int, CodeGrade]:
        pairs = [(text, tests.recorded) for _, text, tests in jobs if tests.recorded is not None]
        graded = dict(
            zip(
                (number for number, _, _ in jobs),
                grade_recorded(self.sandbox, pairs, self.settings.workers),
                strict=True,
            )
        )
        again = [job for job in jobs if job[2].hidden and graded[job[0]].kind == "passed"]
        hidden = grade_many(
            self.sandbox, [self._job(text, tests, tests.hidden) for _, text, tests in again], self.settings.workers
        )
        return graded | {number: outcome for (number, _, _), outcome in zip(again, hidden, strict=True)}

    def _job(self, text: str, tests: TaskTests, cases: tuple[Case, ...]) -> GradingJob:
        strict = tests.strict if self.settings.strict is None else self.settings.strict
        return GradingJob(text, tests.function, cases, strict, self.settings.tolerance)


def code(
    *,
    cases: str = "cases",
    tests: str = "tests",
    reference: str = "reference",
    entry_point: str = "entry_point",
    setup: str = "setup",
    blocks: Literal["last", "all"] = "last",
    partial: bool = False,
    strict: bool | None = None,
    tolerance: float = 0.0,
    hidden: int = 0,
    draw: Callable[[random.Random, Row], tuple[Any, ...]] | None = None,
    on_infra: Literal["none", "raise"] = "none",
    isolation: Literal["strict", "pooled"] = "strict",
    limits: Limits | None = None,
    workers: int = 2,
    keep_back: float = 0.0,
    sandbox: Sandbox | None = None,
) -> CodeReward:
    """A reward that grades code by a dataset's tests. Raises `SandboxUnavailable` here, not in training.

    The dataset has a column `cases` (a list of `{"args": [...], "expected": ...}`, or such a list as JSON or Python
    text) or `tests` (assert statements, or a program with `check(candidate)`), with `entry_point` the function's name,
    `reference` a solution (needed by tests that are more than `assert f(...) == value`, and by hidden inputs) and
    `setup` what stands before the code. A row that has neither is read by the shape of its columns: HumanEval, MBPP,
    APPS, LiveCodeBench and others (`task_shapes.py`). `keep_back`: the share of each task's tests that is never paid
    on, 0.3 for example: `tiltmeter.attach` makes them gold. `reward.undivided` counts rows of whose tests nothing could
    be kept back. `blocks`: the last fenced block of a completion, or all of them. `partial`: the
    share of cases in place of all or nothing. `strict`: compare in type and value; None does so for `cases`, and as the
    tests' own `==` for `tests`. `hidden`: how many inputs to draw afresh for each call, by `draw(rng, row)` or by
    varying the known ones; `reward.unhidden` counts rows whose reference took none of them. `on_infra="raise"` stops a
    run that cannot be graded.

    Example:

        reward = rewards.code()
        cases = [{"args": [2, 3], "expected": 5}]
        reward(completions=["def add(a, b): return a + b"], cases=[cases], entry_point=["add"])  # [1.0]
    """
    if not 0.0 <= keep_back < 1.0:
        raise ValueError(f"keep_back={keep_back}: give the share of tests that is not paid on, from 0 to below 1")
    allowed = Limits() if limits is None else limits
    columns = TaskColumns(cases, tests, reference, entry_point, setup)
    settings = CodeSettings(columns, blocks, partial, strict, tolerance, hidden, draw, on_infra, workers, keep_back)
    return CodeReward(settings, _SandboxOpener(isolation, allowed), sandbox)


def kept_tests(
    columns: TaskColumns,
    *,
    keep_back: float = 0.0,
    blocks: Literal["last", "all"] = "last",
    strict: bool | None = None,
    tolerance: float = 0.0,
    **limits: Any,
) -> CodeReward:
    """The grader by what `code(keep_back=...)` keeps back, or, where that is 0, by all tests. It pays nobody."""
    part: Literal["paid", "kept"] = "kept" if keep_back else "paid"
    settings = CodeSettings(columns, blocks, False, strict, tolerance, 0, None, "none", 2, keep_back, part)
    return CodeReward(settings, _SandboxOpener("pooled", Limits(**limits)))


@dataclass(frozen=True, slots=True)
class _SandboxOpener:
    """Opens the same sandbox again in another process."""

    isolation: Literal["strict", "pooled"]
    limits: Limits

    def __call__(self) -> Sandbox:
        return open_sandbox(self.isolation, limits=self.limits)
