"""Keeps the policy's completions of the same few evaluation prompts, taken from TRL's own evaluations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tiltmeter.adapters.custom_loop import Run
from tiltmeter.data.batches import from_columns

PINNED = 16  # evaluation prompts that are kept


class PinnedAnswer(NamedTuple):
    prompt: Any
    completion: Any
    reward: Any


class PinnedCollector:
    """Collects rows during an evaluation, and stores them when it is over.

    The prompts are the first ones of the first evaluation. A persistent data loader shuffles each time, so later
    evaluations are searched for the same prompts, in any order.
    """

    def __init__(self) -> None:
        self._pinned: frozenset[str] = frozenset()
        self._answers: dict[str, PinnedAnswer] = {}  # by pinned prompt
        self._first: dict[str, PinnedAnswer] = {}  # by prompt: the first ones of this evaluation
        self._step = -1  # the step that is evaluated
        self._last: tuple[int, int] | None = None  # attempt and step that were stored last

    def add_rows(
        self, step: int, prompts: Sequence[Any], completions: Sequence[Any], rewards: Callable[[], Sequence[Any]]
    ) -> None:
        """Rows of one evaluation batch, in TRL's order; `rewards` is called only if a row is kept."""
        if step != self._step:  # rows left by an interrupted evaluation are of another policy
            self._answers, self._first, self._step = {}, {}, step
        if len(self._first) >= PINNED and len(self._answers) >= len(self._pinned):
            return
        texts = from_columns(0, range(len(prompts)), prompt=list(prompts)).prompt or ()
        values: Sequence[Any] | None = None
        for row, text in enumerate(texts):
            is_pinned = text in self._pinned and text not in self._answers
            is_first = len(self._first) < PINNED and text not in self._first
            if text is not None and (is_pinned or is_first):
                values = rewards() if values is None else values
                answer = PinnedAnswer(prompts[row], completions[row], values[row])
                if is_pinned:
                    self._answers[text] = answer
                if is_first:
                    self._first[text] = answer

    def store(self, run: Run, step: int) -> None:
        """The evaluation is over: store the rows. Of several datasets evaluated at a step, the first is kept."""
        answers = list((self._answers or self._first).values()) if step == self._step else []
        chosen = self._pinned or frozenset(self._first)
        self._answers, self._first = {}, {}
        if answers and self._last != (run.attempt, step):
            self._pinned, self._last = chosen, (run.attempt, step)
            prompts, completions, rewards = zip(*answers, strict=True)
            run.pinned(step, prompts, completions, rewards)
