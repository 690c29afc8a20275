"""Readings, alerts and the verdict as a run of Trackio, on this machine."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError
from tiltmeter.trackers.sink import PREFIX, Alert, Named, Point, Standing, package


def open_sink(target: str, run: Named, memo: dict[str, str]) -> Trackio:
    return Trackio(target, run)


class Trackio:
    """A run of its own in a project. It is kept at the step it speaks of, so that it lies over the trainer's own runs.

    Trackio writes from a thread of its own and says nothing of what failed: a process that is killed may lose the
    readings of its last second.
    """

    pushes = True
    remembers = True

    def __init__(self, project: str, run: Named) -> None:
        trackio = package("trackio", "trackio")
        self._levels = trackio.AlertLevel
        try:
            # It prints; what stands on our standard output is for others to read.
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

    def point(self, point: Point) -> None:
        self._run.log(point.named(), step=point.step)

    def alert(self, alert: Alert) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.alert(alert.title, alert.text, self._levels[alert.level], step=alert.step)

    def standing(self, standing: Standing) -> None:
        if standing.state != self._state:
            self._run.log({f"{PREFIX}state": f"{standing.state}: {standing.sentence}"}, step=max(standing.step, 0))
            self._state = standing.state

    def flush(self) -> None:
        """It has no word for that."""

    def close(self) -> None:
        with contextlib.redirect_stdout(sys.stderr):
            self._run.finish()
