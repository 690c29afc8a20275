"""Reads formats that are known by their description only: a table of them, and one reader."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
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
    TAIL,
    as_store_errors,
    first_row,
    read_rows,
    renaming_notes,
    require_rows,
    step_of,
    unfinished,
    unique_name,
    unused_option_notes,
    why_incomplete,
)
from tiltmeter.audit.readers.table_files import TableRow, parse_object, refuse_copies
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import compact
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation, score_evaluation

_DESCRIPTION = "read by the format's description: no file of a real run was at hand to check it against"
_NO_METRICS = "no metrics in these files: --format tensorboard or wandb reads those"
#: NeMo-RL's per-token columns and ours: the engine that sampled, and the trainer before the update.
_NEMO_TOKENS = {"token_ids": "tokens", "generation_logprobs": "engine_logprob", "prev_logprobs": "logprob"}

_OPEN_INSTRUCT_FACTS = ("dataset", "ground_truth")


@dataclass(frozen=True, slots=True)
class HeldOutFiles:
    """The files of one evaluation."""

    step: int
    files: tuple[Path, ...]
    name: str  # of the evaluation
    label: str  # in notes
    growing: bool = False


@dataclass(frozen=True, slots=True)
class RunFiles:
    """The files of one run, in step order; those of training first."""

    name: str
    trained: list[StepFiles] = field(default_factory=list)
    held_out: Sequence[HeldOutFiles] = ()


#: A loader for the files of each run. One that raises `StoreError` does not hide the other runs.
RunFileLoaders = Mapping[str, Callable[[], RunFiles | None]]
#: What the first row shows: notes, and what `read` must know. None: the files are another tool's.
Inspection = tuple[list[str], dict[str, Any]] | None


@dataclass(eq=False)
class DescribedReader:
    """Reads one format of the table below. Written from the description of the format: no recorded file was at hand.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"step": 5, "prompt_idx": 0, "response_tokens": [7], "reward": 1.0, "finish_reason": "stop"}
    >>> _ = (folder / "run_rollouts_000000.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = OPEN_INSTRUCT.find(folder, ReadOptions())
    >>> [batch.step for piece in run.pieces for batch in OPEN_INSTRUCT.read(run, piece)]
    [5]
    """

    name: str
    title: str
    layout: Callable[[Path, Sequence[FolderListing]], RunFileLoaders]  # how its files are recognised
    inspect: Callable[[Sequence[StepFiles], TableRow, ReadOptions], Inspection]
    notes: tuple[str, ...]
    columns: Mapping[str, str] = field(default_factory=dict)  # our column -> theirs
    group: str = ""  # the column of the group; empty: inferred
    item: str = ""  # the column that tells held-out items apart; empty: each row is one
    score: str = ""  # the column of an evaluation's score
    derive: Callable[[Sequence[TableRow]], dict[str, Any]] = lambda rows: {}  # columns that are not simply copied
    convert: Callable[[TableRow], TableRow] = lambda row: row  # each row, as it is read
    step: Callable[[Path], int] | None = None  # of a file; None: its rows have one each
    first_rows: int = 1  # files whose first row is looked at, until one has a row
    leaves_out_unfinished: bool = False  # the newest file, which else is read as far as it goes

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        other_notes = other_format_notes(listings, self.name)
        loaders = self.layout(path, listings)
        return collect_runs({key: partial(self._run, load, options, other_notes) for key, load in loaders.items()})

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        last = -1
        for step, place, rows in self._steps([Path(file) for file in piece.files], run.settings.get("newest")):
            if step <= last:
                raise StoreError(
                    f"{place}: step {step} comes again after step {last}: a resumed run was appended to the same "
                    "files; split them where it begins and read each part alone"
                )
            last = step
            with as_store_errors(place):
                batch = self._batch(step, rows, run.settings, place)
            yield batch

    def _steps(self, files: Sequence[Path], newest: int | str | None) -> Iterator[tuple[int, Path, list[TableRow]]]:
        if self.step is None:
            every = ((step_of(row, file), row) for file in files for row in self._rows(file, str(file) == newest))
            for step, mine in groupby(every, key=lambda one: one[0]):
                yield step, files[0], [row for _, row in mine]
            return
        for step, group in groupby(files, key=self.step):
            own = list(group)
            rows = [row for file in own for row in self._rows(file, step == newest)]
            place = own[0].parent if self.group else own[0]
            if rows or step != newest:
                yield step, place, require_rows(place, rows)

    def _rows(self, file: Path, growing: bool) -> Iterator[TableRow]:
        for row in read_rows(file, growing=growing):
            with as_store_errors(file):
                converted = self.convert(row)
            yield converted

    def _run(
        self, load: Callable[[], RunFiles | None], options: ReadOptions, other_notes: tuple[str, ...]
    ) -> ExternalRun | None:
        run_files = load()
        if run_files is None:
            return None
        trained = run_files.trained
        notes = [_DESCRIPTION, *self.notes]
        if self.leaves_out_unfinished and trained and (why := why_incomplete(trained[-1].files[0])):
            notes.append(f"{trained.pop().files[0].name} {why}: that step is left out")
        paths = [*(one.files[0] for one in trained), *(one.files[0] for one in run_files.held_out)][: self.first_rows]
        inspection = self.inspect(trained, next((row for file in paths if (row := first_row(file))), {}), options)
        if inspection is None:
            return None
        evaluations, problems = self._evaluations(run_files.held_out)
        notes += [*inspection[0], *problems, *unused_option_notes(options, grouped=bool(self.group))]
        if not self.columns:
            notes.append(f"{len(evaluations)} evaluations, from the scores of held-out prompts")
        return ExternalRun(
            name=run_files.name,
            reader=self.name,
            pieces=tuple(_shard_pieces(trained)) if self.step is None else bundle_steps(trained),
            notes=(*notes, *other_notes),
            settings=inspection[1],
            evaluations=tuple(evaluations),
        )

    def _evaluations(self, held_out: Sequence[HeldOutFiles]) -> tuple[list[Evaluation], list[str]]:
        evaluations: list[Evaluation] = []
        notes: list[str] = []
        names: dict[str, str] = {}
        for one in held_out:
            try:
                rows = [row for file in one.files for row in self._rows(file, one.growing)]
            except StoreError as error:
                notes.append(f"not read: {error}")
                continue
            scores = (
                (str(row.get(self.item)) if self.item else at, row.get(self.score)) for at, row in enumerate(rows)
            )
            evaluation, why = score_evaluation(one.step, unique_name(one.name, names), scores)
            evaluations += [evaluation] if evaluation else []
            notes += [] if evaluation else [f"{one.label} is no evaluation: {why}"]
        return evaluations, [*notes, *renaming_notes(names)]

    def _batch(self, step: int, rows: Sequence[TableRow], settings: Mapping[str, Any], place: Path) -> RolloutBatch:
        columns: dict[str, Any] = {ours: [row.get(theirs) for row in rows] for ours, theirs in self.columns.items()}
        groups = [str(row.get(self.group)) for row in rows] if self.group else _nemo_groups(rows, settings, place)
        return from_columns(step, groups, **(columns | self.derive(rows)))


# NeMo-RL: train_data_stepN.jsonl, with engine and trainer log-probabilities of every token.


def _nemo_files(path: Path, listings: Sequence[FolderListing]) -> RunFileLoaders:
    return {str(listing.folder): partial(_nemo_run, path, listing) for listing in listings}


def _nemo_run(path: Path, listing: FolderListing) -> RunFiles | None:
    def files_of(kind: str) -> list[tuple[int, Path]]:
        pattern = re.compile(rf"{kind}_data_step(\d+)\.jsonl(?:\.gz)?")
        names = numbered_names(listing.folder, listing.files, pattern)
        return [(step, listing.folder / name) for step, name in names]

    trained, held_out = files_of("train"), files_of("val")
    if not trained and not held_out:
        return None
    return RunFiles(
        run_name(listing.folder, path if path.is_dir() else listing.folder),
        [StepFiles(step, (file,), size_of(file)) for step, file in trained],
        [HeldOutFiles(step, (file,), "validation", file.name, file == held_out[-1][1]) for step, file in held_out],
    )


def _inspect_nemo(trained: Sequence[StepFiles], first: TableRow, options: ReadOptions) -> Inspection:
    if trained and "rewards" not in first:
        raise StoreError(
            f"{trained[0].files[0]}: no rewards in its rows, as NeMo-RL's distillation writes them; nothing to judge"
        )
    notes: list[str] = []
    if options.group_size:
        notes.append(f"groups: {options.group_size} rows in a row, as given")
    elif trained and "token_ids" in first and "token_loss_mask" in first:
        notes.append("groups: neighbouring rows whose prompt tokens agree, inferred (the files hold no group id)")
    elif trained:
        notes.append("no groups: neither ids nor prompt tokens are stored; --group-size N (num_generations_per_prompt)")
    if trained:
        notes.append("the text is prompt and answer in one, as stored: readings of the text see both")
    if trained and "filtered_rewards" in first:
        notes.append(
            "the reward is filtered_rewards, which was trained on; rewards before filtering are kept as a part"
        )
    return notes, {"group_size": options.group_size or 0}


def _convert_nemo(row: TableRow) -> TableRow:
    """A row with lists of length one unpacked, and its numbers as arrays."""
    plain = {key: value[0] if isinstance(value, list) and len(value) == 1 else value for key, value in row.items()}
    keys = (*_NEMO_TOKENS, "token_loss_mask", "advantages")
    lists = (key for key in keys if isinstance(plain.get(key), (list, int)))
    return plain | {key: np.atleast_1d(compact(plain[key])) for key in lists}


def _derive_nemo(rows: Sequence[TableRow]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        ours: [row[theirs][row["token_loss_mask"].astype(bool)] for row in rows]
        for theirs, ours in _NEMO_TOKENS.items()
        if rows and all(_has_mask_for(row, theirs) for row in rows)
    }
    advantage = [_nemo_advantage(row) for row in rows]
    if any(one is not None for one in advantage):
        columns["advantage"] = advantage
    if any("filtered_rewards" in row for row in rows):
        columns["rewards"] = {"unfiltered": [row.get("rewards") for row in rows]}
        columns["reward"] = [row.get("filtered_rewards") for row in rows]
    if any(row.get("sample_loss_mask") is not None for row in rows):
        columns["facts"] = [{"trained": bool(row.get("sample_loss_mask"))} for row in rows]
    return columns


def _has_mask_for(row: TableRow, name: str) -> bool:
    values, mask = row.get(name), row.get("token_loss_mask")
    return isinstance(values, np.ndarray) and isinstance(mask, np.ndarray) and values.shape == mask.shape


def _nemo_advantage(row: TableRow) -> object:
    """A row's advantage: stored for every token, with the same value at each sampled token."""
    values = row.get("advantages")
    if not isinstance(values, np.ndarray):
        return values
    if values.size == 1:
        return values.item()
    fits = _has_mask_for(row, "advantages")
    return next(iter(values[row["token_loss_mask"].astype(bool)].tolist()), None) if fits else None


def _nemo_groups(rows: Sequence[TableRow], settings: Mapping[str, Any], file: Path) -> list[int]:
    prompts = [_nemo_prompt(row) for row in rows]
    if size := settings["group_size"]:
        if len(rows) % size or any(prompts[at] != prompts[at - at % size] for at in range(len(rows))):
            raise StoreError(
                f"{file}: {len(rows)} rows are not groups of {size} with one prompt each; pass another --group-size"
            )
        return [at // size for at in range(len(rows))]
    starts = [prompt is None or at == 0 or prompt != prompts[at - 1] for at, prompt in enumerate(prompts)]
    return [int(count) - 1 for count in np.cumsum(starts)]


def _nemo_prompt(row: TableRow) -> bytes | None:
    """The tokens before the first sampled token."""
    tokens, mask = row.get("token_ids"), row.get("token_loss_mask")
    if not isinstance(tokens, np.ndarray) or not isinstance(mask, np.ndarray):
        return None
    own = np.flatnonzero(mask)
    return bytes(tokens[: own[0] if len(own) else len(tokens)].tobytes())


# SkyRL: held-out scores by step, which training never sees. Its rollouts are a pickle without rewards.


def _skyrl_files(path: Path, listings: Sequence[FolderListing]) -> RunFileLoaders:
    return {str(listing.folder): partial(_skyrl_run, path, listing) for listing in listings}


def _skyrl_run(path: Path, listing: FolderListing) -> RunFiles | None:
    steps = numbered_names(listing.folder, listing.folders, re.compile(r"global_step_(\d+)_evals"))
    home = listing.folder.absolute()
    held_out = [
        HeldOutFiles(step, (listing.folder / name / file,), f"eval {Path(file).stem}", f"{name}/{file}")
        for step, name in steps
        for file in list_folder(listing.folder / name).files
        if file.endswith(".jsonl") and file != "aggregated_results.jsonl"
    ]
    name = run_name(home.parent if home.name == "dumped_evals" else home, path)
    return RunFiles(name, held_out=held_out) if steps else None


def _convert_skyrl(row: TableRow) -> TableRow:
    """A row with a score that is one number: the sum where there is one per token."""
    score = row.get("score")
    if isinstance(score, list) and score and all(isinstance(part, (int, float)) for part in score):
        return row | {"score": sum(score)}
    return row


# open-instruct: RUN_rollouts_NNNNNN.jsonl, as `--save_traces` writes them. Token ids and no text.


def _open_instruct_files(path: Path, listings: Sequence[FolderListing]) -> RunFileLoaders:
    pattern = re.compile(r"(.+)_rollouts_(\d{6})\.jsonl(?:\.gz)?")
    loaders: dict[str, Callable[[], RunFiles]] = {}
    for listing in listings:
        shards: dict[str, list[StepFiles]] = {}
        for name in listing.files:
            if match := pattern.fullmatch(name):
                file = listing.folder / name
                shards.setdefault(match[1], []).append(StepFiles(int(match[2]), (file,), size_of(file)))
        top = run_name(listing.folder, path if path.is_dir() else listing.folder)
        for run, files in shards.items():
            name = run if len(shards) > 1 or listing.folder == path else f"{top}-{run}"
            loaders[str(listing.folder / run)] = partial(RunFiles, name, files)
    return loaders


def _inspect_open_instruct(trained: Sequence[StepFiles], first: TableRow, options: ReadOptions) -> Inspection:
    files = [one.files[0] for one in trained]
    if first and not {"step", "prompt_idx", "reward"} <= first.keys():
        raise StoreError(f"{files[0]}: its rows have no step, prompt_idx and reward; this is no trace of open-instruct")
    refuse_copies(files)
    notes: list[str] = []
    try:
        if unfinished(files[-1]):
            notes.append(f"{files[-1].name} is still being written: its whole lines count, the last does not yet")
    except StoreError as error:  # `read` loses that piece, and says it
        notes.append(f"not read: {error}")
    return notes, {"newest": str(files[-1].absolute())}


def _shard_pieces(shards: Sequence[StepFiles]) -> Iterator[Piece]:
    """Pieces with no step in common: shards that share a step stay together."""
    group: list[Path] = []
    for file in (one.files[0] for one in shards):
        first, last = first_row(file).get("step"), _last_step(group[-1]) if group else None
        if isinstance(first, int) and isinstance(last, int) and first > last:
            yield _shard_piece(group)
            group = []
        group.append(file)
    yield _shard_piece(group)


def _shard_piece(files: Sequence[Path]) -> Piece:
    """A piece of these shards. Its steps are known without reading if the first and last row have the same step."""
    first, last = first_row(files[0]).get("step"), _last_step(files[-1])
    steps = (first,) if isinstance(first, int) and first == last else ()
    return Piece(tuple(str(one.absolute()) for one in files), sum(map(size_of, files)), steps)


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


def _convert_open_instruct(row: TableRow) -> TableRow:
    """A row with the columns that are used alone, and its numbers as arrays: a shard holds many."""
    lists = ("response_tokens", "logprobs")
    used = ("step", "prompt_idx", "reward", "advantage", "finish_reason", *_OPEN_INSTRUCT_FACTS, *lists)
    fields = {key: row[key] for key in used if key in row}
    return fields | {key: compact(fields[key]) for key in lists if isinstance(fields.get(key), list)}


def _derive_open_instruct(rows: Sequence[TableRow]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "truncated": [row.get("finish_reason") != "stop" for row in rows],
        "facts": [{key: row[key] for key in _OPEN_INSTRUCT_FACTS if row.get(key) is not None} for row in rows],
    }
    tokens: list[Any] = [row.get("response_tokens") for row in rows]
    logprobs = [row.get("logprobs") for row in rows]
    if all(one is not None for one in tokens):
        columns["tokens"] = tokens
        if all(one is not None and len(one) == len(two) for one, two in zip(logprobs, tokens, strict=True)):
            columns["engine_logprob"] = logprobs
    return columns


# AReaL: rollout/VERSION/TASK.jsonl, as `rollout.dump_to_file=true` writes them.


def _areal_files(path: Path, listings: Sequence[FolderListing]) -> RunFileLoaders:
    homes: dict[Path, dict[str, FolderListing]] = {}
    for listing in listings:
        if "areal" in listing.formats and numbered_names(listing.folder, listing.folders, re.compile(r"(\d+)")):
            homes.setdefault(listing.folder.absolute().parent, {})[listing.folder.name] = listing
    return {str(home): partial(_areal_run, path, home, kinds) for home, kinds in sorted(homes.items())}


def _areal_run(path: Path, home: Path, kinds: Mapping[str, FolderListing]) -> RunFiles:
    def versions(kind: str) -> Iterator[StepFiles]:
        listing = kinds.get(kind, FolderListing(home, (), ()))
        for version, name in numbered_names(listing.folder, listing.folders, re.compile(r"(\d+)")):
            folder = listing.folder / name
            files = tuple(folder / one for one in list_folder(folder).files if one.endswith((".jsonl", ".jsonl.gz")))
            refuse_copies(files)
            if files:
                yield StepFiles(version, files, sum(map(size_of, files)))

    trained = list(versions("rollout"))
    held_out = versions("eval-rollout")
    return RunFiles(
        run_name(home, path),
        trained,
        [HeldOutFiles(one.step, one.files, "evaluation", f"eval-rollout/{one.step}") for one in held_out],
    )


def _inspect_areal(trained: Sequence[StepFiles], first: TableRow, options: ReadOptions) -> Inspection:
    if not {"task_id", "reward", "completion"} <= first.keys():
        return None
    return [], {"newest": trained[-1].step if trained else -1}


def _derive_areal(rows: Sequence[TableRow]) -> dict[str, Any]:
    columns: dict[str, Any] = {"facts": [{"policy_start": row.get("head_version")} for row in rows]}
    if any("original_reward" in row for row in rows):
        columns["rewards"] = {"original": [row.get("original_reward") for row in rows]}
    pairs: list[tuple[Any, Any]] = [(row.get("seqlen"), row.get("prompt_len")) for row in rows]
    if all(isinstance(whole, int) and isinstance(prompt, int) and whole >= prompt for whole, prompt in pairs):
        columns["length"] = [whole - prompt for whole, prompt in pairs]
    return columns


NEMO = DescribedReader(
    name="nemo",
    title="NeMo-RL: train_data_stepN.jsonl (from the format's description only, not run)",
    layout=_nemo_files,
    inspect=_inspect_nemo,
    notes=(_NO_METRICS,),
    columns={"reward": "rewards", "completion": "content"},
    score="rewards",
    derive=_derive_nemo,
    convert=_convert_nemo,
    step=lambda file: int(file.name.split(".")[0].removeprefix("train_data_step")),
    leaves_out_unfinished=True,
)
SKYRL = DescribedReader(
    name="skyrl",
    title="SkyRL: dumped_evals/global_step_N_evals/*.jsonl (from the format's description only, not run)",
    layout=_skyrl_files,
    inspect=lambda trained, first, options: ([], {}),
    notes=("evaluations only: SkyRL dumps training rollouts as a pickle without rewards, and a pickle is not read",),
    item="input_prompt",
    score="score",
    convert=_convert_skyrl,
    step=lambda file: 0,
)
OPEN_INSTRUCT = DescribedReader(
    name="open_instruct",
    title="open-instruct: RUN_rollouts_NNNNNN.jsonl (from the format's description only, not run)",
    layout=_open_instruct_files,
    inspect=_inspect_open_instruct,
    notes=(
        "groups: by prompt_idx within a step",
        "token ids and no text: readings of what is said are absent, unless somebody decodes them with the tokenizer",
    ),
    columns={"reward": "reward", "advantage": "advantage"},
    group="prompt_idx",
    derive=_derive_open_instruct,
    convert=_convert_open_instruct,
)
AREAL = DescribedReader(
    name="areal",
    title="AReaL: rollout/VERSION/TASK.jsonl (from the format's description only, not run)",
    layout=_areal_files,
    inspect=_inspect_areal,
    notes=(
        "only what survived: samples with an empty answer are not written, so a collapse into silence is not seen",
        "a step is the version of the policy that finished the sample; groups by task",
        "where a prompt ends is inferred by AReaL, and wrong with several turns",
        _NO_METRICS,
    ),
    columns={"reward": "reward", "prompt": "prompt", "completion": "completion"},
    group="task_id",
    item="task_id",
    score="reward",
    derive=_derive_areal,
    step=lambda file: int(file.parent.name),
    first_rows=3,
)
