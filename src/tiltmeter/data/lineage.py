"""The lineage of an attempt: its own steps, and those of earlier attempts below the resume step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def lineage(attempt: int, attempts: Mapping[int, Mapping[str, Any]], first: Mapping[int, int]) -> dict[int, float]:
    """By attempt, oldest first, the step below which its steps count. `first` is each attempt's first measured step.

    >>> facts = {0: {"parent": None}, 1: {"parent": 0, "resume_step": 30}, 2: {"parent": 1}}
    >>> lineage(2, facts, {0: 0, 1: 30, 2: 20})
    {0: 20, 1: 20, 2: inf}
    """
    chain: dict[int, float] = {attempt: float("inf")}
    limit = float("inf")
    while (parent := attempts.get(attempt, {}).get("parent")) is not None and parent not in chain:
        resume_step = attempts[attempt].get("resume_step")
        limit = min(limit, first.get(attempt, limit) if resume_step is None else resume_step)
        chain[parent] = limit
        attempt = parent
    return dict(reversed(chain.items()))
