"""Where the trainer's own runs are in the trackers that `report_to` names: read once, after they are open."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: By the name of `report_to`, as people call them.
TITLES = {"wandb": "W&B", "trackio": "Trackio", "tensorboard": "TensorBoard", "mlflow": "MLflow"}
#: By which W&B's package finds the process that keeps the trainer's run.
WANDB_SERVICE = "WANDB_SERVICE"


def named_trackers(trainer: Any) -> list[str]:
    """Those of `report_to` that readings can go into."""
    named = getattr(trainer.args, "report_to", None) or ()
    return [name for name in TITLES if name in ([named] if isinstance(named, str) else named)]


def find_own_runs(trainer: Any, names: Sequence[str]) -> dict[str, str]:
    """By tracker, what another process needs to write into the run that the trainer has opened there.

    Nothing is imported: a tracker that the trainer uses is loaded already.
    """
    finders = {"wandb": _wandb_run, "trackio": _trackio_run, "tensorboard": _tensorboard_folder, "mlflow": _mlflow_run}
    runs = {name: finders[name](trainer) for name in names}
    return {name: target for name, target in runs.items() if target}


def tracker_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in (WANDB_SERVICE,) if name in os.environ}


def _wandb_run(trainer: Any) -> str:
    run = getattr(sys.modules.get("wandb"), "run", None)
    return "" if run is None or getattr(run, "disabled", False) or WANDB_SERVICE not in os.environ else str(run.id)


def _trackio_run(trainer: Any) -> str:
    context: Any = getattr(sys.modules.get("trackio"), "context_vars", None)
    run = None if context is None else context.current_run.get()
    if run is None:
        return ""
    return json.dumps({"project": run.project, "name": run.name, "space_id": context.current_space_id.get()})


def _tensorboard_folder(trainer: Any) -> str:
    for callback in trainer.callback_handler.callbacks:
        writer = getattr(callback, "tb_writer", None)
        if (folder := getattr(writer, "log_dir", None) or getattr(writer, "logdir", None)) is not None:
            return str(Path(folder).resolve())
    return ""


def _mlflow_run(trainer: Any) -> str:
    mlflow: Any = sys.modules.get("mlflow")
    run = None if mlflow is None else mlflow.active_run()
    return "" if run is None else json.dumps({"uri": mlflow.get_tracking_uri(), "run": run.info.run_id})
