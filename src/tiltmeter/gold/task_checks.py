"""Gold from what the dataset holds: tests that are run in a sandbox, and answers to mathematics.

No function of the user is needed. A row's tests or answer are recognised by what its columns hold, and the completion
is checked by Tiltmeter's own verifiers, so this is a second opinion on a reward function that is paid by the same tests
or answers. With `keep_back`, the share that `rewards.code(keep_back=...)` does not pay on, it is more than that: tests
that training never sees.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.gold import INDEPENDENT, CompletionToLabel, GoldAnswer
from tiltmeter.gold.answers.answer_check import AnswerCheck
from tiltmeter.gold.checks.code_reward import CodeReward, kept_tests
from tiltmeter.gold.checks.code_tasks import TaskColumns, extract_code
from tiltmeter.gold.checks.maths_reward import MathsReward
from tiltmeter.gold.checks.task_shapes import row_tests, task_key
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.guards.guard_inventory import reward_parts
from tiltmeter.sandbox import Limits
from tiltmeter.sandbox.recorded_tests import BrokenTask
from tiltmeter.verdict.answer_column import ON_TRIAL

TESTS, ANSWERS, AUTO = "tests", "answers", "auto"
CHUNK = 32  # completions that are checked before the time is looked at
MOST_REMEMBERED = 20_000  # labels of completions that were checked before


def names_task_checks(name: object) -> bool:
    """Whether a gold source's name means what the dataset holds: `tests`, `answers` or `auto`, with options.

    >>> names_task_checks("tests:keep_back=0.3"), names_task_checks("tests.py:score")
    (True, False)
    """
    return isinstance(name, str) and name.partition(":")[0] in (TESTS, ANSWERS, AUTO)


@dataclass
class TaskChecks(FunctionSource):
    """Checks completions by the tests or the answer of their row.

    `spec`: `tests`, `answers`, or `auto` for whichever the row has; `tests:keep_back=0.3` for the tests that
    `rewards.code(keep_back=0.3)` never pays on, and `tests:cases=NAME` where the columns have other names;
    `answers:NAME` for a column with answers.

    >>> source = TaskChecks("answers")
    >>> right, wrong = (
    ...     CompletionToLabel("0-0-0", 0, 0, 7, "slope", "17 + 25?", text, {"answer": "42"})
    ...     for text in ("17 + 25 = 42", "42 or 43")
    ... )
    >>> source.label([right, wrong]), source.name
    ([1.0, 0.0], "the dataset's answers")
    """

    function: Callable[..., Any] = field(default=lambda completion: None, repr=False)
    spec: str = ""
    _kind: str = field(default="", init=False, repr=False)
    _code: CodeReward | None = field(default=None, init=False, repr=False)
    _columns: TaskColumns = field(default=TaskColumns(), init=False, repr=False)
    _options: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # how code is graded
    _answers: AnswerCheck = field(default_factory=AnswerCheck, init=False, repr=False)
    _known: dict[tuple[str, str], GoldAnswer] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self.spec = self.spec or self.name
        self._kind, _, options = self.spec.partition(":")
        self._answers = AnswerCheck.from_spec(self.spec) if self._kind == ANSWERS else AnswerCheck(finds=True)
        settings = {} if self._kind == ANSWERS else _read_options(self.spec, options)
        self._columns = TaskColumns(**{name: settings.pop(name) for name in COLUMN_OPTIONS if name in settings})
        self._options = settings
        share = settings.get("keep_back", 0.0)
        part = f"the {100 * share:.0f} % of them that are never paid on" if share else "all of them"
        wordings = {
            TESTS: (f"tests, {part}, run in a sandbox", "held-out tests" if share else "the dataset's tests"),
            ANSWERS: (self._answers.words, "the dataset's answers"),
            AUTO: ("tests and answers, whichever a row has", "the dataset's tests and answers"),
        }
        what, self.name = wordings[self._kind]
        on_trial = self._kind == AUTO or self._answers.on_trial
        self.identity = f"{INDEPENDENT}{what}{ON_TRIAL if on_trial else ''}"

    def start(self) -> None:
        """Open the sandbox. Raises `SandboxUnavailable`."""
        if self._kind != ANSWERS:
            self._grader()

    def _grader(self) -> CodeReward:
        if self._code is None:  # opened where it is used: at attach only its name is read
            self._code = kept_tests(self._columns, **self._options)
        return self._code

    def paid_by(self, rewards: Iterable[object]) -> str | None:
        """The verifier of ours among these rewards and their parts that pays by this very check; None if none does."""
        for part in reward_parts(rewards):
            if self._kind != ANSWERS and isinstance(part, CodeReward):
                if not part.settings.keep_back or part.settings.keep_back != self._options.get("keep_back"):
                    return "code"
            elif self._kind != TESTS and isinstance(part, MathsReward):
                return "maths"
        return None

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        until = time.monotonic() + self.timeout
        answers: list[GoldAnswer] = []
        for start in range(0, len(requests), CHUNK):
            if time.monotonic() > until:
                late = TimeoutError(f"no answer within {self.timeout:g} s")
                return [*answers, *[late] * (len(requests) - len(answers))]
            answers += self._check(requests[start : start + CHUNK])
        return answers

    def _check(self, requests: Sequence[CompletionToLabel]) -> list[GoldAnswer]:
        answers: dict[int, GoldAnswer] = {}
        waiting: dict[tuple[str, str], tuple[str, Mapping[str, Any]]] = {}  # programs that were not run before
        keys: dict[int, tuple[str, str]] = {}
        rows = [{"prompt": request.prompt, **request.columns} for request in requests]
        by_answer = {
            position for position, row in enumerate(rows)
            if self._kind == ANSWERS or (self._kind == AUTO and not self._has_tests(row))
        }  # fmt: skip
        self._answers.look([rows[position] for position in sorted(by_answer)])
        for position, (request, row) in enumerate(zip(requests, rows, strict=True)):
            if position in by_answer:
                answers[position] = self._answers.score(request.completion, row)
                continue
            code = extract_code(request.completion, self._options.get("blocks", "last"))
            keys[position] = key = (task_key(row, self._columns), code)
            if key not in self._known:
                waiting[key] = (code, row)
        if waiting:
            if len(self._known) + len(waiting) > MOST_REMEMBERED:
                self._known.clear()
            self._known |= dict(zip(waiting, self._run(list(waiting.values())), strict=True))
        answers |= {position: self._known[key] for position, key in keys.items()}
        return [answers[position] for position in range(len(requests))]

    def _has_tests(self, row: Mapping[str, Any]) -> bool:
        try:
            return bool(row_tests(row, self._columns))
        except BrokenTask:
            return False

    def _run(self, programs: Sequence[tuple[str, Mapping[str, Any]]]) -> list[GoldAnswer]:
        """1.0 for a program that passes all tests, else 0.0; an error where there is no grade."""
        grades = self._grader().grade([code for code, _ in programs], [row for _, row in programs])
        return [
            LookupError(grade.reason) if grade.kind == "infra" else float(grade.kind == "passed") for grade in grades
        ]

    def close(self) -> None:
        if self._code is not None:
            self._code.sandbox.close()
            self._code = None


def name_kept_tests(reward: CodeReward) -> str:
    """The name of the source that grades by what this reward keeps back, with the reward's own settings.

    >>> from types import SimpleNamespace
    >>> from tiltmeter.gold.checks.code_reward import CodeSettings
    >>> settings = CodeSettings(TaskColumns("mine"), "last", False, None, 0.0, 0, None, "none", 2, 0.3)
    >>> name_kept_tests(SimpleNamespace(settings=settings, limits=Limits()))
    'tests:keep_back=0.3,cases=mine'
    """
    values = {name: getattr(reward.settings, name) for name in ("keep_back", "tolerance", "blocks", "strict")}
    values |= {name: getattr(reward.limits, name) for name in ("wall_seconds", "cpu_seconds", "memory_mb")}
    values |= {name: getattr(reward.settings.columns, name) for name in COLUMN_OPTIONS}
    chosen = [f"{name}={value}" for name, value in values.items() if value != _DEFAULTS[name]]
    return ":".join(filter(None, (TESTS, ",".join(chosen))))


def _read_options(spec: str, options: str) -> dict[str, Any]:
    """The options of `tests:keep_back=0.3,cases=NAME`. Raises `AttachError`."""
    settings: dict[str, Any] = {}
    try:
        for option in filter(None, options.split(",")):
            name, _, value = option.partition("=")
            settings[name] = _OPTIONS[name](value)
        if 0.0 <= settings.get("keep_back", 0.0) < 1.0:
            return settings
    except (KeyError, ValueError):
        pass
    raise AttachError(
        f'gold={spec!r}: write gold="tests", or with options, as gold="tests:keep_back=0.3,cases=NAME"; the options '
        f"are those of tiltmeter.rewards.code: {', '.join(_OPTIONS)}"
    )


def _truth(text: str) -> bool:
    return {"True": True, "False": False}[text]


COLUMN_OPTIONS = ("cases", "tests", "reference", "entry_point", "setup")
_OPTIONS: dict[str, Callable[[str], Any]] = {
    "keep_back": float, "tolerance": float, "blocks": str, "strict": _truth, "wall_seconds": float,
    "cpu_seconds": float, "memory_mb": int, **dict.fromkeys(COLUMN_OPTIONS, str),
}  # fmt: skip
_DEFAULTS: dict[str, Any] = {
    "keep_back": 0.0, "tolerance": 0.0, "blocks": "last", "strict": None, **asdict(Limits()), **asdict(TaskColumns()),
}  # fmt: skip
