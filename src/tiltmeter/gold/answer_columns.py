"""Which column of a dataset holds its right answers, and how they are compared: a column is offered, and must earn it.

The rules look at 64 rows: whether values differ, whether the prompts ask for what the column holds, whether their
options name it, and whether a row's own answer scores 1 as a completion and another row's 0. What fails is refused with
the reason. What passes is on trial in the run (`tiltmeter.gold.column_trial`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.gold import task_prompts as prompts
from tiltmeter.gold.checks.math_answers import extract_answers, read_answer
from tiltmeter.gold.checks.prompt_options import option_named, read_options
from tiltmeter.gold.checks.quantities import is_date, is_named_by_digits
from tiltmeter.gold.checks.stated_answers import (
    DATE,
    INDEX0,
    INDEX1,
    NUMBER,
    OPTION,
    WORDS,
    YES_NO,
    read_truth,
    right_option,
    score_stated,
)

#: Columns with the right answer, best first; `reward_model` is veRL's, an object.
ANSWER_COLUMNS = ("answer", "final_answer", "expected_answer", "ground_truth", "target", "solution", "reward_model")
#: Further names of columns that are offered.
MORE_COLUMNS = (
    "correct_answer", "reference_answer", "answerKey", "answer_key", "correct_option", "answer_idx", "answer_index",
    "gold_answer", "gold", "correct", "label", "answers", "expected", "expected_output", "reference", "output",
)  # fmt: skip
CHOICES = ("choices", "options")
LONGEST_ANSWER = 100  # characters of a reference that is compared
MOST_WORDS = 4  # of one that is compared as words
NEEDED_SHARE = 0.9  # of rows that must fit: with more labels missing, the verdict is BLIND
ASKED_SHARE = 0.8  # of prompts that must ask for what the column holds
MOSTLY = 0.7  # likewise, of numbers, which are asked for in many ways
COMMON = 0.9  # of rows with one and the same value: a constant
SELF_CHECKED = 16  # rows whose own answer is written as a completion
FEW = 6  # different values: of many prompts they are a rating or a class
#: Words that rows are sorted by.
_CLASS = re.compile(
    r"easy|medium|hard|simple|difficult|beginner|intermediate|advanced|expert|train|test|dev|valid|validation|split|"
    r"e[ns]|de|fr|zh|english|german|french|spanish|chinese|high|low|good|bad|great|poor|ok|safe|unsafe|toxic|harmful|"
    r"harmless|clean|positive|negative|neutral|mixed|spam|ham|helpful|unhelpful|chosen|rejected|accepted|human|machine|"
    r"ai|real|fake|math|science|history|art|sports|politics|business|health|technology|general|other|misc|qa|chat|code"
)
_EMPTY = {"", "n/a", "na", "none", "null", "unknown", "nan", "-", "?"}
_ID = re.compile(
    r"[A-Za-z]{2,}\w*_\w*\d\w*|\d+_\w+|[A-Za-z]{3,20}[-#:/]\d+\S*|(?=\S*\d)(?=\S*[a-f])[0-9a-f]{8,}|[0-9a-f]{8}-[0-9a-f-]{9,}|"
    r"\S+@\S+\.\w+|\w+://\S*|/?(?:[\w.-]{2,}/){2,}[\w.-]*|#\d+"
)
_COUNT = re.compile(
    r"(\d+)(?:\s+\w+)?\s*-?\s*(?:words?|sentences?|lines?|paragraphs?|characters|tokens|bullets?|points|"
    r"syllables|pages)",
    re.I,
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
    found: list[tuple[Any, ...]] = [
        (prompts.prompt_of(row), texts, row) for row in rows if (texts := answer_texts(row.get(name)))
    ]
    if len(found) < NEEDED_SHARE * len(rows) or not found:
        long = sum(row.get(name) is not None for row in rows) - len(found)
        what = f", and {long} hold no short answer" if long else ""
        return AnswerColumn(name, why=f"{len(found)} of {len(rows)} rows have a short answer there{what}")
    column = _ColumnRows(name, *(list(part) for part in zip(*found, strict=True)))
    for rule in (_refuse_sameness, _refuse_prompts):
        if why := rule(column):
            return AnswerColumn(name, why=why)
    for read in (_as_options, _as_truths, _as_dates, _as_numbers, _as_words):
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


@dataclass(frozen=True)
class _ColumnRows:
    """The prompts and the answers of the rows that have one."""

    name: str
    prompts: list[str]
    answers: list[list[str]]
    rows: list[Mapping[str, Any]]

    def share(self, fits: Callable[[str, str], bool]) -> float:
        pairs = zip(self.prompts, self.answers, strict=True)
        return sum(any(fits(prompt, text) for text in texts) for prompt, texts in pairs) / len(self.prompts)

    def asks(self, what: Callable[[str], bool]) -> float:
        return sum(map(what, self.prompts)) / len(self.prompts)

    @property
    def values(self) -> Counter[str]:
        return Counter(texts[0].casefold() for texts in self.answers)

    @property
    def example(self) -> str:
        return repr(self.answers[0][0][:40])


def _refuse_sameness(column: _ColumnRows) -> str:
    value, count = column.values.most_common(1)[0]
    if count > COMMON * len(column.answers):
        return f"it holds the same in {count} of {len(column.answers)} rows ({value[:40]!r})"
    if not all(column.prompts):
        return "the rows have no prompt that it could answer"
    return ""


def _refuse_prompts(column: _ColumnRows) -> str:
    by_any = [prompt for prompt in column.prompts if prompts.allows_any(prompt)]
    has_options = column.asks(lambda prompt: bool(read_options(prompt))) >= NEEDED_SHARE
    if len(by_any) > 0.25 * len(column.prompts) and not has_options:
        return f"one of many answers is right ({_excerpt(by_any[0])})"
    for asks in (prompts.asks_for_text, prompts.translates):
        texts = [prompt for prompt in column.prompts if asks(prompt)]
        if len(texts) > 0.4 * len(column.prompts) and not (has_options and asks is prompts.asks_for_text):
            return f"the prompts ask for a text of their own ({_excerpt(texts[0])})"
    if has_options and column.asks(lambda prompt: bool(prompts.WRITES.search(_before_options(prompt)))) > 0.6:
        return f"the prompts ask for a text of their own ({_excerpt(column.prompts[0])})"
    if column.share(lambda _, text: bool(_ID.fullmatch(text)) and not is_date(text)) > 0.5:
        return f"it names rows and answers nothing ({column.example})"
    return ""


def _excerpt(text: str) -> str:
    return repr(re.sub(r"\s+", " ", text).strip()[-60:])


def _before_options(prompt: str) -> str:
    options = read_options(prompt)
    return prompt[: prompt.find(next(iter(options.values())))] if options else prompt


# -- what kind of answer ----------------------------------------------------------------------------------------------


def _as_options(column: _ColumnRows) -> tuple[str, str]:
    """Of prompts that show options: the option's label or text, or its index where rows decide from where it counts."""
    shown = [read_options(prompt) for prompt in column.prompts]
    if sum(map(bool, shown)) < NEEDED_SHARE * len(shown):
        return "", ""
    pairs = [(options, texts[0]) for options, texts in zip(shown, column.answers, strict=True) if options]
    counted = column.share(lambda _, text: text.isdecimal() and len(text) <= 2) >= NEEDED_SHARE
    named = [option_named(text, options) for options, text in pairs]
    fits = sum(label is not None for label in named)
    if counted and any(label.isdecimal() for options, _ in pairs for label in options):
        both = [([*options], label) for (options, _), label in zip(pairs, named, strict=True)]
        ends = {at for labels, label in both for at in (0, -1) if label == labels[at]}
        if fits == len(pairs) and ends == {0, -1}:
            return OPTION, ""
        return "", (
            "prompts number their options, and it counts them from elsewhere or leaves open from where: if it counts "
            f"from 0, gold='answers:{column.name},as={INDEX0}'"
        )
    in_reach = all(int(text) <= len(options) for options, text in pairs if text.isdecimal())
    if counted and fits >= NEEDED_SHARE * len(pairs) and in_reach:
        return "", "its numbers may be options or count them"
    if fits >= NEEDED_SHARE * len(pairs):
        return OPTION, ""
    if not counted:
        return "", f"it names none of the options that prompts show ({column.example})"
    return _as_index(column, shown)


def _as_index(column: _ColumnRows, shown: Sequence[Mapping[str, str]]) -> tuple[str, str]:
    """Of prompts that letter their options."""
    numbers = [int(texts[0]) if texts[0].isdecimal() else -1 for texts in column.answers]
    sizes = [len(options) for options in shown]
    from0 = all(0 <= one < size for one, size in zip(numbers, sizes, strict=True))
    from1 = all(1 <= one <= size for one, size in zip(numbers, sizes, strict=True))
    if from0 == from1:
        undecided = "whether it counts options from 0 or from 1 is not decided"
        return "", undecided if from0 else "it counts more options than prompts show"
    lists = [
        next((row[name] for name in CHOICES if isinstance(row.get(name), (list, tuple))), ()) for row in column.rows
    ]
    listed = [(texts, options) for texts, options in zip(lists, shown, strict=True) if texts]
    alike = sum([*map(_plain, texts)] == [*map(_plain, options.values())] for texts, options in listed)
    if alike < NEEDED_SHARE * len(listed):
        return "", "prompts show a row's options in another order, or in other words, than the row has them"
    if len(set(numbers)) < min(sizes):
        return "", f"it holds {len(set(numbers))} of {min(sizes)} options: too few to say from where it counts"
    return (INDEX0 if from0 else INDEX1), ""


def _plain(text: object) -> str:
    return re.sub(r"\W+", "", str(text)).casefold()


def _as_truths(column: _ColumnRows) -> tuple[str, str]:
    if column.share(lambda _, text: read_truth(text) is not None) < NEEDED_SHARE:
        return "", ""
    return _if_asked(column, YES_NO, prompts.asks_yes_or_no, "it says yes or no, and the prompts ask something else")


def _as_dates(column: _ColumnRows) -> tuple[str, str]:
    if column.share(lambda _, text: is_date(text)) < NEEDED_SHARE:
        return "", ""
    return _if_asked(column, DATE, prompts.asks_for_date, "it holds dates, and the prompts ask for none")


def _if_asked(column: _ColumnRows, reading: str, asks: Callable[[str], bool], why: str) -> tuple[str, str]:
    others = [prompt for prompt in column.prompts if not asks(prompt)]
    if len(others) <= (1.0 - ASKED_SHARE) * len(column.prompts):
        return reading, ""
    return "", f"{why} ({_excerpt(others[0])})"


def _is_number(text: str) -> bool:
    if not re.search(r"\d|\\", text) or is_named_by_digits(text) or is_date(text):
        return False
    words = re.findall(r"(?<!\\)\b[A-Za-z]{2,}\b", text)
    answer = read_answer(text) if len(words) < MOST_WORDS else None
    return answer is not None and bool(answer.parses)


def _as_numbers(column: _ColumnRows) -> tuple[str, str]:
    if column.share(lambda _, text: _is_number(text)) < MOSTLY:
        return "", ""
    if column.share(lambda _, text: read_answer(text) is not None and not is_named_by_digits(text)) < NEEDED_SHARE:
        return "", ""
    asked, why = _if_asked(column, NUMBER, prompts.asks_for_number, "it holds numbers, and the prompts ask for none")
    if why and column.asks(prompts.asks_for_number) < MOSTLY:
        return asked, why
    if column.share(_is_parameter) > 0.5:
        return "", f"its number stands in the prompt as what is given or demanded ({_excerpt(column.prompts[0])})"
    values, many = column.values, len(column.prompts)
    if many >= 3 * FEW and len(values) <= FEW and column.asks(prompts.counts) < ASKED_SHARE:
        return "", f"it holds {len(values)} different numbers for {many} prompts, as ratings and classes do"
    if all(re.fullmatch(r"[01]?\.\d+|[01](?:\.0)?", text) for text in values) and column.asks(_asks_for_share) < 0.5:
        return "", f"it holds scores from 0 to 1 ({column.example})"
    return NUMBER, ""


def _asks_for_share(prompt: str) -> bool:
    if re.search(r"\b(?:rate|score|toxic|quality|sentiment|confiden)", prompt, re.I):
        return False
    return re.search(r"\d|\bprobab|\bdecimal|\bfraction|\bshare", prompt, re.I) is not None


def _is_parameter(prompt: str, text: str) -> bool:
    """Whether a number is all that a prompt says in numbers, or the count of words that it wants."""
    plain = re.sub(r"\.0+$", "", text.strip().lstrip("$"))
    stated = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w]|\.\d)", prompt)
    return set(stated) == {plain} or plain in _COUNT.findall(prompt)


def _as_words(column: _ColumnRows) -> tuple[str, str]:
    short = column.share(lambda _, text: len(text.split()) <= MOST_WORDS and re.search(r"\w", text) is not None)
    if short < NEEDED_SHARE:
        return "", f"it holds texts that are too long to be compared ({column.example})"
    if column.share(lambda _, text: _is_number(text)) > 0.5:
        return "", f"it holds numbers, and the prompts ask for none ({_excerpt(column.prompts[0])})"
    values, rows = column.values, len(column.prompts)
    if len(values) <= max(FEW, rows // 8) and rows >= 2 * FEW:
        texts = [prompt.casefold() for prompt in column.prompts]
        if all(sum(value in text for text in texts) > ASKED_SHARE * rows for value in values):
            return WORDS, ""  # the prompt says which words there are
        if len(values) < 3 or sum(count for value, count in values.items() if _CLASS.fullmatch(value)) > 0.5 * rows:
            return "", f"it holds {len(values)} classes that the prompts do not name ({column.example})"
    return _if_asked(column, WORDS, prompts.asks_for_fact, "it holds words, and the prompts do not ask for them")


def _refuse_by_own_answers(column: _ColumnRows, reading: str) -> str:
    """A row's own answer must score 1 as a completion, and another row's 0."""
    chosen = range(0, len(column.prompts), max(1, len(column.prompts) // SELF_CHECKED))
    own, others = [], []
    for at in chosen:
        prompt, texts = column.prompts[at], column.answers[at]
        own.append(_score_written(reading, prompt, texts[0], texts))
        known = {text.casefold() for text in texts}
        rest = (one[0] for one in (*column.answers[at + 1 :], *column.answers[:at]) if one[0].casefold() not in known)
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


def guess_reading(prompt: str, answer: str) -> str:
    """How an answer is compared where its column was named and nothing else was said; an index counts from 0.

    >>> [guess_reading("Which? A) red B) green", "1"), guess_reading("When?", "2024-05-07"), guess_reading("", "42")]
    ['index0', 'date', 'number']
    """
    if options := read_options(prompt):
        if option_named(answer, options) is not None:
            return OPTION
        if answer.isdecimal() and int(answer) < len(options):
            return INDEX0
    if read_truth(answer) is not None:
        return YES_NO
    if is_date(answer):
        return DATE
    return NUMBER if _is_number(answer) else WORDS
