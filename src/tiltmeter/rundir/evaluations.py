"""Evaluations declared during a run (benchmark scores by step): one small JSON file each, read by the monitor."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field

from tiltmeter.data.rows import as_number
from tiltmeter.rundir.run_path import make_folder
from tiltmeter.rundir.sidecar import list_sidecars, read_sidecar, write_sidecar
from tiltmeter.rundir.store import RunDirectory

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ENV = re.compile(r"[A-Za-z0-9_.-]{1,120}")
_FILE = re.compile(r"([0-9]+)-([0-9]+)-[a-z][a-z0-9_]{0,63}(\.[A-Za-z0-9_.-]{1,120})?\.json")


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
    env: str = field(default="", repr=False)  # the slice that it is about, as readings name it; empty: the whole run
    #: Of each item, in one order at every step, None where it is not known: each is then compared with itself.
    values: tuple[float | None, ...] = field(default=(), repr=False)
    judge: str = field(default="", repr=False)  # whose scores they are, where the trainer does not evaluate itself
    missed: int = field(default=0, repr=False)  # checkpoints before this one that were gone before they could be asked
    unknown: int = field(default=0, repr=False)  # further answers, whose score did not come: counted for the run

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"an evaluation is named with lower case letters, digits and _, not {self.name!r}")
        if self.env and not _ENV.fullmatch(self.env):
            raise ValueError(f"an environment is named as readings name it (`slice_name`), not {self.env!r}")
        if self.step < 0 or self.n < 1 or self.unknown < 0:
            raise ValueError("an evaluation has a step from 0 on and at least one item: pass step= and n=")
        if not 0.0 <= self.value <= 1.0:
            raise ValueError(f"an evaluation is a mean of scores from 0 to 1, not {self.value}: rescale it")
        if any(value is not None and not 0.0 <= value <= 1.0 for value in self.values):
            raise ValueError("the score of an item is no number from 0 to 1: rescale it")
        if self.values and (self.env or self.n != sum(value is not None for value in self.values)):
            raise ValueError("n counts the items that have a score, of the whole run")

    @property
    def file(self) -> str:
        return f"{self.attempt}-{self.step:06d}-{self.name}{f'.{self.env}' if self.env else ''}.json"


def score_evaluation(step: int, name: str, scores: Iterable[tuple[object, object]]) -> tuple[Evaluation | None, str]:
    """An evaluation from the scores of held-out items (item, score), or why there is none.

    An item with several answers counts once, with their mean.

    >>> score_evaluation(4, "val", [("a", 1), ("a", 0), ("b", 1.0), ("c", None)])[0]
    Evaluation(attempt=0, step=4, name='val', value=0.75, n=2)
    >>> score_evaluation(4, "val", [("a", -1)])[1]
    'scores from -1 to -1 are not between 0 and 1'
    """
    items: dict[object, list[float]] = {}
    for item, score in scores:
        value = float(score) if isinstance(score, bool) else as_number(score)
        if value is not None and math.isfinite(value):
            items.setdefault(item, []).append(value)
    if not items:
        return None, "no row is scored"
    every = [value for values in items.values() for value in values]
    if min(every) < 0.0 or max(every) > 1.0:
        return None, f"scores from {min(every):g} to {max(every):g} are not between 0 and 1"
    mean = math.fsum(math.fsum(values) / len(values) for values in items.values()) / len(items)
    return Evaluation(0, step, name, min(mean, 1.0), len(items)), ""


def slug(name: str) -> str:
    """A valid name of an evaluation.

    >>> slug("eval_rewards/Correct/mean"), slug("2024 AIME")
    ('eval_rewards_correct_mean', 'eval_2024_aime')
    """
    plain = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    return (plain if plain[:1].isalpha() else f"eval_{plain}".rstrip("_"))[:64]


def write_evaluation(run: RunDirectory, evaluation: Evaluation) -> None:
    """Store an evaluation, once: several ranks may declare the same one. Raises `FileExistsError` for a different value
    of that name at that step: the first one is kept."""
    path = make_folder(run.path, "evals") / evaluation.file
    try:
        optional = ("env", "values", "judge", "missed", "unknown")
        facts = {key: value for key, value in asdict(evaluation).items() if key not in optional or value}
        write_sidecar(path, facts | {"time": time.time()})
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
