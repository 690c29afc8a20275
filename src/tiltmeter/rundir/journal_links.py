"""The chain's values: what a line of the journal adds to them, and what it states of them.

A line's value is the SHA-256 of the value before it and of the line's own text, without what it states of the chain. A
file begins with the run's id, its own name and the value that the file before it ended with. So a line that is changed,
removed, added or moved is seen at the next line that states its value, also if that line itself states none: those of
an older version are covered by the first line of a newer one.

Anybody can compute these values. The signature is by a key that the monitor's user keeps outside of the run directory.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.run_path import open_file
from tiltmeter.rundir.signing import make_token, read_token
from tiltmeter.rundir.store import RunDirectory

KEY = "chain-key"  # kind of token
STATED_BYTES = len(',"chain":"","sign":""') + 64 + 48  # that the chain adds to a line

LINE_BYTES = 4 << 20  # of a commit; an ordinary one has a few kB
LONGEST = LINE_BYTES + 256  # with what it states of the chain, its checksum and its line break
_TAIL_BYTES = 1 << 16  # in which the last line mostly is

_CRC = len(',"crc":"00000000"}')
_STATED = re.compile(rb',"chain":"([0-9a-f]{64})"(?:,"sign":"([0-9a-f]{16})([0-9a-f]{32})")?$')

log = logging.getLogger("tiltmeter")


class StatedLink(NamedTuple):
    """A line as the chain sees it: its text, and the value, key and signature that it states; empty: none."""

    text: bytes
    value: bytes
    signer: str
    signature: str


def file_seed(run: str, name: str, before: bytes) -> bytes:
    """The value that the first line of a file is added to."""
    return hashlib.sha256(f"tiltmeter journal\0{run}\0{name}\0".encode("utf-8", "surrogatepass") + before).digest()


def next_value(value: bytes, text: bytes) -> bytes:
    """The value after a line."""
    whole = hashlib.sha256(value)
    whole.update(text)
    return whole.digest()


def parse_link(line: bytes) -> StatedLink | None:
    """What a line states, its line break included; None if it is torn or damaged.

    >>> parse_link(b'{"a":1}'), parse_link(b'{"a":1,"crc":"00000000"}')
    (None, None)
    """
    text = line[: -_CRC - 1]
    if line[-_CRC - 1 :] != b',"crc":"%08x"}\n' % zlib.crc32(b"}", zlib.crc32(text)):
        return None
    match = _STATED.search(text, max(0, len(text) - STATED_BYTES))
    if match is None:
        return StatedLink(text, b"", "", "")
    signer, signature = (match[2] or b"").decode(), (match[3] or b"").decode()
    return StatedLink(text[: match.start()], bytes.fromhex(match[1].decode()), signer, signature)


class SigningKey:
    """The key of one user for one run."""

    def __init__(self, token: bytes) -> None:
        self._secret = hashlib.sha256(b"journal chain" + token).digest()
        self.name = hashlib.blake2b(b"name", key=self._secret, digest_size=8).hexdigest()

    def sign(self, value: bytes) -> str:
        return hashlib.blake2b(value, key=self._secret, digest_size=16).hexdigest()


def make_key(run: RunDirectory) -> SigningKey | None:
    """The key to sign with, made if there is none yet; None where it cannot be kept: nothing is signed then."""
    try:
        return SigningKey(make_token(run, KEY))
    except (AttachError, StoreError, OSError) as error:
        log.info("the journal is not signed: %s", error)
        return None


def read_key(run: RunDirectory) -> SigningKey | None:
    """The key to check with; None for anybody but the user whose monitor wrote the run, on that machine."""
    try:
        return SigningKey(read_token(run, KEY))
    except (AttachError, StoreError, OSError):
        return None


def run_name_in_chain(run: RunDirectory) -> str:
    """The run's id; empty for one that has none."""
    name = run.identity().get("id")
    return name if isinstance(name, str) else ""


@dataclass
class ChainEnd:
    """Where the chain of a journal ends while a monitor writes it."""

    run: str  # its id
    key: SigningKey | None
    value: bytes = b""

    def extend(self, text: bytes) -> bytes:
        """Add a line; returns what it states. If it cannot be written, the chain is looked up again in the files."""
        self.value = next_value(self.value, text)
        stated = b',"chain":"%b"' % self.value.hex().encode()
        if self.key is None:
            return stated
        return stated + b',"sign":"%b%b"' % (self.key.name.encode(), self.key.sign(self.value).encode())

    def go_on(self, files: Sequence[Path]) -> None:
        """Stand at the end of these files, in order; the next line is written to the last of them."""
        name = files[-1].name
        for path in reversed(files):
            last = _last_link(path)
            if last is not None and not last.value:
                self.value = _computed_end(files, self.run)  # an older version wrote it
                return
            if last is not None:
                self.value = last.value if path.name == name else file_seed(self.run, name, last.value)
                return
        self.value = file_seed(self.run, name, b"")


def whole_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines from here on that have an end. One that is too long comes in pieces, of which none is a link."""
    while line := file.readline(LONGEST):
        if not line.endswith(b"\n") and len(line) < LONGEST:
            return  # still being written, or torn for ever
        yield line


def _last_link(path: Path) -> StatedLink | None:
    """The last sound line of a file; None without one."""
    with os.fdopen(open_file(path), "rb") as file:
        size, window = os.fstat(file.fileno()).st_size, _TAIL_BYTES
        while True:
            file.seek(max(0, size - window))
            links = [link for line in whole_lines(file) if (link := parse_link(line)) is not None]
            if links or window >= size:
                return links[-1] if links else None
            window *= 16


def _computed_end(files: Sequence[Path], run: str) -> bytes:
    """The value that the next line of the last file is added to, from all lines. A file without lines adds nothing."""
    value, begun = b"", ""
    for path in files:
        with os.fdopen(open_file(path), "rb") as file:
            for link in filter(None, map(parse_link, whole_lines(file))):
                value = next_value(value if begun == path.name else file_seed(run, path.name, value), link.text)
                begun = path.name
    return value if begun == files[-1].name else file_seed(run, files[-1].name, value)


def in_order(files: Iterable[Path]) -> list[Path]:
    """The files of a journal in the order of the chain: by attempt, and after them names that no monitor gives."""

    def place(path: Path) -> tuple[bool, int, str]:
        stem = path.name.removesuffix(".jsonl")
        numbered = stem.isascii() and stem.isdecimal() and len(stem) < 19
        return not numbered, int(stem) if numbered else 0, path.name

    return sorted(files, key=place)
