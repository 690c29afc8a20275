"""Checks the chain over a run's journal: the same way for the terminal, the page, lists, copies, caches and `verify`.

All lines are hashed again, but for files whose status is what it was when they were checked before. Of a file that
grows only what is new is hashed, and from time to time all of it.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Literal, NamedTuple

from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal import JOURNAL_BYTES, list_journal
from tiltmeter.rundir.journal_chain.check_file import ChangedError, FileCheck, file_status_of, status_numbers
from tiltmeter.rundir.journal_chain.seen import ChainTally, FileStatus, SeenFile, read_seen, write_seen
from tiltmeter.rundir.journal_links import SigningKey, in_order, read_key, run_name_in_chain
from tiltmeter.rundir.run_path import entries, open_file
from tiltmeter.rundir.sidecar import refuse
from tiltmeter.rundir.store import RunDirectory

REPEAT_SECONDS = 60.0  # after which all of a file that grows is hashed again, or
REPEAT_SHARE = 0.02  # of the time is spent on it, if that is later
SAVE_SECONDS = 10.0

#: "signed": every line is as this user's monitor wrote it. "intact": no line contradicts another, and who wrote them is
#: not known here. "none": no line states a value. "broken": a line was changed. "unchecked": not known yet.
Level = Literal["signed", "intact", "none", "broken", "unchecked"]


class JournalState(NamedTuple):
    """What is known of a journal, and in words."""

    level: Level
    text: str

    @property
    def fault(self) -> str:
        """The sentence about a change; empty if none is known."""
        return self.text if self.level == "broken" else ""


UNCHECKED = JournalState("unchecked", "not checked yet")


class ChainCheck:
    """Checks the journal of one run, again and again. `anew`: every byte is read, whatever was seen of it before.
    `repeats`: whether a file that grows is hashed as a whole from time to time."""

    def __init__(self, run: RunDirectory, *, anew: bool = False, repeats: bool = True) -> None:
        self.state = UNCHECKED
        self._run, self._anew, self._repeats = run, anew, repeats
        self._name, self._key = _run_name(run), read_key(run)
        self._files = read_seen(run.path, self._name)  # as they were when they were checked last
        self._is_own = False  # this process has hashed what it remembers
        self._work: Iterator[None] | None = None
        self._statuses: dict[str, FileStatus] | None = None  # when the last check began
        self._seconds, self._repeat_at, self._save_at = 0.0, 0.0, 0.0

    def update(self, seconds: float = math.inf) -> JournalState:
        """Check what is not checked yet, for so long at most: until it is done the state is that of before."""
        began = time.monotonic()
        if self._work is None:
            statuses, due = self._list_statuses(), self._repeats and began >= self._repeat_at
            if self._statuses is not None and not due and (statuses == self._statuses or self.state.fault):
                return self.state
            grown = set[str]() if due or not self._is_own else _grown_files(self._statuses or {}, statuses)
            self._statuses, self._seconds = statuses, 0.0
            self._work = self._check_files(grown)
        for _ in self._work:
            if time.monotonic() - began > seconds:
                self._seconds += time.monotonic() - began
                return self.state
        self._work = None
        self._seconds += time.monotonic() - began
        if self._repeat_at <= began:
            self._repeat_at = time.monotonic() + max(REPEAT_SECONDS, self._seconds / REPEAT_SHARE)
        return self.state

    def save(self) -> None:
        """Remember what was checked last, before this process ends."""
        if self._is_own and not self.state.fault:
            write_seen(self._run.path, self._name, self._files)

    def _list_statuses(self) -> dict[str, FileStatus]:
        listed = (entry for entry in entries(self._run.path / "events") if entry.name.endswith(".jsonl"))
        return {entry.name: status_numbers(entry.stat(follow_symlinks=False)) for entry in listed}

    def _check_files(self, grown: Set[str]) -> Iterator[None]:
        """Check all files, and set the state. `grown`: of these only what is new."""
        self._key = self._key or read_key(self._run)  # its monitor may have begun meanwhile
        paths, checked = in_order(list_journal(self._run.path / "events")), list[SeenFile]()
        try:
            if gone := {one.name for one in self._files if one.tally.lines} - {path.name for path in paths}:
                raise ChangedError(f": events/{min(gone)} was read here before, and is gone")
            for path in paths:
                checked.append((yield from self._check_file(path, checked, grown)))
        except ChangedError as change:
            self.state = JournalState("broken", f"the journal was changed{change}; what it says cannot be trusted")
            return
        self.state = describe_chain([one.tally for one in checked], self._key)
        changed, self._files, self._is_own = checked != self._files, checked, True
        if changed and time.monotonic() >= self._save_at:
            self.save()
            self._save_at = time.monotonic() + SAVE_SECONDS

    def _check_file(self, path: Path, before: Sequence[SeenFile], grown: Set[str]) -> Generator[None, None, SeenFile]:
        seen = next((one for one in self._files if one.name == path.name), None)
        value = next((one.value for one in reversed(before) if one.tally.lines), "")
        follows = seen is not None and (seen.before, seen.key) == (value, "" if self._key is None else self._key.name)
        with os.fdopen(open_file(path), "rb") as file:
            status = file_status_of(file)
            if status[2] > JOURNAL_BYTES:
                raise refuse(path, f"has {status[2]} bytes, more than {JOURNAL_BYTES}")
            if seen is not None and follows and seen.status == status and not self._anew:
                return seen
            resume = seen if follows and path.name in grown else None
            checked = yield from FileCheck(self._name, path.name, value, self._key, seen, resume).run(file)
        if checked.tally.bare and any(one.tally.stated for one in before):
            raise ChangedError(f": the lines of events/{path.name} state no chain, and those before them do")
        return checked


def describe_chain(tallies: Sequence[ChainTally], key: SigningKey | None) -> JournalState:
    """What is known of a journal in which no line was changed."""
    signers = [one for tally in tallies for one in tally.signers]
    signers = [one for at, one in enumerate(signers) if not at or one[0] != signers[at - 1][0]]
    if not signers:
        return JournalState(
            "none",
            "no chain: it was written by an older version"
            if any(tally.lines for tally in tallies)
            else "nothing is written yet",
        )
    covered = ""
    if any(tally.bare for tally in tallies):
        step = next(tally.step for tally in tallies if tally.stated)
        covered = f"; an older version wrote what comes before step {step}"
    name, step = signers[-1]
    if key is not None and all(signer == key.name for signer, _ in signers):
        return JournalState("signed", f"signed and intact{covered}")
    if key is None:
        why = "who signed it cannot be checked here" if any(signer for signer, _ in signers) else "it is not signed"
        if len(signers) > 1:
            why += f", and the newest key signs since step {step}"
    elif name == key.name:
        why = f"signed by this machine since step {step}, not before"
    else:
        why = f"signed by another machine since step {step}" if name else f"not signed since step {step}"
    return JournalState("intact", f"intact; {why}{covered}")


def _grown_files(before: Mapping[str, FileStatus], now: Mapping[str, FileStatus]) -> set[str]:
    """The files that are the same as before, and longer."""
    both = {name: (before[name], now[name]) for name in before.keys() & now.keys()}
    return {name for name, (old, new) in both.items() if old[:2] == new[:2] and old[2] < new[2]}


def _run_name(run: RunDirectory) -> str:
    try:
        return run_name_in_chain(run)
    except StoreError:
        return ""  # no run yet
