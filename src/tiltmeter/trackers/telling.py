"""A run put into the words and numbers that sinks are told."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tiltmeter.encode import log_line
from tiltmeter.errors import StoreError
from tiltmeter.journal import Event, record_of
from tiltmeter.page.book import Book
from tiltmeter.page.gold import advice, last_good
from tiltmeter.page.samples import rollout_id
from tiltmeter.page.summary import symptom
from tiltmeter.page.words import findings, short, stop_advice
from tiltmeter.records import Alarm, Finding
from tiltmeter.story import alarm_id
from tiltmeter.trackers.sink import Alert, Named, Point, Standing, identity
from tiltmeter.verdict import Verdict

TITLE = 63  # characters: one of the trackers asks for fewer than 64
TEXT = 1500
ROWS = 8  # rollouts that an alert names


@dataclass(frozen=True, slots=True)
class News:
    """What happened since the last look."""

    points: tuple[Point, ...]
    alerts: tuple[Alert, ...]
    standing: Standing


class Telling:
    """One run as sinks hear of it; each `news` reads what was added since. An alert waits one look, because what
    explains an alarm is written down after it."""

    def __init__(self, book: Book) -> None:
        name = log_line(book.name, 100)
        self.book, self.run = book, Named(str(book.run.identity().get("id", book.id)), name)
        self._told = 0
        self._points: list[Point] = []
        self._raised: list[tuple[Event, Alarm]] = []
        self._identities: dict[str, str] = {}  # by alarm: the first event that raised it

    def news(self, *, last: bool = False) -> News:
        """`last`: nobody will look again, so alerts do not wait. What a look that fails has found is in the next."""
        try:
            verdict = self.book.refresh(impatient=True)
        except StoreError:
            # The book begins anew; who was told what is known to those who tell it.
            self._told, self._points = 0, []
            raise
        waited = len(self._raised)
        for event in self.book.events[self._told :]:
            if (point := _point(event)) is not None:
                self._points.append(point)
            if event.kind == "alarm" and (found := self._new(event)) is not None:
                self._raised.append((event, found))
        self._told = len(self.book.events)
        due = self._raised if last else self._raised[:waited]
        alerts = tuple(self._alert(event, alarm) for event, alarm in due)
        news = News(tuple(self._points), alerts, self._standing(verdict))
        # Only now: whatever failed above, the next look tells it.
        self._points, self._raised = [], self._raised[len(due) :]
        return news

    def _standing(self, verdict: Verdict) -> Standing:
        ages, age = self.book.look.ages, self.book.age
        return Standing(
            verdict.state,
            log_line(verdict.sentence, 500),
            self.book.story.last_step,
            len(verdict.alarms),
            len(verdict.warnings),
            frozenset(
                self._identities[alarm_id(alarm)]
                for alarm in (*verdict.alarms, *verdict.warnings)
                if alarm_id(alarm) in self._identities
            ),
            0 if ages is None else ages.behind,
            None if age is None else round(self.book.look.looked - ages.data) if ages is not None else None,
        )

    def _new(self, event: Event) -> Alarm | None:
        """The alarm that an event raises, unless it resolves one or tells a known one under other settings."""
        alarm = record_of(event)
        assert isinstance(alarm, Alarm)
        if alarm.resolved is not None or alarm_id(alarm) in self._identities:
            return None
        self._identities[alarm_id(alarm)] = identity(self.run, event.id)
        return alarm

    def _alert(self, event: Event, alarm: Alarm) -> Alert:
        about = [found for found in findings(self.book.story) if alarm.name in found.alarms]
        rows = [rollout_id(*row) for found in about for row in found.exemplars]
        return Alert(
            identity=identity(self.run, event.id),
            event=log_line(event.id, 300),
            title=_title(alarm, self.run.name),
            text=log_line(" ".join(self._text(alarm, about)), TEXT),
            level="ERROR" if alarm.tier == "alarm" else "WARN",
            attempt=alarm.attempt,
            step=alarm.step,
            onset=alarm.onset,
            onset_low=alarm.onset_low,
            onset_high=alarm.onset_high,
            detector=log_line(alarm.detector, 100),
            reading=log_line(alarm.name, 200),
            run=self.run,
            time=event.time,
            evidence=tuple(dict.fromkeys(rows))[:ROWS],
        )

    def _text(self, alarm: Alarm, about: list[Finding]) -> list[str]:
        told = [f"{alarm.tier.capitalize()} in {self.run.name} at step {alarm.step}: {alarm.summary}."]
        low, high = alarm.onset_low, alarm.onset_high
        told.append(f"It began between step {low} and {high}." if low < high else f"It began at step {alarm.onset}.")
        if alarm.tier == "alarm" and (moved := symptom(self.book)):
            told.append(f"{moved[:1].upper()}{moved[1:]}.")
        for found in about[:1]:
            told.append(f"{found.failure} ({found.confidence:.0%} sure): {found.cause or found.summary}.")
            told += [f"What helps: {found.fix}."] if found.fix else []
        if alarm.tier == "alarm":
            told += stop_advice(advice(self.book))
            kept = last_good(self.book)
            told += [f"Checkpoint to keep: step {kept.step}."] if kept is not None else []
        else:
            told.append("A warning often has an innocent cause.")
        told.append("To see it, where the run is: tiltmeter show RUN")
        return told


def _title(alarm: Alarm, run: str) -> str:
    """What, where; cut at the end, so that two readings of one run never share a title by being long.

    >>> _title(Alarm(0, "gold.slope", "ledger", "alarm", "down", 120, 118, 90, 80, 100, 130.0, 125.0), "tonight")
    'Alarm: gold.slope down in tonight'
    """
    what = log_line(alarm.name, 200)
    if len(what) > 36:
        what = f"{what[:17]}…{what[-18:]}"
    return short(f"{alarm.tier.capitalize()}: {what} {alarm.direction} in {run}", TITLE)


def _point(event: Event) -> Point | None:
    """The readings of a step, or of labels or an evaluation that came after it."""
    values: dict[str, float] = {}
    for part in ("measured", "derived"):
        for name, packed in event.data.get(part, {}).items():
            if isinstance(packed[0], (int, float)) and math.isfinite(packed[0]):
                values[name] = float(packed[0])
    return Point(event.seq, event.attempt, event.step, event.time, values) if values else None
