"""A local copy of a run on object storage: for readers, who write nothing to it, and to go on on another machine."""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tiltmeter.errors import Boundary, StoreError, describe_error
from tiltmeter.rundir.remote.address import copy_path
from tiltmeter.rundir.remote.inbox import write_to_copy
from tiltmeter.rundir.remote.objects import INBOX, PROBE, ObjectFacts, ObjectFolder, open_objects
from tiltmeter.rundir.remote.segments import parse_segment, read_journal
from tiltmeter.rundir.remote.upload import REPLACED, local_crc, step_of
from tiltmeter.rundir.remote.writer_lease import HEAD, MirrorHead, read_head
from tiltmeter.rundir.run_path import COPY_MARK
from tiltmeter.rundir.store import PACKED_FILE

WORKERS = 8
FOLLOW_SECONDS = 10.0
DEEPEST = 6  # names of a key

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
            (target / COPY_MARK).write_text(address + "\n", "utf-8")
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
    head, tag = read_head(folder)
    listed = {one.key: one for one in folder.list()}
    if tag is None or "run.json" not in listed:
        raise StoreError("there is no run (no head.json and run.json)")
    files = [one for one in listed.values() if is_file_key(one.key) and not _is_here(target, one)]
    for place in {(target / one.key).parent for one in files} | {target / "events", target / "rollouts"}:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if steps is not None:
        newest = max(filter(None, map(_last_step, listed)), default=(0, -1))
        first = (newest[0], newest[1] - steps)
        files = [one for one in files if not one.key.endswith(".parquet") or (_last_step(one.key) or first) > first]
    with ThreadPoolExecutor(WORKERS) as pool:
        for future in [pool.submit(_fetch_file, folder, target, one) for one in files]:
            future.result()
    for file in sorted(head.journal):
        _fetch_journal(folder, head, listed, target, file)
    return head


def is_file_key(key: str) -> bool:
    """Whether a key is that of a run's file: a bucket is not trusted to name places on this machine.

    >>> is_file_key("rollouts/0/000001-0.parquet"), is_file_key("../x"), is_file_key("cache/monitor.lock")
    (True, False, False)
    """
    parts = key.split("/")
    if key in (HEAD, PROBE) or parse_segment(key) is not None or parts[0] in ("events", "cache", "monitor.log", INBOX):
        return False
    return len(parts) <= DEEPEST and all(
        part and not part.startswith(".") and len(part) < 200 and "\x00" not in part for part in parts
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
    handle = os.open(target / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def make_private(target: Path) -> None:
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.chmod(0o700)


def _is_here(target: Path, one: ObjectFacts) -> bool:
    try:
        facts = (target / one.key).stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return facts.st_size == one.size and (one.key not in REPLACED or facts.st_mtime >= one.time)


def _fetch_file(folder: ObjectFolder, target: Path, one: ObjectFacts) -> None:
    present = folder.read(one.key)
    if present is None:
        return  # removed since it was listed
    write_to_copy(target / one.key, present[0], one.time)


def _fetch_journal(folder: ObjectFolder, head: MirrorHead, keys: Iterable[str], target: Path, file: str) -> None:
    """Append what is committed and not here. A copy that is not a beginning of the journal is made anew."""
    path, span = target / "events" / f"{file}.jsonl", head.journal[file]
    size = path.stat().st_size if path.exists() else 0
    if size > span.bytes:
        path.unlink()
        size = 0
    with path.open("ab") as copy:
        for data in read_journal(folder, head, keys, file, size):
            copy.write(data)
    if local_crc(target, file, span.bytes) != span.crc:
        path.unlink()
        with path.open("ab") as copy:
            for data in read_journal(folder, head, keys, file, 0):
                copy.write(data)
        if local_crc(target, file, span.bytes) != span.crc:
            raise StoreError(f"events/{file}: its segments are not what the head says")
    os.utime(path, (head.time or time.time(),) * 2)
