"""Many texts at once: one array of bytes, words as 64-bit hashes, and fixed phrases counted in one pass.

A word is a run of letters and digits, lower-cased within ASCII; an apostrophe, straight or curly, belongs to it only
between two of them. Bytes from 128 on are letters, except the usual punctuation blocks beyond ASCII (curly quotes,
dashes, ideographic and full-width marks), and a Chinese character or a kana is a word of its own. Everything else
separates words. Hostile text is fine: lone surrogates and NUL are bytes like any other, and cost is linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared
from tiltmeter.stats.numba_jit import kernel

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Hashes = NDArray[np.uint64]

# Symbols of the automaton: 0 separates, 1-26 letters, 27-36 digits, then these.
_APOSTROPHE, _LETTER, _IDEOGRAPH, _START = 37, 38, 39, 40
_SYMBOLS = 41


def _classes() -> Bytes:
    classes = np.zeros(256, np.uint8)
    classes[ord("a") : ord("z") + 1] = classes[ord("A") : ord("Z") + 1] = np.arange(1, 27)
    classes[ord("0") : ord("9") + 1] = np.arange(27, 37)
    classes[ord("'")] = _APOSTROPHE
    classes[128:] = _LETTER
    return classes


_CLASSES = _classes()


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts as UTF-8 in one array: text i is `data[offsets[i]:offsets[i + 1]]`; `present` is False where it was None.

    >>> texts = Texts.of(["Hi", None, "é"])
    >>> texts.offsets.tolist(), texts.present.tolist()
    ([0, 2, 2, 4], [True, False, True])
    """

    data: Bytes
    offsets: Ints
    present: NDArray[np.bool_]

    @classmethod
    def of(cls, texts: Sequence[str | None], limit: int | None = None) -> Texts:
        """`limit`: only so many characters of each text, from its beginning."""
        texts = tuple(texts)
        longest = max(map(len, filter(None, texts)), default=0)
        return _encode(texts, None if limit is not None and longest <= limit else limit)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def cut(self, start: int, end: int) -> str:
        """The text between two positions of `data`; what is cut in the middle of a character loses that character."""
        return self.data[start:end].tobytes().decode("utf-8", "ignore")


@shared(8)  # half a dozen instruments read the same texts one after the other
def _encode(texts: tuple[str | None, ...], limit: int | None) -> Texts:
    parts = [b"" if text is None else text[:limit].encode("utf-8", "surrogatepass") for text in texts]
    offsets = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=offsets[1:])
    present = np.array([text is not None for text in texts], bool)
    return Texts(np.frombuffer(b"".join(parts), np.uint8), offsets, present)


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of many texts: those of text i are `offsets[i]:offsets[i + 1]` in `hashes`, `starts` and `ends`.

    >>> texts = Texts.of(["Don’t stop, DON'T!", "好的"])
    >>> words = Words.of(texts)
    >>> words.offsets.tolist(), [texts.cut(a, b) for a, b in zip(words.starts, words.ends)]
    ([0, 3, 5], ['Don’t', 'stop', "DON'T", '好', '的'])
    >>> bool(words.hashes[0] == words.hashes[2])
    True
    """

    hashes: Hashes
    starts: Ints  # positions in `Texts.data`
    ends: Ints
    offsets: Ints

    @staticmethod
    def of(texts: Texts) -> Words:
        return _split_words(texts)

    def without_places(self) -> Words:
        """For what is kept for a run, and only asked how many texts contain a phrase."""
        return Words(self.hashes, self.starts[:0], self.ends[:0], self.offsets)

    def excerpt(self, texts: Texts, first: int, count: int, around: int = 60) -> tuple[int, str]:
        """The text in which a run of words stands, and the run with some bytes of that text on either side."""
        where = int(np.searchsorted(self.offsets, first, "right")) - 1
        low, high = int(texts.offsets[where]), int(texts.offsets[where + 1])
        start, end = int(self.starts[first]), int(self.ends[first + count - 1])
        return where, texts.cut(max(start - around, low), min(end + around, high))

    def texts_with(self, run: Hashes) -> int:
        """How many texts contain these words one after the other.

        >>> words = Words.of(Texts.of(["a b c", "b c a b", "a", "b"]))
        >>> words.texts_with(words.hashes[:2])
        2
        """
        at = np.arange(len(self.hashes) - len(run) + 1)
        for i, word in enumerate(run):
            at = at[self.hashes[at + i] == word]
        text = np.searchsorted(self.offsets, at, "right") - 1
        return len(np.unique(text[at + len(run) <= self.offsets[text + 1]]))

    @property
    def lengths(self) -> Ints:
        return np.diff(self.offsets)

    def text(self, texts: Texts, first: int, count: int) -> str:
        """`count` words from position `first` on, as they are compared: lower case, one space between."""
        spans = zip(self.starts[first : first + count], self.ends[first : first + count], strict=True)
        return " ".join(_fold(texts.cut(int(a), int(b))) for a, b in spans)


@shared()
def _split_words(texts: Texts) -> Words:
    most = (len(texts.data) + len(texts)) // 2 + 1
    hashes, starts, ends = np.empty(most, np.uint64), np.empty(most, np.int64), np.empty(most, np.int64)
    offsets = np.zeros(len(texts) + 1, np.int64)
    count = _split(texts.data, texts.offsets, _CLASSES, hashes, starts, ends, offsets)
    return Words(hashes[:count], starts[:count], ends[:count], offsets)


def _fold(word: str) -> str:
    return "".join(c.lower() if c.isascii() else "'" if c in "‘’" else c for c in word)


def ratio(part: NDArray[np.generic], whole: Ints) -> NDArray[np.float64]:
    """part / whole, NaN where there is no whole.

    >>> ratio(np.array([1, 0]), np.array([4, 0])).tolist()
    [0.25, nan]
    """
    return np.asarray(np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0))


class PhraseMatcher:
    """Fixed phrases, found in any number of texts in one pass over their bytes (Aho-Corasick), at word boundaries.

    Case, punctuation and the kind of apostrophe do not matter. A phrase beginning with `^` counts only as the first
    words of a text. Occurrences may overlap. Source of the automaton: Aho and Corasick, CACM 18 (1975).

    >>> markers = PhraseMatcher(["as an ai", "i can't", "^sorry"])
    >>> markers.counts(Texts.of(["Sorry: as an AI, I can’t. Sorry!", "Saying I can'tankerous"])).tolist()
    [[1, 1, 1], [0, 0, 0]]
    """

    def __init__(self, phrases: Sequence[str]) -> None:
        self.phrases = tuple(phrases)
        for phrase in self.phrases:
            words = phrase.removeprefix("^").split(" ")
            if not all(word.replace("'", "a").isalnum() and word.isascii() and word == word.lower() for word in words):
                raise ValueError(f"{phrase!r} is not lower-case ASCII words with one space between them")

    def counts(self, texts: Texts) -> Ints:
        """Occurrences, one row per text, one column per phrase."""
        return self.counts_and_sentences(texts)[0]

    def contains_any(self, texts: Texts) -> NDArray[np.bool_]:
        """Whether a text has any of the phrases."""
        return np.asarray(self.counts(texts).any(1))

    def counts_and_sentences(self, texts: Texts) -> tuple[Ints, Ints]:
        """Also the number of sentences of each text: stretches with at least one word that end with the text, a line
        break, an ideographic full stop, or `.`, `!`, `?` before white space, a quotation mark or a closing bracket."""
        counts = np.zeros((len(texts), len(self.phrases)), np.int64)
        sentences = np.zeros(len(texts), np.int64)
        _scan(texts.data, texts.offsets, _CLASSES, *self._automaton, counts, sentences)
        return counts, sentences

    @cached_property
    def _automaton(self) -> tuple[NDArray[np.uint32], int, NDArray[np.int32], NDArray[np.int32]]:
        """Next state by state and symbol; the first of the states at which a phrase ends (they are numbered last); the
        phrase that ends at a state, or -1; and the longest proper suffix at which another one ends, or 0."""
        children: list[dict[int, int]] = [{}]
        ends: dict[int, int] = {}
        for number, phrase in enumerate(self.phrases):
            state = 0
            for symbol in _symbols(phrase):
                if symbol not in children[state]:
                    children[state][symbol] = len(children)
                    children.append({})
                state = children[state][symbol]
            if state in ends:
                raise ValueError(f"{phrase!r} is listed twice")
            ends[state] = number
        follow = np.zeros((len(children), _SYMBOLS), np.int32)
        marker = np.full(len(children), -1, np.int32)
        marker[list(ends)] = list(ends.values())
        shorter, back = np.zeros(len(children), np.int32), np.zeros(len(children), np.int32)
        queue, entry_symbol = [0], {0: -1}  # by the symbol that leads to a state
        for state in queue:
            fallback = back[state]
            if state:
                follow[state] = follow[fallback]
                shorter[state] = fallback if marker[fallback] >= 0 else shorter[fallback]
            for symbol, child in children[state].items():
                back[child] = follow[fallback, symbol] if state else 0
                follow[state, symbol] = child
                entry_symbol[child] = symbol
                queue.append(child)
            if entry_symbol[state] == 0:
                follow[state, 0] = state  # any number of separators is one
        accepting = (marker >= 0) | (shorter > 0)
        order = np.argsort(accepting, kind="stable")
        place = np.argsort(order).astype(np.int32)
        return place[follow[order]].astype(np.uint32), int((~accepting).sum()), marker[order], place[shorter[order]]


def _symbols(phrase: str) -> list[int]:
    bare = phrase.removeprefix("^")
    inner = [int(_CLASSES[ord(char)]) for char in bare]
    return [_START] * (bare != phrase) + [0, *inner, 0]


# Positions are unsigned in the kernels: numba then leaves out the test for negative indices, a third of the time.


@kernel
def _wide(data: Bytes, i: np.uint64, end: np.uint64) -> int:
    """Symbol at a byte from 128 on, times 4, plus its width. A call costs more than the work: not for ASCII."""
    one, two = np.uint64(1), np.uint64(2)
    b = data[i]
    if b == 0xC2 and i + one < end:  # U+0080 to U+00BF: controls, no-break space, marks
        return 2
    if i + two < end:
        c, d = data[i + one], data[i + two]
        if b == 0xE2 and (c == 0x80 or c == 0x81):  # U+2000 to U+207F: dashes, quotes, bullets, ellipsis
            return 4 * 37 + 3 if c == 0x80 and (d == 0x98 or d == 0x99) else 3
        if b == 0xE3 and c == 0x80:  # U+3000 to U+303F: ideographic marks
            return 3
        if b == 0xEF and c == 0xBC and (d <= 0x8F or 0x9A <= d <= 0xA0):  # full-width marks
            return 3
        if 0xE3 <= b <= 0xE9:
            return 4 * 39 + 3
    return 4 * 38 + 1


@kernel
def _joins(data: Bytes, i: np.uint64, end: np.uint64, classes: Bytes) -> bool:
    """Whether an apostrophe before position i is inside a word, given that one runs up to it."""
    if i >= end:
        return False
    kind = int(classes[data[i]])
    if kind == 38:
        kind = _wide(data, i, end) >> 2
    return kind != 0 and kind != 37 and kind != 39


@kernel
def _split(
    data: Bytes, offsets: Ints, classes: Bytes, hashes: Hashes, starts: Ints, ends: Ints, word_offsets: Ints
) -> int:
    one, count = np.uint64(1), np.uint64(0)
    prime, seed = np.uint64(0x100000001B3), np.uint64(0xCBF29CE484222325)
    mix, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    for row in range(len(offsets) - 1):
        i, end = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        inside = False
        h, start = seed, i
        while i < end:
            value, width = classes[data[i]], one
            if value >= 37:
                both = _wide(data, i, end) if value == 38 else 4 * 37 + 1
                kind, width = both >> 2, np.uint64(both & 3)
                value = data[i]
                if kind == 0 or (kind == 37 and not (inside and _joins(data, i + width, end, classes))):
                    value = np.uint8(0)
                elif kind == 37:
                    value = np.uint8(37)
                elif kind == 39:
                    if inside:
                        starts[count], ends[count], hashes[count] = start, i, h
                        count += one
                    h = ((seed ^ np.uint64(value)) * prime ^ np.uint64(data[i + one])) * prime
                    h = (h ^ np.uint64(data[i + one + one])) * prime
                    starts[count], ends[count], hashes[count] = i, i + width, h
                    count += one
                    inside, value = False, np.uint8(0)
            # Stored at every byte and kept at the end of a word: a branch here would be mispredicted at most words.
            starts[count], ends[count], hashes[count] = start, i, h
            word = value != 0
            count += np.uint64(inside & (not word))
            h = (h ^ np.uint64(value)) * prime if word else seed
            i += width
            start = start if word else i
            inside = word
        if inside:
            starts[count], ends[count], hashes[count] = start, end, h
            count += one
        word_offsets[row + 1] = count
    for k in range(count):
        hashes[k] = (hashes[k] ^ (hashes[k] >> shift)) * mix
    return int(count)


@kernel
def _scan(
    data: Bytes,
    offsets: Ints,
    classes: Bytes,
    follow: NDArray[np.uint32],
    first: int,
    marker: NDArray[np.int32],
    shorter: NDArray[np.int32],
    counts: Ints,
    sentences: Ints,
) -> None:
    for row in range(len(offsets) - 1):
        i, end = np.uint64(offsets[row]), np.uint64(offsets[row + 1])
        state = follow[follow[0, 40], 0]
        inside = False  # a word
        has_word = False  # this sentence has a word
        while i < end:
            b = data[i]
            kind, width, alone = classes[b], np.uint64(1), False
            if kind >= 37:
                if kind == 38:
                    both = _wide(data, i, end)
                    kind, width = np.uint8(both >> 2), np.uint64(both & 3)
                alone = kind == 39
                if alone or (kind == 37 and not (inside and _joins(data, i + width, end, classes))):
                    kind = np.uint8(0)
            state = follow[state, kind]
            if state >= first and inside:
                hit = int(state)
                while hit:
                    if marker[hit] >= 0:
                        counts[row, marker[hit]] += 1
                    hit = int(shorter[hit])
            inside = kind != 0
            if alone:
                state = follow[0, 0]  # a word that no phrase has stood here
            has_word = has_word | inside | alone
            if (b == 10 or b == 46 or b == 33 or b == 63 or b > 127) and has_word and _ends_sentence(data, i, end):
                sentences[row] += 1
                has_word = False
            i += width
        sentences[row] += has_word
        if inside:
            hit = int(follow[state, 0])
            while hit:
                if marker[hit] >= 0:
                    counts[row, marker[hit]] += 1
                hit = int(shorter[hit])


@kernel
def _ends_sentence(data: Bytes, i: np.uint64, end: np.uint64) -> bool:
    one, two = np.uint64(1), np.uint64(2)
    b = data[i]
    if b == 10:
        return True
    if b == 46 or b == 33 or b == 63:
        if i + one >= end:
            return True
        c = data[i + one]
        if c == 0xE2 and i + two + one < end and data[i + two] == 0x80:
            return bool(data[i + two + one] == 0x99 or data[i + two + one] == 0x9D)  # closing curly quotes
        return bool(c <= 32 or c == 34 or c == 39 or c == 41 or c == 93)
    if i + two >= end:
        return False
    c, d = data[i + one], data[i + two]
    return bool((b == 0xE3 and c == 0x80 and d == 0x82) or (b == 0xEF and c == 0xBC and (d == 0x81 or d == 0x9F)))
