"""How much completions differ in meaning, by an embedding model the user brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.hash_sampling import draw_rows, text_hashes
from tiltmeter_workbench.stats.vendi import unit_rows, vendi_score


class SemanticDiversity:
    """Effective number of different meanings, inside prompts (`per_prompt`) and across them (`across`), as a share of
    what it could be.

    n-grams see wording only: a policy may collapse onto one idea in many words, or say many things in one style. A fall
    `across` is collapse; a fall `per_prompt` alone is usually sharpening. No model comes with this package: subclass it
    with `embed` and name the file as a plug-in. At most 64 texts per step are embedded, drawn by content: 5 completions
    of 8 prompts, one of 24 more. Of each the first 1,000 characters count; the model's own limit may be lower. Expect a
    model call per step to cost more than all other readings together. Levels do not compare between embedding models.

    Formula: (V - 1)/(n - 1), V = exp(-Σ λ ln λ), λ the eigenvalues of K/n, K the cosines of n embeddings; per_prompt:
    mean over prompts of 5 completions; across: one completion per prompt
    Source: Friedman and Dieng 2022, arXiv 2210.02410; Kirk et al. 2023, arXiv 2310.06452

    >>> class ByVowels(SemanticDiversity):
    ...     def embed(self, texts): return np.array([[text.count(vowel) for vowel in "aeiou"] for text in texts])
    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 1, 1], completion=["aaa", "a", "o", "oo"])
    >>> {suffix: values.round(6).tolist() for suffix, values in ByVowels().measure(batch, None).items()}
    {'per_prompt': [0.0], 'across': [1.0]}
    """

    name = "diversity.semantic"
    grain = "batch"
    needs = ("completion",)
    bounds = (0.0, 1.0)
    prompts = 32  # read across
    inside = 8  # of them, read inside too
    each = 5  # completions of those
    first = 1_000  # characters

    def embed(self, texts: Sequence[str]) -> NDArray[Any]:
        """One row per text; any length, any scale."""
        raise NotImplementedError("subclass SemanticDiversity and give it embed(texts) -> array of len(texts) rows")

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.completion is not None
        filled = [row for row, text in enumerate(batch.completion) if text and text.strip()]
        # "replace": half a surrogate pair would stop many a tokenizer.
        texts = [(batch.completion[row] or "")[: self.first].encode("utf-8", "replace") for row in filled]
        hashes = text_hashes(texts)
        starts = np.unique(np.searchsorted(filled, batch.starts))
        if len(starts) < 2:
            return {"per_prompt": np.full(1, np.nan), "across": np.full(1, np.nan)}
        rows = draw_rows(hashes, starts, self.each)
        ends = np.concatenate(([0], np.cumsum(np.minimum(np.diff(starts), self.each))))
        # A prompt's hash is the sum of those drawn from it: no order counts, neither of rows nor of prompts.
        order = draw_rows(np.add.reduceat(hashes[rows], ends[:-1]), np.array([0, len(ends) - 1]), self.prompts)
        several = [k for k in order if ends[k + 1] - ends[k] > 1][: self.inside]
        picked = [rows[ends[k] : ends[k + 1]] for k in several] + [rows[ends[k] : ends[k] + 1] for k in order]
        unique_rows = np.unique(np.concatenate(picked))
        vectors = np.asarray(self.embed([texts[row].decode() for row in unique_rows]), np.float64)
        if vectors.ndim != 2 or len(vectors) != len(unique_rows):
            raise ValueError(f"embed gave an array of shape {vectors.shape} for {len(unique_rows)} texts")
        shares = [_spread(vectors[np.searchsorted(unique_rows, part)]) for part in picked[: len(several)]]
        finite = [share for share in shares if np.isfinite(share)]
        across = _spread(vectors[np.searchsorted(unique_rows, [rows[ends[k]] for k in order])])
        return {"per_prompt": np.array([np.mean(finite) if finite else np.nan]), "across": np.array([across])}


def _spread(vectors: Floats) -> float:
    unit = unit_rows(vectors)
    return min(1.0, max(0.0, (vendi_score(unit) - 1.0) / (len(unit) - 1))) if len(unit) > 1 else float("nan")
