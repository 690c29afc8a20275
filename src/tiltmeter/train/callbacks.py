"""What a recipe adds to a trainer: progress told, and an end after a few steps where a recipe is only tried."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tiltmeter.train.method import Context
from tiltmeter.train.settings import STATE, numbered


class Told(TrainerCallback):  # type: ignore[misc]
    """Steps done, of how many, to whoever runs the recipe."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._tell(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._tell(state)

    def _tell(self, state: Any) -> None:
        total = state.max_steps if self._context.steps is None else min(state.max_steps, self._context.steps)
        self._context.progress(f"{self._context.stage.name} ({self._context.stage.method})", state.global_step, total)


class Limit(TrainerCallback):  # type: ignore[misc]
    """Ends training after so many steps. Schedules stay those of the whole run: its first steps are what is tried."""

    def __init__(self, steps: int) -> None:
        self._steps = steps

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if state.global_step >= self._steps:
            control.should_training_stop = True
        return control


class WentBack(TrainerCallback):  # type: ignore[misc]
    """After a rollback, marks the checkpoints beyond it: a resume would take the newest, and undo the rollback."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0 or not state.is_world_process_zero:
            return
        for step, folder in numbered(Path(args.output_dir)):
            if step > state.global_step and (folder / STATE).is_file():
                (folder / STATE).replace(folder / f"left-{STATE}")
