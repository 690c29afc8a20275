"""The console sink: one line for each alarm and finding, three at the end, printed by the trainer's process.

The lines go through a pipe: a trainer's console may be a notebook, or have a progress bar on it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from tiltmeter.view.screens.wording import truncate
from tiltmeter.view.trackers.sink import Alert, MetricPoint, RunIdentity, RunStatus

LINE = 400  # characters


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> ConsoleSink:
    return ConsoleSink(target, memo)


def send_message(message: dict[str, Any]) -> None:
    """Hand a message to the trainer's process, which may be gone."""
    try:
        os.write(1, json.dumps(message).encode("ascii") + b"\n")
    except OSError:
        sys.stderr.write(f"nobody reads: {message}\n")


class ConsoleSink:
    """`where`: what the last line says about where to look."""

    pushes = True  # at most one line a minute for each title
    remembers = True

    def __init__(self, where: str, memo: dict[str, str]) -> None:
        self._where, self._memo = where, memo
        self._status: RunStatus | None = None

    def log_point(self, point: MetricPoint) -> None:
        """Nothing to do: readings are not printed."""

    def send_alert(self, alert: Alert) -> None:
        if alert.level == "ERROR":
            self._print(alert.text)

    def set_status(self, status: RunStatus) -> None:
        for line in status.findings:
            name = f"finding {line.partition(' (')[0]}"
            if name not in self._memo:
                self._memo[name] = str(status.step)
                self._print(f"Finding at step {status.step}: {line}")
        self._status = status

    def flush(self) -> None:
        """Nothing to do: a line is written at once."""

    def close(self) -> None:
        if (status := self._status) is None:
            self._print(f"Nothing was measured. {self._where}")
            return
        self._print(f"{status.state} after step {status.step}: {status.sentence}")
        self._print(status.advice or (status.findings[0] if status.findings else "No advice: nothing to judge by."))
        self._print(self._where)

    def _print(self, text: str) -> None:
        send_message({"line": truncate(text, LINE)})
