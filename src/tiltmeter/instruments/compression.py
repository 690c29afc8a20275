"""How repetitive a step's completions are to a general compressor."""

from __future__ import annotations

import numpy as np

from tiltmeter.baseline import Baseline
from tiltmeter.records import Floats, RolloutBatch
from tiltmeter.stats.compression import compression_ratio
from tiltmeter.stats.draws import drawn, text_hashes


class CompressionRatio:
    """Bytes over compressed bytes of one completion of each prompt, put together.

    It sees repetition that no fixed n sees: stock sentences, shared templates, loops. A rise means that completions of
    different prompts share more and more text. The innocent cause is a format that was asked for: a schema repeats
    itself. Deflate (zlib, level 6); another codec gives other numbers. Length and amount are matched from above: the
    first 256 characters of each completion, at most 128 prompts, which together are no more than deflate can look back
    on. A step of fewer prompts has a lower ratio for that reason alone.

    Formula: bytes / bytes after deflate, over the first 256 characters of one completion per prompt
    Source: Shaib et al. 2024, arXiv 2403.00553

    >>> from tiltmeter.batches import from_columns
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
        chosen = [texts[row] for row in drawn(text_hashes(texts), batch.starts, 1)]
        chosen = [text for text in chosen if text]
        order = drawn(text_hashes(chosen), np.array([0, len(chosen)]), self.most)
        if len(order) < 2:
            return np.full(1, np.nan)
        return np.array([compression_ratio([chosen[row] for row in order])])
