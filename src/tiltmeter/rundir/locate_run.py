"""The run that a path means: people name the folder they know, which is the trainer's more often than ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tiltmeter.errors import StoreError
from tiltmeter.rundir.remote.address import parse_address
from tiltmeter.rundir.remote.copy import fetch_copy
from tiltmeter.rundir.run_path import entries

INSIDE = ("rollouts", "events", "run.json")  # names in a run directory that somebody may point at
DEPTH = 5  # folders below a path that are searched, as the page searches
MOST_FOLDERS = 20_000
UP = 4  # names from a packed file of an attempt up to its run
NAMED = 4  # runs that an error names


def locate_run(path: Path | str, *, steps: int | None = None) -> Path:
    """The run directory that a path means: itself, the one that an attempt or a file belongs to, that of a trainer's
    output folder, or the only one below; for an address on object storage, a copy of it, with the rollouts of so many
    of its newest steps. Raises `StoreError` for none and for several."""
    if (address := parse_address(path)) is not None:
        return fetch_copy(address, steps=steps)
    start = Path(path)
    if (around := run_around(start)) is not None:
        return around
    below = list(runs_below(start))
    if len(below) == 1:
        return below[0]
    if below:
        names = ", ".join(str(one) for one in below[:NAMED])
        more = f" and {len(below) - NAMED} more" if len(below) > NAMED else ""
        raise StoreError(
            f"{start} holds {len(below)} runs: name one of {names}{more}, or see all: tiltmeter view {start}"
        )
    if not start.exists():
        raise StoreError(f"{start} does not exist")
    raise StoreError(
        f"{start} is not a run directory (no readable run.json) and holds none; for the files of a trainer or tracker: "
        f"tiltmeter audit {start}"
    )


def run_around(path: Path) -> Path | None:
    """The run directory that a path is, is inside of, or has as its folder `tiltmeter`; None if there is none."""
    for candidate in (path, path / "tiltmeter"):
        if os.path.lexists(candidate / "run.json"):  # one that cannot be read is reported by whoever opens it
            return candidate
    inside = path.absolute()
    for number, parent in enumerate(inside.parents[:UP]):
        if inside.parts[-number - 1] in INSIDE and os.path.lexists(parent / "run.json"):
            return parent
    return None


def runs_below(path: Path) -> Iterator[Path]:
    """Every run directory below a folder, by name; links are not followed."""
    pending = [(path, 0)]
    for _ in range(MOST_FOLDERS):
        if not pending:
            return
        folder, depth = pending.pop()
        inner, is_run = list_folder(str(folder))
        if is_run:
            yield folder
        elif depth < DEPTH:
            pending += [(folder / name, depth + 1) for name in inner]


def list_folder(folder: str) -> tuple[list[str], bool]:
    """The subfolders of a folder without links, in reverse order, and whether it is a run."""
    inner = []
    try:
        for entry in entries(Path(folder)):
            if entry.name == "run.json" and entry.is_file(follow_symlinks=False):
                return [], True
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
    except OSError:
        return [], False  # no permission
    return sorted(inner, reverse=True), False
