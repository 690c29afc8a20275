"""Paths of run directories, and the launch id that all processes of one start share."""

from __future__ import annotations

import multiprocessing
import os
import secrets
from pathlib import Path

from tiltmeter.errors import AttachError
from tiltmeter.rundir.remote.address import parse_address

LAUNCH = "TILTMETER_RUN"
MOVED_TO = "TILTMETER_DIR"


def run_path(directory: str | os.PathLike[str]) -> Path:
    """The absolute path of a run directory: as given, unless `TILTMETER_DIR` moves all runs.

    Absolute at once: a trainer may change its directory later, and what is written then must still arrive.
    """
    path = Path(directory)
    if home := os.environ.get(MOVED_TO):
        # Inside a trainer's output directory every run is called `tiltmeter`: use that directory's name instead.
        path = Path(home) / (path.resolve().parent.name if path.name == "tiltmeter" else path.name)
    elif parse_address(directory) is not None:
        raise AttachError(
            f"{directory}: captured runs need a local or shared directory; tiltmeter.attach and open_run "
            "take addresses on object storage"
        )
    return path.absolute()


def int_from_environment(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    if not value.isdecimal():
        raise AttachError(
            f"the environment variable {name} is {value!r}, not a whole number: pass launch=Launch(rank, ranks)"
        )
    return int(value)


def launch_id(ranks: int) -> str:
    """One id for all processes of this start, so that ranks find rank 0's attempt without communicating."""
    for name, restart in (
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"),
        ("SLURM_JOB_ID", "SLURM_RESTART_COUNT"),
    ):
        if value := os.environ.get(name):
            return f"{value}.{os.environ.get(restart, '0')}"
    if ranks > 1 and (port := os.environ.get("MASTER_PORT")):
        return f"{os.environ.get('MASTER_ADDR', '')}:{port}"  # the rendezvous address
    if ranks > 1:
        raise AttachError(
            "several ranks need one launch id: pass launch=tiltmeter.Launch(rank, ranks, name), the same name on every "
            "rank, new for every start"
        )
    return secrets.token_hex(8)


def current_launch_id() -> str:
    """The launch id of a captured run; child processes inherit it. Raises in a worker that inherited none."""
    if launch := os.environ.get(LAUNCH):
        return launch
    if is_worker():
        raise AttachError(
            "this is a worker process and nobody said which start it belongs to: call "
            "tiltmeter.capture.open(directory) in the driver before workers are started (before ray.init), or set "
            f"{LAUNCH} to a new word for every start"
        )
    os.environ[LAUNCH] = launch_id(
        int_from_environment("WORLD_SIZE", 1)
    )  # for the processes that are started from here
    return os.environ[LAUNCH]


def is_worker() -> bool:
    return multiprocessing.parent_process() is not None or "RAY_RAYLET_PID" in os.environ
