"""Reads the files of verifiers and prime-rl: traces of every step, metrics.jsonl, and results.jsonl from before 0.4."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, RunLoader, collect_runs
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
    first_row,
    read_rows,
    refuse_options,
    renaming_notes,
    requested_evaluations,
    scalars_by_step,
    step_of,
    unfinished,
    unique_name,
    unused_option_notes,
)
from tiltmeter.audit.readers.prime_stream import (
    annotation_folders,
    apply_updates,
    chunk_files,
    is_stream,
    place_of,
    read_chunks,
    read_updates,
)
from tiltmeter.audit.readers.table_files import TableRow
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.rows import UnscoredError, as_object
from tiltmeter.data.verifiers_rows import episode_columns, reward_of, trace_row, traces
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation, score_evaluation

HELD_OUT_LIMIT = 2 << 30  # bytes of evaluation traces that are read to score them

_STEP = re.compile(r"step_(\d+)")
_OLD = frozenset({"example_id", "completion", "reward"})
#: Keys that only prime-rl's metrics have; other tools write files of that name too.
_PRIME = re.compile(r"train/[^/]+/(?:all|effective)/.*|mismatch_kl/.*|entropy/all/mean|off_policy/.*|optim/.*")
#: Names of prime-rl that the common table lacks.
_NAMES = {"learning_rate": "optim/lr", "grad_norm": "optim/grad_norm", "loss": "loss/mean", "step_seconds": "time/step"}


class VerifiersReader:
    """Traces of verifiers 0.4 and the run folder of prime-rl, which hold more than any other trainer's files.

    Groups, tokens, log-probabilities of engine and trainer, and every part of the reward with its weight. A rollout
    whose scoring failed has no reward here, although the package stores 0.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> row = {"example_id": 3, "prompt": "1 + 1 =", "completion": "2", "reward": 1.0}
    >>> _ = (folder / "results.jsonl").write_text(json.dumps(row) + "\\n")
    >>> (run,) = VerifiersReader().find(folder, ReadOptions())
    >>> [batch.reward.tolist() for piece in run.pieces for batch in VerifiersReader().read(run, piece)]
    [[1.0]]
    """

    name = "verifiers"
    title = "verifiers and prime-rl: rollouts/step_N/.../traces.jsonl, a trace stream, metrics.jsonl, results.jsonl"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        other_notes = other_format_notes(listings, self.name)
        loaders: dict[str, RunLoader] = {}
        inside: set[Path] = set()
        for listing in listings:
            if listing.folder.name == "rollouts" and (stored := _steps(listing)):
                home = listing.folder.absolute().parent
                inside |= {home, listing.folder}
                loaders[str(home)] = partial(_run, home, stored, path, options, other_notes)
        inside |= {_stream_home(listing.folder) for listing in listings if is_stream(listing)}
        for listing in listings:
            if is_stream(listing):
                loaders[str(listing.folder)] = partial(_stream_run, listing, path, options, other_notes)
                continue
            if listing.folder in inside or listing.folder.absolute() in inside:
                continue
            loaders[str(listing.folder)] = partial(_alone, listing, path, options, other_notes)
        return collect_runs(loaders)

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        if run.settings["kind"] == "results":
            with as_store_errors(Path(piece.files[0])):
                batch = _read_results(Path(piece.files[0]))
            yield batch
        elif run.settings["kind"] == "stream":
            yield from _read_stream([Path(file) for file in piece.files], run.settings["gold"])
        elif run.settings["kind"] == "lone":
            yield from _read_lone(Path(piece.files[0]), run.settings["gold"])
        else:
            newest = run.settings["newest"]
            files = [Path(file) for file in piece.files]
            for step in dict.fromkeys(_step_of(file) for file in files):
                mine = {file.parent.name: file for file in files if _step_of(file) == step}
                batch = _step(step, mine, run.settings["gold"], growing=step == newest)
                if len(batch):  # of the newest nothing may be whole yet
                    yield batch


def _step_of(file: Path) -> int:
    match = _STEP.fullmatch(file.parents[2].name)
    return int(match[1]) if match else -1


@dataclass(frozen=True)
class _StepTraces:
    """The trace files of one step, training and evaluation separately."""

    step: int
    train_files: tuple[Path, ...]
    eval_files: tuple[Path, ...]


def _steps(listing: FolderListing) -> list[_StepTraces]:
    steps = []
    for step, name in numbered_names(listing.folder, listing.folders, _STEP):
        kinds = {}
        for kind in ("train", "eval"):
            files = [listing.folder / name / kind / part / "traces.jsonl" for part in ("all", "effective")]
            kinds[kind] = tuple(file for file in files if file.is_file())
        if kinds["train"] or kinds["eval"]:
            steps.append(_StepTraces(step, kinds["train"], kinds["eval"]))
    return steps


def _run(
    home: Path, stored: Sequence[_StepTraces], root: Path, options: ReadOptions, other_notes: tuple[str, ...]
) -> ExternalRun:
    trained = [one for one in stored if one.train_files]
    notes = [f"rollouts of {len(trained)} steps, groups by their stored id"]
    pieces = bundle_steps([StepFiles(one.step, one.train_files, sum(map(size_of, one.train_files))) for one in trained])
    newest = trained[-1].step if trained else -1
    if trained:
        first = first_row(trained[0].train_files[0])
        if first and not is_episode(first):
            raise StoreError(
                f"{trained[0].train_files[0]}: no episodes of verifiers 0.4; an older format is not read here"
            )
        notes += _gold_notes(trained[0].train_files[0], options.columns.get("gold", ""))
        if unfinished(trained[-1].train_files[0]):
            notes.append(f"step {newest} is still being written: its whole lines count, the last does not yet")
        partly = [one.step for one in trained if one.train_files[0].parent.name == "effective"]
        if partly:
            notes.append(f"{len(partly)} steps hold only what was trained on (effective): what was dropped is unseen")
        elif any(len(one.train_files) > 1 for one in trained):
            notes.append("every rollout counts (all); those that were trained on are marked effective among the facts")
    evaluations, eval_notes = _read_evaluations([one for one in stored if one.eval_files])
    notes += eval_notes
    notes.append("per-token numbers are rounded to 4 decimals in these files: a KL below 1e-4 per token is not in them")
    numbers, logged, of_metrics = _metrics(home, options)
    _refuse(options, logged, home)
    return ExternalRun(
        name=run_name(home, root if root.is_dir() else home),
        reader=VerifiersReader.name,
        pieces=pieces,
        notes=(*notes, *of_metrics, *other_notes),
        settings={"kind": "run", "newest": newest, "gold": options.columns.get("gold", "")},
        scalars=numbers,
        evaluations=(*evaluations, *requested_evaluations(logged, options, home)),
    )


def _refuse(options: ReadOptions, logged: Mapping[int, Mapping[str, Any]], where: Path) -> None:
    """Raises `StoreError` for options that would change nothing."""
    refuse_options(options, {key for row in logged.values() for key in row}, where, stored="each part with its weight")
    if options.group_size is not None:
        raise StoreError(f"{where}: groups are stored: leave --group-size out")


def _step(step: int, files: dict[str, Path], gold: str, *, growing: bool) -> RolloutBatch:
    effective = None
    if "all" in files and "effective" in files:
        effective = frozenset(str(row.get("id")) for row in read_rows(files["effective"], growing=growing))
    file = files.get("all") or files["effective"]
    with as_store_errors(file):
        batch = batch_of(step, _episodes(file, growing=growing), effective, gold)
    if not len(batch) and not growing:
        raise StoreError(f"{file}: it holds no rollouts; copy it again or move its step away")
    return batch


def batch_of(step: int, episodes: Iterable[TableRow], effective: frozenset[str] | None, gold: str = "") -> RolloutBatch:
    """One step's batch. `effective`: ids of the episodes that were trained on, where they are known."""
    rows = []
    for episode in episodes:
        trained = None if effective is None else str(episode.get("id")) in effective
        rows += [trace_row(episode, trace, trained, gold) for trace in traces(episode)]
    return from_columns(step, **episode_columns(rows))


def is_episode(row: TableRow) -> bool:
    """Whether a row is an episode of verifiers 0.4."""
    return isinstance(row.get("traces"), list) and "env" in row and "task" in row


def _gold_notes(file: Path, name: str) -> list[str]:
    """A note on the requested gold. Raises `StoreError` where the first rollout has no metric of that name."""
    if not name:
        return []
    with as_store_errors(file):
        first = next((one for episode in _episodes(file, growing=True) for one in traces(episode) if one), {})
        names = [*(first.get("metrics") or {}), *(first.get("rewards") or {})]
    if name not in names:
        raise StoreError(f"{file}: no metric {name!r} for gold; there are {', '.join(map(str, names)) or 'none'}")
    paid = name in (first.get("rewards") or {})
    return [
        f"gold: {name}, as given"
        + (", and it is paid as well: what a policy is paid for is no independent truth" if paid else "")
    ]


def _episodes(file: Path, *, growing: bool) -> Iterator[TableRow]:
    for row in read_rows(file, growing=growing):
        if not is_episode(row):
            raise StoreError(f"{file}: a line that is no episode of verifiers 0.4; move that line away")
        yield row


def _read_evaluations(stored: Sequence[_StepTraces]) -> tuple[list[Evaluation], list[str]]:
    """An evaluation for every environment and step, from the rewards of its episodes."""
    evaluations: list[Evaluation] = []
    notes: dict[str, None] = {}
    used_names: dict[str, str] = {}
    room = HELD_OUT_LIMIT
    for one in stored:
        room -= size_of(one.eval_files[0])
        if room < 0:
            notes["evaluation traces beyond the first 2 GB are not read"] = None
            break
        try:
            with as_store_errors(one.eval_files[0]):
                scores_by_env = _scores(_episodes(one.eval_files[0], growing=one is stored[-1]))
        except StoreError as error:
            notes[f"not read: {error}"] = None
            continue
        _score_step(one.step, scores_by_env, used_names, evaluations, notes)
    if evaluations:
        notes[f"{len(evaluations)} evaluations, from the rewards of held-out episodes"] = None
    return evaluations, [*notes, *renaming_notes(used_names)]


def _score_step(
    step: int,
    scores_by_env: Mapping[str, list[tuple[object, object]]],
    used_names: dict[str, str],
    evaluations: list[Evaluation],
    notes: dict[str, None],
) -> None:
    for env, scores in scores_by_env.items():
        evaluation, why = score_evaluation(step, unique_name(f"eval {env}", used_names), scores)
        if evaluation is not None:
            evaluations.append(evaluation)
        else:
            notes[f"evaluations in {env} are no evaluation: {why}"] = None


def _scores(episodes: Iterator[TableRow]) -> dict[str, list[tuple[object, object]]]:
    by_env: dict[str, list[tuple[object, object]]] = {}
    for episode in episodes:
        task = episode["task"] if isinstance(episode["task"], dict) else {}
        item = task.get("key") or task.get("hash") or episode.get("id")
        env = episode["env"].get("name") if isinstance(episode["env"], dict) else None
        for trace in traces(episode):
            by_env.setdefault(str(env or "held out"), []).append((str(item), reward_of(episode, trace)[0]))
    return by_env


# --- metrics.jsonl


def _metrics(
    home: Path, options: ReadOptions
) -> tuple[dict[int, dict[str, float]], dict[int, dict[str, Any]], list[str]]:
    file = home / "metrics.jsonl"
    if not file.is_file():
        return {}, {}, ["no metrics.jsonl: nothing that the trainer logged"]
    logged: dict[int, dict[str, Any]] = {}
    for row in read_rows(file, growing=True):
        logged.setdefault(step_of(row, file), {}).update(row)
    notes = [f"metrics: metrics.jsonl, steps {min(logged, default=0)} to {max(logged, default=0)}"]
    keys = {key for row in logged.values() for key in row}
    aliases = {ours: theirs for ours, theirs in _NAMES.items() if theirs in keys and ours not in options.columns}
    numbers = scalars_by_step(logged, ReadOptions(columns={**aliases, **options.columns}))
    for row in numbers.values():
        for key in ("ref_kl/all/mean", "ref_kl/mean", "ref_kl"):
            if key in row and "kl_ref" not in row:
                row["kl_ref"] = -row.pop(key)  # theirs is reference minus trainer
    if not any("kl_ref" in row for row in numbers.values()):
        notes.append("no KL measured: prime-rl has no KL to a reference unless its loss asks for one")
    return numbers, logged, notes


# --- files alone


def _alone(listing: FolderListing, root: Path, options: ReadOptions, other_notes: tuple[str, ...]) -> list[ExternalRun]:
    """A traces.jsonl outside a run folder, results.jsonl of an evaluation before 0.4, or metrics without rollouts."""
    folder, top = listing.folder, root if root.is_dir() else root.parent
    name = run_name(folder, top)
    if "traces.jsonl" in listing.files and is_episode(first_row(folder / "traces.jsonl")):
        return [_lone_run(name, folder / "traces.jsonl", options, other_notes)]
    if "results.jsonl" in listing.files and first_row(folder / "results.jsonl").keys() >= _OLD:
        file = folder / "results.jsonl"
        notes = ["one evaluation of verifiers before 0.4, taken as step 0; groups by example_id"]
        if "metadata.json" not in listing.files:
            notes.append("no metadata.json beside it")
        notes += unused_option_notes(options, grouped=True)
        pieces = bundle_steps([StepFiles(0, (file,), size_of(file))])
        return [ExternalRun(name, VerifiersReader.name, pieces, (*notes, *other_notes), {"kind": "results"})]
    if "tinker" in listing.formats:
        return []  # its metrics have keys of the same names
    if "metrics.jsonl" in listing.files and any(map(_PRIME.fullmatch, first_row(folder / "metrics.jsonl"))):
        numbers, logged, notes = _metrics(folder, options)
        refuse_options(options, {key for row in logged.values() for key in row}, folder / "metrics.jsonl")
        all_notes = ("no rollouts: prime-rl keeps them under rollouts/ in its output folder", *notes, *other_notes)
        return [
            ExternalRun(
                name,
                VerifiersReader.name,
                (),
                all_notes,
                {},
                numbers,
                tuple(requested_evaluations(logged, options, folder)),
            )
        ]
    return []


def _lone_run(name: str, file: Path, options: ReadOptions, other_notes: tuple[str, ...]) -> ExternalRun:
    _refuse(options, {}, file)
    requested_evaluations({}, options, file)
    gold = options.columns.get("gold", "")
    notes = [
        "a traces.jsonl alone: steps as its episodes say them, groups by their stored id",
        *_gold_notes(file, gold),
    ]
    if unfinished(file):
        notes.append("its last line is still being written and does not count yet")
    piece = Piece((str(file.absolute()),), size_of(file))
    return ExternalRun(name, VerifiersReader.name, (piece,), (*notes, *other_notes), {"kind": "lone", "gold": gold})


def _stream_run(
    listing: FolderListing, root: Path, options: ReadOptions, other_notes: tuple[str, ...]
) -> list[ExternalRun]:
    """A trace stream of newer prime-rl, with the metrics of the folder that it is in."""
    files = chunk_files(listing.folder, listing.files)
    first = next(read_chunks(files), {})
    if not is_episode(first):
        return []  # chunks of annotations, or of something else
    home = _stream_home(listing.folder)
    evaluations, eval_notes = _stream_evaluations(files)
    numbers, logged, of_metrics = _metrics(home, options)
    _refuse(options, logged, listing.folder)
    gold = options.columns.get("gold", "")
    annotated = annotation_folders(listing.folder)
    which = "those that were trained on are marked" if annotated else "no annotations: what was trained on is not known"
    notes = (
        f"a trace stream of {len(files)} chunks: steps by when its episodes were shipped, or came back; {which}",
        *eval_notes,
        "this format is read by its source and not by a recorded file",
    )
    piece = Piece(tuple(str(file.absolute()) for file in files), sum(map(size_of, files)))
    name = run_name(home, root if root.is_dir() else root.parent)
    settings = {"kind": "stream", "gold": gold}
    wanted = tuple(requested_evaluations(logged, options, home))
    all_notes = (*notes, *of_metrics, *other_notes)
    return [ExternalRun(name, VerifiersReader.name, (piece,), all_notes, settings, numbers, (*evaluations, *wanted))]


def _stream_home(stream: Path) -> Path:
    """The run's folder: the nearest above a stream that holds metrics, or the stream's own."""
    above = stream.absolute().parents[:2]
    return next((folder for folder in above if (folder / "metrics.jsonl").is_file()), stream.absolute())


def _stream_episodes(files: Sequence[Path]) -> Iterator[tuple[str, int, bool, TableRow]]:
    updates = read_updates(files[0].parent)
    for episode in read_chunks(files):
        if not is_episode(episode):
            raise StoreError(f"{files[0].parent}: a line that is no episode of verifiers; move that line away")
        for trace in episode["traces"]:
            if isinstance(trace, dict) and (mine := updates.get(str(trace.get("id")))):
                apply_updates(trace, mine)
        yield *place_of(episode, files[0]), episode


def _read_stream(files: Sequence[Path], gold: str) -> Iterator[RolloutBatch]:
    by_step: dict[int, list[TableRow]] = {}
    effective: set[str] = set()
    with as_store_errors(files[0]):
        for kind, step, trained, episode in _stream_episodes(files):
            if kind == "train":
                by_step.setdefault(step, []).append(episode)
                effective |= {str(episode.get("id"))} if trained else set()
    trained_on = frozenset(effective) if annotation_folders(files[0].parent) else None
    for step, episodes in sorted(by_step.items()):
        with as_store_errors(files[0]):
            batch = batch_of(step, episodes, trained_on, gold)
        yield batch


def _stream_evaluations(files: Sequence[Path]) -> tuple[list[Evaluation], list[str]]:
    if sum(map(size_of, files)) > HELD_OUT_LIMIT:
        return [], ["held-out episodes are not scored: the stream is larger than 2 GB"]
    by_step: dict[int, list[TableRow]] = {}
    with as_store_errors(files[0]):
        for kind, step, _, episode in _stream_episodes(files):
            if kind == "eval":
                by_step.setdefault(step, []).append(episode)
    evaluations: list[Evaluation] = []
    notes: dict[str, None] = {}
    used_names: dict[str, str] = {}
    for step, episodes in sorted(by_step.items()):
        _score_step(step, _scores(iter(episodes)), used_names, evaluations, notes)
    return evaluations, [*notes, *renaming_notes(used_names)]


def _read_lone(file: Path, gold: str) -> Iterator[RolloutBatch]:
    by_step: dict[int, list[TableRow]] = {}
    for episode in _episodes(file, growing=True):
        work = as_object(as_object(episode.get("run")).get("work"))
        by_step.setdefault(step_of(work, file) if "step" in work else 0, []).append(episode)
    for step, episodes in sorted(by_step.items()):
        with as_store_errors(file):
            batch = batch_of(step, episodes, None, gold)
        yield batch


def _read_results(file: Path) -> RolloutBatch:
    """Rows of one evaluation before 0.4. A rollout with an error has no reward, whatever was written."""
    records = list(read_rows(file, growing=True))
    metrics: list[TableRow] = [cell if isinstance(cell := row.get("metrics"), dict) else {} for row in records]
    names = list(dict.fromkeys(key for row in metrics for key in row))
    failed = [row.get("error") not in (None, "", False) for row in records]
    unscored: list[object] = [UnscoredError() if bad else None for bad in failed]
    return from_columns(
        0,
        [str(row.get("example_id")) for row in records],
        reward=[unscored[at] if failed[at] else row.get("reward") for at, row in enumerate(records)],
        rewards={
            name: [unscored[at] if failed[at] else row.get(name) for at, row in enumerate(metrics)] for name in names
        },
        prompt=[row.get("prompt") for row in records],
        completion=[row.get("completion") for row in records],
        truncated=[bool(row.get("is_truncated")) for row in records],
        facts=[{"answer": row["answer"]} if row.get("answer") is not None else {} for row in records],
    )
