"""Store and read audits of a run's verifier, and the canaries and sandboxes its reward functions had at attach.

One small JSON file each in `audits/`, written once; every field is checked when it is read.
"""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, Struct, to_builtins

from tiltmeter.errors import StoreError
from tiltmeter.rundir.run_path import entries, make_folder
from tiltmeter.rundir.sidecar import Count, Text300, read_sidecar, refuse, write_sidecar
from tiltmeter.rundir.store import RunDirectory

FILE_BYTES = 4 << 20
FILES = 20  # of the newest that are read
ROWS = 200

LongText: TypeAlias = Annotated[str, Meta(max_length=4000)]

_FILE = re.compile(r"([0-9]{10,12})-[0-9a-f]{8}\.json")


class StoredForgery(Struct, frozen=True):
    """One forgery, on how many tasks it was paid, and on how many that could not be judged."""

    forgery: Annotated[str, Meta(max_length=200)]
    status: Literal["paid", "not paid", "could not judge"]
    paid: Count
    tasks: Count
    unjudged: Count
    score: float | None
    text: LongText
    why: LongText
    fix: LongText


class StoredCheck(Struct, frozen=True):
    """One check, which held, failed, or could not be seen."""

    ok: bool | None
    name: LongText
    says: LongText
    fix: LongText


class StoredAudit(Struct, frozen=True):
    """An audit of one reward."""

    reward: Text300
    time: float
    seconds: float
    tasks: Count
    judged: Count
    network: Annotated[str, Meta(max_length=40)]
    verdict: Literal["none paid", "some paid", "could not judge"]
    why: Annotated[str, Meta(max_length=1000)]
    tried: Annotated[list[StoredForgery], Meta(max_length=ROWS)]
    checks: Annotated[list[StoredCheck], Meta(max_length=ROWS)]


class StoredCanary(Struct, frozen=True):
    """A completion with a known score."""

    reward: Text300
    kind: Text300
    expect: Text300
    text: Text300


class StoredSandbox(Struct, frozen=True):
    """Where a reward function runs code."""

    reward: Text300
    tier: Text300
    isolation: Text300


class StoredGuards(Struct, frozen=True):
    """Canaries and sandboxes of an attempt."""

    time: float
    canaries: Annotated[list[StoredCanary], Meta(max_length=ROWS)]
    sandboxes: Annotated[list[StoredSandbox], Meta(max_length=ROWS)]


class _Versioned(Struct, frozen=True):
    schema: int


def write_audit(run: RunDirectory, record: Mapping[str, Any]) -> Path:
    """Store an audit's record beside the run; several may be kept, named by their time."""
    path = make_folder(run.path, "audits") / f"{int(record['time']):010d}-{secrets.token_hex(4)}.json"
    write_sidecar(path, dict(record))
    return path


def list_audits(run: RunDirectory) -> list[Path]:
    """The files of the newest audits, newest first; no file is opened."""
    names = [entry.name for entry in entries(run.path / "audits") if entry.is_file() and _FILE.fullmatch(entry.name)]
    return [run.path / "audits" / name for name in sorted(names, reverse=True)[:FILES]]


def read_audit(path: Path) -> dict[str, Any]:
    """A stored audit, with every field checked. Raises `StoreError` for anything unexpected."""
    return _read(path, StoredAudit)


def write_guards(
    run: RunDirectory, attempt: int, canaries: list[dict[str, str]], sandboxes: list[dict[str, str]]
) -> None:
    """Store the canaries and sandboxes of an attempt's reward functions, if any. The first file is kept."""
    if not canaries and not sandboxes:
        return
    facts = {"schema": 1, "time": time.time(), "canaries": canaries[:ROWS], "sandboxes": sandboxes[:ROWS]}
    try:
        write_sidecar(make_folder(run.path, "audits") / f"attempt-{attempt}.json", facts)
    except FileExistsError:
        pass  # written before


def read_guards(run: RunDirectory, attempt: int) -> dict[str, Any] | None:
    """The stored canaries and sandboxes of an attempt; None if there are none, or they cannot be read."""
    try:
        return _read(run.path / "audits" / f"attempt-{attempt}.json", StoredGuards)
    except StoreError:
        return None


def _read(path: Path, kind: type[Struct]) -> dict[str, Any]:
    schema = read_sidecar(path, _Versioned, FILE_BYTES).schema  # first: a newer one may have other fields
    if schema != 1:
        raise refuse(path, f"schema {schema} is of a newer version: pip install --upgrade tiltmeter")
    facts: dict[str, Any] = to_builtins(read_sidecar(path, kind, FILE_BYTES))
    return facts
