"""The alarms screen: one row per fingerprint, the evidence curve of an alarm, and notes of an operator about it.

Acknowledging or muting changes how a row is shown, not the verdict: an open alarm stays ACT. Marking an *alarm* as
false resolves it, and the reason stays on record. A warning marked as false is shown so; it resolves by itself after
a block without evidence, as every warning does.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace

from tiltmeter.data.records import Alarm
from tiltmeter.data.slices import reading_of, slice_of
from tiltmeter.detectors.canary import Canary
from tiltmeter.detectors.coverage_fall import COVERAGE_ALPHA, CoverageFall
from tiltmeter.detectors.gold_assumptions import Assumption
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold.label_files import read_request
from tiltmeter.rundir.journal import Event, readings_of
from tiltmeter.rundir.payloads import AttemptOpen, LabelsClosed, SettingsChanged
from tiltmeter.rundir.remote.inbox import copied_address
from tiltmeter.rundir.requests import ControlRequest, write_request
from tiltmeter.rundir.signing import make_token, read_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import AlarmNote, NoteKind, RunFacts, alarm_id, is_watched
from tiltmeter.view.payloads.alarms import AlarmDetail, Alarms, EvidenceCurve
from tiltmeter.view.payloads.overview import AlarmRow, AlarmStatus, Exemplar
from tiltmeter.view.payloads.plots import LineRole, Panel
from tiltmeter.view.screens.actions import unanswered_requests
from tiltmeter.view.screens.exemplars import highest_paid_rows, read_exemplars
from tiltmeter.view.screens.history import RunHistory
from tiltmeter.view.screens.plots import make_panel
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.series import LineSpec, StepRange, build_lines, select_points
from tiltmeter.view.screens.wording import finite_or_none, ranked_findings, truncate

TEXT = 300
REASON = 200  # characters of a reason, so that a request fits into its file in any encoding
POINTS = 290  # of an evidence curve; its ends and extremes come on top
EXEMPLARS = 12
WEEK = 7 * 86_400.0  # how long a note waits for a monitor
#: What an alarm promises, by its detector, where that is not the sentence about gold.
NOTES = {
    Canary.name: "The right score of a canary is known, so this is no statistical test and uses none of the "
    "false-alarm bound.",
    CoverageFall.name: "While answers depend on their prompts at least half as much as they did at best, "
    f"the chance of this alarm in the whole run is at most {100 * COVERAGE_ALPHA:.3g} %, however often it is "
    "looked at.",
}
NOTE_WORDS = {"acknowledge": "acknowledged", "mute": "muted", "false_alarm": "called false"}


def alarms(reader: RunReader) -> Alarms:
    """Every alarm and warning: open ones first, alarms before warnings, the newest first."""
    with reader.lock:
        rows = alarm_rows(reader)
        rows.sort(key=lambda row: (row.status in ("resolved", "false"), row.tier, -row.attempt, -row.step))
        return Alarms(rows=rows, promise=describe_bound(reader.run_facts))


def assumptions(reader: RunReader) -> list[Assumption]:
    """What the bound of the gold alarm rests on, and what this run shows of it. Reads the whole journal."""
    with reader.lock:
        _ = reader.verdict
        fold = reader.get_fold("evidence", EvidenceCurves)
        lines = [] if fold.gold_test is None else fold.gold_test.assumptions()
        if lines and fold.sampled is not None:
            lines.append(_weights_assumption(reader.run, *fold.sampled))
        return lines


def _weights_assumption(run: RunDirectory, attempt: int, step: int) -> Assumption:
    """Whether a few advantages were much larger than all others, when the last labels were drawn."""
    about = "advantages have no heavy tails"
    try:
        request = read_request(run, attempt, step)
        state = {} if request is None else request.state
        raised, scale = float(state.get("raised", 0.0)), float(state["numbers"][5])
    except (StoreError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return Assumption(about, None, f"the request of step {step} cannot be read: {type(error).__name__}")
    if raised > scale:
        return Assumption(about, False, "a few are far larger than others: the ceiling of a bet's weight was raised")
    return Assumption(about, True, "nine tenths of them or more lie below the ceiling of a bet's weight")


def alarm(reader: RunReader, name: str) -> AlarmDetail | None:
    """One alarm with its evidence curve up to the step that raised it, the reading it watches, and example completions.

    None if the run has no alarm of this id. Warnings have no evidence curve.
    """
    with reader.lock:
        _ = reader.verdict
        alarm = next(
            (records[0][2] for records in reader.run_facts.alarms.values() if alarm_id(records[0][2]) == name), None
        )
        if alarm is None:
            return None
        alarm = reader.date_alarm(alarm)
        return AlarmDetail(
            alarm=alarm_rows(reader, [alarm])[0],
            promise=NOTES.get(alarm.detector) or describe_bound(reader.run_facts, alarm.tier),
            evidence=_alarm_curve(reader, alarm),
            readings=_watched_panel(reader, alarm),
            exemplars=_alarm_exemplars(reader, alarm),
        )


def describe_bound(run_facts: RunFacts, tier: str = "alarm") -> str:
    """The bound on false alarms, as a sentence."""
    if tier == "warning":
        return "A warning has a measured rate of false alarms and no proved bound; it often has an innocent cause."
    # What the coverage alarm may spend is a part of the gold alarm's, and not beside it.
    alarms = [part for part in run_facts.detectors if part["tier"] == "alarm" and part["name"] != CoverageFall.name]
    alpha = sum(float(part["alpha"]) for part in alarms)
    if not alpha:
        return "No alarm detector is set up."
    return (
        "While gold and the coverage of answers are not being lost, the chance of any alarm in the whole run is at "
        f"most {100 * alpha:.3g} %, however often it is looked at."
    )


@dataclass
class EvidenceCurves:
    """Evidence curves of alarms, computed by replaying the journal through a gold-loss test of its own.

    Add every event, in order. `curves` has, by alarm, the points since the test was last reset up to the one that
    raised the alarm: labels so far, step, log odds.
    """

    curves: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    gold_test: GoldLossTest | None = None
    labels: int = 0
    sampled: tuple[int, int] | None = None  # attempt and step of the last labels that a sampler drew
    _points: list[tuple[int, int, float]] = field(default_factory=list)
    _slice_points: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)  # where the odds are above 1

    def add(self, event: Event) -> None:
        payload = event.payload
        if isinstance(payload, (AttemptOpen, SettingsChanged)):
            self._read_alpha(payload)
        if self.gold_test is None:
            return
        if event.kind in ("reading", "step_done"):
            self.gold_test.rewind(event.attempt, event.step)  # does nothing after an attempt's first step
            self.gold_test.rewind_slices(event.attempt, event.step)
        if isinstance(payload, LabelsClosed) and payload.measured and not payload.whole:
            self.sampled = event.attempt, event.step
        if "measured" in event.data:
            self._update_test(event, self.gold_test)
        elif isinstance(payload, Alarm) and payload.detector == self.gold_test.name:
            self._close_curve(event.attempt, payload, self.gold_test)

    def _read_alpha(self, settings: AttemptOpen | SettingsChanged) -> None:
        for part in settings.detectors:
            if part["name"] == GoldLossTest.name:
                self.gold_test = self.gold_test or GoldLossTest()
                self.gold_test.alpha = float(part["alpha"])

    def _update_test(self, event: Event, gold_test: GoldLossTest) -> None:
        readings = [*readings_of(event), *readings_of(event, "derived")]
        watched = [reading for reading in readings if is_watched(reading.name, gold_test.watches)]
        bet = [reading for reading in watched if not reading.slices]
        gold_labels = next((reading.n for reading in readings if reading.name == "gold.mean"), None)
        spent = event.data.get("answered", sum(reading.n for reading in bet) if gold_labels is None else gold_labels)
        self.labels += int(spent)
        stands = gold_test.standing is not None  # nothing is bet then, but rows that come again are recognised later
        for reading in watched:
            try:
                with np.errstate(all="ignore"):
                    if reading.slices:
                        gold_test.update_slices(reading)
                    else:
                        gold_test.update(reading)
            except ValueError:
                continue  # recorded as a fault of that step
        changed = {name for reading in watched for name, _ in reading.slices}
        for name, odds in gold_test.slice_evidence().items() if changed else ():
            if name in changed and odds > 0.0:
                self._slice_points.setdefault(name, []).append((self.labels, event.step, odds))
        if bet and not stands:
            self._points.append((self.labels, event.step, gold_test.evidence))

    def _close_curve(self, attempt: int, alarm: Alarm, gold_test: GoldLossTest) -> None:
        if name := slice_of(alarm.name):
            points = self._slice_points.pop(name, [])
            if alarm.resolved is None:
                self.curves[alarm_id(alarm)] = points
            elif any(one.name == alarm.name for one in gold_test.standing_slices):
                gold_test.dismiss_slice(alarm.name, alarm.resolved)
        elif alarm.resolved is None:
            self.curves[alarm_id(alarm)] = self._points
        else:
            if gold_test.rewind(attempt, alarm.resolved) is None:
                gold_test.dismiss(alarm.resolved)
            self._points = []


def _alarm_curve(reader: RunReader, alarm: Alarm) -> EvidenceCurve:
    points = (
        reader.get_fold("evidence", EvidenceCurves).curves.get(alarm_id(alarm), []) if alarm.tier == "alarm" else []
    )
    return evidence_curve(points, alarm.threshold)


def evidence_curve(points: Sequence[tuple[int, int, float]], threshold: float) -> EvidenceCurve:
    """An evidence curve of at most 300 points; the last is the one at which the alarm was raised."""
    indices = select_points(np.array([odds for _, _, odds in points], np.float64), POINTS).tolist()
    return EvidenceCurve(
        labels=[points[at][0] for at in indices],
        steps=[points[at][1] for at in indices],
        odds=[points[at][2] for at in indices],
        threshold=threshold,
        raised=len(indices) - 1,
    )


def _watched_panel(reader: RunReader, alarm: Alarm) -> Panel:
    """The reading that the alarm watches, over the whole run."""
    role: LineRole = "gold" if reading_of(alarm.name).startswith(("gold.", "eval.")) else "plain"
    lines = build_lines(reader, [LineSpec(alarm.name, role=role, interval=True)], StepRange())
    sentence = f"{alarm.name}; raised at step {alarm.step}, since about step {alarm.onset}."
    return make_panel("What it watches", sentence, lines, left=alarm.name)


def _alarm_exemplars(reader: RunReader, alarm: Alarm) -> list[Exemplar]:
    """Exemplars of findings that name the alarm, then completions of its step with high reward and low gold."""
    rows = [
        tuple(row)
        for finding in ranked_findings(reader.run_facts)
        if alarm.name in finding.alarms
        for row in finding.exemplars
    ]
    rows += highest_paid_rows(reader, alarm.attempt, alarm.data_step, EXEMPLARS)
    return read_exemplars(reader, dict.fromkeys(rows), EXEMPLARS)


def find_alarm(run_facts: RunFacts, name: str) -> Alarm | None:
    """The alarm or warning of this id, however long ago it was raised."""
    return next((records[-1][2] for records in run_facts.alarms.values() if alarm_id(records[0][2]) == name), None)


def submit_note(
    run: RunDirectory, run_facts: RunFacts, about: str, kind: NoteKind, *, reason: str = "", until: int | None = None,
    nonce: str = "", author: str = "",
) -> ControlRequest:  # fmt: skip
    """Sign and store an operator's note about an alarm or warning, for the monitor to record.

    Raises `StoreError` if the note is not valid and `AttachError` without permission. A repeated `nonce` is refused.
    """
    alarm = find_alarm(run_facts, about)
    if alarm is None or run_facts.attempt is None:
        raise StoreError(f"{run.path} has no alarm {about!r}; see: tiltmeter alarms {run.path}")
    if kind == "false_alarm" and not reason.strip():
        raise StoreError("say why it is false: a reason stays on record with it")
    if kind == "false_alarm" and alarm.tier == "alarm" and alarm.resolved is not None:
        raise StoreError(f"alarm {about} was resolved at step {alarm.resolved}: there is nothing to dismiss")
    if (kind == "mute") != (until is not None) or (until is not None and until <= run_facts.last_step):
        raise StoreError(f"a mute, and nothing else, ends at a step after {run_facts.last_step}: name that step")
    if len(reason) > REASON:
        raise StoreError(f"a reason has at most {REASON} characters, this has {len(reason)}: shorten it")
    name = hashlib.sha256(nonce.encode()).hexdigest()[:16] if nonce else secrets.token_hex(8)
    note = AlarmNote(about, kind, until, reason.strip())
    request = ControlRequest(
        f"note-{name}", about, run_facts.attempt, "note", 0.0, "note", "operator",
        expires_time=time.time() + WEEK, text=note.text(), author=author,
    )  # fmt: skip
    if (run.path / "run.json").stat().st_uid != os.geteuid():
        raise AttachError(f"{run.path} belongs to another user: only who started the run may leave notes")
    try:
        # On a machine that has only a copy of the run, a token that is made here would be another one.
        token = make_token(run) if copied_address(run.path) is None else read_token(run)
        write_request(run, request, token)
    except FileExistsError:
        raise StoreError("this note was sent already: wait for the monitor to record it") from None
    return request


def alarm_rows(reader: RunReader, which: list[Alarm] | None = None) -> list[AlarmRow]:
    """Rows of these alarms, one per fingerprint with its newest alarm; without `which`, of all there ever were. An
    open one is dated as the verdict dates it."""
    verdict, run_facts = reader.verdict, reader.run_facts  # the verdict first: it reads a run that was just opened
    groups: dict[tuple[str, ...], list[Alarm]] = {}
    for records in run_facts.alarms.values():
        alarm = records[0][2]
        groups.setdefault(_fingerprint(alarm), []).append(alarm)
    selected = [occurrences[-1] for occurrences in groups.values()] if which is None else which
    now_open = {alarm_id(alarm) for alarm in (*verdict.alarms, *verdict.warnings)}
    shown = map(reader.date_alarm, selected)
    rows = [_row(run_facts, alarm, groups.get(_fingerprint(alarm), [alarm]), now_open) for alarm in shown]
    pending = _pending_notes(reader) if rows else {}
    return [replace(row, note=_describe_pending(pending[row.id])) if row.id in pending else row for row in rows]


def _describe_pending(note: AlarmNote) -> str:
    return truncate(f"{_describe_note(note)} (waiting for the monitor to record it)", TEXT)


def _pending_notes(reader: RunReader) -> dict[str, AlarmNote]:
    """By alarm, the operator's note that no monitor has recorded yet."""
    requests = unanswered_requests(reader, reader.get_fold("history", RunHistory))
    notes = [AlarmNote.parse(request.text) for request in requests if request.kind == "note"]
    return {note.about: note for note in notes if note is not None}


def _fingerprint(alarm: Alarm) -> tuple[str, ...]:
    return alarm.tier, alarm.name, alarm.detector, alarm.direction


def _row(run_facts: RunFacts, alarm: Alarm, occurrences: list[Alarm], now_open: set[str]) -> AlarmRow:
    name = alarm_id(alarm)
    key = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
    ended = next((record for _, _, record in run_facts.alarms.get(key, ()) if record.resolved is not None), None)
    status, note = _status(run_facts, name, occurrences, name in now_open)
    step = None if ended is None or status == "false" else ended.recovery_step
    outcome = "" if step is None else f"; recovered at step {step}"
    return AlarmRow(
        id=name,
        tier=alarm.tier,
        name=alarm.name,
        detector=alarm.detector,
        attempt=alarm.attempt,
        step=alarm.step,
        onset=alarm.onset,
        onset_low=alarm.onset_low,
        onset_high=alarm.onset_high,
        # A canary is no statistical test, so it has no odds.
        evidence=None if alarm.detector == Canary.name else finite_or_none(alarm.evidence),
        threshold=None if alarm.detector == Canary.name else finite_or_none(alarm.threshold),
        summary=truncate(f"{alarm.summary}{outcome}", TEXT),
        resolved=None if ended is None else ended.resolved,
        count=len(occurrences),
        status=status,
        note=_describe_note(note),
    )


def _status(
    run_facts: RunFacts, name: str, occurrences: list[Alarm], is_open: bool
) -> tuple[AlarmStatus, AlarmNote | None]:
    """How a row is shown, and the note that says so. A mute holds for the whole fingerprint until its step."""
    notes = run_facts.notes.get(name, [])
    note = notes[-1] if notes else None
    default: AlarmStatus = "open" if is_open else "resolved"
    if note is not None and note.kind == "false_alarm":
        return "false", note
    mutes = [mute for alarm in occurrences for mute in run_facts.notes.get(alarm_id(alarm), ()) if mute.kind == "mute"]
    active = [mute for mute in mutes if mute.until is not None and mute.until > run_facts.last_step]
    if active and is_open:
        return "muted", active[-1]
    if note is not None and note.kind == "acknowledge":
        return ("acknowledged" if is_open else default), note
    return default, note


def _describe_note(note: AlarmNote | None) -> str:
    if note is None:
        return ""
    until = "" if note.until is None else f" until step {note.until}"
    return truncate(f"{NOTE_WORDS[note.kind]}{until}{f': {note.reason}' if note.reason else ''}", TEXT)
