"""The journal on object storage: each of its files as sealed segments, named by their first byte and fencing number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tiltmeter.errors import StoreError
from tiltmeter.rundir.remote.objects import ObjectFolder
from tiltmeter.rundir.remote.writer_lease import MirrorHead

SEGMENT_BYTES = 8 << 20  # at most
_SEGMENT = re.compile(r"events/([0-9]{1,9})/([0-9]{15})-([0-9]{1,15})\.jsonl")


class Segment(NamedTuple):
    """A part of one file of the journal."""

    file: str
    start: int
    fence: int

    @property
    def key(self) -> str:
        """
        >>> Segment("0", 4096, 2).key, parse_segment("events/0/000000000004096-2.jsonl") == Segment("0", 4096, 2)
        ('events/0/000000000004096-2.jsonl', True)
        """
        return f"events/{self.file}/{self.start:015d}-{self.fence}.jsonl"


def parse_segment(key: str) -> Segment | None:
    match = _SEGMENT.fullmatch(key)
    return None if match is None else Segment(match[1], int(match[2]), int(match[3]))


def fence_at(head: MirrorHead, file: str, start: int) -> int:
    """The fencing number that the segment at a byte must have: others at the same byte never were committed."""
    fences = [one.fence for one in head.takeovers if one.start.get(file, 0) <= start]
    return max(fences, default=0)


def committed_segments(head: MirrorHead, keys: Iterable[str], file: str, start: int) -> list[Segment]:
    """The segments of a file from a byte on, in order, as far as the head goes."""
    segments = [segment for key in keys if (segment := parse_segment(key)) is not None and segment.file == file]
    chosen = [one for one in segments if start <= one.start < head.journal[file].bytes]
    return sorted(one for one in chosen if one.fence == fence_at(head, file, one.start))


def read_journal(folder: ObjectFolder, head: MirrorHead, keys: Iterable[str], file: str, start: int) -> Iterator[bytes]:
    """The committed bytes of a file from one on, segment by segment. Raises `StoreError` where one is missing."""
    place, end = start, head.journal[file].bytes
    for segment in committed_segments(head, keys, file, start):
        if segment.start != place:
            break
        present = folder.read(segment.key, SEGMENT_BYTES)
        if present is None or place + len(present[0]) > end:
            break
        yield present[0]
        place += len(present[0])
    if place != end:
        raise StoreError(f"the journal has a gap: events/{file} at byte {place} of {end}")
