"""Which column of a dataset holds its right answers, and how they are compared: a column is offered, and must earn it.

The rules look at 64 rows: whether values differ, whether the prompts ask for what the column holds, whether their
options name it, and whether a row's own answer scores 1 as a completion and another row's 0. What fails is refused with
the reason. What passes is on trial in the run (`tiltmeter.verdict.answer_column`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.gold.answers import task_prompts as prompts
from tiltmeter.gold.answers.answer_kinds import (
    NEEDED_SHARE,
    ColumnRows,
    as_dates,
    as_numbers,
    as_options,
    as_truths,
    as_words,
    excerpt,
)
from tiltmeter.gold.checks.math_answers import extract_answers
from tiltmeter.gold.checks.prompt_options import read_options
from tiltmeter.gold.checks.quantities import is_date
from tiltmeter.gold.checks.stated_answers import INDEX0, INDEX1, OPTION, right_option, score_stated

#: Columns with the right answer, best first; `reward_model` is veRL's, an object.
ANSWER_COLUMNS = ("answer", "final_answer", "expected_answer", "ground_truth", "target", "solution", "reward_model")
#: Further names of columns that are offered.
MORE_COLUMNS = (
    "correct_answer", "reference_answer", "answerKey", "answer_key", "correct_option", "answer_idx", "answer_index",
    "gold_answer", "gold", "correct", "label", "answers", "expected", "expected_output", "reference", "output",
)  # fmt: skip
LONGEST_ANSWER = 100  # characters of a reference that is compared
COMMON = 0.9  # of rows with one and the same value: a constant
SELF_CHECKED = 16  # rows whose own answer is written as a completion
_EMPTY = {"", "n/a", "na", "none", "null", "unknown", "nan", "-", "?"}
_ID = re.compile(
    r"[A-Za-z]{2,}\w*_\w*\d\w*|\d+_\w+|[A-Za-z]{3,20}[-#:/]\d+\S*|(?=\S*\d)(?=\S*[a-f])[0-9a-f]{8,}|[0-9a-f]{8}-[0-9a-f-]{9,}|"
    r"\S+@\S+\.\w+|\w+://\S*|/?(?:[\w.-]{2,}/){2,}[\w.-]*|#\d+"
)


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column that was offered: how its values are compared, or why it was not taken."""

    name: str
    reading: str = ""
    why: str = ""

    @property
    def taken(self) -> bool:
        return bool(self.reading)


def offered_columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns whose name says that they hold answers, best first."""
    named = (*ANSWER_COLUMNS, *MORE_COLUMNS)
    return [name for name in named if any(row.get(name) is not None for row in rows)]


def find_answer_column(rows: Sequence[Mapping[str, Any]]) -> tuple[AnswerColumn | None, list[AnswerColumn]]:
    """The first column that passes, and those before it that were refused.

    >>> rows = [{"prompt": f"What is {k} plus 2?", "answer": str(k + 2)} for k in range(12)]
    >>> find_answer_column(rows)
    (AnswerColumn(name='answer', reading='number', why=''), [])
    >>> find_answer_column([{"prompt": "Write a story.", "answer": k % 5} for k in range(12)])[1][0].why
    "the prompts ask for a text of their own ('Write a story.')"
    """
    refused: list[AnswerColumn] = []
    for name in offered_columns(rows):
        column = check_column(rows, name)
        if column.taken:
            return column, refused
        refused.append(column)
    return None, refused


def check_column(rows: Sequence[Mapping[str, Any]], name: str) -> AnswerColumn:
    """Whether a column's values answer the prompts of these rows."""
    filled: list[tuple[Any, ...]] = [
        (prompts.prompt_of(row), texts, row) for row in rows if (texts := answer_texts(row.get(name)))
    ]
    if len(filled) < NEEDED_SHARE * len(rows) or not filled:
        long = sum(row.get(name) is not None for row in rows) - len(filled)
        what = f", and {long} hold no short answer" if long else ""
        return AnswerColumn(name, why=f"{len(filled)} of {len(rows)} rows have a short answer there{what}")
    column = ColumnRows(name, *(list(part) for part in zip(*filled, strict=True)))
    for rule in (_refuse_sameness, _refuse_prompts):
        if why := rule(column):
            return AnswerColumn(name, why=why)
    for read in (as_options, as_truths, as_dates, as_numbers, as_words):
        reading, why = read(column)
        if why:
            return AnswerColumn(name, why=why)
        if reading:
            why = _refuse_by_own_answers(column, reading)
            return AnswerColumn(name, "" if why else reading, why)
    return AnswerColumn(name, why=f"the prompts do not ask for what it holds ({column.example})")


def answer_texts(value: Any) -> list[str]:
    """The answers that a row's value holds, each short: one, or those of a list that mean the same; none if there is
    none."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("ground_truth", "text", "value", "aliases") if value.get(name)), None)
    if isinstance(value, (list, tuple)):
        texts = [text for one in value[:20] if not isinstance(one, (list, tuple)) for text in answer_texts(one)]
        return list(dict.fromkeys(texts)) if all(isinstance(one, str) for one in value) else []
    if isinstance(value, bool):
        return ["yes" if value else "no"]
    if not isinstance(value, (str, int, float)):
        return []
    answers = extract_answers(str(value), ("boxed", "hashes"))
    text = answers[-1] if answers else str(value).strip()
    return [text] if len(text) <= LONGEST_ANSWER and text.casefold() not in _EMPTY else []


def _refuse_sameness(column: ColumnRows) -> str:
    value, count = column.values.most_common(1)[0]
    if count > COMMON * len(column.answers):
        return f"it holds the same in {count} of {len(column.answers)} rows ({value[:40]!r})"
    if not all(column.prompts):
        return "the rows have no prompt that it could answer"
    return ""


def _refuse_prompts(column: ColumnRows) -> str:
    by_any = [prompt for prompt in column.prompts if prompts.allows_any(prompt)]
    has_options = column.asks(lambda prompt: bool(read_options(prompt))) >= NEEDED_SHARE
    if len(by_any) > 0.25 * len(column.prompts) and not has_options:
        return f"one of many answers is right ({excerpt(by_any[0])})"
    for asks in (prompts.asks_for_text, prompts.translates):
        texts = [prompt for prompt in column.prompts if asks(prompt)]
        if len(texts) > 0.4 * len(column.prompts) and not (has_options and asks is prompts.asks_for_text):
            return f"the prompts ask for a text of their own ({excerpt(texts[0])})"
    if has_options and column.asks(lambda prompt: bool(prompts.WRITES.search(_before_options(prompt)))) > 0.6:
        return f"the prompts ask for a text of their own ({excerpt(column.prompts[0])})"
    if column.share(lambda _, text: bool(_ID.fullmatch(text)) and not is_date(text)) > 0.5:
        return f"it names rows and answers nothing ({column.example})"
    return ""


def _before_options(prompt: str) -> str:
    options = read_options(prompt)
    return prompt[: prompt.find(next(iter(options.values())))] if options else prompt


def _refuse_by_own_answers(column: ColumnRows, reading: str) -> str:
    """A row's own answer must score 1 as a completion, and another row's 0."""
    chosen = range(0, len(column.prompts), max(1, len(column.prompts) // SELF_CHECKED))
    own, others = [], []
    for at in chosen:
        prompt, texts = column.prompts[at], column.answers[at]
        own.append(_score_written(reading, prompt, texts[0], texts))
        own_texts = {text.casefold() for text in texts}
        rest = (
            one[0] for one in (*column.answers[at + 1 :], *column.answers[:at]) if one[0].casefold() not in own_texts
        )
        if (wrong := next(rest, None)) is not None:
            others.append(_score_written(reading, prompt, wrong, texts))
    if sum(own) < NEEDED_SHARE * len(own):
        return f"a row's own answer, written as a completion, scores 0 in {len(own) - sum(own)} of {len(own)} rows"
    if sum(others) > (1.0 - NEEDED_SHARE) * len(others):
        return f"another row's answer scores 1 in {sum(others)} of {len(others)} rows"
    return ""


def _score_written(reading: str, prompt: str, answer: str, references: Sequence[str]) -> bool:
    """Whether an answer scores 1 when it is written as a completion would have it; an index as its option."""
    label = right_option(reading, answer, read_options(prompt)) if reading in (OPTION, INDEX0, INDEX1) else answer
    completion = f"The answer is {label}." if label is not None else answer
    return score_stated(reading, prompt, completion, references) == 1.0
