"""Reads trajectories of ART: one Parquet file a step, for training and for validation."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import (
    FolderListing,
    StepFiles,
    bundle_steps,
    list_folders,
    numbered_names,
    run_name,
    size_of,
)
from tiltmeter.audit.readers.jsonl import as_store_errors, logged_metrics
from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.audit.readers.trajectories.scores import option_notes, plain_facts
from tiltmeter.data.messages import turns_from_messages
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import as_number, as_object, as_objects, batch_of
from tiltmeter.errors import StoreError
from tiltmeter.rundir.decoded_size import rows_at_once
from tiltmeter.rundir.evaluations import Evaluation, score_evaluation
from tiltmeter.safety.safe_text import log_line

_FILE = re.compile(r"(\d+)\.parquet")
_COLUMNS = frozenset({"group_index", "reward", "messages"})
_TRAIN = "train"


class ArtReader:
    """ART's files. What messages say is kept; reasoning that a server returned in a field of its own is not in them.

    A message that the policy wrote is marked trainable. Where a trajectory has no such mark, as with plain messages
    instead of choices, every assistant's message counts as the policy's.
    """

    name = "art"
    title = "ART: trajectories/SPLIT/STEP.parquet and history.jsonl"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        homes: dict[Path, dict[str, FolderListing]] = {}
        for listing in list_folders(path):
            folder = listing.folder.absolute()
            if folder.parent.name == "trajectories" and any(map(_FILE.fullmatch, listing.files)):
                homes.setdefault(folder.parent.parent, {})[folder.name] = listing
        root = path if path.is_dir() else path.parent
        return collect_runs(
            {str(home): partial(_run, home, splits, root, options) for home, splits in sorted(homes.items())}
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        for file, step in zip(map(Path, piece.files), piece.steps, strict=True):
            with as_store_errors(file):
                batch = batch_of(step, [_row(row, run.settings["gold"]) for row in _rows(file)])
            if not len(batch):
                raise StoreError(f"{file}: it holds no rows; copy it again or move it away")
            yield batch


def _run(home: Path, splits: Mapping[str, FolderListing], root: Path, options: ReadOptions) -> ExternalRun | None:
    def files_of(split: str) -> list[tuple[int, Path]]:
        listing = splits[split]
        return [(step, listing.folder / name) for step, name in numbered_names(listing.folder, listing.files, _FILE)]

    trained = files_of(_TRAIN) if _TRAIN in splits else []
    first = trained[0][1] if trained else files_of(next(iter(splits)))[0][1]
    with as_store_errors(first), _open(first) as table:
        if not set(table.schema_arrow.names) >= _COLUMNS:
            return None  # another tool's numbered files
    gold = options.columns.get("gold", "")
    notes = [
        f"ART: trajectories of {len(trained)} steps, groups by group_index",
        *([f"gold: {log_line(gold, 60)}, a metric of each trajectory, as given"] if gold else []),
        "reasoning that a server returned beside the text is not in these files",
        *option_notes(options, used=("gold",)),
    ]
    evaluations: list[Evaluation] = []
    for split in splits:
        for step, file in files_of(split) if split != _TRAIN else ():
            try:
                with as_store_errors(file):
                    scores = [(str(row.get("group_index")), row.get("reward")) for row in _rows(file)]
                one, why = score_evaluation(step, f"{split}_reward", scores)
            except StoreError as error:
                one, why = None, str(error)
            evaluations += [one] if one else []
            notes += [] if one else [f"{split} at step {step} is no evaluation: {log_line(why, 120)}"]
    numbers, metric_notes = logged_metrics(home / "history.jsonl")
    return ExternalRun(
        run_name(home, root),
        ArtReader.name,
        bundle_steps([StepFiles(step, (file,), size_of(file)) for step, file in trained]),
        (*notes[:50], *metric_notes),
        {"gold": gold},
        numbers,
        tuple(evaluations),
    )


@contextmanager
def _open(file: Path) -> Iterator[pq.ParquetFile]:
    try:
        with pq.ParquetFile(file) as table:
            yield table
    except (pa.ArrowException, OSError, ValueError) as error:
        raise StoreError(f"{file}: not a whole Parquet file ({log_line(str(error), 100)}); copy it again") from error


def _rows(file: Path) -> list[TableRow]:
    with _open(file) as table:
        return [row for some in table.iter_batches(batch_size=rows_at_once(file, table)) for row in some.to_pylist()]


def _row(row: TableRow, gold: str) -> dict[str, Any]:
    messages = [_message(one) for one in as_objects(row.get("messages"))]
    if not any(message.get("trainable") for message in messages):
        messages = [{**message, "trainable": None} for message in messages]
    metrics, metadata = _object(row.get("metrics")), _object(row.get("metadata"))
    parts = {name: as_number(value) for name, value in metrics.items()}
    task = metadata.get("task") or metadata.get("task_id") or metadata.get("scenario_id")
    return {
        "group": str(row.get("group_index")),
        "turns": turns_from_messages(messages),
        "reward": row.get("reward"),
        "gold": parts.get(gold) if gold else None,
        "task": None if task is None else str(task),
        "facts": {**plain_facts(metadata), **({"metrics": metrics} if metrics else {})} or None,
    }


def _message(message: TableRow) -> TableRow:
    calls = message.get("tool_calls")
    if not isinstance(calls, str) or not calls:
        return message
    try:
        parsed = json.loads(calls)
    except RecursionError as error:
        raise ValueError("calls that are nested too deep") from error
    return {**message, "tool_calls": as_objects(parsed)}


def _object(text: object) -> Mapping[str, Any]:
    if not isinstance(text, str) or not text:
        return {}
    return as_object(json.loads(text))
