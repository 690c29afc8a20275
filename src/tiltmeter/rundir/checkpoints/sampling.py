"""Which checkpoints were saved, and how they are asked: what the trainer's process leaves for the sampling process.

`checkpoints/ATTEMPT.json` says what is asked and who judges it, `checkpoints/ATTEMPT-STEP.json` that a checkpoint was
saved. The trainer's process writes both. `cache/sampling.lock` is held while the checkpoints of a run are sampled.
"""

from __future__ import annotations

import fcntl
import os
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, to_builtins

from tiltmeter.rundir.run_path import entries, make_folder, open_file
from tiltmeter.rundir.sidecar import Count, read_sidecar, write_sidecar
from tiltmeter.rundir.store import RunDirectory

FILE_BYTES = 64 << 20  # of the prompts, with their other columns
EVALUATION = "checkpoint_gold"  # the evaluation as which gold of checkpoints is declared

FOLDER = "checkpoints"


class CheckpointSampling(Struct, frozen=True, kw_only=True):
    """`checkpoints/ATTEMPT.json`: what is asked of the checkpoints of an attempt, and who judges it."""

    name: str  # of the evaluation that it becomes; another where other prompts are asked than before
    kind: Literal["answers", "pairs"]  # a policy answers prompts; a reward model tells the better of two answers
    output: str  # the trainer's output folder
    base: str  # the folder of the model that training began with; empty: it is in none
    gold: str
    rows: Annotated[tuple[dict[str, Any], ...], Meta(min_length=1)]  # prompt, and the other columns of the dataset
    source: str  # where the rows are from
    plain: bool  # prompts that are texts are asked as they are, not in a chat template: so they are trained on
    answers: Annotated[int, Meta(ge=1)]
    tokens: Annotated[int, Meta(ge=1)]
    seed: Count


def write_sampling(run: RunDirectory, attempt: int, sampling: CheckpointSampling) -> None:
    """Say how this attempt's checkpoints are asked. Raises `OSError`."""
    write_sidecar(make_folder(run.path, FOLDER) / f"{attempt}.json", to_builtins(sampling))


def read_sampling(run: RunDirectory, attempt: int) -> CheckpointSampling:
    """Raises `StoreError`."""
    return read_sidecar(run.path / FOLDER / f"{attempt}.json", CheckpointSampling, FILE_BYTES)


def write_save(run: RunDirectory, attempt: int, step: int) -> None:
    """Say that a checkpoint was saved; once. Raises `OSError`."""
    try:
        write_sidecar(make_folder(run.path, FOLDER) / f"{attempt}-{step:06d}.json", {"step": step})
    except FileExistsError:
        pass  # saved again at the same step, as at the end of training


def count_declared(run: RunDirectory) -> int:
    """How many checkpoints were asked and declared, by their files."""
    return sum(f"-{EVALUATION}" in entry.name for entry in entries(run.path / "evals"))


def open_sampling_lock(run: RunDirectory) -> int:
    """Take the lock of sampling and give its descriptor. Whoever inherits it holds it; raises `OSError` if held."""
    handle = open_file(make_folder(run.path, "cache") / "sampling.lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def is_sampling(run: RunDirectory) -> bool:
    """Whether a process is asking this run's checkpoints. Where files have no locks nobody is waited for."""
    try:
        handle = open_file(run.path / "cache" / "sampling.lock")
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
