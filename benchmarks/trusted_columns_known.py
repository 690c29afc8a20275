"""The 23 datasets on which `gold="auto"` was first tried, with completions that a policy could write for each.

Nine of their columns were taken although they hold no right answers, or hold them in a way that was not understood: an
index of options, a count of words, a rating, a score of toxicity, a date, the number of a row, one of many answers, -1
and a constant. An index and a date are answers where they are compared as what they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

ROWS, PROMPTS, ANSWERS = 64, 12, 8
Row = dict[str, Any]
Say = Callable[[Row, bool, random.Random], str]


@dataclass(frozen=True)
class Dataset:
    """Rows, and completions of some of them with their reward and whether they are right."""

    name: str
    good: bool  # whether the column can say what is right
    column: str
    why: str
    rows: list[Row]
    rewards: str
    rollouts: list[tuple[Row, str, float, bool]] = field(repr=False)


def known_datasets(seed: int) -> list[Dataset]:
    """All 23, with other completions for another seed."""
    return [_make(spec, random.Random(f"{seed} {spec[0]}")) for spec in _SPECS]


def _make(spec: Sequence[Any], rng: random.Random) -> Dataset:
    name, good, column, why, row_of, reward, say = spec
    rows = [dict(row_of(k)) for k in range(ROWS)]
    rollouts = []
    for row in rng.sample(rows, PROMPTS):
        for _ in range(ANSWERS):
            right = rng.random() < 0.5
            text = say(row, right, rng)
            rollouts.append((row, text, _PAY[reward](row, text, right), right))
    return Dataset(name, good, column, why, rows, reward, rollouts)


_PAY: Mapping[str, Callable[[Row, str, bool], float]] = {
    "right": lambda row, text, right: float(right),
    "length": lambda row, text, right: len(text) / 50,
    "tags": lambda row, text, right: float("<answer>" in text),
    "judge": lambda row, text, right: min(1.0, len(set(text)) / 20 + 0.3 * right),
}


def _number(answer: Callable[[Row], int]) -> Say:
    forms = ("It is {}.", "<answer>{}</answer>", "The answer is {} because I counted (see step 1).", "#### {}", "{}")

    def say(row: Row, right: bool, rng: random.Random) -> str:
        return rng.choice(forms).format(answer(row) if right else answer(row) + rng.choice((-2, -1, 1, 2, 10)))

    return say


def _option(labels: str, right_at: Callable[[Row], int]) -> Say:
    def say(row: Row, right: bool, rng: random.Random) -> str:
        at = right_at(row) if right else (right_at(row) + rng.randrange(1, len(labels))) % len(labels)
        return rng.choice(("The answer is {}.", "I think it is ({}).", "<answer>{}</answer>", "{}")).format(labels[at])

    return say


def _text(row: Row, right: bool, rng: random.Random) -> str:
    words = ["we", "went", "home", "by", "bus", "3", "times", "and", "it", "was", "good", "in", "2024"]
    return " ".join(rng.choice(words) for _ in range(rng.randrange(8, 30))) + ("." if right else "")


def _date(row: Row, right: bool, rng: random.Random) -> str:
    day = int(row["answer"][-2:])
    day = day if right else day % 28 + 1
    return rng.choice((f"On May {day}, 2024.", f"It is 2024-05-{day:02d}.", f"The answer is {day} May 2024."))


def _city(row: Row, right: bool, rng: random.Random) -> str:
    return "It is Paris." if right else rng.choice(("It is Rome.", "Lyon.", "I do not know."))


def _prime(row: Row, right: bool, rng: random.Random) -> str:
    return f"{rng.choice((101, 103, 107, 109, 113))} is one." if right else f"{rng.choice((102, 104, 111))} is one."


def _add(row: Row, right: bool, rng: random.Random) -> str:
    name = row["prompt"].split()[-1].partition("(")[0]
    return f"def {name}(a, b): return a {'+' if right else '-'} b"


def _n(row: Row) -> int:
    return int(row["prompt"].split()[2])


_WRONG = "it does not say what is right"
_SPECS: tuple[tuple[str, bool, str, str, Callable[[int], Row], str, Say], ...] = (
    ("math answer", True, "answer", "", lambda k: {"prompt": f"what is {k} plus 2", "answer": str(k + 2)}, "right",
     _number(lambda row: int(row["answer"]))),
    ("gsm8k ####", True, "answer", "", lambda k: {"prompt": f"Tom has {k} apples and buys 2. How many?",
     "answer": f"Tom has {k}+2={k + 2}.\n#### {k + 2}"}, "tags", _number(lambda row: int(row["answer"].split()[-1]))),
    ("mcq letter", True, "answer", "", lambda k: {"prompt": f"{k}? A) 1 B) 2 C) 3 D) 4", "answer": "ABCD"[k % 4]},
     "right", _option("ABCD", lambda row: "ABCD".index(row["answer"]))),
    ("mcq index (MMLU int)", True, "answer", "an index, read as the letter that it counts to", lambda k: {
        "prompt": f"Q{k}? (A) x (B) y (C) z (D) w. Reply with a letter.", "choices": list("xyzw"), "answer": k % 4},
     "tags", _option("ABCD", lambda row: int(row["answer"]))),
    ("mcq index text", True, "target", "", lambda k: {"prompt": f"Q{k}? Pick the best of 0) red 1) green",
     "target": str(k % 2)}, "tags", _option("01", lambda row: int(row["target"]))),
    ("target = word count", False, "target", _WRONG, lambda k: {"prompt": f"Write a story of {50 + k} words",
     "target": 50 + k}, "length", _text),
    ("answer = star rating", False, "answer", _WRONG, lambda k: {"prompt": f"Write a friendly reply to review {k}",
     "answer": k % 5 + 1}, "judge", _text),
    ("target = toxicity", False, "target", _WRONG, lambda k: {"prompt": f"Continue politely: text {k}",
     "target": round(k / 64, 3)}, "judge", _text),
    ("solution without box", False, "solution", "no short answer", lambda k: {"prompt": f"what is {k} times 3",
     "solution": "We multiply. " * 12 + f"so the result is {3 * k}."}, "tags", _number(lambda row: 3 * _n(row))),
    ("solution with boxes", True, "solution", "", lambda k: {"prompt": f"what is {k} times 3",
     "solution": "We multiply. " * 12 + f"The intermediate is \\boxed{{{k}}} ... so \\boxed{{{3 * k}}}."},
     "tags", _number(lambda row: 3 * _n(row))),
    ("answer = date", True, "answer", "a date, compared as a date", lambda k: {"prompt": f"When is event {k}?",
     "answer": f"2024-05-{k % 28 + 1:02d}"}, "judge", _date),
    ("answer = row id", False, "answer", _WRONG, lambda k: {"prompt": f"Summarise document {k}", "answer": f"doc_{k}"},
     "judge", _text),
    ("trivia, constant", False, "answer", "a constant", lambda k: {"prompt": f"Capital of {k}?", "answer": "Paris"},
     "judge", _city),
    ("code tests", True, "tests", "", lambda k: {"prompt": f"Write add{k}(a,b)", "tests": [
        f"assert add{k}(1,2)==3", f"assert add{k}(2,2)==4"]}, "right", _add),
    ("tests always pass", False, "tests", _WRONG, lambda k: {"prompt": f"Write add{k}(a,b)", "tests": [
        "assert True", "assert 1 == 1"]}, "length", _add),
    ("tests = count", False, "tests", _WRONG, lambda k: {"prompt": f"Describe study {k}", "tests": k}, "length", _text),
    ("tests = names", False, "tests", _WRONG, lambda k: {"prompt": f"Which lab tests for case {k}?", "tests": [
        "CBC", "MRI"]}, "length", _text),
    ("tests = callable", False, "test_list", _WRONG, lambda k: {"prompt": f"Write f{k}", "test_list": [
        f"assert callable(f{k})"]}, "length", _add),
    ("prompts only", False, "", "no column", lambda k: {"prompt": f"tell me about {k}"}, "judge", _text),
    ("half rows", False, "answer", "half of it is missing", lambda k: {"prompt": f"q {k}", "answer": str(k) if k % 2
     else None}, "judge", _text),
    ("any prime", False, "answer", "one of many answers", lambda k: {"prompt": f"Give any prime larger than {k}.",
     "answer": "101"}, "tags", _prime),
    ("answer = -1", False, "answer", _WRONG, lambda k: {"prompt": f"q {k}", "answer": -1}, "judge", _text),
    ("answer = 0", False, "answer", _WRONG, lambda k: {"prompt": f"q {k}", "answer": 0}, "judge", _text),
)  # fmt: skip
