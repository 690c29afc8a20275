"""`tiltmeter doctor`: what is installed, what can be used, what is missing and the command that fixes it."""

from __future__ import annotations

import importlib.metadata
import json as json_module
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import tiltmeter
from tiltmeter.cli.show import Json
from tiltmeter.rundir.atomic_write import publish, storage_problem

#: What each extra is for, and the packages whose presence shows that it is installed. Those that nothing uses yet are
#: named so that environments can be prepared.
EXTRAS = {
    "trl": (("trl", "torch", "transformers"), "tiltmeter.attach on a TRL trainer"),
    "ray": (("ray",), "audits on a cluster (planned)"),
    "dashboard": (("starlette", "uvicorn", "duckdb"), "the live page: tiltmeter view"),
    "judge": (("httpx",), "gold from a judge endpoint"),
    "trackers": (("wandb", "tensorboard"), "exports to experiment trackers (planned)"),
}
BASE = ("numba", "numpy", "pyarrow", "rich", "tsdownsample", "typer")
TOOLS = {"bwrap": ("code verifiers in a sandbox (try it: tiltmeter sandbox check)", "apt-get install bubblewrap")}


def doctor(
    directory: Annotated[Path, typer.Option(help="Where runs will be kept.", metavar="DIR")] = Path(),
    json: Json = False,
) -> None:
    """Check this machine: what is installed, whether runs can be kept here, and what to do about the rest.

    Example: tiltmeter doctor --directory runs

    Exit code: 0 everything needed to record and judge a run works, 2 something does not.
    """
    rows = [*base_rows(), storage_row(directory), *extra_rows(), *tool_rows()]
    needed = [row for row in rows if row["needed"] and not row["ok"]]
    if json:
        Console(soft_wrap=True, highlight=False, markup=False).out(
            json_module.dumps({"version": tiltmeter.__version__, "ok": not needed, "checks": rows}, indent=1)
        )
    else:
        console = Console(highlight=False, markup=False, soft_wrap=True)
        console.print(Text(f"Tiltmeter {tiltmeter.__version__} on Python {platform.python_version()}"))
        for row in rows:
            mark = ("✓", "green") if row["ok"] else ("✗", "bold red") if row["needed"] else ("–", "dim")
            console.print(Text.assemble(mark, f" {row['what']:<12} {row['found']}"))
            if not row["ok"]:
                console.print(Text(f"    for {row['for']}: {row['fix']}", "" if row["needed"] else "dim"))
    raise typer.Exit(2 if needed else 0)


Row = dict[str, str | bool]


def base_rows() -> list[Row]:
    return [
        _row(name, version := _version(name), "the core", f"pip install {name}", ok=bool(version), needed=True)
        for name in BASE
    ]


def extra_rows() -> list[Row]:
    rows = []
    for extra, (packages, purpose) in EXTRAS.items():
        versions = {name: _version(name) for name in packages}
        detail = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        rows.append(_row(f"[{extra}]", detail, purpose, f"pip install 'tiltmeter[{extra}]'", ok=all(versions.values())))
    return rows


def tool_rows() -> list[Row]:
    return [
        _row(tool, shutil.which(tool) or "", purpose, fix, ok=shutil.which(tool) is not None)
        for tool, (purpose, fix) in TOOLS.items()
    ]


def storage_row(directory: Path) -> Row:
    """Whether a file can be made durable there: a name that is given once, fsync, and room to write."""
    place = directory if directory.exists() else directory.absolute().parent
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".tiltmeter-doctor-") as folder:
            why = storage_problem(Path(folder))
            synced = not why and publish(Path(folder) / "probe", [b"probe"])
        free = shutil.disk_usage(place).free / 1e9
        ok, detail = synced and free > 1.0, why or f"{free:.0f} GB free, exclusive names and fsync work"
    except OSError as error:
        ok, detail = False, str(error)
    fix = "choose a directory on a POSIX file system with free space"
    return _row(f"storage {os.fspath(directory)}", detail, "the run directory", fix, ok=ok, needed=True)


def _row(what: str, detail: str, purpose: str, fix: str, *, ok: bool, needed: bool = False) -> Row:
    return {
        "what": what,
        "found": detail or "not installed",
        "for": purpose,
        "fix": "" if ok else fix,
        "ok": ok,
        "needed": needed,
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
