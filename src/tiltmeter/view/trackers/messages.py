"""Builds the messages for sinks from a run: metric points, alert texts and the status."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tiltmeter.data.records import Alarm, Finding
from tiltmeter.data.slices import PREFIX as SLICES
from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal import Event
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.message import describe_likelihood
from tiltmeter.verdict.run_facts import alarm_id
from tiltmeter.verdict.verdict import Verdict, read_agreement_and_gain
from tiltmeter.view.screens.gold import last_good
from tiltmeter.view.screens.picture.curves import read_curves
from tiltmeter.view.screens.picture.layout import draw_run
from tiltmeter.view.screens.picture.png import render_png
from tiltmeter.view.screens.picture.svg import render_svg
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.screens.summary import symptom
from tiltmeter.view.screens.wording import describe_advice, describe_agreement_and_level, ranked_findings, truncate
from tiltmeter.view.trackers.evidence import can_draw, gather_evidence
from tiltmeter.view.trackers.sink import Alert, Evidence, MetricPoint, RunIdentity, RunStatus, alert_identity
from tiltmeter.view.without_secrets import without_secrets

TITLE = 63  # characters: one of the trackers allows fewer than 64
TEXT = 1500
ROWS = 8  # rollouts that an alert names
LIKELY = 0.5  # from which on a finding is said without being asked for


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """The messages since the last poll."""

    points: tuple[MetricPoint, ...]
    alerts: tuple[Alert, ...]
    status: RunStatus
    evidence: Evidence | None = None  # since alarms were raised, and at the end


class MessageBuilder:
    """Builds the messages of one run; each call reads what was added since. An alert waits for one more poll, because
    the findings that explain an alarm are recorded after it. `evidence`: pictures and completions are wanted too."""

    def __init__(self, reader: RunReader, *, evidence: bool = False) -> None:
        self._evidence = evidence
        name = log_line(reader.name, 100)
        self.reader, self.run = reader, RunIdentity(str(reader.run.identity().get("id", reader.id)), name)
        self._events_read = 0
        self._points: list[MetricPoint] = []
        self._raised: list[tuple[Event, Alarm]] = []
        self._identities: dict[str, str] = {}  # by alarm: the first event that raised it
        self._states_sent: set[str] = set()  # "hollow-0": no alarm, and without an event of its own

    def next_batch(self, *, last: bool = False) -> MessageBatch:
        """`last`: this is the last poll, so alerts do not wait. After a failed poll the next returns its messages."""
        try:
            verdict = self.reader.refresh(force=True)
        except StoreError:
            # The reader starts from the beginning; the sink threads know what was delivered.
            self._events_read, self._points = 0, []
            raise
        waited = len(self._raised)
        for event in self.reader.events.since(self._events_read):
            if (point := _metric_point(event)) is not None:
                self._points.append(point)
            if event.kind == "alarm" and (alarm_raised := self._new_alarm(event)) is not None:
                self._raised.append((event, alarm_raised))
        self._events_read = len(self.reader.events)
        due = self._raised if last else self._raised[:waited]
        states = self._state_alerts(verdict)
        alerts = (*(self._alert(event, self.reader.date_alarm(alarm)) for event, alarm in due), *states)
        evidence = gather_evidence(self.reader) if self._evidence and (alerts or last) else None
        words = without_secrets((alerts, self._run_status(verdict), evidence))
        batch = MessageBatch(tuple(self._points), *words)
        # Only now: if anything above failed, the next poll returns it.
        self._points, self._raised = [], self._raised[len(due) :]
        self._states_sent |= {alert.event for alert in states}
        return batch

    def _run_status(self, verdict: Verdict) -> RunStatus:
        ages, age = self.reader.watcher.ages, self.reader.age
        return RunStatus(
            verdict.state,
            log_line(verdict.sentence, 500),
            self.reader.run_facts.last_step,
            len(verdict.alarms),
            len(verdict.warnings),
            frozenset(
                self._identities[alarm_id(alarm)]
                for alarm in (*verdict.alarms, *verdict.warnings)
                if alarm_id(alarm) in self._identities
            ),
            0 if ages is None else ages.behind,
            None if age is None else round(self.reader.watcher.updated_at - ages.data) if ages is not None else None,
            None if verdict.agreement is None else verdict.agreement.share,
            None if verdict.level is None else verdict.level.change,
            tuple(_finding_line(one) for one in ranked_findings(self.reader.run_facts) if one.confidence >= LIKELY),
            log_line(" ".join(describe_advice(verdict.advice)), 500),
        )

    def _new_alarm(self, event: Event) -> Alarm | None:
        """The alarm that an event raises; None if it resolves one or repeats a known one."""
        alarm = event.payload
        assert isinstance(alarm, Alarm)
        if alarm.resolved is not None or alarm_id(alarm) in self._identities:
            return None
        self._identities[alarm_id(alarm)] = alert_identity(self.run, event.id)
        return alarm

    def _alert(self, event: Event, alarm: Alarm) -> Alert:
        alarm_findings = [finding for finding in ranked_findings(self.reader.run_facts) if alarm.name in finding.alarms]
        rows = [rollout_id(*row) for finding in alarm_findings for row in finding.exemplars]
        return Alert(
            identity=alert_identity(self.run, event.id),
            event=log_line(event.id, 300),
            title=_alert_title(alarm, self.run.name),
            text=log_line(" ".join(self._sentences(alarm, alarm_findings)), TEXT),
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
            **(self._pictures() if alarm.tier == "alarm" else {}),
        )

    def _state_alerts(self, verdict: Verdict) -> list[Alert]:
        """That a run is hollow, or that it should stop although nothing is raised: each once for each attempt."""
        run_facts, advice = self.reader.run_facts, verdict.advice
        is_hollow = verdict.state == "HOLLOW"
        if run_facts.attempt is None or not (is_hollow or (advice and advice.word == "stop" and not verdict.alarms)):
            return []
        if (event := f"{'hollow' if is_hollow else 'stop'}-{run_facts.attempt}") in self._states_sent:
            return []
        onset = run_facts.last_step
        if is_hollow:
            title, reading = "Hollow: the reward gains for nothing in", run_facts.agreement_and_gain.gold_source
            gain = read_agreement_and_gain(run_facts)[1]
            onset = onset if gain is None else gain.first
        else:
            title, reading = "Stop is advised for", "" if advice is None else advice.source
            onset = onset if advice is None or advice.best is None else min(advice.best.step, onset)
        sentences = [f"{verdict.state}: {self.run.name} at step {run_facts.last_step}: {verdict.sentence}."]
        sentences += [*(f"{line}." for line in describe_agreement_and_level(verdict)), *describe_advice(advice)]
        return [
            Alert(
                identity=alert_identity(self.run, event),
                event=event,
                title=truncate(f"{title} {self.run.name}", TITLE),
                text=log_line(" ".join(sentences), TEXT),
                level="ERROR",
                attempt=run_facts.attempt,
                step=run_facts.last_step,
                onset=onset,
                onset_low=min(run_facts.first.get(run_facts.attempt, onset), onset),
                onset_high=run_facts.last_step,
                detector=event.partition("-")[0],
                reading=log_line(reading, 200),
                run=self.run,
                time=self.reader.events[-1].time,
                **self._pictures(),
            )
        ]

    def _pictures(self) -> dict[str, Any]:
        drawn = draw_run(read_curves(self.reader))
        return {"picture": render_svg(drawn), "png": render_png(drawn) if can_draw() else b""}

    def _sentences(self, alarm: Alarm, findings: list[Finding]) -> list[str]:
        sentences = [f"{alarm.tier.capitalize()} in {self.run.name} at step {alarm.step}: {alarm.summary}."]
        low, high = alarm.onset_low, alarm.onset_high
        sentences.append(
            f"It began between step {low} and {high}." if low < high else f"It began at step {alarm.onset}."
        )
        if alarm.tier == "alarm" and (moved := symptom(self.reader)):
            sentences.append(f"{moved[:1].upper()}{moved[1:]}.")
        for finding in findings[:1]:
            sentences.append(
                f"{describe_likelihood(finding).capitalize()} {finding.failure}: {finding.cause or finding.summary}."
            )
            sentences += [f"What helps: {finding.fix}."] if finding.fix else []
        if alarm.tier == "alarm":
            sentences += describe_advice(self.reader.verdict.advice)
            checkpoint = last_good(self.reader)
            sentences += [f"Checkpoint to keep: step {checkpoint.step}."] if checkpoint is not None else []
        else:
            sentences.append("A warning often has an innocent cause.")
        sentences.append("To see it, where the run is: tiltmeter show RUN")
        return sentences


def _alert_title(alarm: Alarm, run: str) -> str:
    """The title of an alert; a long reading name is cut in the middle, so that two readings get different titles.

    >>> alarm = Alarm(0, "gold.slope", "gold_loss", "alarm", "down", 120, 118, 90, 80, 100, 130.0, 125.0)
    >>> _alert_title(alarm, "tonight")
    'Alarm: gold.slope down in tonight'
    """
    what = log_line(alarm.name, 200)
    if len(what) > 36:
        what = f"{what[:17]}…{what[-18:]}"
    return truncate(f"{alarm.tier.capitalize()}: {what} {alarm.direction} in {run}", TITLE)


def _finding_line(finding: Finding) -> str:
    return log_line(f"{finding.failure} ({finding.confidence:.0%} sure): {finding.cause or finding.summary}", 300)


def _metric_point(event: Event) -> MetricPoint | None:
    """The readings of a step, or of labels or an evaluation that came after it."""
    values: dict[str, float] = {}
    for part in ("measured", "derived"):
        for name, packed in event.data.get(part, {}).items():
            if isinstance(packed[0], (int, float)) and math.isfinite(packed[0]) and not name.startswith(SLICES):
                values[name] = float(packed[0])
    return MetricPoint(event.seq, event.attempt, event.step, event.time, values) if values else None
