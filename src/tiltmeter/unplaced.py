"""Rows that no step is known of: what a captured reward function's workers write, and the driver's word on steps.

All of it lies in `rollouts/ATTEMPT/unplaced/` until it is placed (see `placing`): a waiting room, not an archive.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tiltmeter.columns import from_table, to_table
from tiltmeter.durable import publish, sync_folder
from tiltmeter.parquet import FORMAT, encode, open_sealed
from tiltmeter.records import Floats, Ints, RolloutBatch
from tiltmeter.seal import seal
from tiltmeter.store import RunDirectory, only_store_errors, read_json

#: What a worker's file has beside the columns of a batch, by row: which prompt, when it was scored, at which step (-1:
#: not known), and how long the call took.
BESIDE = {"key": pa.int64(), "time": pa.float64(), "step": pa.int64(), "seconds": pa.float64()}
ROWS = re.compile(r"([0-9a-f]{12})-(\d+)\.parquet")
WORKER = re.compile(r"([0-9a-f]{12})\.(worker|counters)\.json")
BOUNDARY = re.compile(r"(\d+)\.step\.json")

log = logging.getLogger("tiltmeter")


@dataclass(frozen=True, slots=True)
class Boundary:
    """The driver's word that a step is over: what was scored until `end` belongs to it.

    What was scored after the step before and ahead of `begin` was an evaluation, and belongs to no step.

    >>> Boundary(12, 1700000000.0, rows=64).rows
    64
    """

    step: int
    end: float  # seconds since 1970, by the driver's clock
    begin: float | None = None
    rows: int | None = None  # how many there are, where the driver knows
    scalars: Mapping[str, float] = field(default_factory=dict)


def folder(run: RunDirectory, attempt: int) -> Path:
    return run.path / "rollouts" / str(attempt) / "unplaced"


def make_folder(run: RunDirectory, attempt: int, facts: Mapping[str, Any] | None = None) -> None:
    """The place for rows of an attempt and, once, what the run says about them: `batch_size`, `seconds`, `driver`."""
    path = folder(run, attempt)
    if not path.is_dir():
        path.mkdir(exist_ok=True)
        sync_folder(path.parent)
    if facts is not None:
        first(path / "capture.json", facts)


def write_rows(
    run: RunDirectory, attempt: int, worker: str, seq: int, first: int, batch: RolloutBatch, beside: Mapping[str, Any]
) -> bool:
    """Store one worker's next rows. When this returns they survive a kill; raises OSError if they could not be kept."""
    table, facts = to_table(batch)
    for name, kind in BESIDE.items():
        table = table.append_column(name, pa.array(beside[name], kind))
    key = {"format": FORMAT, "attempt": attempt, "worker": worker, "seq": seq, "first": first, "rows": len(batch)}
    pieces = seal(encode(table, {**key, **facts}, spans=[(0, len(batch))]))
    return publish(folder(run, attempt) / f"{worker}-{seq:06d}.parquet", pieces)


def write_boundary(run: RunDirectory, attempt: int, boundary: Boundary) -> None:
    """Say that a step is over. Of two words about one step the first stands."""
    scalars = numbers_of(boundary.scalars)
    facts = {"end": boundary.end, "begin": boundary.begin, "rows": boundary.rows, "scalars": scalars}
    first(folder(run, attempt) / f"{boundary.step:06d}.step.json", facts)


def read_boundary(path: Path) -> Boundary:
    """The driver's word in a file. Raises `StoreError` for anything else."""
    match = BOUNDARY.fullmatch(path.name)
    facts = read_json(path)
    with only_store_errors(path):
        begin, rows = facts["begin"], facts["rows"]
        scalars = {str(name): float(value) for name, value in facts["scalars"].items()}
        step, end = int(match[1] if match else -1), float(facts["end"])
        return Boundary(
            step, end, None if begin is None else float(begin), None if rows is None else int(rows), scalars
        )


def mark_worker(run: RunDirectory, attempt: int, worker: str, word: str, facts: Mapping[str, Any]) -> None:
    """`worker`: rows may come from it. `counters`: it has closed, and none will."""
    first(folder(run, attempt) / f"{worker}.{word}.json", facts)


def read_order(path: Path) -> tuple[int, Floats, Ints]:
    """Of one worker's file: the number of its first row, and when and at which step each was scored."""
    with only_store_errors(path):
        sealed, facts = open_sealed(pa.py_buffer(path.read_bytes()), str(path))
        beside = sealed.read(None, ["time", "step"])
        return int(facts["first"]), beside["time"].to_numpy(), beside["step"].to_numpy()


def read_rows(path: Path, attempt: int, step: int) -> tuple[RolloutBatch, Floats]:
    """All rows of one worker's file, grouped by prompt but in its own order, and how long each call took."""
    with only_store_errors(path):
        sealed, facts = open_sealed(pa.py_buffer(path.read_bytes()), str(path))
        table = sealed.read()
        batch = from_table(table, facts, attempt, step)
        return replace(batch, group=table["key"].to_numpy().astype(np.int64)), table["seconds"].to_numpy()


def first(path: Path, facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a small file says: the given facts, unless somebody was first."""
    try:
        publish(path, [json.dumps(dict(facts), allow_nan=False).encode()])
    except FileExistsError:
        return read_json(path)
    return dict(facts)


def tell(path: Path, why: str) -> None:
    """Leave word with the attempt, once per kind of trouble; the monitor makes it a fault."""
    if leave_word(path, why):
        log.warning("%s", why)


def leave_word(path: Path, why: str) -> bool:
    """Leave word as `tell` does; whether it is new. Its kind is what stands before the first colon."""
    name = re.sub(r"[^a-z]+", "-", why.split(":")[0])
    word = path.parent / f"{name}.trouble.json"
    if word.exists():
        return False
    first(word, {"why": why})
    return True


def numbers_of(told: Mapping[str, Any]) -> dict[str, float]:
    """What of a trainer's metrics is one finite number; whatever else is among them is left out.

    >>> numbers_of({"loss": np.float32(0.5), "kl": None, "best": "step 3", "phase": 1j, "spread": float("inf")})
    {'loss': 0.5}
    """
    kept = {}
    for name, value in told.items():
        if value is None or isinstance(value, (str, bytes, complex, np.complexfloating)) or np.ndim(value) != 0:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if np.isfinite(number):
            kept[str(name)] = number
    return kept


def say_driven(store: RunDirectory, attempt: int) -> None:
    """From here on a driver says where steps end, whatever was known when the run was opened."""
    path = folder(store, attempt)
    if not read_json(path / "capture.json").get("driver"):
        first(path / "driver.json", {"driver": True})


def joined(store: RunDirectory, launch: str) -> int | None:
    """The attempt of this start, if somebody has opened it and it goes on. A word that is used again after a start was
    killed names a new one."""
    for attempt in reversed(store.attempts()):
        if store.attempt(attempt).get("launch") == launch and not store.ended(attempt):
            return attempt if _opener_lives(store, attempt) else None
    return None


def held_while_alive(store: RunDirectory, attempt: int) -> int | None:
    """A lock that ends with this process, however it ends; None where there are none to be had."""
    path = store.path / "cache" / f"opener-{attempt}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, socket.gethostname().encode())
    except OSError:
        return None
    return handle


def _opener_lives(store: RunDirectory, attempt: int) -> bool:
    """Whether the process that opened an attempt lives, or cannot be asked: locks may not reach another machine."""
    try:
        handle = os.open(store.path / "cache" / f"opener-{attempt}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return os.read(handle, 256) != socket.gethostname().encode()
    except OSError:
        return True
    finally:
        os.close(handle)


@contextmanager
def alone(store: RunDirectory) -> Iterator[None]:
    """One process at a time looks for an attempt and opens it."""
    (store.path / "cache").mkdir(exist_ok=True)
    handle = os.open(store.path / "cache" / "capture.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
