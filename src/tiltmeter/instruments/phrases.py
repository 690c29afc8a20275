"""Phrases that the policy has come to over-use."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import by_prompt
from tiltmeter.data.memo import shared
from tiltmeter.data.phrase import Phrase
from tiltmeter.data.records import Floats, Ints, RolloutBatch
from tiltmeter.stats.logodds import PhraseTable, count_contained, fewest_texts, merge_phrases, overused_phrases
from tiltmeter.stats.word_hashes import Texts, Words

CHARACTERS = 4_000  # of each completion, from its beginning
SHARE, TEXTS = 0.02, 10  # a phrase is tested when it is in so many of all completions
RATE = 0.01  # of the phrases named, at most this part is expected to be named wrongly
STRONGEST = 200  # phrases; in a policy that has left its language everything is over-used
FEWEST, PROMPTS = 16, 4  # completions and prompts on either side, below which nothing is compared
#: Texts, words and phrases by prompt, z of each phrase, the over-used ones (`merge_phrases`), the rows of the texts.
_Comparison = tuple[Texts, Words, PhraseTable, Floats, Ints, Ints]


class OverusedPhrases:
    """Whether a completion contains phrases over-used against the baseline (`share`), and how many (`count`).

    A reward that pays for a stock phrase gets it in every answer, long before a mean shows it. The usual innocent cause
    is another mix of prompts: compare on the same ones. What longer completions alone would add is taken off. Phrases
    of 1 to 4 words in the first 4,000 characters count, once per completion. Tested are those in at least 2 % of the
    completions of both sides together and at least 10; the 200 strongest are kept. The 1 % below holds per step and
    approximately, not per run. No value for fewer than 16 completions or 4 prompts on a side, nor for groups of one
    without the text of their prompts.

    Formula: phrases w with δ_w > 0 at a false discovery rate of 1%; δ_w = ln[(y1+a)/(n1+a0-y1-a)] -
    ln[(y2+a)/(n2+a0-y2-a)] from the y1 of n1 completions now and y2 of n2 before that contain w; a = a0 times the
    pooled share, a0 = (n1+n2)/8; variance times the design effect of prompts; nested phrases merged
    Source: Monroe, Colaresi and Quinn 2008; Benjamini and Hochberg 1995

    >>> from tiltmeter.data.batches import from_columns
    >>> before = [f"the answer to number {n} is {n * n}" for n in range(64)]
    >>> now = [f"great question the answer to number {n} is {n * n}" if n % 4 else before[n] for n in range(64)]
    >>> start = Baseline(from_columns(0, [n // 4 for n in range(64)], completion=before))
    >>> batch = from_columns(9, [n // 4 for n in range(64)], completion=now)
    >>> OverusedPhrases().measure(batch, start)["count"][:5].tolist()
    [0.0, 1.0, 1.0, 1.0, 0.0]
    >>> [phrase.text for phrase in phrases_overused_in(batch, start)]
    ['great question the answer to']
    """

    name = "text.overused"
    grain = "rollout"
    needs = ("completion",)
    bounds = (0.0, None)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        comparison = compare_phrases(batch, baseline)
        if comparison is None:
            return {"share": np.full(len(batch), np.nan), "count": np.full(len(batch), np.nan)}
        texts, words, table, _, rows, order = comparison
        count = np.empty(len(batch))
        count[order] = np.where(texts.present, count_contained(words, table.keys[rows[:, 0]]), np.nan)
        return {"share": np.minimum(count, 1.0), "count": count}


def phrases_overused_in(batch: RolloutBatch, baseline: Baseline | None, most: int = 20) -> list[Phrase]:
    """The phrases behind `text.overused`, strongest first, each with an example from this batch."""
    comparison = compare_phrases(batch, baseline)
    if comparison is None or baseline is None or not len(comparison[4]):
        return []
    texts, words, table, z, rows, order = comparison
    before, phrases = baseline.once(_words), []
    for row, first, count in rows[:most].tolist():
        run = words.hashes[first : first + count]
        now, past = words.texts_with(run) / table.texts, before.texts_with(run) / baseline.once(_phrases).texts
        where, excerpt = words.excerpt(texts, first, count)
        phrases.append(Phrase(words.text(texts, first, count), now, past, float(z[row]), int(order[where]), excerpt))
    return phrases


def _texts(batch: RolloutBatch) -> tuple[Texts, Ints, Ints]:
    """Completions prompt by prompt, where each prompt begins, and the rows they come from."""
    order, starts = by_prompt(batch)
    return Texts.of([(batch.completion or ())[row] for row in order], CHARACTERS), starts, order


def _words(batch: RolloutBatch) -> Words:
    return Words.of(_texts(batch)[0]).without_places()


def _phrases(batch: RolloutBatch) -> PhraseTable:
    texts, starts, _ = _texts(batch)
    return PhraseTable.of(Words.of(texts), texts.present, starts)


@shared()
def compare_phrases(batch: RolloutBatch, baseline: Baseline | None) -> _Comparison | None:
    """None where there are too few texts, or where nobody knows which of them answer one prompt."""
    if baseline is None or None in (baseline.batch.completion, batch.completion):  # also asked by screens
        return None
    if any(side.prompt is None and len(side.starts) > len(side) // 2 for side in (batch, baseline.batch)):
        return None
    before, (texts, starts, order) = baseline.once(_phrases), _texts(batch)
    words = Words.of(texts)
    fewest = fewest_texts(int(texts.present.sum()), before.texts, SHARE, TEXTS)
    table = PhraseTable.of(words, texts.present, starts, fewest)
    if min(table.texts, before.texts) < FEWEST or min(table.prompts, before.prompts) < PROMPTS:
        return None
    significant, z = overused_phrases(table, before, RATE, SHARE, TEXTS)
    strongest = significant[np.argsort(-z[significant], kind="stable")[:STRONGEST]]
    return texts, words, table, z, merge_phrases(table, words, strongest, z), order
