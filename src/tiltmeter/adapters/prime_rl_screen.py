"""Leaves flagged rollouts of a prime-rl run out of the update, as one of its filters.

prime-rl asks its filters about each rollout of a group that is complete, when advantages are known, and drops what an
enforcing one detects. Pay and advantages of the others stay as they are: a filter cannot change the group's mean.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.acts import all_acts
from tiltmeter.adapters.lost_share import ACTS, LostShare
from tiltmeter.data.batches import from_columns
from tiltmeter.data.turns import Turn
from tiltmeter.data.verifiers_rows import trace_row
from tiltmeter.errors import AttachError, Boundary
from tiltmeter.safety.loading import load_function

MODULE, SINK, FILTERS = "prime_rl.orchestrator.train_sink", "TrainSink", "pre_filters"
ROLLOUTS, LEAST = 256, 32  # over which the share is counted, and that must have been seen
#: What is read of a trace: no tokens, which would take longer than all else.
READ: Mapping[str, Any] = {"task": True, "nodes": {"__all__": {"message", "sampled", "parent", "semantic_parents"}}}
USER = "user"
Flag = Callable[..., Sequence[Any]]


@dataclass(frozen=True)
class Detection:
    """What prime-rl reads of a filter's answer."""

    detected: bool
    detection_index: int | None = None


class ScreenFilter:
    """A `RolloutFilter` of prime-rl: detects what is flagged and has an advantage above 0. Others are pushed down by
    their own pay, and stay.

    `flag`: `acts`, or `checks.py:flagged`, a function of prompts and completions. `failed` is told what went wrong; a
    rollout that could not be looked at stays.
    """

    name = "tiltmeter"

    def __init__(self, flag: str, most_lost: float, *, on: bool, failed: Callable[[Any], object]) -> None:
        self._share = LostShare(most_lost, ROLLOUTS, LEAST)
        self._flag: Flag | None = None if flag == ACTS else load_function(flag)
        self._failed = failed
        self.value, self.why = float(on), ""
        self.ended = ""  # why it has just ended itself, until that was passed on
        self.is_placed = False  # among the filters of a run
        self._lost: list[str] = []  # traces, since they were taken

    @property
    def enforce(self) -> bool:
        return bool(self.value)

    def set(self, value: float) -> None:
        if not self.why:
            self.value = float(value >= 0.5)
            self._share.clear()

    def check(self, rollout: Any) -> Detection:
        """prime-rl's question about one rollout, a trace of verifiers. Off, nothing is looked at. Never raises."""
        leaves = False
        if self.value:
            with Boundary(self._failed, user_code=True):
                leaves = self._leaves(rollout)
        return Detection(leaves)

    def take_lost(self) -> frozenset[str]:
        """The traces that were left out since this was asked last."""
        lost, self._lost = self._lost, []
        return frozenset(lost)

    def _leaves(self, rollout: Any) -> bool:
        leaves = advantage_of(rollout) > 0.0 and self._is_flagged(rollout)
        if why := self._share.why_too_much(int(leaves), 1):
            self.value, self.why, self.ended = 0.0, why, why
            return False
        if leaves:
            self._lost.append(str(rollout.id))
        return leaves

    def _is_flagged(self, rollout: Any) -> bool:
        record = rollout.model_dump(mode="json", include=READ)
        row = trace_row({"task": record.get("task")}, record)
        batch = from_columns(0, [0], turns=[row["turns"]], facts=[row["facts"]])
        if self._flag is None:
            return bool(all_acts(batch)[0])
        answers = self._flag(prompts=[_question(row["turns"])], completions=list(batch.completion or ()))
        if len(answers) != 1:
            raise ValueError(f"screen answered {len(answers)} values for 1 rollout")
        return bool(answers[0])


def advantage_of(rollout: Any) -> float:
    """The mean over a trace's tokens, as prime-rl has set it for the rollout or for its nodes.

    >>> from types import SimpleNamespace
    >>> advantage_of(SimpleNamespace(advantages=[0.5, 0.5])), advantage_of(SimpleNamespace(nodes=[
    ...     SimpleNamespace(advantages=None), SimpleNamespace(advantages=[-1.0])]))
    (0.5, -1.0)
    """
    values = getattr(rollout, "advantages", None)
    if values is None:
        values = [value for node in getattr(rollout, "nodes", ()) for value in node.advantages or ()]
    if not len(values):
        raise ValueError("a rollout has no advantage yet: this prime-rl filters before it computes them")
    return math.fsum(values) / len(values)


def _question(turns: Sequence[Turn]) -> str:
    """What the user said before the policy wrote anything."""
    first = next((at for at, turn in enumerate(turns) if turn.written), len(turns))
    return "\n".join(turn.text for turn in turns[:first] if turn.role == USER and turn.text)


def place_filter(screen: ScreenFilter) -> Callable[[], None]:
    """Put a filter last among those of the orchestrator that is about to be made; what is returned takes it out again.
    Raises `AttachError` for a prime-rl without such filters."""
    try:
        sink = getattr(importlib.import_module(MODULE), SINK)
        there = inspect.signature(sink.__init__).parameters
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise AttachError(f"screen= needs prime-rl's filters of rollouts, which are not there ({error})") from error
    if FILTERS not in there:
        raise AttachError(f"screen= needs prime-rl's filters of rollouts: its {SINK} takes no {FILTERS}")
    original = sink.__init__

    @functools.wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        if FILTERS in kwargs:
            kwargs[FILTERS] = [*kwargs[FILTERS], screen]
            screen.is_placed = True
        original(self, *args, **kwargs)

    def take_out() -> None:
        if sink.__init__ is init:
            sink.__init__ = original

    sink.__init__ = init
    return take_out
