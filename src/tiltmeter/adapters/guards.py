"""What guards a run's rewards, handed to the run: counts of canaries with each step, and what there is at the start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.records import RolloutBatch
from tiltmeter.store import RunDirectory
from tiltmeter.verifier_audits import note

Rewards = Sequence[Callable[..., Any]]


def describe(run: RunDirectory, attempt: int, rewards: Rewards) -> None:
    """Keep with the run which canaries and sandboxes its reward functions have."""
    if not rewards:
        return
    from tiltmeter.rewards.guarded import described, sandboxes  # only where there is something to look into

    try:
        note(run, attempt, described(rewards), sandboxes(rewards))
    except OSError as error:
        raise AttachError(f"cannot keep a run in {run.path}: {error}; free space or name another place") from error


def with_canaries(item: Any, rewards: Rewards, rank: int) -> Any:
    """A step that is handed over, with what canaries in this rank's reward functions said since the one before.

    The rank is part of each scalar's name: of two ranks' scalars of one name only the lower rank's would stand.
    """
    if not rewards:
        return item
    from tiltmeter.rewards.guarded import counted

    told = counted(rewards, rank)
    if not told:
        return item
    if isinstance(item, RolloutBatch):
        return replace(item, scalars={**item.scalars, **told})
    return {**item, "scalars": {**(item.get("scalars") or {}), **told}}
