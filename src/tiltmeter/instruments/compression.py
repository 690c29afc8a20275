"""How repetitive a step's completions are to a general compressor."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.compression import compression_ratio
from tiltmeter.stats.hash_sampling import draw_rows, text_hashes


class CompressionRatio:
    """Bytes over compressed bytes of one completion of each prompt, put together.

    It sees repetition that no fixed n sees: stock sentences, shared templates, loops. A rise means that completions of
    different prompts share more and more text. The innocent cause is a format that was asked for: a schema repeats
    itself. Deflate (zlib, level 6); another codec gives other numbers. Length and amount are matched from above: the
    first 256 characters of each completion, at most 128 prompts, which together are no more than deflate can look back
    on. A step of fewer prompts has a lower ratio for that reason alone.

    Formula: bytes / bytes after deflate, over the first 256 characters of one completion per prompt
    Source: Shaib et al. 2024, arXiv 2403.00553

    >>> from tiltmeter.data.batches import from_columns
    >>> same = from_columns(0, range(30), completion=["As an assistant I am happy to help."] * 30)
    >>> other = from_columns(0, range(30), completion=[f"{k * k} of {k}" for k in range(30)])
    >>> bool(CompressionRatio().measure(same, None)[0] > 3 * CompressionRatio().measure(other, None)[0])
    True
    """

    name = "diversity.compression_ratio"
    grain = "batch"
    needs = ("completion",)
    bounds = (0.0, None)
    first = 256  # characters
    most = 128  # prompts

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.completion is not None
        texts = [(text or "")[: self.first].encode("utf-8", "surrogatepass") for text in batch.completion]
        sample = [texts[row] for row in draw_rows(text_hashes(texts), batch.starts, 1)]
        sample = [text for text in sample if text]
        order = draw_rows(text_hashes(sample), np.array([0, len(sample)]), self.most)
        if len(order) < 2:
            return np.full(1, np.nan)
        return np.array([compression_ratio([sample[row] for row in order])])
