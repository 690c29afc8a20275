"""Links the rollouts of an existing run into a new directory, so that an audit does not change the run."""

from __future__ import annotations

import shutil
from pathlib import Path

from tiltmeter.errors import StoreError
from tiltmeter.rundir.store import RunDirectory

#: Not linked: an audit has its own. `control`: an audit makes no requests to a trainer.
NOT_LINKED = ("run.json", "events", "cache", "control", "monitor.log")


def link_run(run: RunDirectory, home: Path, *, gold: bool) -> RunDirectory:
    """A directory with links to everything in `run` but its journal. `gold`: its labels, too."""
    if home.resolve() == run.path.resolve():
        raise StoreError(f"{home} is the run itself, which an audit does not change: name another place with --keep")
    home.mkdir(parents=True, exist_ok=True)
    if not gold and (home / "gold").is_symlink():
        (home / "gold").unlink()  # from an earlier audit with the run's labels; this one uses another gold source
    skipped = NOT_LINKED if gold else (*NOT_LINKED, "gold")
    for item in run.path.iterdir():
        link = home / item.name
        if item.name in skipped or item.name.startswith("."):
            continue
        if not link.exists() and not link.is_symlink():
            link.symlink_to(item.resolve(), item.is_dir())
        elif not link.is_symlink() or link.resolve() != item.resolve():
            raise StoreError(f"{home} holds another audit, or labels of its own: name another place with --keep")
    if not (home / "run.json").exists():
        shutil.copyfile(run.path / "run.json", home / "run.json")
    (home / "events").mkdir(exist_ok=True)
    linked = RunDirectory(home)
    if linked.identity() != run.identity():
        raise StoreError(f"{home} holds the audit of another run: name another place with --keep")
    return linked
