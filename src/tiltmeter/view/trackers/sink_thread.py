"""`SinkThread`: delivers to one sink in a thread of its own, so that a sink that hangs or fails delays no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import replace

from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.trackers.messages import MessageBatch
from tiltmeter.view.trackers.position import SinkPosition
from tiltmeter.view.trackers.sink import (
    Alert,
    Evidence,
    EvidenceSink,
    MetricPoint,
    RefusedError,
    RetryLaterError,
    RunStatus,
    TrackerSink,
)

CHUNK = 200  # points between two flushes
FIRST_RETRY, LAST_RETRY = 1.0, 60.0  # seconds
LONGEST_RETRY = 300.0  # seconds, of a Retry-After

log = logging.getLogger("tiltmeter")


class SinkThread:
    """Delivers to a sink with retries, and stores what was delivered.

    An alert is marked only after the sink has returned: a process killed in between sends it twice, with the same
    identity. A failure is logged once and stays in the position file until it is over.
    """

    def __init__(self, name: str, sink: TrackerSink, position: SinkPosition) -> None:
        self.name, self.sink, self.position = name, sink, position
        self._points: list[MetricPoint] = []
        self._last_seq = position.seq if sink.remembers else -1  # journal position up to which points were queued
        self._alerts: dict[str, Alert] = {}
        self._status: RunStatus | None = None
        self._evidence: Evidence | None = None
        self._sent_status: RunStatus | None = None
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._retry = FIRST_RETRY
        self._thread = threading.Thread(target=self._run, name=f"tiltmeter-{name}", daemon=True)
        self._thread.start()

    def enqueue(self, batch: MessageBatch) -> None:
        """Queue a batch for delivery. Never waits and never raises."""
        with self._changed:
            for point in batch.points:
                if point.seq > self._last_seq:
                    self._points.append(point)
                    self._last_seq = point.seq
            for alert in batch.alerts:
                if alert.identity not in self.position.delivered:
                    self._alerts.setdefault(alert.identity, alert)
            self._status = batch.status
            self._evidence = batch.evidence or self._evidence  # the newest is enough
            self._changed.notify()

    def finish(self, seconds: float) -> str:
        """Wait until everything is delivered, up to a timeout, and close the sink; returns what is left, as text."""
        with self._changed:
            self._deadline = time.monotonic() + seconds
            self._changed.notify()
        self._thread.join(seconds + 30.0)
        undelivered = self.describe_undelivered()
        if not self._thread.is_alive():
            try:
                self.sink.close()
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything, the others must still close
                undelivered = undelivered or f"not closed: {_error_text(error)}"
            self.position.close()
        return undelivered

    def describe_undelivered(self) -> str:
        with self._changed:
            counts = [(len(self._alerts), "alerts"), (len(self._points), "steps")]
        return " and ".join(f"{number} {what}" for number, what in counts if number)

    def _run(self) -> None:
        not_before = 0.0
        while self._wait_for_work(not_before):
            try:
                self._deliver()
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything; training and the others go on
                not_before = time.monotonic() + self._record_failure(error)
            else:
                self._clear_failure()

    def _wait_for_work(self, not_before: float) -> bool:
        """Sleep until there is something to deliver; False: everything is delivered, or the time is up."""
        with self._changed:
            while True:
                now, alert_delay = time.monotonic(), self._alert_delay()
                has_work = bool(self._points) or self._status != self._sent_status or self._evidence is not None
                if self._deadline is not None and (not (has_work or self._alerts) or now > self._deadline):
                    return False
                if now >= not_before and (has_work or (alert_delay is not None and alert_delay <= 0.0)):
                    return True
                due = [] if alert_delay is None else [max(not_before - now, alert_delay)]
                due += [not_before - now] if has_work else []
                due += [] if self._deadline is None else [self._deadline - now]
                self._changed.wait(max(0.01, min(due)) if due else None)

    def _alert_delay(self) -> float | None:
        """Seconds until the next alert may be sent; None: there is none."""
        if not self._alerts:
            return None
        return (
            min(self.position.seconds_until_allowed(alert.title) for alert in self._alerts.values())
            if self.sink.pushes
            else 0.0
        )

    def _deliver(self) -> None:
        """Deliver what is due: alerts first, then points and the status."""
        failed = self._send_alerts()
        while self._points:
            with self._changed:
                chunk = self._points[:CHUNK]
            for point in chunk:
                self.sink.log_point(point)
            self.sink.flush()
            with self._changed:
                del self._points[: len(chunk)]
                self.position.seq = max(self.position.seq, *(point.seq for point in chunk))
            self._save()
        with self._changed:
            status = self._status
        if status is not None and status != self._sent_status:
            self.sink.set_status(status)
            self.sink.flush()
            self._sent_status = status
        with self._changed:
            evidence = self._evidence
        if evidence is not None:
            if isinstance(self.sink, EvidenceSink):
                self.sink.show_evidence(evidence)
                self.sink.flush()
            with self._changed:
                self._evidence = None if self._evidence is evidence else self._evidence
        if failed is not None:
            raise failed

    def _send_alerts(self) -> Exception | None:
        """Send the alerts that are due; returns an error instead of raising, so that points need not wait."""
        failed = None
        with self._changed:
            waiting, status = list(self._alerts.values()), self._status
        for alert, covered in self._merge_alerts(waiting, status):
            if self.sink.pushes and self.position.seconds_until_allowed(alert.title):
                continue
            try:
                self.sink.send_alert(alert)
                self.sink.flush()
            except RefusedError as error:
                failed = error
            except Exception as error:  # noqa: BLE001 - raised later with the other failures
                return error
            else:
                self._mark_delivered(covered, alert.title)
        return failed

    def _merge_alerts(self, waiting: Iterable[Alert], status: RunStatus | None) -> list[tuple[Alert, list[str]]]:
        """For sinks that notify people, one alert for each title: the newest, which lists those it covers."""
        if not self.sink.pushes:
            return [(alert, [alert.identity]) for alert in waiting]
        titles: dict[str, list[Alert]] = {}
        for alert in waiting:
            if alert.level == "WARN" and status is not None and alert.identity not in status.open:
                self._mark_delivered([alert.identity], "")
            else:
                titles.setdefault(alert.title, []).append(alert)
        merged = []
        for alerts in titles.values():
            earlier = tuple(alert.identity for alert in alerts[:-1])
            newest = alerts[-1]
            if earlier:
                steps = ", ".join(str(alert.step) for alert in alerts[:-1][-5:])
                newest = replace(newest, covers=earlier, text=f"{newest.text} (Before that at step {steps}.)")
            merged.append((newest, [*earlier, newest.identity]))
        return merged

    def _mark_delivered(self, identities: list[str], title: str) -> None:
        with self._changed:
            for identity in identities:
                self._alerts.pop(identity, None)
        self.position.mark(
            identities, title
        )  # in memory first: with a full disk an alert must not be sent every minute
        self._save()

    def _save(self) -> None:
        if self.sink.remembers:
            self.position.save()

    def _record_failure(self, error: Exception) -> float:
        why = _error_text(error)
        if not self.position.failing:
            log.warning("%s: %s; trying again until it works", self.name, why)
        if why != self.position.failing:
            self.position.failing = why
            try:
                self._save()
            except OSError as save_error:
                log.warning("%s: its state cannot be kept: %s", self.name, save_error.strerror)
        pause = max(self._retry, min(error.seconds, LONGEST_RETRY) if isinstance(error, RetryLaterError) else 0.0)
        self._retry = min(2.0 * self._retry, LAST_RETRY)
        return pause

    def _clear_failure(self) -> None:
        self._retry = FIRST_RETRY
        if self.position.failing:
            log.warning("%s: works again", self.name)
            self.position.failing = ""
            try:
                self._save()
            except OSError as error:
                log.warning("%s: its state cannot be kept: %s", self.name, error.strerror)


def _error_text(error: Exception) -> str:
    return log_line(
        f"{type(error).__name__}: {error}" if not isinstance(error, (RefusedError, RetryLaterError)) else str(error),
        300,
    )
