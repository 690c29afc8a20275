"""Arguments and options that several verbs have: one name, one shape and one meaning for each."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tiltmeter.cli.terminal.run_screen import write_stdout
from tiltmeter.errors import AttachError
from tiltmeter.rundir.locate_run import locate_run
from tiltmeter.rundir.remote.address import parse_address
from tiltmeter.rundir.remote.copy import follow_copy
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line

Run = Annotated[
    Path,
    typer.Argument(
        help="A run: its directory, an attempt in it, the output folder that holds it, or its address (s3://...).",
        metavar="RUN",
    ),
]
Trust = Annotated[bool, typer.Option("--trust", help="Write into a run directory that another user made.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output, for machines.")]
Plain = Annotated[bool, typer.Option("--plain", help="ASCII lines, for logs and pipes.")]
More = Annotated[bool, typer.Option("--more", help="Everything that is known, not the five lines.")]
Html = Annotated[
    Path | None,
    typer.Option("--html", help="Write the report here, as one HTML file that needs no network.", metavar="FILE"),
]
Markdown = Annotated[
    Path | None, typer.Option("--md", help="Write the report here, as Markdown; - prints it.", metavar="FILE")
]
Seed = Annotated[int, typer.Option("--seed", help="Of everything random.", metavar="N", min=0)]


def open_run(path: Path, *, steps: int | None = None) -> RunDirectory:
    """The run that a path means; of one on object storage, with the rollouts of so many of its newest steps. Raises
    `StoreError` if it means none, or several."""
    directory = RunDirectory(locate_run(path, steps=steps))
    directory.identity()
    return directory


def local_roots(paths: Sequence[Path] | None) -> list[Path]:
    """Folders to look for runs in: those named, or the current one; for an address a copy that follows it."""
    addresses = [(path, parse_address(path)) for path in paths or [Path()]]
    return [path if address is None else follow_copy(address) for path, address in addresses]


def open_to_change(path: Path, trust: bool) -> RunDirectory:
    """The run, to write into it or delete from it; one that another user made only after a question."""
    directory = open_run(path)
    run = directory.path
    owner = run.stat().st_uid
    if trust or owner == os.geteuid():
        return directory
    question = f"{log_line(str(run))} belongs to user {owner}. Change files in it?"
    if not (sys.stdin.isatty() and typer.confirm(question)):
        raise AttachError(
            f"{run} belongs to user {owner}, and nothing was changed in it: look at it with "
            f"`tiltmeter verify --untrusted {run}`, then add --trust"
        )
    return directory


def write_report(content: str | bytes, target: Path, name: str, option: str) -> None:
    """Write to a file, to `name` in a folder that is there, or text to standard output for `-`."""
    if str(target) == "-":
        if isinstance(content, bytes):
            raise typer.BadParameter("name a file: a picture in a terminal helps nobody", param_hint=option)
        write_stdout(content.encode("utf-8", "backslashreplace").decode())
        return
    if target.is_dir():
        target = target / name
    data = content.encode() if isinstance(content, str) else content
    try:
        target.write_bytes(data)
    except OSError as error:
        raise typer.BadParameter(f"{error.strerror}: {target}", param_hint=option) from error
    sys.stderr.write(f"{target} ({len(data) / 1000:.0f} kB)\n")


def file_stem(name: str) -> str:
    """A name that is a file's name everywhere.

    >>> file_stem("../a b")
    '_a_b'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "run"
