"""Keeps the final workspaces of a run's episodes, from the process that has them."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from tiltmeter.errors import AttachError
from tiltmeter.gold.regrade.settings import Regrade
from tiltmeter.gold.regrade.source import ADDRESS
from tiltmeter.gold.regrade.task import TaskError, read_task, read_tree
from tiltmeter.gold.regrade.workspace import KeptWorkspace, diff_workspace, store_workspace

MOST_TREES = 64  # of tasks, in memory


class WorkspaceKeeper:
    """Keeps workspaces in one run directory, as what differs from the tree of their task."""

    def __init__(self, directory: Path, settings: Regrade | None = None) -> None:
        self.directory, self.settings = directory, settings
        self._trees: OrderedDict[str, Mapping[str, bytes]] = OrderedDict()

    def keep(
        self, path: str | os.PathLike[str], *, task: str = "", base: str | os.PathLike[str] | None = None
    ) -> dict[str, str]:
        """Keep a folder as it is now; returns what goes into the episode's `artifacts`. Raises `OSError`."""
        return {ADDRESS: store_workspace(self.directory, self.diff(path, task=task, base=base))}

    def diff(
        self, path: str | os.PathLike[str], *, task: str = "", base: str | os.PathLike[str] | None = None
    ) -> KeptWorkspace:
        tree = self._tree(task, base)
        if self.settings is None:
            return diff_workspace(path, tree)
        return diff_workspace(path, tree, self.settings.allow, self.settings.protected)

    def _tree(self, task: str, base: str | os.PathLike[str] | None) -> Mapping[str, bytes] | None:
        key = f"{task}\0{'' if base is None else os.fspath(base)}"
        if key not in self._trees:
            try:
                if base is not None:
                    tree: Mapping[str, bytes] = read_tree(Path(base))
                elif self.settings is not None:
                    tree = read_task(self.settings, task).tree
                else:
                    return None
            except (TaskError, AttachError) as error:
                raise OSError(str(error)) from error
            self._trees[key] = tree
            if len(self._trees) > MOST_TREES:
                self._trees.popitem(last=False)
        return self._trees[key]


_open: list[WorkspaceKeeper] = []  # of the runs that are open in this process, the newest last


def use_keeper(keeper: WorkspaceKeeper) -> None:
    """Have `keep_workspace` use this one, until its run is closed."""
    _open.append(keeper)


def drop_keeper(keeper: WorkspaceKeeper) -> None:
    if keeper in _open:
        _open.remove(keeper)


def keep_workspace(
    path: str | os.PathLike[str], *, task: str = "", base: str | os.PathLike[str] | None = None,
    directory: str | os.PathLike[str] | None = None,
) -> dict[str, str]:  # fmt: skip
    """Keep the final workspace of an episode for `gold=Regrade(...)`; returns what goes into its `artifacts`.

    Call it when the episode is over and before its folder is used again. Nothing in the folder is followed or run, and
    it is bounded: 4 MB of changed files, a megabyte each.

    Args:
        path: The folder that the agent worked in.
        task: The name of its task, where `Regrade(base="tasks/{task}")` has several.
        base: The tree that the agent began with. Default: that of the run's `Regrade`.
        directory: The run directory. Default: of the run that was opened last in this process.

    Example:

        artifacts = tiltmeter.keep_workspace("/work/episode-7", task="roman")
        run.observe(step=step, group=group, reward=reward, completion=text, artifacts=[artifacts])
    """
    if directory is not None:
        keeper = WorkspaceKeeper(Path(directory))
    elif _open:
        keeper = _open[-1]
    else:
        raise AttachError("no run is open in this process: name its directory, as keep_workspace(path, directory=...)")
    return keeper.keep(path, task=task, base=base)
