"""Check: phrases that are more frequent in preferred answers than length and quality explain."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tiltmeter.stats.logodds import ORDER, PhraseTable, log_odds, merge_phrases
from tiltmeter.stats.word_hashes import Hashes, Texts, Words
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
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons

UNIT = "log-odds of winning for containing it"
LEAST = 8  # answers with a phrase; rarer ones cannot pass among so many
RARE = 0.002  # of answers: what is rarer than that decides too few comparisons to matter
SHOWN = 20  # phrases in the table
_STEP = np.uint64(0x9FB21C651E98DF25)  # as in stats.logodds: a longer phrase extends the key of a shorter one
_CHUNK = 1_000_000  # words at a time


class Phrases(NamedTuple):
    """All phrases of the answers and which comparisons they tell apart. Phrases that occur in exactly the same answers
    are one feature; `feature` gives its number for each row of the table."""

    texts: Texts
    words: Words
    table: PhraseTable
    has: Presence
    feature: Ints
    sides: tuple[Ints, Ints]  # first and second answers that contain each row's phrase, as comparison * rows + row


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Of comparisons in which one answer contains a phrase of 1 to 4 words and the other does not: does it win?

    The test is exact for pairs (the sign test, with odds that length, rated quality and order explain), counts one
    comparison per prompt, and is Bonferroni over all phrases that enough comparisons tell apart: the chance that any
    phrase is named without a cause is at most `alpha`. Found also needs 55 wins in 100. `prior_log_odds` in the table
    is the usual figure for over-use in preferred answers, with an informative prior (Monroe et al. 2008).
    """
    decided = DecidedPairs.of(pairs)
    if why := too_few(decided, one_each=True):
        return Check("phrases", "cannot tell", f"Phrases: {why}", unit=UNIT, facts=decided.counts)
    phrases = _phrases(tuple(decided.pairs.first), tuple(decided.pairs.second), tuple(decided.prompt.tolist()))
    win_tests = run_win_tests(decided, phrases.has, alpha)
    level = alpha / max(win_tests.tests, 1)
    rows = _rows(decided, phrases, win_tests, level, win_tests.significant(alpha))
    held_equal = decided.held_equal
    facts = {
        **decided.counts,
        "held_equal": held_equal,
        "tests": win_tests.tests,
        "fewest_comparisons": win_tests.fewest,
        "level": level,
    }
    facts |= {"matters": round(LOG_ODDS, 4), "found": len(rows)}
    if not rows:
        if has_power(decided.prompts, level):
            sentence = f"None of {win_tests.tests} phrases decides, {held_equal} held equal."
            return Check("phrases", "clear", sentence, unit=UNIT, facts=facts)
        sentence = f"No phrase stands out among {win_tests.tests} that could be tested; {TOO_FEW}"
        return Check("phrases", "cannot tell", sentence, unit=UNIT, facts=facts)
    top = rows[0]
    verb = "wins" if top["log_odds"] > 0 else "loses"
    many = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    sentence = (
        f"An answer with “{top['phrase']}” {verb}: {top['won']} of {top['comparisons']} comparisons, "
        f"{top['expected']:g} expected from {held_equal}{many}."
    )
    fix = (
        "Train with pairs of the same answer with and without the phrase, labelled as equal, or take it out of both "
        "answers; look at the examples first, since a phrase may stand for what was asked."
    )
    examples = _examples(decided, phrases, rows)
    table = [{name: value for name, value in row.items() if name != "thing"} for row in rows[:SHOWN]]
    ends = (top["log_odds"], top["low"], top["high"])
    return Check("phrases", "found", sentence, *ends, f"{UNIT}: {top['phrase']}", fix, facts, table, examples)


@lru_cache(maxsize=2)  # labels change in a resampling, texts do not
def _phrases(first: tuple[str, ...], second: tuple[str, ...], prompt: tuple[int, ...]) -> Phrases:
    texts = Texts.of((*first, *second))
    words = Words.of(texts)
    pairs = len(first)
    # One group for each answer: what likeness the table computes is not used here.
    least = max(LEAST, math.ceil(RARE * 2 * pairs))
    table = PhraseTable.of(words, np.ones(2 * pairs, bool), np.arange(2 * pairs + 1), least=least)
    rows = max(len(table.keys), 1)
    text, row = np.divmod(_occurrences(words, table.keys), rows)
    ones, others = (text < pairs), (text >= pairs)
    one = text[ones] * rows + row[ones]
    other = (text[others] - pairs) * rows + row[others]
    only = np.setdiff1d(one, other, assume_unique=True), np.setdiff1d(other, one, assume_unique=True)
    item, row = np.divmod(np.concatenate(only), rows)
    side = np.repeat([1, -1], [len(only[0]), len(only[1])])
    feature = _same_features(item, row, side, len(table.keys))
    lead = np.full(len(table.keys), -1)  # the first row of each feature represents it
    lead[feature[::-1]] = np.arange(len(feature))[::-1]
    speaks = lead[feature[row]] == row
    prompts = np.array(prompt, np.int64)
    has = Presence.of(feature[row[speaks]], item[speaks], side[speaks], prompts, len(table.keys))
    return Phrases(texts, words, table, has, feature, (one, other))


def _occurrences(words: Words, keys: Hashes) -> Ints:
    """Which text contains which of the keys (sorted), as text * len(keys) + key, each once and in order.

    Texts are not split: a chunk ends with the text that reaches its size.
    """
    codes = []
    ends = np.repeat(words.offsets[1:], words.lengths)
    text = np.repeat(np.arange(len(words.offsets) - 1), words.lengths)
    cuts = np.searchsorted(words.offsets, np.arange(_CHUNK, len(words.hashes) + _CHUNK, _CHUNK))
    start = 0
    for end in words.offsets[cuts.clip(0, len(words.offsets) - 1)].tolist() if len(keys) else ():
        place, start = np.arange(start, end), end
        key = np.zeros(len(place), np.uint64)
        for order in range(1, ORDER + 1):
            inside = place + order <= ends[place]
            place, key = place[inside], key[inside]
            key = key * _STEP + words.hashes[place + order - 1]
            at = np.searchsorted(keys, key).clip(0, len(keys) - 1)
            hit = keys[at] == key
            codes.append(_unique_sorted(text[place[hit]] * len(keys) + at[hit]))
    return np.sort(np.concatenate(codes)) if codes else np.zeros(0, np.int64)


def _unique_sorted(codes: Ints) -> Ints:
    """Sorted, each once. What numpy offers for this is ten times slower on such codes."""
    codes = np.sort(codes)
    new = np.ones(len(codes), bool)
    new[1:] = codes[1:] != codes[:-1]
    return codes[new]


def _same_features(item: Ints, row: Ints, side: Ints, rows: int) -> Ints:
    """A number for each row, equal for rows that tell the same comparisons apart in the same way."""
    with np.errstate(over="ignore"):
        mixed = (item.astype(np.uint64) * np.uint64(2) + (side > 0)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
    marks = np.zeros(rows, np.uint64)
    np.add.at(marks, row, mixed)
    return np.unique(marks, return_inverse=True)[1].astype(np.int64)


def _rows(
    decided: DecidedPairs, phrases: Phrases, win_tests: WinTests, level: float, significant: Ints
) -> list[dict[str, Any]]:
    """Phrases found, strongest first; of nested ones the one that says most."""
    table, z = phrases.table, np.abs(win_tests.z)[phrases.feature]
    rows = []
    for sign in (1.0, -1.0):  # apart, so that a phrase that wins is not merged into one that loses
        right = significant[np.sign(win_tests.z[significant]) == sign]
        chosen = np.flatnonzero(np.isin(phrases.feature, right))
        reported: set[int] = set()
        for row, first, count in merge_phrases(table, phrases.words, chosen, z).tolist():
            feature = int(phrases.feature[row])
            if feature not in reported:
                reported.add(feature)
                rows.append(
                    _row(
                        decided,
                        phrases,
                        win_tests,
                        feature,
                        row,
                        phrases.words.text(phrases.texts, first, count),
                        level,
                    )
                )
    rows = [row for row in rows if abs(row["log_odds"]) >= LOG_ODDS and (row["low"] > 0.0 or row["high"] < 0.0)]
    return sorted(rows, key=lambda row: (row["p"], -abs(row["z"])))


def _row(
    decided: DecidedPairs, phrases: Phrases, win_tests: WinTests, feature: int, row: int, phrase: str, level: float
) -> dict[str, Any]:
    estimate, low, high = round_values(effect(decided, phrases.has, feature, level))
    chosen, rejected = _count_uses(decided, phrases, row)
    texts = len(decided)
    prior, own, other = log_odds(np.array([chosen]), texts, np.array([rejected]), texts, prior=texts / 4.0)
    return {
        "phrase": phrase,
        "comparisons": int(phrases.has.counts[feature]),
        "won": int(win_tests.wins[feature]),
        "expected": round(float(win_tests.expected[feature]), 1),
        "in_preferred": chosen,
        "in_rejected": rejected,
        "log_odds": estimate,
        "low": low,
        "high": high,
        "p": float(f"{win_tests.p[feature]:.3g}"),
        "z": round(float(win_tests.z[feature]), 2),
        "prior_log_odds": round(float(prior[0]), 3),
        "prior_z": round(float(prior[0]) / math.sqrt(float(own[0] + other[0])), 2),
        "thing": feature,
    }


def _count_uses(decided: DecidedPairs, phrases: Phrases, row: int) -> tuple[int, int]:
    """Preferred and rejected answers that contain the phrase of a row."""
    rows = len(phrases.table.keys)
    first, second = (side[side % rows == row] // rows for side in phrases.sides)
    won = decided.won == 1.0
    preferred = int(won[first].sum()) + int((~won[second]).sum())
    return preferred, len(first) + len(second) - preferred


def _examples(decided: DecidedPairs, phrases: Phrases, rows: list[dict[str, Any]]) -> list[Example]:
    examples: list[Example] = []
    for row in rows[:EXAMPLES]:
        here = phrases.has.where(row["thing"])
        gains = row["log_odds"] > 0
        went = ((phrases.has.side[here] > 0) == (decided.won[phrases.has.item[here]] == 1.0)) == gains
        what = "preferred" if gains else "rejected"
        why = f"only the {what} answer contains “{row['phrase']}”"
        examples += [decided.example(item, why) for item in phrases.has.item[here][went][:1].tolist()]
    return examples
