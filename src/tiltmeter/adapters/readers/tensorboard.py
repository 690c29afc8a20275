"""TensorBoard event files as the trace of a run, read with TensorBoard's own loader of events."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.adapters.readers.foreign import Asked, Foreign, Piece, usable
from tiltmeter.adapters.readers.series import Course, foreign, refuse_split, whole
from tiltmeter.batches import from_columns
from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.records import RolloutBatch

INSTALL = "pip install 'tiltmeter[trackers]'"
_FILE = re.compile(r".*\.tfevents\..*")


class TensorBoard:
    """What a trainer wrote for TensorBoard: scalars by tag, the files of one folder being one run.

    Most trainers can write these with one option, and many people have nothing else. Text, images and histograms are
    left out. A record that is cut short ends its file, as it does for TensorBoard.

    >>> TensorBoard().find(Path("no/such/place"), Asked())
    []
    """

    name = "tensorboard"
    title = "TensorBoard event files"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        folders: dict[Path, list[Path]] = {}
        for file in event_files(path):
            folders.setdefault(file.parent, []).append(file)
        if not folders:
            return []
        refuse_split(asked, str(path), step=True)
        if importlib.util.find_spec("tensorboard") is None:
            raise AttachError(f"{path}: TensorBoard's event files are read with its own package; to install: {INSTALL}")
        top = path.parent if path.is_file() else path
        makers = {str(folder): partial(_of_folder, top, folder, files, asked) for folder, files in folders.items()}
        found = usable(makers)
        if not found:
            raise StoreError(f"{path}: its event files hold no scalars; name the folder of another run")
        return found

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        """There are no rollouts: each step is a batch without rows. Runs found here have no pieces to be read."""
        yield from (from_columns(step, []) for step in sorted(run.scalars))


def event_files(path: Path) -> list[Path]:
    """Event files at or below a place; by folder, and within one in the order in which they were begun."""
    if path.is_file():
        return [path] if _FILE.fullmatch(path.name) else []
    # Its name begins with the second in which a file was begun.
    found = (file for file in path.rglob("*.tfevents.*") if _is_file(file)) if path.is_dir() else ()
    return sorted(found, key=lambda file: (file.parent, file.name))


def _is_file(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".")


def _of_folder(top: Path, folder: Path, files: list[Path], asked: Asked) -> list[Foreign]:
    course = Course()
    others: dict[str, None] = {}
    short = []
    for file in files:
        read = 0
        for step, tag, value in scalars(file):
            if value is not None:
                course.add(whole(float(step), f"{file}: {log_line(tag, 60)}"), {tag: value})
            elif tag:
                others[tag] = None
            else:
                read += 1
        if read < (stored := records(file)):
            short.append(f"{log_line(file.name, 80)} is damaged or cut short: {read} of {stored} records were read")
    if not course.rows and short:
        raise StoreError(f"{folder}: {short[0]}, and no scalar among them; copy the file again")
    if not course.rows:
        return []  # a trainer's table of hyperparameters, say, in a folder of its own
    name = folder.relative_to(top).as_posix() if folder != top else folder.resolve().name
    said = [f"TensorBoard: {len(files)} event file{'s' * (len(files) > 1)} of {log_line(name, 120)}"]
    if others:
        said.append(f"{len(others)} tags of text, images or histograms were left out")
    said += short
    return foreign(name, TensorBoard.name, course, asked, where=str(folder), said=said)


def scalars(file: Path) -> Iterator[tuple[int, str, float | None]]:
    """Step, tag and value of each summary of an event file, as they were written; None for what is no scalar.

    After each event comes one without a tag, by which events are counted.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    # It tells of its stub of TensorFlow, which is nobody's concern here.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    try:
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                yield event.step, value.tag, _number(value)
            yield event.step, "", None
    except (OSError, ValueError, DecodeError) as error:
        raise StoreError(f"{file}: not an event file of TensorBoard ({str(error)[:100]}); remove it") from error


def records(file: Path) -> int:
    """How many records a file should hold, by the lengths before them; the last one may be cut short.

    The loader stops at a damaged record without a word: only the count tells that anything is missing.
    """
    count, size = 0, file.stat().st_size
    with file.open("rb") as stream:
        while len(head := stream.read(8)) == 8:
            count += 1
            at = stream.tell() + int.from_bytes(head, "little") + 8
            if at > size:
                break
            stream.seek(at)
    return count


def _number(value: Any) -> float | None:
    """A scalar in either of the two ways in which TensorBoard stores one."""
    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    if value.WhichOneof("value") != "tensor" or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    from tensorboard.util import tensor_util

    held = tensor_util.make_ndarray(value.tensor)
    return float(held.item()) if held.size == 1 and held.dtype.kind in "fiub" else None
