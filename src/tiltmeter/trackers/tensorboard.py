"""Readings, alarms and the verdict as a TensorBoard log, written with the tensorboard package alone."""

from __future__ import annotations

import time
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.report.markdown import line
from tiltmeter.trackers.sink import PREFIX, Alert, Named, Point, Standing, package


def open_sink(target: str, run: Named, memo: dict[str, str]) -> TensorBoard:
    return TensorBoard(target, run)


class TensorBoard:
    """A log directory beside the trainer's own, so that gold and the loss are looked at in one place.

    TensorBoard has no alerts: an alarm is a text at its step. It reads texts as Markdown, so ours are escaped.
    """

    pushes = False
    remembers = True

    def __init__(self, folder: str, run: Named) -> None:
        package("tensorboard")
        self._proto = package("tensorboard.compat.proto.event_pb2")
        self._summary = package("tensorboard.compat.proto.summary_pb2")
        self._tensor = package("tensorboard.util.tensor_util").make_tensor_proto
        try:
            writer = package("tensorboard.summary.writer.event_file_writer").EventFileWriter
            self._writer: Any = writer(folder, filename_suffix=".tiltmeter")
        except OSError as error:
            raise AttachError(f"{folder} cannot be written ({error.strerror}): name another folder") from error
        self._run = run
        self._attempt: int | None = None
        self._state = ""

    def point(self, point: Point) -> None:
        if self._attempt is not None and point.attempt > self._attempt:
            # The run went back: what it wrote from this step on is abandoned, and TensorBoard drops it on this word.
            start = self._proto.SessionLog(status=self._proto.SessionLog.START)
            self._writer.add_event(self._proto.Event(wall_time=point.time, step=point.step, session_log=start))
        self._attempt = point.attempt if self._attempt is None else max(self._attempt, point.attempt)
        event = self._proto.Event(wall_time=point.time, step=point.step)
        for name, value in point.named().items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.add_event(event)

    def alert(self, alert: Alert) -> None:
        word = "alarms" if alert.level == "ERROR" else "warnings"
        self._text(f"{PREFIX}{word}", f"**{line(alert.title)}**\n\n{line(alert.text)}", alert.step, alert.time)

    def standing(self, standing: Standing) -> None:
        if standing.state != self._state:
            told = f"**{standing.state}** in {line(self._run.name)}: {line(standing.sentence)}"
            self._text(f"{PREFIX}verdict", told, max(standing.step, 0), time.time())
            self._state = standing.state

    def _text(self, tag: str, text: str, step: int, when: float) -> None:
        event = self._proto.Event(wall_time=when, step=step)
        kind = self._summary.SummaryMetadata.PluginData(plugin_name="text")
        about = self._summary.SummaryMetadata(plugin_data=kind, data_class=self._summary.DATA_CLASS_TENSOR)
        tensor = self._tensor([text.encode("utf-8", "backslashreplace")])
        event.summary.value.add(tag=tag, metadata=about, tensor=tensor)
        self._writer.add_event(event)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
