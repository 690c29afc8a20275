"""Words, fixed phrases and sentences of many texts against slow readings of the same definitions."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from tiltmeter.stats.ngrams import repeats
from tiltmeter.stats.word_hashes import PhraseMatcher, Texts, Words, ratio

ALPHABET = [*"aabbcdez AZ09''  ..,!?\n\t-_\x00é’‘—“”…\xa0好的か。，！\ud800ﬀ😀）："]


def drawn(rng: np.random.Generator, most: int) -> str:
    return "".join(ALPHABET[k] for k in rng.integers(0, len(ALPHABET), rng.integers(0, most)))


def kind(char: str) -> str:
    """The definition of the module, one character at a time."""
    code = ord(char)
    if char in "'‘’":
        return "apostrophe"
    if code < 128:
        return "letter" if char.isalnum() else "gap"
    marks = ((0x80, 0xBF), (0x2000, 0x207F), (0x3000, 0x303F), (0xFF00, 0xFF0F), (0xFF1A, 0xFF20))
    if any(low <= code <= high for low, high in marks):
        return "gap"
    return "alone" if 0x3040 <= code <= 0x9FFF else "letter"


def split(text: str) -> list[str]:
    """Words, lower-cased within ASCII, with straight apostrophes."""
    words: list[str] = []
    inside = False
    for place, char in enumerate(text):
        what = kind(char)
        if what == "apostrophe":
            joins = inside and place + 1 < len(text) and kind(text[place + 1]) == "letter"
            what, char = ("letter", "'") if joins else ("gap", char)
        if what == "alone":
            words.append(char)
        elif what == "letter":
            folded = char.lower() if char.isascii() else char
            if inside:
                words[-1] += folded
            else:
                words.append(folded)
        inside = what == "letter"
    return words


def sentences(text: str) -> int:
    count, worded = 0, False
    for place, char in enumerate(text):
        after = text[place + 1 : place + 2]
        ends = char in "\n。！？" or (char in ".!?" and (after == "" or after in "\"')]’”" or ord(after) <= 32))
        if ends:
            count += worded
            worded = False
        worded = worded or kind(char) in ("letter", "alone")
    return count + worded


def test_words_are_those_of_a_slow_reading() -> None:
    rng = np.random.default_rng(0)
    for _ in range(600):
        given = [drawn(rng, 40) for _ in range(rng.integers(0, 5))]
        texts = Texts.of(given)
        words = Words.of(texts)
        expected = [split(text) for text in given]
        assert words.lengths.tolist() == [len(part) for part in expected]
        flat = [word for part in expected for word in part]
        names: dict[str, int] = {}
        for word, value in zip(flat, words.hashes.tolist(), strict=True):
            assert names.setdefault(word, value) == value
        assert len(set(names.values())) == len(names)
        for row, text in enumerate(given):
            for place in range(words.offsets[row], words.offsets[row + 1]):
                start, end = words.starts[place], words.ends[place]
                raw = texts.data[start:end].tobytes().decode("utf-8", "surrogatepass")
                assert raw in text
                folded = "".join(c.lower() if c.isascii() else "'" if c in "‘’" else c for c in raw)
                assert folded == flat[place]


def test_the_words_of_one_text_do_not_depend_on_its_neighbours() -> None:
    rng = np.random.default_rng(1)
    given = [drawn(rng, 60) for _ in range(50)]
    together = Words.of(Texts.of(given))
    for row, text in enumerate(given):
        alone = Words.of(Texts.of([text]))
        assert alone.hashes.tolist() == together.hashes[together.offsets[row] : together.offsets[row + 1]].tolist()


def test_markers_count_what_a_regular_expression_finds() -> None:
    rng = np.random.default_rng(2)
    vocabulary = ["a", "b", "ab", "a'b", "z", "aa", "0"]
    found = 0
    for _ in range(600):
        phrases = {" ".join(rng.choice(vocabulary, rng.integers(1, 4))) for _ in range(rng.integers(1, 6))}
        listed = sorted(phrases | {"^" + phrase for phrase in phrases if rng.random() < 0.3})
        given = [
            "".join(
                str(rng.choice(vocabulary)) + str(rng.choice([" ", "  ", ", ", "\n", "—", "’", "'", "好", ". "]))
                for _ in range(rng.integers(0, 12))
            )
            for _ in range(3)
        ]
        counts = PhraseMatcher(listed).counts(Texts.of(given))
        for row, text in enumerate(given):
            flat = " " + " ".join(split(text)) + " "
            for column, phrase in enumerate(listed):
                bare = phrase.removeprefix("^")
                if bare != phrase:
                    expected = int(flat.startswith(f" {bare} "))
                else:
                    expected = len(re.findall(f"(?= {re.escape(bare)} )", flat))
                assert counts[row, column] == expected, (text, phrase)
                found += expected
    assert found > 500


def test_sentences_are_those_of_a_slow_reading() -> None:
    rng = np.random.default_rng(3)
    given = [drawn(rng, 50) for _ in range(600)]
    _, counted = PhraseMatcher(["a"]).counts_and_sentences(Texts.of(given))
    for text, count in zip(given, counted.tolist(), strict=True):
        assert count == sentences(text), repr(text)


def test_sentences_of_ordinary_text() -> None:
    texts = [
        "One. Two! Three?",
        "It is 3.14, see p. 2.",
        "“Really?” she said.\n\n- item\n- item",
        "",
        "...",
        "好。好！",
    ]
    _, counted = PhraseMatcher(["a"]).counts_and_sentences(Texts.of(texts))
    assert counted.tolist() == [3, 2, 4, 0, 0, 2]


def test_phrases_inside_other_phrases_all_count() -> None:
    markers = PhraseMatcher(["i", "i think", "think", "think so", "^i think so", "so"])
    assert markers.counts(Texts.of(["I think so. I THINK, so!"])).tolist() == [[2, 2, 2, 2, 1, 2]]


def test_a_phrase_that_could_never_be_found_is_refused() -> None:
    for wrong in ("", "Upper", "two  spaces", "comma,", "é", " lead"):
        with pytest.raises(ValueError, match="lower-case"):
            PhraseMatcher([wrong])
    with pytest.raises(ValueError, match="twice"):
        PhraseMatcher(["a", "a"]).counts(Texts.of([]))


def test_repeats_equal_a_counter() -> None:
    rng = np.random.default_rng(4)
    for _ in range(500):
        order = int(rng.integers(1, 5))
        given = [" ".join(rng.choice(list("abc"), rng.integers(0, 30))) for _ in range(rng.integers(0, 4))]
        split = Words.of(Texts.of(given))
        again, total = repeats(split.hashes, split.offsets, order)
        for row, text in enumerate(given):
            words = text.split()
            grams = Counter(tuple(words[k : k + order]) for k in range(len(words) - order + 1))
            assert total[row] == sum(grams.values())
            assert again[row] == sum(grams.values()) - len(grams)


def test_none_is_unknown_and_a_limit_counts_characters() -> None:
    texts = Texts.of(["好好好", None, ""], limit=2)
    assert texts.offsets.tolist() == [0, 6, 6, 6]
    assert texts.present.tolist() == [True, False, True]
    assert texts.cut(1, 6) == "好"


def test_the_ratio_of_nothing_is_unknown() -> None:
    with np.errstate(all="raise"):
        assert np.isnan(ratio(np.zeros(2), np.array([0, 0]))).all()
