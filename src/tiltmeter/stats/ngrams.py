"""n-grams of token ids: exact self-BLEU and distinct n-grams inside prompt groups, distinct n-grams over a whole step.

Rows are `flat[offsets[i]:offsets[i + 1]]`, prompt groups rows `starts[k]:starts[k + 1]`. Ids, never words: a reading
must not depend on a tokenizer being installed. Nothing here is sampled or approximate, except four-grams and longer of
a corpus with so many token types that they do not fit 64 bits (`corpus_distinct` says when).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared
from tiltmeter.stats.hash_sampling import draw_rows, splitmix64
from tiltmeter.stats.numba_jit import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ids = NDArray[np.generic]

_WIDE = 16  # ids that span more than so many times their number are renamed by sorting, not through a table


def group_ngrams(flat: Ids, offsets: Ints, starts: Ints, orders: int = 4) -> tuple[Floats, Ints]:
    """Self-BLEU of each row against all others of its group, and the number of distinct 1..`orders`-grams per group.

    BLEU-4 with uniform weights and a match of 0.1 in place of zero (`method1` of Chen and Cherry 2014): with p_n the
    clipped precision and c, r the row's length and the nearest other length in its group (ties: the shorter),
    min(1, e^(1 - r/c)) exp(mean of ln p_n). 0 for an empty row and where no unigram matches; NaN in a group of one.
    For other `orders` the mean is over n = 1..`orders`. Work is linear in tokens, whatever the group size: the limit
    that clips an n-gram for one row is its largest count in any other row, and the largest count, its owner and the
    second largest give it for every row. Zhu et al. 2018 (arXiv 1802.01886), who compare pair by pair.

    >>> flat, offsets = np.array([1, 2, 3, 4, 5, 1, 2, 3, 4, 6, 7]), np.array([0, 5, 10, 11])
    >>> scores, distinct = group_ngrams(flat, offsets, np.array([0, 2, 3]))
    >>> scores.round(4).tolist(), distinct.tolist()
    ([0.6687, 0.6687, nan], [[6, 5, 4, 3], [1, 0, 0, 0]])
    """
    # Copies: one kernel signature, whether or not the caller's arrays may be written to.
    tokens, ends, bounds = np.array(flat, np.int32), np.array(offsets, np.int64), np.array(starts, np.int64)
    scores = np.full(len(ends) - 1, np.nan)
    distinct = np.zeros((len(bounds) - 1, orders), np.int64)
    _sweep(tokens, ends, bounds, orders, scores, distinct)
    return scores, distinct


#: For two instruments that read different things off one pass over the same arrays.
shared_ngrams = shared()(group_ngrams)


def group_totals(offsets: Ints, starts: Ints, orders: int = 4) -> Ints:
    """Number of 1..`orders`-grams, repeats counted, in each prompt group; none spans two rows.

    >>> group_totals(np.array([0, 5, 6]), np.array([0, 2])).tolist()
    [[6, 4, 3, 2]]
    """
    lengths = np.diff(offsets)[:, None] - np.arange(orders)
    sums = np.zeros((len(offsets), orders), np.int64)
    np.cumsum(np.maximum(lengths, 0), axis=0, out=sums[1:])
    return np.asarray(np.diff(sums[np.asarray(starts)], axis=0))


def corpus_distinct(flat: Ids, offsets: Ints, orders: int = 4) -> Ints:
    """Number of distinct 1..`orders`-grams over all rows; none spans two rows.

    Token types are renamed 0, 1, ... and packed side by side into 64 bits, which is exact for four-grams up to 65,536
    types; what does not fit is hashed to 64 bits, and of N n-grams about N^2 / 2^65 are then lost to collisions.

    >>> corpus_distinct(np.array([1, 2, 1, 2, 1, 2, 9]), np.array([0, 4, 7])).tolist()
    [3, 3, 3, 1]
    """
    names, types = _dense_ids(flat)
    bits = max(1, int(types - 1).bit_length())
    counts = np.zeros(orders, np.int64)
    counts[:1] = types
    whole = np.ones(len(names), bool)  # an n-gram begins here
    keys = names.copy()
    for n in range(2, orders + 1):
        ends = np.asarray(offsets)[1:] - (n - 1)
        whole[ends[ends >= 0]] = False
        keys = keys[:-1]
        if n * bits <= 64:
            keys <<= np.uint64(bits)
        else:
            keys = splitmix64(keys)
        keys += names[n - 1 :]
        chosen = keys[whole[: len(keys)]]
        if n * bits <= 32:
            chosen = chosen.astype(np.uint32)  # sorts in half the time
        chosen.sort()  # np.unique of numpy 2.4 takes ninety times as long on 800,000 keys
        counts[n - 1] = np.count_nonzero(chosen[1:] != chosen[:-1]) + (len(chosen) > 0)
    return counts


@shared()
def heads(flat: Ids, offsets: Ints, first: int) -> tuple[Ids, Ints]:
    """The first `first` tokens of each row, as flat values and offsets of their own.

    >>> values, ends = heads(np.array([1, 2, 3, 4]), np.array([0, 3, 4]), 2)
    >>> values.tolist(), ends.tolist()
    ([1, 2, 4], [0, 2, 3])
    """
    lengths = np.minimum(np.diff(offsets), first)
    ends = np.zeros(len(offsets), np.int64)
    np.cumsum(lengths, out=ends[1:])
    if ends[-1] == len(flat):
        return flat, ends
    return flat[np.arange(ends[-1]) + np.repeat(np.asarray(offsets)[:-1] - ends[:-1], lengths)], ends


def heads_of_groups(flat: Ids, offsets: Ints, starts: Ints, first: int) -> tuple[Ids, Ints]:
    """The first `first` tokens of one row of each group, drawn by its tokens alone; groups without a filled row give
    none. Flat values and offsets of their own.

    >>> flat, offsets = np.array([5, 6, 7, 8, 9, 9]), np.array([0, 3, 5, 5, 6])
    >>> values, ends = heads_of_groups(flat, offsets, np.array([0, 1, 3, 4]), 2)
    >>> values.tolist(), ends.tolist()
    ([5, 6, 8, 9, 9], [0, 2, 4, 5])
    """
    flat, offsets = heads(flat, offsets, first)
    lengths = np.diff(offsets)
    filled = np.flatnonzero(lengths)
    if not len(filled):
        return flat, np.zeros(1, np.int64)
    # A sum of mixed (token, position) pairs: order inside the row counts, and one pass serves all rows.
    place = (np.arange(len(flat)) - np.repeat(offsets[:-1], lengths)).astype(np.uint64)
    pairs = (np.asarray(flat).astype(np.int64).view(np.uint64) << np.uint64(32)) ^ place
    sums = np.add.reduceat(splitmix64(pairs), offsets[filled])
    rows = filled[draw_rows(sums, np.searchsorted(filled, starts), 1)]
    ends = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(lengths[rows], out=ends[1:])
    return flat[np.arange(ends[-1]) + np.repeat(offsets[rows] - ends[:-1], lengths[rows])], ends


def expected_distinct(distinct: Floats | Ints, total: Floats | Ints, vocabulary: float) -> Floats:
    """EAD: distinct n-grams over what as many draws from an even vocabulary would give, V (1 - ((V - 1)/V)^C).

    Unlike distinct/total it does not fall merely because there is more text. NaN where there are no n-grams; may pass
    1. Liu et al. 2022 (arXiv 2202.13587).

    >>> expected_distinct(np.array([10.0, 50.0]), np.array([10.0, 100.0]), 50.0).round(3).tolist()
    [1.093, 1.153]
    """
    drawings = np.asarray(total, np.float64)
    if vocabulary <= 1.0:
        expected = np.where(drawings > 0, 1.0, 0.0)
    else:
        expected = -vocabulary * np.expm1(drawings * np.log1p(-1.0 / vocabulary))
    ratios: Floats = np.divide(distinct, expected, out=np.full(drawings.shape, np.nan), where=expected > 0)
    return ratios


def repeats(hashes: NDArray[np.uint64], offsets: Ints, order: int) -> tuple[Ints, Ints]:
    """Per row: runs of `order` hashes that occurred earlier in the same row, and all of them.

    >>> words = np.array([1, 2, 3, 1, 2, 3, 1, 1, 2], np.uint64)
    >>> [part.tolist() for part in repeats(words, np.array([0, 7, 9]), 2)]
    [[3, 0], [6, 1]]
    """
    lengths = np.diff(offsets)
    slots = 1 << max(4, (2 * int(lengths.max(initial=0)) - 1).bit_length())
    again = np.zeros(len(lengths), np.int64)
    _repeats(hashes, offsets, order, np.empty(slots, np.uint64), np.full(slots, -1, np.int64), again)
    return again, np.maximum(lengths - order + 1, 0)


@kernel
def _repeats(hashes: NDArray[np.uint64], offsets: Ints, order: int, keys: Any, owner: Ints, again: Ints) -> None:
    """`keys` and `owner` are an empty table; the owner, a row, replaces clearing it."""
    step, shift, one = np.uint64(0x9FB21C651E98DF25), np.uint64(29), np.uint64(1)
    mask = np.uint64(len(keys) - 1)
    for row in range(len(offsets) - 1):
        for p in range(offsets[row], offsets[row + 1] - order + 1):
            key = np.uint64(0)
            for q in range(p, p + order):
                key = key * step + hashes[q]
            at = (key ^ (key >> shift)) & mask
            while owner[at] == row and keys[at] != key:
                at = (at + one) & mask
            if owner[at] == row:
                again[row] += 1
            else:
                keys[at], owner[at] = key, row


def _dense_ids(flat: Ids) -> tuple[NDArray[np.uint64], int]:
    """Token ids as 0, 1, ... in the order of their size, and how many there are."""
    if not len(flat):
        return np.zeros(0, np.uint64), 0
    ids = np.asarray(flat)
    low = int(ids.min())
    span = int(ids.max()) - low + 1
    if span <= _WIDE * len(ids):
        places = ids.astype(np.intp)  # the width numpy indexes with; any other is converted at each use
        places -= low
        present = np.zeros(span, bool)
        present[places] = True
        names = np.cumsum(present, dtype=np.uint64)
        return (names - np.uint64(1)).take(places), int(names[-1])
    types = np.sort(ids)
    types = types[np.concatenate(([True], types[1:] != types[:-1]))]
    return np.searchsorted(types, ids).astype(np.uint64), len(types)


@kernel
def _sweep(flat: Any, offsets: Any, starts: Any, orders: Any, scores: Any, distinct: Any) -> None:
    """Fills `scores` and `distinct`, one left-to-right sweep per group and order.

    An n-gram's key is the name of its first n - 1 tokens, which is exact, and its last token; one whose head or tail
    of n - 1 tokens occurs once in the group occurs once itself, and no table needs to be asked. A row's clipped matches
    are all its n-grams, less what it alone has of each: a row that is not an n-gram's owner (the row with the largest
    count) has all its occurrences matched, the owner has as many as the second largest count. One long function: a call
    per n-gram would cost as much as its work.
    """
    largest = widest = 0
    for g in range(len(starts) - 1):
        largest = max(largest, offsets[starts[g + 1]] - offsets[starts[g]])
        widest = max(widest, starts[g + 1] - starts[g])
    slots = 16
    while slots < 2 * largest:
        slots *= 2
    table = np.full(slots, -1, np.int32)  # `base` plus a name; what is below `base` was left by an earlier sweep
    base = 0
    name = np.empty(largest + 1, np.int32)  # by position: of the n-gram that begins there, -1 if it occurs once
    keys = np.empty(largest + 1, np.int64)  # by name, from here on
    once = np.zeros(largest + 1, np.bool_)  # of the order below, until the sweep ends
    # The row last seen and its count so far; the owner, its count, the second largest count. One cache line.
    counts = np.zeros((largest + 1, 8), np.int32)
    match = np.zeros((widest + 1, orders), np.int64)
    for g in range(len(starts) - 1):
        head, tail = starts[g], starts[g + 1]
        origin = offsets[head]
        bits = 4
        while (1 << bits) < 2 * (offsets[tail] - origin):
            bits += 1
        shift, mask = np.uint64(64 - bits), (1 << bits) - 1
        for n in range(1, orders + 1):
            if base > 1 << 30:
                table[:] = -1
                base = 0
            used = lone = 0
            for row in range(head, tail):
                doc = np.int32(row - head + 1)
                begin, end = offsets[row] - origin, offsets[row + 1] - origin - n + 1
                alone = 0
                before = np.int32(0)
                after = name[begin] if n > 1 and begin < end else np.int32(0)
                if n > 1 and after >= 0 and once[after]:
                    after = np.int32(-1)
                for p in range(begin, end):
                    key = np.int64(flat[origin + p + n - 1]) & 0xFFFFFFFF
                    if n > 1:
                        before, after = after, name[p + 1]
                        if after >= 0 and once[after]:
                            after = np.int32(-1)
                        if (before | after) < 0:
                            name[p] = -1
                            alone += 1
                            continue
                        key |= np.int64(before) << 32
                    s = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> shift)
                    i = table[s] - base
                    while i >= 0 and keys[i] != key:
                        s = (s + 1) & mask
                        i = table[s] - base
                    # No branches from here on: which n-grams are new or repeated is what no processor can guess.
                    new = i < 0
                    i = used if new else i
                    used += new
                    table[s] = base + i
                    keys[i] = key
                    name[p] = i
                    line = counts[i]
                    count = line[1] + np.int32(1) if line[0] == doc else np.int32(1)
                    owner, top, second = line[2], line[3], line[4]
                    more = count > top
                    other = top if more else max(second, count)
                    line[0] = doc
                    line[1] = count
                    line[2] = doc if more else owner
                    line[3] = count if more else top
                    line[4] = second if owner == doc else other
                lone += alone
                match[doc - 1, n - 1] = max(0, end - begin) - alone
            for i in range(used):
                line = counts[i]
                match[line[2] - 1, n - 1] -= line[3] - line[4]
                once[i] = line[3] == 1 and line[4] == 0
                line[:5] = 0
            base += used
            distinct[g, n - 1] = used + lone
        if tail - head > 1:
            _score(offsets, head, tail, match, scores)


@kernel
def _score(offsets: Any, head: Any, tail: Any, match: Any, scores: Any) -> None:
    orders = match.shape[1]
    lengths = offsets[head + 1 : tail + 1] - offsets[head:tail]
    order = np.argsort(lengths)
    for place in range(len(order)):
        doc = order[place]
        length = lengths[doc]
        if length == 0 or match[doc, 0] == 0:
            scores[head + doc] = 0.0
            continue
        nearest = -1
        if place > 0:
            nearest = lengths[order[place - 1]]
        if place + 1 < len(order):
            above = lengths[order[place + 1]]
            if nearest < 0 or above - length < length - nearest:
                nearest = above
        mean = 0.0
        for n in range(1, orders + 1):
            hits = np.float64(match[doc, n - 1])
            mean += np.log((hits if hits > 0 else 0.1) / max(1, length - n + 1))
        brevity = 1.0 if length > nearest else np.exp(1.0 - nearest / length)
        scores[head + doc] = brevity * np.exp(mean / orders)
