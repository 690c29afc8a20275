"""Gold from a function of the operator's own file: a verifier, hidden tests, a stricter check."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.fingerprint import fingerprint
from tiltmeter.gold import Answer, Request

TIMEOUT_SECONDS = 600.0  # for all that one step asks
SINGLE, PLURAL = ("prompt", "completion"), ("prompts", "completions")


@dataclass
class FunctionSource:
    """A function that answers at once: `score(prompt, completion) -> float | None`, or `score(prompts, completions)`
    for all of a step in one call, which returns one answer each.

    Worth having, because a function that reads the completion more strictly than the reward does turns a run that
    nobody can judge into one with a proved alarm. It runs in the monitor, so that training never waits for it. A
    parameter named `columns` receives what else is known: `length` and `truncated`. What it raises makes a missing
    label, never a 0. What has not come after `timeout` seconds is missing too, and nothing more is asked of a function
    that still hangs: Python cannot stop it.

    >>> def score(prompt, completion): return float(completion == "4")
    >>> source = FunctionSource("checks.py:score", score)
    >>> source.label([Request("0-0-0", 0, 0, 7, "slope", "2 + 2?", "4")])
    [1.0]
    """

    name: str
    function: Callable[..., Any] = field(repr=False)
    timeout: float = TIMEOUT_SECONDS
    identity: str = field(default="", init=False)
    _together: bool = field(default=False, init=False, repr=False)
    _columns: bool = field(default=False, init=False, repr=False)
    _busy: threading.Thread | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        path, _, function = self.name.rpartition(":")
        self.name = f"{Path(path).name}:{function}"  # the same source, from wherever it was named
        self.identity = f"the function {function} in {Path(path).name}, code {fingerprint([self.function])}"
        try:
            takes = inspect.signature(self.function).parameters
        except (TypeError, ValueError):
            takes = MappingProxyType({})
        self._together = set(PLURAL) <= takes.keys()
        self._columns = "columns" in takes
        if not self._together and not set(SINGLE) <= takes.keys():
            raise AttachError(
                f"{self.name} cannot be asked for gold: define it as `def {function}(prompt, completion)`, returning a "
                f"number from 0 to 1 or None, or as `def {function}(prompts, completions)`, returning a list of them"
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
        if self._together:
            columns: dict[str, Any] = {"columns": [r.columns for r in requests]} if self._columns else {}
            prompts, completions = [r.prompt for r in requests], [r.completion for r in requests]
            try:
                told = list(self.function(prompts=prompts, completions=completions, **columns))
                if len(told) != len(requests):
                    raise ValueError(f"{len(told)} answers to {len(requests)} completions")
            except BaseException as error:  # noqa: BLE001  # whatever it was, it is a missing label and has a reason
                told = [error] * len(requests)
            answers.update(enumerate(told))
            return
        for position, request in enumerate(requests):
            columns = {"columns": request.columns} if self._columns else {}
            try:
                answers[position] = self.function(prompt=request.prompt, completion=request.completion, **columns)
            except BaseException as error:  # noqa: BLE001
                answers[position] = error
