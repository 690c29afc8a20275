"""Values that are wrong and that honest mistakes hardly ever hit: each has random digits or letters of its own."""

from __future__ import annotations

import random
import string
from typing import Any

LOW, HIGH = 1_000, 9_999  # what is added to a number: four digits, so that a mistake hits it once in thousands


def wrong_value(value: Any, rng: random.Random) -> Any:
    """A value of the same kind that differs; None where every other value is likely (a truth value, None).

    >>> rng = random.Random(0)
    >>> wrong_value(True, rng), wrong_value(7, rng) > 999, wrong_value([1, 2], rng)[0]
    (None, True, 1)
    """
    match value:
        case bool() | None:
            return None
        case int() | float():
            return value + rng.randint(LOW, HIGH)
        case str():
            return value + "".join(rng.choices(string.ascii_lowercase, k=5))
        case list():
            return [*value, rng.randint(LOW, HIGH)]
        case tuple():
            return (*value, rng.randint(LOW, HIGH))
        case set():
            return value | {rng.randint(LOW, HIGH)}
        case dict():
            return {**value, rng.randint(LOW, HIGH): rng.randint(LOW, HIGH)}
    return None


def other_value(value: Any, rng: random.Random) -> Any:
    """A value that differs, likely or not: for a test that stands beside the right one, which it contradicts."""
    if value is None or isinstance(value, bool):
        return not value
    return wrong_value(value, rng)


def wrong_number(text: str, rng: random.Random) -> str:
    """A text with its last number changed, or with a line more: what a program is said to print."""
    words = text.rstrip().split(" ")
    digits = words[-1].strip()
    if digits.lstrip("-").isdecimal() and len(digits) < 19:
        return " ".join([*words[:-1], str(int(digits) + rng.randint(LOW, HIGH))]) + "\n"
    return f"{text.rstrip()}\n{rng.randint(LOW, HIGH)}\n"
