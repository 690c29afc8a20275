"""Texts that are nearly the same, found among many without comparing each with each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.near_duplicates import shared_parts
from tiltmeter.stats.numba_jit import kernel
from tiltmeter.stats.word_hashes import Words
from tiltmeter_workbench.stats.strong_components import strong_components

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]
Floats = NDArray[np.float64]

ORDER = 3  # words of a shingle
ALIKE = 0.8  # part of shared shingles from which two texts are near-copies
_BINS, _BAND = 64, 4  # a pair that shares 0.8 is missed about once in 5000, one that shares 0.7 once in 80


def near_copies(words: Words, alike: float = ALIKE) -> tuple[Ints, Floats]:
    """Pairs of texts that share at least `alike` of their three-word shingles (Jaccard), and how much they share.

    Candidates come from one-permutation MinHash (Li, Owen and Zhang 2012) with empty bins filled from their neighbours
    (Shrivastava and Li 2014), in 16 bands of 4; each candidate is then compared exactly. Of many texts that fall
    together, each is compared with the first and with the one before, so cost stays linear and a family of copies is
    connected although not every pair of it is listed. A text of fewer than three words is one shingle; one without
    words has no copies.

    >>> from tiltmeter.stats.word_hashes import Texts
    >>> texts = ["a b c d e f g h i j k l", "A b c d e f g h i j k, l!", "quite another text", ""]
    >>> pairs, shared = near_copies(Words.of(Texts.of(texts)))
    >>> pairs.tolist(), shared.tolist()
    ([[0, 1]], [1.0])
    """
    sets, ends = _sets(words)
    rows = len(ends) - 1
    signature = np.zeros((rows, _BINS), np.uint64)
    _signatures(sets, ends, signature)
    used = np.flatnonzero(np.diff(ends) > 0)
    candidates: list[Ints] = []
    for band in range(0, _BINS, _BAND):
        key = signature[used, band].copy()
        for column in range(band + 1, band + _BAND):
            key = key * np.uint64(0x9FB21C651E98DF25) + signature[used, column]
        order = np.argsort(key, kind="stable")
        ranked, members = key[order], used[order]
        begins = np.ones(len(ranked), bool)
        begins[1:] = ranked[1:] != ranked[:-1]
        first = members[np.maximum.accumulate(np.where(begins, np.arange(len(ranked)), 0))]
        later = np.flatnonzero(~begins)
        candidates += [np.stack((first[later], members[later]), 1), np.stack((members[later - 1], members[later]), 1)]
    pairs = np.unique(np.concatenate(candidates), axis=0) if candidates else np.zeros((0, 2), np.int64)
    shared = shared_parts(sets, ends, pairs)
    close = shared >= alike
    return pairs[close], shared[close]


def families(pairs: Ints, count: int) -> Ints:
    """Per text the first member of the family of copies it belongs to, itself where it has none.

    >>> families(np.array([[0, 2], [2, 3]]), 5).tolist()
    [0, 1, 0, 0, 4]
    """
    ends = np.concatenate((pairs, pairs[:, ::-1]))  # both ways: then what is connected is strongly connected
    part = strong_components(ends[:, 0], ends[:, 1], count)
    first = np.full(count, count, np.int64)
    np.minimum.at(first, part, np.arange(count))
    return first[part]


def _sets(words: Words) -> tuple[Hashes, Ints]:
    """The shingles of each text, each once and in order; those of text i are `sets[ends[i]:ends[i + 1]]`."""
    lengths = words.lengths
    counts = np.where(lengths >= ORDER, lengths - ORDER + 1, np.minimum(lengths, 1))
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    sets = np.empty(int(ends[-1]), np.uint64)
    unique_ends = np.zeros(len(ends), np.int64)
    _shingles(words.hashes, words.offsets, ORDER, sets, ends, unique_ends)
    return sets[: unique_ends[-1]], unique_ends


@kernel
def _shingles(hashes: Hashes, offsets: Ints, order: int, sets: Hashes, ends: Ints, unique_ends: Ints) -> None:
    step, half = np.uint64(0x9FB21C651E98DF25), np.uint64(32)
    to = 0
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        width = min(order, stop - start)
        own = np.empty(ends[row + 1] - ends[row], np.uint64)
        for at in range(len(own)):
            key = np.uint64(0)
            for word in range(start + at, start + at + width):
                key = key * step + hashes[word]
            # The low bits choose a bin: they must depend on all bits of all words.
            key = (key ^ (key >> half)) * np.uint64(0xD6E8FEB86659FD93)
            own[at] = key ^ (key >> half)
        own.sort()
        for at in range(len(own)):
            if at == 0 or own[at] != own[at - 1]:
                sets[to] = own[at]
                to += 1
        unique_ends[row + 1] = to


@kernel
def _signatures(sets: Hashes, ends: Ints, signature: Hashes) -> None:
    bins = signature.shape[1]
    none = np.uint64(0xFFFFFFFFFFFFFFFF)
    least = np.empty(bins, np.uint64)
    for row in range(len(ends) - 1):
        if ends[row] == ends[row + 1]:
            continue
        least[:] = none
        for at in range(ends[row], ends[row + 1]):
            place = int(sets[at] & np.uint64(bins - 1))
            least[place] = min(least[place], sets[at] >> np.uint64(6))
        for place in range(bins):
            away = 0
            while least[(place + away) % bins] == none:
                away += 1
            # How far a value was fetched belongs to it, or neighbours would agree by the same one.
            signature[row, place] = least[(place + away) % bins] + np.uint64(away) * np.uint64(0xD6E8FEB86659FD93)
