"""Answers that say the same: classes of texts by the words they share, without a model and in linear time.

A stand-in for the equivalence classes of NoveltyBench (Zhang et al. 2025, arXiv 2504.05228), which asks a trained
classifier about each pair. Here a text is the set of its words, and it joins the class whose first member it shares the
largest part of words with, if that part is large enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.jit import kernel

Ints = NDArray[np.int64]

ALIKE = 0.24  # part of shared words from which two texts count as one answer; chosen on half of NoveltyBench's prompts
SHORT = 4  # up to so many words, a text is its answer: half of the words must be shared
TAIL = 400  # characters at the end in which a final answer is looked for
LONGEST = 80  # characters of a final answer; what is longer is a sentence, not an answer


def word_classes(texts: Sequence[bytes], starts: Ints, alike: float = ALIKE) -> Ints:
    """The class of each text inside its group: 0, 1, ... in the order in which classes open.

    Texts are UTF-8 in lower case; words are runs of letters and digits, and every character that takes three bytes or
    more, as Chinese ones do, is a word of its own. Two texts A and B share |A and B| / |A or B| of their words. Since a
    class is known by its first member, the order of texts counts: `draws.drawn` gives one that does not depend on
    how they came.

    >>> texts = [b"it was a cat", b"a cat it was", b"dogs", b"a dog barked at the old gate all night long"]
    >>> word_classes(texts, np.array([0, 4])).tolist()
    [0, 0, 1, 2]
    """
    labels = np.zeros(len(texts), np.int64)
    ends = np.zeros(len(texts) + 1, np.int64)
    np.cumsum([len(text) for text in texts], out=ends[1:])
    # bytearray: a writable buffer, so that the kernel has one signature.
    data = np.frombuffer(bytearray(b"".join(texts)), np.uint8)
    _classes(data, ends, np.array(starts, np.int64), alike, labels)
    return labels


def final_answer(text: str) -> str | None:
    r"""The answer a text marks as final near its end, in a form that can be compared; None without a mark.

    Marks: \boxed{...}, "####", "answer is", "answer:". Case, spaces, dollar signs, emphasis and the commas of large
    numbers do not count.

    >>> final_answer(r"so $x = \boxed{\frac{1}{2}}$."), final_answer("#### 1,234"), final_answer("Answer is **7.0**.")
    ('\\frac{1}{2}', '1234', '7')
    """
    tail = text[-TAIL:]
    found = None
    if "\\boxed{" in tail:
        found = _braced(tail.rpartition("\\boxed{")[2])
    elif "####" in tail:
        found = tail.rpartition("####")[2].strip().partition("\n")[0]
    elif "nswer" in tail or "NSWER" in tail:
        tail = tail.lower()
        if (at := max(tail.rfind("answer is"), tail.rfind("answer:"))) >= 0:
            found = tail[at + (9 if tail.startswith("answer is", at) else 7) :]
            found = found.lstrip(" \n*:").partition("\n")[0].partition(". ")[0]
    if found is None or len(found) > LONGEST:
        return None
    plain = found.lower().translate(_DROPPED).rstrip(".")
    try:
        number = float(plain)
        plain = f"{number:.12g}" if len(plain) < 16 else plain
    except ValueError:
        pass
    return plain or None


# What a byte of UTF-8 does to a word: 1 goes on in an ordinary one, 2 goes on in a wide one, 4 begins a wide one.
_KIND = np.zeros(256, np.uint8)
_KIND[[*b"abcdefghijklmnopqrstuvwxyz0123456789", *range(0x80, 0xE0)]] = 1
_KIND[0x80:0xC0] |= 2
_KIND[0xE0:] = 4
_DROPPED = {ord(mark): None for mark in " \t$*`,\"'!"}


def _braced(text: str) -> str | None:
    depth = 1
    for at, mark in enumerate(text):
        depth += (mark == "{") - (mark == "}")
        if not depth:
            return text[:at]
    return None


@kernel
def _classes(data: Any, ends: Any, starts: Any, alike: float, labels: Any) -> None:
    size = longest = rows = 0
    for g in range(len(starts) - 1):
        size = max(size, ends[starts[g + 1]] - ends[starts[g]])
        rows = max(rows, starts[g + 1] - starts[g])
    for row in range(len(ends) - 1):
        longest = max(longest, ends[row + 1] - ends[row])
    bits = 4
    while (1 << bits) < size:  # twice the words: with what ends it, a word takes two bytes
        bits += 1
    table = np.full(1 << bits, -1, np.int32)  # `base` plus a word's number; what is below is of an earlier group
    keys = np.empty(size + 1, np.uint64)
    seen = np.empty(size + 1, np.int64)  # by word: the row that had it last
    own = np.empty(longest + 1, np.int32)  # numbers of the words of one row, each once
    words = np.empty(size + 1, np.int32)  # the same of each class's first member, end to end
    first = np.zeros(rows + 1, np.int64)  # where those of a class begin
    base = 0
    for g in range(len(starts) - 1):
        used = classes = 0
        if base > 1 << 30:
            table[:] = -1
            base = 0
        for row in range(starts[g], starts[g + 1]):
            known = used
            used, count = _words(data[ends[row] : ends[row + 1]], row, table, bits, base, keys, seen, own, known)
            best, chosen = -1.0, 0
            for c in range(classes):
                shared = 0
                for w in range(first[c], first[c + 1]):
                    shared += seen[words[w]] == row
                either = count + first[c + 1] - first[c] - shared
                part = shared / either if either > 0 else 1.0
                if part > best and (part >= 0.5 or min(count, first[c + 1] - first[c]) > SHORT):
                    best, chosen = part, c
            if best < alike:
                chosen = classes
                words[first[classes] : first[classes] + count] = own[:count]
                first[classes + 1] = first[classes] + count
                classes += 1
            labels[row] = chosen
        base += used


@kernel
def _words(
    text: Any, row: int, table: Any, bits: int, base: int, keys: Any, seen: Any, own: Any, used: int
) -> tuple[int, int]:
    """The words of one row: how many the group has by now, and how many stand in `own`."""
    mask, shift = (1 << bits) - 1, np.uint64(64 - bits)
    count = at = 0
    while at < len(text):
        byte = text[at]
        at += 1
        if not _KIND[byte]:
            continue
        h = np.uint64(byte)
        follows = 2 if _KIND[byte] == 4 else 1
        while at < len(text) and _KIND[text[at]] & follows:
            h = h * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(text[at])
            at += 1
        h ^= h >> np.uint64(32)
        s = np.int64((h * np.uint64(0x9E3779B97F4A7C15)) >> shift)
        i = table[s] - base
        while i >= 0 and keys[i] != h:
            s = (s + 1) & mask
            i = table[s] - base
        if i < 0:
            i = used
            used += 1
            table[s] = base + i
            keys[i] = h
            seen[i] = -1
        if seen[i] != row:
            seen[i] = row
            own[count] = i
            count += 1
    return used, count
