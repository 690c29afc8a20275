"""Uses words as tokens for files that hold only text, as most trainers' dumps do.

Length and diversity are then counted in words: another unit, but growth in length and loss of diversity still show.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

import numpy as np

from tiltmeter.data.records import Ragged, RolloutBatch

WORD_TOKENS_NOTE = "no token ids in these files: length and diversity count words and signs of the text instead"
_WORD = re.compile(r"\w+|[^\w\s]")
_FAR = (1 << 31) - 1


def needs_word_tokens(batch: RolloutBatch) -> bool:
    """Whether a batch has text, but neither token ids nor lengths."""
    return batch.completion is not None and batch.tokens is None and batch.length is None


def with_word_tokens(batch: RolloutBatch) -> RolloutBatch:
    """The batch with words as tokens. Apply it to every batch of a run or to none, because words are another unit.

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = with_word_tokens(from_columns(0, [0, 0], completion=["Yes, yes.", None]))
    >>> batch.length.tolist(), len(set(batch.tokens[0].tolist()))
    ([4, 0], 4)
    """
    if batch.completion is None:
        return replace(batch, tokens=None, length=None)
    rows = [_ids(text) for text in batch.completion]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    flat = np.fromiter((word for row in rows for word in row), np.int32, int(offsets[-1]))
    return replace(batch, tokens=Ragged(flat, offsets), length=np.diff(offsets))


def _ids(text: str | None) -> Sequence[int]:
    """A number for each word, the same in every process, unlike Python's hash."""
    return [crc32(word.encode("utf-8", "surrogatepass")) & _FAR for word in _WORD.findall(text or "")]
