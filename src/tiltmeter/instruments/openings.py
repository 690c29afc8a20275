"""Completions that begin as others do."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class RepeatedOpenings:
    """Share of completions whose first 8 tokens also open a completion of another prompt, or another one of their own.

    A stock opening ("Great question! Let's break this down") is the first thing a policy learns when a reward likes its
    tone, and the last thing a mean reward shows. `across` rising is a mannerism spreading; `within` alone rising is the
    policy getting sure of an answer. The innocent cause is a format that was asked for. Nothing depends on the length
    of completions: those under 8 tokens have no value. Both grow with the number of completions there are to meet, so
    compare steps of equal size. With one prompt there is no `across`, in a group of one no `within`.

    Formula: across: 1[some completion of another prompt has the same first 8 tokens]; within: the same in its own group
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> tokens = [[*range(8), 50], [*range(8), 60], range(20, 30), [*range(8), 70], [1, 2]]
    >>> readings = RepeatedOpenings().measure(from_columns(0, [0, 0, 0, 1, 1], tokens=tokens), None)
    >>> readings["across"].tolist(), readings["within"].tolist()
    ([1.0, 1.0, 0.0, 1.0, nan], [1.0, 1.0, 0.0, nan, nan])
    """

    name = "diversity.repeated_opening_share"
    grain = "rollout"
    needs = ("tokens",)
    bounds = (0.0, 1.0)
    first = 8  # tokens

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.tokens is not None
        answers = {"across": np.full(len(batch), np.nan), "within": np.full(len(batch), np.nan)}
        rows = np.flatnonzero(batch.tokens.lengths >= self.first)
        group = np.repeat(np.arange(len(batch.starts) - 1), np.diff(batch.starts))[rows].tolist()
        begins = batch.tokens.offsets[rows]
        matrix = batch.tokens.values[begins[:, None] + np.arange(self.first)]
        width = self.first * matrix.itemsize
        raw = matrix.tobytes()
        openings = [raw[at : at + width] for at in range(0, len(raw), width)]
        inside = Counter(zip(group, openings, strict=True))
        groups = Counter(opening for _, opening in inside)  # how many prompts have it
        sizes = Counter(group)
        if len(sizes) > 1:
            answers["across"][rows] = [groups[opening] > 1 for opening in openings]
        shared = zip(group, openings, strict=True)
        answers["within"][rows] = [inside[pair] > 1 if sizes[pair[0]] > 1 else np.nan for pair in shared]
        return answers
