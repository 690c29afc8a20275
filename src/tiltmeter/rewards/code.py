"""A reward for code: what it returns in a sandbox, compared outside it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Literal

from tiltmeter.rewards import InfraError, Scores, texts
from tiltmeter.rewards.parts import per_row
from tiltmeter.rewards.tasks import Columns, Tests, code_in, read_tests
from tiltmeter.sandbox import Limits, Sandbox, open_sandbox
from tiltmeter.sandbox.harness import Case, Job, NotRun, Outcome, grade_many
from tiltmeter.sandbox.hidden import hidden_cases, like
from tiltmeter.sandbox.recorded import BrokenTask, grade_recorded, record
from tiltmeter.sandbox.values import decode

LONGEST = 1 << 18  # characters; longer code is not run
KEPT = 20_000  # tasks whose recorded tests are remembered

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """How code is graded, beside where it runs."""

    columns: Columns
    blocks: Literal["last", "all"]
    partial: bool
    strict: bool | None
    tolerance: float
    hidden: int
    draw: Callable[[random.Random, Row], tuple[Any, ...]] | None
    on_infra: Literal["none", "raise"]
    workers: int


class Code:
    """A verifier of code, as a reward function: 1.0 if every test passes, else 0.0; None if that is not known.

    Tests are the reward that most coding runs train on, and the first thing such a run learns to fool. Here the code
    never meets its tests: it returns values, in a sandbox, and they are compared outside. `outcomes` are those of the
    last call, with the reasons. A broken sandbox gives None, because a 0 would teach the policy that it was wrong.

    >>> from tiltmeter.rewards.code import code_in
    >>> code_in("So:\\n```python\\ndef add(a, b):\\n    return a + b\\n```\\nDone.")
    'def add(a, b):\\n    return a + b\\n'
    """

    bounds: tuple[float | None, float | None] = (0.0, 1.0)
    components: tuple[str, ...] = ()

    def __init__(self, settings: Settings, opened: _Opened, sandbox: Sandbox | None = None) -> None:
        self.__name__ = "code"
        self.settings = settings
        self.told: dict[str, Scores] = {}
        self.infra: list[bool] = []
        self.outcomes: list[Outcome] = []
        self.unhidden = 0  # rows of the last call for which hidden inputs were wanted and none could be drawn
        self._opened = opened
        self._known: dict[str, Tests] = {}
        # At once, so that a machine without a sandbox is found out before training begins.
        self._sandbox: Sandbox | None = sandbox or opened()
        self._pid = os.getpid()

    @property
    def sandbox(self) -> Sandbox:
        """Where the code runs. A process that was forked off does not share its parent's."""
        if self._sandbox is None or self._pid != os.getpid():
            self._sandbox, self._pid = self._opened(), os.getpid()
        return self._sandbox

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes it another reward: how it grades and what code may use, not what it has graded."""
        how = self.settings
        graded = (how.blocks, how.partial, how.strict, how.tolerance, how.hidden, how.draw)
        return (astuple(how.columns), *graded, astuple(self._opened.limits))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_sandbox": None, "_known": {}}

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        codes = [code_in(text, self.settings.blocks) for text in texts(completions)]
        rows = [
            {name: values[number] for name, values in columns.items() if per_row(values, len(codes))}
            for number in range(len(codes))
        ]
        self.outcomes = self.grade(codes, rows)
        self.infra = [outcome.kind == "infra" for outcome in self.outcomes]
        if self.settings.on_infra == "raise" and any(self.infra):
            why = self.outcomes[self.infra.index(True)].reason
            raise InfraError(f"{sum(self.infra)} of {len(codes)} programs could not be graded: {why}")
        return [None if outcome.kind == "infra" else self._score(outcome) for outcome in self.outcomes]

    def grade(self, codes: Sequence[str], rows: Sequence[Row]) -> list[Outcome]:
        """The outcome of each program by the tests of its row."""
        made: dict[str, Tests | str] = {}
        outcomes: dict[int, Outcome] = {}
        jobs: list[tuple[int, str, Tests]] = []
        for number, (text, row) in enumerate(zip(codes, rows, strict=True)):
            found = self._tests(row, made)
            if isinstance(found, str):
                outcomes[number] = Outcome("infra", found)
            elif len(text) > LONGEST:
                outcomes[number] = Outcome("failed", f"longer than {LONGEST} characters", cases=1, first_failed=0)
            else:
                jobs.append((number, found.setup + text, found))
        self.unhidden = sum(not tests.hidden for _, _, tests in jobs) if self.settings.hidden else 0
        outcomes |= self._by_cases([job for job in jobs if job[2].cases])
        outcomes |= self._by_record([job for job in jobs if not job[2].cases])
        return [outcomes[number] for number in range(len(codes))]

    def _score(self, outcome: Outcome) -> float:
        return outcome.share if self.settings.partial else float(outcome.kind == "passed")

    def _tests(self, row: Row, made: dict[str, Tests | str]) -> Tests | str:
        """The tests of a row, with hidden cases that are the same for all rows of this call that share them."""
        key = self.settings.columns.key(row)
        if key not in made:
            try:
                made[key] = self._made(key, row)
            except (NotRun, BrokenTask) as error:
                made[key] = str(error)
        return made[key]

    def _made(self, key: str, row: Row) -> Tests:
        if key not in self._known:
            tests = read_tests(row, self.settings.columns)
            if not tests.cases:
                tests = replace(tests, recorded=record(self.sandbox, tests.program, tests.reference, tests.function))
            if len(self._known) >= KEPT:
                self._known.clear()
            self._known[key] = tests
        tests = self._known[key]
        return replace(tests, hidden=tuple(self._hidden(tests, row))) if self.settings.hidden else tests

    def _hidden(self, tests: Tests, row: Row) -> list[Case]:
        if not tests.reference:
            raise BrokenTask(f"hidden inputs need a reference: see the column {self.settings.columns.reference!r}")
        known = tests.recorded.asked if tests.recorded else ()
        examples = [case.args for case in tests.cases] or [decode(asked)[0] for asked in known]
        draw = self.settings.draw
        drawn = like(examples) if draw is None else lambda rng: draw(rng, row)
        return hidden_cases(self.sandbox, tests.setup + tests.reference, tests.function, drawn, self.settings.hidden)

    def _by_cases(self, jobs: list[tuple[int, str, Tests]]) -> dict[int, Outcome]:
        graded = grade_many(
            self.sandbox,
            [self._job(text, tests, (*tests.cases, *tests.hidden)) for _, text, tests in jobs],
            self.settings.workers,
        )
        return {number: outcome for (number, _, _), outcome in zip(jobs, graded, strict=True)}

    def _by_record(self, jobs: list[tuple[int, str, Tests]]) -> dict[int, Outcome]:
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

    def _job(self, text: str, tests: Tests, cases: tuple[Case, ...]) -> Job:
        strict = tests.strict if self.settings.strict is None else self.settings.strict
        return Job(text, tests.function, cases, strict, self.settings.tolerance)


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
    sandbox: Sandbox | None = None,
) -> Code:
    """A reward that grades code by a dataset's tests. Raises `SandboxUnavailable` here, not in training.

    The dataset has a column `cases` (a list of `{"args": [...], "expected": ...}`, or such a list as JSON or Python
    text) or `tests` (assert statements, or a program with `check(candidate)`), with `entry_point` the function's name,
    `reference` a solution (needed by tests that are more than `assert f(...) == value`, and by hidden inputs) and
    `setup` what stands before the code. `blocks`: the last fenced block of a completion, or all of them. `partial`: the
    share of cases in place of all or nothing. `strict`: compare in type and value; None does so for `cases`, and as the
    tests' own `==` for `tests`. `hidden`: how many inputs to draw afresh for each call, by `draw(rng, row)` or by
    varying the known ones; `reward.unhidden` counts rows whose reference took none of them. `on_infra="raise"` stops a
    run that cannot be graded.
    """
    allowed = Limits() if limits is None else limits
    columns = Columns(cases, tests, reference, entry_point, setup)
    settings = Settings(columns, blocks, partial, strict, tolerance, hidden, draw, on_infra, workers)
    return Code(settings, _Opened(isolation, allowed), sandbox)


@dataclass(frozen=True, slots=True)
class _Opened:
    """Opens the same sandbox again in another process."""

    isolation: Literal["strict", "pooled"]
    limits: Limits

    def __call__(self) -> Sandbox:
        return open_sandbox(self.isolation, limits=self.limits)
