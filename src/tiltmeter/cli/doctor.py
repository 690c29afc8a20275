"""`tiltmeter doctor`: what works on this machine, each line by a check that was made, and what fixes the rest."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import json as json_module
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import tiltmeter
from tiltmeter.cli.extras import EXTRAS
from tiltmeter.cli.options import Json
from tiltmeter.rundir.atomic_write import publish, storage_problem
from tiltmeter.safety.safe_text import log_line
from tiltmeter.sandbox.opening import open_sandbox
from tiltmeter.sandbox.tiers import INSTALL

BASE = ("jinja2", "msgspec", "numba", "numpy", "pyarrow", "rich", "tsdownsample", "typer")
IMPORT_SECONDS = 60.0  # for one module
MARK = "imported"
IMPORTS = f"""
import importlib, sys
for name in sys.argv[1:]:
    problem = ""
    try:
        importlib.import_module(name)
    except BaseException as error:
        problem = " ".join(f"{{type(error).__name__}}: {{error}}".split())
    print("{MARK}", name, problem, sep="\\t", file=sys.__stdout__, flush=True)
"""
FREE_GB = 1.0

Row = dict[str, str | bool]


def doctor(
    directory: Annotated[Path, typer.Option("--directory", help="Where runs will be kept.", metavar="FOLDER")] = Path(),
    json: Json = False,
) -> None:
    """Check this machine: what works, whether runs can be kept here, and what to do about the rest.

    Example: tiltmeter doctor --directory runs

    Every line is something that was tried: packages are imported, a file is written, a program is run in the sandbox.
    Exit code: 0 everything needed to record and judge a run works, 2 something does not.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not json:
        console.print(Text(f"Tiltmeter {tiltmeter.__version__} on Python {platform.python_version()}"))
    rows = []
    for row in check_machine(directory):
        rows.append(row)
        if not json:
            mark = ("✓", "green") if row["ok"] else ("✗", "bold red") if row["needed"] else ("–", "dim")
            console.print(Text.assemble(mark, f" {row['what']:<12} {row['found']}"))
            if not row["ok"]:
                console.print(Text(f"    for {row['for']}: {row['fix']}", "" if row["needed"] else "dim"))
    broken = [row for row in rows if row["needed"] and not row["ok"]]
    if json:
        console.out(json_module.dumps({"version": tiltmeter.__version__, "ok": not broken, "checks": rows}, indent=1))
    raise typer.Exit(2 if broken else 0)


def check_machine(directory: Path) -> Iterator[Row]:
    """Every check, in the order of the screen."""
    for name, problem in import_problems(BASE).items():
        yield import_row(name, {name: problem}, "the core", f"pip install {name}", needed=True)
    yield storage_row(directory)
    problems = import_problems(sorted({name for one in EXTRAS.values() for name in one.modules}))
    for extra, one in EXTRAS.items():
        own = {name: problems[name] for name in one.modules}
        yield import_row(f"[{extra}]", own, one.purpose, f"pip install 'tiltmeter[{extra}]'")
    yield sandbox_row()


def import_problems(modules: Sequence[str]) -> dict[str, str]:
    """Why each module cannot be imported; empty where it can. Tried in another process, which a broken one may end."""
    problems = {name: "not installed" for name in modules if importlib.util.find_spec(name) is None}
    while left := [name for name in modules if name not in problems]:
        with tempfile.TemporaryFile("w+") as answers:
            try:
                subprocess.run(
                    [sys.executable, "-c", IMPORTS, *left],
                    stdout=answers, stderr=subprocess.DEVNULL, timeout=IMPORT_SECONDS * len(left),
                )  # fmt: skip
                ended = "its import ends the interpreter"
            except subprocess.TimeoutExpired:
                ended = f"not imported within {IMPORT_SECONDS:.0f} s"
            answers.seek(0)
            lines = [line.rstrip("\n").split("\t") for line in answers if line.startswith(MARK)]
        problems |= {name: problem for _, name, problem in lines}
        if len(lines) < len(left):
            problems[left[len(lines)]] = ended
    return problems


def import_row(what: str, problems: Mapping[str, str], purpose: str, fix: str, *, needed: bool = False) -> Row:
    """Modules that belong together, and whether all of them can be imported."""
    wrong = "; ".join(f"{name}: {log_line(problem, 160)}" for name, problem in problems.items() if problem)
    versions = ", ".join(f"{name} {_version(name)}".strip() for name in problems)
    return _row(what, wrong or versions, purpose, fix, ok=not wrong, needed=needed)


def storage_row(directory: Path) -> Row:
    """Whether a file can be made durable there: a name that is given once, fsync, and room to write."""
    place = directory if directory.exists() else directory.absolute().parent
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".tiltmeter-doctor-") as folder:
            why = storage_problem(Path(folder))
            synced = not why and publish(Path(folder) / "probe", [b"probe"])
        free = shutil.disk_usage(place).free / 1e9
        ok, detail = synced and free > FREE_GB, why or f"{free:.0f} GB free, exclusive names and fsync work"
    except OSError as error:
        ok, detail = False, str(error)
    fix = "choose a directory on a POSIX file system with free space"
    return _row(f"storage {os.fspath(directory)}", detail, "the run directory", fix, ok=ok, needed=True)


def sandbox_row() -> Row:
    """Whether a program can be run in a sandbox here: its probes are run, then a program."""
    purpose, fix = "code verifiers (all probes: tiltmeter reward sandbox)", INSTALL[0]
    try:
        with open_sandbox(fresh=True) as sandbox:
            answer = sandbox.run("print(6 * 7)").stdout.strip()
            ok, detail = answer == "42", f"a program ran in {sandbox.tier}, {sandbox.isolation}"
    except tiltmeter.TiltmeterError as error:
        return _row("sandbox", log_line(str(error), 160), purpose, fix, ok=False)
    return _row("sandbox", detail, purpose, fix, ok=ok)


def _row(what: str, detail: str, purpose: str, fix: str, *, ok: bool, needed: bool = False) -> Row:
    return {"what": what, "found": detail, "for": purpose, "fix": "" if ok else fix, "ok": ok, "needed": needed}


distributions = functools.cache(importlib.metadata.packages_distributions)


def _version(module: str) -> str:
    names = distributions().get(module, [module])
    try:
        return importlib.metadata.version(names[0])
    except importlib.metadata.PackageNotFoundError:
        return ""
