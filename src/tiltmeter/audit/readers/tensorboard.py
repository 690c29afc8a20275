"""Reads TensorBoard event files with TensorBoard's own event loader."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.metric_series import MetricSeries, make_runs, parse_step, refuse_split
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.safety.safe_text import log_line

INSTALL = "pip install 'tiltmeter[trackers]'"
_FILE = re.compile(r".*\.tfevents\..*")


class TensorBoardReader:
    """What a trainer wrote for TensorBoard: scalars by tag, the files of one folder being one run.

    Most trainers can write these with one option, and many people have nothing else. Text, images and histograms are
    left out. A record that is cut short ends its file, as it does for TensorBoard.

    >>> TensorBoardReader().find(Path("no/such/place"), ReadOptions())
    []
    """

    name = "tensorboard"
    title = "TensorBoard event files"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        folders: dict[Path, list[Path]] = {}
        for file in event_files(path):
            folders.setdefault(file.parent, []).append(file)
        if not folders:
            return []
        refuse_split(options, str(path), step=True)
        if importlib.util.find_spec("tensorboard") is None:
            raise AttachError(f"{path}: TensorBoard's event files are read with its own package; to install: {INSTALL}")
        top = path.parent if path.is_file() else path
        loaders = {str(folder): partial(_of_folder, top, folder, files, options) for folder, files in folders.items()}
        runs = collect_runs(loaders)
        if not runs:
            raise StoreError(f"{path}: its event files hold no scalars; name the folder of another run")
        return runs

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        """There are no rollouts: each step is a batch without rows. Runs found here have no pieces to be read."""
        yield from (from_columns(step, []) for step in sorted(run.scalars))


def event_files(path: Path) -> list[Path]:
    """Event files at or below a path; by folder, and within a folder in the order in which they were started."""
    if path.is_file():
        return [path] if _FILE.fullmatch(path.name) else []
    # A file's name begins with its start time in seconds.
    files = (file for file in path.rglob("*.tfevents.*") if _is_file(file)) if path.is_dir() else ()
    return sorted(files, key=lambda file: (file.parent, file.name))


def _is_file(file: Path) -> bool:
    return file.is_file() and not file.name.startswith(".")


def _of_folder(top: Path, folder: Path, files: list[Path], options: ReadOptions) -> list[ExternalRun]:
    series = MetricSeries()
    others: dict[str, None] = {}
    damage_notes = []
    for file in files:
        read_count = 0
        for step, tag, value in read_scalars(file):
            if value is not None:
                series.add(parse_step(float(step), f"{file}: {log_line(tag, 60)}"), {tag: value})
            elif tag:
                others[tag] = None
            else:
                read_count += 1
        if read_count < (stored := count_records(file)):
            damage_notes.append(
                f"{log_line(file.name, 80)} is damaged or cut short: {read_count} of {stored} records were read"
            )
    if not series.rows and damage_notes:
        raise StoreError(f"{folder}: {damage_notes[0]}, and no scalar among them; copy the file again")
    if not series.rows:
        return []  # a trainer's table of hyperparameters, say, in a folder of its own
    name = folder.relative_to(top).as_posix() if folder != top else folder.resolve().name
    notes = [f"TensorBoard: {len(files)} event file{'s' * (len(files) > 1)} of {log_line(name, 120)}"]
    if others:
        notes.append(f"{len(others)} tags of text, images or histograms were left out")
    notes += damage_notes
    return make_runs(name, TensorBoardReader.name, series, options, where=str(folder), notes=notes)


def read_scalars(file: Path) -> Iterator[tuple[int, str, float | None]]:
    """Step, tag and value of each summary of an event file, as they were written; None for what is no scalar.

    After each event comes one without a tag, by which events are counted.
    """
    from google.protobuf.message import DecodeError
    from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

    # It logs a message about its TensorFlow stub, which does not matter here.
    logging.getLogger("tensorboard").setLevel(logging.ERROR)
    try:
        for event in LegacyEventFileLoader(str(file)).Load():
            for value in event.summary.value:
                yield event.step, value.tag, _number(value)
            yield event.step, "", None
    except (OSError, ValueError, DecodeError) as error:
        raise StoreError(f"{file}: not an event file of TensorBoard ({str(error)[:100]}); remove it") from error


def count_records(file: Path) -> int:
    """The number of records in a file, by their length prefixes; the last one may be cut short.

    The loader stops silently at a damaged record: only this count shows that records are missing.
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
    """A scalar in either of TensorBoard's two encodings."""
    if value.WhichOneof("value") == "simple_value":
        return float(value.simple_value)
    if value.WhichOneof("value") != "tensor" or value.metadata.plugin_data.plugin_name not in ("", "scalars"):
        return None
    from tensorboard.util import tensor_util

    array = tensor_util.make_ndarray(value.tensor)
    return float(array.item()) if array.size == 1 and array.dtype.kind in "fiub" else None
