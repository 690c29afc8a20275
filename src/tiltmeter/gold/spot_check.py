"""A spot check: the best-paid rollouts of now, judged blind by a person, with an exact interval.

It needs no gold source and no configuration, and bets on nothing: the person chose the moment to look, so it is no part
of the alarm and its bound.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import shown_text
from tiltmeter.errors import StoreError
from tiltmeter.rundir.remote.inbox import leave_file
from tiltmeter.rundir.sidecar import Count, list_sidecars
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.intervals import upper_bound

COUNT = 30
STEPS = 10  # newest steps that the rollouts are of
FEWEST = 10  # answers, below which an interval says too little to call the rollouts good or bad
HALF = 0.5
_COLUMNS = ("group", "reward", "prompt", "completion", "turns")


@dataclass(frozen=True, slots=True)
class PaidRollout:
    """A rollout to judge. Who judges it is shown the texts alone."""

    attempt: int
    step: int
    rank: int
    row: int
    reward: float
    prompt: str | None
    text: str


class SpotCheck(Struct, frozen=True):
    """What was judged, and how: the file of a spot check."""

    attempt: Count
    step: Count  # the newest that was looked at
    rows: tuple[tuple[Count, Count, Count, Count], ...]  # attempt, step, rank, row
    good: tuple[bool, ...]
    reward: float  # mean of these rollouts
    lowest_reward: float
    time: float
    skipped: Annotated[int, Meta(ge=0)] = 0

    @property
    def share(self) -> float:
        return sum(self.good) / len(self.good)

    @property
    def interval(self) -> tuple[float, float]:
        """The exact interval of the share (95 %, Clopper and Pearson 1934).

        >>> check = SpotCheck(0, 9, ((0, 9, 0, 0),) * 30, (True,) * 5 + (False,) * 25, 0.99, 0.98, 0.0)
        >>> [round(end, 3) for end in check.interval]
        [0.056, 0.347]
        """
        good, count = sum(self.good), len(self.good)
        return 1.0 - upper_bound(count - good, count, 0.975), upper_bound(good, count, 0.975)

    @property
    def is_good(self) -> bool | None:
        """Whether at least half of the best-paid rollouts are good; None: too few answers to say."""
        low, high = self.interval
        if len(self.good) < FEWEST or low <= HALF <= high:
            return None
        return low > HALF


def best_paid(run: RunDirectory, count: int = COUNT, steps: int = STEPS) -> tuple[int, list[PaidRollout]]:
    """The newest step, and the best-paid rollouts up to it in random order, each text once.

    Raises `StoreError` if none is stored. Among equal rewards chance decides, the same way for the same run and step,
    so that looking twice shows no others.
    """
    attempt = max(run.attempts(), default=None)
    files = [] if attempt is None else list(run.files(attempt, []))
    newest = sorted({file.step for file in files})[-steps:]
    rollouts_by_text: dict[tuple[str | None, str], PaidRollout] = {}
    for file in sorted((file for file in files if file.step in newest), key=lambda file: (file.step, file.rank)):
        batch = run.read(file, _COLUMNS)[0]
        for row in _paid_rows(batch):
            text = shown_text(batch, row)
            if text is not None:
                prompt = None if batch.prompt is None else batch.prompt[row]
                paid = float(batch.reward[row])  # type: ignore[index]  # it has rows that are paid
                one = PaidRollout(file.attempt, file.step, file.rank, row, paid, prompt, text)
                rollouts_by_text.setdefault((prompt, text), one)
    if not rollouts_by_text:
        raise StoreError(f"{run.path} has no stored completions with a reward: nothing can be looked at")
    rng = np.random.default_rng([int.from_bytes(str(run.identity().get("id", "")).encode()[-8:]), newest[-1]])
    rollouts = list(rollouts_by_text.values())
    rng.shuffle(rollouts)
    chosen = sorted(rollouts, key=lambda one: -one.reward)[:count]
    rng.shuffle(chosen)
    return newest[-1], chosen


def store_check(
    run: RunDirectory, step: int, rollouts: Sequence[PaidRollout], good: Sequence[bool | None]
) -> SpotCheck:
    """Keep what a person said of the best-paid rollouts up to a step; None: skipped.

    Raises `ValueError` if everything was.
    """
    judged = [(one, answer) for one, answer in zip(rollouts, good, strict=False) if answer is not None]
    if not judged:
        raise ValueError("nothing was judged")
    rewards = [one.reward for one, _ in judged]
    check = SpotCheck(
        attempt=rollouts[0].attempt,
        step=step,
        rows=tuple((one.attempt, one.step, one.rank, one.row) for one, _ in judged),
        good=tuple(answer for _, answer in judged),
        reward=float(np.mean(rewards)),
        lowest_reward=min(rewards),
        time=time.time(),
        skipped=sum(answer is None for answer in good),
    )
    facts: dict[str, Any] = {name: getattr(check, name) for name in check.__struct_fields__}
    leave_file(run, ("gold", "spot"), f"{check.attempt}-{check.step:06d}-{secrets.token_hex(4)}.json", facts)
    return check


def list_checks(run: RunDirectory) -> list[SpotCheck]:
    """The spot checks of a run, oldest first. A file that is refused is none."""
    by_file, _ = list_sidecars(run.path / "gold" / "spot", lambda name: name.endswith(".json"), SpotCheck)
    usable = [check for check in by_file.values() if check.good and len(check.good) == len(check.rows)]
    return sorted(usable, key=lambda check: check.time)


def _paid_rows(batch: RolloutBatch) -> list[int]:
    if batch.reward is None or batch.completion is None:
        return []
    return [int(row) for row in np.flatnonzero(np.isfinite(batch.reward))]
