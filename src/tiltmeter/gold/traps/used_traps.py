"""How many traps of a file a run has used, so that a run that is resumed goes on behind them: `traps.json`."""

from __future__ import annotations

import json

from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.sidecar import Count, find_sidecar
from tiltmeter.rundir.store import RunDirectory

NAME = "traps.json"


def read_used_traps(run: RunDirectory, traps: str) -> int:
    """How many of the traps with this digest were used; 0 for others, or where none were."""
    used = find_sidecar(run.path / NAME, dict[str, Count])
    return 0 if used is None else used.get(traps, 0)


def write_used_traps(run: RunDirectory, traps: str, used: int) -> None:
    others = find_sidecar(run.path / NAME, dict[str, Count]) or {}
    replace_file(run.path / NAME, json.dumps({**others, traps: used}).encode("ascii"))
