"""Trainer callbacks of a recipe: progress, a step limit for trials, and checkpoints after a rollback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tiltmeter_workbench.train.checkpoint_folders import STATE_FILE, checkpoints
from tiltmeter_workbench.train.method_interface import Context


class ProgressCallback(TrainerCallback):  # type: ignore[misc]
    """Reports the steps done, and of how many, to the recipe's progress function."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._report(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._report(state)

    def _report(self, state: Any) -> None:
        total = state.max_steps if self._context.steps is None else min(state.max_steps, self._context.steps)
        self._context.progress(f"{self._context.stage.name} ({self._context.stage.method})", state.global_step, total)


class StepLimitCallback(TrainerCallback):  # type: ignore[misc]
    """Ends training after so many steps. Schedules stay those of the whole run, so a trial is its first steps."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if state.global_step >= self._steps:
            control.should_training_stop = True
        return control


class RollbackCallback(TrainerCallback):  # type: ignore[misc]
    """After a rollback, invalidates later checkpoints: a resume would take the newest and undo the rollback."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0 or not state.is_world_process_zero:
            return
        for step, folder in checkpoints(Path(args.output_dir)):
            if step > state.global_step and (folder / STATE_FILE).is_file():
                (folder / STATE_FILE).replace(folder / f"left-{STATE_FILE}")
