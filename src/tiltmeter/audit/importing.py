"""Another tool's files become a run directory: step by step, in any number of processes, each step once.

From there on it is a run like any other, so every screen, report and query works on it. A step's file is written whole
or not at all and never replaced; whoever comes second finds it there. So an import that was killed goes on where it
stopped, and nothing is counted twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tiltmeter.adapters.readers import BY_NAME
from tiltmeter.adapters.readers.foreign import Foreign, Piece
from tiltmeter.audit.labels import Labels
from tiltmeter.audit.words import SAID, worded, wordless
from tiltmeter.batches import from_columns
from tiltmeter.durable import sweep
from tiltmeter.encode import log_line
from tiltmeter.engine import Engine
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.evaluations import declare
from tiltmeter.records import RolloutBatch
from tiltmeter.store import RunDirectory

ENGINE_BYTES = 64_000_000  # below that, workers would take longer to start than the files to read
MOST_TOLD = 20  # problems
LOOKED_AT = 3  # pieces, for one that can be read
#: What a damaged file makes a reader raise beside its own error.
UNREADABLE = (ValueError, TypeError, KeyError, ArithmeticError, OSError)


@dataclass(frozen=True, slots=True)
class Order:
    """What every worker of an import must know."""

    source: Foreign
    home: str
    attempt: int
    labels: Labels | None
    words: bool  # stand for tokens


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of one piece."""

    steps: int = 0  # with rollouts
    rows: int = 0
    labelled: int = 0  # rows
    problem: str = ""
    lost: int = 0  # steps, where it is known how many; else files


def import_run(
    source: Foreign,
    home: Path,
    *,
    engine: Engine | None = None,
    forced: bool = False,
    labels: Labels | None = None,
    on_piece: Callable[[int, int], None] = lambda done, of: None,
) -> tuple[RunDirectory, list[str]]:
    """The run directory of a foreign run, and what there is to say about it. An import that was begun is finished."""
    origin = _origin(source, labels)
    run = RunDirectory.create(home, {"name": source.name, "origin": origin, "said": list(source.said)})
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
    order = Order(source, str(run.path.resolve()), attempt, labels, _has_only_text(source))
    found: list[Imported] = []
    for result in _results(order, engine, forced):
        found.append(result)
        on_piece(len(found), len(source.pieces))
    bare = _scalars_alone(run, order)
    problems = [one.problem for one in found if one.problem] + _declared(run, source, attempt)
    lost, written = sum(one.lost for one in found), sum(one.steps for one in found) + bare
    if not written and not source.evaluations:
        raise StoreError(problems[0] if problems else f"{source.name}: nothing to measure was found in these files")
    told = _told(found, bare, order) + problems[:MOST_TOLD]
    told += [f"and {len(problems) - MOST_TOLD:,} more"] if len(problems) > MOST_TOLD else []
    counters = {"seen": written + lost, "written": written, "thinned": 0, "dropped": lost, "bytes_lost": 0}
    run.close_rank(attempt, 0, {**counters, "why": (problems or [""])[0], "told": told})
    return run, told


def _has_only_text(source: Foreign) -> bool:
    """Whether words must stand for tokens: by the first step that can be read, and then for all of them."""
    for piece in source.pieces[:LOOKED_AT]:
        try:
            for batch in BY_NAME[source.reader].read(source, piece):
                return wordless(batch)
        except (StoreError, *UNREADABLE):
            continue  # told when it is imported
    return False


def _results(order: Order, engine: Engine | None, forced: bool) -> Iterator[Imported]:
    pieces = order.source.pieces
    if engine is None or (not forced and sum(piece.size for piece in pieces) < ENGINE_BYTES):
        return (import_piece(order, which) for which in range(len(pieces)))
    return engine.map(import_piece, order, range(len(pieces)))


def _declared(run: RunDirectory, source: Foreign, attempt: int) -> list[str]:
    """Declare what was evaluated; what could not be."""
    problems = []
    for evaluation in source.evaluations:
        try:
            declare(run, replace(evaluation, attempt=attempt))
        except FileExistsError:
            problems.append(f"evaluation {evaluation.name} of step {evaluation.step} is there twice; the first is kept")
    return problems


def import_piece(order: Order, which: int) -> Imported:
    """Store every step of a piece that is not stored yet. What is wrong with it costs this piece and no other; where it
    has a file for each step, that step and no other."""
    piece = order.source.pieces[which]
    found = _import(order, which, piece)
    one_each = len(piece.steps) == len(piece.files) and order.source.reader != "generic"  # there files may share steps
    if not found.problem or not one_each or len(piece.files) == 1:
        return found
    alone = [Piece((file,), 0, (step,)) for file, step in zip(piece.files, piece.steps, strict=True)]
    each = [_import(order, which, one) for one in alone]
    told = [one.problem for one in each if one.problem] or [found.problem]
    more = f" (and {len(told) - 1} more files)" if len(told) > 1 else ""
    steps, rows, labelled = (sum(getattr(one, name) for one in each) for name in ("steps", "rows", "labelled"))
    return Imported(steps, rows, labelled, told[0] + more, len(told))


def _import(order: Order, which: int, piece: Piece) -> Imported:
    run, reader = RunDirectory(order.home), BY_NAME[order.source.reader]
    steps = rows = labelled = 0
    problem = ""
    try:
        for read in reader.read(order.source, piece):
            batch = replace(worded(read) if order.words else read, attempt=order.attempt)
            if batch.step < 0:
                raise StoreError(f"{piece.files[0]}: step {batch.step}; steps count from 0")
            if not _store(run, order, which, batch):
                problem = f"step {batch.step} is in two files; the first that was read is kept, {piece.files[0]} is not"
                continue
            steps, rows = steps + 1, rows + len(batch)
            labelled += 0 if order.labels is None else order.labels.count(batch)
    except StoreError as error:
        problem = str(error)
    except UNREADABLE as error:
        problem = f"{piece.files[0]} cannot be read: {type(error).__name__}: {str(error)[:200]}"
    lost = max(1, len(piece.steps) - steps) if problem else 0
    if lost > 1:
        problem += f"; with it {lost} steps of these files are not read"
    return Imported(steps, rows, labelled, log_line(problem, 400), lost)


def _store(run: RunDirectory, order: Order, which: int, batch: RolloutBatch) -> bool:
    """Whether the step is stored now, by this piece; of two that hold it, the first stands."""
    if not run.step_path(batch.attempt, batch.step, 0).exists():
        if order.labels is not None:
            batch = order.labels.joined(batch)
        batch = replace(batch, scalars={**batch.scalars, **order.source.scalars.get(batch.step, {})})
        # A time that is the files' own: the same files make the same run directory, whoever reads them.
        stamp = max((_state(file)[1] for file in order.source.pieces[which].files), default=0)
        _write(run, batch, {"groups": "rank", "time": max(0, stamp) / 1e9, "piece": which})
    (stored,) = run.find(batch.attempt, batch.step)
    return bool(run.read(stored, ("group",))[1].get("piece") == which)


def _write(run: RunDirectory, batch: RolloutBatch, facts: dict[str, Any]) -> None:
    try:
        run.write(batch, 0, facts)
    except OSError as error:  # our disk, not their files: nothing is lost, and the next start goes on
        raise AttachError(
            f"{run.path} cannot be written ({error}): free space, or name another place with --keep"
        ) from error


def _scalars_alone(run: RunDirectory, order: Order) -> int:
    """Store the steps of which only the trainer's numbers are known: no rollouts, so no rows. How many there are."""
    known = {step for piece in order.source.pieces for step in piece.steps}
    bare = 0
    for step, scalars in sorted(order.source.scalars.items()):
        if step < 0 or step in known:
            continue  # a step whose rollouts could not be read is missing, and not one without rollouts
        path = run.step_path(order.attempt, step, 0)
        if not path.exists():
            batch = from_columns(step, [], attempt=order.attempt, scalars=scalars)
            _write(run, batch, {"groups": "rank", "time": 0.0, "piece": -1})
        (stored,) = run.find(order.attempt, step)
        bare += run.read(stored, ("group",))[1].get("piece") == -1
    return bare


def _told(found: Sequence[Imported], bare: int, order: Order) -> list[str]:
    rows, labelled = sum(one.rows for one in found), sum(one.labelled for one in found)
    told = [f"{sum(one.steps for one in found):,} steps, {rows:,} rollouts"]
    told += [f"{bare:,} steps have logged numbers and no rollouts"] if bare else []
    told += [SAID] if order.words else []
    if order.labels is not None:
        share = labelled / rows if rows else 0.0
        told.append(
            f"{order.labels.name} labels {labelled:,} of {rows:,} rollouts ({share:.1%})"
            + ("" if share > 0.99 else "; what is said of gold holds if they were chosen without looking at the reward")
        )
    return told


def _origin(source: Foreign, labels: Labels | None) -> dict[str, Any]:
    """What makes two imports the same: files as they are, how they are read, and the labels they are joined with."""
    files = [(file, *_state(file)) for piece in source.pieces for file in piece.files]
    numbers = [sorted(source.scalars.items()), [asdict(one) for one in source.evaluations]]
    known = [files, dict(source.settings), numbers, "" if labels is None else labels.digest]
    digest = blake2b(json.dumps(known, sort_keys=True, default=str).encode(), digest_size=12).hexdigest()
    return {"reader": source.reader, "name": source.name, "files": len(files), "digest": digest}


def _state(file: str) -> tuple[int, int]:
    try:
        found = Path(file).stat()
    except OSError:
        return -1, -1  # gone since it was found: told when it is read
    return found.st_size, found.st_mtime_ns
