"""Store and read audits of a run's verifier, and the canaries and sandboxes its reward functions had at attach.

One small JSON file each in `audits/`, written once; every field is checked when it is read.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import entries, publish, sync_folder
from tiltmeter.rundir.store import RunDirectory

FILE_BYTES = 4 << 20
FILES = 20  # of the newest that are read
ROWS = 200
TEXT = 4000  # characters of a text
VERDICTS = ("none paid", "some paid", "could not judge")
STATES = ("paid", "not paid", "could not judge")

_FILE = re.compile(r"([0-9]{10,12})-[0-9a-f]{8}\.json")


def write_audit(run: RunDirectory, record: Mapping[str, Any]) -> Path:
    """Store an audit's record beside the run; several may be kept, named by their time."""
    path = _folder(run) / f"{int(record['time']):010d}-{secrets.token_hex(4)}.json"
    publish(path, [json.dumps(dict(record), allow_nan=False).encode()])
    return path


def list_audits(run: RunDirectory) -> list[Path]:
    """The files of the newest audits, newest first; no file is opened."""
    names = [entry.name for entry in entries(run.path / "audits") if entry.is_file() and _FILE.fullmatch(entry.name)]
    return [run.path / "audits" / name for name in sorted(names, reverse=True)[:FILES]]


def read_audit(path: Path) -> dict[str, Any]:
    """A stored audit, with every field checked. Raises `StoreError` for anything unexpected."""
    try:
        facts = _facts(path)
        return {
            "reward": _text(facts["reward"], 300),
            "time": _number(facts["time"]),
            "seconds": _number(facts["seconds"]),
            "tasks": int(facts["tasks"]),
            "judged": int(facts["judged"]),
            "network": _text(facts["network"], 40),
            "verdict": _one_of(facts["verdict"], VERDICTS),
            "why": _text(facts["why"], 1000),
            "tried": [_parse_forgery(row) for row in _rows(facts["tried"])],
            "checks": [_parse_check(row) for row in _rows(facts["checks"])],
        }
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StoreError(f"{path} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error


def write_guards(
    run: RunDirectory, attempt: int, canaries: list[dict[str, str]], sandboxes: list[dict[str, str]]
) -> None:
    """Store the canaries and sandboxes of an attempt's reward functions, if any. The first file is kept."""
    if not canaries and not sandboxes:
        return
    folder = _folder(run)
    facts = {"schema": 1, "time": time.time(), "canaries": canaries[:ROWS], "sandboxes": sandboxes[:ROWS]}
    try:
        publish(folder / f"attempt-{attempt}.json", [json.dumps(facts, allow_nan=False).encode()])
    except FileExistsError:
        pass  # written before


def read_guards(run: RunDirectory, attempt: int) -> dict[str, Any] | None:
    """The stored canaries and sandboxes of an attempt; None if there are none, or they cannot be read."""
    path = run.path / "audits" / f"attempt-{attempt}.json"
    if not path.is_file() or path.is_symlink():
        return None
    try:
        facts = _facts(path)
        canaries, sandboxes = (_rows(facts[name]) for name in ("canaries", "sandboxes"))
        return {
            "time": _number(facts["time"]),
            "canaries": [{k: _text(row[k], 300) for k in ("reward", "kind", "expect", "text")} for row in canaries],
            "sandboxes": [{k: _text(row[k], 300) for k in ("reward", "tier", "isolation")} for row in sandboxes],
        }
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def _folder(run: RunDirectory) -> Path:
    folder = run.path / "audits"
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        sync_folder(run.path)
    return folder


def _facts(path: Path) -> Any:
    with path.open("rb") as file:
        text = file.read(FILE_BYTES + 1)
    if len(text) > FILE_BYTES:
        raise ValueError(f"more than {FILE_BYTES} bytes")
    facts = json.loads(text)
    if facts["schema"] != 1:
        raise ValueError(f"schema {facts['schema']!r} is of a newer version: pip install --upgrade tiltmeter")
    return facts


def _parse_forgery(row: Any) -> dict[str, Any]:
    return {
        "forgery": _text(row["forgery"], 200),
        "status": _one_of(row["status"], STATES),
        "paid": int(row["paid"]),
        "tasks": int(row["tasks"]),
        "unjudged": int(row["unjudged"]),
        "score": None if row["score"] is None else _number(row["score"]),
        **{name: _text(row[name], TEXT) for name in ("text", "why", "fix")},
    }


def _parse_check(row: Any) -> dict[str, Any]:
    if row["ok"] not in (True, False, None):
        raise ValueError("a check held, failed, or could not be seen")
    return {"ok": row["ok"], **{name: _text(row[name], TEXT) for name in ("name", "says", "fix")}}


def _rows(rows: Any) -> list[Any]:
    if not isinstance(rows, list) or len(rows) > ROWS:
        raise ValueError(f"not a list of at most {ROWS} rows")
    return rows


def _text(value: Any, most: int) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f"not a text of at most {most} characters")
    return value


def _one_of(value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ValueError(f"not one of {', '.join(allowed)}")
    return str(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("no finite number")
    return float(value)
