"""The files of the staging folder: rows written by workers of a captured reward function, and step boundaries.

They are in `rollouts/ATTEMPT/unplaced/` until their rows are assigned to steps (see `assign_steps`), and then removed.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from msgspec import Meta, Struct

from tiltmeter.data.records import Floats, Ints, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.columns import from_table, to_table
from tiltmeter.rundir.parquet import FORMAT, encode, open_sealed
from tiltmeter.rundir.run_path import exists, make_folder, open_file, read_file
from tiltmeter.rundir.seal import seal
from tiltmeter.rundir.sidecar import Count, find_sidecar, read_sidecar, refuse, write_sidecar
from tiltmeter.rundir.store import PARQUET, STEP_BYTES, RunDirectory, as_store_errors

#: Extra columns of a worker's file: prompt key, time of scoring, step (-1: not known), and duration of the call.
EXTRA_COLUMNS = {"key": pa.int64(), "time": pa.float64(), "step": pa.int64(), "seconds": pa.float64()}
ROWS = re.compile(r"([0-9a-f]{12})-(\d+)\.parquet")
WORKER = re.compile(r"([0-9a-f]{12})\.(worker|counters)\.json")
BOUNDARY = re.compile(r"(\d+)\.step\.json")

log = logging.getLogger("tiltmeter")


@dataclass(frozen=True, slots=True)
class StepBoundary:
    """The end of a step, written by the driver: rows scored until `end` belong to it.

    Rows scored after the previous step and before `begin` are from an evaluation and belong to no step.

    >>> StepBoundary(12, 1700000000.0, rows=64).rows
    64
    """

    step: int
    end: float  # seconds since 1970, by the driver's clock
    begin: float | None = None
    rows: int | None = None  # how many there are, where the driver knows
    scalars: Mapping[str, float] = field(default_factory=dict)


class StoredBoundary(Struct, frozen=True):
    """`STEP.step.json`."""

    end: float
    begin: float | None
    rows: Count | None
    scalars: dict[str, float]


class CaptureSettings(Struct, frozen=True):
    """`capture.json`: how the opener of a captured run wants its rows assigned to steps."""

    batch_size: Count | None = None
    seconds: float | None = None
    driver: bool = False
    asked: dict[str, str] = {}  # settings of the opener that later callers may only repeat


class WorkerNote(Struct, frozen=True):
    """`WORKER.worker.json` when it starts, `WORKER.counters.json` when it closes. -1: not said."""

    host: str = ""
    pid: Count = 0
    written: int = -1
    dropped: int = -1
    rows: int = -1


class InferredSize(Struct, frozen=True):
    """`inferred.json`: rows per step, and how that was found."""

    batch_size: Annotated[int, Meta(ge=1, le=(1 << 63) - 1)]
    why: str = ""


def staging_folder(run: RunDirectory, attempt: int) -> Path:
    return run.path / "rollouts" / str(attempt) / "unplaced"


def make_staging_folder(run: RunDirectory, attempt: int, facts: Mapping[str, Any] | None = None) -> None:
    """Make the staging folder of an attempt and store, once, its settings: `batch_size`, `seconds`, `driver`."""
    path = make_folder(run.path, "rollouts", str(attempt), "unplaced")
    if facts is not None:
        write_once(path / "capture.json", facts)


def write_rows(
    run: RunDirectory, attempt: int, worker: str, seq: int, first: int, batch: RolloutBatch, beside: Mapping[str, Any]
) -> bool:
    """Store one worker's next rows. When this returns they survive a kill; raises OSError if they could not be kept."""
    table, facts = to_table(batch)
    for name, kind in EXTRA_COLUMNS.items():
        table = table.append_column(name, pa.array(beside[name], kind))
    key = {"format": FORMAT, "attempt": attempt, "worker": worker, "seq": seq, "first": first, "rows": len(batch)}
    pieces = seal(encode(table, {**key, **facts}, spans=[(0, len(batch))]))
    return publish(staging_folder(run, attempt) / f"{worker}-{seq:06d}.parquet", pieces)


def write_boundary(run: RunDirectory, attempt: int, boundary: StepBoundary) -> None:
    """Write that a step is over. For each step the first file is kept."""
    scalars = finite_numbers(boundary.scalars)
    facts = {"end": boundary.end, "begin": boundary.begin, "rows": boundary.rows, "scalars": scalars}
    write_once(staging_folder(run, attempt) / f"{boundary.step:06d}.step.json", facts)


def read_boundary(path: Path) -> StepBoundary:
    """Read a step boundary. Raises `StoreError` if the file is not one."""
    match = BOUNDARY.fullmatch(path.name)
    if match is None:
        raise refuse(path, "its name says no step")
    stored = read_sidecar(path, StoredBoundary)
    return StepBoundary(int(match[1]), stored.end, stored.begin, stored.rows, stored.scalars)


def read_settings(path: Path) -> CaptureSettings:
    """The settings in a staging folder; the default ones if there are none, or, with a note, none that can be read."""
    try:
        return find_sidecar(path / "capture.json", CaptureSettings) or CaptureSettings()
    except StoreError as error:
        report_trouble(path, f"settings were left out: {error}")
        return CaptureSettings()


def mark_worker(run: RunDirectory, attempt: int, worker: str, word: str, facts: Mapping[str, Any]) -> None:
    """Write a worker's state. `worker`: it has started. `counters`: it has closed, and no more rows come."""
    write_once(staging_folder(run, attempt) / f"{worker}.{word}.json", facts)


def read_order(path: Path) -> tuple[int, Floats, Ints]:
    """From one worker's file: the number of its first row, and the time and step of each row."""
    with as_store_errors(path):
        sealed, facts = open_sealed(pa.py_buffer(read_file(path, STEP_BYTES, ends=PARQUET)), str(path))
        beside = sealed.read(None, ["time", "step"])
        return int(facts["first"]), beside["time"].to_numpy(), beside["step"].to_numpy()


def read_rows(path: Path, attempt: int, step: int) -> tuple[RolloutBatch, Floats]:
    """All rows of one worker's file, grouped by prompt but in its own order, and how long each call took."""
    with as_store_errors(path):
        sealed, facts = open_sealed(pa.py_buffer(read_file(path, STEP_BYTES, ends=PARQUET)), str(path))
        table = sealed.read()
        batch = from_table(table, facts, attempt, step)
        return replace(batch, group=table["key"].to_numpy().astype(np.int64)), table["seconds"].to_numpy()


def write_once(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a small JSON file if it does not exist; another process may have been first."""
    try:
        write_sidecar(path, dict(facts))
    except FileExistsError:
        pass


def report_trouble(path: Path, why: str) -> None:
    """Log a problem and record it with the attempt, once per kind; the monitor turns it into a fault."""
    if write_trouble(path, why):
        log.warning("%s", why)


def write_trouble(path: Path, why: str) -> bool:
    """Record a problem without logging; returns whether it is new. Its kind is the text before the first colon."""
    name = re.sub(r"[^a-z]+", "-", why.split(":")[0])
    note = path.parent / f"{name}.trouble.json"
    if exists(note):
        return False
    write_once(note, {"why": why})
    return True


def finite_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The trainer's metrics that are single finite numbers; others are left out.

    >>> finite_numbers({"loss": np.float32(0.5), "kl": None, "best": "step 3", "phase": 1j, "spread": float("inf")})
    {'loss': 0.5}
    """
    numbers = {}
    for name, value in metrics.items():
        if value is None or isinstance(value, (str, bytes, complex, np.complexfloating)) or np.ndim(value) != 0:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            continue
        if np.isfinite(number):
            numbers[str(name)] = number
    return numbers


def mark_driven(store: RunDirectory, attempt: int) -> None:
    """Record that a driver marks the ends of steps from now on, whatever the settings at opening said."""
    path = staging_folder(store, attempt)
    if not read_settings(path).driver:
        write_once(path / "driver.json", {"driver": True})


def find_open_attempt(store: RunDirectory, launch: str) -> int | None:
    """The open attempt of this launch, if there is one. If the process that opened it was killed, the same launch name
    means a new attempt."""
    for attempt in reversed(store.attempts()):
        if store.attempt(attempt).get("launch") == launch and not store.ended(attempt):
            return attempt if _opener_alive(store, attempt) else None
    return None


def hold_opener_lock(store: RunDirectory, attempt: int) -> int | None:
    """Hold a lock that is released when this process ends, however it ends; None if locks are not available."""
    path = store.path / "cache" / f"opener-{attempt}.lock"
    try:
        handle = open_file(path, os.O_RDWR | os.O_CREAT)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(handle, socket.gethostname().encode())
    except OSError:
        return None
    return handle


def _opener_alive(store: RunDirectory, attempt: int) -> bool:
    """Whether the process that opened an attempt is alive, or unknown: locks may not work across machines."""
    try:
        handle = open_file(store.path / "cache" / f"opener-{attempt}.lock")
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
def opening_lock(store: RunDirectory) -> Iterator[None]:
    """Lock, so that one process at a time looks for an attempt and opens it."""
    handle = open_file(make_folder(store.path, "cache") / "capture.lock", os.O_RDWR | os.O_CREAT)
    try:
        with suppress(OSError):  # without locks, two that open at once open two attempts
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
