"""Sampling of rows by a hash of their content: the same rows give the same sample, in whatever order they come."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]


def draw_rows(hashes: Words, starts: Ints, most: int) -> Ints:
    """Up to `most` rows of each group `starts[k]:starts[k + 1]`, drawn without replacement by their hashes.

    A row's place in its group is a hash of its own hash and of how many equal ones stand before it. So equal rows are
    neither favoured nor drawn together, as they would be if the rows of least hash were taken.

    >>> word = np.array([7, 3, 7, 7], np.uint64)
    >>> rows = draw_rows(word, np.array([0, 4]), 2)
    >>> other = draw_rows(word[[1, 0, 2, 3]], np.array([0, 4]), 2)
    >>> word[rows].tolist() == word[[1, 0, 2, 3]][other].tolist()
    True
    """
    if not len(hashes):
        return np.zeros(0, np.int64)
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((hashes, group))
    fresh = np.ones(len(order), bool)
    fresh[1:] = (np.diff(hashes[order]) != 0) | (np.diff(group[order]) != 0)
    at = np.arange(len(order))
    copy = at - np.maximum.accumulate(np.where(fresh, at, 0))
    place = splitmix64(hashes[order] + copy.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))
    order = order[np.lexsort((place, group))]  # sorted by group, and so `group` itself is the key
    return order[at - np.repeat(starts[:-1], np.diff(starts)) < most]


def text_hashes(texts: Sequence[bytes]) -> Words:
    """A word for each text. Equal texts have equal words; others differ but for a chance of 2^-32 a pair.

    >>> a, b, c = text_hashes([b"x", b"y", b"x"]).tolist()
    >>> a == c, a == b
    (True, False)
    """
    return np.fromiter(map(zlib.crc32, texts), np.uint64, len(texts))


def splitmix64(words: Words) -> Words:
    """A bijection of 64-bit words under which near words land far apart: the finaliser of splitmix64.

    >>> hex(splitmix64(np.array([0x9E3779B97F4A7C15], np.uint64))[0])
    '0xe220a8397b1dcdaf'
    """
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
