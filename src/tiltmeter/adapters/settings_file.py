"""Arguments of `attach` and `open_run` from your file: `tiltmeter.toml`, or `[tool.tiltmeter]` in `pyproject.toml`.

It is looked for beside the script that runs, then in the current folder; the first one counts. Its keys are the names
of the arguments, its tables the objects that they take. What a call says wins, argument by argument. The file can name
code, so it must belong to you or to the owner of the script that runs; a run directory is never searched for it.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tiltmeter.adapters.arguments import nearest_name
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.run_path import read_file, run_path

OWN, PROJECT, TABLE = "tiltmeter.toml", "pyproject.toml", "tool.tiltmeter"
BYTES = 1 << 20
#: What a file may say; an entry point takes those of them that it has.
NAMES = ("gold", "act", "traps", "anchors", "slices", "directory", "trackers", "options")


class SettingsFile(NamedTuple):
    """A file that was read, and what it says."""

    path: Path
    settings: Mapping[str, Any]


def find_settings() -> SettingsFile | None:
    """The settings that apply to this process. Raises `AttachError` for a file that cannot be meant so."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    places: dict[Path, int] = {}  # folders, and whose file is read there beside this user's
    if script is not None and (path := Path(script)).is_file():
        places[path.resolve().parent] = path.stat().st_uid
    places.setdefault(Path.cwd(), os.geteuid())
    for folder, owner in places.items():
        if (folder / "run.json").exists():
            continue  # a run directory, which may be anybody's
        for name in (OWN, PROJECT):
            if (folder / name).exists() and (settings := _read(folder, name, owner)) is not None:
                return SettingsFile(folder / name, settings)
    return None


def with_settings(arguments: dict[str, Any], defaults: Mapping[str, Any]) -> tuple[dict[str, Any], Path | None]:
    """These arguments, and of the file those that were left at their defaults; and the file, if it was read."""
    file = find_settings()
    if file is None:
        return arguments, None
    open_names = {name for name, value in arguments.items() if _is_default(value, defaults.get(name))}
    additions = {name: value for name, value in file.settings.items() if name in open_names}
    return arguments | additions, file.path


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str) and value == default)


def _read(folder: Path, name: str, owner: int) -> Mapping[str, Any] | None:
    path = folder / name
    try:
        whose = owner if path.stat().st_uid == owner else os.geteuid()
        raw = read_file(run_path(folder) / name, BYTES, owner=whose)
        table = tomllib.loads(raw.decode()) if name == OWN or TABLE.encode() in raw else {}
        settings = table if name == OWN else table.get("tool", {}).get("tiltmeter")
    except (OSError, ValueError, StoreError) as error:
        if name == PROJECT:
            return None  # another tool's, as far as is known
        raise AttachError(f"{path} cannot be used: {error}") from error
    if settings is None:
        return None
    where = str(path) if name == OWN else f"[{TABLE}] of {path}"
    if not isinstance(settings, dict):
        raise AttachError(f"{where} is no table of settings")
    if unknown := [key for key in settings if key not in NAMES]:
        raise AttachError(f"{where} has {unknown[0]!r}, which is no setting; {nearest_name(unknown[0], NAMES)}")
    return settings
