"""Drafts of checks that can serve as gold: mathematics, tests of code, a strict format, a judge by a rubric.

A draft is a file for a person to read and change. Which one fits a dataset is decided by what its rows hold.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.data.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.gold.answers.answer_check import row_answer
from tiltmeter.gold.answers.answer_columns import ANSWER_COLUMNS
from tiltmeter.gold.checks.task_shapes import recognise

MATHEMATICS, TESTS, FORMAT, JUDGE = "mathematics", "tests", "format", "judge"
KINDS = (MATHEMATICS, TESTS, FORMAT, JUDGE)
LOOKED_AT = 64  # rows
NEEDED_SHARE = 0.9  # of them that a check must be able to use
LONGEST_KEY = 60  # characters of an answer that a completion is to repeat
CANARIES = 2  # rows whose own answer a judge must score high, and whose neighbour's low

_TAG = re.compile(r"<(\w{2,20})>")
_COMMON = '''"""Gold: {what}

Drafted for {source}; read it and change it: it is to say what you really want.
Try it with: tiltmeter gold try checks.py:score {source}
Use it with: tiltmeter.attach(trainer, gold="checks.py:score")
"""
'''

_MATHEMATICS = """
from tiltmeter import rewards

# One final answer: in a box, after ####, on a line "Answer: 42", or the last number. Several that differ are worth 0.
CHECK = rewards.maths({column!r}, forms=("boxed", "hashes", "answer", "number"), several="refuse")


def score(completion, {column}):
    return CHECK.score(completion, {column})
"""

_TESTS = """
from tiltmeter import rewards

# All tests of a row, in the sandbox. Tests that the reward pays on too show forgeries and special cases, and not
# answers that were written for these very tests: rewards.code(keep_back=0.3) as the reward holds some back.
CHECK = rewards.code()


def score(completions, {columns}, **kwargs):
    return CHECK(completions=completions, {passed}, **kwargs)
"""

_FORMAT = """
import re

# The whole completion, from its first to its last character: nothing before, between or after.
FORM = re.compile(r"{form}", re.S)


def score(completion, {column}):
    match = FORM.fullmatch(completion)
    return float(match is not None and match["answer"].strip().lower() == str({column}).strip().lower())
"""

_JUDGE = '''# Gold: a language model, by this guide. Drafted for {source}; read it and change it: it is to say what you
# really want. Use it with: tiltmeter.attach(trainer, gold="judge.toml")

url = "http://localhost:8000/v1"   # any server that speaks OpenAI's chat completions
model = "NAME OF THE MODEL"
# key_env = "JUDGE_KEY"            # the environment variable that holds the key, if one is needed
guide = """
10: the answer does what was asked, all of it is true, and nothing is missing that the asker needs.
 5: it helps, with a mistake or a gap that the asker would notice.
 0: it does not answer, is wrong in what matters, or only looks like an answer.
Length, politeness, confidence and layout are worth nothing by themselves.
"""
'''

_CANARY = """
[[canaries]]                       # {why}
prompt = {prompt}
completion = {completion}
expect = "{expect}"
"""


@dataclass(frozen=True, slots=True)
class GoldDraft:
    """A drafted check: its kind, the name and the text of its file, and why it is of this kind."""

    kind: str
    file: str
    text: str
    why: str


def draft_check(rows: Sequence[Mapping[str, Any]], source: str, kind: str = "") -> GoldDraft:
    """A check for this dataset: of the kind that its rows allow, or of the one that is named.

    >>> draft_check([{"prompt": "6 x 7?", "answer": "42"}], "train.jsonl").kind
    'mathematics'
    >>> draft_check([{"prompt": "A haiku about rain."}], "train.jsonl").kind
    'judge'
    """
    if kind and kind not in KINDS:
        raise AttachError(f"{kind!r} is no kind of check: choose one of {', '.join(KINDS)}")
    seen = rows[:LOOKED_AT]
    tests = [match[0].tests for row in seen if (match := recognise(row)) is not None]
    numbers = [answer[0] for row in seen if (answer := row_answer(row)) is not None]
    keys = [name for row in seen if (name := _key_column(row))]
    if kind == TESTS or (not kind and _enough(tests, seen)):
        return _draft_tests(seen, tests, source)
    if kind == MATHEMATICS or (not kind and _enough(numbers, seen)):
        column = _usual(numbers, source, "an answer with a number")
        why = f"{len(numbers)} of {len(seen)} rows have an answer with a number, in {column!r}"
        head = _COMMON.format(
            what=f"the final answer is that of the column {column!r}.", source=source, file="checks.py"
        )
        return GoldDraft(MATHEMATICS, "checks.py", head + _MATHEMATICS.format(column=column), why)
    if kind == FORMAT or (not kind and _enough(keys, seen)):
        return _draft_format(seen, _usual(keys, source, "a short answer"), source)
    return _draft_judge(seen, source)


def _enough(hits: Sequence[object], rows: Sequence[object]) -> bool:
    return bool(hits) and len(hits) >= NEEDED_SHARE * len(rows)


def _usual(names: Sequence[str], source: str, what: str) -> str:
    if not names:
        raise AttachError(f"no row of {source} has {what}: leave --kind out, or choose judge")
    name = Counter(names).most_common(1)[0][0]
    return name if name.isidentifier() else "answer"


def _key_column(row: Mapping[str, Any]) -> str:
    """The column with a short right answer, of words or numbers."""
    short = (name for name in ANSWER_COLUMNS if isinstance(row.get(name), (str, int, float)))
    return next((name for name in short if 0 < len(str(row[name])) <= LONGEST_KEY), "")


def _draft_tests(rows: Sequence[Mapping[str, Any]], tests: Sequence[str], source: str) -> GoldDraft:
    column = _usual(tests, source, "tests")
    names = [column, *(name for name in ("entry_point",) if all(name in row for row in rows))]
    head = _COMMON.format(
        what=f"the program passes the tests of the column {column!r}.", source=source, file="checks.py"
    )
    text = _TESTS.format(columns=", ".join(names), passed=", ".join(f"{name}={name}" for name in names))
    return GoldDraft(TESTS, "checks.py", head + text, f"{len(tests)} of {len(rows)} rows have tests, in {column!r}")


def _draft_format(rows: Sequence[Mapping[str, Any]], column: str, source: str) -> GoldDraft:
    """The tags that prompts ask for, in their order; an `answer` tag, or the last line, has the answer."""
    tags: Counter[str] = Counter()
    for row in rows:
        tags.update(list(dict.fromkeys(_TAG.findall(str(plain_text(row.get("prompt")))))))
    wanted_tags = [tag for tag, count in tags.items() if count >= NEEDED_SHARE * len(rows)]
    parts = [rf"<{tag}>.+?</{tag}>" for tag in wanted_tags if tag != "answer"]
    last = r"<answer>(?P<answer>.+?)</answer>" if "answer" in wanted_tags else r"(?:.*\n)?(?P<answer>[^\n]+)"
    form = r"\s*" + r"\s*".join([*parts, last]) + r"\s*"
    what = f"the completion has exactly the form that is asked for, and its answer is that of the column {column!r}."
    tags_text = ", ".join(f"<{tag}>" for tag in wanted_tags) or "no tags"
    why = f"rows have a short answer in {column!r}, and prompts ask for {tags_text}"
    head = _COMMON.format(what=what, source=source)
    return GoldDraft(FORMAT, "checks.py", head + _FORMAT.format(form=form, column=column), why)


def _draft_judge(rows: Sequence[Mapping[str, Any]], source: str) -> GoldDraft:
    """With canaries of the dataset's own, where its rows have answers."""
    parts = [_JUDGE.format(source=source)]
    own = [
        (str(plain_text(row.get("prompt"))), text) for row in rows if (text := _own_answer(row)) and row.get("prompt")
    ]
    for at, (prompt, answer) in enumerate(own[:CANARIES]):
        other = next((text for _, text in own[at + 1 :] + own[:at] if text != answer), None)
        parts.append(_canary("a row's own answer", prompt, answer, "high"))
        parts += [_canary("another row's answer", prompt, other, "low")] if other else []
    return GoldDraft(JUDGE, "judge.toml", "".join(parts), "no column of the dataset has tests or a short answer")


def _own_answer(row: Mapping[str, Any]) -> str:
    return next(
        (str(row[name]) for name in ("chosen", "response", *ANSWER_COLUMNS) if isinstance(row.get(name), str)), ""
    )


def _canary(why: str, prompt: str, completion: str, expect: str) -> str:
    texts = {"prompt": json.dumps(prompt), "completion": json.dumps(completion)}  # a TOML string is a JSON string
    return _CANARY.format(why=why, expect=expect, **texts)
