"""The head of a mirror: how far the journal goes, and who may write it. One object, changed only by compare-and-swap.

Whoever takes the lease raises its fencing number in the same object that the journal is committed by. So a writer that
stood still and comes back cannot commit anything: its head is not the head any more. A lease whose number has not grown
for `LEASE_SECONDS` of the taker's own time is free; no two clocks are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field, json
from msgspec.structs import replace

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.journal import JOURNAL_BYTES
from tiltmeter.rundir.remote.objects import ObjectFolder
from tiltmeter.rundir.sidecar import WRONG_CONTENT, Count, Text300, parse_sidecar, reason

HEAD = "head.json"
LEASE_SECONDS = 60.0
RENEW_SECONDS = 15.0
LOOK_SECONDS = 2.0
MOST_FILES = 10_000  # of a journal: one for each attempt
MOST_TAKEOVERS = 10_000

#: `N` of `events/N.jsonl`.
JournalFile: TypeAlias = Annotated[str, Meta(pattern=r"^[0-9]{1,9}\Z")]


class LeaseLostError(StoreError):
    """Another writer has taken over the run; `owner`: who."""

    def __init__(self, owner: str, fence: int) -> None:
        super().__init__(f"another writer has taken over the run (fencing number {fence} is old)")
        self.owner = owner


class JournalSpan(Struct, frozen=True):
    """How much of one file of the journal is committed, and the CRC-32 of it."""

    bytes: Annotated[int, Meta(ge=0, le=JOURNAL_BYTES)] = 0
    crc: Annotated[int, Meta(ge=0, lt=1 << 32)] = 0


class Takeover(Struct, frozen=True):
    """From which byte of each file on segments carry this fencing number."""

    fence: Count
    start: Annotated[dict[JournalFile, Count], Meta(max_length=MOST_FILES)] = {}


class MirrorHead(Struct, frozen=True, kw_only=True):
    """The one object that is changed. `owner`: empty if nobody writes; `renewed`: grows while somebody does.

    A head comes from a store: its names and numbers are bounded here, and used only as they pass.
    """

    format: Count = 1
    fence: Count = 0
    owner: Text300 = ""
    renewed: Count = 0
    journal: Annotated[dict[JournalFile, JournalSpan], Meta(max_length=MOST_FILES)] = {}
    takeovers: Annotated[list[Takeover], Meta(max_length=MOST_TAKEOVERS)] = field(default_factory=list)
    lost_files: Count = 0  # step files that the spool had to drop before they could be uploaded
    time: Annotated[float, Meta(ge=0.0, le=float(1 << 33))] = 0.0  # for display


def read_head(folder: ObjectFolder) -> tuple[MirrorHead, str | None]:
    """The head and its tag; an empty one without a tag if there is none. Raises `StoreError` for one of no sense."""
    present = folder.read(HEAD)
    if present is None:
        return MirrorHead(), None
    try:
        head = parse_sidecar(present[0], MirrorHead)
    except WRONG_CONTENT as error:
        raise StoreError(f"{HEAD} cannot be read: {reason(error)}") from error
    if head.format > 1:
        raise StoreError(f"{HEAD} has format {head.format}, this version reads 1: pip install --upgrade tiltmeter")
    return head, present[1]


class WriterLease:
    """One writer's hold on a mirror."""

    def __init__(self, folder: ObjectFolder, owner: str) -> None:
        self._folder, self.owner = folder, owner
        self.head, self._tag = MirrorHead(), ""
        self._renewed_at = 0.0

    def take(self, wait: Callable[[float], None] = time.sleep, patience: float = LEASE_SECONDS) -> MirrorHead:
        """Become the writer: at once where nobody is, or it was this owner; else when the holder is silent for so long.
        Raises `AttachError` if the holder is alive."""
        seen: tuple[str, int] | None = None
        grown, deadline = 0, time.monotonic() + patience
        while True:
            head, tag = read_head(self._folder)
            is_free = head.owner in ("", self.owner)
            if seen is not None and (head.owner, head.renewed) != seen:
                grown, deadline = grown + 1, time.monotonic() + patience
            seen = (head.owner, head.renewed)
            if is_free or time.monotonic() > deadline:
                start = {name: span.bytes for name, span in head.journal.items()}
                earlier = [one for one in head.takeovers if one.start != start]
                taken = replace(head, fence=head.fence + 1, takeovers=[*earlier, Takeover(head.fence + 1, start)])
                if self._swap(replace(taken, owner=self.owner), tag):
                    return self.head
                continue
            if grown > 1:
                raise AttachError("another machine is writing this run: end it there, or name another address")
            wait(LOOK_SECONDS)

    def commit(self, journal: Mapping[str, JournalSpan], lost_files: int = 0) -> None:
        """Let the journal go so far. Raises `LeaseLostError` if this is not the writer any more: then it does not."""
        head = replace(self.head, journal=dict(journal), lost_files=max(lost_files, self.head.lost_files))
        self._change(head)

    def renew(self) -> None:
        """Say that the writer is alive, if that was not said for a while."""
        if time.monotonic() - self._renewed_at > RENEW_SECONDS:
            self._change(self.head)

    def release(self) -> None:
        """Let the next writer begin at once."""
        self._change(replace(self.head, owner=""))

    def _change(self, head: MirrorHead) -> None:
        while not self._swap(head, self._tag):
            present, tag = read_head(self._folder)
            if (present.fence, present.owner) != (self.head.fence, self.owner) or tag == self._tag or tag is None:
                raise LeaseLostError(present.owner, self.head.fence)
            self._tag = tag  # an earlier change of ours, whose reply was lost
            head = replace(head, renewed=max(head.renewed, present.renewed))

    def _swap(self, head: MirrorHead, tag: str | None) -> bool:
        head = replace(head, renewed=head.renewed + 1, time=time.time())
        new = self._folder.swap(HEAD, json.encode(head), tag)
        if new is None:
            return False
        self.head, self._tag, self._renewed_at = head, new, time.monotonic()
        return True
