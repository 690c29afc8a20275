"""Find the canaries and sandboxes in a run's reward functions and their parts, for the run directory."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from tiltmeter.gold.guards.canaries import CanaryReward
from tiltmeter.gold.guards.composed_reward import ComposedReward, function_name
from tiltmeter.sandbox import Sandbox


def find_canaried(functions: Iterable[object]) -> Iterator[CanaryReward]:
    """The rewards with canaries among these functions and in their parts, in a fixed order."""
    for function in map(_unwrap, functions):
        if isinstance(function, CanaryReward):
            yield function
        elif isinstance(function, ComposedReward):
            yield from find_canaried(function.parts.values())


def reward_parts(functions: Iterable[object]) -> Iterator[object]:
    """These functions without wrappers, and the parts of those that have parts."""
    for function in map(_unwrap, functions):
        yield function
        if isinstance(function, ComposedReward):
            yield from reward_parts(function.parts.values())


def canary_scalars(functions: Iterable[object], rank: int = 0) -> dict[str, float]:
    """The counts of all canaries since the last call, as scalars of a step; empty where there are none."""
    scalars: dict[str, float] = {}
    first = 0
    for reward in find_canaried(functions):
        scalars |= reward.scalars(rank, first)
        first += len(reward.canaries)
    return scalars


def describe_canaries(functions: Iterable[object]) -> list[dict[str, str]]:
    """The texts of the canaries, in the order of their numbers."""
    return [
        {"reward": reward.__name__, "kind": reward.kind, "expect": canary.expect, "text": canary.completion[:200]}
        for reward in find_canaried(functions)
        for canary in reward.canaries
    ]


@runtime_checkable
class Sandboxed(Protocol):
    """A reward that runs code in a sandbox."""

    @property
    def sandbox(self) -> Sandbox: ...


def describe_sandboxes(functions: Iterable[object]) -> list[dict[str, str]]:
    """The sandboxes in which these functions and their parts run code: reward, tier, isolation."""
    rows = []
    for function in map(_unwrap, functions):
        if isinstance(function, Sandboxed):
            where = function.sandbox
            rows.append({"reward": function_name(function), "tier": where.tier, "isolation": where.isolation})  # type: ignore[arg-type]
        elif isinstance(function, ComposedReward):
            rows += describe_sandboxes(function.parts.values())
    return rows


def _unwrap(function: object) -> object:
    """The function inside a wrapper, such as an adapter puts around it."""
    return inspect.unwrap(function) if callable(function) else function
