"""What the policy says to the first evaluation prompts, kept as TRL evaluates: nothing is generated for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tiltmeter.adapters.loop import Run
from tiltmeter.batches import from_columns

PINNED = 16  # evaluation prompts that are kept


class Answer(NamedTuple):
    prompt: Any
    completion: Any
    reward: Any


class Pinning:
    """Collects while an evaluation goes on, and stores when it is over.

    The prompts are those that the first evaluation began with. A data loader that lives on shuffles anew each time, so
    later evaluations are searched for the same ones, wherever they stand.
    """

    def __init__(self) -> None:
        self._chosen: frozenset[str] = frozenset()
        self._found: dict[str, Answer] = {}  # of the chosen prompts
        self._first: dict[str, Answer] = {}  # of the prompts that this evaluation began with
        self._at = -1  # the step that is evaluated
        self._last: tuple[int, int] | None = None  # attempt and step that were stored last

    def hear(
        self, step: int, prompts: Sequence[Any], completions: Sequence[Any], rewards: Callable[[], Sequence[Any]]
    ) -> None:
        """Rows of one evaluation batch, in TRL's order; `rewards` is asked only if one of them is kept."""
        if step != self._at:  # what an evaluation that was cut short has left is of another policy
            self._found, self._first, self._at = {}, {}, step
        if len(self._first) >= PINNED and len(self._found) >= len(self._chosen):
            return
        texts = from_columns(0, range(len(prompts)), prompt=list(prompts)).prompt or ()
        rewarded: Sequence[Any] | None = None
        for row, text in enumerate(texts):
            known = text in self._chosen and text not in self._found
            begun = len(self._first) < PINNED and text not in self._first
            if text is not None and (known or begun):
                rewarded = rewards() if rewarded is None else rewarded
                answer = Answer(prompts[row], completions[row], rewarded[row])
                if known:
                    self._found[text] = answer
                if begun:
                    self._first[text] = answer

    def store(self, run: Run, step: int) -> None:
        """The evaluation is over: keep what it said. Of several datasets evaluated at a step, the first is kept."""
        answers = list((self._found or self._first).values()) if step == self._at else []
        chosen = self._chosen or frozenset(self._first)
        self._found, self._first = {}, {}
        if answers and self._last != (run.attempt, step):
            self._chosen, self._last = chosen, (run.attempt, step)
            prompts, completions, rewards = zip(*answers, strict=True)
            run.pinned(step, prompts, completions, rewards)
