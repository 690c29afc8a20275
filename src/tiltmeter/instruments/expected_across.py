"""Distinct tokens across prompts against what that many tokens would give."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.ngrams import corpus_distinct, expected_distinct, heads_of_groups


class ExpectedAcross:
    """Distinct tokens over one completion of each prompt, against the number expected of as many even draws.

    As `diversity.across.distinct_1`, but neither the number of prompts in a step nor completions below 64 tokens lower
    it by themselves. The vocabulary V is the number of token types in the baseline. The innocent cause of a fall is a
    batch of prompts that resemble each other.

    Formula: D / (V (1 - ((V - 1)/V)^C)), D distinct and C all of the first 64 tokens of one completion per prompt
    Source: Liu et al. 2022, arXiv 2202.13587; Kirk et al. 2023, arXiv 2310.06452

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 1], tokens=[range(40), range(10, 50)]))
    >>> batch = from_columns(9, [0, 1], tokens=[range(20), range(20, 40)])
    >>> ExpectedAcross().measure(batch, start).round(3).tolist()
    [1.443]
    """

    name = "diversity.expected_across"
    grain = "batch"
    needs = ("tokens",)
    bounds = (0.0, None)
    compares = True
    first = 64  # tokens

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.tokens is not None
        tokens, offsets = heads_of_groups(batch.tokens.values, batch.tokens.offsets, batch.starts, self.first)
        if baseline is None or len(offsets) < 3:
            return np.full(1, np.nan)
        vocabulary = baseline.once(_vocabulary)
        if not vocabulary:
            return np.full(1, np.nan)
        distinct = corpus_distinct(tokens, offsets, 1)
        # The last bits of expm1 depend on the processor, and a replay must agree on any.
        return np.round(expected_distinct(distinct, np.array([len(tokens)]), vocabulary), 9)


def _vocabulary(batch: RolloutBatch) -> int:
    assert batch.tokens is not None
    return int(corpus_distinct(batch.tokens.values, batch.tokens.offsets, 1)[0])
