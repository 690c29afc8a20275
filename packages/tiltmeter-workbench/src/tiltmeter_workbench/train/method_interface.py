"""The interface of a training method: its context, its output, and the function that trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tiltmeter_workbench.train.recipe import Recipe, Stage

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class StageOutput:
    """The output of a stage. `folders` are models: one, or the members of an ensemble."""

    folders: tuple[Path, ...] = ()
    files: tuple[Path, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # for the summary: rows, steps, last metrics, verdict
    notes: tuple[str, ...] = ()  # notes for the user: what to do next, what was left out


@dataclass(frozen=True)
class Context:
    """The inputs of a stage with all paths resolved: no `@NAME` is left.

    `folder` is the stage's own; whatever is left there by an interrupted attempt is what resuming begins with.
    """

    recipe: Recipe
    stage: Stage
    folder: Path
    model: Path
    data: Path | None
    eval: Path | None
    rewards: Sequence[Mapping[str, Any]]  # with every path resolved; a model of several members is a list of folders
    progress: Progress
    replay: Path | None = None
    steps: int | None = None  # for a trial: at most so many steps of training


class TrainMethod(Protocol):
    """One method: it trains, or resumes training, in `context.folder`, and returns its output.

    Its module also has `OPTIONS`, the names of its options with a description, and may have
    `check(recipe, stage)`, which raises `AttachError` for a stage that cannot work, before anything is loaded. All of
    it is light: what is heavy is imported when it trains.
    """

    def __call__(self, context: Context) -> StageOutput: ...
