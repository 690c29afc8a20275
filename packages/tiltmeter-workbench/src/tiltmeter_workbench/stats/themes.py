"""Topics of texts: k-means of tf-idf vectors, without a language model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.word_hashes import Texts, Words

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

VOCABULARY = 4000  # words looked at, the commonest of those that tell something
COMMON = 0.2  # share of texts from which a word tells nothing about its text; with few texts, ten of them
LEARNT = 4000  # texts that centres are found on; all are then given to the nearest
STARTS, ROUNDS = 4, 25
_BLOCK = 20_000


@dataclass(frozen=True, eq=False)
class Themes:
    """The theme of each text, and the words that tell a theme from the rest.

    Labels are rarely biased everywhere alike: code may reward length and small talk brevity, and the two hide each
    other in the mean. A rough grouping is enough to see it.

    >>> texts = ["bake bread flour", "bread flour oven", "flour bread yeast", "prove lemma proof", "lemma proof axiom"]
    >>> found = themes(Texts.of(texts), 2, seed=0)
    >>> [sorted(found.words[label])[:2] for label in found.labels[[0, 3]]]
    [['bread', 'flour'], ['lemma', 'proof']]
    """

    labels: Ints  # -1: no word that others use as well
    words: tuple[tuple[str, ...], ...]  # by theme, most telling first


@dataclass(frozen=True, eq=False)
class _TfIdf:
    """Texts as unit vectors over words: the entries of text i are `starts[i]:starts[i + 1]`."""

    word: Ints
    weight: Floats
    starts: Ints
    size: int  # of the vocabulary

    def at(self, texts: Ints) -> _TfIdf:
        counts = np.diff(self.starts)[texts]
        starts = np.zeros(len(texts) + 1, np.int64)
        np.cumsum(counts, out=starts[1:])
        where = np.arange(starts[-1]) - np.repeat(starts[:-1] - self.starts[texts], counts)
        return _TfIdf(self.word[where], self.weight[where], starts, self.size)

    def similarity(self, centres: Floats) -> Floats:
        """Texts x centres; every text here has a word."""
        parts = self.weight[:, None] * centres.T[self.word]
        return np.asarray(np.add.reduceat(parts, self.starts[:-1], axis=0))

    def sums(self, label: Ints, count: int) -> Floats:
        cell = np.repeat(label, np.diff(self.starts)) * self.size + self.word
        return np.bincount(cell, self.weight, count * self.size).reshape(count, self.size).astype(np.float64)


def themes(texts: Texts, count: int, *, seed: int, named: int = 6) -> Themes:
    """At most `count` themes: k-means of tf-idf vectors on the sphere, the best of a few starts drawn by the seed."""
    words = Words.of(texts)
    table, used, first = _table(words)
    labels = np.full(len(texts), -1, np.int64)
    if not len(used):
        return Themes(labels, ())
    rng = np.random.default_rng(seed)
    sample = table.at(np.sort(rng.permutation(len(used))[:LEARNT]))
    tries = [_centres(sample, count, rng) for _ in range(STARTS)]
    centres = max(tries, key=lambda candidate: candidate[1])[0]
    for start in range(0, len(used), _BLOCK):
        block = table.at(np.arange(start, min(start + _BLOCK, len(used))))
        labels[used[start : start + _BLOCK]] = block.similarity(centres).argmax(axis=1)
    used_labels, again = np.unique(labels[used], return_inverse=True)
    labels[used] = again
    sizes = np.bincount(again).astype(np.float64)
    shares = table.sums(again, len(used_labels)) / sizes[:, None]
    whole = (shares * sizes[:, None]).sum(axis=0) / sizes.sum()
    tops = np.argsort(-(shares - whole), axis=1, kind="stable")[:, :named]
    names = tuple(
        tuple(words.text(texts, int(first[word]), 1)[:30] for word in top if shares[at, word] > whole[word])
        for at, top in enumerate(tops.tolist())
    )
    return Themes(labels, names)


def _table(words: Words) -> tuple[_TfIdf, Ints, Ints]:
    """Vectors of the texts that have telling words, which texts those are, and where each word first stands."""
    count = len(words.offsets) - 1
    _, first, code = np.unique(words.hashes, return_index=True, return_inverse=True)
    text = np.repeat(np.arange(count), np.diff(words.offsets))
    size = max(len(first), 1)
    entries = np.unique(text * size + code)
    code, text = entries % size, entries // size
    common = np.bincount(code, minlength=size)
    informative = np.flatnonzero((common > 1) & (common <= max(COMMON * count, 10)) & (common < count))
    # The same word everywhere first, so that equal counts are decided by the texts and not by how they are sorted.
    informative = informative[np.lexsort((first[informative] if len(first) else informative, -common[informative]))][
        :VOCABULARY
    ]
    place = np.full(size, -1, np.int64)
    place[informative] = np.arange(len(informative))
    mask = place[code] >= 0
    word, text = place[code[mask]], text[mask]
    weight = np.log(count / common[informative])[word]
    used, back = np.unique(text, return_inverse=True)
    weight = weight / np.sqrt(np.bincount(back, np.square(weight)))[back]
    starts = np.searchsorted(text, np.append(used, count)).astype(np.int64)
    return _TfIdf(word, weight, starts, max(len(informative), 1)), used.astype(np.int64), first[informative]


def _centres(table: _TfIdf, count: int, rng: np.random.Generator) -> tuple[Floats, float]:
    """Unit centres and the mean nearness of texts to theirs. Starts are drawn far from each other (k-means++)."""
    texts = len(table.starts) - 1
    chosen = [int(rng.integers(texts))]
    best = np.full(texts, -1.0)
    while len(chosen) < min(count, texts):
        centre = table.at(np.array(chosen[-1:])).sums(np.zeros(1, np.int64), 1)
        best = np.maximum(best, table.similarity(centre)[:, 0])
        far = np.clip(1.0 - best, 0.0, None)
        far[chosen] = 0.0
        if far.sum() < 1e-9:
            break
        chosen.append(int(rng.choice(texts, p=far / far.sum())))
    centres = table.at(np.array(chosen)).sums(np.arange(len(chosen)), len(chosen))
    label = np.full(texts, -1, np.int64)
    for _ in range(ROUNDS):
        near = table.similarity(centres)
        nearest = near.argmax(axis=1)
        if (nearest == label).all():
            break
        label = nearest
        sums = table.sums(label, len(centres))
        length = np.sqrt(np.square(sums).sum(axis=1, keepdims=True))
        centres = np.where(length > 0.0, sums / np.maximum(length, 1e-300), centres)
    return centres, float(table.similarity(centres).max(axis=1).mean())
