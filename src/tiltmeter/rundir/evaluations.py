"""Evaluations declared during a run (benchmark scores by step): one small JSON file each, read by the monitor."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tiltmeter.rundir.atomic_write import entries, publish, sync_folder
from tiltmeter.rundir.store import RunDirectory

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_FILE = re.compile(r"(\d+)-(\d+)-([a-z][a-z0-9_]{0,63})\.json")


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
        if not math.isfinite(self.value) or not 0.0 <= self.value <= 1.0:
            raise ValueError(f"an evaluation is a mean of scores from 0 to 1, not {self.value}: rescale it")

    @property
    def file(self) -> str:
        return f"{self.attempt}-{self.step:06d}-{self.name}.json"


def write_evaluation(run: RunDirectory, evaluation: Evaluation) -> None:
    """Store an evaluation, once: several ranks may declare the same one. Raises `FileExistsError` for a different value
    of that name at that step: the first one is kept."""
    folder = run.path / "evals"
    if not folder.is_dir():
        folder.mkdir(exist_ok=True)
        sync_folder(run.path)
    facts = {"attempt": evaluation.attempt, "step": evaluation.step, "name": evaluation.name}
    facts |= {"value": evaluation.value, "n": evaluation.n, "time": time.time()}
    try:
        publish(folder / evaluation.file, [json.dumps(facts, allow_nan=False).encode()])
    except FileExistsError:
        before = json.loads((folder / evaluation.file).read_bytes())
        if (before["value"], before["n"]) != (evaluation.value, evaluation.n):
            raise


def read_evaluations(run: RunDirectory, seen_names: set[str]) -> dict[int, list[Evaluation | tuple[int, int, str]]]:
    """New evaluations by attempt, oldest first; for a file that cannot be read, (attempt, step, reason)."""
    new = [entry for entry in entries(run.path / "evals") if entry.name not in seen_names]
    matches = [(match, Path(entry.path)) for entry in new if (match := _FILE.fullmatch(entry.name))]
    by_attempt: dict[int, list[Evaluation | tuple[int, int, str]]] = {}
    for attempt, step, name, path in sorted((int(match[1]), int(match[2]), match[3], path) for match, path in matches):
        items = by_attempt.setdefault(attempt, [])
        try:
            facts = json.loads(path.read_bytes())
            value, n = float(facts["value"]), int(facts["n"])
            if (facts["attempt"], facts["step"], facts["name"]) != (attempt, step, name):
                raise ValueError("it holds another evaluation than its name says")
            items.append(Evaluation(attempt, step, name, value, n))
        except (ValueError, KeyError, TypeError) as error:
            items.append((attempt, step, f"{path.name}: {type(error).__name__}: {str(error)[:200]}"))
    return by_attempt
