"""Gold from a function of the operator's own file: a verifier, hidden tests, a stricter check, another reward."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from tiltmeter.errors import AttachError
from tiltmeter.fingerprint import fingerprint
from tiltmeter.gold import Answer, Request

TIMEOUT_SECONDS = 600.0  # for all that one step asks
TEXTS = ("prompt", "completion", "prompts", "completions", "columns")
#: What TRL hands a reward function and no run directory holds.
TRAINERS_OWN = ("completion_ids", "prompt_ids", "trainer_state", "log_extra", "log_metric", "environments")


@dataclass
class FunctionSource:
    """A function that answers at once: `score(prompt, completion, answer) -> float | None`, or, as TRL calls a reward
    function, `score(completions, answer, **kwargs)` for all of a step in one call, which returns one answer each.

    Worth having, because a function that reads the completion more strictly than the reward does turns a run that
    nobody can judge into one with a proved alarm. It runs in the monitor, so that training never waits for it. A
    further parameter is a fact of the row by that name: a column of the dataset, `length` or `truncated`; `columns`
    receives all of them, and so does `**kwargs`. A row without a fact that the function must have is a missing label,
    and so is whatever it raises: never a 0. What has not come after `timeout` seconds is missing too, and nothing more
    is asked of a function that still hangs: Python cannot stop it.

    >>> def score(completion, answer): return float(completion == answer)
    >>> source = FunctionSource("checks.py:score", score)
    >>> source.label([Request("0-0-0", 0, 0, 7, "slope", "2 + 2?", "4", {"answer": "4"})])
    [1.0]
    """

    judged: ClassVar[bool] = False
    name: str
    function: Callable[..., Any] = field(repr=False)
    timeout: float = TIMEOUT_SECONDS
    identity: str = field(default="", init=False)
    _together: bool = field(default=False, init=False, repr=False)
    _texts: tuple[str, ...] = field(default=(), init=False, repr=False)
    _facts: dict[str, bool] = field(default_factory=dict, init=False, repr=False)  # by name: is there no default
    _everything: bool = field(default=False, init=False, repr=False)  # **kwargs
    _busy: threading.Thread | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        path, _, function = self.name.rpartition(":")
        self.name = f"{Path(path).name}:{function}"  # the same source, from wherever it was named
        self.identity = f"the function {function} in {Path(path).name}, code {fingerprint([self.function])}"
        try:
            takes = inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            takes = MappingProxyType({})
        self._together = "completions" in takes
        if ("completion" in takes) == self._together:
            raise AttachError(
                f"{self.name} cannot be asked for gold: define it as `def {function}(prompt, completion)`, returning a "
                f"number from 0 to 1 or None, or as `def {function}(prompts, completions)`, returning a list of them; "
                "further parameters get the dataset's columns of those names"
            )
        self._texts = tuple(name for name in TEXTS if name in takes)
        for name, parameter in takes.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                self._everything = True
            elif name not in TEXTS and parameter.kind is not parameter.VAR_POSITIONAL:
                self._facts[name] = parameter.default is parameter.empty
        if lacking := [name for name in TRAINERS_OWN if self._facts.pop(name, False)]:
            raise AttachError(
                f"{self.name} needs {' and '.join(lacking)}, which only the trainer has: gold is asked in another "
                "process, from text and the dataset's columns. Give the parameter a default, or drop it"
            )

    def label(self, requests: Sequence[Request]) -> Sequence[Answer]:
        if self._busy is not None and self._busy.is_alive():
            late = TimeoutError(f"still busy with what it was asked more than {self.timeout:g} s ago")
            return [late] * len(requests)
        answers: dict[int, Answer] = {}
        self._busy = threading.Thread(target=self._work, args=(list(requests), answers), daemon=True)
        self._busy.start()
        self._busy.join(self.timeout)
        missed = TimeoutError(f"no answer within {self.timeout:g} s")
        return [answers.get(position, missed) for position in range(len(requests))]

    def _work(self, requests: list[Request], answers: dict[int, Answer]) -> None:
        whole: dict[int, Request] = {}
        for position, request in enumerate(requests):
            lacking = [name for name, needed in self._facts.items() if needed and name not in request.columns]
            if not lacking:
                whole[position] = request
                continue
            answers[position] = LookupError(f"the row has no {lacking[0]!r}; it has {sorted(request.columns) or None}")
        if self._together and whole:
            answers.update(zip(whole, self._all(list(whole.values())), strict=True))
        elif not self._together:
            for position, request in whole.items():
                try:
                    answers[position] = _awaited(self.function(**self._arguments(request)))
                except BaseException as error:  # noqa: BLE001  # whatever it was, it is a missing label, with a reason
                    answers[position] = _explained(error)

    def _all(self, requests: list[Request]) -> list[Answer]:
        known = list(dict.fromkeys(name for request in requests for name in request.columns))
        rows = [self._arguments(request, known) for request in requests]
        try:
            told = list(_awaited(self.function(**{f: [row[f] for row in rows] for f in rows[0]})))
            if len(told) != len(requests):
                raise ValueError(f"{len(told)} answers to {len(requests)} completions")
        except BaseException as error:  # noqa: BLE001
            return [_explained(error)] * len(requests)
        return told

    def _arguments(self, request: Request, known: Sequence[str] = ()) -> dict[str, Any]:
        """What the function gets of one request. `known`: names that any row of the call has, None where this has not:
        a list for all rows has no gaps."""
        texts = {"prompt": request.prompt, "completion": request.completion, "columns": request.columns}
        given = {name: texts[name.removesuffix("s") if name != "columns" else name] for name in self._texts}
        names = [*known, *(name for name in request.columns if name not in known)]
        wanted = (name for name in names if (name in self._facts or self._everything) and name not in TEXTS)
        return given | {name: request.columns.get(name) for name in wanted}


def _explained(error: BaseException) -> BaseException:
    """The error of a function that was written for chat messages, with what it should expect."""
    if isinstance(error, TypeError) and "string indices" in str(error):
        return TypeError(f"{error}: completions are plain text here, not lists of chat messages")
    return error


def _awaited(told: Any) -> Any:
    """What it said, also if it is an `async def`, as TRL allows."""

    async def waited() -> Any:
        return await told

    return asyncio.run(waited()) if inspect.isawaitable(told) else told
