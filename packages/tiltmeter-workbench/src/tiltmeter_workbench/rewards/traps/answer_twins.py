"""Twins of tasks with a key: the same question, and a key that is wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from math import gcd, isqrt
from typing import Any

from tiltmeter.gold.checks.math_answers import equal, extract_answers, read_answer
from tiltmeter.gold.checks.maths_reward import maths, reference_answer
from tiltmeter.gold.traps.trap_file import Trap, TrapFacts

#: Columns that hold a key; all that hold the same one are changed together.
COLUMNS = ("answer", "final_answer", "solution", "ground_truth", "target", "label", "reference")
FORMS = ("\\boxed{%s}", "#### %s", "Answer: %s")


def twin_with_wrong_key(row: Mapping[str, Any], prompt: str, rng: random.Random) -> Trap | str:
    """The row with a wrong key, or why there is none.

    A key of three digits or more that does not stand in the prompt, and no round number or square: an honest mistake
    hits it once in hundreds at most.
    A letter of a choice is exchanged for such a number too, which no honest answer to it is.
    """
    columns = {name: row[name] for name in COLUMNS if isinstance(row.get(name), (str, int, float))}
    keys = {name: key for name, value in columns.items() if (key := _key(str(value))) is not None}
    name = next(iter(keys), None)
    true = None if name is None else reference_answer(str(columns[name]))
    if name is None or true is None:
        return "its key cannot be read"
    digits = max(len(re.sub(r"\D", "", keys[name])), 3)
    for _ in range(100):
        number = rng.randint(10 ** (min(digits, 9) - 1), 10 ** min(digits, 9) - 1)
        wrong, answer = str(number), read_answer(str(number))
        if (
            answer is None
            or gcd(number, 30) > 1
            or isqrt(number) ** 2 == number
            or wrong in prompt
            or equal(answer, true, worked=False)
            or equal(true, answer, worked=False)
        ):
            continue
        changed = {one: _with_key(value, keys[one], wrong) for one, value in columns.items() if one in keys}
        if any(_key(str(value)) != wrong for value in changed.values()):
            return "its key cannot be exchanged"
        honest = [form % keys[name] for form in FORMS]
        reward = maths(several="last")
        if any(reward.score(text, wrong) for text in honest):
            continue
        facts = TrapFacts("wrong key", {one: columns[one] for one in changed}, honest=honest, checked=len(honest))
        return Trap({**row, **changed}, facts)
    return "no wrong key was found"


def _key(text: str) -> str | None:
    """The key as it stands in a column: bare, in a box, or behind `####`; None where it is not one answer."""
    answers = extract_answers(text, ("boxed", "hashes"))
    key = answers[-1].strip() if answers else text.strip()
    if not key or "\n" in key or len(key) > 100:
        return None
    return key if read_answer(key) is not None else None


def _with_key(value: Any, key: str, wrong: str) -> Any:
    if not isinstance(value, str):
        return type(value)(wrong)
    before, _, after = value.rpartition(key)
    return f"{before}{wrong}{after}"
