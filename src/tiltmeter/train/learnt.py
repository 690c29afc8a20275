"""What a reward has learnt, kept beside each checkpoint and taken up with it, by a resume and by a rollback."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tiltmeter.rewards.parts import Made

STATE = "reward.json"


class Learnt(TrainerCallback):  # type: ignore[misc]
    """Saves and loads the state of one reward. Without it a resumed run would begin to learn its guards anew."""

    def __init__(self, reward: Made) -> None:
        self._reward = reward

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0:
            return
        path = _folder(args, state) / STATE
        if path.is_file():
            self._reward.load(path)
        else:  # killed between the checkpoint and this file
            warnings.warn(f"tiltmeter: {path} is not there: the reward begins to learn anew", stacklevel=2)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = _folder(args, state)
        if state.is_world_process_zero and folder.is_dir():
            self._reward.save(folder / STATE)


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
