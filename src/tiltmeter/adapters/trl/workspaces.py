"""The final workspaces of TRL's environments and rollout functions, kept when a batch is generated.

An environment says where its agent worked by an attribute `workspace`, a rollout function by a further field of that
name: a folder, which is kept here, or what `tiltmeter.keep_workspace` gave. It is kept before `reset` is called again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiltmeter.gold.regrade.keep import WorkspaceKeeper
from tiltmeter.gold.regrade.source import ADDRESS


def workspace_columns(
    trainer: Any, inputs: Sequence[Mapping[str, Any]], keeper: WorkspaceKeeper | None, guard: Callable[..., None]
) -> dict[str, Any]:
    """The columns `artifacts` and `task` of a generated batch; none where no row has a workspace.

    `guard` calls what it is given and catches its errors: a workspace that cannot be kept is a row without one.
    """
    environments = vars(trainer).get("environments") or [None] * len(inputs)
    if keeper is None or len(environments) != len(inputs):
        return {}
    artifacts: list[dict[str, Any] | None] = [None] * len(inputs)
    for at, (row, environment) in enumerate(zip(inputs, environments, strict=True)):
        place = row.get(ADDRESS, getattr(environment, ADDRESS, None))

        def keep(at: int = at, place: Any = place, task: str = _task(row, environment)) -> None:
            if isinstance(place, Mapping):
                artifacts[at] = dict(place)
            elif isinstance(place, (str, os.PathLike)) and keeper.settings is not None:  # or nobody asked for it
                artifacts[at] = keeper.keep(place, task=task)

        guard(keep)
    if not any(artifacts):
        return {}
    tasks = [_task(row, environment) or None for row, environment in zip(inputs, environments, strict=True)]
    return {"artifacts": artifacts} | ({"task": tasks} if any(tasks) else {})


def _task(row: Mapping[str, Any], environment: Any) -> str:
    task = row.get("task", getattr(environment, "task", ""))
    return task if isinstance(task, str) else ""
