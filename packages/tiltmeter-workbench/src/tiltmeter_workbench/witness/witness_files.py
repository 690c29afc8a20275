"""What a witness said about a run, in the run directory: calibrations, and answers with the canaries among them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Annotated, TypeVar

from msgspec import Meta, Struct, to_builtins

from tiltmeter.rundir.run_path import make_folder
from tiltmeter.rundir.sidecar import Count, list_sidecars, write_sidecar
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.witness.answer import WitnessAnswer
from tiltmeter_workbench.witness.calibration import Calibration

FOLDER = "witness"
T = TypeVar("T")
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class StoredCalibration(Struct, frozen=True, kw_only=True):
    """`witness/calibration-*.json`."""

    calibration: Calibration
    time: float


class AskedGroup(Struct, frozen=True, kw_only=True):
    """Rollouts of one prompt that the witness was asked about, and what it said of each."""

    step: Count
    purpose: str
    chance: Share
    rows: tuple[Count, ...]
    rewards: tuple[float | None, ...]  # what each was paid; the witness is not shown it
    answers: tuple[WitnessAnswer, ...]


class AskedBatch(Struct, frozen=True, kw_only=True):
    """`witness/asked-*.json`: what was asked at once. `canaries`: forgeries and twins that went with it."""

    witness: str  # its identity
    attempt: Count
    first_step: Count
    last_step: Count
    rows_seen: Count  # of the attempt, up to the last step
    groups: tuple[AskedGroup, ...]
    canaries: Calibration
    time: float


def store_calibration(run: RunDirectory, calibration: Calibration) -> None:
    facts = to_builtins(StoredCalibration(calibration=calibration, time=time.time()))
    write_sidecar(make_folder(run.path, FOLDER) / f"calibration-{secrets.token_hex(6)}.json", facts)


def find_calibration(run: RunDirectory, identity: str) -> Calibration | None:
    """The newest calibration of this witness on this run."""
    stored = _list(run, "calibration-", StoredCalibration)
    own = [one for one in stored if one.calibration.witness == identity]
    return max(own, key=lambda one: one.time).calibration if own else None


def store_batch(run: RunDirectory, batch: AskedBatch) -> None:
    name = f"asked-{batch.attempt}-{batch.last_step:06d}-{secrets.token_hex(4)}.json"
    write_sidecar(make_folder(run.path, FOLDER) / name, to_builtins(batch))


def list_batches(run: RunDirectory, identity: str | None = None) -> list[AskedBatch]:
    """What was asked so far, oldest first; of one witness, or of all."""
    batches = [one for one in _list(run, "asked-", AskedBatch) if identity in (None, one.witness)]
    usable = [one for one in batches if all(len(group.rows) == len(group.answers) for group in one.groups)]
    return sorted(usable, key=lambda one: (one.attempt, one.last_step, one.time))


def _list(run: RunDirectory, prefix: str, kind: type[T]) -> Sequence[T]:
    """Files of this kind. One that is refused is none: it was not written by this program."""
    by_file, _ = list_sidecars(run.path / FOLDER, lambda name: name.startswith(prefix) and name.endswith(".json"), kind)
    return list(by_file.values())
