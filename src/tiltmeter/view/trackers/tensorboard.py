"""The TensorBoard sinks: an event file in a folder, or in the trainer's own; needs only the tensorboard package."""

from __future__ import annotations

import io
import time
from typing import Any

from tiltmeter.errors import AttachError
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


def open_sink(target: str, run: RunIdentity, memo: dict[str, str]) -> TensorBoardSink:
    return TensorBoardSink(target, run)


def join_run(target: str, run: RunIdentity, memo: dict[str, str]) -> TrainerTensorBoardSink:
    return TrainerTensorBoardSink(target, run)


class TensorBoardSink:
    """A log directory beside the trainer's own, so that gold and the loss are shown together.

    TensorBoard has no alerts: an alarm is a text at its step. It reads texts as Markdown, so ours are escaped.
    """

    pushes = False
    remembers = True
    drops_abandoned = True  # of a run that was resumed from an earlier step

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
        if self.drops_abandoned and self._attempt is not None and point.attempt > self._attempt:
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


class TrainerTensorBoardSink(TensorBoardSink):
    """An event file in the trainer's own log directory: one run to TensorBoard. It drops no steps, because it would
    drop the trainer's too."""

    drops_abandoned = False

    def show_evidence(self, evidence: Evidence) -> None:
        now = time.time()
        if evidence.picture:
            size = import_package("PIL.Image").open(io.BytesIO(evidence.picture)).size
            picture = self._summary.Summary.Image(
                width=size[0], height=size[1], colorspace=3, encoded_image_string=evidence.picture
            )
            event = self._proto.Event(wall_time=now, step=evidence.step)
            event.summary.value.add(tag=f"{PREFIX}proxy_and_gold", image=picture)
            self._writer.add_event(event)
        if evidence.rows:
            lines = [f"| {' | '.join(EVIDENCE_COLUMNS)} |", f"|{'---|' * len(EVIDENCE_COLUMNS)}"]
            lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in evidence.rows]
            self._write_text(f"{PREFIX}completions", "\n".join(lines), evidence.step, now)


def _cell(value: str | float | None) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else escape_line(value)
