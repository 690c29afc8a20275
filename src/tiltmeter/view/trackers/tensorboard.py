"""The TensorBoard sink: readings, alarms and the verdict as an event file; needs only the tensorboard package."""

from __future__ import annotations

import time
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.view.check_report.markdown import escape_line
from tiltmeter.view.trackers.sink import PREFIX, Alert, MetricPoint, RunIdentity, RunStatus, import_package


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> TensorBoardSink:
    return TensorBoardSink(target, run)


class TensorBoardSink:
    """A log directory beside the trainer's own, so that gold and the loss are shown together.

    TensorBoard has no alerts: an alarm is a text at its step. It reads texts as Markdown, so ours are escaped.
    """

    pushes = False
    remembers = True

    def __init__(self, folder: str, run: RunIdentity) -> None:
        import_package("tensorboard")
        self._proto = import_package("tensorboard.compat.proto.event_pb2")
        self._summary = import_package("tensorboard.compat.proto.summary_pb2")
        self._tensor = import_package("tensorboard.util.tensor_util").make_tensor_proto
        try:
            writer = import_package("tensorboard.summary.writer.event_file_writer").EventFileWriter
            self._writer: Any = writer(folder, filename_suffix=".tiltmeter")
        except OSError as error:
            raise AttachError(f"{folder} cannot be written ({error.strerror}): name another folder") from error
        self._run = run
        self._attempt: int | None = None
        self._state = ""

    def log_point(self, point: MetricPoint) -> None:
        if self._attempt is not None and point.attempt > self._attempt:
            # The run was resumed from an earlier step: a START event makes TensorBoard drop the abandoned steps.
            start = self._proto.SessionLog(status=self._proto.SessionLog.START)
            self._writer.add_event(self._proto.Event(wall_time=point.time, step=point.step, session_log=start))
        self._attempt = point.attempt if self._attempt is None else max(self._attempt, point.attempt)
        event = self._proto.Event(wall_time=point.time, step=point.step)
        for name, value in point.prefixed_values().items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.add_event(event)

    def send_alert(self, alert: Alert) -> None:
        word = "alarms" if alert.level == "ERROR" else "warnings"
        self._write_text(
            f"{PREFIX}{word}", f"**{escape_line(alert.title)}**\n\n{escape_line(alert.text)}", alert.step, alert.time
        )

    def set_status(self, status: RunStatus) -> None:
        if status.state != self._state:
            text = f"**{status.state}** in {escape_line(self._run.name)}: {escape_line(status.sentence)}"
            self._write_text(f"{PREFIX}verdict", text, max(status.step, 0), time.time())
            self._state = status.state

    def _write_text(self, tag: str, text: str, step: int, when: float) -> None:
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
