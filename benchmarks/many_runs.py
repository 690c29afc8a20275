"""A folder of many small runs, most of them healthy, some blind, a few that need a person: what a fleet is tried on.

    python benchmarks/many_runs.py FOLDER 5000     # makes them there, then: tiltmeter view FOLDER

Three runs are measured; the others share their files by hard links and have folders and a list entry of their own.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from page_runs import batches, measure, write
from tiltmeter.monitor.list_entry_writer import leave_list_entry
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.store import RunDirectory

KINDS = ("healthy", "blind", "hacked")
SHARES = (0.8, 0.18, 0.02)
BETAS = (0.01, 0.04, 0.1)


def make_models(folder: Path) -> Path:
    """A folder with one measured run of each kind."""
    for name in KINDS:
        steps = list(batches("hacked" if name == "hacked" else "honest"))
        if name == "blind":
            steps = [replace(batch, gold=None, gold_chance=None) for batch in steps[:20]]
        run = write(folder / name, [steps])
        measure(run)
        pack(run)
    return folder


def make_many(folder: Path, count: int, models: Path, *, files: bool = True, seed: int = 0) -> list[str]:
    """So many runs below `folder`; returns the names of those that need a person. `files`: with list entries."""
    for name in KINDS:
        leave_list_entry(RunDirectory(models / name))
    kinds = np.random.default_rng(seed).choice(KINDS, count, p=SHARES)
    kinds[-1] = "hacked"  # at least one, and last by name
    for number, kind in enumerate(kinds):
        settings = {"beta": str(BETAS[number % 3]), "learning_rate": f"{1 + number % 5}e-06", "model": "org/small-1.5B"}
        _link_run(models / str(kind), folder / f"sweep-{number // 100:02d}" / f"run-{number:05d}", files, settings)
    return [f"run-{number:05d}" for number in np.flatnonzero(kinds == "hacked")]


def _link_run(model: Path, target: Path, files: bool, settings: dict[str, str]) -> None:
    for path in sorted(model.rglob("*")):
        place = target / path.relative_to(model)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif "cache" not in path.parts and not path.name.startswith("."):
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, place)
    if files:  # last, because it is newer than what it speaks for
        content = json.loads((model / "cache" / "list_entry.json").read_text())
        (target / "cache" / "list_entry.json").write_text(json.dumps({**content, "settings": settings}))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    alarms = make_many(place, int(sys.argv[2]), make_models(place.parent / f"{place.name}-models"))
    print(f"{sys.argv[2]} runs, {len(alarms)} need a person: {alarms[0]} is one")
