"""Phrases that the policy has come to over-use."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiltmeter.baseline import Baseline
from tiltmeter.records import Floats, Ints, RolloutBatch
from tiltmeter.stats.logodds import PhraseTable, contained, fewest, merged, over_used
from tiltmeter.stats.words import Texts, Words

CHARACTERS = 4_000  # of each completion, from its beginning
SHARE, TEXTS = 0.02, 10  # a phrase is tested when it is in so many of all completions
RATE = 0.01  # of the phrases named, at most this part is expected to be named wrongly
STRONGEST = 200  # phrases; in a policy that has left its language everything is over-used
FEWEST, PROMPTS = 16, 4  # completions and prompts on either side, below which nothing is compared


class OverusedPhrases:
    """Whether a completion contains phrases over-used against the baseline (`share`), and how many (`count`).

    A reward that pays for a stock phrase gets it in every answer, long before a mean shows it. The usual innocent cause
    is another mix of prompts: compare on the same ones. What longer completions alone would add is taken off. Phrases
    of 1 to 4 words in the first 4,000 characters count, once per completion. Tested are those in at least 2 % of the
    completions of both sides together and at least 10; the 200 strongest are kept. The 1 % below holds per step and
    approximately, not per run. Fewer than 16 completions or 4 prompts on a side: no value.

    Formula: phrases w with δ_w > 0 at a false discovery rate of 1%; δ_w = ln[(y1+a)/(n1+a0-y1-a)] -
    ln[(y2+a)/(n2+a0-y2-a)] from the y1 of n1 completions now and y2 of n2 before that contain w; a = a0 times the
    pooled share, a0 = (n1+n2)/8; variance times the design effect of prompts; nested phrases merged
    Source: Monroe, Colaresi and Quinn 2008; Benjamini and Hochberg 1995

    >>> from tiltmeter.batches import from_columns
    >>> before = [f"the answer to number {n} is {n * n}" for n in range(64)]
    >>> now = [f"great question the answer to number {n} is {n * n}" if n % 4 else before[n] for n in range(64)]
    >>> start = Baseline(from_columns(0, range(64), completion=before))
    >>> batch = from_columns(9, range(64), completion=now)
    >>> OverusedPhrases().measure(batch, start)["count"][:5].tolist()
    [0.0, 1.0, 1.0, 1.0, 0.0]
    >>> [phrase.text for phrase in overused(batch, start)]
    ['great question the answer to']
    """

    name = "text.overused"
    grain = "rollout"
    needs = ("completion",)
    bounds = (0.0, None)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        found = _found(batch, baseline)
        if found is None:
            return {"share": np.full(len(batch), np.nan), "count": np.full(len(batch), np.nan)}
        texts, words, table, _, rows = found
        count = np.where(texts.known, contained(words, table.keys[rows[:, 0]]), np.nan)
        return {"share": np.minimum(count, 1.0), "count": count}


@dataclass(frozen=True, slots=True)
class Phrase:
    """An over-used phrase with a completion that contains it. A model wrote its words: encode them before showing."""

    text: str
    share: float  # of completions now that contain it
    share_before: float
    z: float
    row: int  # of the batch
    excerpt: str


def overused(batch: RolloutBatch, baseline: Baseline | None, most: int = 20) -> list[Phrase]:
    """The phrases behind `text.overused`, strongest first, each with an example from this batch."""
    found = _found(batch, baseline)
    if found is None or baseline is None:
        return []
    texts, words, table, z, rows = found
    then = Texts.of(baseline.batch.completion or (), CHARACTERS)
    before = Words.of(then)
    phrases = []
    for row, first, count in rows[:most].tolist():
        run = words.hashes[first : first + count]
        if words.texts_with(run) < 0.8 * table.counts[row]:
            # Put together from several phrases, each a little rarer than the last: the strongest alone says more.
            first, count = int(table.first[row]), int(table.orders[row])
            run = words.hashes[first : first + count]
        where = int(np.searchsorted(words.offsets, first, "right")) - 1
        start, end = int(words.starts[first]), int(words.ends[first + count - 1])
        low, high = max(start - 60, int(texts.offsets[where])), min(end + 60, int(texts.offsets[where + 1]))
        now, past = words.texts_with(run) / int(texts.known.sum()), before.texts_with(run) / int(then.known.sum())
        excerpt = texts.cut(low, high)
        phrases.append(Phrase(words.text(texts, first, count), now, past, float(z[row]), where, excerpt))
    return phrases


def _phrases(batch: RolloutBatch) -> PhraseTable:
    texts = Texts.of(batch.completion or (), CHARACTERS)
    return PhraseTable.of(Words.of(texts), texts.known, batch.starts)


def _found(batch: RolloutBatch, baseline: Baseline | None) -> tuple[Texts, Words, PhraseTable, Floats, Ints] | None:
    """Texts, words and phrases of the batch, z of each phrase, the over-used ones (`merged`); None: too few texts."""
    if baseline is None or baseline.batch.completion is None or batch.completion is None:
        return None
    before = baseline.once(_phrases)
    texts = Texts.of(batch.completion, CHARACTERS)
    prompts = len(np.unique(batch.group[texts.known]))
    if min(int(texts.known.sum()), before.texts) < FEWEST or min(prompts, before.prompts) < PROMPTS:
        return None
    words = Words.of(texts)
    least = fewest(int(texts.known.sum()), before.texts, SHARE, TEXTS)
    table = PhraseTable.of(words, texts.known, batch.starts, least)
    chosen, z = over_used(table, before, RATE, SHARE, TEXTS)
    strongest = chosen[np.argsort(-z[chosen], kind="stable")[:STRONGEST]]
    return texts, words, table, z, merged(table, words, strongest, z)
