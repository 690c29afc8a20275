"""What is known of a stage on disk: that it was begun, with which settings and files, and what it left at its end."""

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
from tiltmeter.train.method import Trained

BEGUN, FINISHED = "begun.json", "stage.json"
EDGE = 1 << 16  # bytes of a file of weights that are looked at, at each end: all of them would take minutes
FORMAT = 1

Parts = dict[str, Any]


@dataclass(frozen=True)
class Result:
    """A finished stage. `made` is another one each time the stage is trained: what was built on it can tell."""

    name: str
    method: str
    folder: Path
    parts: Mapping[str, Any]
    made: str
    trained: Trained


def finished(folder: Path) -> Result | None:
    """What a stage left, if it came to its end. Raises `AttachError` where that is gone or cannot be read."""
    said = _read(folder / FINISHED)
    if said is None:
        return None
    trained = Trained(
        folders=tuple(folder / name for name in said["folders"]),
        files=tuple(folder / name for name in said["files"]),
        facts=said["facts"],
        told=tuple(said["told"]),
    )
    for path in (*trained.folders, *trained.files):
        if not path.exists():
            raise AttachError(
                f"{path} is gone, which {said['name']} had left: make it again with --fresh {said['name']}"
            )
    return Result(said["name"], said["method"], folder, said["parts"], said["made"], trained)


def begun(folder: Path) -> Mapping[str, Any] | None:
    """The settings and files an unfinished stage was begun with; None where nothing was begun."""
    said = _read(folder / BEGUN)
    return None if said is None else said["parts"]


def begin(folder: Path, parts: Parts) -> None:
    _write(folder / BEGUN, {"format": FORMAT, "parts": parts})


def finish(folder: Path, name: str, method: str, parts: Parts, trained: Trained) -> Result:
    """Written last, and whole or not at all: from here on the stage is skipped."""
    made = secrets.token_hex(8)
    said = {
        "format": FORMAT,
        "name": name,
        "method": method,
        "made": made,
        "parts": parts,
        "folders": [os.path.relpath(path, folder) for path in trained.folders],
        "files": [os.path.relpath(path, folder) for path in trained.files],
        "facts": dict(trained.facts),
        "told": list(trained.told),
    }
    _write(folder / FINISHED, said)
    return Result(name, method, folder, parts, made, trained)


def changed(before: Mapping[str, Any], now: Mapping[str, Any], inside: str = "") -> Iterator[str]:
    """The names of what differs, down to a single setting.

    >>> list(changed({"trl": {"beta": 0.1, "seed": 1}}, {"trl": {"beta": 0.2, "seed": 1}, "lora": None}))
    ['trl.beta', 'lora']
    """
    for name in dict.fromkeys((*before, *now)):
        one, other = before.get(name), now.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from changed(one, other, f"{inside}{name}.")
        elif one != other or (name in before) != (name in now):
            yield f"{inside}{name}"


def identity(path: Path) -> str:
    """A short name for what a file or a folder holds, wherever it is kept.

    Of a file of weights only size and both ends are read; training changes them everywhere.
    """
    total = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and not file.name.startswith("."):
            total.update(str(file.relative_to(path)).encode() if file != path else b"")
            total.update(_ends(file) if file.suffix == ".safetensors" else _digest(file))
    return total.hexdigest()[:16]


def _digest(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()


def _ends(file: Path) -> bytes:
    size = file.stat().st_size
    with file.open("rb") as opened:
        first = opened.read(EDGE)
        opened.seek(max(0, size - EDGE))
        return hashlib.sha256(b"%d\n" % size + first + opened.read(EDGE)).digest()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        said = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise AttachError(f"{path} cannot be read: {error}; remove the stage's folder to train it again") from error
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise AttachError(f"{path} was written by another version; remove the stage's folder to train it again")
    return said


def _write(path: Path, said: Mapping[str, Any]) -> None:
    """Under a name of its own first, then renamed: a reader sees the whole of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    other = path.with_name(f".{path.name}")
    with other.open("w", encoding="ascii") as opened:
        json.dump(said, opened, indent=1, default=str)
        opened.flush()
        os.fsync(opened.fileno())
    other.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
