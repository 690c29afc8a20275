"""Which phrases one body of texts uses more than another: log-odds with an informative prior, prompts as the unit.

Counts are texts that contain a phrase, each once. Two things are added to the published method. The variance has the
terms of the texts *without* the phrase, which may be left out only for rare words. And texts of one prompt resemble
each other: the variance is multiplied by a design effect, computed from how alike the counts per prompt are; it stands
in for a bootstrap over prompts and involves no chance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel
from tiltmeter.stats.word_hashes import Hashes, Ints, Words

Floats = NDArray[np.float64]

ORDER = 4  # words of the longest phrase
_SAME = 0.8  # of its texts: a phrase that occurs so often inside a longer one is dropped for it


@dataclass(frozen=True, slots=True, eq=False)
class PhraseTable:
    """Phrases of 1 to 4 words with the number of texts that contain them, sorted by key."""

    keys: Hashes
    counts: Ints
    likeness: Floats  # correlation of texts of one prompt in containing the phrase; at least 0
    first: Ints  # position in the words at which the phrase first occurs
    orders: Ints  # words in the phrase
    texts: int
    prompts: int
    crowd: float  # texts per prompt, as a text sees it: Σ m² / Σ m
    words: int  # in all texts

    @classmethod
    def of(cls, words: Words, used: NDArray[np.bool_], starts: Ints, least: int = 1) -> PhraseTable:
        """Of the `used` texts; `starts` are the boundaries of prompt groups. Phrases of fewer than `least` texts are
        left out, and so is everything that contains them: with a high `least` the cost is that of the common ones.

        >>> from tiltmeter.stats.word_hashes import Texts
        >>> words = Words.of(Texts.of(["so to say", "So to speak", "so so"]))
        >>> table = PhraseTable.of(words, np.ones(3, bool), np.array([0, 2, 3]), least=2)
        >>> sorted(zip(table.orders.tolist(), table.counts.tolist()))
        [(1, 2), (1, 3), (2, 2)]
        """
        cluster = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        sizes = np.bincount(cluster[used], minlength=len(starts) - 1)
        row = np.repeat(np.arange(len(words.lengths), dtype=np.int32), words.lengths)
        places = np.flatnonzero(used[row])  # where a phrase begins
        keys = words.hashes[places]
        parts = []
        for order in range(1, ORDER + 1):
            slots, columns = _count(keys, places, row, cluster, sizes)
            common = columns[1] >= least
            if order < ORDER:  # a phrase is common only if both its shorter parts are
                begins = np.zeros(len(row) + 1, bool)
                begins[places[common[slots]]] = True
                begins[:-1] &= begins[1:]
                if order == 1:  # the last word of a text; longer phrases that overlap in a word are of one text
                    begins[words.offsets[1:] - 1] = False
                goes_on = np.flatnonzero(begins[places])
                places = places[goes_on]
                keys = keys[goes_on] * np.uint64(_STEP) + words.hashes[places + order]
            parts.append((*(column[common] for column in columns), np.full(int(common.sum()), order)))
        key, count, square, cross, first, orders = (np.concatenate(column) for column in zip(*parts, strict=True))
        sort = np.argsort(key)
        crowd = float(np.square(sizes).sum() / max(int(sizes.sum()), 1))
        effect = design_effect(count, square, cross, sizes)
        return cls(
            keys=key[sort],
            counts=count[sort],
            likeness=(effect[sort] - 1.0) / (crowd - 1.0) if crowd > 1.0 else np.zeros(len(sort)),
            first=first[sort],
            orders=orders[sort],
            texts=int(used.sum()),
            prompts=int((sizes > 0).sum()),
            crowd=crowd,
            words=int(words.lengths[used].sum()),
        )

    def at(self, keys: Hashes) -> tuple[Ints, Floats]:
        """Count and likeness of each of these keys; 0 for those that do not occur."""
        if not len(self.keys):
            return np.zeros(len(keys), np.int64), np.zeros(len(keys))
        where = np.searchsorted(self.keys, keys).clip(0, len(self.keys) - 1)
        present = self.keys[where] == keys
        return np.where(present, self.counts[where], 0), np.where(present, self.likeness[where], 0.0)


def design_effect(count: Ints, square: Ints, cross: Ints, sizes: Ints) -> Floats:
    """How much more a share varies because texts come in prompts: clustered variance over binomial variance.

    With y_g of m_g texts of prompt g: Σ (y_g - p m_g)² G / (G - 1) over n p (1 - p), not below 1. `square` is Σ y_g²,
    `cross` is Σ y_g m_g. With one prompt nothing can be known about others, and it is n.

    >>> design_effect(np.array([4, 4]), np.array([16, 4]), np.array([16, 16]), np.array([4, 4, 4, 4])).tolist()
    [5.333333333333333, 1.0]
    """
    n, prompts = int(sizes.sum()), int((sizes > 0).sum())
    if prompts < 2:
        return np.full(len(count), float(max(n, 1)))
    p = count / n
    spread = square - 2.0 * p * cross + p * p * float(np.square(sizes).sum())
    binomial = n * p * (1.0 - p)
    effect = np.ones(len(count))
    np.divide(spread * (prompts / (prompts - 1)), binomial, out=effect, where=binomial > 1e-9)
    return np.maximum(effect, 1.0)


def log_odds(y1: Ints, n1: int, y2: Ints, n2: int, prior: float, growth: float = 1.0) -> tuple[Floats, Floats, Floats]:
    """Log-odds ratio of a phrase in y1 of n1 texts against y2 of n2, and the two parts of its variance.

    δ = ln[(y1+a)/(n1+a0-y1-a)] - ln[(y2+a)/(n2+a0-y2-a)],  a = a0 (y1+y2+1/2)/(n1+n2+1),  a0 = `prior`
    Var = [1/(y1+a) + 1/(n1+a0-y1-a)] + [1/(y2+a) + 1/(n2+a0-y2-a)], for independent texts

    Texts that are `growth` times as long contain more of everything: what that alone would do to a share p,
    p' = 1 - (1-p)^growth, is taken off. Source: Monroe, Colaresi and Quinn, Political Analysis 16 (2008).

    >>> [round(float(part[0]), 4) for part in log_odds(np.array([50]), 100, np.array([10]), 100, prior=20.0)]
    [1.7375, 0.0335, 0.072]
    """
    a = prior * (y1 + y2 + 0.5) / (n1 + n2 + 1.0)  # the halves keep a phrase of every text, or of none, finite
    with1, without1 = y1 + a, n1 + prior - y1 - a
    with2, without2 = y2 + a, n2 + prior - y2 - a
    delta = np.log(with1) - np.log(without1) - np.log(with2) + np.log(without2)
    if growth != 1.0:
        stays = growth * np.log(without2 / (n2 + prior))  # ln (1 - p)^growth
        gained = np.log(-np.expm1(stays)) - stays
        delta = delta - (gained - np.log(with2) + np.log(without2))
    return delta, 1.0 / with1 + 1.0 / without1, 1.0 / with2 + 1.0 / without2


def overused_phrases(
    now: PhraseTable, before: PhraseTable, rate: float, share: float, least: int
) -> tuple[Ints, Floats]:
    """Rows of `now` that are used more than `before`, at a false discovery rate, and the z of every row of `now`.

    Tested are phrases in at least `share` of all texts and in at least `least`. One that is over-used must reach its
    part of both in `now` (`fewest_texts`), so `now` may omit what does not; everything of `before` that could have been
    tested counts as tested. Both parts of the variance are multiplied by their design effect, 1 + (m - 1) ρ for m texts
    per prompt that are as alike as on the side where they are more alike (ρ). It was estimated from few prompts, so δ
    over its root is taken for Student's t, with one degree of freedom less than prompts on either side, weighed by
    their parts of the variance (Satterthwaite 1946); z is the normal deviate with the same tail. With fewer than 4
    prompts on a side the promise fails: two prompts on one subject are not to be told from a change.
    """
    n1, n2 = now.texts, before.texts
    y2, likeness = before.at(now.keys)
    likeness = np.maximum(now.likeness, likeness)
    pooled = max(share * (n1 + n2), float(least))
    growth = max(1.0, (now.words / max(n1, 1)) / max(before.words / max(n2, 1), 1.0))
    delta, own, other = log_odds(now.counts, n1, y2, n2, prior=(n1 + n2) / 8.0, growth=growth)
    own = own * (1.0 + (now.crowd - 1.0) * likeness)
    other = other * (1.0 + (before.crowd - 1.0) * likeness)
    doubt = np.square(own) / max(now.prompts - 1, 1) + np.square(other) / max(before.prompts - 1, 1)
    z = student_to_normal(delta / np.sqrt(own + other), np.square(own + other) / doubt)
    tested = now.counts + y2 >= pooled
    part = pooled * n2 / max(n1 + n2, 1)
    others = int((before.counts >= part).sum()) - int((tested & (y2 >= part)).sum())
    p = np.ones(len(z))
    likely = tested & (z > 2.0)
    p[likely] = [0.5 * math.erfc(value / math.sqrt(2.0)) for value in z[likely]]
    return np.flatnonzero(benjamini_hochberg(p, rate, int(tested.sum()) + max(others, 0))), z


def fewest_texts(n1: int, n2: int, share: float, least: int) -> int:
    """Texts of n1 that must contain a phrase for `overused_phrases` to test it and find it over-used."""
    return max(1, math.ceil(max(share * (n1 + n2), float(least)) * n1 / max(n1 + n2, 1)))


def student_to_normal(t: Floats, freedom: Floats | float) -> Floats:
    """The normal deviate with the tail probability of Student's t, by the approximation of Wallace (1959).

    >>> student_to_normal(np.array([-4.0, 0.0, 4.0]), 20).round(2).tolist()  # exact: 3.3882
    [-3.39, 0.0, 3.39]
    """
    scale = (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0)
    return np.asarray(np.sign(t) * scale * np.sqrt(freedom * np.log1p(t * t / freedom)))


def benjamini_hochberg(p: Floats, rate: float, tested: int | None = None) -> NDArray[np.bool_]:
    """Benjamini and Hochberg's choice among p-values: at most `rate` of what is chosen is expected to be false.

    Holds for independent and for positively dependent tests. `tested`: the number of tests made, where p-values that
    could not be chosen are left out. Source: Benjamini and Hochberg, JRSS B 57 (1995).

    >>> benjamini_hochberg(np.array([0.01, 0.04, 0.03, 0.5]), 0.05).tolist()
    [True, False, False, False]
    >>> benjamini_hochberg(np.array([0.01]), 0.05, 6).tolist()
    [False]
    """
    ranked = np.sort(p)
    passed = np.flatnonzero(ranked <= rate * np.arange(1, len(p) + 1) / max(tested or len(p), 1))
    return np.asarray(p <= ranked[passed[-1]]) if len(passed) else np.zeros(len(p), bool)


def merge_phrases(table: PhraseTable, words: Words, chosen: Ints, z: Floats) -> Ints:
    """Of the chosen phrases, those that stand for themselves, strongest first: row, first word, number of words.

    Dropped is a phrase when a longer chosen one that contains it occurs in 80% of its texts or more. Longest ones that
    overlap in all but one word, in about the same number of texts, are pieces of one run of words: the strongest stays
    and its words are extended, where it first occurs, to those of the run (at most 8).
    """
    rows = sorted((int(row) for row in chosen), key=lambda row: (-z[row], -table.orders[row], table.first[row]))
    row_of = {int(table.keys[row]): row for row in rows}
    dropped: set[int] = set()
    run = {row: row for row in rows}  # to the strongest of its run, in steps
    begins: dict[int, list[int]] = {}  # longest phrases by all words but their last
    for row in rows:
        order = int(table.orders[row])
        own = words.hashes[table.first[row] : table.first[row] + order]
        for length in range(1, order):
            for at in range(order - length + 1):
                inner = phrase_key(own[at : at + length])
                part = row_of.get(inner)
                if part is not None and table.counts[row] >= _SAME * table.counts[part]:
                    dropped.add(part)
                if length == ORDER - 1 and at == 0:
                    begins.setdefault(inner, []).append(row)
    for row in rows:
        rest = words.hashes[table.first[row] + 1 : table.first[row] + table.orders[row]]
        for other in begins.get(phrase_key(rest), ()) if len(rest) == ORDER - 1 else ():
            low, high = sorted((int(table.counts[row]), int(table.counts[other])))
            strong, weak = sorted((_root(run, row), _root(run, other)), key=rows.index)
            if low >= _SAME * high:
                run[weak] = strong
    pieces: dict[int, set[int]] = {}
    for row in rows:
        pieces.setdefault(_root(run, row), set()).add(int(table.keys[row]))
    phrases = []
    for row in (row for row in rows if row not in dropped and run[row] == row):
        first, count = _extent(table, words, row, pieces[row])
        if words.texts_with(words.hashes[first : first + count]) < _SAME * table.counts[row]:
            # Put together from phrases each a little rarer than the last: the strongest alone says more.
            first, count = int(table.first[row]), int(table.orders[row])
        phrases.append((row, first, count))
    return np.array(phrases, np.int64).reshape(-1, 3)


def _root(run: dict[int, int], row: int) -> int:
    while run[row] != row:
        row = run[row]
    return row


def _extent(table: PhraseTable, words: Words, row: int, pieces: set[int]) -> tuple[int, int]:
    """First word and number of words of the run around the place where a phrase first occurs."""
    start = int(table.first[row])
    end = start + int(table.orders[row])
    text = int(np.searchsorted(words.offsets, start, "right"))
    low, high = int(words.offsets[text - 1]), int(words.offsets[text])
    while end < high and end - start < 8 and phrase_key(words.hashes[end + 1 - ORDER : end + 1]) in pieces:
        end += 1
    while start > low and end - start < 8 and phrase_key(words.hashes[start - 1 : start - 1 + ORDER]) in pieces:
        start -= 1
    return start, end - start


def phrase_key(hashes: Hashes) -> int:
    """The key of a phrase from the hashes of its words: a polynomial, so that a longer phrase extends a shorter one."""
    key = 0
    for value in hashes:
        key = (key * _STEP + int(value)) % 2**64
    return key


def count_contained(words: Words, keys: Hashes, most: int = ORDER) -> Ints:
    """How many of these phrases each text contains, each counted once.

    >>> from tiltmeter.stats.word_hashes import Texts
    >>> words = Words.of(Texts.of(["a b a b", "b a"]))
    >>> wanted = [phrase_key(words.hashes[:1]), phrase_key(words.hashes[:2])]
    >>> count_contained(words, np.array(wanted, np.uint64)).tolist()
    [2, 1]
    """
    wanted = np.unique(keys)
    if not len(wanted):
        return np.zeros(len(words.lengths), np.int64)
    row = np.repeat(np.arange(len(words.lengths)), words.lengths)
    likely = np.zeros(1 << 16, bool)  # by the first bits: nearly all phrases are told apart by them
    likely[wanted >> np.uint64(48)] = True
    found, own = [], words.hashes
    for order in range(1, most + 1):
        if order > 1:
            own = own[:-1] * np.uint64(_STEP) + words.hashes[order - 1 :]
        at = np.flatnonzero(likely[(own >> np.uint64(48)).view(np.int64)])
        at = at[row[at] == row[at + order - 1]]
        which = np.searchsorted(wanted, own[at]).clip(0, len(wanted) - 1)
        here = wanted[which] == own[at]
        found.append(row[at[here]] * len(wanted) + which[here])
    once = np.sort(np.concatenate(found))
    once = once[np.diff(once, prepend=-1) > 0]
    return np.bincount(once // len(wanted), minlength=len(words.lengths))


_STEP = 0x9FB21C651E98DF25  # odd, so that multiplying loses nothing


def _count(
    keys: Hashes, places: Ints, row: NDArray[np.int32], cluster: Ints, sizes: Ints
) -> tuple[NDArray[np.int32], tuple[Hashes, Ints, Ints, Ints, Ints]]:
    """The number of the phrase at each place, and of each phrase the key and the counts."""
    slots = 1 << max(4, (2 * len(places) - 1).bit_length())
    # Four bytes where they are enough: these are most of what a large step takes.
    table, slot_of = np.full(slots, -1, np.int32), np.empty(len(places), np.int32)
    small, large = np.empty((len(places), 4), np.int32), np.empty((len(places), 3), np.int64)
    key = np.empty(len(places), np.uint64)
    distinct = _count_places(places, keys, row, cluster, sizes, table, slot_of, key, small, large)
    first, count, _, prompt = (small[:distinct, column].astype(np.int64) for column in range(4))
    here, square, cross = (large[:distinct, column] for column in range(3))
    return slot_of, (key[:distinct], count, square + here * here, cross + here * sizes[prompt], first)


@kernel
def _count_places(
    places: Ints,
    keys: Hashes,
    row: NDArray[np.int32],
    cluster: Ints,
    sizes: Ints,
    table: NDArray[np.int32],
    slot_of: NDArray[np.int32],
    key: Hashes,
    small: NDArray[np.int32],
    large: Ints,
) -> int:
    """Fills, by phrase: its key; `small`: its first place, its texts, the last of them and that one's prompt; `large`:
    texts of that prompt, and the sums over the prompts before it."""
    shift, one, mask = np.uint64(29), np.uint64(1), np.uint64(len(table) - 1)
    distinct = 0
    for n in range(len(places)):
        p = places[n]
        own = keys[n]
        at = (own ^ (own >> shift)) & mask
        while table[at] >= 0 and key[table[at]] != own:
            at = (at + one) & mask
        s = table[at]
        if s < 0:
            s = distinct
            distinct += 1
            table[at] = s
            key[s] = own
            small[s, 0], small[s, 1], small[s, 2], small[s, 3] = p, 1, row[p], cluster[row[p]]
            large[s, 0], large[s, 1], large[s, 2] = 1, 0, 0
        elif small[s, 2] != row[p]:
            small[s, 1] += 1
            small[s, 2] = row[p]
            prompt = small[s, 3]
            if prompt != cluster[row[p]]:
                here = large[s, 0]
                large[s, 1] += here * here
                large[s, 2] += here * sizes[prompt]
                large[s, 0] = 0
                small[s, 3] = cluster[row[p]]
            large[s, 0] += 1
        slot_of[n] = s
    return distinct
