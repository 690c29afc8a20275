"""Chooses the share of rollouts to label: of a function by what a label costs, of a judge by need."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import wait
from functools import partial
from math import isclose
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from tiltmeter.gold import CompletionToLabel, GoldAnswer, GoldSource
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_files import Label, to_label
from tiltmeter.gold.label_worker import LabelWorker
from tiltmeter.rundir.run_path import make_folder
from tiltmeter.rundir.sidecar import find_sidecar, write_sidecar
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line

GOLD_SHARE = 0.02  # at least
LABELS_A_STEP = 6  # of a judge or people: with fewer, a healthy run of 150 steps may end without an OK
GRADED_A_STEP = 16  # workspaces, which cost a second or two of a core each; equal ones are graded once
STEP_SECONDS = 1.0  # that labels of one step may take of the monitor's time
TIMED = 8  # completions of the first step by which the time is measured
LONGEST_TIMING = 5.0  # seconds that a step of a live run waits for that


class LabelCost(Struct, frozen=True, omit_defaults=True):
    """What a label takes, and the share of rollouts that is labelled for that reason."""

    share: Annotated[float, Meta(gt=0.0, le=1.0)]
    seconds: float  # a label
    source: str
    at_least: bool = False  # it was not waited for
    first: str = ""  # what is notable about the first labels
    by_need: bool = False  # of a judge or people, whose labels are not timed

    @property
    def why(self) -> str:
        """In a sentence.

        >>> LabelCost(1.0, 4e-5, "checks.py:score").why
        'a label of checks.py:score takes 0.04 ms: every rollout is labelled'
        """
        if self.by_need:
            return f"{self.source} labels {self.share:.3g} of rollouts, by what a verdict needs; share= sets it"
        part = "every rollout is" if self.share >= 1.0 else f"{self.share:.3g} of rollouts are"
        takes = "takes at least" if self.at_least else "takes"
        notable = f"; {self.first}" if self.first else ""
        return f"a label of {self.source} {takes} {1e3 * self.seconds:.2g} ms: {part} labelled{notable}"


def time_source(
    worker: LabelWorker,
    source: GoldSource,
    requests: Sequence[CompletionToLabel],
    rows: int,
    *,
    in_hurry: bool,
    rewards: Sequence[float] = (),
) -> LabelCost:
    """`measure_cost` in the thread that asks the source. `in_hurry`: after a few seconds it counts as slow."""
    if isinstance(source, FunctionSource):
        wait([worker.submit(source.start)])  # if it cannot be started, its labels are missing, with that reason
    timing = worker.submit(partial(measure_cost, source, requests, rows, rewards))
    wait([timing], LONGEST_TIMING if in_hurry else None)
    if timing.done():
        return timing.result()
    return LabelCost(share_for(LONGEST_TIMING, rows), LONGEST_TIMING, source.name, at_least=True)


def measure_cost(
    source: GoldSource, requests: Sequence[CompletionToLabel], rows: int, rewards: Sequence[float] = ()
) -> LabelCost:
    """Time a source on a few completions of a step with so many rows. The answers are described and not used.

    The first call may import a library, so it is not the one that counts, unless it is slow enough to decide.
    """
    seconds, answers = _ask_timed(source, requests[:1])
    if 0.0 < seconds <= STEP_SECONDS:
        seconds, answers = _ask_timed(source, requests[:TIMED])
        seconds /= max(len(requests[:TIMED]), 1)
    first = describe_labels([to_label(answer) for answer in answers], rewards[: len(answers)])
    return LabelCost(share_for(seconds, rows), seconds, source.name, first=first)


def describe_labels(labels: Sequence[Label], rewards: Sequence[float] = ()) -> str:
    """What is notable about the first labels of a run, beside the rewards of the same rows; empty if nothing is.

    >>> describe_labels([Label(None, "KeyError: 'answer'"), Label(1.0)])
    '1 of the first 2 completions has no label (KeyError)'
    >>> describe_labels([Label(0.0), Label(1.0)], [0.0, 1.0])
    'the first 2 labels are equal to the reward'
    """
    count, values = len(labels), [label.value for label in labels if label.value is not None]
    if missing := [label.why for label in labels if label.value is None]:
        have = "has" if len(missing) == 1 else "have"
        return f"{len(missing)} of the first {count} completions {have} no label ({_short_reason(missing[0])})"
    if count > 1 and len(set(values)) == 1:
        return f"the first {count} labels are all {values[0]:g}"
    pairs = zip(values, rewards, strict=True) if len(rewards) == count else ()
    if count > 1 and len(rewards) == count and all(isclose(*pair, abs_tol=1e-6) for pair in pairs):
        return f"the first {count} labels are equal to the reward"
    return ""


def _short_reason(why: str) -> str:
    """A reason without words of a model: of an error that is not ours, its kind."""
    ours = ("LookupError: the row has no", "TimeoutError", "FunctionProcessError", "no answer")
    return log_line(why, 120) if why.startswith(ours) or "is not a number" in why else why.partition(":")[0]


def share_for(seconds: float, rows: int) -> float:
    """The share of a step's rows that can be labelled in `STEP_SECONDS`.

    >>> share_for(1e-4, 512), share_for(0.01, 512), share_for(2.0, 512)
    (1.0, 0.195, 0.02)
    """
    whole = seconds * rows
    return 1.0 if whole <= STEP_SECONDS else max(GOLD_SHARE, round(STEP_SECONDS / whole, 3))


def needed_share(rows: int, labels: int = LABELS_A_STEP) -> float:
    """The share of a step's rows that is labelled where nothing is said, by a source that is not chosen by its cost.

    >>> needed_share(64), needed_share(512), needed_share(4)
    (0.094, 0.02, 1.0)
    """
    return min(1.0, max(GOLD_SHARE, round(labels / max(rows, 1), 3)))


def read_cost(run: RunDirectory, source: GoldSource) -> LabelCost | None:
    """The choice that was made for this source; None if none was. Raises `StoreError` for a damaged file."""
    return find_sidecar(run.path / "gold" / _file_name(source), LabelCost)


def write_cost(run: RunDirectory, source: GoldSource, cost: LabelCost) -> None:
    """Make the choice durable, before it has any effect: a restart and a replay use it again."""
    folder = make_folder(run.path, "gold")
    write_sidecar(folder / _file_name(source), to_builtins(cost))


def _file_name(source: GoldSource) -> str:
    return f"share-{hashlib.sha256(source.identity.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}.json"


def _ask_timed(source: GoldSource, requests: Sequence[CompletionToLabel]) -> tuple[float, Sequence[GoldAnswer]]:
    if not requests:
        return 0.0, ()
    began = time.perf_counter()
    answers: Sequence[GoldAnswer] = ()
    try:
        answers = source.label(requests)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # it is asked again, and the reason is then on record
        pass
    return time.perf_counter() - began, answers
