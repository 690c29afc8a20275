"""Check: whether the form of an answer wins: lists, bold, apologies, hedges, closing offers."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tiltmeter.instruments.hedging import HEDGES
from tiltmeter.instruments.refusal import ANSWER, BEGINNING, BODY, OPENING, REFUSAL
from tiltmeter.stats.text_features import BOLD, FENCE, HEADING, ITEM, TABLE, markup_counts
from tiltmeter.stats.word_hashes import PhraseMatcher, Texts
from tiltmeter_workbench.check_report.report import Check, Example
from tiltmeter_workbench.preferences.checks.decided_pairs import (
    EXAMPLES,
    LOG_ODDS,
    DecidedPairs,
    Ints,
    round_values,
    too_few,
)
from tiltmeter_workbench.preferences.checks.feature_tests import (
    TOO_FEW,
    Presence,
    WinTests,
    effect,
    has_power,
    run_win_tests,
)
from tiltmeter_workbench.preferences.finding import State
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons

UNIT = "log-odds of winning for having it"
SORRY = PhraseMatcher(("sorry", "apologize", "apologise", "apologies", "my apologies", "unfortunately", "i regret"))
OPENERS = PhraseMatcher(
    ("^certainly", "^sure", "^absolutely", "^of course", "^great question", "^definitely", "^i'd be happy", "^happy to")
)
CLOSERS = PhraseMatcher(
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
SELF = PhraseMatcher(("i", "i'm", "i am", "i've", "i'd", "i'll", "me", "my", "myself"))
MACHINE = PhraseMatcher(("as an ai", "language model", "ai assistant", "ai model", "my training data", "i was trained"))
#: What is looked for, in the order of the columns of `count_forms`.
FORMS = (
    *("list items", "headings", "bold", "code fences", "tables", "links", "paragraphs", "emoji", "exclamation marks"),
    *("question at the end", "numbers", "hedges", "apologies", "refusal", "eager opening", "closing offer"),
    *("first person", "speaks as a model"),
)


@lru_cache(maxsize=4)  # labels change in a resampling, texts do not
def count_forms(answers: tuple[str, ...]) -> Ints:
    """How often each form occurs in each answer; English phrases, as the instruments have them.

    >>> table = count_forms(("- **one**\\n- two\\n\\nDoes this help?", "I'm sorry 😀"))
    >>> [[form for form, count in zip(FORMS, row, strict=True) if count] for row in table.tolist()]
    [['list items', 'bold', 'paragraphs', 'question at the end'], ['emoji', 'apologies', 'first person']]
    """
    texts = Texts.of(answers)
    lines = markup_counts(texts)
    data, after = texts.data, np.append(texts.data[1:], np.uint8(0))
    refuses = BEGINNING.contains_any(Texts.of(answers, OPENING)) & REFUSAL.contains_any(Texts.of(answers, OPENING))
    columns = [
        *(lines[:, column] for column in (ITEM, HEADING, BOLD, FENCE, TABLE)),
        np.array([text.count("](") + text.count("http") for text in answers], np.int64),
        _count_marks((data == 10) & (after == 10), texts),
        _count_marks((data == 0xF0) & (after == 0x9F), texts),
        _count_marks(data == ord("!"), texts),
        np.array([text.rstrip().endswith("?") for text in answers], np.int64),
        _count_marks((data >= ord("0")) & (data <= ord("9")), texts),
        HEDGES.counts(texts).sum(axis=1),
        SORRY.counts(texts).sum(axis=1),
        (refuses & ~ANSWER.contains_any(Texts.of(answers, BODY))).astype(np.int64),
        *(markers.counts(texts).sum(axis=1) for markers in (OPENERS, CLOSERS, SELF, MACHINE)),
    ]
    return np.column_stack(columns)


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Of comparisons in which one answer has a form and the other has not: does having it win, length (and rated
    quality and order, where known) held equal?

    Exact for any number of pairs, one comparison per prompt, Bonferroni over the forms that enough comparisons tell
    apart; found also needs 55 wins in 100. Some forms are what was asked for, and a refusal may be right: read the
    examples before taking one for a bias.
    """
    decided = DecidedPairs.of(pairs)
    if why := too_few(decided, one_each=True):
        return Check("form", "cannot tell", f"Form: {why}", unit=UNIT, facts=decided.counts)
    has = _presence(decided)
    win_tests = run_win_tests(decided, has, alpha)
    level = alpha / max(win_tests.tests, 1)
    rows = [_row(decided, has, win_tests, form, level) for form in range(len(FORMS))]
    significant = [
        row for row in rows if row["p"] is not None and row["p"] <= level and abs(row["log_odds"]) >= LOG_ODDS
    ]
    significant.sort(key=lambda row: float(row["p"]))
    state, sentence = _verdict(rows, significant, decided.held_equal, has_power(decided.prompts, level))
    top = significant[0] if significant else max(rows, key=lambda row: (row["p"] is not None, abs(row["z"])))
    has_estimate = top["log_odds"] is not None
    facts = {
        **decided.counts,
        "held_equal": decided.held_equal,
        "tests": win_tests.tests,
        "level": level,
        "matters": round(LOG_ODDS, 4),
    }
    return Check(
        "form",
        state,
        sentence,
        top["log_odds"] if has_estimate else math.nan,
        top["low"] if has_estimate else math.nan,
        top["high"] if has_estimate else math.nan,
        f"{UNIT}: {top['form']}" if has_estimate else UNIT,
        _fix(significant[0]["form"]) if significant else "",
        {**facts, "found": [row["form"] for row in significant]},
        sorted(rows, key=lambda row: -abs(row["z"])),
        _examples(decided, has, significant),
    )


def _count_marks(hits: Any, texts: Texts) -> Ints:
    total = np.concatenate((np.zeros(1, np.int64), np.cumsum(hits, dtype=np.int64)))
    return np.diff(total[texts.offsets])


def _presence(decided: DecidedPairs) -> Presence:
    first, second = count_forms(tuple(decided.pairs.first)) > 0, count_forms(tuple(decided.pairs.second)) > 0
    item, form = np.nonzero(first != second)
    side = np.where(first[item, form], 1, -1)
    return Presence.of(form, item, side, decided.prompt, len(FORMS))


def _row(decided: DecidedPairs, has: Presence, win_tests: WinTests, form: int, level: float) -> dict[str, Any]:
    count = int(has.counts[form])
    able = count >= win_tests.fewest
    estimate, low, high = round_values(effect(decided, has, form, level)) if able else (None, None, None)
    return {
        "form": FORMS[form],
        "comparisons": count,
        "won": int(win_tests.wins[form]),
        "expected": round(float(win_tests.expected[form]), 1),
        "log_odds": estimate,
        "low": low,
        "high": high,
        "z": round(float(win_tests.z[form]), 2),
        "p": float(f"{win_tests.p[form]:.3g}") if able else None,
    }


def _verdict(
    rows: list[dict[str, Any]], significant: list[dict[str, Any]], held_equal: str, enough: bool
) -> tuple[State, str]:
    if significant:
        parts = [
            f"{row['form']} ({row['won']} of {row['comparisons']} won, {row['expected']:g} expected)"
            for row in significant[:3]
        ]
        more = f" and {len(significant) - 3} more" if len(significant) > 3 else ""
        return "found", f"Form decides at equal {held_equal}: {'; '.join(parts)}{more}."
    count = sum(1 for row in rows if row["p"] is not None)
    if enough and not count:
        return "clear", "Answers hardly differ in form: no form tells enough of them apart to decide."
    if enough:
        return "clear", f"None of {count} forms decides, {held_equal} held equal."
    return "cannot tell", f"No form stands out among {count} that could be tested; {TOO_FEW}"


def _fix(form: str) -> str:
    return (
        f"Add comparisons of answers that differ only in this ({form}), once with and once without it preferred, or "
        "strip it from both answers before training the reward model."
    )


def _examples(decided: DecidedPairs, has: Presence, significant: list[dict[str, Any]]) -> list[Example]:
    """Of each form found, comparisons that went its way."""
    examples: list[Example] = []
    for row in significant[:EXAMPLES]:
        here = has.where(FORMS.index(row["form"]))
        won = (has.side[here] > 0) == (decided.won[has.item[here]] == 1.0)
        gains = row["log_odds"] > 0
        item = has.item[here][won == gains][:1]
        what = "has" if gains else "has no"
        examples += [decided.example(int(one), f"the preferred answer {what} {row['form']}") for one in item]
    return examples
