"""Lists folders and recognises other tools' files by their names: a folder of 100,000 files is listed, not read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tiltmeter.audit.readers.external_run import Piece
from tiltmeter.audit.readers.table_files import PICKLES
from tiltmeter.errors import StoreError

DEPTH = 5  # levels below the given folder
FOLDERS = 20_000
PIECE = 32 << 20  # bytes that one worker takes at a time
PIECE_FILES = 256

_INSIDE = re.compile(r"(?:global_)?step_\d+.*|checkpoint-\d+|\..*|__pycache__|node_modules")
_AREAL = ("rollout", "eval-rollout")  # their subfolders are policy versions of one run; elsewhere a number is a run


@dataclass(frozen=True)
class FolderListing:
    """One folder and the names in it; a single name if a file was given."""

    folder: Path
    files: tuple[str, ...]
    folders: tuple[str, ...]

    @cached_property
    def formats(self) -> frozenset[str]:
        """The names of the readers whose files these are."""
        return frozenset(reader for reader, test in _FORMAT_TESTS.items() if test(self))


@dataclass(frozen=True, slots=True)
class StepFiles:
    """The files of one step."""

    step: int
    files: tuple[Path, ...]
    size: int


def list_folders(path: Path) -> list[FolderListing]:
    """The folder and those below it, parents first; folders that belong to one step are left to their reader.

    A single file is a listing of its own. Links to folders are not followed: they would be read twice.
    """
    if path.is_file():
        return [FolderListing(path.parent, (path.name,), ())]
    listings: list[FolderListing] = []
    waiting = [(path, 0)] if path.is_dir() else []
    while waiting:
        folder, depth = waiting.pop(0)
        listing = list_folder(folder)
        listings.append(listing)
        if len(listings) + len(waiting) > FOLDERS:
            raise StoreError(f"{path}: more than {FOLDERS} folders; name the run's own folder")
        if depth < DEPTH:
            versions = folder.absolute().name in _AREAL
            below = [name for name in listing.folders if not (versions and name.isdecimal())]
            waiting += [(folder / name, depth + 1) for name in below if not _INSIDE.fullmatch(name)]
    return listings


def list_folder(folder: Path) -> FolderListing:
    """The names in one folder, sorted."""
    files: list[str] = []
    folders: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif not entry.name.startswith("."):  # such as `._5.jsonl`, which macOS writes next to `5.jsonl`
                    files.append(entry.name)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be listed ({error.strerror}); name a folder that you may read") from error
    return FolderListing(folder, tuple(sorted(files)), tuple(sorted(folders)))


def numbered_names(folder: Path, names: Iterable[str], pattern: re.Pattern[str]) -> list[tuple[int, str]]:
    """The names that match the pattern, sorted by the number in them. Raises `StoreError` where two have the same.

    >>> numbered_names(Path("."), ["10.jsonl", "9.jsonl", "notes.txt"], re.compile(r"([0-9]+)[.]jsonl"))
    [(9, '9.jsonl'), (10, '10.jsonl')]
    """
    by_number: dict[int, str] = {}
    for name in names:
        match = pattern.fullmatch(name)
        if match is None or len(match[1]) > 15:
            continue
        if int(match[1]) in by_number:
            raise StoreError(f"{folder}: {by_number[int(match[1])]} and {name} are the same step; move one away")
        by_number[int(match[1])] = name
    return sorted(by_number.items())


def size_of(path: Path) -> int:
    """Bytes of a file; 0 for one that went away."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def bundle_steps(steps: Sequence[StepFiles]) -> tuple[Piece, ...]:
    """Group consecutive steps into pieces, each large enough for a worker and small enough for memory."""
    pieces: list[Piece] = []
    group: list[StepFiles] = []
    size = count = 0
    for at, one in enumerate(steps):
        group.append(one)
        size, count = size + one.size, count + len(one.files)
        if size >= PIECE or count >= PIECE_FILES or at == len(steps) - 1:
            files = tuple(str(file.absolute()) for item in group for file in item.files)
            pieces.append(Piece(files, size, tuple(item.step for item in group)))
            group, size, count = [], 0, 0
    return tuple(pieces)


def run_name(folder: Path, root: Path) -> str:
    """A run's name: its path relative to the given folder, or that folder's own name.

    >>> run_name(Path("/runs/a/seed1"), Path("/runs")), run_name(Path("/runs/a"), Path("/runs/a"))
    ('a-seed1', 'a')
    """
    folder, root = folder.absolute(), root.absolute()
    if folder != root and folder.is_relative_to(root):
        return "-".join(folder.relative_to(root).parts)
    return folder.resolve().name or "run"


def other_format_notes(listings: Iterable[FolderListing], mine: str) -> tuple[str, ...]:
    """Notes on files of other formats in these folders: they are not part of the run."""
    elsewhere: dict[str, Path] = {}
    for listing in listings:
        for reader in listing.formats - {mine}:
            elsewhere.setdefault(reader, listing.folder)
    kinds = {reader: "a tracker's files" if reader in _TRACKERS else "files of another format" for reader in elsewhere}
    return tuple(
        f"{kinds[reader]} lie here too, in {folder}, and are no part of this run: --format {reader} reads them alone"
        for reader, folder in sorted(elsewhere.items())
    )


def pickle_refusal(path: Path) -> str:
    """The error message where the files are pickles; empty where there are none."""
    kinds = (*PICKLES, ".bin")
    named = (listing.folder / name for listing in list_folders(path) for name in listing.files)
    first = next((file for file in named if file.suffix.lower() in kinds), None)
    if first is None:
        return ""
    return (
        f"{first}: a pickle (or torch dump) is not read, because loading one runs whatever code its author put there; "
        "write the rollouts as JSON lines or Parquet, or record them with tiltmeter.open_run"
    )


def _has_file(pattern: str) -> Callable[[FolderListing], bool]:
    regex = re.compile(pattern)
    return lambda listing: any(regex.fullmatch(name) for name in listing.files)


def _has_folder(listing: FolderListing, pattern: str) -> bool:
    regex = re.compile(pattern)
    return any(regex.fullmatch(name) for name in listing.folders)


def _is_areal_version(listing: FolderListing) -> bool:
    """A folder of one policy version: its files are numbered by task, as veRL's are by step."""
    return listing.folder.parent.name in _AREAL and listing.folder.name.isdecimal()


_TRACKERS = ("tensorboard", "wandb")
_has_numbered_jsonl = _has_file(r"\d+\.jsonl(?:\.gz)?")
_has_chunks = _has_file(r"00000\.jsonl(?:\.zst)?")  # of a trace stream; veRL writes no zeros before a number
_has_numbered_parquet = _has_file(r"\d+\.parquet")
_FORMAT_TESTS: dict[str, Callable[[FolderListing], bool]] = {
    "trl": _has_file(r"completions_\d+\.parquet"),
    "verl": lambda place: _has_numbered_jsonl(place) and not _is_areal_version(place) and not _has_chunks(place),
    "verifiers": lambda place: (
        "traces.jsonl" in place.files
        or (place.folder.name == "rollouts" and _has_folder(place, r"step_\d+"))
        or _has_chunks(place)
    ),
    "nemo": _has_file(r"train_data_step\d+\.jsonl(?:\.gz)?"),
    "skyrl": lambda place: _has_folder(place, r"global_step_\d+_evals"),
    "open_instruct": _has_file(r".+_rollouts_\d{6}\.jsonl(?:\.gz)?"),
    "tensorboard": _has_file(r"events\.out\.tfevents\..*"),
    "wandb": _has_file(r".+\.wandb"),
    "inspect": _has_file(r".+\.eval"),
    "atif": _has_file(r"trajectory\.json"),
    "art": lambda place: place.folder.parent.name == "trajectories" and _has_numbered_parquet(place),
    "tinker": lambda place: _has_folder(place, r"iteration_\d{6}"),
    "areal": lambda place: place.folder.name in _AREAL and _has_folder(place, r"\d+"),
}
