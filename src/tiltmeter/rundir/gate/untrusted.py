"""What stands in a run directory that no version of this package puts there: to be read before it is trusted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from tiltmeter.rundir.atomic_write import DOT_FILE
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.run_path import COPY_MARK, RunPath, open_folder, run_path
from tiltmeter.rundir.store import RunDirectory

MOST_STRANGE = 1000  # that are named
COPY_FILES = (COPY_MARK, ".lock")  # in a copy that this program made


def strange_files(run: RunDirectory, *, is_copy: bool = False) -> list[str]:
    """Links, pipes, devices, files of other users or with other names, programs, and names that are not documented."""
    owners = {0, os.geteuid(), run.path.stat().st_uid}
    problems: list[str] = []
    for name, info in _walk(run_path(run.path, "copy"), ""):
        if not stat.S_ISREG(info.st_mode):
            problems.append(f"{name}: a link, a pipe, a device or a socket")
        elif info.st_uid not in owners:
            problems.append(f"{name}: belongs to user {info.st_uid}")
        elif info.st_nlink > 1:
            problems.append(f"{name}: has another name elsewhere")
        elif info.st_mode & 0o111:
            problems.append(f"{name}: can be executed")
        elif not (_is_documented(name) or (is_copy and name in COPY_FILES)):
            problems.append(f"{name}: not a documented file")
        if len(problems) >= MOST_STRANGE:
            return [*problems, f"and more: the first {MOST_STRANGE} are named"]
    return problems


def _is_documented(name: str) -> bool:
    """Whether a run has a file of this path, or a writer that was killed left it there on the way to its name.

    >>> [_is_documented(name) for name in ("run.json", ".run.json.0123abcd", ".mirror.json", "usercustomize.py")]
    [True, True, False, False]
    """
    folder, slash, last = name.rpartition("/")
    unfinished = DOT_FILE.fullmatch(last)
    if unfinished is None:
        return file_kind(name) is not None
    final = unfinished["name"]
    return final is None or DOT_FILE.fullmatch(final) is not None or file_kind(f"{folder}{slash}{final}") is not None


def _walk(folder: RunPath, name: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file beneath a folder, and everything else that is no folder, by its path in the run."""
    with open_folder(folder) as handle, os.scandir(handle) as listed:
        content = sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in listed)
    for inner, info in content:
        path = f"{name}{inner}"
        if stat.S_ISDIR(info.st_mode) and path.count("/") < 4:
            yield from _walk(folder / inner, f"{path}/")
        else:
            yield path, info
