"""Evaluations declared during a run (benchmark scores by step): one small JSON file each, read by the monitor."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass

from tiltmeter.rundir.run_path import make_folder
from tiltmeter.rundir.sidecar import list_sidecars, read_sidecar, write_sidecar
from tiltmeter.rundir.store import RunDirectory

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FILE = re.compile(r"([0-9]+)-([0-9]+)-[a-z][a-z0-9_]{0,63}\.json")


@dataclass(frozen=True, slots=True, order=True)
class Evaluation:
    """The mean score of `n` held-out items at one step, each between 0 and 1.

    A held-out benchmark is a source of gold even where no completion can be labelled: a detector compares the series
    with its own best. The claim is then about that benchmark.

    >>> Evaluation(0, 40, "gsm8k", 0.71, 200).file
    '0-000040-gsm8k.json'
    """

    attempt: int
    step: int
    name: str
    value: float
    n: int

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"an evaluation is named with lower case letters, digits and _, not {self.name!r}")
        if self.step < 0 or self.n < 1:
            raise ValueError("an evaluation has a step from 0 on and at least one item: pass step= and n=")
        if not 0.0 <= self.value <= 1.0:
            raise ValueError(f"an evaluation is a mean of scores from 0 to 1, not {self.value}: rescale it")

    @property
    def file(self) -> str:
        return f"{self.attempt}-{self.step:06d}-{self.name}.json"


def write_evaluation(run: RunDirectory, evaluation: Evaluation) -> None:
    """Store an evaluation, once: several ranks may declare the same one. Raises `FileExistsError` for a different value
    of that name at that step: the first one is kept."""
    path = make_folder(run.path, "evals") / evaluation.file
    try:
        write_sidecar(path, asdict(evaluation) | {"time": time.time()})
    except FileExistsError:
        if read_sidecar(path, Evaluation) != evaluation:
            raise


def read_evaluations(
    run: RunDirectory, seen_names: Collection[str]
) -> dict[int, list[Evaluation | tuple[int, int, str]]]:
    """New evaluations by attempt, oldest first; for a file that cannot be read, (attempt, step, reason)."""
    values, refusals = list_sidecars(
        run.path / "evals", lambda name: name not in seen_names and _FILE.fullmatch(name), Evaluation
    )
    for name, evaluation in values.items():
        if evaluation.file != name:
            refusals[name] = "it holds another evaluation than its name says"
    by_attempt: dict[int, list[Evaluation | tuple[int, int, str]]] = {}
    matches = (match for name in (values | refusals) if (match := _FILE.fullmatch(name)))
    for attempt, step, name in sorted((int(match[1]), int(match[2]), match[0]) for match in matches):
        item = (attempt, step, f"{name}: {refusals[name]}") if name in refusals else values[name]
        by_attempt.setdefault(attempt, []).append(item)
    return by_attempt
