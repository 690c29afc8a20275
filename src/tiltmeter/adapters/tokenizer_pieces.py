"""The bytes that each id of a tokenizer stands for, read once when a run opens, so that tokens can be shown as text.

Tokenizers of Hugging Face keep pieces in an alphabet of their own: byte-level ones write each byte as one printable
letter, others write a space as `▁` and a lone byte as `<0x0A>`. What is stored are the plain bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from tiltmeter.data.token_pieces import TokenPieces
from tiltmeter.rundir.reading_room.pieces import MOST_PIECES

SPACE_MARK = "▁"
_LONE_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def tokenizer_pieces(tokenizer: Any) -> TokenPieces:
    """The pieces of a tokenizer of Hugging Face, or `TokenPieces` as they are. Raises for others."""
    if isinstance(tokenizer, TokenPieces):
        return tokenizer
    size = len(tokenizer)
    if not 0 < size <= MOST_PIECES:
        raise ValueError(f"a tokenizer of {size} ids")
    words: list[str | None] = tokenizer.convert_ids_to_tokens(list(range(size)))
    texts = [b"" if word is None else part for word, part in zip(words, _decode_all(tokenizer, words), strict=True)]
    special = [False] * size
    for token, mark in tokenizer.added_tokens_decoder.items():
        if 0 <= token < size:
            texts[token], special[token] = str(mark.content).encode("utf-8", "replace"), bool(mark.special)
    for token in tokenizer.all_special_ids:
        if 0 <= token < size:
            special[token] = True
    return TokenPieces(texts, special)


def _decode_all(tokenizer: Any, words: list[str | None]) -> Iterator[bytes]:
    """Each word of the vocabulary as bytes, by how the tokenizer puts words together."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:  # a slow one: SentencePiece, or words that are told apart by spaces
        kinds = {"Metaspace"} if any(SPACE_MARK in (word or "") for word in words) else set()
    else:
        kinds = _decoder_kinds(json.loads(backend.to_str()).get("decoder"))
    if "ByteLevel" in kinds:
        alphabet = byte_alphabet()
        return (_from_alphabet(word or "", alphabet) for word in words)
    if kinds & {"Metaspace", "Replace", "ByteFallback"}:
        return (_from_marks(word or "") for word in words)
    if "WordPiece" in kinds:
        return ((word[2:] if word.startswith("##") else f" {word}").encode() for word in (w or "" for w in words))
    if kinds:
        raise ValueError(f"its decoder is not one known here: {', '.join(sorted(kinds))}")
    return (f" {word}".encode("utf-8", "replace") for word in (w or "" for w in words))


def _decoder_kinds(decoder: Any) -> set[str]:
    """The names of a decoder's parts."""
    if not isinstance(decoder, dict):
        return set()
    if decoder.get("type") == "Sequence":
        return {kind for part in decoder.get("decoders", ()) for kind in _decoder_kinds(part)}
    return {str(decoder.get("type"))}


def byte_alphabet() -> dict[str, int]:
    """The byte that each letter of a byte-level vocabulary stands for: printable ones themselves, the others shifted.

    >>> alphabet = byte_alphabet()
    >>> alphabet["a"], alphabet["Ġ"], len(alphabet)
    (97, 32, 256)
    """
    printable = [byte for byte in range(256) if 0x21 <= byte <= 0x7E or (0xA1 <= byte <= 0xFF and byte != 0xAD)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def _from_alphabet(word: str, alphabet: dict[str, int]) -> bytes:
    if all(letter in alphabet for letter in word):
        return bytes(alphabet[letter] for letter in word)
    return word.encode("utf-8", "replace")  # an added token, which is kept as it is written


def _from_marks(word: str) -> bytes:
    if match := _LONE_BYTE.fullmatch(word):
        return bytes([int(match[1], 16)])
    return word.replace(SPACE_MARK, " ").encode("utf-8", "replace")
