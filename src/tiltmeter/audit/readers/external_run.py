"""A run in another tool's files, the options for reading it, and the protocol that readers implement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation
from tiltmeter.safety.safe_text import log_line

MOST_NOTES = 10  # about files left out that are listed one by one


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The user's options for reading files. Empty where nothing was given."""

    format: str = ""  # the name of a reader; empty: recognise it
    columns: Mapping[str, str] = field(default_factory=dict)  # our column or scalar -> theirs; "run" splits a file
    group_size: int | None = None  # consecutive rows of one prompt
    weights: Mapping[str, float] = field(default_factory=dict)  # of reward functions, where the total is not stored
    evals: Mapping[str, int | str] = field(default_factory=dict)  # their column -> items behind each value, or a column
    excluded: tuple[str, ...] = ()  # absolute paths of files that are not part of the run, such as the labels of --gold


@dataclass(frozen=True, slots=True)
class Piece:
    """Files that hold whole steps, small enough to be read at once by one worker."""

    files: tuple[str, ...]  # absolute
    size: int  # bytes, by which work is shared out
    steps: tuple[int, ...] = ()  # that it holds, in order, where known without reading


@dataclass(frozen=True, slots=True)
class ExternalRun:
    """One run in another tool's files. Small and plain: it is sent to workers.

    Its notes tell the user what was recognised, how groups were inferred, what was left out and what is missing.
    """

    name: str
    reader: str  # the name of the reader that found it
    pieces: tuple[Piece, ...] = ()  # in step order; no step is in two pieces
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # what `read` must know: plain JSON values
    scalars: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # by step, under canonical names
    evaluations: tuple[Evaluation, ...] = ()


class FormatReader(Protocol):
    """Knows one format of files.

    `find` looks at names and at the first rows, and answers with no run where the files are another tool's. It raises
    `StoreError` with the fix where the format is its own and the files cannot be used. `read` yields one batch a step,
    without scalars; a file that is damaged raises `StoreError`, and the other pieces are read all the same.
    """

    name: str  # as the command line names it
    title: str  # for people

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]: ...
    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]: ...


RunLoader = Callable[[], ExternalRun | Iterable[ExternalRun] | None]


def collect_runs(loaders: Mapping[str, RunLoader], broken: Mapping[str, StoreError] | None = None) -> list[ExternalRun]:
    """The runs of several folders. One that cannot be read becomes a note, or is raised if no run is left.

    `broken`: folders that are already known to be unreadable.

    >>> def damaged() -> ExternalRun:
    ...     raise StoreError("b/1.jsonl: cut short")
    >>> collect_runs({"a": lambda: ExternalRun("a", "verl"), "b": damaged})[0].notes
    ('b was left out: b/1.jsonl: cut short',)
    """
    runs: list[ExternalRun] = []
    errors = dict(broken or {})
    for name, load in loaders.items():
        try:
            result = load()
        except StoreError as error:
            errors[name] = error
        else:
            runs += [result] if isinstance(result, ExternalRun) else result or ()
    if errors and not runs:
        raise next(iter(errors.values()))
    return add_notes(runs, [f"{log_line(name, 200)} was left out: {error}" for name, error in errors.items()])


def add_notes(runs: Iterable[ExternalRun], lines: Sequence[str]) -> list[ExternalRun]:
    """The runs with these lines added to the notes of each; at most the first ten."""
    more = [f"and {len(lines) - MOST_NOTES} more were left out"] if len(lines) > MOST_NOTES else []
    return [replace(run, notes=(*run.notes, *lines[:MOST_NOTES], *more)) for run in runs]
