"""Links the rollouts of an existing run into a new directory, so that an audit does not change the run."""

from __future__ import annotations

import os
from pathlib import Path

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.run_path import (
    IDENTITY_BYTES,
    NEVER_LINKED,
    exists,
    find_linked,
    make_folder,
    read_file,
    run_path,
)
from tiltmeter.rundir.store import RunDirectory


def link_run(run: RunDirectory, home: Path, *, gold: bool) -> RunDirectory:
    """A directory with links to everything in `run` but its journal. `gold`: its labels, too."""
    if home.resolve() == run.path.resolve():
        raise StoreError(f"{home} is the run itself, which an audit does not change: name another place with --keep")
    home.mkdir(parents=True, exist_ok=True)
    if not gold and (home / "gold").is_symlink():
        (home / "gold").unlink()  # from an earlier audit with the run's labels; this one uses another gold source
    skipped = NEVER_LINKED if gold else (*NEVER_LINKED, "gold")
    source = run_path(run.path.resolve())
    for name in sorted(os.listdir(source)):  # noqa: PTH208 - names alone
        link = home / name
        if name in skipped or name.startswith("."):
            continue
        target = find_linked(source / name) if (source / name).is_symlink() else Path(source / name)
        if not link.exists() and not link.is_symlink():
            link.symlink_to(target, target.is_dir())
        elif not link.is_symlink() or link.readlink() != target:
            raise StoreError(f"{home} holds another audit, or labels of its own: name another place with --keep")
    linked = RunDirectory(home)
    if not exists(linked.path / "run.json"):
        publish(linked.path / "run.json", [read_file(run.path / "run.json", IDENTITY_BYTES)])
    make_folder(linked.path, "events")
    if linked.identity() != run.identity():
        raise StoreError(f"{home} holds the audit of another run: name another place with --keep")
    return linked
