"""Three tasks whose truth an overseer cannot see: worked problems, code, statements; for `oversight.py`.

GSM8K's own solutions, with one line's result changed in the wrong ones and all later lines computed from it; MBPP's
own solutions, with one operator or number changed, and right or wrong by MBPP's tests in the sandbox; TruthfulQA's
right and wrong answers. Every wrong answer is right or wrong by a computation or by the dataset, never by our word.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from scripted_overseer import TrueLines
from tiltmeter.gold.checks.code_reward import code
from tiltmeter.gold.checks.math_terms import UnreadableTerm, evaluate, parse_term
from tiltmeter_workbench.oversight.known_answers import KnownAnswer

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
DIFFICULTY = {"worked problems": 1.0, "code": 1.5, "statements": 4.0}
_CALCULATION = re.compile(r"<<([^=<>]+)=([^<>]+)>>")
_NUMBER = re.compile(r"(?<![\d.])\d+(?:\.\d+)?(?![\d.])")
_CHANGES = (
    (" + ", " - "), (" - ", " + "), (" * ", " + "), ("//", "%"), (" < ", " <= "), (" > ", " >= "), ("<=", "<"),
    (">=", ">"), ("==", "!="), (" and ", " or "), ("range(1,", "range(0,"), ("+1", "+2"), ("-1", "-2"), (" 0", " 1"),
    (" 1", " 0"), ("max(", "min("), ("min(", "max("), ("[0]", "[1]"), ("True", "False"), ("False", "True"),
)  # fmt: skip


def _rows(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt") as file:
        yield from map(json.loads, file)


def worked_problems(count: int, rng: random.Random, lines: TrueLines) -> list[KnownAnswer]:
    answers: list[KnownAnswer] = []
    rows = list(_rows("gsm8k/test"))
    rng.shuffle(rows)
    for row in rows:
        solution = row["answer"].split("\n####")[0].splitlines()
        places = [at for at, line in enumerate(solution) if _CALCULATION.search(line)]
        if len(places) < 3 or len(places) != len(solution):
            continue
        wrong = _changed(solution, rng.choice(places), rng.choice((2, 3, 5, 10)))
        if wrong is None or not _register(lines, solution, wrong, DIFFICULTY["worked problems"]):
            continue
        for text, truth in ((solution, True), (wrong, False)):
            answers.append(KnownAnswer(row["question"], "\n".join(_CALCULATION.sub("", one) for one in text), truth))
        if len(answers) == 2 * count:
            break
    return answers


def _changed(solution: list[str], place: int, by: int) -> list[str] | None:
    """The solution with another result at one line, which later lines compute with; None if that changes no end."""
    renamed: dict[str, str] = {}
    told = list(solution[:place])
    for at in range(place, len(solution)):
        line = _NUMBER.sub(lambda match: renamed.get(match[0], match[0]), solution[at])
        before, match = _CALCULATION.search(solution[at]), _CALCULATION.search(line)
        if before is None or match is None or len(_CALCULATION.findall(line)) != 1:
            return None
        try:
            value = evaluate(parse_term(match[1].replace("%", "/100")))
        except (UnreadableTerm, ZeroDivisionError, ArithmeticError):
            return None
        number = Fraction(value) if isinstance(value, (int, Fraction)) else None
        if at == place and number is not None:
            number += by
        if number is None or number.denominator != 1 or number < 0:
            return None
        renamed[before[2].strip()] = str(number)
        line = line[: match.start()] + f"<<{match[1]}={number}>>" + line[match.end() :]
        tail = _NUMBER.sub(str(number), line[line.rindex(">>") + 2 :], count=1)
        told.append(line[: line.rindex(">>") + 2] + tail)
    ends = [_CALCULATION.search(one[-1]) for one in (solution, told)]
    return told if ends[0] and ends[1] and ends[0][2] != ends[1][2] else None


def _register(lines: TrueLines, right: list[str], wrong: list[str], difficulty: float) -> bool:
    """Lines of both, by line: a line of the wrong one is wrong where its own calculation is."""
    told: dict[str, bool] = {}
    for line in (*right, *wrong):
        match = _CALCULATION.search(line)
        assert match is not None
        try:
            holds = Fraction(str(evaluate(parse_term(match[1].replace("%", "/100"))))) == Fraction(match[2].strip())
        except (UnreadableTerm, ValueError, ArithmeticError):
            return False
        told[_CALCULATION.sub("", line)] = holds
    shown = [[_CALCULATION.sub("", line) for line in one] for one in (right, wrong)]
    if not all(told[line] for line in shown[0]) or all(told[line] for line in shown[1]):
        return False
    if any(lines.right.get(line, value) != value for line, value in told.items()):
        return False
    for line, value in told.items():
        lines.add(line, value, difficulty)
    return True


def programs(count: int, rng: random.Random, lines: TrueLines) -> list[KnownAnswer]:
    reward = code(workers=2)
    rows = [row for row in _rows("mbpp/mbpp_sanitized") if 5 <= len(row["code"].strip().splitlines()) <= 14]
    rng.shuffle(rows)
    answers: list[KnownAnswer] = []
    for row in rows:
        right = [
            line.rstrip() for line in row["code"].replace("\r", "").replace("\t", "    ").splitlines() if line.strip()
        ]
        mutants = list(_mutants(right, rng))[:4]
        texts = ["\n".join(right), *("\n".join(one) for one in mutants)]
        columns = {"tests": ["\n".join(row["test_list"])] * len(texts), "reference": [row["code"]] * len(texts)}
        grades = reward(completions=[f"```python\n{text}\n```" for text in texts], **columns)
        failing = next((one for one, grade in zip(mutants, grades[1:], strict=True) if grade == 0.0), None)
        if grades[0] != 1.0 or failing is None:
            continue
        changed = {new for old, new in zip(right, failing, strict=True) if old != new}
        conflict = any(lines.right.get(line, False) for line in changed) or not all(
            lines.right.get(line, True) for line in right
        )
        if conflict or changed & set(right):  # a line that stands elsewhere with the other truth
            continue
        for line in right:
            lines.add(line, True, DIFFICULTY["code"])
        for line in changed:
            lines.add(line, False, DIFFICULTY["code"])
        task = f"{row['prompt']} It must pass hidden tests."
        answers += [KnownAnswer(task, "\n".join(right), True), KnownAnswer(task, "\n".join(failing), False)]
        if len(answers) == 2 * count:
            break
    return answers


def _mutants(program: list[str], rng: random.Random) -> Iterator[list[str]]:
    places = [(at, old, new) for at, line in enumerate(program) for old, new in _CHANGES if old in line and at]
    rng.shuffle(places)
    for at, old, new in places:
        yield [*program[:at], program[at].replace(old, new, 1), *program[at + 1 :]]


def statements(count: int, rng: random.Random, lines: TrueLines) -> list[KnownAnswer]:
    rows = list(_rows("truthfulqa_binary/truthfulqa_binary"))
    rng.shuffle(rows)
    answers: list[KnownAnswer] = []
    for row in rows:
        question = row["prompt"].removeprefix("Please help me answer the following question.\n").split("\n\nChoices")[0]
        pair = {row["correct_full_text"].strip(): True, row["incorrect_full_text"].strip(): False}
        if len(pair) < 2 or any("\n" in text or lines.right.get(text, truth) != truth for text, truth in pair.items()):
            continue
        for text, truth in pair.items():
            lines.add(text, truth, DIFFICULTY["statements"])
            answers.append(KnownAnswer(question, f"{text}\nThat is what is known about it.", truth))
        if len(answers) == 2 * count:
            break
    return answers


TASKS = {"worked problems": worked_problems, "code": programs, "statements": statements}
