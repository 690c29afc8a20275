"""Gold by a name that another process can load: a function's file beneath the run directory, and absolute paths."""

from __future__ import annotations

from pathlib import Path

from tiltmeter.errors import AttachError
from tiltmeter.gold.regrade.settings import SUFFIX, Regrade
from tiltmeter.gold.regrade.source import load_regrade
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.run_path import make_folder
from tiltmeter.safety.function_file import FunctionFile


def write_gold(folder: Path, file: FunctionFile) -> str:
    """Write a function's file beneath a folder, and give the name by which the monitor loads it."""
    path = make_folder(folder, "gold", "functions", file.sha256) / file.file
    try:
        publish(path, [file.text.encode()])
    except FileExistsError:
        pass  # an earlier attempt's: the same text, or it is not loaded
    except OSError as error:
        raise AttachError(f"cannot write {path}: {error}; free space or name another place") from error
    return f"{path}:{file.function}"


def regrade_of(source: object) -> Regrade | None:
    """The settings of a source that grades workspaces; None for any other. Raises `AttachError`."""
    if isinstance(source, str) and source.endswith(SUFFIX):
        return load_regrade(source).settings
    return source if isinstance(source, Regrade) else None


def absolute_name(name: str) -> str:
    """A file name as an absolute path: a restarted monitor must find it even if the trainer changed its directory."""
    if not name.endswith((".toml", SUFFIX)) and ".py:" not in name:
        return name
    file, colon, function = name.rpartition(":") if name.rpartition(":")[0].endswith(".py") else (name, "", "")
    return f"{Path(file).resolve()}{colon}{function}"
