"""KL divergence between two policies, estimated from the log-probabilities of drawn tokens.

With d = other - sampling, log-probabilities of tokens that the sampling policy drew, e^d is the ratio of the other
policy to it, and per token k1 = -d, k2 = d²/2, k3 = e^d - 1 - d (Schulman, "Approximating KL divergence", 2020).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared
from tiltmeter.stats.numba_jit import kernel, read_only

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BLOCK = 256  # tokens
OFF = 0.1  # a token's probability ratio further than this from 1 counts as off
_LOW, _HIGH = math.log1p(-OFF), math.log1p(OFF)
_SERIES = tuple(1.0 / math.factorial(n) for n in range(15, 1, -1))  # of (e^d - 1 - d) / d², highest power first


class TokenSweep(NamedTuple):
    """Per row, over its tokens. Sums and `worst` are NaN for a row that is empty, has a token that is not finite, or
    has different numbers of tokens in the two columns; a sum that leaves out tokens would pass for a small KL."""

    k1: Floats  # sum of -d, nats
    k2: Floats  # sum of d²/2
    k3: Floats  # sum of e^d - 1 - d; NaN also where e^d overflows
    logprob: Floats  # sum of the sampling policy's log-probabilities
    gap: Floats  # sum of |d|
    worst: Floats  # largest |d|
    off: Ints  # finite tokens with |e^d - 1| > OFF
    nonfinite: Ints  # tokens at which either column is NaN or infinite
    tokens: Ints  # 0 where the lengths differ
    lost: Floats  # 1 for a row that has tokens and no sums, else 0; NaN for an empty row

    def per_token(self, sums: Floats | Ints) -> Floats:
        """One of the sums or counts over the number of tokens; NaN where the sums are."""
        return np.where(np.isnan(self.worst), np.nan, sums / np.maximum(self.tokens, 1))


@shared()
def token_sweep(
    sampling: NDArray[np.generic], sampling_offsets: Ints, other: NDArray[np.generic], other_offsets: Ints
) -> TokenSweep:
    """Everything a completion's two columns of log-probabilities say about the distance of two policies, in one pass.

    Row i is `sampling[sampling_offsets[i]:sampling_offsets[i + 1]]`, `other` likewise. Sums are float64: e^d - 1 - d in
    float32 is wrong by more than its value where d is small, so for |d| < 1/2 its power series is summed instead, and
    never goes below zero.

    >>> ends = np.array([0, 2])
    >>> sweep = token_sweep(np.float32([-1.0, -1.0]), ends, np.float32([-1.0, -2.0]), ends)
    >>> sweep.k1.tolist(), sweep.k3.round(4).tolist(), sweep.worst.tolist(), sweep.off.tolist()
    ([1.0], [0.3679], [1.0], [1])
    """
    rows = len(sampling_offsets) - 1
    sums, counts, block = np.full((6, rows), np.nan), np.zeros((3, rows), np.int64), np.empty((2, _BLOCK))
    _token_sweep(read_only(sampling), sampling_offsets, read_only(other), other_offsets, block, sums, counts)
    longest = np.maximum(np.diff(sampling_offsets), np.diff(other_offsets))
    lost = np.where(longest > 0, np.isnan(sums[0]).astype(np.float64), np.nan)
    return TokenSweep(*(*sums, *counts, lost))


@kernel
def _token_sweep(
    sampling: NDArray[Any],
    starts: Ints,
    other: NDArray[Any],
    other_starts: Ints,
    block: Floats,
    sums: Floats,
    counts: Ints,
) -> None:
    """Fills `sums` and `counts`, one row each; `block` is room for d, and e^d - 1 - d by its series, of some tokens."""
    for row in range(len(starts) - 1):
        first, stop = starts[row], starts[row + 1]
        shift = other_starts[row] - first
        if other_starts[row + 1] - stop != shift:
            continue
        k2 = k3 = gap = worst = logprob = signed = 0.0
        off = nonfinite = 0
        for begin in range(first, stop, _BLOCK):
            size = min(_BLOCK, stop - begin)
            ours, theirs = sampling[begin : begin + size], other[begin + shift : begin + shift + size]
            # Right for |d| < 1/2, where the terms left out are below 1e-17 of the value. Without branches or sums, so
            # that the compiler works on several tokens at once: this is most of the time.
            for i in range(size):
                x = np.float64(theirs[i]) - np.float64(ours[i])
                total = _SERIES[0]
                for n in range(1, len(_SERIES)):
                    total = total * x + _SERIES[n]
                block[0, i] = x
                block[1, i] = x * x * total
            for i in range(size):
                d = block[0, i]
                distance = abs(d)
                if distance < 0.5:
                    k3 += block[1, i]
                elif not np.isfinite(d):
                    nonfinite += 1
                    continue
                else:
                    # Beyond 700 e^d overflows: "no overlap", which k1 carries.
                    k3 += math.exp(d) - 1.0 - d if d < 700.0 else np.nan
                signed += d
                gap += distance
                logprob += np.float64(ours[i])
                k2 += d * d
                worst = distance if distance > worst else worst
                off += int((d > _HIGH) | (d < _LOW))
        counts[0, row], counts[1, row], counts[2, row] = off, nonfinite, stop - first
        if nonfinite == 0 and stop > first:
            sums[0, row], sums[1, row], sums[2, row] = -signed, 0.5 * k2, k3
            sums[3, row], sums[4, row], sums[5, row] = logprob, gap, worst
