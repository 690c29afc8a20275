"""How alike the completions of one prompt are, token by token."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import group_sums
from tiltmeter.stats.ngrams import group_totals, heads, shared_ngrams


class PromptDiversity:
    """Self-BLEU of a prompt's completions, and the share of their 1-, 2-, 3- and 4-grams that are distinct.

    Self-BLEU near 1 and few distinct n-grams mean that the policy answers a prompt in one way: nothing is left to
    explore, and the groups have no spread to learn from. A fall inside prompts while diversity across prompts holds is
    usually sharpening, the policy getting sure of its answers, and not collapse. Length is matched from above only: the
    first 256 tokens of each completion count. Below that, longer completions have a smaller share of distinct n-grams
    for no other reason (`diversity.expected_distinct` takes that out), and larger groups too. A group of one has no
    value.

    Formula: self_bleu: mean over the group of BLEU-4 against all its other members (smoothing 0.1 for no match);
    distinct_n: distinct n-grams of the group / all its n-grams
    Source: Zhu et al. 2018, arXiv 1802.01886; Li et al. 2016, arXiv 1510.03055

    >>> from tiltmeter.data.batches import from_columns
    >>> tokens = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]
    >>> readings = PromptDiversity().measure(from_columns(0, [0, 0, 1, 1], tokens=tokens), None)
    >>> readings["self_bleu"].tolist(), readings["distinct_1"].tolist()
    ([1.0, 0.0], [0.5, 1.0])
    """

    name = "diversity"
    grain = "group"
    needs = ("tokens",)
    bounds = (0.0, 1.0)
    local = True
    first = 256  # tokens

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.tokens is not None
        starts = batch.starts
        tokens, offsets = heads(batch.tokens.values, batch.tokens.offsets, self.first)
        scores, distinct = shared_ngrams(tokens, offsets, starts)
        sums, counts = group_sums(scores, starts)
        total = np.where((np.diff(starts) > 1)[:, None], group_totals(offsets, starts), 0)
        share = np.divide(distinct, total, out=np.full(distinct.shape, np.nan), where=total > 0)
        bleu = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
        # Rounding may lift a mean of equal scores above 1.
        return {"self_bleu": bleu.clip(0.0, 1.0)} | {f"distinct_{n + 1}": share[:, n].copy() for n in range(4)}
