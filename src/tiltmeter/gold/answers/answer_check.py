"""Compares completions with a column of their rows: one that was named, or one that earns it on rows of the run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.gold import GoldAnswer
from tiltmeter.gold.answers.answer_columns import (
    ANSWER_COLUMNS,
    LONGEST_ANSWER,
    AnswerColumn,
    answer_texts,
    find_answer_column,
    offered_columns,
)
from tiltmeter.gold.answers.answer_kinds import guess_reading
from tiltmeter.gold.answers.task_prompts import prompt_of
from tiltmeter.gold.checks.math_answers import extract_answers, read_answer
from tiltmeter.gold.checks.stated_answers import READINGS, score_stated

LONGEST_NAME = 200  # characters of a column's name in a spec
MOST_WORDS = 3  # of an answer with a number that has words, such as units
MOST_ROWS = 64  # of a run that are looked at before a column is taken


@dataclass
class AnswerCheck:
    """Scores completions by a row's answer.

    `column`: the one that was named; empty: the first with a short answer that has a number. `reading`: how its values
    are compared; empty: as each looks. `on_trial`: nobody named it, so the run may refuse it. `finds`: it is looked for
    in the rows that come.

    >>> check = AnswerCheck.from_spec("answers:target,as=index1")
    >>> check.score("It is B.", {"prompt": "Which? A) red B) green", "target": 2})
    1.0
    """

    column: str = ""
    reading: str = ""
    on_trial: bool = False
    finds: bool = False
    _rows: dict[str, Mapping[str, Any]] = field(default_factory=dict, init=False, repr=False)  # by prompt and answers
    _why: str = field(default="", init=False, repr=False)  # none was found

    @classmethod
    def from_spec(cls, spec: str) -> AnswerCheck:
        """What `answers:COLUMN` or `answers:COLUMN,as=index0,trial=yes` says. Raises `AttachError`."""
        column, *options = spec.partition(":")[2].split(",")
        settings = dict(option.partition("=")[::2] for option in options)
        reading, trial = settings.pop("as", ""), settings.pop("trial", "no")
        is_fine = not settings and reading in ("", *READINGS) and trial in ("yes", "no") and "=" not in column
        if is_fine and len(column) <= LONGEST_NAME and (column or not options):
            return cls(column, reading, trial == "yes")
        raise AttachError(
            f'gold={spec[:LONGEST_NAME]!r}: write gold="answers:COLUMN", the column with the right answers; and how '
            f"its values are compared, if not as they look: gold='answers:COLUMN,as=index0', of {', '.join(READINGS)}"
        )

    @property
    def words(self) -> str:
        """What it compares, in words."""
        return f"answers{f' in {self.column!r}' if self.column else ''}, compared with the final answer of a completion"

    def look(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """See rows of the run, until a column has earned it or was refused on as many as attach looks at."""
        if not self.finds or self.column or len(self._rows) >= MOST_ROWS:
            return
        before = len(self._rows)
        for row in rows:
            self._rows.setdefault(repr((prompt_of(row), [row.get(name) for name in offered_columns([row])])), row)
        if len(self._rows) > before:
            taken, refused = find_answer_column(list(self._rows.values()))
            self._why = refusal_words(refused)
            if taken is not None:
                self.column, self.reading = taken.name, taken.reading

    def score(self, completion: str, row: Mapping[str, Any]) -> GoldAnswer:
        """1.0 or 0.0, or why there is no label."""
        if self.finds and not self.column:
            return LookupError(self._why or _no_answer(row))
        name, texts = self.column, answer_texts(row.get(self.column)) if self.column else []
        if not self.column and (pair := row_answer(row)) is not None:
            name, texts = pair[0], [pair[1]]
        if not texts:
            return LookupError(_no_answer(row))
        prompt = prompt_of(row)
        score = score_stated(self.reading or guess_reading(prompt, texts[0]), prompt, completion, texts)
        return LookupError(f"the row's {name!r} names none of the options of its prompt") if score is None else score


def refusal_words(refused: Sequence[AnswerColumn]) -> str:
    """Why a column was found and not taken, and how it is taken; empty if there is none."""
    if not refused:
        return ""
    first = refused[0]
    how = "" if "gold=" in first.why else f"; to take it: gold='answers:{first.name}'"
    return f"found {first.name!r}, did not take it because {first.why}{how}"


def _no_answer(row: Mapping[str, Any]) -> str:
    columns = [name for name in row if name != "prompt"]
    return f"the row has no answer that can be compared; it has {sorted(columns) or None}"


def row_answer(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The column with a row's right answer, and the answer, if it is short and has a number; else None.

    >>> row_answer({"answer": "Six times seven. #### 42"}), row_answer({"answer": "Paris"})
    (('answer', '42'), None)
    """
    for name in ANSWER_COLUMNS:
        value = row.get(name)
        if isinstance(value, Mapping):
            value = value.get("ground_truth")
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            continue
        answers = extract_answers(str(value), ("boxed", "hashes"))
        text = answers[-1] if answers else str(value).strip()
        if len(text) > LONGEST_ANSWER or not re.search(r"\d", text):
            continue
        words = re.findall(r"(?<!\\)\b[A-Za-z]{2,}\b", text)
        answer = read_answer(text) if len(words) <= MOST_WORDS else None
        if answer is not None and answer.parses:
            return name, text
    return None
