"""Gold of the judged runs, as functions that read a completion: good ones, and some that have stopped telling."""

from __future__ import annotations

import re
import zlib

_FIRST: dict[str, float] = {}


def last_number(completion: str) -> str | None:
    numbers: list[str] = re.findall(r"-?\d+", completion)
    return numbers[-1] if numbers else None


def score_number(completion: str, answer: str) -> float:
    return float(last_number(completion) == answer)


def score_strictly(completion: str, answer: str) -> float:
    """The right number, and nothing after it."""
    return float(completion.endswith(answer) and last_number(completion) == answer)


def score_with_errors(completion: str, answer: str) -> float:
    """Three answers of ten are scored the wrong way round, the same ones whenever they are asked about."""
    right = last_number(completion) == answer
    return float(right != (zlib.crc32(completion.encode()) % 10 < 3))


def score_if_it_parses(completion: str, answer: str) -> float | None:
    """Nothing is said of an answer without a number."""
    return None if last_number(completion) is None else score_number(completion, answer)


def score_from_cache(prompt: str, completion: str, answer: str) -> float:
    """A cache whose key forgot the completion: what the first answer to a prompt was worth."""
    return _FIRST.setdefault(prompt, score_number(completion, answer))


def score_by_prompt(prompt: str, completion: str) -> float:
    """A number that no answer can change."""
    return float(zlib.crc32(prompt.encode()) % 10 < 7)


def score_state(completion: str, answer: str) -> float:
    """The record that an agent leaves, which its transcript quotes last."""
    return float(completion.rstrip().endswith(f"state: {answer}"))
