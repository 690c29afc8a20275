"""Whether the answer that a completion states in the end is a row's own: a number, an option, a date, yes or no, words.

What is compared is one final answer: in `<answer>` tags, a box, after `####`, after "the answer is", else where each
kind of answer usually stands. Of several that differ none counts, but for a box or a line that corrects an earlier one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from tiltmeter.gold.checks.math_answers import LONGEST_TEXT, equal, extract_answers, read_answer
from tiltmeter.gold.checks.prompt_options import option_named, plain_option, read_options
from tiltmeter.gold.checks.quantities import read_dates, read_quantity

#: How a column's values are compared. An index counts the options that the prompt shows, from 0 or from 1.
NUMBER, OPTION, INDEX0, INDEX1, YES_NO, DATE, WORDS = "number", "option", "index0", "index1", "yes", "date", "words"
READINGS = (NUMBER, OPTION, INDEX0, INDEX1, YES_NO, DATE, WORDS)
LONGEST_CLAUSE = 600
LONGEST_END = 8_000  # characters at the end of a completion, in which an answer without a box or a tag is looked for

_TAGGED = re.compile(r"<answer>(.{0,2000}?)</answer>", re.S | re.I)
_STATED = re.compile(
    r"\b(?:answer|solution|result|choice)\b[ \t*_]{0,4}(?:is|are|would be|must be|:|=)[ \t:*_]{0,6}([^\n]{1,600})", re.I
)
_REASON = re.compile(
    r"\s*(?:,?\s+\b(?:because|since|as|for|which|given|considering|by|due to|from)\b|\s\((?=[^()]{0,200}[A-Za-z]{2})|;"
    r"|,\s+(?:so|and so|thus|hence)\b|(?<=[\w)\]}\"'*%])[.!](?:\s|$))",
    re.I,
)
_NUMBER = re.compile(r"(?<![\w.])-?\$?\d[\d,]{0,40}(?:\.\d{1,40})?(?:\s?[A-Za-z%]{1,12})?")
_ASIDE = re.compile(r"\((?=[^()]{0,200}[A-Za-z]{2})[^()]{0,200}\)")
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'(*]*[A-Z0-9])|\n+")
_TRUTHS = {"yes": "yes", "true": "yes", "correct": "yes", "no": "no", "false": "no", "incorrect": "no"}
_CONTRAST = re.compile(r"\b(?:but|however|actually|wait|no,|not|instead|rather|either|or|maybe|perhaps)\b", re.I)


def score_stated(reading: str, prompt: str, completion: str, references: Sequence[str]) -> float | None:
    """1.0 if the completion's final answer is one of the references, else 0.0; None if these cannot be compared.

    >>> score_stated("number", "6 x 7?", "The answer is 42 because 6*7=42 (see step 3)", ["42"])
    1.0
    >>> score_stated("index0", "Which? A) red B) green", "I choose (B).", ["1"])
    1.0
    """
    if len(completion) > LONGEST_TEXT:
        return 0.0
    text = _tail(completion.rpartition("</think>")[2])
    scores = [_score_one(reading, prompt, text, reference.strip()) for reference in references]
    valid = [score for score in scores if score is not None]
    return max(valid, default=None)


def _tail(text: str) -> str:
    """The end of a completion; the last box, `####` or tag before it stands in front, if there is none in it."""
    end = text[-LONGEST_END:]
    if len(end) == len(text) or any(mark in end for mark in ("\\boxed", "####", "</answer>")):
        return end
    at = max(text.rfind(mark) for mark in ("\\boxed", "####", "<answer>"))
    return text[at : at + LONGEST_END] if at >= 0 else end


def _score_one(reading: str, prompt: str, text: str, reference: str) -> float | None:
    if reading in (OPTION, INDEX0, INDEX1):
        options = read_options(prompt)
        right = right_option(reading, reference, options)
        return None if right is None else float(chosen_option(text, options) == right)
    if reading == YES_NO:
        truth = read_truth(reference)
        return None if truth is None else float(_stated_truth(text) == truth)
    if reading == DATE:
        dates = read_dates(reference)
        return None if len(dates) != 1 else float(_states_date(text, next(iter(dates))))
    if reading == WORDS and not re.fullmatch(r"-?[$]?\d[\d,.]*%?", reference):
        return None if not _words(reference) else float(_states_words(text, reference))
    return _score_number(text, reference)


def right_option(reading: str, reference: str, options: dict[str, str]) -> str | None:
    """The label of the right option; None if the reference names none of those that are shown."""
    if reading == OPTION:
        return option_named(reference, options)
    at = int(reference) - (reading == INDEX1) if re.fullmatch(r"\d{1,2}", reference) else -1
    return list(options)[at] if 0 <= at < len(options) else None


def read_truth(value: object) -> str | None:
    """`yes` or `no`, of a truth value or one of its words; None of anything else."""
    return _TRUTHS.get(str(value).strip().rstrip(".").lower())


def final_clause(text: str) -> tuple[str, bool]:
    """What a completion gives as its answer, and whether it says that it is one; else its last sentence."""
    if tagged := _TAGGED.findall(text):
        text = tagged[-1].strip()
        return (boxes[-1] if (boxes := extract_answers(text, ("boxed",))) else text), True
    if answers := extract_answers(text, ("boxed", "hashes")):
        return re.sub(r"^\\(?:text|mathrm|textbf)\{(.{0,400})\}$", r"\1", answers[-1]), True
    if "\\boxed" in text or "####" in text:
        return "", True  # an empty placeholder
    if stated := _STATED.findall(text):
        return stated[-1].strip(), True
    sentences = [part.strip() for part in _SENTENCE.split(text) if part and part.strip()]
    return (sentences[-1] if sentences else ""), False


# -- numbers ----------------------------------------------------------------------------------------------------------


def _score_number(text: str, reference: str) -> float | None:
    gold = read_answer(reference)
    if gold is None:
        return None
    clause, is_said = final_clause(text)
    if is_said:
        candidates = [clause, cut := _without_reason(clause)]
        inside = {match[0].strip() for match in _NUMBER.finditer(cut)}
        if len({re.sub(r"[^\d.-]", "", one) for one in inside}) == 1 and not re.search(r"[\\^/*=]", cut):
            candidates.append(next(iter(inside)))
    else:
        candidates = [match[0].strip() for match in _NUMBER.finditer(_ASIDE.sub(" ", text))][-1:]
    wanted = read_quantity(reference)
    return float(any(_same_number(one, gold, wanted) for one in candidates if one))


def _same_number(text: str, gold: object, wanted: tuple[float, str] | None) -> bool:
    candidate = read_quantity(text) if wanted is not None else None
    if wanted is not None and candidate is not None and {wanted[1], candidate[1]} != {"share"}:
        return candidate == wanted
    answers = [read_answer(text), read_answer(re.sub(r"(?<=\d)\s*[A-Za-z%]+$", "", text))]
    return any(answer is not None and equal(answer, gold) for answer in answers)  # type: ignore[arg-type]


def _without_reason(clause: str) -> str:
    match = _REASON.search(clause, 1)
    return clause[: match.start()].strip(" *_") if match else clause.strip(" *_").rstrip(".")


# -- options, truths, dates -------------------------------------------------------------------------------------------


def chosen_option(text: str, options: dict[str, str]) -> str | None:
    """The label of the one option that a completion ends with; None if it names none or several."""
    if not options:
        return None
    clause, is_said = final_clause(text)
    cut = _without_reason(clause)
    for part in (clause, cut):
        if (label := option_named(part.strip(" *_\"'"), options)) is not None:
            return label
    parts = [cut] if is_said else [clause, text[:LONGEST_CLAUSE] if len(text) <= LONGEST_CLAUSE else ""]
    for part in parts:
        if labels := _labels_in(part, options):
            return labels.pop() if len(labels) == 1 else None
        plain = f" {_joined(part)} "
        named = {label for label, shown in options.items() if _words(shown) and f" {_joined(shown)} " in plain}
        if named:
            return named.pop() if len(named) == 1 else None
    return None


def _labels_in(part: str, options: dict[str, str]) -> set[str]:
    """The labels that stand alone in a text. "A" before a word in small letters is an article, I a person."""
    labels = set(re.findall(r"(?<![\w.])[(\[]?([A-Za-z]|\d{1,2})(?:[)\]]|(?![\w'’]|\.\d))", part)) & set(options)
    if marked := set(re.findall(r"(?<![\w.])\(?([A-Za-z\d]{1,2})\)", part)) & set(options):
        return marked
    if "".join(options).islower():
        return labels - {"a", "i"}
    if "A" in labels and not re.search(r"\bA\b(?!\s+(?!or\b|and\b)[a-z])", part):
        labels.discard("A")
    if "I" in labels and re.search(r"\bI\s+[a-z]", part):
        labels.discard("I")
    return labels


def _stated_truth(text: str) -> str | None:
    clause, is_said = final_clause(text)
    first = re.match(r"\W{0,4}(\w+)", text if not is_said else clause)
    if first and first[1].lower() in _TRUTHS:
        return _TRUTHS[first[1].lower()]
    truths = {_TRUTHS[word] for word in re.findall(r"[a-z]+", _without_reason(clause).lower()) if word in _TRUTHS}
    return truths.pop() if len(truths) == 1 else None


def _states_date(text: str, wanted: frozenset[object]) -> bool:
    clause, is_said = final_clause(text)
    dates = read_dates(clause) or ([] if is_said else read_dates(text[-LONGEST_CLAUSE:])[-1:])
    return bool(dates) and all(one & wanted for one in dates)


# -- words ------------------------------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    plain = "".join(one for one in unicodedata.normalize("NFKD", text) if not unicodedata.combining(one)).casefold()
    return [word for word in re.findall(r"[^\W_]+", plain.replace("'s ", " ")) if word not in ("a", "an", "the")]


def _joined(text: str) -> str:
    return " ".join(_words(text))


def _states_words(text: str, reference: str) -> bool:
    clause, is_said = final_clause(text)
    if _names_words(_without_reason(clause) if is_said else clause, reference):
        return True
    sentences = [part for part in _SENTENCE.split(text) if part and part.strip()]
    short = not is_said and 1 < len(sentences) <= 3 and not _CONTRAST.search(text)
    return short and _names_words(sentences[0], reference)


def _names_words(clause: str, reference: str) -> bool:
    """Whether a clause gives these words as the one answer: not denied, not one of several."""
    if plain_option(clause) == plain_option(reference):
        return True
    if len(clause) > LONGEST_CLAUSE or re.search(r"(?:^|[,:])(?:\s*[\w' ]{1,30},){2,}", clause):
        return False
    candidate, wanted = _words(clause), _words(reference)
    for at in range(len(candidate) - len(wanted) + 1):
        if candidate[at : at + len(wanted)] == wanted:
            near = {*candidate[max(0, at - 3) : at], *candidate[at + len(wanted) : at + len(wanted) + 2]} - set(wanted)
            return len(candidate) <= 40 and not near & {"or", "not", "either", "isn", "t", "neither", "nor"}
    return False
