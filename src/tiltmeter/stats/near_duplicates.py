"""Texts that are nearly the same, found among many without comparing each with each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.hash_sampling import splitmix64
from tiltmeter.stats.numba_jit import kernel

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]


def shared_parts(sets: Hashes, ends: Ints, pairs: Ints) -> Floats:
    """The Jaccard similarity of pairs of sets; set i is `sets[ends[i]:ends[i + 1]]`, sorted and each member once.

    >>> shared_parts(np.array([1, 2, 2, 3], np.uint64), np.array([0, 2, 4]), np.array([[0, 1]])).round(3).tolist()
    [0.333]
    """
    shared = np.zeros(len(pairs))
    _shares(sets, ends, pairs, shared)
    return shared


def token_similarities(words: Hashes, offsets: Ints) -> Floats:
    """The part of tokens and of pairs of neighbouring tokens that each two of up to 256 rows share; empty ones all.

    >>> token_similarities(np.array([1, 2, 1, 3], np.uint64), np.array([0, 2, 4])).tolist()
    [[1.0, 0.2], [0.2, 1.0]]
    """
    count = len(offsets) - 1
    row = np.repeat(np.arange(count), np.diff(offsets))
    follows = np.flatnonzero(row[1:] == row[:-1])
    single = splitmix64(words + np.uint64(1))
    pair = splitmix64(single[follows] * np.uint64(3) + single[follows + 1])
    # Row and hash in one key, so that one sort does: 56 bits of a hash tell the tokens of a step apart.
    keys = np.concatenate((row, row[follows])).astype(np.uint64) << np.uint64(56)
    keys = np.unique(keys | (np.concatenate((single, pair)) >> np.uint64(8)))
    ends = np.searchsorted(keys >> np.uint64(56), np.arange(count + 1, dtype=np.uint64)).astype(np.int64)
    sets = keys & np.uint64(2**56 - 1)
    pairs = np.stack(np.triu_indices(count, 1), axis=1)
    matrix = np.ones((count, count))
    filled = (ends[pairs[:, 0]] < ends[pairs[:, 0] + 1]) | (ends[pairs[:, 1]] < ends[pairs[:, 1] + 1])
    some = pairs[filled]
    matrix[some[:, 0], some[:, 1]] = matrix[some[:, 1], some[:, 0]] = shared_parts(sets, ends, some)
    return matrix


@kernel
def _shares(sets: Hashes, ends: Ints, pairs: Ints, shared: Floats) -> None:
    for row in range(len(pairs)):
        a, b = ends[pairs[row, 0]], ends[pairs[row, 1]]
        a_end, b_end = ends[pairs[row, 0] + 1], ends[pairs[row, 1] + 1]
        size, both = a_end - a + b_end - b, 0
        while a < a_end and b < b_end:
            if sets[a] == sets[b]:
                both += 1
                a += 1
                b += 1
            elif sets[a] < sets[b]:
                a += 1
            else:
                b += 1
        shared[row] = both / (size - both)
