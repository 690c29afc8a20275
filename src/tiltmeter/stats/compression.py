"""How much shorter a text becomes under a general compressor: repetition of any kind, without choosing n."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

LEVEL = 6  # codec (deflate in zlib's frame) and level are part of the definition: other ones give other ratios


def compression_ratio(texts: Sequence[bytes]) -> float:
    """Bytes of all texts, one per line, over their bytes after deflate; NaN without any byte.

    Higher is more repetitive. It grows with the amount of text, so compare like amounts; deflate looks back 32 KiB.
    Shaib et al. 2024 (arXiv 2403.00553).

    >>> compression_ratio([b"the cat sat on the mat"] * 50) > 20, compression_ratio([b"q7#x"]) < 1
    (True, True)
    """
    data = b"\n".join(texts)
    return len(data) / len(zlib.compress(data, LEVEL)) if data.strip(b"\n") else float("nan")
