"""Wrong keys of the task's own scale, and how often an honest answer can hit one.

The wrong key is drawn evenly from K values and shown to nobody. Whatever an honest policy answers, it was as likely to
be drawn as any other of them: an answer hits it with a chance of at most 1 / K, exactly, be it guessed, wrong or right.
"""

from __future__ import annotations

import random
import re
from datetime import date, timedelta
from math import gcd, isqrt

MOST = 200  # values that one is drawn from
ENOUGH = 100  # of them, from which on round numbers and squares are left out too: mistakes are often such
DAYS = 180  # that a wrong date is away, at most

_OPTION = re.compile(r"(?:^|\s)\(?([A-J])[).:]\s", re.MULTILINE)
_LETTER = re.compile(r"\(?([A-J])\)?\.?")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_DIGITS = 15  # of a number that is read


def wrong_keys(key: str, prompt: str, rng: random.Random) -> list[str]:
    """The values that a wrong key is drawn from: options for an option, dates for a date, numbers of its size for a
    number; none where the key is of no such kind.

    >>> rng = random.Random(0)
    >>> sorted(wrong_keys("B", "Which?\\nA) one\\nB) two\\nC) three\\nD) four", rng))
    ['A', 'C', 'D']
    >>> {len(key) for key in wrong_keys("2024-05-07", "When?", rng)}, len(wrong_keys("42", "6 * 7?", rng))
    ({10}, 73)
    """
    if (letter := _LETTER.fullmatch(key)) is not None:
        options = set(_OPTION.findall(prompt)) or set("ABCD")
        return [key.replace(letter[1], other) for other in sorted(options - {letter[1]})]
    try:
        day = date.fromisoformat(key)
        return [str(day + timedelta(days)) for days in range(-DAYS, DAYS + 1) if days]
    except (ValueError, OverflowError):
        pass
    numbers = list(_NUMBER.finditer(key))
    if not numbers or len(numbers[-1][0]) > _DIGITS:
        return []
    last = numbers[-1]
    others = _numbers_like(last[0], set(_NUMBER.findall(prompt)), rng)
    return [key[: last.start()] + other + key[last.end() :] for other in others]


def _numbers_like(number: str, shown: set[str], rng: random.Random) -> list[str]:
    """Numbers from half to twice as large, with as many decimals, none of them in the prompt."""
    whole, _, decimals = number.partition(".")
    value = int(whole + decimals)
    low, high = max(value // 2, 2), 2 * value + 10
    values = [one for one in rng.sample(range(low, high + 1), min(5 * MOST, high - low + 1)) if one != value]
    uneven = [one for one in values if gcd(one, 30) == 1 and isqrt(one) ** 2 != one]
    chosen = (uneven if len(uneven) >= ENOUGH else values)[:MOST]
    texts = [
        f"{one // 10 ** len(decimals)}.{one % 10 ** len(decimals):0{len(decimals)}d}" if decimals else str(one)
        for one in chosen
    ]
    return [text for text in texts if text not in shown]
