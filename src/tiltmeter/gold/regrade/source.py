"""Final workspaces, re-graded, as a source of gold."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold import INDEPENDENT, CompletionToLabel, GoldAnswer
from tiltmeter.gold.function import TIMEOUT_SECONDS
from tiltmeter.gold.regrade.grading import TaskGrader, WorkspaceGrade, probe_tier
from tiltmeter.gold.regrade.settings import SETTINGS_BYTES, SUFFIX, Regrade, read_settings
from tiltmeter.gold.regrade.task import TaskError, read_task
from tiltmeter.gold.regrade.workspace import load_workspace
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.run_path import make_folder, read_file

WORKERS = 2  # workspaces that are graded side by side
MOST_TASKS = 64  # whose trees are in memory
MOST_REMEMBERED = 20_000  # grades of workspaces
ADDRESS = "workspace"  # in the column `artifacts`


@dataclass
class RegradeSource:
    """Grades the final workspace of each episode. `directory`: the run that has kept them.

    A workspace that was graded before is not graded again: the same content under the same task has the same gold.
    """

    judged: ClassVar[bool] = False
    settings: Regrade
    directory: Path | None = None
    timeout: float = TIMEOUT_SECONDS
    name: str = field(default="re-graded workspaces", init=False)
    identity: str = field(default="", init=False)
    _graders: OrderedDict[str, TaskGrader] = field(default_factory=OrderedDict, init=False, repr=False)
    _known: dict[tuple[str, str], WorkspaceGrade] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        mark = hashlib.sha256(self.settings.to_text().encode()).hexdigest()[:8]
        self.identity = f"{INDEPENDENT}tests, run again on final workspaces in a sandbox, settings {mark}"

    def start(self) -> None:
        """Try what can be tried before the run begins. Raises `AttachError` with what to do."""
        probe_tier()
        if "{task}" not in self.settings.base:
            try:
                grader = TaskGrader(read_task(self.settings))
                _ = grader.blind
            except TaskError as error:
                raise AttachError(f"gold=Regrade(...): {error}") from error

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        until = time.monotonic() + self.timeout
        keys = [_key(request) for request in requests]
        waiting = [key for key in dict.fromkeys(keys) if isinstance(key, tuple) and key not in self._known]
        if len(self._known) + len(waiting) > MOST_REMEMBERED:
            self._known.clear()
        late = WorkspaceGrade(None, f"no answer within {self.timeout:g} s")

        def grade(key: tuple[str, str]) -> WorkspaceGrade:
            return late if time.monotonic() > until else self.grade(*key)

        for task in dict.fromkeys(key[0] for key in waiting):
            self._grader(task)  # made here: threads share it
        with ThreadPoolExecutor(WORKERS) as threads:
            grades = dict(zip(waiting, threads.map(grade, waiting), strict=True))
        self._known |= {key: one for key, one in grades.items() if one.value is not None}
        grades = {**self._known, **grades}
        return [_answer(grades[key]) if isinstance(key, tuple) else key for key in keys]

    def grade(self, task: str, address: str) -> WorkspaceGrade:
        """What the workspace of this address is worth as a solution of the task."""
        grader = self._grader(task)
        if isinstance(grader, str):
            return WorkspaceGrade(None, grader)
        if self.directory is None:
            return WorkspaceGrade(None, "no run directory has the workspaces")
        try:
            return grader.grade(load_workspace(self.directory, address))
        except (StoreError, OSError) as error:
            return WorkspaceGrade(None, str(error))

    def _grader(self, task: str) -> TaskGrader | str:
        """The grader of a task, or why there is none."""
        if "{task}" not in self.settings.base + self.settings.held_out and not isinstance(self.settings.cases, Mapping):
            task = ""
        if task not in self._graders:
            try:
                grader = TaskGrader(read_task(self.settings, task))
                _ = grader.blind
            except (TaskError, AttachError) as error:
                return str(error)
            self._graders[task] = grader
            if len(self._graders) > MOST_TASKS:
                self._graders.popitem(last=False)
        return self._graders[task]


def _answer(grade: WorkspaceGrade) -> GoldAnswer:
    return LookupError(grade.reason) if grade.value is None else grade.value


def _key(request: CompletionToLabel) -> tuple[str, str] | LookupError:
    """The task and the address of the workspace of a row."""
    artifacts: Any = request.columns.get("artifacts")
    if isinstance(artifacts, str):
        try:
            artifacts = json.loads(artifacts)
        except (ValueError, RecursionError):
            artifacts = None
    address = artifacts.get(ADDRESS) if isinstance(artifacts, Mapping) else None
    if not isinstance(address, str):
        return LookupError(
            "no workspace was workspace of this episode: tiltmeter.keep_workspace gives what goes into its `artifacts`"
        )
    task = request.columns.get("task")
    return task if isinstance(task, str) else "", address


def load_regrade(name: str) -> RegradeSource:
    """The source that a file of settings describes. Raises `AttachError`."""
    path = Path(name)
    try:
        settings = read_settings(read_file(path, SETTINGS_BYTES).decode())
    except (OSError, ValueError) as error:
        raise AttachError(f"{name} cannot be read: {error}") from error
    return RegradeSource(settings)


def write_settings(folder: Path, settings: Regrade) -> str:
    """Write settings beneath a run directory, and give the name by which the monitor loads them."""
    text = settings.to_text().encode()
    path = make_folder(folder, "gold", "regrade") / f"{hashlib.sha256(text).hexdigest()}{SUFFIX}"
    try:
        publish(path, [text])
    except FileExistsError:
        pass  # an earlier attempt's, of the same settings
    except OSError as error:
        raise AttachError(f"cannot write {path}: {error}; free space or name another place") from error
    return str(path)


def with_directory(source: Any, directory: Path) -> Any:
    """The source, which for workspaces is told where they are kept."""
    return replace(source, directory=directory) if isinstance(source, RegradeSource) else source
