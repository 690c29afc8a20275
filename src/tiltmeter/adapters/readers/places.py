"""Where in a folder other tools' files lie, told by their names: a folder of 100,000 files is listed, not read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tiltmeter.adapters.readers.foreign import Piece
from tiltmeter.adapters.readers.tables import PICKLES
from tiltmeter.errors import StoreError

DEPTH = 5  # folders below the one that was named
FOLDERS = 20_000
PIECE = 32 << 20  # bytes that one worker takes at a time
PIECE_FILES = 256

_INSIDE = re.compile(r"(?:global_)?step_\d+.*|checkpoint-\d+|\..*|__pycache__|node_modules")
_AREAL = ("rollout", "eval-rollout")  # folders in them are versions of one run's policy; elsewhere a number is a run


@dataclass(frozen=True)
class Place:
    """One folder and the names in it; one name, where a file was given alone."""

    folder: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]

    @cached_property
    def tells(self) -> frozenset[str]:
        """The readers whose files these are, by name."""
        return frozenset(reader for reader, test in _TELLTALES.items() if test(self))


@dataclass(frozen=True, slots=True)
class Stored:
    """What is stored of one step."""

    step: int
    files: tuple[Path, ...]
    size: int


def survey(path: Path) -> list[Place]:
    """The folder and those below it, parents first; folders that belong to one step are left to their reader.

    A file that is named alone is a place of its own. Links to folders are not followed: they would be read twice.
    """
    if path.is_file():
        return [Place(path.parent, (path.name,), ())]
    found: list[Place] = []
    waiting = [(path, 0)] if path.is_dir() else []
    while waiting:
        folder, depth = waiting.pop(0)
        place = listed(folder)
        found.append(place)
        if len(found) + len(waiting) > FOLDERS:
            raise StoreError(f"{path}: more than {FOLDERS} folders; name the run's own folder")
        if depth < DEPTH:
            versions = folder.absolute().name in _AREAL
            below = [name for name in place.folders if not (versions and name.isdecimal())]
            waiting += [(folder / name, depth + 1) for name in below if not _INSIDE.fullmatch(name)]
    return found


def listed(folder: Path) -> Place:
    """The names in one folder, sorted."""
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif not entry.name.startswith("."):  # `._5.jsonl`, which some systems put beside `5.jsonl`
                    files.append(entry.name)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be listed ({error.strerror}); name a folder that you may read") from error
    return Place(folder, tuple(sorted(files)), tuple(sorted(folders)))


def numbered(folder: Path, names: Iterable[str], pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    """The names that the pattern knows, by the number in it. Raises `StoreError` where two have the same.

    >>> numbered(Path("."), ["10.jsonl", "9.jsonl", "notes.txt"], re.compile(r"([0-9]+)[.]jsonl"))
    [(9, '9.jsonl'), (10, '10.jsonl')]
    """
    found: dict[int, str] = {}
    for name in names:
        match = pattern.fullmatch(name)
        if match is None or len(match[1]) > 15:
            continue
        if int(match[1]) in found:
            raise StoreError(f"{folder}: {found[int(match[1])]} and {name} are the same step; move one away")
        found[int(match[1])] = name
    return sorted(found.items())


def size_of(path: Path) -> int:
    """Bytes of a file; 0 for one that went away."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def bundled(steps: Sequence[Stored]) -> tuple[Piece, ...]:
    """Steps in order, so many to a piece that a worker is kept busy and none must hold much."""
    pieces: list[Piece] = []
    taken: list[Stored] = []
    size = count = 0
    for at, one in enumerate(steps):
        taken.append(one)
        size, count = size + one.size, count + len(one.files)
        if size >= PIECE or count >= PIECE_FILES or at == len(steps) - 1:
            files = tuple(str(file.absolute()) for item in taken for file in item.files)
            pieces.append(Piece(files, size, tuple(item.step for item in taken)))
            taken, size, count = [], 0, 0
    return tuple(pieces)


def called(folder: Path, root: Path) -> str:
    """A run's name: the folders that lead to it from the one that was named, or that one's own name.

    >>> called(Path("/runs/a/seed1"), Path("/runs")), called(Path("/runs/a"), Path("/runs/a"))
    ('a-seed1', 'a')
    """
    folder, root = folder.absolute(), root.absolute()
    if folder != root and folder.is_relative_to(root):
        return "-".join(folder.relative_to(root).parts)
    return folder.resolve().name or "run"


def beside(places: Iterable[Place], mine: str) -> tuple[str, ...]:
    """What is said where files of another tool lie among these: they are not mixed in, and not forgotten."""
    other: dict[str, Path] = {}
    for place in places:
        for reader in place.tells - {mine}:
            other.setdefault(reader, place.folder)
    kinds = {reader: "a tracker's files" if reader in _TRACKERS else "files of another format" for reader in other}
    return tuple(
        f"{kinds[reader]} lie here too, in {folder}, and are no part of this run: --format {reader} reads them alone"
        for reader, folder in sorted(other.items())
    )


def refusal(path: Path) -> str:
    """Why nothing here is read, where all there is are pickles; empty where there are none."""
    kinds = (*PICKLES, ".bin")
    named = (place.folder / name for place in survey(path) for name in place.files)
    first = next((file for file in named if file.suffix.lower() in kinds), None)
    if first is None:
        return ""
    return (
        f"{first}: a pickle (or torch dump) is not read, because loading one runs whatever code its author put there; "
        "write the rollouts as JSON lines or Parquet, or record them with tiltmeter.open_run"
    )


def _any(pattern: str) -> Callable[[Place], bool]:
    known = re.compile(pattern)
    return lambda place: any(known.fullmatch(name) for name in place.files)


def _steps(place: Place, pattern: str) -> bool:
    known = re.compile(pattern)
    return any(known.fullmatch(name) for name in place.folders)


def _of_areal(place: Place) -> bool:
    """A folder of one policy version: its files are numbered by task, as veRL's are by step."""
    return place.folder.parent.name in _AREAL and place.folder.name.isdecimal()


_TRACKERS = ("tensorboard", "wandb")
_numbers = _any(r"\d+\.jsonl(?:\.gz)?")
_TELLTALES: dict[str, Callable[[Place], bool]] = {
    "trl": _any(r"completions_\d+\.parquet"),
    "verl": lambda place: _numbers(place) and not _of_areal(place),
    "verifiers": lambda place: (
        "traces.jsonl" in place.files or (place.folder.name == "rollouts" and _steps(place, r"step_\d+"))
    ),
    "nemo": _any(r"train_data_step\d+\.jsonl(?:\.gz)?"),
    "skyrl": lambda place: _steps(place, r"global_step_\d+_evals"),
    "open_instruct": _any(r".+_rollouts_\d{6}\.jsonl(?:\.gz)?"),
    "tensorboard": _any(r"events\.out\.tfevents\..*"),
    "wandb": _any(r".+\.wandb"),
    "areal": lambda place: place.folder.name in _AREAL and _steps(place, r"\d+"),
}
