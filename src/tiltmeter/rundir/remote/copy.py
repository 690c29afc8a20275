"""A local copy of a run on object storage: for readers, who write nothing to it, and to go on on another machine."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tiltmeter.errors import Boundary, StoreError, describe_error
from tiltmeter.rundir.atomic_write import replace_file, write_all
from tiltmeter.rundir.gate.file_kinds import FileKind, file_kind
from tiltmeter.rundir.remote.address import copy_path
from tiltmeter.rundir.remote.objects import INBOX, LOCK, PROBE, ObjectFacts, ObjectFolder, open_objects
from tiltmeter.rundir.remote.segments import parse_segment, read_journal
from tiltmeter.rundir.remote.upload import GIGABYTE, REPLACED, local_crc, step_of
from tiltmeter.rundir.remote.writer_lease import HEAD, MirrorHead, read_head
from tiltmeter.rundir.run_path import COPY_MARK, RunPath, file_status, make_folder, open_file, run_path, split_key
from tiltmeter.rundir.store import PACKED_FILE
from tiltmeter.safety.safe_text import log_line

WORKERS = 8
FOLLOW_SECONDS = 10.0
MOST_NAMED = 5  # objects that the log names
COPY_GB, DEFAULT_COPY_GB = "TILTMETER_COPY_GB", 100.0  # that are fetched at once

log = logging.getLogger("tiltmeter")


def fetch_copy(address: str, *, steps: int | None = None) -> Path:
    """The copy of a run for readers, brought up to date. `steps`: rollouts of only so many of the newest steps, which
    may be few of many gigabytes. Raises `StoreError` if
    there is no run, or the store does not answer: an old copy would show an old verdict."""
    target = copy_path(address)
    try:
        folder = open_objects(address)
        make_private(target)
        with _one_at_a_time(target):
            replace_file(run_path(target, "copy") / COPY_MARK, f"{address}\n".encode())
            fetch(folder, target, steps=steps)
    except OSError as error:
        raise StoreError(f"{address} cannot be read: {error}") from error
    return target


def follow_copy(address: str) -> Path:
    """A copy that a thread keeps up to date for as long as this process lasts. While the store is away it grows old,
    which its verdict says."""
    path = fetch_copy(address)
    threading.Thread(target=_follow, args=(address,), name="tiltmeter-copy", daemon=True).start()
    return path


def _follow(address: str) -> None:
    while True:
        time.sleep(FOLLOW_SECONDS)
        with Boundary(lambda error: log.warning("%s: %s", address, describe_error(error)), own_thread=True):
            fetch_copy(address)


def fetch(folder: ObjectFolder, target: Path, *, steps: int | None = None) -> MirrorHead:
    """Bring a copy up to date with a mirror. Files before the journal, and the journal as far as the head said when
    this began, so that all that it speaks of is here. Raises `StoreError` for what is no mirror, and `OSError`."""
    copy = run_path(target, "copy")
    head, tag = read_head(folder)
    listed = list_run(folder)
    if tag is None or "run.json" not in listed.files:
        raise StoreError("there is no run (no head.json and run.json)")
    files = [one for one in listed.files.values() if not _is_here(copy, one)]
    if steps is not None:
        newest = max(filter(None, map(_last_step, listed.files)), default=(0, -1))
        first = (newest[0], newest[1] - steps)
        files = [one for one in files if not one.key.endswith(".parquet") or (_last_step(one.key) or first) > first]
    _check_room(sum(one.size for one in files) + _journal_growth(copy, head))
    copy.mkdir(mode=0o700, parents=True, exist_ok=True)
    for place in {split_key(one.key)[:-1] for one in files} | {("events",), ("rollouts",)}:
        make_folder(copy, *place, mode=0o700)
    with ThreadPoolExecutor(WORKERS) as pool:
        for future in [pool.submit(_fetch_file, folder, copy, one) for one in files]:
            future.result()
    for file in sorted(head.journal):
        _fetch_journal(folder, head, listed.segments, copy, file)
    return head


class StoredRun(NamedTuple):
    """The objects of a mirror that belong to a run."""

    files: dict[str, ObjectFacts]
    segments: list[str]  # keys


def list_run(folder: ObjectFolder) -> StoredRun:
    """What a store has of a run: names that a run has, within the sizes and numbers of `file_kinds`. The rest is left
    where it is, and counted in the log. Raises `StoreError` for more files of a kind than a run has."""
    listed, counts, strange = StoredRun({}, []), Counter[FileKind](), 0
    for one in folder.list():
        kind = file_kind(one.key)
        if kind is not None and kind.is_mirrored and one.size <= kind.most_bytes:
            counts[kind] += 1
            if counts[kind] > kind.most:
                raise StoreError(f"there are more than {kind.most:,} files like {log_line(one.key, 200)}")
            listed.files[one.key] = one
        elif parse_segment(one.key) is not None:
            listed.segments.append(one.key)
        elif one.key not in (HEAD, PROBE) and not one.key.startswith(f"{INBOX}/"):
            strange += 1
            if strange <= MOST_NAMED:
                log.warning("%s is left in the store: %s", log_line(one.key, 200), _why_left(kind, one.size))
    if strange > MOST_NAMED:
        log.warning("%d objects are left in the store: their names or sizes are not those of a run's files", strange)
    return listed


def _why_left(kind: FileKind | None, size: int) -> str:
    return "not a name of a run's file" if kind is None or not kind.is_mirrored else f"{size} bytes are too many"


def _journal_growth(copy: RunPath, head: MirrorHead) -> int:
    """How many bytes of the journal are not here yet."""
    growth = 0
    for file, span in head.journal.items():
        present = file_status(copy / "events" / f"{file}.jsonl")
        growth += max(0, span.bytes - (0 if present is None else present.st_size))
    return growth


def _check_room(size: int) -> None:
    """Refuse to fill a reader's disk with what a store offers."""
    most = int(float(os.environ.get(COPY_GB) or DEFAULT_COPY_GB) * GIGABYTE)
    if size > most:
        raise StoreError(
            f"{size / GIGABYTE:.1f} GB are to be fetched, and at most {most / GIGABYTE:g} GB are ({COPY_GB} raises it)"
        )


def _last_step(key: str) -> tuple[int, int] | None:
    """Attempt and last step of a file of rollouts; None for another file.

    >>> _last_step("rollouts/1/000007-0.parquet"), _last_step("rollouts/1/packed/0-83.parquet"), _last_step("run.json")
    ((1, 7), (1, 83), None)
    """
    attempt, _, name = key.removeprefix("rollouts/").partition("/packed/")
    if attempt.isdecimal() and (span := PACKED_FILE.fullmatch(name)):
        return int(attempt), int(span[2])
    return step_of(key)


@contextmanager
def _one_at_a_time(target: Path) -> Iterator[None]:
    """Two readers would append the same lines of the journal twice."""
    handle = open_file(run_path(target, "copy") / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def make_private(target: Path) -> None:
    """A folder of this user's alone. Raises `StoreError` for a link in its place."""
    if target.is_symlink():
        raise StoreError(f"{target} is a link: remove it")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.chmod(0o700)


def _is_here(copy: RunPath, one: ObjectFacts) -> bool:
    facts = file_status(copy / one.key)
    return facts is not None and facts.st_size == one.size and (one.key not in REPLACED or facts.st_mtime >= one.time)


def _fetch_file(folder: ObjectFolder, copy: RunPath, one: ObjectFacts) -> None:
    try:
        # Its time too, so that a copy does not look newer than its run.
        replace_file(copy / one.key, folder.stream(one.key, one.size), at=one.time)
    except FileNotFoundError:
        pass  # removed since it was listed


def _fetch_journal(folder: ObjectFolder, head: MirrorHead, keys: Sequence[str], copy: RunPath, file: str) -> None:
    """Append what is committed and not here. A copy that is not a beginning of the journal is made anew."""
    path, span = copy / "events" / f"{file}.jsonl", head.journal[file]
    present = file_status(path)
    size = 0 if present is None else present.st_size
    for start in (size, 0) if 0 < size <= span.bytes else (0,):
        _append(path, start, read_journal(folder, head, keys, file, start))
        if local_crc(copy, file, span.bytes) == span.crc:
            break
    else:
        raise StoreError(f"events/{file}: its segments are not what the head says")
    os.utime(path, (head.time or time.time(),) * 2)


def _append(path: RunPath, start: int, pieces: Iterable[bytes]) -> None:
    """Write after the first `start` bytes of a file, in place of what is behind them."""
    handle = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(handle, start)
        os.lseek(handle, start, os.SEEK_SET)
        for piece in pieces:
            write_all(handle, piece)
    finally:
        os.close(handle)
