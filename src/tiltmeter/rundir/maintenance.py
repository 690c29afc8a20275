"""Maintenance of a run directory: pack small files into few, verify every byte, and purge old rollouts."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.atomic_write import name_file, open_dot, sweep
from tiltmeter.rundir.columns import content_hash
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.journal import JournalReader
from tiltmeter.rundir.journal_chain.check import ChainCheck
from tiltmeter.rundir.parquet import FORMAT, ROW_GROUP_ROWS, annotate, metadata, open_sealed, open_writer
from tiltmeter.rundir.payloads import ReceiptRead
from tiltmeter.rundir.rank_summary import combine_hashes, expand_ranges
from tiltmeter.rundir.receipts import chain_problems
from tiltmeter.rundir.run_path import entries, file_status, make_folder, open_folder, read_file, remove
from tiltmeter.rundir.seal import SealedFile, map_file, seal_file
from tiltmeter.rundir.sidecar import write_sidecar
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import PARQUET, ROW_GROUP_TOKENS, STEP_BYTES, RunDirectory, StepFile

PACK_BYTES = 1 << 30
PACK_ROW_GROUPS = 256
BEHIND_HEAD = 64  # steps of a live attempt that are left alone: late ranks may still come

Progress = Callable[[str], None]


def pack(run: RunDirectory, *, progress: Progress = lambda text: None) -> int:
    """Merge whole steps of every attempt into large files that the same reader reads; the number of files merged.

    Order of work: dot name, write, fsync, check every key's content against its original, link without replacing,
    fsync of the directory, and only then the originals go. Killed anywhere, a key may exist twice, never zero times.
    """
    reject_linked(run)
    merged = 0
    for attempt in run.attempts():
        sweep(run.path / "rollouts" / str(attempt) / "packed")  # a pack that was killed may have left a gigabyte
        _remove_packed_originals(run, attempt)
        loose = [file for file in run.files(attempt) if file.row_groups is None]
        head = max((file.step for file in loose), default=-1)
        if not run.ended(attempt) and attempt == run.attempts()[-1]:
            loose = [file for file in loose if file.step <= head - BEHIND_HEAD]
        for part in _plan_packs(loose):
            merged += _pack(run, attempt, part)
            progress(f"attempt {attempt}: steps {part[0].step} to {part[-1].step} packed")
    return merged


def _remove_packed_originals(run: RunDirectory, attempt: int) -> None:
    """Finish a pack that was killed: remove originals whose checked packed copy exists."""
    for file in run.files(attempt):
        original = run.step_path(attempt, file.step, file.rank)
        packed = file.row_groups is not None and file_status(original) is not None
        if packed and hashlib.sha256(read_file(original, STEP_BYTES)).hexdigest() == file.sha256:
            remove(original)


def _plan_packs(files: list[StepFile]) -> Iterator[list[StepFile]]:
    """Runs of whole steps that fit one packed file."""
    part: list[StepFile] = []
    size = groups = 0
    for file in files:
        status = file_status(file.path)
        own = 0 if status is None else status.st_size
        many = max(1, own // (4 << 20))
        full = size + own > PACK_BYTES or groups + many > PACK_ROW_GROUPS
        if part and full and file.step != part[-1].step:
            yield part
            part, size, groups = [], 0, 0
        part.append(file)
        size, groups = size + own, groups + many
    if len(part) > 1:
        yield part


def _pack(run: RunDirectory, attempt: int, files: list[StepFile]) -> int:
    folder = make_folder(run.path, "rollouts", str(attempt), "packed")
    target = folder / f"{files[0].step}-{files[-1].step}.parquet"
    schema = pa.unify_schemas([_open(file)[0].file.schema_arrow.remove_metadata() for file in files])
    with open_folder(folder, change=True) as opened:
        dot, handle = open_dot(target.name, opened)
        try:
            keys = _write_packed(handle, files, schema, attempt)
            _check_packed(folder / dot, keys)
            name_file(dot, target.name, opened, handle)
        finally:
            os.close(handle)
            with suppress(FileNotFoundError):  # renamed
                os.unlink(dot, dir_fd=opened)
        os.fsync(opened)
    for file in files:
        remove(file.path, missing_ok=True)
    return len(files)


def _write_packed(handle: int, files: list[StepFile], schema: pa.Schema, attempt: int) -> list[dict[str, Any]]:
    """The rows of all files, sealed and synced; the list of what stands where."""
    keys: list[dict[str, Any]] = []
    with os.fdopen(os.dup(handle), "wb") as sink, open_writer(sink, schema, level=3) as parquet:
        row, tokens, cuts = 0, 0, [0]
        pending: list[pa.Table] = []
        for file in files:
            sealed, facts, digest = _open(file)
            whole = []
            for index in range(sealed.file.metadata.num_row_groups):
                table = sealed.read([index])
                weight = int(pa.compute.sum(table["length"]).as_py() or 0) if "length" in table.column_names else 0
                whole.append(table)
                if pending and (tokens + weight > ROW_GROUP_TOKENS or row - cuts[-1] + len(table) > ROW_GROUP_ROWS):
                    _flush(parquet, pending, schema)
                    cuts.append(row)
                    pending, tokens = [], 0
                pending.append(table)
                tokens, row = tokens + weight, row + len(table)
            content = content_hash(pa.concat_tables(whole)) if whole else ""
            keys.append(
                {
                    "step": file.step,
                    "rank": file.rank,
                    "name": file.name,
                    "sha256": digest,
                    "content": content,
                    "start": row - facts["rows"],
                    "facts": facts,
                }
            )
        if pending:
            _flush(parquet, pending, schema)
        cuts.append(row)
        for key in keys:
            _locate_key(key, cuts)
        annotate(parquet, {"format": FORMAT, "attempt": attempt, "packed": keys})
    seal_file(handle)
    os.fsync(handle)
    return keys


def _flush(parquet: Any, tables: list[pa.Table], schema: pa.Schema) -> None:
    whole = pa.concat_tables([schema.empty_table(), *tables], promote_options="default").select(schema.names)
    parquet.write_table(whole, row_group_size=max(1, len(whole)))


def _locate_key(key: dict[str, Any], cuts: list[int]) -> None:
    """Turn a key's first row into the row groups it lies in and its offset in the first of them."""
    start = key.pop("start")
    stop = start + key["facts"]["rows"]
    inside = [i for i in range(len(cuts) - 1) if cuts[i] < stop and cuts[i + 1] > start]
    key["row_groups"] = inside
    key["offset"] = start - cuts[inside[0]] if inside else 0


def _check_packed(path: Path, keys: list[dict[str, Any]]) -> None:
    sealed = SealedFile(map_file(path), str(path))
    spans: list[int] | None = None
    for key in keys:
        rows = key["facts"]["rows"]
        if key["row_groups"] != spans:  # neighbouring steps share their row groups: decode each once
            spans = key["row_groups"]
            whole = sealed.read(spans)
        table = whole.slice(key["offset"], rows)
        if len(table) != rows or (rows and content_hash(table) != key["content"]):
            raise StoreError(f"packing changed {key['name']}; the originals are kept")


def _open(file: StepFile) -> tuple[SealedFile, dict[str, Any], str]:
    data = pa.py_buffer(read_file(file.path, STEP_BYTES, ends=PARQUET))
    sealed, facts = open_sealed(data, str(file.path))
    return sealed, facts, hashlib.sha256(data).hexdigest()


def verify(run: RunDirectory, *, progress: Progress = lambda text: None) -> list[str]:
    """Read every byte again: seals, checksums, contents, the hashes the journal recorded. Returns the problems."""
    problems: list[str] = []
    tail = JournalReader(run.path / "events")
    recorded: dict[tuple[int, int], Mapping[str, Any]] = {}
    receipts: list[str] = []
    for event in tail.poll():
        if event.kind == "step_done":
            recorded[event.attempt, event.step] = event.data
        elif isinstance(note := event.payload, ReceiptRead):
            receipts.append(note.file)
    if tail.skipped:
        problems.append(f"events: {tail.skipped} lines are torn or damaged and were skipped")
    if fault := ChainCheck(run, anew=True).update().fault:
        problems.append(fault)
    try:
        run.reference()
    except StoreError as error:
        problems.append(str(error))
    for attempt in run.attempts():
        first_kept = _first_kept_step(run, attempt)
        hashes: dict[int, dict[int, str]] = {}  # by step and rank
        damaged: list[str] = []  # packed files, which are also checked, and reported, one by one below
        for file in run.files(attempt, damaged):
            progress(f"attempt {attempt}, step {file.step}")
            try:
                hashes.setdefault(file.step, {})[file.rank] = run.read(file)[2]
            except StoreError as error:
                hashes.setdefault(file.step, {})[file.rank] = "unreadable"
                problems.append(str(error))
        folder = run.path / "rollouts" / str(attempt) / "packed"
        for entry in entries(folder):
            if not entry.name.startswith("."):
                problems += _verify_packed(folder / entry.name)
        for (of, step), data in recorded.items():
            if of != attempt or step < first_kept:
                continue
            ranks, present = expand_ranges(data["ranks"]), hashes.get(step, {})
            if gone := [rank for rank in ranks if rank not in present]:
                problems.append(f"attempt {attempt}, step {step}: measured from files that are gone: ranks {gone}")
            elif (
                "unreadable" not in present.values()
                and combine_hashes({r: present[r] for r in ranks}) != data["sha256"]
            ):
                problems.append(f"attempt {attempt}, step {step}: not the bytes that were measured")
    return problems + _verify_receipts(run, receipts)


def _verify_receipts(run: RunDirectory, recorded: Sequence[str]) -> list[str]:
    """Receipts that are gone; who has the run's token also sees forged ones."""
    names = {entry.name for entry in entries(run.path / "control" / "receipts")}
    gone = [
        f"control/receipts/{name}.json: in the journal, and gone" for name in recorded if f"{name}.json" not in names
    ]
    try:
        return gone + list(chain_problems(run, read_token(run))) if names else gone
    except AttachError:
        return gone  # not the user who started training, or not that machine


def _verify_packed(path: Path) -> list[str]:
    try:
        sealed = SealedFile(map_file(path), str(path))
        _check_packed(path, metadata(sealed)["packed"])
    except (StoreError, pa.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError) as error:
        return [f"{path}: {error}"]
    return []


def reject_linked(run: RunDirectory) -> None:
    """Raise for an audit: its rollouts are links into another run, and must not be changed or deleted here."""
    if (run.path / "rollouts").is_symlink():
        home = (run.path / "rollouts").resolve().parent
        raise StoreError(f"{run.path} is an audit of {home}: its rollouts belong to that run; name it instead")


def purge(run: RunDirectory, *, before: int | None = None, days: float | None = None) -> int:
    """Delete rollouts and pinned answers of steps below `before`, or written more than `days` ago, or all of them.

    Readings and events stay: they hold numbers, not text. What was deleted cannot be replayed, and a receipt in the
    attempt's folder says so. A packed file goes when all of it qualifies; the reference and audits, which belong to no
    step, go unless `before` is given. Returns the number of files deleted.
    """
    reject_linked(run)
    horizon = float("inf") if days is None else time.time() - days * 86_400
    deleted = 0
    reference = run.path / "reference.parquet"
    status = file_status(reference)
    if before is None and status is not None and status.st_mtime < horizon:
        remove(reference)
        deleted += 1
    for name in ("audits", "workspaces") if before is None else ():
        for entry in entries(run.path / name):
            if file_kind(f"{name}/{entry.name}") and entry.stat(follow_symlinks=False).st_mtime < horizon:
                remove(run.path / name / entry.name)
                deleted += 1
    for entry in entries(run.path / "pinned"):
        named = re.match(r"\d+-(\d+)\b.*\.json", entry.name)
        old = entry.stat(follow_symlinks=False).st_mtime < horizon
        if named is not None and old and (before is None or int(named[1]) < before):
            remove(run.path / "pinned" / entry.name)
            deleted += 1
    for attempt in run.attempts():
        folder = run.path / "rollouts" / str(attempt)
        last = -1
        waiting = folder / "unplaced"
        for entry in entries(waiting) if before is None and not waiting.is_symlink() else ():  # a link leads elsewhere
            if entry.name.endswith(".parquet") and entry.stat(follow_symlinks=False).st_mtime < horizon:
                remove(waiting / entry.name)
                deleted += 1
        stored = ((place, entry) for place in (folder, folder / "packed") for entry in entries(place))
        for place, entry in stored:
            # By name, not by content: what is damaged must be deletable too. Packed is FIRST-LAST, loose STEP-RANK.
            named = re.match(r"(\d+)-(\d+)\b.*\.parquet", entry.name)
            if named is None or entry.stat(follow_symlinks=False).st_mtime >= horizon:
                continue
            step = int(named[2]) if place != folder else int(named[1])
            if before is None or step < before:
                remove(place / entry.name)
                last = max(last, step)
                deleted += 1
        if last >= 0:
            receipt = {"below": last + 1, "time": time.time()}
            write_sidecar(folder / f"purged-{last + 1}-{secrets.token_hex(2)}.json", receipt)
    return deleted


def _first_kept_step(run: RunDirectory, attempt: int) -> int:
    """The first step that was not deleted on purpose."""
    names = [e.name for e in entries(run.path / "rollouts" / str(attempt)) if e.name.startswith("purged-")]
    return max((int(name.split("-")[1]) for name in names if name.split("-")[1].isdecimal()), default=0)
