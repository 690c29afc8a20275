"""A run directory that is looked at and not touched: rollouts are the run's own, what is concluded lies elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

from tiltmeter.errors import StoreError
from tiltmeter.store import RunDirectory

#: What an audit makes for itself. `control`: it asks a trainer for nothing.
OWN = ("run.json", "events", "cache", "control", "monitor.log")


def borrow(run: RunDirectory, home: Path, *, gold: bool) -> RunDirectory:
    """A directory with links to everything in `run` but its journal. `gold`: the labels that were bought, too."""
    if home.resolve() == run.path.resolve():
        raise StoreError(f"{home} is the run itself, which an audit does not change: name another place with --keep")
    home.mkdir(parents=True, exist_ok=True)
    if not gold and (home / "gold").is_symlink():
        (home / "gold").unlink()  # of an audit by the labels of the run: now somebody else is asked
    own = OWN if gold else (*OWN, "gold")
    for item in run.path.iterdir():
        link = home / item.name
        if item.name in own or item.name.startswith("."):
            continue
        if not link.exists() and not link.is_symlink():
            link.symlink_to(item.resolve(), item.is_dir())
        elif not link.is_symlink() or link.resolve() != item.resolve():
            raise StoreError(f"{home} holds another audit, or labels of its own: name another place with --keep")
    if not (home / "run.json").exists():
        shutil.copyfile(run.path / "run.json", home / "run.json")
    (home / "events").mkdir(exist_ok=True)
    borrowed = RunDirectory(home)
    if borrowed.identity() != run.identity():
        raise StoreError(f"{home} holds the audit of another run: name another place with --keep")
    return borrowed
