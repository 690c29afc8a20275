"""Whether a phrase wins: words that stand more often in preferred answers than their length and quality explain."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from tiltmeter.preferences.decided import EXAMPLES, LOG_ODDS, Decided, Ints, rounded, too_few
from tiltmeter.preferences.finding import Example, Finding
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.preferences.presence import TOO_FEW, Presence, Weighed, effect, powered, weighed
from tiltmeter.stats.logodds import ORDER, PhraseTable, log_odds, merged
from tiltmeter.stats.words import Hashes, Texts, Words

UNIT = "log-odds of winning for containing it"
LEAST = 8  # answers with a phrase; rarer ones cannot pass among so many
RARE = 0.002  # of answers: what is rarer than that decides too few comparisons to matter
SHOWN = 20  # phrases in the table
_STEP = np.uint64(0x9FB21C651E98DF25)  # as in stats.logodds: a longer phrase extends the key of a shorter one
_CHUNK = 1_000_000  # words at a time


class Phrases(NamedTuple):
    """All phrases of the answers and which comparisons they tell apart. Phrases that stand in the very same answers are
    one thing; `thing` gives it for each row of the table."""

    texts: Texts
    words: Words
    table: PhraseTable
    has: Presence
    thing: Ints
    sides: tuple[Ints, Ints]  # first and second answers that contain each row's phrase, as comparison * rows + row


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Finding:
    """Of comparisons in which one answer contains a phrase of 1 to 4 words and the other does not: does it win?

    The test is exact for pairs (the sign test, with odds that length, rated quality and order explain), counts one
    comparison per prompt, and is Bonferroni over all phrases that enough comparisons tell apart: the chance that any
    phrase is named without a cause is at most `alpha`. Found also needs 55 wins in 100. `prior_log_odds` in the table
    is the usual figure for over-use in preferred answers, with an informative prior (Monroe et al. 2008).
    """
    some = Decided.of(pairs)
    if why := too_few(some, one_each=True):
        return Finding("phrases", "cannot tell", f"Phrases: {why}", unit=UNIT, facts=some.counts)
    all_of = _phrases(tuple(some.pairs.first), tuple(some.pairs.second), tuple(some.prompt.tolist()))
    told = weighed(some, all_of.has, alpha)
    level = alpha / max(told.tests, 1)
    rows = _rows(some, all_of, told, level, told.passed(alpha))
    held = some.held
    facts = {**some.counts, "held_equal": held, "tests": told.tests, "fewest_comparisons": told.fewest, "level": level}
    facts |= {"matters": round(LOG_ODDS, 4), "found": len(rows)}
    if not rows:
        if powered(some.prompts, level):
            said = f"None of {told.tests} phrases decides, {held} held equal."
            return Finding("phrases", "clear", said, unit=UNIT, facts=facts)
        said = f"No phrase stands out among {told.tests} that could be tested; {TOO_FEW}"
        return Finding("phrases", "cannot tell", said, unit=UNIT, facts=facts)
    top = rows[0]
    verb = "wins" if top["log_odds"] > 0 else "loses"
    many = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    said = (
        f"An answer with “{top['phrase']}” {verb}: {top['won']} of {top['comparisons']} comparisons, "
        f"{top['expected']:g} expected from {held}{many}."
    )
    fix = (
        "Train with pairs of the same answer with and without the phrase, labelled as equal, or take it out of both "
        "answers; look at the examples first, since a phrase may stand for what was asked."
    )
    shown = _examples(some, all_of, rows)
    table = [{name: value for name, value in row.items() if name != "thing"} for row in rows[:SHOWN]]
    ends = (top["log_odds"], top["low"], top["high"])
    return Finding("phrases", "found", said, *ends, f"{UNIT}: {top['phrase']}", fix, facts, table, shown)


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
    thing = _same(item, row, side, len(table.keys))
    lead = np.full(len(table.keys), -1)  # the first row of each thing speaks for it
    lead[thing[::-1]] = np.arange(len(thing))[::-1]
    speaks = lead[thing[row]] == row
    prompts = np.array(prompt, np.int64)
    has = Presence.of(thing[row[speaks]], item[speaks], side[speaks], prompts, len(table.keys))
    return Phrases(texts, words, table, has, thing, (one, other))


def _occurrences(words: Words, keys: Hashes) -> Ints:
    """Which text contains which of the keys (sorted), as text * len(keys) + key, each once and in order.

    Texts stay whole: a piece of work ends with the text that reaches its size.
    """
    found = []
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
            found.append(_once(text[place[hit]] * len(keys) + at[hit]))
    return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)


def _once(codes: Ints) -> Ints:
    """Sorted, each once. What numpy offers for this is ten times slower on such codes."""
    codes = np.sort(codes)
    new = np.ones(len(codes), bool)
    new[1:] = codes[1:] != codes[:-1]
    return codes[new]


def _same(item: Ints, row: Ints, side: Ints, rows: int) -> Ints:
    """A number for each row, equal for rows that tell the same comparisons apart in the same way."""
    with np.errstate(over="ignore"):
        mixed = (item.astype(np.uint64) * np.uint64(2) + (side > 0)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
    marks = np.zeros(rows, np.uint64)
    np.add.at(marks, row, mixed)
    return np.unique(marks, return_inverse=True)[1].astype(np.int64)


def _rows(some: Decided, all_of: Phrases, told: Weighed, level: float, passed: Ints) -> list[dict[str, Any]]:
    """Phrases found, strongest first; of nested ones the one that says most."""
    table, z = all_of.table, np.abs(told.z)[all_of.thing]
    rows = []
    for sign in (1.0, -1.0):  # apart, so that a phrase that wins is not merged into one that loses
        right = passed[np.sign(told.z[passed]) == sign]
        chosen = np.flatnonzero(np.isin(all_of.thing, right))
        seen: set[int] = set()
        for row, first, count in merged(table, all_of.words, chosen, z).tolist():
            thing = int(all_of.thing[row])
            if thing not in seen:
                seen.add(thing)
                rows.append(_row(some, all_of, told, thing, row, all_of.words.text(all_of.texts, first, count), level))
    rows = [row for row in rows if abs(row["log_odds"]) >= LOG_ODDS and (row["low"] > 0.0 or row["high"] < 0.0)]
    return sorted(rows, key=lambda row: (row["p"], -abs(row["z"])))


def _row(
    some: Decided, all_of: Phrases, told: Weighed, thing: int, row: int, phrase: str, level: float
) -> dict[str, Any]:
    estimate, low, high = rounded(effect(some, all_of.has, thing, level))
    chosen, rejected = _used(some, all_of, row)
    texts = len(some)
    prior, own, other = log_odds(np.array([chosen]), texts, np.array([rejected]), texts, prior=texts / 4.0)
    return {
        "phrase": phrase,
        "comparisons": int(all_of.has.counts[thing]),
        "won": int(told.wins[thing]),
        "expected": round(float(told.expected[thing]), 1),
        "in_preferred": chosen,
        "in_rejected": rejected,
        "log_odds": estimate,
        "low": low,
        "high": high,
        "p": float(f"{told.p[thing]:.3g}"),
        "z": round(float(told.z[thing]), 2),
        "prior_log_odds": round(float(prior[0]), 3),
        "prior_z": round(float(prior[0]) / math.sqrt(float(own[0] + other[0])), 2),
        "thing": thing,
    }


def _used(some: Decided, all_of: Phrases, row: int) -> tuple[int, int]:
    """Preferred and rejected answers that contain the phrase of a row."""
    rows = len(all_of.table.keys)
    first, second = (side[side % rows == row] // rows for side in all_of.sides)
    won = some.won == 1.0
    preferred = int(won[first].sum()) + int((~won[second]).sum())
    return preferred, len(first) + len(second) - preferred


def _examples(some: Decided, all_of: Phrases, rows: list[dict[str, Any]]) -> list[Example]:
    shown: list[Example] = []
    for row in rows[:EXAMPLES]:
        here = all_of.has.where(row["thing"])
        gains = row["log_odds"] > 0
        went = ((all_of.has.side[here] > 0) == (some.won[all_of.has.item[here]] == 1.0)) == gains
        what = "preferred" if gains else "rejected"
        why = f"only the {what} answer contains “{row['phrase']}”"
        shown += [some.example(item, why) for item in all_of.has.item[here][went][:1].tolist()]
    return shown
