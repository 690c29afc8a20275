"""Checks the lines of one file of the journal against the chain's values that they state."""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Generator
from copy import copy
from typing import BinaryIO

from tiltmeter.rundir.journal import parse
from tiltmeter.rundir.journal_chain.seen import MOST_SIGNERS, ChainTally, FileStatus, SeenFile
from tiltmeter.rundir.journal_links import SigningKey, StatedLink, file_seed, next_value, parse_link, whole_lines

SLICE_BYTES = 1 << 20  # hashed between two looks at the clock
SETTLE_SECONDS = 2.0  # a file that changed so lately may change again within its time stamp
KEPT_SECONDS = 60.0  # after which what was written is taken to be on the disk

_SYNCED = b'"kind":"step_done"'  # in a line that the monitor waits for: it is on the disk when the next is written


class ChangedError(Exception):
    """A line is not what was written: how a sentence goes on that begins with the journal having been changed."""


class FileCheck:
    """One file: `run` hashes its lines. `seen`: what was seen of it before, whose last kept place must be the same.
    `resume`: what need not be hashed again."""

    def __init__(
        self, run: str, name: str, before: str, key: SigningKey | None, seen: SeenFile | None, resume: SeenFile | None
    ) -> None:
        self._name, self._before, self._key = name, before, key
        if resume is None:
            self._value = file_seed(run, name, bytes.fromhex(before))
            self._place = self._number = 0
            self._anchor = (0, 0, "")
            self._tally = ChainTally()
        else:
            self._value, self._place, self._number = bytes.fromhex(resume.value), resume.end, resume.number
            self._anchor, self._tally = resume.anchor, copy(resume.tally)
        self._mark = seen.anchor if seen is not None and seen.anchor[0] > self._place else None
        self._synced: tuple[int, int, str] | None = None

    def run(self, file: BinaryIO) -> Generator[None, None, SeenFile]:
        """Check the lines, with a pause after each slice. Raises `ChangedError`."""
        status, pause = file_status_of(file), self._place + SLICE_BYTES
        file.seek(self._place)
        for line in whole_lines(file):
            self._number += line.endswith(b"\n")
            self._place += len(line)
            if (link := parse_link(line)) is not None:
                self._add(link, line)
            if self._mark is not None and self._place >= self._mark[0]:
                self._compare_with_seen(line)
            if self._place >= pause:
                pause = self._place + SLICE_BYTES
                yield
        if self._mark is not None:
            raise ChangedError(
                f": events/{self._name} had {self._mark[1]} lines when it was read here before, and has less"
            )
        now = time.time()
        if now - status[3] / 1e9 > KEPT_SECONDS:
            self._anchor = (self._place, self._number, self._value.hex())
        settled = now - max(status[3:]) / 1e9 > SETTLE_SECONDS
        return SeenFile(
            name=self._name,
            status=status if settled else None,
            before=self._before,
            key="" if self._key is None else self._key.name,
            end=self._place,
            number=self._number,
            value=self._value.hex(),
            anchor=self._anchor,
            tally=self._tally,
        )

    def _add(self, link: StatedLink, line: bytes) -> None:
        if self._synced is not None:
            self._anchor, self._synced = self._synced, None
        tally, self._value = self._tally, next_value(self._value, link.text)
        tally.lines += 1
        if not link.value:
            if tally.stated:
                raise ChangedError(f": {self._where(line)} states no chain, and those before it do")
            tally.bare += 1
        elif link.value != self._value:
            raise ChangedError(f" at or just before {self._where(line)}")
        else:
            self._add_stated(link, line)
        if _SYNCED in link.text:
            self._synced = (self._place, self._number, self._value.hex())

    def _add_stated(self, link: StatedLink, line: bytes) -> None:
        tally, key = self._tally, self._key
        own = key is not None and link.signer == key.name
        if key is not None and own and not hmac.compare_digest(link.signature, key.sign(self._value)):
            raise ChangedError(f" at or just before {self._where(line)}, whose signature is wrong")
        if not tally.stated:
            tally.step = _step_of(line)
        tally.stated += 1
        if (not tally.signers or tally.signers[-1][0] != link.signer) and len(tally.signers) < MOST_SIGNERS:
            tally.signers = [*tally.signers, (link.signer, _step_of(line))]

    def _compare_with_seen(self, line: bytes) -> None:
        assert self._mark is not None
        if (self._place, self._value.hex()) != (self._mark[0], self._mark[2]):
            raise ChangedError(f": up to {self._where(line)} it is not what was read here before")
        self._mark = None

    def _where(self, line: bytes) -> str:
        return f"step {_step_of(line)} (events/{self._name}, line {self._number})"


def _step_of(line: bytes) -> int:
    events = parse(line)
    return events[0].step if events else -1


def file_status_of(file: BinaryIO) -> FileStatus:
    return status_numbers(os.fstat(file.fileno()))


def status_numbers(info: os.stat_result) -> FileStatus:
    """What changes whenever a file does, on a machine whose clock is not set back."""
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns
