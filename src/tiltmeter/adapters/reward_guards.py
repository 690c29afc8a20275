"""Records the canaries and sandboxes of a run's reward functions: which there are, and canary counts with each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.guard_inventory import canary_scalars, describe_canaries, describe_sandboxes
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.rundir.verifier_audits import write_guards

Rewards = Sequence[Callable[..., Any]]


def record_guards(run: RunDirectory, attempt: int, rewards: Rewards) -> None:
    """Store which canaries and sandboxes the reward functions have."""
    if not rewards:
        return
    try:
        write_guards(run, attempt, describe_canaries(rewards), describe_sandboxes(rewards))
    except OSError as error:
        raise AttachError(f"cannot keep a run in {run.path}: {error}; free space or name another place") from error


def add_canary_counts(item: Any, rewards: Rewards, rank: int) -> Any:
    """Add to a step the canary counts of this rank's reward functions since the previous step.

    The rank is part of each scalar's name: of two ranks' scalars with one name only the lower rank's would be kept.
    """
    if not rewards:
        return item
    counts = canary_scalars(rewards, rank)
    if not counts:
        return item
    if isinstance(item, RolloutBatch):
        return replace(item, scalars={**item.scalars, **counts})
    return {**item, "scalars": {**(item.get("scalars") or {}), **counts}}
