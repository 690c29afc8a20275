"""What stands in a run directory that no version of this package puts there: to be read before it is trusted."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from tiltmeter.rundir.run_path import RunPath, open_folder
from tiltmeter.rundir.store import RunDirectory

MOST_STRANGE = 1000  # that are named

_DOCUMENTED = re.compile(
    r"run\.json|traps\.json|reference\.parquet|monitor\.log|guide\.(md|txt)"
    r"|rollouts/\d+/(attempt|\d+\.(rank|counters)|[a-z0-9-]+\.trouble|purged-\d+-[0-9a-f]+)\.json"
    r"|rollouts/\d+/(\d+-\d+(\.conflict-[0-9a-f]+)?|packed/\d+-\d+|unplaced/[0-9a-f]{12}-\d+)\.parquet"
    r"|rollouts/\d+/unplaced/(capture|driver|inferred|\d+\.step|[0-9a-f]{12}\.(worker|counters))\.json"
    r"|evals/\d+-\d+-\w+\.json|pinned/\d+-\d+(-checkpoint)?\.json|audits/(\d+-[0-9a-f]+|attempt-\d+)\.json"
    r"|gold/(requests/\d+-\d+(\.onset)?\.jsonl|labels/[^/]+/[\w.-]+\.json|people/[^/]+/[^/]+\.json"
    r"|(picked|spot)/[\w.-]+\.json|share-[\w.-]+\.json|functions/[0-9a-f]{64}/[\w.-]+\.py)"
    r"|pieces/\d+\.parquet|witness/(calibration|asked-\d+-\d+)-[0-9a-f]+\.json"
    r"|notes/(run|steps|rollouts)/\d{13}-[0-9a-f]{8}\.json"
    r"|control/(knobs-\d+|(requests|receipts|checkpoints)/[\w.-]+)\.json|events/\d+\.jsonl"
    r"|checkpoints/\d+(-\d+)?\.json|cache/checkpoints/[\w./-]+\.jsonl|cache/sampling\.lock"
    r"|cache/(trackers/[\w.-]+\.(json|lock)|opener-\d+\.lock|capture\.lock|monitor\.(lock|lease)|(measuring|state|upload)\.json|(run_)?snapshot|readings/\d+)"
)


def strange_files(run: RunDirectory) -> list[str]:
    """Links, pipes, devices, files of other users or with other names, programs, and names that are not documented."""
    owners = {0, os.geteuid(), run.path.stat().st_uid}
    problems: list[str] = []
    for name, info in _walk(run.path, ""):
        if not stat.S_ISREG(info.st_mode):
            problems.append(f"{name}: a link, a pipe, a device or a socket")
        elif info.st_uid not in owners:
            problems.append(f"{name}: belongs to user {info.st_uid}")
        elif info.st_nlink > 1:
            problems.append(f"{name}: has another name elsewhere")
        elif info.st_mode & 0o111:
            problems.append(f"{name}: can be executed")
        elif _DOCUMENTED.fullmatch(name) is None:
            problems.append(f"{name}: not a documented file")
        if len(problems) >= MOST_STRANGE:
            return [*problems, f"and more: the first {MOST_STRANGE} are named"]
    return problems


def _walk(folder: RunPath, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file beneath a folder, and everything else that is no folder, by its path in the run."""
    with open_folder(folder, change=True) as handle, os.scandir(handle) as listed:
        content = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in listed)
    for inner, info in content:
        path = f"{name}{inner}"
        if stat.S_ISDIR(info.st_mode) and path.count("/") < 4:
            yield from _walk(folder / inner, f"{path}/")
        elif not (inner.startswith(".") and stat.S_ISREG(info.st_mode)):  # dot files of a writer that was killed
            yield path, info
