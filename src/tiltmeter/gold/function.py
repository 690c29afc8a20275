"""Gold from a Python function of the user: a verifier, hidden tests, a stricter check, another reward."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldAnswer

TIMEOUT_SECONDS = 600.0  # for all that one step asks
TEXTS = ("prompt", "completion", "prompts", "completions", "columns")
#: What TRL hands a reward function and no run directory holds.
TRAINER_ONLY = ("completion_ids", "prompt_ids", "trainer_state", "log_extra", "log_metric", "environments")


@dataclass
class FunctionSource:
    """A function that answers at once: `score(prompt, completion, answer) -> float | None`, or, as TRL calls a reward
    function, `score(completions, answer, **kwargs)` for all of a step in one call, which returns one answer each.

    With a function that checks the completion more strictly than the reward does, a run has an alarm with a proved
    bound. A further parameter is a fact of the row by that name: a column of the dataset, `length` or
    `truncated`, of an agent's also `turns` (a list of dicts), `stop`, `env`, `task` and `artifacts`; `columns` receives
    all of them, and so does `**kwargs`. If a row lacks a fact that the function needs, or the
    function raises, the label is missing: never a 0.

    This class calls the function in this process, for a function that has no file to be named by. A label that has not
    come after `timeout` seconds is missing, and a function that still hangs gets no further calls: Python cannot stop
    it. One that a file defines is called by `FunctionProcess`, which can.

    >>> def score(completion, answer): return float(completion == answer)
    >>> source = FunctionSource("checks.py:score", score)
    >>> source.label([CompletionToLabel("0-0-0", 0, 0, 7, "slope", "2 + 2?", "4", {"answer": "4"})])
    [1.0]
    """

    judged: ClassVar[bool] = False
    name: str
    function: Callable[..., Any] = field(repr=False)
    timeout: float = TIMEOUT_SECONDS
    identity: str = field(default="", init=False)
    _is_batched: bool = field(default=False, init=False, repr=False)
    _texts: tuple[str, ...] = field(default=(), init=False, repr=False)
    _facts: dict[str, bool] = field(default_factory=dict, init=False, repr=False)  # by name: is there no default
    _takes_kwargs: bool = field(default=False, init=False, repr=False)  # **kwargs
    _busy: threading.Thread | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        path, _, function = self.name.rpartition(":")
        self.name = f"{Path(path).name}:{function}"  # the same source, from wherever it was named
        self.identity = f"the function {function} in {Path(path).name}, code {fingerprint([self.function])}"
        try:
            parameters = inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            parameters = MappingProxyType({})
        self._is_batched = "completions" in parameters
        if ("completion" in parameters) == self._is_batched:
            raise AttachError(
                f"{self.name} cannot be asked for gold: define it as `def {function}(prompt, completion)`, returning a "
                f"number from 0 to 1 or None, or as `def {function}(prompts, completions)`, returning a list of them; "
                "further parameters get the dataset's columns of those names"
            )
        self._texts = tuple(name for name in TEXTS if name in parameters)
        for name, parameter in parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                self._takes_kwargs = True
            elif name not in TEXTS and parameter.kind is not parameter.VAR_POSITIONAL:
                self._facts[name] = parameter.default is parameter.empty
        if trainer_only := [name for name in TRAINER_ONLY if self._facts.pop(name, False)]:
            raise AttachError(
                f"{self.name} needs {' and '.join(trainer_only)}, which only the trainer has: gold is asked in another "
                "process, from text and the dataset's columns. Give the parameter a default, or drop it"
            )

    @property
    def required_columns(self) -> tuple[str, ...]:
        """Columns that a row must have, or there is no label."""
        return tuple(name for name, needed in self._facts.items() if needed)

    def names_column(self, name: str) -> bool:
        """Whether a parameter of the function asks for this column."""
        return name in self._facts

    def start(self) -> None:
        """Make whatever the function needs ready, so that the time of the next call is the function's."""

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        if self._busy is not None and self._busy.is_alive():
            busy_error = TimeoutError(f"still busy with what it was asked more than {self.timeout:g} s ago")
            return [busy_error] * len(requests)
        answers: dict[int, GoldAnswer] = {}
        self._busy = threading.Thread(target=self._work, args=(list(requests), answers), daemon=True)
        self._busy.start()
        self._busy.join(self.timeout)
        timeout_error = TimeoutError(f"no answer within {self.timeout:g} s")
        return [answers.get(position, timeout_error) for position in range(len(requests))]

    def _work(self, requests: list[CompletionToLabel], answers: dict[int, GoldAnswer]) -> None:
        answers.update(self.answers(requests))  # one by one, so that what came in time is there

    def answers(self, requests: Sequence[CompletionToLabel]) -> Iterator[tuple[int, GoldAnswer]]:
        """The position and the answer of each request, as they come: one by one in order, or all after one call."""
        answerable: dict[int, CompletionToLabel] = {}
        for position, request in enumerate(requests):
            missing = [name for name, needed in self._facts.items() if needed and name not in request.columns]
            if missing:
                has = sorted(request.columns) or None
                yield position, LookupError(f"the row has no {missing[0]!r}; it has {has}")
            elif self._is_batched:
                answerable[position] = request
            else:
                yield position, self._call(request)
        if answerable:
            yield from zip(answerable, self._call_batched(list(answerable.values())), strict=True)

    def _call(self, request: CompletionToLabel) -> GoldAnswer:
        try:
            answer: GoldAnswer = _await_result(self.function(**self._arguments(request)))
        except BaseException as error:  # noqa: BLE001  # whatever it was, it is a missing label, with a reason
            return _explain_error(error)
        return answer

    def _call_batched(self, requests: list[CompletionToLabel]) -> list[GoldAnswer]:
        column_names = list(dict.fromkeys(name for request in requests for name in request.columns))
        rows = [self._arguments(request, column_names) for request in requests]
        try:
            answers = list(_await_result(self.function(**{f: [row[f] for row in rows] for f in rows[0]})))
            if len(answers) != len(requests):
                raise ValueError(f"{len(answers)} answers to {len(requests)} completions")
        except BaseException as error:  # noqa: BLE001
            return [_explain_error(error)] * len(requests)
        return answers

    def _arguments(self, request: CompletionToLabel, column_names: Sequence[str] = ()) -> dict[str, Any]:
        """The function's arguments for one request. `column_names`: names that any row of the call has; the value is
        None where this row lacks it, because a list for all rows has no gaps."""
        texts = {"prompt": request.prompt, "completion": request.completion, "columns": request.columns}
        arguments = {name: texts[name.removesuffix("s") if name != "columns" else name] for name in self._texts}
        names = [*column_names, *(name for name in request.columns if name not in column_names)]
        fact_names = (name for name in names if (name in self._facts or self._takes_kwargs) and name not in TEXTS)
        return arguments | {name: request.columns.get(name) for name in fact_names}


def _explain_error(error: BaseException) -> BaseException:
    """The error of a function that was written for chat messages, with what it should expect."""
    if isinstance(error, TypeError) and "string indices" in str(error):
        return TypeError(f"{error}: completions are plain text here, not lists of chat messages")
    return error


def _await_result(result: Any) -> Any:
    """The function's result, awaited if it is an `async def`, as TRL allows."""

    async def waited() -> Any:
        return await result

    return asyncio.run(waited()) if inspect.isawaitable(result) else result
