"""Twins of tasks with a key: the same question, and a key that is wrong."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any

from tiltmeter.gold.checks.math_answers import MathAnswer, equal, extract_answers, read_answer
from tiltmeter.gold.checks.maths_reward import maths, reference_answer
from tiltmeter.gold.traps.trap_file import LEAST_CHANCE, MOST_CHANCE, Trap, TrapFacts
from tiltmeter_workbench.rewards.traps.wrong_keys import wrong_keys

#: Columns that hold a key; all that hold the same one are changed together.
COLUMNS = ("answer", "final_answer", "solution", "ground_truth", "target", "label", "reference")
_PLAIN = re.compile(r"-?\d{1,15}(?:\.\d{1,9})?|\(?[A-J]\)?\.?|\d{4}-\d\d-\d\d")
FORMS = ("\\boxed{%s}", "#### %s", "Answer: %s")


def twin_with_wrong_key(row: Mapping[str, Any], prompt: str, rng: random.Random) -> Trap | str:
    """The row with a wrong key, or why there is none.

    Another option for an option, a date for a date, a number of its size for a number, each drawn evenly from so many
    that its `chance` of being hit is known exactly (`wrong_keys.py`).
    """
    columns = {name: row[name] for name in COLUMNS if isinstance(row.get(name), (str, int, float))}
    keys = {name: key for name, value in columns.items() if (key := _key(str(value))) is not None}
    name = next(iter(keys), None)
    true = None if name is None else reference_answer(str(columns[name]))
    if name is None or true is None:
        return "its key cannot be read"
    honest = [form % keys[name] for form in FORMS]
    reward = maths(several="last")
    others = wrong_keys(keys[name], prompt, rng)
    if not _PLAIN.fullmatch(keys[name]):  # others may be equal to it in another form
        others = [key for key in others if _differs(key, true)]
    if others and 1.0 / len(others) > MOST_CHANCE:
        return "there are too few wrong keys: an honest answer would hit one"
    for wrong in rng.sample(others, min(len(others), 1)):
        if not _differs(wrong, true):
            continue
        changed = {one: _with_key(value, keys[one], wrong) for one, value in columns.items() if one in keys}
        if any(_key(str(value)) != wrong for value in changed.values()):
            return "its key cannot be exchanged"
        if any(reward.score(text, wrong) for text in honest):
            continue
        originals = {one: columns[one] for one in changed}
        chance = max(1.0 / len(others), LEAST_CHANCE)
        facts = TrapFacts("wrong key", originals, chance, honest=honest, checked=len(honest))
        return Trap({**row, **changed}, facts)
    return "no wrong key was found"


def _differs(key: str, true: MathAnswer) -> bool:
    answer = read_answer(key)
    return answer is not None and not equal(answer, true, worked=False) and not equal(true, answer, worked=False)


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
