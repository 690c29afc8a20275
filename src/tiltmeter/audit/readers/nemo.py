"""Reads NeMo-RL's train_data_stepN.jsonl and val_data_stepN.jsonl. Written from the description of the format only."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import (
    FolderListing,
    StepFiles,
    bundle_steps,
    list_folders,
    numbered_names,
    other_format_notes,
    run_name,
    size_of,
)
from tiltmeter.audit.readers.jsonl import (
    as_store_errors,
    compact,
    first_row,
    read_rows,
    require_rows,
    score_evaluation,
    unused_option_notes,
    why_incomplete,
)
from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation

_TRAIN = re.compile(r"train_data_step(\d+)\.jsonl(?:\.gz)?")
_HELD_OUT = re.compile(r"val_data_step(\d+)\.jsonl(?:\.gz)?")
#: Their per-token columns and ours: the engine that sampled, and the trainer before the update.
_TOKENS = {"token_ids": "tokens", "generation_logprobs": "engine_logprob", "prev_logprobs": "logprob"}


class NemoReader:
    """NeMo-RL's log folder, which has engine and trainer log-probabilities of every token.

    So the mismatch between the two, which silently makes updates off-policy, can be measured. No prompt and no
    group id are stored. Written from the description of the format: no recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"content": ["1 + 1 = 2"], "rewards": [1.0], "idx": 0}
    >>> _ = (folder / "train_data_step5.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = NemoReader().find(folder, ReadOptions())
    >>> [batch.step for piece in run.pieces for batch in NemoReader().read(run, piece)]
    [5]
    """

    name = "nemo"
    title = "NeMo-RL: train_data_stepN.jsonl (from the format's description only, not run)"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        other_notes = other_format_notes(listings, self.name)
        return collect_runs(
            {str(listing.folder): partial(_find_run, listing, path, options, other_notes) for listing in listings}
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        for file in map(Path, piece.files):
            match = _TRAIN.fullmatch(file.name)
            with as_store_errors(file):
                records = require_rows(file, list(map(_flat, read_rows(file))))
                batch = _batch(int(match[1]) if match else -1, records, run.settings, file)
            yield batch


def _find_run(
    listing: FolderListing, path: Path, options: ReadOptions, other_notes: tuple[str, ...]
) -> ExternalRun | None:
    trained = [(step, listing.folder / name) for step, name in numbered_names(listing.folder, listing.files, _TRAIN)]
    held_out = [
        (step, listing.folder / name) for step, name in numbered_names(listing.folder, listing.files, _HELD_OUT)
    ]
    name = run_name(listing.folder, path if path.is_dir() else listing.folder)
    return _run(name, trained, held_out, options, other_notes) if trained or held_out else None


def _run(
    name: str,
    trained: list[tuple[int, Path]],
    held_out: Sequence[tuple[int, Path]],
    options: ReadOptions,
    other_notes: tuple[str, ...],
) -> ExternalRun:
    notes = ["read by the format's description: no file of a real run was at hand to check it against"]
    if trained and (why := why_incomplete(trained[-1][1])):
        notes.append(f"{trained.pop()[1].name} {why}: that step is left out")
    first = first_row(trained[0][1]) if trained else {}
    if trained and "rewards" not in first:
        raise StoreError(
            f"{trained[0][1]}: no rewards in its rows, as NeMo-RL's distillation writes them; nothing to judge"
        )
    if options.group_size:
        notes.append(f"groups: {options.group_size} rows in a row, as given")
    elif "token_ids" in first and "token_loss_mask" in first:
        notes.append("groups: neighbouring rows whose prompt tokens agree, inferred (the files hold no group id)")
    elif trained:
        notes.append("no groups: neither ids nor prompt tokens are stored; --group-size N (num_generations_per_prompt)")
    if trained:
        notes.append("the text is prompt and answer in one, as stored: readings of the text see both")
    if "filtered_rewards" in first:
        notes.append(
            "the reward is filtered_rewards, which was trained on; rewards before filtering are kept as a part"
        )
    evaluations: list[Evaluation] = []
    for step, file in held_out:
        try:
            with as_store_errors(file):
                scores = [_flat(row) for row in read_rows(file, growing=file is held_out[-1][1])]
        except StoreError as error:
            notes.append(f"not read: {error}")
            continue
        one, why = score_evaluation(step, "validation", ((at, row.get("rewards")) for at, row in enumerate(scores)))
        evaluations += [one] if one else []
        notes += [] if one else [f"{file.name} is no evaluation: {why}"]
    notes += unused_option_notes(options)
    notes.append("no metrics in these files: --format tensorboard or wandb reads those")
    return ExternalRun(
        name=name,
        reader=NemoReader.name,
        pieces=bundle_steps([StepFiles(step, (file,), size_of(file)) for step, file in trained]),
        notes=(*notes, *other_notes),
        settings={"group_size": options.group_size or 0},
        evaluations=tuple(evaluations),
    )


def _flat(row: TableRow) -> TableRow:
    """A row with lists of length one unpacked, and its numbers as arrays."""
    plain = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in row.items()}
    lists = (key for key in (*_TOKENS, "token_loss_mask", "advantages") if isinstance(plain.get(key), (list, int)))
    return plain | {key: np.atleast_1d(compact(plain[key])) for key in lists}


def _batch(step: int, records: Sequence[TableRow], settings: Mapping[str, Any], file: Path) -> RolloutBatch:
    masks = [row.get("token_loss_mask") for row in records]
    columns: dict[str, Any] = {}
    for theirs, ours in _TOKENS.items():
        values = [row.get(theirs) for row in records]
        if records and all(map(_fits, values, masks)):
            columns[ours] = [_sampled(one, mask) for one, mask in zip(values, masks, strict=True)]
    advantages = [row.get("advantages") for row in records]
    columns["advantage"] = [_at_answer(one, mask) for one, mask in zip(advantages, masks, strict=True)]
    if all(one is None for one in columns["advantage"]):
        del columns["advantage"]
    if any("filtered_rewards" in row for row in records):
        columns["rewards"] = {"unfiltered": [row.get("rewards") for row in records]}
        columns["reward"] = [row.get("filtered_rewards") for row in records]
    else:
        columns["reward"] = [row.get("rewards") for row in records]
    trained = [row.get("sample_loss_mask") for row in records]
    if any(mask is not None for mask in trained):
        columns["facts"] = [{"trained": bool(mask)} for mask in trained]
    return from_columns(
        step,
        _groups(records, settings["group_size"], file),
        completion=[row.get("content") for row in records],
        **columns,
    )


def _fits(values: object, mask: object) -> bool:
    return isinstance(values, np.ndarray) and isinstance(mask, np.ndarray) and values.shape == mask.shape


def _sampled(values: Any, mask: Any) -> NDArray[Any]:
    return np.asarray(values[mask.astype(bool)])


def _at_answer(values: object, mask: object) -> object:
    """A row's advantage: stored for every token, with the same value at each sampled token."""
    if not isinstance(values, np.ndarray):
        return values
    if values.size == 1:
        return values.item()
    return next(iter(_sampled(values, mask).tolist()), None) if _fits(values, mask) else None


def _groups(records: Sequence[TableRow], size: int, file: Path) -> list[int]:
    if size:
        prompts = [_prompt(row) for row in records]
        if len(records) % size or any(prompts[at] != prompts[at - at % size] for at in range(len(records))):
            raise StoreError(
                f"{file}: {len(records)} rows are not groups of {size} with one prompt each; pass another --group-size"
            )
        return [at // size for at in range(len(records))]
    group = -1
    ids, before = [], None
    for row in records:
        prompt = _prompt(row)
        group += prompt is None or prompt != before
        before = prompt
        ids.append(group)
    return ids


def _prompt(row: TableRow) -> bytes | None:
    """The tokens before the first sampled token."""
    tokens, mask = row.get("token_ids"), row.get("token_loss_mask")
    if not isinstance(tokens, np.ndarray) or not isinstance(mask, np.ndarray):
        return None
    own = np.flatnonzero(mask)
    return bytes(tokens[: own[0] if len(own) else len(tokens)].tobytes())
