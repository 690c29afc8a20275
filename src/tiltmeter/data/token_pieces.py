"""The pieces of text that a tokenizer's ids stand for, and which part of a completion each of its tokens is.

A token is shown with its numbers only if the pieces, one after the other, are the completion letter for letter: numbers
beside the wrong words would be worse than none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tiltmeter.data.records import Ints

QUOTED = 40  # characters of a piece in a sentence


class TokenPieces(NamedTuple):
    """By id: the bytes of UTF-8 that a token adds to the text, and whether it is a mark that decoding leaves out."""

    texts: Sequence[bytes]
    special: Sequence[bool]


class TokenMismatchError(ValueError):
    """The tokens are not the text, in a sentence that says where."""


def token_widths(text: str, tokens: Sequence[int], pieces: TokenPieces) -> list[int]:
    """How many characters of the text belong to each token, counted as JavaScript counts. Raises `TokenMismatchError`.

    A character that is spread over several tokens belongs to the first of them. A space at the front of a piece may be
    missing in the text, as some tokenizers leave it out at the start of a text or before a full stop.

    >>> pieces = TokenPieces([b"The", b" sum", b" is", b" 4", b"<end>"], [False] * 4 + [True])
    >>> token_widths("The sum is 4", [0, 1, 2, 3, 4], pieces)
    [3, 4, 3, 2, 0]
    >>> token_widths("The sum was 4", [0, 1, 2, 3, 4], pieces)
    Traceback (most recent call last):
    tiltmeter.data.token_pieces.TokenMismatchError: token 3, “ is”, does not stand at character 8 of the text
    """
    raw = text.encode("utf-8", "surrogatepass")
    ends = np.empty(len(tokens), np.int64)
    at = 0
    for place, token in enumerate(tokens):
        if not 0 <= token < len(pieces.texts):
            raise TokenMismatchError(f"token {place + 1} has the id {token}, which the stored tokenizer does not have")
        piece = pieces.texts[token]
        if raw.startswith(piece, at):
            at += len(piece)
        elif not pieces.special[token]:
            if piece[:1] != b" " or not raw.startswith(piece[1:], at):
                raise TokenMismatchError(_describe(place, piece, raw[:at]))
            at += len(piece) - 1
        ends[place] = at
    if raw[at:].strip():
        raise TokenMismatchError(f"the text goes on for {len(raw) - at} bytes behind its last token")
    units = _units_before(raw)
    widths: list[int] = np.diff(units[ends], prepend=0).tolist()
    return widths


def part_widths(text: str, tokens: Sequence[int], pieces: TokenPieces) -> list[int]:
    """The same for a text that is part of what the tokens say, as the words of a turn are beside its reasoning, its
    calls and the marks of a chat template. It must stand there once, letter for letter. Raises `TokenMismatchError`.

    >>> pieces = TokenPieces([b"<think>", b"hm", b"</think>\\n", b"It is", b" 4", b"<end>"], [False] * 5 + [True])
    >>> part_widths("It is 4", [0, 1, 2, 3, 4, 5], pieces)
    [0, 0, 0, 5, 2, 0]
    """
    raw = text.encode("utf-8", "surrogatepass")
    if any(not 0 <= token < len(pieces.texts) for token in tokens):
        raise TokenMismatchError("a token has an id which the stored tokenizer does not have")
    parts = [pieces.texts[token] for token in tokens]
    whole = b"".join(parts)
    start = whole.find(raw) if raw else -1
    if start < 0:
        raise TokenMismatchError("its words do not stand in its tokens")
    if whole.find(raw, start + 1) >= 0:
        raise TokenMismatchError("its words stand in its tokens more than once")
    ends = np.clip(np.cumsum([len(part) for part in parts]) - start, 0, len(raw))
    widths: list[int] = np.diff(_units_before(raw)[ends], prepend=0).tolist()
    return widths


def _describe(place: int, piece: bytes, before: bytes) -> str:
    character = len(before.decode("utf-8", "replace")) + 1
    shown = piece.decode("utf-8", "replace")[:QUOTED]
    return f"token {place + 1}, “{shown}”, does not stand at character {character} of the text"


def _units_before(raw: bytes) -> Ints:
    """By byte: the UTF-16 units of all characters that begin before it."""
    data = np.frombuffer(raw, np.uint8)
    units = np.where(data & 0xC0 == 0x80, 0, np.where(data >= 0xF0, 2, 1))
    return np.concatenate(([0], np.cumsum(units))).astype(np.int64)
