"""Files that record a stage's state: its inputs when it started, and its result when it finished."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train.method_interface import StageOutput

STARTED_FILE, RESULT_FILE = "begun.json", "stage.json"
EDGE_BYTES = 1 << 16  # bytes hashed at each end of a weights file: hashing all of it would take minutes
FORMAT = 1

Parts = dict[str, Any]


@dataclass(frozen=True)
class StageResult:
    """A finished stage. `build_id` is a new random id at each training, so later stages notice a retraining."""

    name: str
    method: str
    folder: Path
    parts: Mapping[str, Any]
    build_id: str
    trained: StageOutput


def read_result(folder: Path) -> StageResult | None:
    """The result of a finished stage, else None. Raises `AttachError` where its files are missing or unreadable."""
    document = _read_json(folder / RESULT_FILE)
    if document is None:
        return None
    trained = StageOutput(
        folders=tuple(folder / name for name in document["folders"]),
        files=tuple(folder / name for name in document["files"]),
        facts=document["facts"],
        notes=tuple(document["told"]),
    )
    for path in (*trained.folders, *trained.files):
        if not path.exists():
            raise AttachError(
                f"{path} is gone, which {document['name']} had left: make it again with --fresh {document['name']}"
            )
    return StageResult(document["name"], document["method"], folder, document["parts"], document["made"], trained)


def started_parts(folder: Path) -> Mapping[str, Any] | None:
    """The settings and file ids that a stage was started with; None where it was not started."""
    document = _read_json(folder / STARTED_FILE)
    return None if document is None else document["parts"]


def mark_started(folder: Path, parts: Parts) -> None:
    _write_json(folder / STARTED_FILE, {"format": FORMAT, "parts": parts})


def write_result(folder: Path, name: str, method: str, parts: Parts, trained: StageOutput) -> StageResult:
    """Write the result, atomically and last: from then on the stage is skipped."""
    build_id = secrets.token_hex(8)
    document = {
        "format": FORMAT,
        "name": name,
        "method": method,
        "made": build_id,
        "parts": parts,
        "folders": [os.path.relpath(path, folder) for path in trained.folders],
        "files": [os.path.relpath(path, folder) for path in trained.files],
        "facts": dict(trained.facts),
        "told": list(trained.notes),
    }
    _write_json(folder / RESULT_FILE, document)
    return StageResult(name, method, folder, parts, build_id, trained)


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted names of settings that differ.

    >>> list(changed_settings({"trl": {"beta": 0.1, "seed": 1}}, {"trl": {"beta": 0.2, "seed": 1}, "lora": None}))
    ['trl.beta', 'lora']
    """
    for name in dict.fromkeys((*before, *now)):
        one, other = before.get(name), now.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from changed_settings(one, other, f"{prefix}{name}.")
        elif one != other or (name in before) != (name in now):
            yield f"{prefix}{name}"


def content_id(path: Path) -> str:
    """A short hash of the content of a file or a folder, independent of its path.

    Of a weights file only the size and both ends are hashed: training changes weights everywhere.
    """
    total = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and not file.name.startswith("."):
            total.update(str(file.relative_to(path)).encode() if file != path else b"")
            total.update(_digest_ends(file) if file.suffix == ".safetensors" else _digest(file))
    return total.hexdigest()[:16]


def _digest(file: Path) -> bytes:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _digest_ends(file: Path) -> bytes:
    size = file.stat().st_size
    with file.open("rb") as stream:
        first = stream.read(EDGE_BYTES)
        stream.seek(max(0, size - EDGE_BYTES))
        return hashlib.sha256(b"%d\n" % size + first + stream.read(EDGE_BYTES)).digest()


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise AttachError(f"{path} cannot be read: {error}; remove the stage's folder to train it again") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise AttachError(f"{path} was written by another version; remove the stage's folder to train it again")
    return document


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write to a temporary file, then rename it: a reader never sees a partial file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}")
    with temporary.open("w", encoding="ascii") as stream:
        json.dump(document, stream, indent=1, default=str)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
