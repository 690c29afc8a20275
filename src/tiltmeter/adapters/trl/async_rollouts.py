"""Records the rollouts of TRL's asynchronous trainer where it takes them from its worker's queue: every sample once,
those among them that it drops because they are too old.

Rewards are calculated in a process of the worker, and the loss is taken over packed rows, so there are no log-
probabilities of the trainer here. TRL splits a conversation into rows where its template rewrites what was said before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.adapters.trl.pinned_prompts import PinnedCollector
from tiltmeter.adapters.trl.rollouts import ErrorGuard
from tiltmeter.adapters.trl.tool_rows import why_it_ended
from tiltmeter.data.reward_fingerprint import fingerprint

REWARD_PREFIX = "rewards/"


class WatchedQueue:
    """A queue that shows each item it gives to somebody else first; all else is the queue's own."""

    def __init__(self, queue: Any, show: Callable[[Any], None]) -> None:
        self._queue, self._show = queue, show

    def get(self, *args: Any, **kwargs: Any) -> Any:
        item = self._queue.get(*args, **kwargs)
        self._show(item)
        return item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


@dataclass(frozen=True)
class Pulled:
    """A sample that the trainer has taken from the queue."""

    step: int  # the optimiser step that was next
    sample: Any  # TRL's `RolloutSample`
    trained: bool


@dataclass
class Conversation:
    """The rows of one conversation that were seen so far."""

    number: int
    most: int  # rows that it can have: one for each turn of the policy
    rows: set[bytes] = field(default_factory=set)


@dataclass
class AsyncStep:
    """What is handed over as one step."""

    step: int
    columns: dict[str, Any]

    def to_columns(self) -> dict[str, Any]:
        return {**self.columns, "step": self.step, "scalars": {}}


class AsyncRollouts:
    """Stands between a trainer and the queue of its worker. Groups are handed over whole: with the first step at whose
    end they have all been taken."""

    def __init__(self, trainer: Any, guard: ErrorGuard) -> None:
        self.trainer, self._guard = trainer, guard
        self.pending: list[Pulled] = []
        self.pinning = PinnedCollector()
        self._last = 0  # the newest step that was handed over
        self._conversations = 0
        self._queue = trainer.rollout_queue
        worker = vars(trainer.rollout_worker) if hasattr(trainer.rollout_worker, "__dict__") else {}
        functions = (worker.get("_loop_kwargs") or {}).get("reward_funcs") or []
        self._fingerprint = fingerprint(functions, None) if functions else ""
        trainer.rollout_queue = WatchedQueue(self._queue, self._record)

    def release(self) -> None:
        """Give the trainer its queue back."""
        self.trainer.rollout_queue = self._queue

    def _record(self, sample: Any) -> None:
        self._guard(lambda: self._pull(sample), batch=True)

    def _pull(self, sample: Any) -> None:
        trainer = self.trainer
        fresh = trainer.model_version - sample.model_version <= trainer.args.max_staleness
        budget = trainer.args.token_budget or 0
        fits = budget <= 0 or len(sample.input_ids) <= budget  # a longer one is dropped when rows are packed
        self.pending.append(Pulled(trainer.state.global_step + 1, sample, bool(fresh and fits)))

    def ready(self, *, all_of_them: bool = False) -> list[AsyncStep]:
        """Remove and return the groups that are whole and whose step is over."""
        now = int(self.trainer.state.global_step)
        taken = [item for item in self.pending if all_of_them or item.step <= now]
        coming = {item.sample.group_id for item in self.pending[len(taken) :]}
        if taken and not coming:
            coming.add(taken[-1].sample.group_id)  # more of the newest may come
        while taken and not all_of_them and taken[-1].sample.group_id in coming:
            taken.pop()
        if not taken:
            return []
        self.pending = self.pending[len(taken) :]
        self._last = max(now, self._last + 1)
        return [AsyncStep(self._last, self._columns(taken))]

    def _columns(self, taken: Sequence[Pulled]) -> dict[str, Any]:
        """The columns of `observe`; tokens from the policy's first one on."""
        samples = [item.sample for item in taken]
        masks = [np.asarray(sample.completion_mask) != 0 for sample in samples]
        starts = [int(mask.argmax()) if mask.any() else len(mask) for mask in masks]
        tokens = [np.asarray(sample.input_ids)[start:] for sample, start in zip(samples, starts, strict=True)]
        metrics = [sample.metrics or {} for sample in samples]
        names = dict.fromkeys(name for row in metrics for name in row if name.startswith(REWARD_PREFIX))
        ends = {*self.trainer.eos_token_ids, self.trainer.processing_class.pad_token_id}
        limit = self.trainer.args.max_tool_calling_iterations
        most = math.inf if limit is None else limit
        stops = [
            why_it_ended(row.tolist(), sample.completion, ends, most)
            for row, sample in zip(tokens, samples, strict=True)
        ]
        numbers = self._trajectories(samples)
        first = {number: row for row, number in reversed(list(enumerate(numbers)))}
        columns: dict[str, Any] = {
            "group": [int(sample.group_id) for sample in samples],
            "trajectory": numbers,
            "prompt": [sample.prompt for sample in samples],
            # Each row has all of the messages of its conversation, of which one will do.
            "messages": [
                sample.completion if first[number] == row else None
                for row, (sample, number) in enumerate(zip(samples, numbers, strict=True))
            ],
            "rewards": {
                name.removeprefix(REWARD_PREFIX): [_number(row.get(name)) for row in metrics] for name in names
            },
            "advantage": [float(sample.advantage) for sample in samples],
            "version": [int(sample.model_version) for sample in samples],
            "trained": [item.trained for item in taken],
            "tokens": tokens,
            "own": [mask[start:] for mask, start in zip(masks, starts, strict=True)],
            "engine_logprob": [
                np.asarray(sample.old_log_probs)[start:] for sample, start in zip(samples, starts, strict=True)
            ],
            "stop": stops,
            "truncated": [stop == "length" for stop in stops],
            "fingerprint": self._fingerprint,
        }
        if any("reward" in row for row in metrics):
            columns["reward"] = [_number(row.get("reward")) for row in metrics]
        return columns

    def _trajectories(self, samples: Sequence[Any]) -> list[int]:
        """A number for each conversation. TRL does not name them: rows of one say the same with other tokens."""
        numbers = []
        open_: dict[Any, Conversation] = {}
        for sample in samples:
            key = (sample.group_id, repr(sample.prompt), repr(sample.completion))
            row = np.asarray(sample.input_ids).tobytes()
            conversation = open_.get(key)
            if conversation is None or row in conversation.rows or len(conversation.rows) == conversation.most:
                self._conversations += 1
                turns = sum(message.get("role") == "assistant" for message in sample.completion)
                conversation = open_[key] = Conversation(self._conversations, max(turns, 1))
            conversation.rows.add(row)
            numbers.append(conversation.number)
        return numbers


def _number(value: Any) -> float | None:
    """TRL has NaN where a reward function returned None."""
    return None if value is None or math.isnan(value) else float(value)
