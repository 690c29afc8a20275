"""One sink and what it has still to be told, in a thread of its own: a sink that hangs or fails holds up no other."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import replace

from tiltmeter.encode import log_line
from tiltmeter.trackers.place import Place
from tiltmeter.trackers.sink import Alert, NotNowError, Point, RefusedError, Sink, Standing
from tiltmeter.trackers.telling import News

CHUNK = 200  # points between two looks at whether they are kept
FIRST_RETRY, LAST_RETRY = 1.0, 60.0  # seconds
LONGEST_RETRY = 300.0  # that a receiver may ask for

log = logging.getLogger("tiltmeter")


class Feed:
    """Tells a sink, again and again until it took it, and remembers what it took.

    An alert is marked only after the sink has returned: one that is killed in between tells it twice, with the same
    identity. A failure is said once in the log and stands in the place's file until it is over.
    """

    def __init__(self, name: str, sink: Sink, place: Place) -> None:
        self.name, self.sink, self.place = name, sink, place
        self._points: list[Point] = []
        self._heard = place.seq if sink.remembers else -1  # place in the journal up to which points were handed over
        self._alerts: dict[str, Alert] = {}
        self._standing: Standing | None = None
        self._stood: Standing | None = None
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._retry = FIRST_RETRY
        self._thread = threading.Thread(target=self._work, name=f"tiltmeter-{name}", daemon=True)
        self._thread.start()

    def tell(self, news: News) -> None:
        """Never waits and never raises."""
        with self._changed:
            for point in news.points:
                if point.seq > self._heard:
                    self._points.append(point)
                    self._heard = point.seq
            for alert in news.alerts:
                if alert.identity not in self.place.delivered:
                    self._alerts.setdefault(alert.identity, alert)
            self._standing = news.standing
            self._changed.notify()

    def finish(self, seconds: float) -> str:
        """Wait until everything is told, so long at most, and close the sink; what is left, in words."""
        with self._changed:
            self._deadline = time.monotonic() + seconds
            self._changed.notify()
        self._thread.join(seconds + 30.0)
        left = self.left()
        if not self._thread.is_alive():
            try:
                self.sink.close()
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything, and the others have still to close
                left = left or f"not closed: {_why(error)}"
            self.place.close()
        return left

    def left(self) -> str:
        with self._changed:
            told = [(len(self._alerts), "alerts"), (len(self._points), "steps")]
        return " and ".join(f"{many} {what}" for many, what in told if many)

    def _work(self) -> None:
        not_before = 0.0
        while self._wait(not_before):
            try:
                self._deliver()
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything; training and the others go on
                not_before = time.monotonic() + self._failed(error)
            else:
                self._recovered()

    def _wait(self, not_before: float) -> bool:
        """Sleep until something may be told; False: everything is told, or there is no more time."""
        with self._changed:
            while True:
                now, held = time.monotonic(), self._held()
                left = bool(self._points) or self._standing != self._stood
                if self._deadline is not None and (not (left or self._alerts) or now > self._deadline):
                    return False
                if now >= not_before and (left or (held is not None and held <= 0.0)):
                    return True
                due = [] if held is None else [max(not_before - now, held)]
                due += [not_before - now] if left else []
                due += [] if self._deadline is None else [self._deadline - now]
                self._changed.wait(max(0.01, min(due)) if due else None)

    def _held(self) -> float | None:
        """Seconds until the next alert may be told; None: there is none."""
        if not self._alerts:
            return None
        return min(self.place.wait(alert.title) for alert in self._alerts.values()) if self.sink.pushes else 0.0

    def _deliver(self) -> None:
        """Tell what may be told now, what somebody waits for first."""
        failed = self._tell_alerts()
        while self._points:
            with self._changed:
                chunk = self._points[:CHUNK]
            for point in chunk:
                self.sink.point(point)
            self.sink.flush()
            with self._changed:
                del self._points[: len(chunk)]
                self.place.seq = max(self.place.seq, *(point.seq for point in chunk))
            self._save()
        with self._changed:
            standing = self._standing
        if standing is not None and standing != self._stood:
            self.sink.standing(standing)
            self.sink.flush()
            self._stood = standing
        if failed is not None:
            raise failed

    def _tell_alerts(self) -> Exception | None:
        """What went wrong, once everything else has been tried: a reading need not wait for an alert."""
        failed = None
        with self._changed:
            waiting, standing = list(self._alerts.values()), self._standing
        for alert, covered in self._few(waiting, standing):
            if self.sink.pushes and self.place.wait(alert.title):
                continue
            try:
                self.sink.alert(alert)
                self.sink.flush()
            except RefusedError as error:
                failed = error
            except Exception as error:  # noqa: BLE001 - told where all failures are
                return error
            else:
                self._mark(covered, alert.title)
        return failed

    def _few(self, waiting: Iterable[Alert], standing: Standing | None) -> list[tuple[Alert, list[str]]]:
        """One alert a title where alerts disturb somebody: the newest, which says how many it stands for."""
        if not self.sink.pushes:
            return [(alert, [alert.identity]) for alert in waiting]
        titles: dict[str, list[Alert]] = {}
        for alert in waiting:
            if alert.level == "WARN" and standing is not None and alert.identity not in standing.open:
                self._mark([alert.identity], "")
            else:
                titles.setdefault(alert.title, []).append(alert)
        found = []
        for alerts in titles.values():
            earlier = tuple(alert.identity for alert in alerts[:-1])
            told = alerts[-1]
            if earlier:
                steps = ", ".join(str(alert.step) for alert in alerts[:-1][-5:])
                told = replace(told, covers=earlier, text=f"{told.text} (Before that at step {steps}.)")
            found.append((told, [*earlier, told.identity]))
        return found

    def _mark(self, identities: list[str], title: str) -> None:
        with self._changed:
            for one in identities:
                self._alerts.pop(one, None)
        self.place.mark(identities, title)  # in memory first: a full disk must not have an alert told every minute
        self._save()

    def _save(self) -> None:
        if self.sink.remembers:
            self.place.save()

    def _failed(self, error: Exception) -> float:
        why = _why(error)
        if not self.place.failing:
            log.warning("%s: %s; trying again until it works", self.name, why)
        if why != self.place.failing:
            self.place.failing = why
            try:
                self._save()
            except OSError as trouble:
                log.warning("%s: its state cannot be kept: %s", self.name, trouble.strerror)
        pause = max(self._retry, min(error.seconds, LONGEST_RETRY) if isinstance(error, NotNowError) else 0.0)
        self._retry = min(2.0 * self._retry, LAST_RETRY)
        return pause

    def _recovered(self) -> None:
        self._retry = FIRST_RETRY
        if self.place.failing:
            log.warning("%s: works again", self.name)
            self.place.failing = ""
            try:
                self._save()
            except OSError as error:
                log.warning("%s: its state cannot be kept: %s", self.name, error.strerror)


def _why(error: Exception) -> str:
    return log_line(
        f"{type(error).__name__}: {error}" if not isinstance(error, (RefusedError, NotNowError)) else str(error), 300
    )
