"""What guards rewards, found in them and in their parts: canaries, and the sandboxes in which code runs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from tiltmeter.rewards.canaries import Canaried
from tiltmeter.rewards.parts import Made, named
from tiltmeter.sandbox import Sandbox


def canaried_in(functions: Iterable[object]) -> Iterator[Canaried]:
    """The rewards with canaries among these functions and in their parts, in a fixed order."""
    for function in map(_bare, functions):
        if isinstance(function, Canaried):
            yield function
        elif isinstance(function, Made):
            yield from canaried_in(function.parts.values())


def counted(functions: Iterable[object], rank: int = 0) -> dict[str, float]:
    """What canaries said since this was last asked, as scalars of a step; empty where there are none."""
    told: dict[str, float] = {}
    first = 0
    for reward in canaried_in(functions):
        told |= reward.scalars(rank, first)
        first += len(reward.canaries)
    return told


def described(functions: Iterable[object]) -> list[dict[str, str]]:
    """The texts of the canaries, in the order of their numbers."""
    return [
        {"reward": reward.__name__, "kind": reward.kind, "expect": canary.expect, "text": canary.completion[:200]}
        for reward in canaried_in(functions)
        for canary in reward.canaries
    ]


@runtime_checkable
class Sandboxed(Protocol):
    """A reward that runs code in a sandbox."""

    @property
    def sandbox(self) -> Sandbox: ...


def sandboxes(functions: Iterable[object]) -> list[dict[str, str]]:
    """Where these functions and their parts run code; each tested itself when it was opened."""
    found = []
    for function in map(_bare, functions):
        if isinstance(function, Sandboxed):
            where = function.sandbox
            found.append({"reward": named(function), "tier": where.tier, "isolation": where.isolation})  # type: ignore[arg-type]
        elif isinstance(function, Made):
            found += sandboxes(function.parts.values())
    return found


def _bare(function: object) -> object:
    """The function inside a wrapper, such as an adapter puts around it."""
    return inspect.unwrap(function) if callable(function) else function
