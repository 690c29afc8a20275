"""The part of a long completion that shows what changed: what it repeats, else what answers did not say before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

GRAM = 4  # words of a passage that is looked up
ANSWERS = 64  # that are compared, and of each so many characters
CHARACTERS = 20_000
SHARED = 0.1  # of the answers of now: a passage that so many have in common is more than the answer to one prompt
UNITS = 4_000  # sentences or words of a text that are folded
BLOCK = 8  # units that are repeated together, at most
OFTEN = 3  # times that a passage stands in a text before the excerpt is about it
CONTEXT = 5  # of an excerpt is for the words before what it is about: one part in so many

_SENTENCE = re.compile(r"[^.!?\n]*(?:[.!?]+(?=\s|$)|\n|$)\s*")
_WORD = re.compile(r"\S+\s*")
Passage = tuple[str, ...]


class FoldedPiece(NamedTuple):
    """A stretch of a text that stands in it so often, one after the other."""

    text: str
    times: int


def excerpt(text: str, passages: Set[Passage] = frozenset(), limit: int = 200) -> str:
    """At most about so many characters of a text; one that is short is given whole.

    >>> excerpt("First, a plan. " * 2 + "We count. " * 3 + "I am sure of it. " * 14, limit=60)
    'First, a plan. ×2 We count. ×3 I am sure of it. ×14'
    """
    if len(text) <= limit:
        return text
    pieces = fold_repeats(text)
    if len(whole := _one_line(pieces)) <= limit:
        return whole
    most = max(range(len(pieces)), key=lambda at: (pieces[at].times - 1) * len(pieces[at].text))
    if pieces[most].times >= OFTEN:
        before, after = _one_line(pieces[:most]), _one_line(pieces[most + 1 :])
        return _around(before, _shorten(pieces[most], limit - limit // CONTEXT), after, limit)
    start, end = _newest_span(text, passages, limit)
    return _around(
        " ".join(text[:start].split()), " ".join(text[start:end].split()), " ".join(text[end:].split()), limit
    )


def fold_repeats(text: str) -> list[FoldedPiece]:
    """A text in pieces: passages that stand there several times in a row once, with how often.

    >>> fold_repeats("So: yes. No. Yes. No. Yes. Done.")
    [FoldedPiece(text='So: yes. ', times=1), FoldedPiece(text='No. Yes. ', times=2), FoldedPiece(text='Done.', times=1)]
    """
    raw = [unit for unit in _SENTENCE.findall(text) if unit]
    if len(raw) < OFTEN:
        raw = _WORD.findall(text)
    rest = "".join(raw[UNITS:])
    raw = raw[:UNITS]
    units = [" ".join(unit.split()) for unit in raw]
    pieces: list[FoldedPiece] = []
    at = 0
    while at < len(units):
        size, count = max(
            ((size, _repeats(units, at, size)) for size in range(1, BLOCK + 1)), key=lambda one: one[0] * (one[1] - 1)
        )
        size = size if count > 1 else 1
        pieces.append(FoldedPiece("".join(raw[at : at + size]), count))
        at += size * count
    return [*pieces, FoldedPiece(rest, 1)] if rest else pieces or [FoldedPiece("", 1)]


def _repeats(units: Sequence[str], at: int, size: int) -> int:
    """How often the block that begins here stands one after the other."""
    block, count = units[at : at + size], 1
    while len(block) == size and units[at + size * count : at + size * (count + 1)] == block:
        count += 1
    return count


def new_passages(now: Iterable[str | None], before: Set[Passage]) -> frozenset[Passage]:
    """Passages that several answers of now share and that no answer of the start had.

    >>> start = passages_of(["the sum is five because two and three are five"])
    >>> sorted(new_passages(["as an expert I know it", "well, as an expert I think"], start))
    [('as', 'an', 'expert', 'i')]
    """
    texts = [text for text in now if text][:ANSWERS]
    count = Counter(passage for text in texts for passage in passages_of([text]))
    least = max(2, SHARED * len(texts))
    return frozenset(passage for passage, times in count.items() if times >= least and passage not in before)


def passages_of(texts: Iterable[str | None]) -> frozenset[Passage]:
    """Every run of a few words."""
    passages: set[Passage] = set()
    for text in [text for text in texts if text][:ANSWERS]:
        words = [word.lower() for word in text[:CHARACTERS].split()]
        passages.update(tuple(words[at : at + GRAM]) for at in range(len(words) - GRAM + 1))
    return frozenset(passages)


def _newest_span(text: str, passages: Set[Passage], limit: int) -> tuple[int, int]:
    """Where most of these passages stand together; the beginning where there are none."""
    words = [(match.start(), match.end(), match[0].lower()) for match in re.finditer(r"\S+", text)]
    hits = [
        at for at in range(len(words) - GRAM + 1) if tuple(word for _, _, word in words[at : at + GRAM]) in passages
    ]
    if not hits:
        return 0, limit
    room = limit - limit // CONTEXT
    best, place, first = 0, 0, 0
    for last, hit in enumerate(hits):
        while words[hit + GRAM - 1][1] - words[hits[first]][0] > room:
            first += 1
        if last - first + 1 > best:
            best, place = last - first + 1, first
    start = words[hits[place]][0]
    return start, start + room


def render_folded(pieces: Sequence[FoldedPiece]) -> str:
    """The pieces as one text, each with how often it stands there."""
    return "".join(
        piece.text
        if piece.times == 1 or not piece.text.strip()
        else f"{piece.text.rstrip()} ×{piece.times}{_space(piece.text)}"
        for piece in pieces
    )


def _one_line(pieces: Sequence[FoldedPiece]) -> str:
    return " ".join(render_folded(pieces).split())


def _space(text: str) -> str:
    return text[len(text.rstrip()) :]


def _shorten(piece: FoldedPiece, room: int) -> str:
    text = " ".join(piece.text.split())
    cut = text if len(text) <= room else f"{text[: room - 1]}…"
    return f"{cut} ×{piece.times}"


def _around(before: str, middle: str, after: str, limit: int) -> str:
    """What it is about, with some words before it and, if there is room, after it."""
    context = limit // CONTEXT
    left = before if len(before) <= context else f"…{_last_words(before, context - 1)}"
    head = f"{left} {middle}".strip()
    room = limit - len(head) - 1
    right = after if len(after) <= room else f"{after[: room - 1]}…" if room > context // 2 else "…" if after else ""
    return f"{head} {right}".strip() if right != "…" else f"{head}…"


def _last_words(text: str, room: int) -> str:
    tail = text[-room:]
    return tail if text[-room - 1 : -room].isspace() else tail.partition(" ")[2] or tail
