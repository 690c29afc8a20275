"""Whether the look and manner of an answer win: lists, bold, apologies, hedges, closing offers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tiltmeter.instruments.hedging import HEDGES
from tiltmeter.instruments.refusal import ANSWER, BEGINNING, BODY, OPENING, REFUSAL
from tiltmeter.preferences.decided import EXAMPLES, LOG_ODDS, Decided, Ints, rounded, too_few
from tiltmeter.preferences.finding import Example, Finding, State
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.preferences.presence import TOO_FEW, Presence, Weighed, effect, powered, weighed
from tiltmeter.stats.lines import BOLD, FENCE, HEADING, ITEM, TABLE, marks
from tiltmeter.stats.words import Markers, Texts

UNIT = "log-odds of winning for having it"
SORRY = Markers(("sorry", "apologize", "apologise", "apologies", "my apologies", "unfortunately", "i regret"))
OPENERS = Markers(
    ("^certainly", "^sure", "^absolutely", "^of course", "^great question", "^definitely", "^i'd be happy", "^happy to")
)
CLOSERS = Markers(
    (
        *(
            "hope this helps",
            "hope that helps",
            "let me know if",
            "feel free to",
            "happy to help",
            "any other questions",
        ),
        *("any further questions", "is there anything else", "good luck"),
    )
)
SELF = Markers(("i", "i'm", "i am", "i've", "i'd", "i'll", "me", "my", "myself"))
MACHINE = Markers(("as an ai", "language model", "ai assistant", "ai model", "my training data", "i was trained"))
#: What is looked for, in the order of the columns of `counted`.
FORMS = (
    *("list items", "headings", "bold", "code fences", "tables", "links", "paragraphs", "emoji", "exclamation marks"),
    *("question at the end", "numbers", "hedges", "apologies", "refusal", "eager opening", "closing offer"),
    *("first person", "speaks as a model"),
)


@lru_cache(maxsize=4)  # labels change in a resampling, texts do not
def counted(answers: tuple[str, ...]) -> Ints:
    """How often each form occurs in each answer; English phrases, as the instruments have them.

    >>> table = counted(("- **one**\\n- two\\n\\nDoes this help?", "I'm sorry 😀"))
    >>> [[form for form, count in zip(FORMS, row, strict=True) if count] for row in table.tolist()]
    [['list items', 'bold', 'paragraphs', 'question at the end'], ['emoji', 'apologies', 'first person']]
    """
    texts = Texts.of(answers)
    lines = marks(texts)
    data, after = texts.data, np.append(texts.data[1:], np.uint8(0))
    refuses = BEGINNING.found(Texts.of(answers, OPENING)) & REFUSAL.found(Texts.of(answers, OPENING))
    columns = [
        *(lines[:, column] for column in (ITEM, HEADING, BOLD, FENCE, TABLE)),
        np.array([text.count("](") + text.count("http") for text in answers], np.int64),
        _marked((data == 10) & (after == 10), texts),
        _marked((data == 0xF0) & (after == 0x9F), texts),
        _marked(data == ord("!"), texts),
        np.array([text.rstrip().endswith("?") for text in answers], np.int64),
        _marked((data >= ord("0")) & (data <= ord("9")), texts),
        HEDGES.counts(texts).sum(axis=1),
        SORRY.counts(texts).sum(axis=1),
        (refuses & ~ANSWER.found(Texts.of(answers, BODY))).astype(np.int64),
        *(markers.counts(texts).sum(axis=1) for markers in (OPENERS, CLOSERS, SELF, MACHINE)),
    ]
    return np.column_stack(columns)


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Finding:
    """Of comparisons in which one answer has a form and the other has not: does having it win, length (and rated
    quality and order, where known) held equal?

    Exact for any number of pairs, one comparison per prompt, Bonferroni over the forms that enough comparisons tell
    apart; found also needs 55 wins in 100. Some forms are what was asked for, and a refusal may be right: read the
    examples before taking one for a bias.
    """
    some = Decided.of(pairs)
    if why := too_few(some, one_each=True):
        return Finding("form", "cannot tell", f"Form: {why}", unit=UNIT, facts=some.counts)
    has = _presence(some)
    told = weighed(some, has, alpha)
    level = alpha / max(told.tests, 1)
    rows = [_row(some, has, told, form, level) for form in range(len(FORMS))]
    found = [row for row in rows if row["p"] is not None and row["p"] <= level and abs(row["log_odds"]) >= LOG_ODDS]
    found.sort(key=lambda row: float(row["p"]))
    state, said = _verdict(rows, found, some.held, powered(some.prompts, level))
    top = found[0] if found else max(rows, key=lambda row: (row["p"] is not None, abs(row["z"])))
    known = top["log_odds"] is not None
    facts = {**some.counts, "held_equal": some.held, "tests": told.tests, "level": level, "matters": round(LOG_ODDS, 4)}
    return Finding(
        "form",
        state,
        said,
        top["log_odds"] if known else math.nan,
        top["low"] if known else math.nan,
        top["high"] if known else math.nan,
        f"{UNIT}: {top['form']}" if known else UNIT,
        _fix(found[0]["form"]) if found else "",
        {**facts, "found": [row["form"] for row in found]},
        sorted(rows, key=lambda row: -abs(row["z"])),
        _examples(some, has, found),
    )


def _marked(hits: Any, texts: Texts) -> Ints:
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(hits, dtype=np.int64)))
    return np.diff(total[texts.offsets])


def _presence(some: Decided) -> Presence:
    first, second = counted(tuple(some.pairs.first)) > 0, counted(tuple(some.pairs.second)) > 0
    item, form = np.nonzero(first != second)
    side = np.where(first[item, form], 1, -1)
    return Presence.of(form, item, side, some.prompt, len(FORMS))


def _row(some: Decided, has: Presence, told: Weighed, form: int, level: float) -> dict[str, Any]:
    count = int(has.counts[form])
    able = count >= told.fewest
    estimate, low, high = rounded(effect(some, has, form, level)) if able else (None, None, None)
    return {
        "form": FORMS[form],
        "comparisons": count,
        "won": int(told.wins[form]),
        "expected": round(float(told.expected[form]), 1),
        "log_odds": estimate,
        "low": low,
        "high": high,
        "z": round(float(told.z[form]), 2),
        "p": float(f"{told.p[form]:.3g}") if able else None,
    }


def _verdict(rows: list[dict[str, Any]], found: list[dict[str, Any]], held: str, enough: bool) -> tuple[State, str]:
    if found:
        parts = [
            f"{row['form']} ({row['won']} of {row['comparisons']} won, {row['expected']:g} expected)"
            for row in found[:3]
        ]
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        return "found", f"Form decides at equal {held}: {'; '.join(parts)}{more}."
    count = sum(1 for row in rows if row["p"] is not None)
    if enough and not count:
        return "clear", "Answers hardly differ in form: no form tells enough of them apart to decide."
    if enough:
        return "clear", f"None of {count} forms decides, {held} held equal."
    return "cannot tell", f"No form stands out among {count} that could be tested; {TOO_FEW}"


def _fix(form: str) -> str:
    return (
        f"Add comparisons of answers that differ only in this ({form}), once with and once without it preferred, or "
        "strip it from both answers before training the reward model."
    )


def _examples(some: Decided, has: Presence, found: list[dict[str, Any]]) -> list[Example]:
    """Of each form found, comparisons that went its way."""
    shown: list[Example] = []
    for row in found[:EXAMPLES]:
        here = has.where(FORMS.index(row["form"]))
        won = (has.side[here] > 0) == (some.won[has.item[here]] == 1.0)
        gains = row["log_odds"] > 0
        item = has.item[here][won == gains][:1]
        what = "has" if gains else "has no"
        shown += [some.example(int(one), f"the preferred answer {what} {row['form']}") for one in item]
    return shown
