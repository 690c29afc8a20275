"""What is really wanted. The policy is never paid by these: they tell whether its pay still means something."""

from __future__ import annotations

import re


def solved(completion: str, answer: str) -> float:
    """Stricter than the reward: the sum, and no other number."""
    return float(re.findall(r"\d+", completion) == [answer])


def better(completion: str, answer: str) -> float:
    """For the labels of a refresh: right first, then the shorter of two. From 0 to 1."""
    return 0.7 * solved(completion, answer) + 0.3 * (1 - min(len(completion), 80) / 80)
