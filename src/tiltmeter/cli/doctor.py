"""`tiltmeter doctor`: what works on this machine and in a run, each line by a check, and what fixes the rest."""

from __future__ import annotations

import fcntl
import functools
import importlib.metadata
import importlib.util
import json as json_module
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

import tiltmeter
from tiltmeter.adapters.tried_versions import PACKAGES, version_note
from tiltmeter.cli.doctor_run import Row, check_run, row
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
CLOCK_SECONDS = 5.0  # by which the clock of a file server may differ: rows are put in order by times of files
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:\(?>=\s*([0-9.]+))?")


def doctor(
    run: Annotated[
        Path | None, typer.Argument(help="A run to look at too: is it measured, judged, stored?", metavar="[RUN]")
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Where runs will be kept.", metavar="FOLDER")
    ] = None,
    imports: Annotated[
        bool, typer.Option("--import", help="Really import every package, which takes seconds; not only look it up.")
    ] = False,
    json: Json = False,
) -> None:
    """Check this machine, and a run if you name one: what works, and what to do about the rest.

    Example: tiltmeter doctor runs/tonight

    Packages are looked up, and their versions compared with the lowest that work; --import imports them. A file is
    written where runs are kept, and a program is run in the sandbox. Nothing is written into the run itself.
    Exit code: 0 everything needed to record and judge a run works, 2 something does not.
    """
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not json:
        console.print(Text(f"Tiltmeter {tiltmeter.__version__} on Python {platform.python_version()}"))
    rows = []
    for one in check_all(run, directory, imports=imports):
        rows.append(one)
        if not json:
            mark = ("✓", "green") if one["ok"] else ("✗", "bold red") if one["needed"] else ("–", "dim")
            console.print(Text.assemble(mark, f" {one['what']:<12} {one['found']}"))
            if not one["ok"]:
                console.print(Text(f"    for {one['for']}: {one['fix']}", "" if one["needed"] else "dim"))
    broken = [one for one in rows if one["needed"] and not one["ok"]]
    if json:
        console.out(json_module.dumps({"version": tiltmeter.__version__, "ok": not broken, "checks": rows}, indent=1))
    raise typer.Exit(2 if broken else 0)


def check_all(run: Path | None, directory: Path | None, *, imports: bool = False) -> Iterator[Row]:
    """Every check, in the order of the screen: the run first, because it was asked about."""
    place = directory
    if run is not None:
        for one in check_run(run):
            yield one
            if one["what"] == "run" and one["ok"] and place is None:
                place = Path(str(one["path"])).parent
    yield from check_machine(Path() if place is None else place, imports=imports)


def check_machine(directory: Path, *, imports: bool = False) -> Iterator[Row]:
    """What is installed, and whether runs can be kept in a folder."""
    problems = import_problems if imports else version_problems
    for name, problem in problems(BASE).items():
        yield import_row(name, {name: problem}, "the core", f"pip install --upgrade {name}", needed=True)
    yield storage_row(directory)
    wrong = problems(sorted({name for one in EXTRAS.values() for name in one.modules}))
    for extra, one in EXTRAS.items():
        own = {name: wrong[name] for name in one.modules}
        yield import_row(f"[{extra}]", own, one.purpose, f"pip install --upgrade 'tiltmeter[{extra}]'")
    yield from trainer_rows()
    yield sandbox_row()


def version_problems(modules: Sequence[str]) -> dict[str, str]:
    """Why each module will not do, by what is installed: missing, or older than what this package asks for. Nothing is
    imported: a package that is there and broken is found by `import_problems`."""
    lowest = lowest_versions()
    problems = {}
    for name in modules:
        have, need = _version(name), lowest.get(_distribution(name), "")
        if importlib.util.find_spec(name) is None:
            problems[name] = "not installed"
        elif have and need and _numbers(have) < _numbers(need):
            problems[name] = f"{have} is installed, and {need} is the lowest that works"
        else:
            problems[name] = ""
    return problems


@functools.cache
def lowest_versions() -> dict[str, str]:
    """By distribution: the lowest version that this package asks for, in its core or in any extra. Empty in a checkout
    that is not installed."""
    try:
        lines = importlib.metadata.requires("tiltmeter") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    lowest: dict[str, str] = {}
    for line in lines:
        if (match := _BOUND.match(line)) and match[2]:
            name = _plain(match[1])
            lowest[name] = max(lowest.get(name, ""), match[2], key=_numbers)
    return lowest


def trainer_rows() -> Iterator[Row]:
    """Trainers and environments that are installed, and whether their version was tried."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None or not (version := _version(package)):
            continue
        note = version_note(package, version)
        purpose = "recording all that can be recorded"
        yield row(
            package,
            note or f"{version}, which was tried",
            purpose,
            "see its page in the documentation",
            ok=not note,
        )


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
    return row(what, wrong or versions, purpose, fix, ok=not wrong, needed=needed)


def storage_row(directory: Path) -> Row:
    """Whether a file can be made durable there: a name that is given once, fsync, locks, room, and the same clock."""
    place = directory if directory.exists() else directory.absolute().parent
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".tiltmeter-doctor-") as folder:
            why = storage_problem(Path(folder))
            synced = not why and publish(Path(folder) / "probe", [b"probe"])
            clock = (Path(folder) / "probe").stat().st_mtime - time.time() if synced else 0.0
            locks = _locks(Path(folder) / "lock")
        free = shutil.disk_usage(place).free / 1e9
        works = f"exclusive names, fsync and {'locks' if locks else 'leases in place of locks'} work"
        late = abs(clock) > CLOCK_SECONDS
        odd = f"its clock differs from this machine's by {clock:.0f} s; " if late else ""
        ok, detail = synced and free > FREE_GB and not late, why or f"{odd}{free:.0f} GB free, {works}"
    except OSError as error:
        ok, detail = False, str(error)
    fix = "choose a directory on a POSIX file system with free space, and set both clocks"
    return row(f"storage {os.fspath(directory)}", detail, "the run directory", fix, ok=bool(ok), needed=True)


def _locks(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def sandbox_row() -> Row:
    """Whether a program can be run in a sandbox here: its probes are run, then a program."""
    purpose, fix = "code verifiers (all probes: tiltmeter reward sandbox)", INSTALL[0]
    try:
        with open_sandbox(fresh=True) as sandbox:
            answer = sandbox.run("print(6 * 7)").stdout.strip()
            ok, detail = answer == "42", f"a program ran in {sandbox.tier}, {sandbox.isolation}"
    except tiltmeter.TiltmeterError as error:
        return row("sandbox", log_line(str(error), 160), purpose, fix, ok=False)
    return row("sandbox", detail, purpose, fix, ok=ok)


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _distribution(module: str) -> str:
    return _plain(_distributions().get(module, [module])[0])


def _version(module: str) -> str:
    try:
        return importlib.metadata.version(_distributions().get(module, [module])[0])
    except importlib.metadata.PackageNotFoundError:
        return ""


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("2.13.0+cpu") > _numbers("2.6"), _numbers("") < _numbers("0")
    (True, True)
    """
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
