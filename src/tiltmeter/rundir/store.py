"""The run directory: its layout, and how rollouts are written atomically, listed and read.

Acknowledged means: written under a dot name, fsynced, linked to its final name without replacing, directory fsynced.
One Parquet file per (attempt, step, rank), one writer per file, nothing ever overwritten. The layout and what a newer
version may change is written down in `docs/run-directory.md`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct, ValidationError, convert

from tiltmeter.data.records import RAGGED_COLUMNS, TEXT_COLUMNS, RolloutBatch
from tiltmeter.data.turns import TURNS_BYTES
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.atomic_write import publish, storage_problem, sync_folder
from tiltmeter.rundir.columns import TEXT_LIMIT, content_hash, file_columns, from_table, to_table
from tiltmeter.rundir.parquet import FORMAT, ROW_GROUP_BYTES, ROW_GROUP_ROWS, encode, metadata, open_sealed
from tiltmeter.rundir.payloads import AttemptFacts
from tiltmeter.rundir.run_path import (
    FolderNames,
    entries,
    exists,
    file_status,
    is_folder,
    make_folder,
    open_folder,
    read_file,
    run_path,
)
from tiltmeter.rundir.seal import SealedFile, map_file, seal
from tiltmeter.rundir.sidecar import (
    HOSTILE,
    WRONG_CONTENT,
    Count,
    list_sidecars,
    parse_sidecar,
    read_sidecar,
    reason,
    refuse,
    write_sidecar,
)

FACTS_BYTES = 16 << 20  # of a file about a run, an attempt or a rank; those of an audit hold its notes
STEP_BYTES = 8 << 30  # of the file of one rank and step
PARQUET = b"PAR1"  # at both of its ends
ROW_GROUP_TOKENS = 500_000  # about 5 MB: what a reader that streams holds in memory

DAMAGE = (*WRONG_CONTENT, pa.ArrowException, OSError, MemoryError)  # what a damaged file raises in the libraries

PACKED_FILE = re.compile(r"(\d+)-(\d+)\.parquet")
_COUNTERS = re.compile(r"[0-9]+\.counters\.json")
_STEP_FILE = re.compile(r"(\d+)-(\d+)\.parquet")


@dataclass(frozen=True, slots=True, order=True)
class StepFile:
    """One rank's rollouts of one step: a file of its own, or a span of row groups in a packed file."""

    attempt: int
    step: int
    rank: int
    path: Path
    name: str  # of the original file, also when packed
    sha256: str = ""  # of the original file, where known without reading it
    row_groups: tuple[int, ...] | None = None  # None: the whole file
    offset: int = 0  # first row inside the first of these row groups
    facts: str = ""  # JSON metadata of the original, for packed files


class StoredIdentity(Struct, frozen=True):
    """What is read of `run.json`; it has more."""

    format: int
    name: str = ""


class PackedKey(Struct, frozen=True):
    """What a packed file says about one of the files in it."""

    step: Count
    rank: Count
    name: str
    sha256: str
    row_groups: tuple[Count, ...]
    offset: Count
    facts: dict[str, Any]


class RankCounters(Struct, frozen=True):
    """What is read of `RANK.counters.json`; it has more."""

    seen: Count = 0
    thinned: Count = 0
    dropped: Count = 0
    unsynced: Count = 0
    why: str = ""


class StepFacts(Struct, frozen=True):
    """The metadata of a step's file, where it has these keys; it has more."""

    attempt: Count
    step: Count
    rank: Count
    rows: Count
    counters: RankCounters | None = None
    faults: list[str] | None = None
    time: float = 0.0
    thinned: bool = False
    fingerprint: str = ""
    placed: dict[str, Any] = {}


class TroubleNote(Struct, frozen=True):
    """`NAME.trouble.json`: why the first lost batch of its kind never became a file."""

    why: str = ""


class RunDirectory:
    """A folder that holds one run. Every method is safe while other processes write to it."""

    def __init__(self, path: Path | str) -> None:
        self.path = run_path(path)
        self._packed_lists: dict[Path, tuple[StepFile, ...]] = {}
        self._open_files: dict[Path, SealedFile] = {}
        self._read_lock = threading.Lock()  # reading one open Parquet file from two threads corrupts memory

    # -- identity ---------------------------------------------------------------------------------------------------

    @classmethod
    def create(cls, path: Path | str, facts: Mapping[str, Any] | None = None) -> RunDirectory:
        """Open the run at `path`, made first if there is none. Raises `AttachError` if files cannot be kept there."""
        run = cls(path)
        with _as_attach_error(run.path):
            fresh = not run.path.exists()
            run.path.mkdir(parents=True, exist_ok=True)
            for folder in ("rollouts", "events"):
                make_folder(run.path, folder)
            if not exists(run.path / "run.json"):
                if fresh:  # a folder that was there before keeps the mode somebody gave it
                    run.path.chmod(0o700)  # rollouts may hold personal data; widen it if the team reads along
                identity = {"format": FORMAT, "id": secrets.token_hex(8), "name": run.path.name, **(facts or {})}
                try:
                    write_sidecar(run.path / "run.json", identity, indent=1)
                except FileExistsError:
                    pass  # another rank, or another start, was first: its identity is kept
                sync_folder(run.path.parent)
        run.identity()
        return run

    def identity(self) -> dict[str, Any]:
        """What `run.json` says, unknown keys included. Raises if this is no run, or one of a newer format."""
        try:
            facts = read_sidecar(self.path / "run.json", dict[str, Any], FACTS_BYTES)
        except StoreError as error:
            why = "" if isinstance(error.__cause__, FileNotFoundError) else f": {error}"
            raise StoreError(f"{self.path} is not a run directory (no readable run.json){why}") from error
        if not isinstance(facts.get("format"), int):
            raise StoreError(f"{self.path / 'run.json'} has no format number")
        _check_type(self.path / "run.json", facts, StoredIdentity)
        if facts["format"] > FORMAT:
            raise StoreError(
                f"{self.path} has format {facts['format']}, this version reads up to {FORMAT}: "
                "pip install --upgrade tiltmeter"
            )
        return facts

    # -- attempts ---------------------------------------------------------------------------------------------------

    def attempts(self) -> list[int]:
        folder = self.path / "rollouts"
        return sorted(int(entry.name) for entry in entries(folder) if entry.name.isdecimal() and entry.is_dir())

    def open_attempt(
        self, *, launch: str, ranks: int, resume_step: int | None, settings: Mapping[str, str] | None = None
    ) -> int:
        """Claim the next attempt; `mkdir` has one winner, so two trainers on one directory never share one. `settings`:
        of the trainer, for lists of runs."""
        if why := storage_problem(self.path):
            raise AttachError(f"cannot keep a run in {self.path}: {why}, or set TILTMETER_DISABLED=1")
        with _as_attach_error(self.path):
            while True:
                before = self.attempts()
                number = max(before, default=-1) + 1
                try:
                    with open_folder(self.path / "rollouts", change=True) as folder:
                        os.mkdir(str(number), dir_fd=folder)
                    break
                except OSError as error:
                    # Somebody else's, or this one's if a file server lost its reply: the next is free either way.
                    if not (isinstance(error, FileExistsError) or is_folder(self.path / "rollouts" / str(number))):
                        raise
            facts: dict[str, Any] = {
                "attempt": number,
                # Not simply the one before: a start that failed here has left a folder and no attempt.
                "parent": next((earlier for earlier in reversed(before) if self._attempt_if_sound(earlier)), None),
                "resume_step": resume_step,
                "launch": launch,
                "ranks": ranks,
                "started": time.time(),
            }
            if settings:
                facts["settings"] = dict(settings)
            write_sidecar(self.path / "rollouts" / str(number) / "attempt.json", facts)
            sync_folder(self.path / "rollouts")  # or a power cut takes the folder, and every file in it
        return number

    def join_attempt(self, *, launch: str, rank: int, timeout: float = 60.0) -> int:
        """The attempt that rank 0 of the same launch opened: the newest one that this rank has not joined before."""
        deadline = time.monotonic() + timeout
        while True:
            if (number := self.claim_attempt(launch=launch, rank=rank)) is not None:
                return number
            if time.monotonic() > deadline:
                raise AttachError(
                    f"rank {rank} found no attempt of launch {launch!r} in {self.path} within {timeout:.0f} s. "
                    "Give every rank the same directory (on storage they share) and the same launch=."
                )
            time.sleep(0.05)

    def claim_attempt(self, *, launch: str, rank: int) -> int | None:
        """The newest attempt of a launch that this rank has not joined before, joined; None if there is none yet."""
        for number in reversed(self.attempts()):
            facts = self._attempt_if_sound(number)
            if facts and facts.get("launch") == launch and self.claim(number, rank):
                return number
        return None

    def claim(self, attempt: int, rank: int) -> bool:
        """Mark a rank as taken in an attempt; False if it already was."""
        marker = self.path / "rollouts" / str(attempt) / f"{rank}.rank.json"
        with _as_attach_error(self.path):
            try:
                write_sidecar(marker, {"rank": rank, "pid": os.getpid()})
            except FileExistsError:
                return False
        return True

    def attempt(self, number: int) -> dict[str, Any]:
        """What `attempt.json` says; empty while it is not there yet. Raises `StoreError` if it cannot be read."""
        path = self.path / "rollouts" / str(number) / "attempt.json"
        try:
            facts = read_sidecar(path, dict[str, Any], FACTS_BYTES)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return {}
            raise
        _check_type(path, facts, AttemptFacts)
        return facts

    def _attempt_if_sound(self, number: int) -> dict[str, Any]:
        """For a trainer that starts: an earlier attempt that is damaged does not keep it from training."""
        try:
            return self.attempt(number)
        except StoreError:
            return {}

    def counters(self, attempt: int) -> dict[int, dict[str, Any]]:
        """Closing counters by rank; those of all ranks together are the end marker of the attempt."""
        by_rank: dict[int, dict[str, Any]] = {}
        for name, counts in self._read_counters(attempt, self.names(attempt)).items():
            by_rank[int(name.split(".")[0])] = counts if isinstance(counts, dict) else {}
        return dict(sorted(by_rank.items()))

    def _read_counters(self, attempt: int, names: FolderNames) -> dict[str, dict[str, Any] | str]:
        """By file, the counters of a rank, or why they are refused."""
        by_file: dict[str, dict[str, Any] | str] = {}
        folder = self.path / "rollouts" / str(attempt)
        for name in filter(_COUNTERS.fullmatch, names.plain):
            try:
                facts = parse_sidecar(read_file(folder / name, FACTS_BYTES), dict[str, Any])
                convert(facts, RankCounters)
                by_file[name] = facts
            except HOSTILE as error:
                by_file[name] = reason(error)
        return by_file

    def report_trouble(self, attempt: int, rank: int, why: str, kind: str = "") -> None:
        """Record, once per rank and kind, what could not be stored; the monitor turns it into a fault."""
        name = f"{rank}-{kind}" if kind else str(rank)
        path = self.path / "rollouts" / str(attempt) / f"{name}.trouble.json"
        if not exists(path):
            write_sidecar(path, {"why": why})

    def troubles(self, attempt: int, names: FolderNames | None = None) -> dict[str, str]:
        """The recorded reasons why batches could not be stored, by file name; and why a rank's note cannot be read."""
        folder, names = self.path / "rollouts" / str(attempt), names or self.names(attempt)
        notes, refusals = list_sidecars(folder, _is_trouble, TroubleNote, names=[*names.plain, *names.others])
        refusals |= {name: why for name, why in self._read_counters(attempt, names).items() if isinstance(why, str)}
        others = sorted(filter(_STEP_FILE.fullmatch, names.others))
        refusals |= dict.fromkeys(others, "a link, or no plain file; not read")
        return {name: note.why for name, note in notes.items()} | refusals

    def ended(self, attempt: int) -> bool:
        """Whether every rank has closed: looked up by name, because it is asked often and a long run has many files."""
        folder = self.path / "rollouts" / str(attempt)
        ranks = range(int(self.attempt(attempt).get("ranks", 1)))
        return all(file_status(folder / f"{rank}.counters.json") is not None for rank in ranks)

    # -- writing ----------------------------------------------------------------------------------------------------

    def write(self, batch: RolloutBatch, rank: int, extra: Mapping[str, Any], precision: str = "fp32") -> bool:
        """Store one rank's batch. When this returns it survives a kill; raises OSError if it could not be stored.

        Returns whether it is known to survive a power cut too (see `durable.publish`).
        """
        if batch.step < 0:
            raise ValueError(f"step {batch.step}: steps count from 0, and no reader would find this file")
        table, facts = to_table(batch, precision=precision)
        key = {"attempt": batch.attempt, "step": batch.step, "rank": rank, "rows": len(batch)}
        pieces = seal(encode(table, {"format": FORMAT, **key, **facts, **extra}, spans=_row_groups(batch)))
        path = self.step_path(batch.attempt, batch.step, rank)
        try:
            return publish(path, pieces)
        except FileExistsError:
            # The key is taken (a step observed twice): kept beside it, never measured, reported by the monitor.
            return publish(path.with_name(f"{path.stem}.conflict-{secrets.token_hex(4)}.parquet"), pieces)

    def write_reference(self, batch: RolloutBatch) -> bool:
        """Store the reference policy's rollouts before the run's first step; False if just these are there already.

        What a run is compared with never changes: another reference, or one given late, is refused (`AttachError`).
        """
        table, facts = to_table(batch)
        if exists(path := self.path / "reference.parquet"):
            sealed, _ = open_sealed(pa.py_buffer(read_file(path, STEP_BYTES, ends=PARQUET)), str(path))
            if content_hash(sealed.read()) != content_hash(table):
                raise AttachError(f"{self.path} has another reference: give that one, or none, or start a new run")
            return False
        if any(self.files(attempt) for attempt in self.attempts()):
            raise AttachError(f"{self.path} has steps already that were compared without it: start a new run")
        pieces = seal(encode(table, {"format": FORMAT, "rows": len(batch), **facts}, spans=_row_groups(batch)))
        with _as_attach_error(self.path):
            publish(path, pieces)
        return True

    def reference(self) -> RolloutBatch | None:
        """The reference policy's rollouts, if the run was given any. Raises `StoreError` if they are damaged."""
        path = self.path / "reference.parquet"
        if not exists(path):
            return None
        with as_store_errors(path):
            sealed, facts = open_sealed(pa.py_buffer(read_file(path, STEP_BYTES, ends=PARQUET)), str(path))
            return from_table(sealed.read(), facts, 0, 0)

    def step_path(self, attempt: int, step: int, rank: int) -> Path:
        return self.path / "rollouts" / str(attempt) / f"{step:06d}-{rank}.parquet"

    def close_rank(self, attempt: int, rank: int, counters: Mapping[str, Any]) -> None:
        folder = self.path / "rollouts" / str(attempt)
        write_sidecar(folder / f"{rank}.counters.json", dict(counters))

    # -- listing ----------------------------------------------------------------------------------------------------

    def names(self, attempt: int) -> FolderNames:
        """What stands in the folder of an attempt."""
        return FolderNames.of(self.path / "rollouts" / str(attempt))

    def files(
        self,
        attempt: int,
        damaged: list[str] | None = None,
        *,
        names: FolderNames | None = None,
        leave_out: Callable[[int, int], bool] = lambda step, rank: False,
    ) -> list[StepFile]:
        """Every stored (step, rank) of an attempt, packed copies first where a key exists twice.

        A packed file whose list of contents cannot be trusted raises `StoreError`; with `damaged`, it is noted there
        and the others are listed. `names`: of its folder, if it was listed. `leave_out`: steps and ranks to pass over.
        """
        folder, names = self.path / "rollouts" / str(attempt), names or self.names(attempt)
        by_key: dict[tuple[int, int], StepFile] = {}
        for name in names.plain:
            if match := _STEP_FILE.fullmatch(name):
                step, rank = int(match[1]), int(match[2])
                if not leave_out(step, rank):
                    by_key[step, rank] = StepFile(attempt, step, rank, folder / name, name)
        for entry in entries(folder / "packed"):
            if PACKED_FILE.fullmatch(entry.name):
                try:
                    packed = self._packed_files(folder / "packed" / entry.name, attempt)
                    by_key |= {(file.step, file.rank): file for file in packed if not leave_out(file.step, file.rank)}
                except StoreError as error:
                    if damaged is None:
                        raise
                    damaged.append(str(error))
        return sorted(by_key.values())

    def conflicts(self, attempt: int, names: FolderNames | None = None) -> list[str]:
        plain = (names or self.names(attempt)).plain
        return sorted(name for name in plain if ".conflict-" in name and not name.startswith("."))

    def find_complete(self, attempt: int, step: int, ranks: int) -> list[StepFile]:
        """The files of a step, by their names; none unless all ranks have one of their own."""
        files = []
        for rank in range(ranks):
            path = self.step_path(attempt, step, rank)
            if file_status(path) is None:
                return []
            files.append(StepFile(attempt, step, rank, path, path.name))
        return files

    def find(self, attempt: int, step: int) -> list[StepFile]:
        """The files of one step, by path or from the one packed file that covers it: no listing of a long run."""
        ranks = range(int(self.attempt(attempt).get("ranks", 1)))
        paths = [(rank, self.step_path(attempt, step, rank)) for rank in ranks]
        direct = {
            rank: StepFile(attempt, step, rank, path, path.name)
            for rank, path in paths
            if file_status(path) is not None
        }
        if len(direct) < len(ranks):
            folder = self.path / "rollouts" / str(attempt) / "packed"
            for entry in entries(folder):
                if (span := PACKED_FILE.fullmatch(entry.name)) and int(span[1]) <= step <= int(span[2]):
                    packed = self._packed_files(folder / entry.name, attempt)
                    direct |= {file.rank: file for file in packed if file.step == step}
        return sorted(direct.values())

    def _open_packed(self, path: Path) -> SealedFile:
        """A packed file, kept open: its footer is large, and it is often read several times."""
        sealed = self._open_files.get(path)
        status = file_status(path)
        if sealed is None or status is None or sealed.data.size != status.st_size:
            sealed = SealedFile(map_file(path), str(path))
            self._open_files = {**dict(list(self._open_files.items())[-3:]), path: sealed}
        return sealed

    def _packed_files(self, path: Path, attempt: int) -> tuple[StepFile, ...]:
        if path not in self._packed_lists:
            with as_store_errors(path):
                sealed = self._open_packed(path)
                keys = convert(metadata(sealed)["packed"], list[PackedKey])
                self._packed_lists[path] = tuple(
                    StepFile(
                        attempt, key.step, key.rank, path, key.name, key.sha256, key.row_groups, key.offset,
                        json.dumps(key.facts),
                    )
                    for key in keys
                )  # fmt: skip
        return self._packed_lists[path]

    # -- reading ----------------------------------------------------------------------------------------------------

    def read(self, file: StepFile, columns: Sequence[str] | None = None) -> tuple[RolloutBatch, dict[str, Any], str]:
        """The batch, its metadata and the SHA-256 of the original file. Raises `StoreError` for anything damaged."""
        with as_store_errors(file.path):
            if file.row_groups is None:
                data = pa.py_buffer(read_file(file.path, STEP_BYTES, ends=PARQUET))
                sealed, facts = open_sealed(data, str(file.path))
                digest = hashlib.sha256(data).hexdigest() if columns is None else ""
            else:
                sealed = self._open_packed(file.path)
                facts, digest = json.loads(file.facts), file.sha256
            convert(facts, StepFacts)
            if (facts["attempt"], facts["step"], facts["rank"]) != (file.attempt, file.step, file.rank):
                raise StoreError(f"{file.path} holds another step than its name says")
            wanted = None if columns is None else _file_parts(columns, facts["columns"])
            if file.row_groups is None:
                table = sealed.read(None, wanted)
            else:
                with self._read_lock:
                    table = sealed.read(file.row_groups, wanted).slice(file.offset, facts["rows"])
            if table.num_rows != facts["rows"]:
                raise StoreError(f"{file.path} has {table.num_rows} rows, its metadata says {facts['rows']}")
            return from_table(table, facts, file.attempt, file.step), facts, digest

    def worst(self, attempt: int, step: int, n: int = 20, *, by: str = "reward") -> list[tuple[float, str | None]]:
        """The n completions of a step with the lowest `by`, and that value; rows without one are left out.

        `by` is a column of numbers, or `rewards.NAME` for one reward function.
        """
        rows: list[tuple[float, str | None]] = []
        component = by.removeprefix("rewards.") if by.startswith("rewards.") else None
        for file in self.find(attempt, step):
            batch, _, _ = self.read(file, (by, "completion"))
            values = getattr(batch, by) if component is None else batch.rewards.get(component)
            if values is None:
                continue
            scored = np.flatnonzero(np.isfinite(values))
            order = scored[np.argsort(values[scored], kind="stable")][:n]
            texts = batch.completion or (None,) * len(batch)
            rows += [(float(values[row]), texts[row]) for row in order]
        return sorted(rows, key=lambda row: row[0])[:n]


def _file_parts(columns: Sequence[str], stored: Sequence[str]) -> list[str]:
    """The columns of a file that carry these; `rewards` are those of every reward function."""
    rewards = [name for name in stored if name.startswith("rewards.")] if "rewards" in columns else []
    return [part for name in (*columns, *rewards) for part in file_columns(name)]


def _is_trouble(name: str) -> bool:
    return name.endswith(".trouble.json") and not name.startswith(".")


def _check_type(path: Path, facts: dict[str, Any], kind: type[Struct]) -> None:
    try:
        convert(facts, kind)
    except ValidationError as error:
        raise refuse(path, error) from error


def read_json(path: Path) -> dict[str, Any]:
    """The object in a small file; empty if there is none, or none that can be read."""
    try:
        return read_sidecar(path, dict[str, Any], FACTS_BYTES)
    except StoreError:
        return {}


def _row_groups(batch: RolloutBatch) -> Iterator[tuple[int, int]]:
    """Spans of rows near the size limit, cut between prompt groups: a reader of one span never sees half a group.

    Only a group that alone is beyond what any reader accepts is cut inside: acknowledged and refused would be lost.
    """
    if not len(batch):
        return
    weight = batch.length if batch.length is not None else np.full(len(batch), 256)
    total = np.concatenate(([0], np.cumsum(np.maximum(weight, 1))))
    bytes_before = np.concatenate(([0], np.cumsum(_row_bytes(batch))))
    start, previous = 0, 0
    for stop in map(int, batch.starts[1:]):
        if previous > start and (total[stop] - total[start] > ROW_GROUP_TOKENS or stop - start > ROW_GROUP_ROWS):
            yield start, previous
            start = previous
        previous = stop
        while stop - start > ROW_GROUP_ROWS or bytes_before[stop] - bytes_before[start] > ROW_GROUP_BYTES:
            fits = int(np.searchsorted(bytes_before, bytes_before[start] + ROW_GROUP_BYTES, "right")) - 1
            cut = max(start + 1, min(fits, start + ROW_GROUP_ROWS))
            yield start, cut
            start = cut
    yield start, previous


def _row_bytes(batch: RolloutBatch) -> Any:
    """The most that each row takes in a file before compression, where text may stand twice (see `columns`)."""
    size = np.full(len(batch), 32 * (8 + len(batch.rewards)))
    for name in RAGGED_COLUMNS:
        if (rows := getattr(batch, name)) is not None:
            size += 8 * rows.lengths
    for name in TEXT_COLUMNS:
        if (texts := getattr(batch, name)) is not None:
            limit = TURNS_BYTES if name == "turns" else TEXT_LIMIT
            size += [2 * min(4 * len(text), limit) if text else 0 for text in texts]
    return size


@contextmanager
def _as_attach_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AttachError(
            f"cannot keep a run in {path}: {error}. Name a directory on a local or POSIX file system with free "
            "space, or set TILTMETER_DISABLED=1 to train without a record."
        ) from error


@contextmanager
def as_store_errors(path: Path) -> Iterator[None]:
    """Turn any error that a damaged file causes in the libraries into `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except DAMAGE as error:
        raise refuse(path, f"{type(error).__name__}: {error}") from error
