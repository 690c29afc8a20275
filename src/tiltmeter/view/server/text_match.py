"""What a query says about texts: a literal or a regular expression, which RE2 runs in time linear in the text.

`trigrams` are three bytes that every matching text holds, in lower case: a filter of blocks of texts looks for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from re import _constants as sre  # type: ignore[attr-defined]
from re import _parser as sre_parser  # type: ignore[attr-defined]
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Where = Literal["completion", "prompt", "both"]

LONGEST = 200  # characters of a literal or an expression
MOST_HITS = 500  # that are marked in one text
#: Letters that other alphabets have a form of, as the Kelvin sign: no trigram with one is looked for without case.
_FOREIGN_FORMS = frozenset(b"ks")


@dataclass(frozen=True)
class TextMatch:
    """A text to find. Raises `ValueError` for an expression that RE2 does not take.

    >>> match = TextMatch.of("exit\\\\(\\\\d+\\\\)", regex=True)
    >>> match.rows(pa.array(["sys.exit(0)", "exit()", None])).tolist()
    [True, False, False]
    >>> sorted(match.trigrams())
    [b'exi', b'it(', b'xit']
    """

    text: str
    regex: bool = False
    ignore_case: bool = False
    where: Where = "both"

    @classmethod
    def of(cls, text: str, *, regex: bool = False, ignore_case: bool = False, where: Where = "both") -> TextMatch:
        if not text or len(text) > LONGEST:
            raise ValueError(f"a text to find has 1 to {LONGEST} characters")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("a text to find holds half of a character, which no text is searched for") from error
        match = cls(text, regex, ignore_case, where)
        try:
            match.rows(pa.array([""]))
        except pa.ArrowException as error:
            raise ValueError(f"{text[:60]!r} is no regular expression: {str(error)[:100]}") from None
        return match

    @property
    def columns(self) -> tuple[str, ...]:
        return ("prompt", "completion") if self.where == "both" else (self.where,)

    def rows(self, texts: pa.Array | pa.ChunkedArray) -> NDArray[np.bool_]:
        """Which of the texts match."""
        find = pc.match_substring_regex if self.regex else pc.match_substring
        hits = find(texts, self.text, ignore_case=self.ignore_case)
        return np.asarray(pc.fill_null(hits, False).to_numpy(zero_copy_only=False), bool)

    def spans(self, text: str, most: int = MOST_HITS) -> list[tuple[int, int]]:
        """Where it stands in a text, by characters; at most so many places.

        >>> TextMatch.of("é.", regex=True).spans("aé1 é2")
        [(1, 3), (4, 6)]
        """
        raw = text.encode("utf-8", "surrogatepass")
        kind = pa.binary() if any("\ud800" <= one <= "\udfff" for one in text) else pa.string()
        places: list[tuple[int, int]] = []
        at = 0
        while len(places) < most and at < len(raw):
            rest = pa.array([raw[at:]], pa.binary()).cast(kind)
            start = pc.find_substring_regex(rest, self._grouped, ignore_case=self.ignore_case)[0].as_py()
            if start is None or start < 0:
                break
            begin = at + start
            length = self._length(raw[begin:], kind)
            if length:
                places.append((_characters(raw[:begin]), _characters(raw[: begin + length])))
            at = begin + max(length, 1)
            while at < len(raw) and raw[at] & 0xC0 == 0x80:  # within a character
                at += 1
            if self.regex and ("^" in self.text or r"\A" in self.text):
                break  # what comes after the first would be searched from a beginning that is none
        return places

    @property
    def _grouped(self) -> str:
        """As an expression of RE2 without groups that capture, which Arrow wants to be named."""
        if not self.regex:
            return re.escape(self.text)
        return re.sub(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\((?!\?)", lambda part: part[1] or "(?:", self.text)

    def _length(self, rest: bytes, kind: pa.DataType) -> int:
        """Bytes of the match at the beginning of a text."""
        if not self.regex and not self.ignore_case:
            return len(self.text.encode())
        flags = "(?i)" if self.ignore_case else ""
        texts = pa.array([rest], pa.binary()).cast(kind)
        try:
            parts = pc.extract_regex(texts, f"{flags}^(?P<the_hit>{self._grouped})")[0].as_py()
        except pa.ArrowException:
            return 0
        hit = "" if parts is None else parts["the_hit"]
        return len(hit.encode()) if isinstance(hit, str) else len(hit)

    def trigrams(self) -> set[bytes]:
        """What every matching text holds; empty if nothing is known of it."""
        runs = _required(self.text) if self.regex else [self.text]
        pieces = {
            raw[at : at + 3] for run in runs for raw in [run.encode("utf-8", "replace")] for at in range(len(raw) - 2)
        }
        loose = self.ignore_case or (self.regex and "(?" in self.text)  # a flag inside may ignore case
        if loose:
            pieces = {one for one in pieces if max(one) < 128 and not _FOREIGN_FORMS & set(one.lower())}
        return {one.lower() for one in pieces}


def _characters(raw: bytes) -> int:
    try:
        return len(raw.decode("utf-8", "surrogatepass"))
    except UnicodeDecodeError:
        return len(raw.decode("utf-8", "replace"))


def _required(expression: str) -> list[str]:
    """Runs of letters that every match of an expression has; none where Python reads it differently."""
    try:
        parsed = sre_parser.parse(expression)
    except (re.error, RecursionError, OverflowError):
        return []
    return ["".join(run) for run in _runs(parsed)]


def _runs(parsed: Sequence[Any]) -> Iterator[list[str]]:
    run: list[str] = []
    for kind, value in parsed:
        if kind is sre.LITERAL:
            run.append(chr(value))
            continue
        if run:
            yield run
            run = []
        if kind is sre.SUBPATTERN:
            yield from _runs(value[3])
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT) and value[0] >= 1:
            yield from _runs(value[2])
    if run:
        yield run
