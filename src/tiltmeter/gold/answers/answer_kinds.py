"""What kind of answer a column holds, and whether its prompts ask for it: options, dates, numbers, words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.gold.answers import task_prompts as prompts
from tiltmeter.gold.checks.math_answers import read_answer
from tiltmeter.gold.checks.prompt_options import option_named, read_options
from tiltmeter.gold.checks.quantities import is_date, is_named_by_digits
from tiltmeter.gold.checks.stated_answers import DATE, INDEX0, INDEX1, NUMBER, OPTION, WORDS, YES_NO, read_truth

MOST_WORDS = 4  # of one that is compared as words
NEEDED_SHARE = 0.9  # of rows that must fit: with more labels missing, the verdict is BLIND
ASKED_SHARE = 0.8  # of prompts that must ask for what the column holds
MOSTLY = 0.7  # likewise, of numbers, which prompts ask for in many ways
FEW = 6  # different values: of many prompts they are a rating or a class
CHOICES = ("choices", "options")
#: Words that rows are sorted by.
_CLASS = re.compile(
    r"easy|medium|hard|simple|difficult|beginner|intermediate|advanced|expert|train|test|dev|valid|validation|split|"
    r"e[ns]|de|fr|zh|english|german|french|spanish|chinese|high|low|good|bad|great|poor|ok|safe|unsafe|toxic|harmful|"
    r"harmless|clean|positive|negative|neutral|mixed|spam|ham|helpful|unhelpful|chosen|rejected|accepted|human|machine|"
    r"ai|real|fake|math|science|history|art|sports|politics|business|health|technology|general|other|misc|qa|chat|code"
)
_COUNT = re.compile(
    r"(\d+)(?:\s+\w+)?\s*-?\s*(?:words?|sentences?|lines?|paragraphs?|characters|tokens|bullets?|points|"
    r"syllables|pages)",
    re.I,
)


@dataclass(frozen=True)
class ColumnRows:
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


def excerpt(text: str) -> str:
    return repr(re.sub(r"\s+", " ", text).strip()[-60:])


def as_options(column: ColumnRows) -> tuple[str, str]:
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


def _as_index(column: ColumnRows, shown: Sequence[Mapping[str, str]]) -> tuple[str, str]:
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


def as_truths(column: ColumnRows) -> tuple[str, str]:
    if column.share(lambda _, text: read_truth(text) is not None) < NEEDED_SHARE:
        return "", ""
    return _if_asked(column, YES_NO, prompts.asks_yes_or_no, "it says yes or no, and the prompts ask something else")


def as_dates(column: ColumnRows) -> tuple[str, str]:
    if column.share(lambda _, text: is_date(text)) < NEEDED_SHARE:
        return "", ""
    return _if_asked(column, DATE, prompts.asks_for_date, "it holds dates, and the prompts ask for none")


def _if_asked(column: ColumnRows, reading: str, asks: Callable[[str], bool], why: str) -> tuple[str, str]:
    others = [prompt for prompt in column.prompts if not asks(prompt)]
    if len(others) <= (1.0 - ASKED_SHARE) * len(column.prompts):
        return reading, ""
    return "", f"{why} ({excerpt(others[0])})"


def is_number(text: str) -> bool:
    if not re.search(r"\d|\\", text) or is_named_by_digits(text) or is_date(text):
        return False
    words = re.findall(r"(?<!\\)\b[A-Za-z]{2,}\b", text)
    answer = read_answer(text) if len(words) < MOST_WORDS else None
    return answer is not None and bool(answer.parses)


def as_numbers(column: ColumnRows) -> tuple[str, str]:
    if column.share(lambda _, text: is_number(text)) < MOSTLY:
        return "", ""
    if column.share(lambda _, text: read_answer(text) is not None and not is_named_by_digits(text)) < NEEDED_SHARE:
        return "", ""
    kind, why = _if_asked(column, NUMBER, prompts.asks_for_number, "it holds numbers, and the prompts ask for none")
    if why and column.asks(prompts.asks_for_number) < MOSTLY:
        return kind, why
    if column.share(_is_parameter) > 0.5:
        return "", f"its number stands in the prompt as what is given or demanded ({excerpt(column.prompts[0])})"
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


def as_words(column: ColumnRows) -> tuple[str, str]:
    short = column.share(lambda _, text: len(text.split()) <= MOST_WORDS and re.search(r"\w", text) is not None)
    if short < NEEDED_SHARE:
        return "", f"it holds texts that are too long to be compared ({column.example})"
    if column.share(lambda _, text: is_number(text)) > 0.5:
        return "", f"it holds numbers, and the prompts ask for none ({excerpt(column.prompts[0])})"
    values, rows = column.values, len(column.prompts)
    if len(values) <= max(FEW, rows // 8) and rows >= 2 * FEW:
        texts = [prompt.casefold() for prompt in column.prompts]
        if all(sum(value in text for text in texts) > ASKED_SHARE * rows for value in values):
            return WORDS, ""  # the prompt says which words there are
        if len(values) < 3 or sum(count for value, count in values.items() if _CLASS.fullmatch(value)) > 0.5 * rows:
            return "", f"it holds {len(values)} classes that the prompts do not name ({column.example})"
    return _if_asked(column, WORDS, prompts.asks_for_fact, "it holds words, and the prompts do not ask for them")


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
    return NUMBER if is_number(answer) else WORDS
