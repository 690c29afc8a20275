"""Reads veRL's dumps: rollouts and validations as one JSON lines file per step, and its file logger's metrics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import nan
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, RunLoader, collect_runs
from tiltmeter.audit.readers.folders import (
    FolderListing,
    StepFiles,
    bundle_steps,
    list_folder,
    list_folders,
    numbered_names,
    other_format_notes,
    run_name,
    size_of,
)
from tiltmeter.audit.readers.jsonl import (
    as_store_errors,
    first_row,
    read_rows,
    refuse_options,
    requested_evaluations,
    require_rows,
    scalars_by_step,
    step_of,
    why_incomplete,
)
from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation, score_evaluation

_FILE = re.compile(r"(\d+)\.jsonl(?:\.gz)?")
_HELD_OUT = re.compile(r"(?:.*[^a-z])?(?:val|valid|validations?|evals?|evaluations?)(?:[^a-z].*)?", re.IGNORECASE)
_OWN = frozenset({"input", "output", "gts", "score", "step", "uid", "request_id"})
VALIDATIONS = 2_000  # files of held-out items that are read at once


class VerlReader:
    """veRL's own files: what `trainer.rollout_data_dir` and `trainer.validation_data_dir` fill, and the logger "file".

    Text and scores of every rollout, enough for most readings, and held-out scores that training never sees, which
    serve as gold. Token ids, log-probabilities and advantages are not in them.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"input": "1 + 1 =", "output": "2", "gts": "2", "score": 1.0, "step": 5, "uid": "s0_0_0"}
    >>> _ = (folder / "5.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = VerlReader().find(folder, ReadOptions())
    >>> [batch.step for piece in run.pieces for batch in VerlReader().read(run, piece)]
    [5]
    """

    name = "verl"
    title = "veRL: rollout and validation dumps (STEP.jsonl) and the file logger"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        dumps, broken = _dumps(listings)
        if path.is_dir() and len(dumps) == 1 and dumps[0].folder == path and not dumps[0].held_out:
            more, beyond = _siblings(path)
            dumps, broken = dumps + more, broken | beyond
        # Validations and metrics of an unreadable training dump are no run of their own.
        lost = {Path(name).absolute().parent for name in broken if not _HELD_OUT.fullmatch(Path(name).name)}
        dumps = [dump for dump in dumps if not (dump.held_out and dump.folder.absolute().parent in lost)]
        loggers = [file for listing in listings for file in _loggers(listing)]
        other_notes = other_format_notes(listings, self.name)
        loaders: dict[str, RunLoader] = {}
        runs = _runs(dumps, path)
        alone = len(runs) == len(loggers) == 1
        for name, trained, held_out in runs:
            mine = _match_loggers(name, trained or held_out[0], loggers, alone=alone)
            loggers = [file for file in loggers if file not in mine]
            loaders[str((trained or held_out[0]).folder)] = partial(
                _run, name, trained, held_out, mine, options, other_notes
            )
        # A metrics file without a dump is a run of metrics only.
        for file in loggers:
            if not lost & set(file.absolute().parents):
                loaders[str(file)] = partial(_run, file.stem, None, [], [file], options, other_notes)
        return collect_runs(loaders, broken)

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        for file in map(Path, piece.files):
            with as_store_errors(file):
                batch = _batch(file, run.settings)
            yield batch


@dataclass(frozen=True)
class _Dump:
    """A folder of one file a step."""

    folder: Path
    files: Sequence[tuple[int, str]]
    first: TableRow
    held_out: bool
    notes: tuple[str, ...] = ()

    @property
    def paths(self) -> list[tuple[int, Path]]:
        return [(step, self.folder / name) for step, name in self.files]


def _dumps(listings: Sequence[FolderListing]) -> tuple[list[_Dump], dict[str, StoreError]]:
    """The dumps among these folders, and those that cannot be used."""
    dumps: list[_Dump] = []
    broken: dict[str, StoreError] = {}
    for listing in listings:
        try:
            dumps += [dump] if (dump := _dump(listing)) is not None else []
        except StoreError as error:
            broken[str(listing.folder)] = error
    return dumps, broken


def _dump(listing: FolderListing) -> _Dump | None:
    if "areal" in listing.formats or "verl" not in listing.formats:
        return None
    first_file = next(name for name in listing.files if _FILE.fullmatch(name))
    if (sample := first_row(listing.folder / first_file)) and not _is_dump(sample):
        return None
    files = numbered_names(listing.folder, listing.files, _FILE)
    notes: tuple[str, ...] = ()
    if files and (why := why_incomplete(listing.folder / files[-1][1])):
        notes = (f"{listing.folder.name}/{files[-1][1]} {why}: that step is left out",)
        files = files[:-1]
    first = next((row for _, name in files[:3] if (row := first_row(listing.folder / name))), {})
    if not _is_dump(first):
        return None
    # Validation dumps have `reward` beside the reward function's keys; the folder's name may tell it too.
    held_out = "reward" in first or bool(_HELD_OUT.fullmatch(listing.folder.name))
    return _Dump(listing.folder, files, first, held_out, notes)


def _is_dump(row: TableRow) -> bool:
    return {"input", "output", "score"} <= row.keys()


def _siblings(folder: Path) -> tuple[list[_Dump], dict[str, StoreError]]:
    """Folders beside this one that hold its run's validations, by their name."""
    parent = folder.absolute().parent
    names = [name for name in list_folder(parent).folders if _HELD_OUT.fullmatch(name) and name != folder.name]
    dumps, broken = _dumps([list_folder(parent / name) for name in names[:20]])
    return [dump for dump in dumps if dump.held_out], broken


def _runs(dumps: Sequence[_Dump], root: Path) -> list[tuple[str, _Dump | None, list[_Dump]]]:
    """Dumps in one parent folder are a run: one of training, any number of validation."""
    homes: dict[Path, list[_Dump]] = {}
    for dump in dumps:
        homes.setdefault(dump.folder.absolute().parent, []).append(dump)
    top = root if root.is_dir() else root.parent
    runs: list[tuple[str, _Dump | None, list[_Dump]]] = []
    for home, here in sorted(homes.items()):
        trained = [dump for dump in here if not dump.held_out]
        held_out = [dump for dump in here if dump.held_out]
        inside = home.is_relative_to(top.absolute())
        if len(trained) == 1 and inside:
            runs.append((run_name(home, top), trained[0], held_out))
        elif trained:
            runs += [(run_name(dump.folder, top), dump, held_out if len(trained) == 1 else []) for dump in trained]
        if held_out and len(trained) != 1:
            runs.append((run_name(home if inside else held_out[0].folder, top) + "-validation", None, held_out))
    return runs


def _loggers(listing: FolderListing) -> list[Path]:
    """Files of the logger "file": each line a step and its data."""
    names = [name for name in listing.files if name.endswith((".jsonl", ".jsonl.gz")) and not _FILE.fullmatch(name)]
    first = {name: first_row(listing.folder / name) for name in names[:50]}
    return [listing.folder / name for name, row in first.items() if row.keys() == {"step", "data"}]


def _match_loggers(name: str, dump: _Dump, loggers: Sequence[Path], *, alone: bool) -> list[Path]:
    home = dump.folder.absolute().parent
    mine = [file for file in loggers if file.stem == name or file.absolute().is_relative_to(home)]
    return (mine or list(loggers if alone else []))[:1]


def _run(
    name: str,
    trained: _Dump | None,
    held_out: Sequence[_Dump],
    loggers: Sequence[Path],
    options: ReadOptions,
    other_notes: tuple[str, ...],
) -> ExternalRun:
    builder = _RunBuilder()
    if trained is not None:
        _add_training(builder, trained, options)
    else:
        builder.notes.append("no rollouts of training: trainer.rollout_data_dir=DIR writes them")
    for at, dump in enumerate(held_out):
        _add_validation(builder, dump, f"_{at + 1}" if at else "")
    logged = _logged(loggers[0]) if loggers else {}
    where = loggers[0] if loggers else f"{name} (no metrics file)"
    refuse_options(options, {key for row in logged.values() for key in row}, where, stored="score")
    builder.evaluations += requested_evaluations(logged, options, where)
    if loggers:
        builder.notes.append(f"metrics: {loggers[0].name}, steps {min(logged, default=0)} to {max(logged, default=0)}")
        if trained is not None and logged and min(logged) > trained.files[0][0]:
            builder.notes.append("the metrics begin later than the rollouts: a resume starts veRL's metrics file anew")
    else:
        builder.notes.append('no metrics: trainer.logger=["file"] writes them')
    numbers = scalars_by_step(logged, options)
    if not any("kl_ref" in row for row in numbers.values()):
        builder.notes.append("no KL measured: veRL's KL terms are off unless asked for")
    unique = {(one.step, one.name): one for one in reversed(builder.evaluations)}
    return ExternalRun(
        name=name,
        reader=VerlReader.name,
        pieces=builder.pieces,
        notes=(*builder.notes, *other_notes),
        settings=builder.settings,
        scalars=numbers,
        evaluations=tuple(sorted(unique.values())),
    )


@dataclass
class _RunBuilder:
    pieces: tuple[Piece, ...] = ()
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    evaluations: list[Evaluation] = field(default_factory=list)


def _add_training(builder: _RunBuilder, dump: _Dump, options: ReadOptions) -> None:
    paths = dump.paths
    builder.pieces = bundle_steps([StepFiles(step, (file,), size_of(file)) for step, file in paths])
    builder.notes += [f"rollouts: {dump.folder.name}/, steps {paths[0][0]} to {paths[-1][0]}", *dump.notes]
    gold = options.columns.get("gold", "")
    builder.settings = {"group_size": options.group_size or 0, "parts": [], "gold": gold}
    if gold and gold not in dump.first:
        raise StoreError(f"{paths[0][1]}: no key {gold!r} for gold; its rows have {', '.join(sorted(dump.first))}")
    if gold:
        builder.notes.append(f"gold: {gold}, as given{_paid_note(gold, _sample(paths[0][1]))}")
    if "uid" in dump.first and options.group_size:
        raise StoreError(f"{paths[0][1]}: groups are stored (uid): leave --group-size out")
    if "uid" in dump.first:
        builder.notes += [
            "groups: by uid",
            "no parts of the reward: veRL's V1 trainer keeps the score alone",
        ]
    else:
        sample = _sample(paths[0][1])
        builder.settings["parts"] = [key for key in dump.first if key not in {*_OWN, gold} and _is_part(key, sample)]
        sizes = _sizes(sample)
        span = f"{min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"{max(sizes)}"
        if options.group_size:
            builder.notes.append(f"groups: rows with equal prompts, {options.group_size} to a group as given")
        else:
            builder.notes.append(f"groups: rows with equal prompts, inferred (no uid); {span} rows in the first step")
        if min(sizes) < max(sizes) and not options.group_size:
            builder.notes.append(
                "groups of different size: a prompt that stands in two groups is taken for one; "
                "--group-size N (rollout.n) parts them"
            )
        parts = builder.settings["parts"]
        builder.notes.append(
            f"kept as parts of the reward: {', '.join(parts[:20])}" if parts else "no parts of the reward"
        )
    builder.notes.append(
        "score is the reward before a KL penalty inside it; no token ids, log-probabilities or advantages"
    )


def _paid_note(gold: str, sample: Sequence[TableRow]) -> str:
    """A note where the gold column equals the reward."""
    if not sample or any(row.get(gold) != row.get("score") for row in sample):
        return ""
    equal = "" if gold == "score" else " (in the first step it equals score)"
    return f", and it is paid as well{equal}: what a policy is paid for is no independent truth"


def _sample(file: Path) -> list[TableRow]:
    """The rows of a file; none where it is damaged, which `read` reports."""
    try:
        return list(read_rows(file))
    except StoreError:
        return []


def _is_part(key: str, sample: Sequence[TableRow]) -> bool:
    values = [row[key] for row in sample if row.get(key) is not None]
    return bool(values) and all(isinstance(value, (int, float)) for value in values)


def _sizes(sample: Sequence[TableRow]) -> list[int]:
    counts: dict[object, int] = {}
    for row in sample:
        counts[str(row.get("input"))] = counts.get(str(row.get("input")), 0) + 1
    return list(counts.values()) or [0]


def _add_validation(builder: _RunBuilder, dump: _Dump, number: str) -> None:
    """One evaluation per step from the scores, and one from `acc`, where the reward function returns it.

    `number`: a suffix for the evaluations of a second folder, which has other questions.
    """
    builder.notes += dump.notes
    why: dict[str, int] = {}
    scored = 0
    for step, file in dump.paths[:VALIDATIONS]:
        try:
            item_rows = [
                (_item(str(row["uid"])) if "uid" in row else str(row.get("input")), row) for row in read_rows(file)
            ]
        except StoreError as error:
            builder.notes.append(f"not read: {error}")
            continue
        for name, key in ((f"validation{number}", "score"), (f"validation_acc{number}", "acc")):
            if key == "acc" and not any("acc" in row for _, row in item_rows):
                continue
            one, reason = score_evaluation(step, name, ((item, row.get(key)) for item, row in item_rows))
            if one is not None:
                builder.evaluations.append(one)
                scored += 1
            elif key == "score":
                why[reason] = why.get(reason, 0) + 1
    how = "their rows carry `reward`" if "reward" in dump.first else "by the folder's name"
    note = f"validations: {dump.folder.name}/ ({how}), {scored} evaluations of {len(dump.files)} steps"
    builder.notes.append(note + (f", as validation{number}" if number else ""))
    builder.notes += [f"{count} validations are no evaluation: {reason}" for reason, count in why.items()]
    if len(dump.files) > VALIDATIONS:
        builder.notes.append(f"only the first {VALIDATIONS} validations are read")


def _item(uid: str) -> str:
    return uid.rsplit("_", 2)[0]


def _logged(file: Path) -> dict[int, dict[str, Any]]:
    logged: dict[int, dict[str, Any]] = {}
    for row in read_rows(file, growing=True):
        if not isinstance(row.get("data"), dict):
            raise StoreError(f"{file}: a line without data is not veRL's; move that line away")
        # Only numbers are logged, and orjson writes one that is not finite as null.
        data = {key: nan if value is None else value for key, value in row["data"].items()}
        logged.setdefault(step_of(row, file), {}).update(data)
    return logged


def _batch(file: Path, settings: Mapping[str, Any]) -> RolloutBatch:
    match = _FILE.fullmatch(file.name)
    records = require_rows(file, list(read_rows(file)))
    step = int(match[1]) if match else step_of(records[0], file)
    if any(row.get("step", step) != step for row in records):
        raise StoreError(f"{file}: its rows are of another step; it was renamed or joined: name it back")
    parts: dict[str, list[object]] = {name: [row.get(name) for row in records] for name in settings["parts"]}
    return from_columns(
        step,
        _groups(records, settings["group_size"]),
        reward=[row.get("score") for row in records],
        gold=[row.get(settings["gold"]) for row in records] if settings["gold"] else None,
        rewards=parts,
        prompt=[row.get("input") for row in records],
        completion=[row.get("output") for row in records],
        facts=[_facts(row, settings["parts"]) for row in records],
    )


def _groups(records: Sequence[TableRow], size: int) -> list[str]:
    if records and all("uid" in row for row in records):
        return [_item(str(row["uid"])) for row in records]
    counts: dict[str, int] = {}
    ids = []
    for row in records:
        prompt = str(row.get("input"))
        count = counts[prompt] = counts.get(prompt, -1) + 1
        ids.append(f"{count // size if size else 0} {prompt}")
    return ids


def _facts(row: TableRow, parts: Sequence[str]) -> dict[str, Any]:
    extra = {key: value for key, value in row.items() if key not in _OWN and key not in parts}
    return extra | ({"ground_truth": row["gts"]} if row.get("gts") is not None else {})
