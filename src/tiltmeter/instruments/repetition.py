"""How much of a completion repeats itself."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.ngrams import repeats
from tiltmeter.stats.word_hashes import Texts, Words, ratio

ORDER = 4  # words


class Repetition:
    """Share of the runs of 4 words in a completion that occurred earlier in the same completion.

    A policy that pads for length, or that has collapsed into a loop, says the same again. Tables, refrains and code
    repeat for good reasons, and longer completions repeat more: read it beside the length. A completion of fewer than
    4 words has no value.

    Formula: 1 - distinct 4-grams / 4-grams, of words, per completion
    Source: own; the complement of distinct-4 within one text

    >>> from tiltmeter.data.batches import from_columns
    >>> texts = ["no more no more no more no more", "one two three four five", "short"]
    >>> Repetition().measure(from_columns(0, [0, 0, 0], completion=texts), None).tolist()
    [0.6, 0.0, nan]
    """

    name = "text.repetition"
    grain = "rollout"
    needs = ("completion",)
    bounds = (0.0, 1.0)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        words = Words.of(Texts.of(batch.completion or ()))
        again, total = repeats(words.hashes, words.offsets, ORDER)
        return ratio(again, total)
