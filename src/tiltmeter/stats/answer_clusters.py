"""Clusters of answers that say the same, by the words they share, without a model and in linear time.

A stand-in for the equivalence classes of NoveltyBench (Zhang et al. 2025, arXiv 2504.05228), which asks a trained
classifier about each pair. Here a text is the set of its words, and it joins the class whose first member it shares the
largest part of words with, if that part is large enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel

Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

ALIKE = 0.24  # part of shared words from which two texts count as one answer; chosen on half of NoveltyBench's prompts
SHORT = 4  # up to so many words, a text is its answer: half of the words must be shared
TAIL = 400  # characters at the end in which a final answer is looked for
LONGEST = 80  # characters of a final answer; what is longer is a sentence, not an answer


def word_classes(words: Hashes, offsets: Ints, starts: Ints, alike: float = ALIKE) -> Ints:
    """The class of each text inside its group: 0, 1, ... in the order in which classes open.

    Words are those of `stats.words.Words`: text i has `words[offsets[i]:offsets[i + 1]]`. Two texts A and B share
    |A and B| / |A or B| of their words, each counted once. Since a class is known by its first member, the order of
    texts counts: `hash_sampling.draw_rows` gives one that does not depend on how they came.

    >>> words = np.array([1, 2, 3, 4, 3, 4, 1, 2, 9], np.uint64) << np.uint64(40)
    >>> word_classes(words, np.array([0, 4, 8, 9]), np.array([0, 3])).tolist()
    [0, 0, 1]
    """
    rows = len(offsets) - 1
    row = np.repeat(np.arange(rows, dtype=np.uint64), np.diff(offsets))
    # Row and word in one key, so that one sort does: 40 bits of a hash tell the words of one group apart.
    keys = np.sort((row << np.uint64(40)) | (words.astype(np.uint64) >> np.uint64(24)))
    is_new = np.ones(len(keys), bool)
    is_new[1:] = keys[1:] != keys[:-1]
    once = keys[is_new]
    ends = np.searchsorted(once >> np.uint64(40), np.arange(rows + 1, dtype=np.uint64))
    leaders, labels = np.zeros((2, rows), np.int64)
    _classes(once & np.uint64(2**40 - 1), ends.astype(np.int64), np.array(starts, np.int64), alike, leaders, labels)
    return labels


def final_answer(text: str) -> str | None:
    r"""The answer a text marks as final near its end, in a form that can be compared; None without a mark.

    Marks: \boxed{...}, "####", "answer is", "answer:". Case, spaces, dollar signs, emphasis and the commas of large
    numbers do not count.

    >>> final_answer(r"so $x = \boxed{\frac{1}{2}}$."), final_answer("#### 1,234"), final_answer("Answer is **7.0**.")
    ('\\frac{1}{2}', '1234', '7')
    """
    tail = text[-TAIL:]
    answer = None
    if "\\boxed{" in tail:
        answer = _braced(tail.rpartition("\\boxed{")[2])
    elif "####" in tail:
        answer = tail.rpartition("####")[2].strip().partition("\n")[0]
    elif "nswer" in tail or "NSWER" in tail:
        tail = tail.lower()
        if (at := max(tail.rfind("answer is"), tail.rfind("answer:"))) >= 0:
            answer = tail[at + (9 if tail.startswith("answer is", at) else 7) :]
            answer = answer.lstrip(" \n*:").partition("\n")[0].partition(". ")[0]
    if answer is None or len(answer) > LONGEST:
        return None
    plain = answer.lower().translate(_DROPPED).rstrip(".")
    try:
        number = float(plain)
        plain = f"{number:.12g}" if len(plain) < 16 else plain
    except ValueError:
        pass
    return plain or None


_DROPPED = {ord(mark): None for mark in " \t$*`,\"'!"}


def _braced(text: str) -> str | None:
    depth = 1
    for at, mark in enumerate(text):
        depth += (mark == "{") - (mark == "}")
        if not depth:
            return text[:at]
    return None


@kernel
def _classes(words: Any, ends: Any, starts: Any, alike: float, leaders: Any, labels: Any) -> None:
    """`leaders` is room for the first member of each class."""
    for g in range(len(starts) - 1):
        classes = 0
        for row in range(starts[g], starts[g + 1]):
            best, chosen = -1.0, 0
            own = ends[row + 1] - ends[row]
            for c in range(classes):
                lead = leaders[c]
                a, a_end, b, b_end = ends[row], ends[row + 1], ends[lead], ends[lead + 1]
                other = b_end - b
                shared = 0
                while a < a_end and b < b_end:
                    one, two = words[a], words[b]
                    shared += one == two
                    a += one <= two  # no branches: which of the two is next cannot be guessed
                    b += two <= one
                part = shared / (own + other - shared) if own + other > 0 else 1.0
                if part > best and (part >= 0.5 or (own > SHORT and other > SHORT)):
                    best, chosen = part, c
            if best < alike:
                chosen = classes
                leaders[classes] = row
                classes += 1
            labels[row] = chosen
