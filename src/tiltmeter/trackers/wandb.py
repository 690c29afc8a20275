"""Readings, alerts and the verdict as a run of Weights & Biases, online or offline."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError
from tiltmeter.trackers.sink import PREFIX, Alert, Named, Point, Standing, package


def open_sink(target: str, run: Named, memo: dict[str, str]) -> Wandb:
    return Wandb(target, run)


class Wandb:
    """A run of its own in a project, found again by the id of the run directory.

    It has a step of its own: labels and evaluations come later than the step they speak of, and W&B drops what goes
    back on its common one. `ENTITY/PROJECT` names somebody else's project. WANDB_MODE=offline is obeyed.
    """

    pushes = True
    remembers = True

    def __init__(self, project: str, run: Named) -> None:
        wandb = package("wandb")
        entity, _, name = project.rpartition("/")
        # What it would look at of its own accord (this machine, its repository, the command line with an address of a
        # webhook in it, what we print) is nobody's business.
        settings = wandb.Settings(
            console="off", disable_code=True, disable_git=True, silent=True, x_disable_meta=True, x_disable_stats=True
        )
        try:
            self._run: Any = wandb.init(
                project=name,
                entity=entity or None,
                id=f"tiltmeter-{run.id}",
                name=f"tiltmeter {run.name}",
                job_type="tiltmeter",
                resume="allow",
                settings=settings,
            )
        except Exception as error:
            why = log_line(f"{type(error).__name__}: {error}", 300)
            raise AttachError(f"W&B does not start ({why}): wandb login, or WANDB_MODE=offline") from error
        self._run.define_metric(f"{PREFIX}step", hidden=True)
        self._run.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

    def point(self, point: Point) -> None:
        self._run.log({**point.named(), f"{PREFIX}step": point.step, f"{PREFIX}attempt": point.attempt})

    def alert(self, alert: Alert) -> None:
        # The minute between two of one title is kept by whoever tells us; W&B's own would drop what it holds back.
        self._run.alert(alert.title, alert.text, alert.level, wait_duration=timedelta(milliseconds=1))

    def standing(self, standing: Standing) -> None:
        self._run.summary.update(
            {
                f"{PREFIX}state": standing.state,
                f"{PREFIX}sentence": standing.sentence,
                f"{PREFIX}alarms_open": standing.alarms,
                f"{PREFIX}warnings_open": standing.warnings,
            }
        )

    def flush(self) -> None:
        """It is handed to a process of W&B's, which outlives ours; there is no word for "kept"."""

    def close(self) -> None:
        self._run.finish()
