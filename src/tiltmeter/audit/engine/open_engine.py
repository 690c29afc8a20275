"""The engine that `--engine` names."""

from __future__ import annotations

from tiltmeter.audit.engine.engine import Engine, cores
from tiltmeter.audit.engine.processes import Processes
from tiltmeter.audit.engine.ray import RayEngine
from tiltmeter.errors import AttachError


def open_engine(name: str, jobs: int | None = None) -> Engine:
    """The engine of that name. Raises `AttachError`, with the fix, where it cannot be had."""
    if name == "processes":
        return Processes(cores() if jobs is None else jobs)
    if name == "ray":
        return RayEngine(jobs)
    raise AttachError(f"--engine is processes or ray, not {name!r}")
