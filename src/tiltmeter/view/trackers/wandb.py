"""The Weights & Biases sinks: a W&B run of its own, and the trainer's own run; both online or offline."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.sink import (
    EVIDENCE_COLUMNS,
    PREFIX,
    Alert,
    Evidence,
    MetricPoint,
    RunIdentity,
    RunStatus,
    import_package,
)


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> WandbSink:
    return WandbSink(target, run)


def join_run(target: str, run: RunIdentity, memo: dict[str, str]) -> TrainerWandbSink:
    return TrainerWandbSink(target)


class WandbSink:
    """A run of its own in a project, found again by the id of the run directory.

    It has its own step metric: labels and evaluations arrive after their step, and W&B drops values whose global step
    goes back. `ENTITY/PROJECT` names somebody else's project. WANDB_MODE=offline is obeyed.
    """

    pushes = True
    remembers = True

    def __init__(self, project: str, run: RunIdentity) -> None:
        wandb = import_package("wandb")
        entity, _, name = project.rpartition("/")
        # W&B must not collect the machine, its repository, the command line (which may contain the address of a
        # webhook) or our output.
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
        self._define_axis()

    def _define_axis(self) -> None:
        self._run.define_metric(f"{PREFIX}step", hidden=True)
        self._run.define_metric(f"{PREFIX}*", step_metric=f"{PREFIX}step")

    def log_point(self, point: MetricPoint) -> None:
        self._run.log({**point.prefixed_values(), f"{PREFIX}step": point.step, f"{PREFIX}attempt": point.attempt})

    def send_alert(self, alert: Alert) -> None:
        # Our own limit keeps a minute between two alerts of one title; W&B's limit would drop them.
        self._run.alert(alert.title, alert.text, alert.level, wait_duration=timedelta(milliseconds=1))

    def set_status(self, status: RunStatus) -> None:
        numbers = {f"{PREFIX}agreement": status.agreement, f"{PREFIX}level": status.level}
        self._run.summary.update(
            {
                **{name: value for name, value in numbers.items() if value is not None},
                f"{PREFIX}state": status.state,
                f"{PREFIX}sentence": status.sentence,
                f"{PREFIX}alarms_open": status.alarms,
                f"{PREFIX}warnings_open": status.warnings,
            }
        )

    def flush(self) -> None:
        """Nothing to do: a process of W&B has the data and outlives ours; it reports no completion."""

    def close(self) -> None:
        self._run.finish()


class TrainerWandbSink(WandbSink):
    """The trainer's own run, by its id. W&B keeps a run in a process beside the trainer, which WANDB_SERVICE names and
    which other processes may write to. A run is never finished from here."""

    def __init__(self, run_id: str) -> None:
        self._wandb = import_package("wandb")
        try:
            self._run = self._wandb.attach(run_id=run_id)
        except Exception as error:
            why = log_line(f"{type(error).__name__}: {error}", 300)
            raise AttachError(f"W&B's process beside the trainer lets nobody in ({why})") from error
        self._define_axis()

    def show_evidence(self, evidence: Evidence) -> None:
        table = self._wandb.Table(columns=list(EVIDENCE_COLUMNS), data=[list(row) for row in evidence.rows])
        shown: dict[str, Any] = {f"{PREFIX}completions": table} if evidence.rows else {}
        if evidence.picture:
            image = import_package("PIL.Image").open(io.BytesIO(evidence.picture))
            shown[f"{PREFIX}proxy_and_gold"] = self._wandb.Image(image, caption=evidence.sentence)
        if shown:
            self._run.log({**shown, f"{PREFIX}step": evidence.step})

    def flush(self) -> None:
        """Ask W&B's process something: it answers after it has taken what came before."""
        if self._run.settings.mode != "shared":  # which has no steps to ask for
            _ = self._run.step

    def close(self) -> None:
        self.flush()
