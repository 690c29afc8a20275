"""`repetition`: a penalty on repeated n-grams within a completion."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Literal, get_args

import numpy as np

from tiltmeter.gold.guards.composed_reward import ComposedReward, Floats, PartScores, Rows
from tiltmeter.stats.ngrams import repeats
from tiltmeter.stats.word_hashes import Texts, Words

Of = Literal["words", "tokens"]


@dataclass(frozen=True)
class RepetitionPenalty:
    """-max(0, share - free) / (1 - free), where share is that of n-grams that occurred earlier in the same text."""

    order: int
    free: float
    of: Of

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        if self.of == "words":
            words = Words.of(Texts.of(rows.texts))
            hashes, offsets = words.hashes, words.offsets
        else:
            lengths = [len(ids) for ids in rows.tokens()]
            hashes = np.fromiter(chain.from_iterable(rows.tokens()), np.uint64, sum(lengths))
            offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))
        again, total = repeats(hashes, offsets, self.order)
        return np.minimum(self.free - again / np.maximum(total, 1), 0.0) / (1.0 - self.free)


def repetition(order: int = 4, *, free: float = 0.0, of: Of = "words", name: str = "repetition") -> ComposedReward:
    """Minus the share of runs of `order` words that occurred earlier in the same completion, from -1 to 0.

    A policy that is paid for length, or that has collapsed into a loop, says the same again. Tables, refrains and code
    repeat for good reasons: `free` is the share that costs nothing. An answer too short to have such a run has
    repeated nothing, and costs 0. `of="tokens"` also sees loops without spaces, as "!!!!!!!!".

    >>> repetition()(completions=["no more no more no more no more", "one two three four five", "short"])
    [-0.6, 0.0, 0.0]
    >>> repetition(order=1, free=0.5)(completions=["no more no more no more no more"])
    [-0.5]
    """
    if order < 1 or not 0.0 <= free < 1.0:
        raise ValueError("order must be at least 1, and free lie from 0 to below 1")
    if of not in get_args(Of):
        raise ValueError(f"of must be one of {', '.join(get_args(Of))}, not {of!r}")
    return ComposedReward(
        name, {}, RepetitionPenalty(order, float(free), of), bounds=(-1.0, 0.0), settings=(order, float(free), of)
    )
