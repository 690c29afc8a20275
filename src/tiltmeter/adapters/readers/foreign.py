"""One run as another tool's files hold it: what a reader finds there, and what it says about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from tiltmeter.encode import log_line
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation
from tiltmeter.records import RolloutBatch

LINES = 10  # of what was left out that are said one by one


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user said about the files, beyond where they are. Empty where nothing was said."""

    format: str = ""  # the name of a reader; empty: recognise it
    columns: Mapping[str, str] = field(default_factory=dict)  # our column or scalar -> theirs; "run" splits a file
    group_size: int | None = None  # consecutive rows of one prompt
    weights: Mapping[str, float] = field(default_factory=dict)  # of reward functions, where the total is not stored
    evals: Mapping[str, int | str] = field(default_factory=dict)  # their column -> items behind each value, or a column
    besides: tuple[str, ...] = ()  # absolute paths of files that hold something else, as the labels of --gold


@dataclass(frozen=True, slots=True)
class Piece:
    """Files that hold whole steps, small enough to be read at once by one worker."""

    files: tuple[str, ...]  # absolute
    size: int  # bytes, by which work is shared out
    steps: tuple[int, ...] = ()  # that it holds, in order, where known without reading


@dataclass(frozen=True, slots=True)
class Foreign:
    """One run in another tool's files. Small and plain: it is sent to workers.

    `said` tells the user what was recognised, how groups were inferred, what was left out and what is missing: nothing
    is guessed in silence.
    """

    name: str
    reader: str  # the name of the reader that found it
    pieces: tuple[Piece, ...] = ()  # in step order; no step is in two pieces
    said: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # what `read` must know: plain JSON values
    scalars: Mapping[int, Mapping[str, float]] = field(default_factory=dict)  # by step, under canonical names
    evaluations: tuple[Evaluation, ...] = ()


class Reader(Protocol):
    """Knows one format of files.

    `find` looks at names and at the first rows, and answers with no run where the files are another tool's. It raises
    `StoreError` with the fix where the format is its own and the files cannot be used. `read` yields one batch a step,
    without scalars; a file that is damaged raises `StoreError`, and the other pieces are read all the same.
    """

    name: str  # as the command line names it
    title: str  # for people

    def find(self, path: Path, asked: Asked) -> list[Foreign]: ...
    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]: ...


Maker = Callable[[], Foreign | Iterable[Foreign] | None]


def usable(makers: Mapping[str, Maker], broken: Mapping[str, StoreError] | None = None) -> list[Foreign]:
    """The runs of several places: one that cannot be used is said beside the others, and raised if there are none.

    `broken`: places that were found unusable before anything could be made of them.

    >>> def damaged() -> Foreign:
    ...     raise StoreError("b/1.jsonl: cut short")
    >>> usable({"a": lambda: Foreign("a", "verl"), "b": damaged})[0].said
    ('b was left out: b/1.jsonl: cut short',)
    """
    found: list[Foreign] = []
    errors = dict(broken or {})
    for name, make in makers.items():
        try:
            made = make()
        except StoreError as error:
            errors[name] = error
        else:
            found += [made] if isinstance(made, Foreign) else made or ()
    if errors and not found:
        raise next(iter(errors.values()))
    return told(found, [f"{log_line(name, 200)} was left out: {error}" for name, error in errors.items()])


def told(runs: Iterable[Foreign], lines: Sequence[str]) -> list[Foreign]:
    """The runs, each with these lines said too; of many the first."""
    more = [f"and {len(lines) - LINES} more were left out"] if len(lines) > LINES else []
    return [replace(run, said=(*run.said, *lines[:LINES], *more)) for run in runs]
