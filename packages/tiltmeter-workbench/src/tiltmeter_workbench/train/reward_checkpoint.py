"""Callback that saves a reward's learned state with each checkpoint and restores it on resume and rollback."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tiltmeter.gold.guards.composed_reward import ComposedReward

STATE_FILE = "reward.json"


class RewardStateCallback(TrainerCallback):  # type: ignore[misc]
    """Saves and loads the state of one reward. Without it the guards of a resumed run would start untrained."""

    def __init__(self, reward: ComposedReward) -> None:
        self._reward = reward

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 0:
            return
        path = _checkpoint_folder(args, state) / STATE_FILE
        if path.is_file():
            self._reward.load(path)
        else:  # killed between the checkpoint and this file
            warnings.warn(f"tiltmeter: {path} is not there: the reward begins to learn anew", stacklevel=2)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        folder = _checkpoint_folder(args, state)
        if state.is_world_process_zero and folder.is_dir():
            self._reward.save(folder / STATE_FILE)


def _checkpoint_folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
