"""The Trackio sink: readings, alerts and the verdict as a Trackio run, on this machine."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.sink import PREFIX, Alert, MetricPoint, RunIdentity, RunStatus, import_package


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> TrackioSink:
    return TrackioSink(target, run)


class TrackioSink:
    """A run of its own in a project, logged at the trainer's steps, so that it overlays the trainer's own runs.

    Trackio writes from a thread of its own and reports no failures: a process that is killed may lose the readings of
    its last second.
    """

    pushes = True
    remembers = True

    def __init__(self, project: str, run: RunIdentity) -> None:
        trackio = import_package("trackio", "trackio")
        self._levels = trackio.AlertLevel
        try:
            # Trackio prints, but our standard output must stay machine-readable.
            with contextlib.redirect_stdout(sys.stderr):
                self._run: Any = trackio.init(
                    project=project,
                    name=f"tiltmeter-{run.name}-{run.id[:6]}",
                    resume="allow",
                    embed=False,
                    auto_log_gpu=False,
                    auto_log_cpu=False,
                )
        except Exception as error:
            why = log_line(f"{type(error).__name__}: {error}", 300)
            raise AttachError(f"Trackio does not start ({why}): is the project's name one that it takes?") from error
        self._state = ""

    def log_point(self, point: MetricPoint) -> None:
        self._run.log(point.prefixed_values(), step=point.step)

    def send_alert(self, alert: Alert) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.alert(alert.title, alert.text, self._levels[alert.level], step=alert.step)

    def set_status(self, status: RunStatus) -> None:
        if status.state != self._state:
            self._run.log({f"{PREFIX}state": f"{status.state}: {status.sentence}"}, step=max(status.step, 0))
            self._state = status.state

    def flush(self) -> None:
        """Trackio has no flush."""

    def close(self) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()
