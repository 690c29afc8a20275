"""Distinct tokens of a prompt's completions against what that many tokens would give."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.ngrams import corpus_distinct, expected_distinct, group_totals, heads, shared_ngrams


class ExpectedDistinct:
    """Distinct tokens of a prompt's completions over the number expected of as many draws from an even vocabulary.

    Plain distinct-n falls whenever completions grow longer; this one falls when they say less that is new. It is the
    reading to believe when length moves. The vocabulary V is the number of token types in the baseline, the same for
    the whole run, so levels of two runs do not compare. Text is not drawn evenly, so some dependence on length is left.
    Completions count with their first 256 tokens, a group of one has no value, and sharpening lowers it as collapse
    does: look at the reading across prompts beside it.

    Formula: D / (V (1 - ((V - 1)/V)^C)), D distinct and C all tokens of the group
    Source: Liu et al. 2022, arXiv 2202.13587

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0], tokens=[range(40), range(10, 50)]))
    >>> batch = from_columns(9, [0, 0, 1, 1], tokens=[range(20), range(20), range(20), range(20, 40)])
    >>> ExpectedDistinct().measure(batch, start).round(3).tolist()
    [0.722, 1.443]
    """

    name = "diversity.expected_distinct"
    grain = "group"
    needs = ("tokens",)
    bounds = (0.0, None)
    local = True
    compares = True
    first = 256  # tokens

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.tokens is not None
        starts = batch.starts
        vocabulary = 0 if baseline is None else baseline.once(_vocabulary)
        if not vocabulary:
            return np.full(len(starts) - 1, np.nan)
        tokens, offsets = heads(batch.tokens.values, batch.tokens.offsets, self.first)
        _, distinct = shared_ngrams(tokens, offsets, starts)  # as `diversity` has just asked, and so at no cost
        total = np.where(np.diff(starts) > 1, group_totals(offsets, starts, 1)[:, 0], 0)
        # The last bits of expm1 depend on the processor, and a replay must agree on any.
        return np.round(expected_distinct(distinct[:, 0], total, vocabulary), 9)


def _vocabulary(batch: RolloutBatch) -> int:
    assert batch.tokens is not None
    return int(corpus_distinct(batch.tokens.values, batch.tokens.offsets, 1)[0])
