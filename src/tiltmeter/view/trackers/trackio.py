"""The Trackio sinks: a run of its own, and the trainer's own run."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import time
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.markdown_text import escape_line
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

OPEN_SECONDS = 30.0  # within which Trackio stores a run that the trainer has opened


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> TrackioSink:
    return TrackioSink(target, run)


def join_run(target: str, run: RunIdentity, memo: dict[str, str]) -> TrainerTrackioSink:
    """`target`: the project, name and Space of the trainer's run, as JSON."""
    return TrainerTrackioSink(**json.loads(target))


class TrackioSink:
    """A run of its own in a project, logged at the trainer's steps, so that it overlays the trainer's own runs.

    Trackio writes from a thread of its own and reports no failures: a process that is killed may lose the readings of
    its last second.
    """

    pushes = True
    remembers = True

    def __init__(self, project: str, run: RunIdentity) -> None:
        self._open(project, f"tiltmeter-{run.name}-{run.id[:6]}", resume="allow")

    def _open(self, project: str, name: str, **options: Any) -> None:
        self._trackio: Any = import_package("trackio", "trackio")
        self._state = ""
        try:
            # Trackio prints, but our standard output must stay machine-readable.
            with contextlib.redirect_stdout(sys.stderr):
                self._run: Any = self._trackio.init(
                    project=project, name=name, embed=False, auto_log_gpu=False, auto_log_cpu=False, **options
                )
        except Exception as error:
            why = log_line(f"{type(error).__name__}: {error}", 300)
            raise AttachError(f"Trackio does not start ({why}): is the project's name one that it takes?") from error

    def log_point(self, point: MetricPoint) -> None:
        self._run.log(point.prefixed_values(), step=point.step)

    def send_alert(self, alert: Alert) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.alert(alert.title, alert.text, self._trackio.AlertLevel[alert.level], step=alert.step)

    def set_status(self, status: RunStatus) -> None:
        if status.state != self._state:
            self._run.log({f"{PREFIX}state": f"{status.state}: {status.sentence}"}, step=max(status.step, 0))
            self._state = status.state

    def flush(self) -> None:
        """Trackio has no flush."""

    def close(self) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()


class TrainerTrackioSink(TrackioSink):
    """The trainer's own run, by its name. What is logged has the trainer's `train/global_step` too: Trackio counts the
    trainer's calls as steps."""

    def __init__(self, project: str, name: str, space_id: str | None = None) -> None:
        deadline = time.monotonic() + OPEN_SECONDS
        while True:
            try:
                self._open(project, name, resume="must", space_id=space_id)
                break
            except AttachError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(1.0)
        self._run.config.clear()  # otherwise it would take the place of the trainer's

    def log_point(self, point: MetricPoint) -> None:
        self._run.log({**point.prefixed_values(), "train/global_step": point.step}, step=point.step)

    def show_evidence(self, evidence: Evidence) -> None:
        shown: dict[str, Any] = {}
        if evidence.rows:
            # Its tables read texts as Markdown.
            rows = [[escape_line(cell) if isinstance(cell, str) else cell for cell in row] for row in evidence.rows]
            frame = import_package("pandas").DataFrame(rows, columns=list(EVIDENCE_COLUMNS))
            shown[f"{PREFIX}completions"] = self._trackio.Table(dataframe=frame)
        if evidence.picture:
            image = import_package("PIL.Image").open(io.BytesIO(evidence.picture))
            shown[f"{PREFIX}proxy_and_gold"] = self._trackio.Image(image, caption=evidence.sentence)
        if shown:
            self._run.log(shown, step=evidence.step)
