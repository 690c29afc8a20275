"""How alike completions of different prompts are, token by token."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.ngrams import corpus_distinct, group_totals, heads_of_groups


class DistinctAcross:
    """Share of distinct 1-, 2-, 3- and 4-grams over one completion of each prompt.

    The half of diversity that should not fall: different prompts ask for different answers. When it falls, the policy
    says the same to everybody, which is collapse; when only the readings inside prompts fall, the policy is getting
    sure of its answers. The innocent causes are prompts that became alike (a curriculum) and completions that became
    shorter than the 64 tokens which count of each. Length is matched by that cut; the number of prompts is not, and
    more prompts have a smaller share: compare steps of equal size. The completion is chosen by its content, so that the
    order in which rows arrive does not matter. One prompt alone has no value.

    Formula: distinct n-grams / all n-grams over the first 64 tokens of one completion per prompt
    Source: Kirk et al. 2023, arXiv 2310.06452 (across-input diversity); Li et al. 2016, arXiv 1510.03055

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 1, 2], tokens=[[1, 2, 3]] * 3 + [[1, 2, 4]])
    >>> [values.tolist() for values in DistinctAcross().measure(batch, None).values()]
    [[0.4444444444444444], [0.5], [0.6666666666666666], [nan]]
    """

    name = "diversity.across"
    grain = "batch"
    needs = ("tokens",)
    bounds = (0.0, 1.0)
    first = 64  # tokens

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.tokens is not None
        tokens, offsets = heads_of_groups(batch.tokens.values, batch.tokens.offsets, batch.starts, self.first)
        if len(offsets) < 3:
            return {f"distinct_{n}": np.full(1, np.nan) for n in range(1, 5)}
        total = group_totals(offsets, np.array([0, len(offsets) - 1]))[0]
        share = np.divide(corpus_distinct(tokens, offsets), total, out=np.full(4, np.nan), where=total > 0)
        return {f"distinct_{n + 1}": share[n : n + 1].copy() for n in range(4)}
