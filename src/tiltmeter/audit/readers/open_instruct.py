"""Reads open-instruct's saved traces, RUN_rollouts_NNNNNN.jsonl. Written from the description of the format only."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import list_folders, other_format_notes, run_name, size_of
from tiltmeter.audit.readers.jsonl import (
    TAIL,
    as_store_errors,
    compact,
    first_row,
    read_rows,
    step_of,
    unfinished,
    unused_option_notes,
)
from tiltmeter.audit.readers.table_files import TableRow, parse_object, refuse_copies
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError

_SHARD = re.compile(r"(.+)_rollouts_(\d{6})\.jsonl(?:\.gz)?")

_COLUMNS = (
    "prompt_idx",
    "response_tokens",
    "reward",
    "advantage",
    "finish_reason",
    "dataset",
    "ground_truth",
    "logprobs",
)


class OpenInstructReader:
    """open-instruct's rollouts, as `--save_traces` writes them: tokens, rewards, advantages and how each one ended.

    It has token ids and no text, so readings of the text are absent. Written from the description of the format: no
    recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"step": 5, "prompt_idx": 0, "response_tokens": [7], "reward": 1.0, "finish_reason": "stop"}
    >>> _ = (folder / "run_rollouts_000000.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = OpenInstructReader().find(folder, ReadOptions())
    >>> [batch.step for piece in run.pieces for batch in OpenInstructReader().read(run, piece)]
    [5]
    """

    name = "open_instruct"
    title = "open-instruct: RUN_rollouts_NNNNNN.jsonl (from the format's description only, not run)"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        other_notes = other_format_notes(listings, self.name)
        loaders: dict[str, Callable[[], ExternalRun]] = {}
        for listing in listings:
            shards: dict[str, list[Path]] = {}
            for name in listing.files:
                if match := _SHARD.fullmatch(name):
                    shards.setdefault(match[1], []).append(listing.folder / name)
            top = run_name(listing.folder, path if path.is_dir() else listing.folder)
            for run, files in shards.items():
                name = run if len(shards) > 1 or listing.folder == path else f"{top}-{run}"
                loaders[str(listing.folder / run)] = partial(_run, name, files, options, other_notes)
        return collect_runs(loaders)

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        last = -1
        file = Path(piece.files[0])
        for step, mine in groupby(_rows(piece, run.settings["newest"]), key=lambda one: one[0]):
            if step <= last:
                raise StoreError(
                    f"{file}: step {step} comes again after step {last}: a resumed run was appended to the same "
                    "files; split them where it begins and read each part alone"
                )
            last = step
            with as_store_errors(file):
                batch = _batch(step, [row for _, row in mine])
            yield batch


def _rows(piece: Piece, newest: str) -> Iterator[tuple[int, TableRow]]:
    for file in map(Path, piece.files):
        for row in read_rows(file, growing=str(file) == newest):
            fields = {key: row[key] for key in _COLUMNS if key in row}
            for key in ("response_tokens", "logprobs"):
                if isinstance(fields.get(key), list):
                    with as_store_errors(file):
                        fields[key] = compact(fields[key])
            yield step_of(row, file), fields


def _run(name: str, files: Sequence[Path], options: ReadOptions, other_notes: tuple[str, ...]) -> ExternalRun:
    notes = [
        "read by the format's description: no file of a real run was at hand to check it against",
        "groups: by prompt_idx within a step",
        "token ids and no text: readings of what is said are absent, unless somebody decodes them with the tokenizer",
    ]
    first = first_row(files[0])
    if first and not {"step", "prompt_idx", "reward"} <= first.keys():
        raise StoreError(f"{files[0]}: its rows have no step, prompt_idx and reward; this is no trace of open-instruct")
    refuse_copies(files)
    try:
        if unfinished(files[-1]):
            notes.append(f"{files[-1].name} is still being written: its whole lines count, the last does not yet")
    except StoreError as error:  # `read` loses that piece, and says it
        notes.append(f"not read: {error}")
    notes += unused_option_notes(options, grouped=True)
    newest = str(files[-1].absolute())
    return ExternalRun(name, OpenInstructReader.name, tuple(_pieces(files)), (*notes, *other_notes), {"newest": newest})


def _pieces(files: Sequence[Path]) -> Iterator[Piece]:
    """Pieces with no step in common: shards that share a step stay together."""
    group: list[Path] = []
    for file in files:
        first, last = _first_step(file), _last_step(group[-1]) if group else None
        if isinstance(first, int) and isinstance(last, int) and first > last:
            yield _piece(group)
            group = []
        group.append(file)
    yield _piece(group)


def _piece(files: Sequence[Path]) -> Piece:
    """A piece of these shards. Its steps are known without reading if the first and last row have the same step."""
    first, last = _first_step(files[0]), _last_step(files[-1])
    steps = (first,) if isinstance(first, int) and first == last else ()
    return Piece(tuple(str(one.absolute()) for one in files), sum(map(size_of, files)), steps)


def _first_step(file: Path) -> object:
    return first_row(file).get("step")


def _last_step(file: Path) -> object:
    """The step of the last complete line; None for a gzipped file, which would have to be read whole."""
    if file.suffix == ".gz":
        return None
    try:
        with file.open("rb") as stream:
            stream.seek(max(0, stream.seek(0, 2) - TAIL))
            lines = stream.read().splitlines()
    except OSError:  # it went away: `read` names it
        return None
    parsed_rows = (parse_object(line) for line in reversed(lines) if line.strip())
    return next((row.get("step") for row in parsed_rows if isinstance(row, dict)), None)


def _batch(step: int, records: Sequence[TableRow]) -> RolloutBatch:
    tokens = [row.get("response_tokens") for row in records]
    columns: dict[str, Any] = {}
    if all(one is not None for one in tokens):
        columns["tokens"] = tokens
        logprobs = [row.get("logprobs") for row in records]
        pairs = zip(logprobs, tokens, strict=True)
        if all(one is not None and two is not None and len(one) == len(two) for one, two in pairs):
            columns["engine_logprob"] = logprobs
    keys = ("dataset", "ground_truth")
    return from_columns(
        step,
        [str(row.get("prompt_idx")) for row in records],
        reward=[row.get("reward") for row in records],
        advantage=[row.get("advantage") for row in records],
        truncated=[row.get("finish_reason") != "stop" for row in records],
        facts=[{key: row[key] for key in keys if row.get(key) is not None} for row in records],
        **columns,
    )
