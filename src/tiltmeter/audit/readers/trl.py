"""Reads the output folder of TRL and Unsloth: completions Parquet files and trainer_state.json."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.folders import (
    FolderListing,
    StepFiles,
    bundle_steps,
    list_folders,
    numbered_names,
    other_format_notes,
    run_name,
)
from tiltmeter.audit.readers.jsonl import as_store_errors, refuse_options, requested_evaluations, scalars_by_step
from tiltmeter.audit.readers.trl_completions import (
    FILE,
    batch_of,
    load_completions,
    same_rollouts,
    settings_of,
    steps_in_words,
)
from tiltmeter.audit.readers.trl_state import TrainerLog, read_state, rename_parts, state_files, state_notes
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError

SAMPLE_FILES = 16  # files that are opened to see what they hold


class TrlReader:
    """TRL's files: the completions that `log_completions=True` leaves behind, and the log inside a checkpoint.

    They hold the completions and each reward function's score, which is enough to test for reward hacking. Group
    ids, the total, lengths and log-probabilities are not in them.

    >>> import json, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> state = {"global_step": 5, "log_history": [{"step": 5, "kl": 0.02, "rewards/correct/mean": 0.5}]}
    >>> _ = (folder / "trainer_state.json").write_text(json.dumps(state))
    >>> (run,) = TrlReader().find(folder, ReadOptions())
    >>> run.scalars
    {5: {'kl_ref': 0.02, 'rewards/correct': 0.5}}
    """

    name = "trl"
    title = "TRL and Unsloth: completions_*.parquet and trainer_state.json"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        listings = list_folders(path)
        homes: dict[Path, FolderListing] = {}  # of completions, by the run's folder
        for listing in listings:
            if any(FILE.fullmatch(name) for name in listing.files):
                folder = listing.folder.absolute()
                homes[folder.parent if folder.name == "completions" else folder] = listing
        for listing in listings:
            if state_files(listing.folder, listing) and listing.folder.absolute() not in homes:
                homes[listing.folder.absolute()] = FolderListing(listing.folder, (), ())
        other_notes = other_format_notes(listings, self.name)
        return collect_runs(
            {
                str(folder): partial(_run, folder, listing, path, options, other_notes)
                for folder, listing in sorted(homes.items())
            }
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        before: pa.Table | None = None
        for file in map(Path, piece.files):
            table = load_completions(file)
            if run.settings["repeats"] and before is not None and same_rollouts(before, table):
                continue
            before = table
            with as_store_errors(file):
                batch = batch_of(file, table, run.settings)
            yield batch


def _run(
    folder: Path, listing: FolderListing, root: Path, options: ReadOptions, other_notes: tuple[str, ...]
) -> ExternalRun | None:
    state = read_state(folder)
    steps, notes = _training_steps(listing, state)
    if not steps and (state is None or not state.train_log):
        if listing.files:
            raise StoreError(f"{listing.folder}: {'; '.join(notes)}")
        return None
    settings: dict[str, Any] = {"repeats": False, "group": 0, "rewards": {}, "extras": [], "total": True}
    pieces: tuple[Piece, ...] = ()
    if steps:
        samples = _open_samples(steps)
        with as_store_errors(listing.folder):
            settings, column_notes = settings_of(listing.folder, samples, state, options)
        notes += column_notes
        pieces = _independent_pieces(steps) if settings["repeats"] else bundle_steps(steps)
    else:
        notes.append("no completions, so only what the trainer logged: log_completions=True writes them")
        if options.weights or options.group_size is not None or "gold" in options.columns:
            notes.append("--weight, --group-size and --map gold= are not used: they are about completions")
    notes += state_notes(state, [one.step for one in steps])
    logged = {} if state is None else {step: rename_parts(row) for step, row in state.train_log.items()}
    refuse_options(options, {key for row in logged.values() for key in row}, folder)
    evaluations = requested_evaluations({} if state is None else _every_row(state), options, folder)
    return ExternalRun(
        name=run_name(folder, root if root.is_dir() else folder),
        reader=TrlReader.name,
        pieces=pieces,
        notes=(*notes, *other_notes),
        settings=settings,
        scalars=scalars_by_step(logged, options),
        evaluations=tuple(evaluations),
    )


def _every_row(state: TrainerLog) -> dict[int, dict[str, Any]]:
    """The logged metrics of each step, training and evaluation together."""
    steps = sorted({*state.train_log, *state.eval_log})
    return {step: {**state.train_log.get(step, {}), **state.eval_log.get(step, {})} for step in steps}


def _training_steps(listing: FolderListing, state: TrainerLog | None) -> tuple[list[StepFiles], list[str]]:
    """The steps whose training rows are stored, and notes on files that are left out."""
    notes: list[str] = []
    steps: list[StepFiles] = []
    times: list[tuple[int, float]] = []
    files = numbered_names(listing.folder, listing.files, FILE)
    overwritten = [step for step, _ in files if state is not None and step in state.eval_log]
    for step, name in files:
        file = listing.folder / name
        try:
            facts = file.stat()
        except OSError as error:  # it went away, or is a link to nothing
            notes.append(f"{name} cannot be read ({error.strerror}): left out")
            continue
        if step in overwritten:
            continue
        steps.append(StepFiles(step, (file,), facts.st_size))
        times.append((step, facts.st_mtime))
    if steps and not _is_complete(steps[-1].files[0]):
        notes.append(f"{steps.pop().files[0].name} is not whole yet, or cannot be read: left out")
    if overwritten:
        notes.append(
            f"the evaluation at {steps_in_words(overwritten)} overwrote that step's file with its own rows: left out, "
            "the training rows are gone"
        )
    older = [step for (_, one), (step, two) in pairwise(times) if two < one - 1.0]
    if older:
        notes.append(
            f"files from {steps_in_words(older)} on are older than those before: file times say that the run was "
            "resumed from an earlier step; if that is so, they belong to an earlier attempt: move them away to judge "
            "the new one alone. A copy that did not keep the times looks the same"
        )
    gaps = {two.step - one.step for one, two in pairwise(steps)}
    if gaps and min(gaps) > 1:
        notes.append(
            f"one file for every {min(gaps)} steps (logging_steps): the other steps' completions were not kept"
        )
    return steps, notes


def _is_complete(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - 4))
            return size >= 12 and stream.read() == b"PAR1"
    except OSError:
        return False


def _open_samples(steps: Sequence[StepFiles]) -> list[tuple[int, pa.Table]]:
    """Tables of the first and last files. Damaged files are skipped; `read` reports them."""
    half = SAMPLE_FILES // 2
    chosen = steps if len(steps) <= SAMPLE_FILES else [*steps[:half], *steps[-half:]]
    opened: list[tuple[int, pa.Table]] = []
    broken: StoreError | None = None
    for one in chosen:
        try:
            opened.append((one.step, load_completions(one.files[0])))
        except StoreError as error:
            broken = broken or error
    if not opened and broken is not None:
        raise broken
    return opened


def _independent_pieces(steps: Sequence[StepFiles]) -> tuple[Piece, ...]:
    """Pieces whose first file does not repeat the last file of the previous piece, so that each can be read alone."""
    cut: list[StepFiles] = []
    pieces: list[Piece] = []
    start = 0
    for piece in bundle_steps(steps):
        mine = list(steps[start : start + len(piece.files)])
        start += len(mine)
        while cut and mine and _repeats(cut[-1], mine[0]):
            cut.append(mine.pop(0))
        if cut and mine:
            pieces.append(_piece(cut))
            cut = []
        cut += mine
    return (*pieces, _piece(cut))


def _repeats(one: StepFiles, two: StepFiles) -> bool:
    """Whether two steps hold the same rollouts; a damaged file, which `read` reports, repeats none."""
    try:
        return same_rollouts(load_completions(one.files[0]), load_completions(two.files[0]))
    except StoreError:
        return False


def _piece(steps: Sequence[StepFiles]) -> Piece:
    """A piece without step numbers: only reading shows which of these files repeat another."""
    return Piece(tuple(str(one.files[0].absolute()) for one in steps), sum(one.size for one in steps))
