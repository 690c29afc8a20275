"""Imports another tool's files into a run directory, step by step, in any number of processes.

Afterwards it is a run like any other, so every screen, report and query works on it. A step's file is written
atomically and never replaced. So an import that was killed continues where it stopped, and nothing is counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tiltmeter.audit.dataset_join import DatasetRows
from tiltmeter.audit.engine.engine import Engine
from tiltmeter.audit.label_file import GoldLabels
from tiltmeter.audit.readers import BY_NAME
from tiltmeter.audit.readers.external_run import ExternalRun, Piece
from tiltmeter.audit.word_tokens import WORD_TOKENS_NOTE, needs_word_tokens, with_word_tokens
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.atomic_write import sweep
from tiltmeter.rundir.evaluations import write_evaluation
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line

ENGINE_BYTES = 64_000_000  # below that, starting workers takes longer than reading the files
MOST_PROBLEMS = 20  # problems
SAMPLE_PIECES = 3  # pieces that are tried, until one can be read
#: What a reader may raise for a damaged file, besides `StoreError`.
UNREADABLE = (ValueError, TypeError, KeyError, ArithmeticError, OSError)


@dataclass(frozen=True, slots=True)
class ImportJob:
    """The input of every worker of an import."""

    source: ExternalRun
    home: str
    attempt: int
    labels: GoldLabels | None
    dataset: DatasetRows | None
    word_tokens: bool  # are used as tokens


@dataclass(frozen=True, slots=True)
class PieceResult:
    """The result of importing one piece."""

    steps: int = 0  # with rollouts
    rows: int = 0
    labelled: int = 0  # rows
    joined: int = 0  # rows that the dataset has a row for
    problem: str = ""
    lost: int = 0  # steps, where it is known how many; else files


def import_run(
    source: ExternalRun,
    home: Path,
    *,
    engine: Engine | None = None,
    forced: bool = False,
    labels: GoldLabels | None = None,
    dataset: DatasetRows | None = None,
    on_piece: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[RunDirectory, list[str]]:
    """Import a run into a run directory; returns it with notes for the user. An interrupted import is continued."""
    origin = _origin(source, labels, dataset)
    run = RunDirectory.create(home, {"name": source.name, "origin": origin, "said": list(source.notes)})
    if run.identity().get("origin") != origin:
        raise StoreError(
            f"{home} holds the audit of other files, or of these as they were, or read with other options: delete it, "
            "or name another place with --keep"
        )
    attempt = next((number for number in run.attempts() if run.attempt(number)), None)
    if attempt is None:
        attempt = run.open_attempt(launch="import", ranks=1, resume_step=None)
    if run.ended(attempt):
        return run, list(run.counters(attempt)[0].get("told", []))
    sweep(run.path / "rollouts" / str(attempt))
    job = ImportJob(source, str(run.path.resolve()), attempt, labels, dataset, _has_only_text(source))
    results: list[PieceResult] = []
    for result in _import_pieces(job, engine, forced):
        results.append(result)
        on_piece(len(results), len(source.pieces))
    scalar_steps = _store_scalar_steps(run, job)
    problems = [one.problem for one in results if one.problem] + _declare_evaluations(run, source, attempt)
    lost, written = sum(one.lost for one in results), sum(one.steps for one in results) + scalar_steps
    if not written and not source.evaluations:
        raise StoreError(problems[0] if problems else f"{source.name}: nothing to measure was found in these files")
    notes = _import_notes(results, scalar_steps, job) + problems[:MOST_PROBLEMS]
    notes += [f"and {len(problems) - MOST_PROBLEMS:,} more"] if len(problems) > MOST_PROBLEMS else []
    counters = {"seen": written + lost, "written": written, "thinned": 0, "dropped": lost, "bytes_lost": 0}
    run.close_rank(attempt, 0, {**counters, "why": (problems or [""])[0], "told": notes})
    return run, notes


def _has_only_text(source: ExternalRun) -> bool:
    """Whether words must be used as tokens: decided by the first step that can be read, for all steps."""
    for piece in source.pieces[:SAMPLE_PIECES]:
        try:
            for batch in BY_NAME[source.reader].read(source, piece):
                return needs_word_tokens(batch)
        except (StoreError, *UNREADABLE):
            continue  # reported when it is imported
    return False


def _import_pieces(job: ImportJob, engine: Engine | None, forced: bool) -> Iterator[PieceResult]:
    pieces = job.source.pieces
    if engine is None or (not forced and sum(piece.size for piece in pieces) < ENGINE_BYTES):
        return (import_piece(job, which) for which in range(len(pieces)))
    return engine.map(import_piece, job, range(len(pieces)))


def _declare_evaluations(run: RunDirectory, source: ExternalRun, attempt: int) -> list[str]:
    """Declare the evaluations; returns the problems."""
    problems = []
    for evaluation in source.evaluations:
        try:
            write_evaluation(run, replace(evaluation, attempt=attempt))
        except FileExistsError:
            problems.append(f"evaluation {evaluation.name} of step {evaluation.step} is there twice; the first is kept")
    return problems


def import_piece(job: ImportJob, which: int) -> PieceResult:
    """Store every step of a piece that is not stored yet. An error loses this piece only; where it has one file per
    step, that step only."""
    piece = job.source.pieces[which]
    result = _import(job, which, piece)
    one_each = len(piece.steps) == len(piece.files) and job.source.reader != "generic"  # there files may share steps
    if not result.problem or not one_each or len(piece.files) == 1:
        return result
    alone = [Piece((file,), 0, (step,)) for file, step in zip(piece.files, piece.steps, strict=True)]
    each = [_import(job, which, one) for one in alone]
    problems = [one.problem for one in each if one.problem] or [result.problem]
    more = f" (and {len(problems) - 1} more files)" if len(problems) > 1 else ""
    counts = {name: sum(getattr(one, name) for one in each) for name in ("steps", "rows", "labelled", "joined")}
    return PieceResult(**counts, problem=problems[0] + more, lost=len(problems))


def _import(job: ImportJob, which: int, piece: Piece) -> PieceResult:
    run, reader = RunDirectory(job.home), BY_NAME[job.source.reader]
    steps = rows = labelled = joined = 0
    problem = ""
    try:
        for read_batch in reader.read(job.source, piece):
            batch = replace(with_word_tokens(read_batch) if job.word_tokens else read_batch, attempt=job.attempt)
            if batch.step < 0:
                raise StoreError(f"{piece.files[0]}: step {batch.step}; steps count from 0")
            if not _store(run, job, which, batch):
                problem = f"step {batch.step} is in two files; the first that was read is kept, {piece.files[0]} is not"
                continue
            steps, rows = steps + 1, rows + len(batch)
            labelled += 0 if job.labels is None else job.labels.count(batch)
            joined += 0 if job.dataset is None else job.dataset.count(batch)
    except StoreError as error:
        problem = str(error)
    except UNREADABLE as error:
        problem = f"{piece.files[0]} cannot be read: {type(error).__name__}: {str(error)[:200]}"
    lost = max(1, len(piece.steps) - steps) if problem else 0
    if lost > 1:
        problem += f"; with it {lost} steps of these files are not read"
    return PieceResult(steps, rows, labelled, joined, log_line(problem, 400), lost)


def _store(run: RunDirectory, job: ImportJob, which: int, batch: RolloutBatch) -> bool:
    """Store a step; whether the stored one is from this piece. Of two pieces that hold it, the first is kept."""
    if not run.step_path(batch.attempt, batch.step, 0).exists():
        if job.labels is not None:
            batch = job.labels.add_gold(batch)
        if job.dataset is not None:
            batch = job.dataset.join(batch)
        batch = replace(batch, scalars={**batch.scalars, **job.source.scalars.get(batch.step, {})})
        # The time of the source files: the same files always make the same run directory.
        stamp = max((_size_and_mtime(file)[1] for file in job.source.pieces[which].files), default=0)
        _write(run, batch, {"groups": "rank", "time": max(0, stamp) / 1e9, "piece": which})
    (stored,) = run.find(batch.attempt, batch.step)
    return bool(run.read(stored, ("group",))[1].get("piece") == which)


def _write(run: RunDirectory, batch: RolloutBatch, facts: dict[str, Any]) -> None:
    try:
        run.write(batch, 0, facts)
    except OSError as error:  # our disk, not the source files: nothing is lost, and the next start continues
        raise AttachError(
            f"{run.path} cannot be written ({error}): free space, or name another place with --keep"
        ) from error


def _store_scalar_steps(run: RunDirectory, job: ImportJob) -> int:
    """Store the steps that have logged metrics but no rollouts, as batches without rows; returns how many."""
    with_rollouts = {step for piece in job.source.pieces for step in piece.steps}
    count = 0
    for step, scalars in sorted(job.source.scalars.items()):
        if step < 0 or step in with_rollouts:
            continue  # a step whose rollouts could not be read is missing, and not one without rollouts
        path = run.step_path(job.attempt, step, 0)
        if not path.exists():
            batch = from_columns(step, [], attempt=job.attempt, scalars=scalars)
            _write(run, batch, {"groups": "rank", "time": 0.0, "piece": -1})
        (stored,) = run.find(job.attempt, step)
        count += run.read(stored, ("group",))[1].get("piece") == -1
    return count


def _import_notes(results: Sequence[PieceResult], scalar_steps: int, job: ImportJob) -> list[str]:
    rows, labelled = sum(one.rows for one in results), sum(one.labelled for one in results)
    notes = [f"{sum(one.steps for one in results):,} steps, {rows:,} rollouts"]
    notes += [f"{scalar_steps:,} steps have logged numbers and no rollouts"] if scalar_steps else []
    notes += [WORD_TOKENS_NOTE] if job.word_tokens else []
    if job.labels is not None:
        share = labelled / rows if rows else 0.0
        notes.append(
            f"{job.labels.name} labels {labelled:,} of {rows:,} rollouts ({share:.1%})"
            + ("" if share > 0.99 else "; what is said of gold holds if they were chosen without looking at the reward")
        )
    if job.dataset is not None:
        joined = sum(one.joined for one in results)
        notes.append(
            f"{job.dataset.name} has a row for {joined:,} of {rows:,} rollouts, by {job.dataset.on!r}"
            + ("" if joined >= rows else ": the others have no facts; --on names another column")
        )
    return notes


def _origin(source: ExternalRun, labels: GoldLabels | None, dataset: DatasetRows | None) -> dict[str, Any]:
    """The identity of an import: its files, how they are read, and the labels joined to them."""
    files = [(file, *_size_and_mtime(file)) for piece in source.pieces for file in piece.files]
    numbers = [sorted(source.scalars.items()), [asdict(one) for one in source.evaluations]]
    content = [files, dict(source.settings), numbers, "" if labels is None else labels.digest]
    content += [] if dataset is None else [dataset.digest]
    digest = blake2b(json.dumps(content, sort_keys=True, default=str).encode(), digest_size=12).hexdigest()
    return {"reader": source.reader, "name": source.name, "files": len(files), "digest": digest}


def _size_and_mtime(file: str) -> tuple[int, int]:
    try:
        stat = Path(file).stat()
    except OSError:
        return -1, -1  # deleted since it was found: reported when it is read
    return stat.st_size, stat.st_mtime_ns
