"""Alarms and warnings: one row per fingerprint, the evidence as it grew, and what an operator says of one.

To acknowledge or mute changes how a row is shown and no verdict: an open alarm stays ACT. To call an *alarm* false
resolves it, and stays on record with its reason. A warning that is called false is shown so; it resolves by itself
after a quiet block, as every warning does.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.control import Request, ask
from tiltmeter.detectors.canary import Canary
from tiltmeter.detectors.ledger import Ledger
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.journal import Event, readings_of, record_of
from tiltmeter.page.actions import unanswered
from tiltmeter.page.book import Book
from tiltmeter.page.history import History
from tiltmeter.page.plots import panel
from tiltmeter.page.proof import exemplars, paid_most
from tiltmeter.page.series import Range, Wanted, drawn, pick
from tiltmeter.page.words import findings, finite, short
from tiltmeter.records import Alarm
from tiltmeter.signing import make_token
from tiltmeter.store import RunDirectory
from tiltmeter.story import Note, Said, Story, alarm_id, watched

TEXT = 300
REASON = 200  # characters of a reason: a request must fit into its file, however it is written
POINTS = 290  # of an evidence curve; its ends and extremes come on top
PROOFS = 12
WEEK = 7 * 86_400.0  # a note may wait so long for a monitor
FACT = "The worth of a canary is known, so this is a fact and no statistic; it takes nothing from the bound on gold."
SAID = {"acknowledge": "acknowledged", "mute": "muted", "false_alarm": "called false"}


def alarms(book: Book) -> dict[str, Any]:
    """Every alarm and warning there was: open ones first, alarms before warnings, the newest first."""
    with book.lock:
        _ = book.verdict  # a book that was just opened is read first
        rows = alarm_rows(book)
        rows.sort(key=lambda row: (row["status"] in ("resolved", "false"), row["tier"], -row["attempt"], -row["step"]))
        return {"rows": rows, "promise": promise(book.story)}


def alarm(book: Book, name: str) -> dict[str, Any] | None:
    """One alarm with its evidence as it grew until it was raised, what it watches, and completions that show it.

    None if the run has no alarm of this id. Warnings have no evidence curve: they bet on no gold.
    """
    with book.lock:
        _ = book.verdict
        found = next((told[0][2] for told in book.story.alarms.values() if alarm_id(told[0][2]) == name), None)
        if found is None:
            return None
        return {
            "alarm": alarm_rows(book, [found])[0],
            "promise": FACT if found.detector == Canary.name else promise(book.story, found.tier),
            "evidence": _curve(book, found),
            "readings": _readings(book, found),
            "exemplars": _shown(book, found),
        }


def promise(story: Story, tier: str = "alarm") -> str:
    """What the bound on false alarms is, in words."""
    if tier == "warning":
        return "A warning has a measured rate of false alarms and no proved bound; it often has an innocent cause."
    alpha = sum(float(part["alpha"]) for part in story.detectors if part["tier"] == "alarm")
    if not alpha:
        return "No alarm detector is set up."
    return (
        f"While gold is not being lost, the chance of any alarm in the whole run is at most {100 * alpha:.3g} %, "
        "however often it is looked at."
    )


@dataclass
class Evidence:
    """The alarm's evidence after each event that it bet on, by feeding a ledger of its own what the journal says.

    Feed it every event, in order. `curves` has, by alarm, the points since the ledger was last armed up to the one at
    which the alarm was raised: labels so far, step, log odds.
    """

    curves: dict[str, list[tuple[int, int, float]]] = field(default_factory=dict)
    ledger: Ledger | None = None
    labels: int = 0
    _points: list[tuple[int, int, float]] = field(default_factory=list)

    def add(self, event: Event) -> None:
        if "detectors" in event.data and event.kind in ("attempt", "note"):
            self._promised(event)
        if self.ledger is None:
            return
        if event.kind in ("reading", "step_done"):
            self.ledger.rewind(event.attempt, event.step)  # does nothing after an attempt's first step
        if "measured" in event.data:
            self._feed(event, self.ledger)
        elif event.kind == "alarm" and event.data["detector"] == self.ledger.name:
            self._alarm(event, self.ledger)

    def _promised(self, event: Event) -> None:
        for part in event.data["detectors"]:
            if part["name"] == Ledger.name:
                self.ledger = self.ledger or Ledger()
                self.ledger.alpha = float(part["alpha"])

    def _feed(self, event: Event, ledger: Ledger) -> None:
        told = [*readings_of(event), *readings_of(event, "derived")]
        bet = [reading for reading in told if watched(reading.name, ledger.watches)]
        given = next((reading.n for reading in told if reading.name == "gold.mean"), None)
        spent = event.data.get("answered", sum(reading.n for reading in bet) if given is None else given)
        self.labels += int(spent)
        if not bet or ledger.standing is not None:
            return
        for reading in bet:
            try:
                with np.errstate(all="ignore"):
                    ledger.update(reading)
            except ValueError:
                continue  # on record as a fault of that step
        self._points.append((self.labels, event.step, ledger.evidence))

    def _alarm(self, event: Event, ledger: Ledger) -> None:
        told = record_of(event)
        assert isinstance(told, Alarm)
        if told.resolved is None:
            self.curves[alarm_id(told)] = self._points
        else:
            if ledger.rewind(event.attempt, told.resolved) is None:
                ledger.dismiss(told.resolved)
            self._points = []


def _curve(book: Book, found: Alarm) -> dict[str, Any]:
    points = book.folded("evidence", Evidence).curves.get(alarm_id(found), []) if found.tier == "alarm" else []
    return curve(points, found.threshold)


def curve(points: Sequence[tuple[int, int, float]], threshold: float) -> dict[str, Any]:
    """An evidence curve of at most 300 points; the last is the one at which the alarm was raised."""
    kept = pick(np.array([odds for _, _, odds in points], np.float64), POINTS).tolist()
    return {
        "labels": [points[at][0] for at in kept],
        "steps": [points[at][1] for at in kept],
        "odds": [points[at][2] for at in kept],
        "threshold": threshold,
        "raised": len(kept) - 1,
    }


def _readings(book: Book, found: Alarm) -> dict[str, Any]:
    """What the alarm watches, over the whole run."""
    role = "gold" if found.name.startswith(("gold.", "eval.")) else "plain"
    lines = drawn(book, [Wanted(found.name, role=role, interval=True)], Range())  # type: ignore[arg-type]
    sentence = f"{found.name}; raised at step {found.step}, since about step {found.onset}."
    return panel("What it watches", sentence, lines, left=found.name)


def _shown(book: Book, found: Alarm) -> list[dict[str, Any]]:
    """Completions of findings that name the alarm, then those of the step of its data that are paid most for least."""
    rows = [tuple(row) for told in findings(book.story) if found.name in told.alarms for row in told.exemplars]
    rows += paid_most(book, found.attempt, found.data_step, PROOFS)
    return exemplars(book, dict.fromkeys(rows), PROOFS)


def say(
    run: RunDirectory, story: Story, about: str, kind: Said, *, reason: str = "", until: int | None = None,
    nonce: str = "",
) -> Request:  # fmt: skip
    """Sign and leave an operator's note about an alarm or warning, for the monitor to write down.

    Raises `StoreError` if it says nothing that can be noted, `AttachError` for whoever may not. The same `nonce` twice
    is refused.
    """
    found = next((told[-1][2] for told in story.alarms.values() if alarm_id(told[0][2]) == about), None)
    if found is None or story.attempt is None:
        raise StoreError(f"{run.path} has no alarm {about!r}; see: tiltmeter alarms {run.path}")
    if kind == "false_alarm" and not reason.strip():
        raise StoreError("say why it is false: a reason stays on record with it")
    if kind == "false_alarm" and found.tier == "alarm" and found.resolved is not None:
        raise StoreError(f"alarm {about} was resolved at step {found.resolved}: there is nothing to dismiss")
    if (kind == "mute") != (until is not None) or (until is not None and until <= story.last_step):
        raise StoreError(f"a mute, and nothing else, ends at a step after {story.last_step}: name that step")
    if len(reason) > REASON:
        raise StoreError(f"a reason has at most {REASON} characters, this has {len(reason)}: shorten it")
    name = hashlib.sha256(nonce.encode()).hexdigest()[:16] if nonce else secrets.token_hex(8)
    note = Note(about, kind, until, reason.strip())
    request = Request(
        f"note-{name}", about, story.attempt, "note", 0.0, "note", "operator",
        expires_time=time.time() + WEEK, text=note.text(),
    )  # fmt: skip
    if (run.path / "run.json").stat().st_uid != os.geteuid():
        raise AttachError(f"{run.path} belongs to another user: only who started the run may leave notes")
    try:
        ask(run, request, make_token(run))
    except FileExistsError:
        raise StoreError("that was said already: wait for the monitor to write it down") from None
    return request


def alarm_rows(book: Book, which: list[Alarm] | None = None) -> list[dict[str, Any]]:
    """Rows of these alarms, one per fingerprint with its newest alarm; without `which`, of all there ever were."""
    story = book.story
    groups: dict[tuple[str, ...], list[Alarm]] = {}
    for told in story.alarms.values():
        alarm = told[0][2]
        groups.setdefault(_fingerprint(alarm), []).append(alarm)
    found = [raised[-1] for raised in groups.values()] if which is None else which
    now_open = {alarm_id(alarm) for tier in ("alarm", "warning") for alarm in story.open(tier)}
    rows = [_row(story, alarm, groups.get(_fingerprint(alarm), [alarm]), now_open) for alarm in found]
    waiting = _waiting(book) if rows else {}
    for row in rows:
        if row["id"] in waiting:
            row["said"] = short(f"{_said(waiting[row['id']])} (waiting for the monitor to write it down)", TEXT)
    return rows


def _waiting(book: Book) -> dict[str, Note]:
    """By alarm, what an operator has said and no monitor has written down yet."""
    asked = unanswered(book, book.folded("history", History))
    notes = [Note.read(request.text) for request in asked if request.kind == "note"]
    return {note.about: note for note in notes if note is not None}


def _fingerprint(alarm: Alarm) -> tuple[str, ...]:
    return alarm.tier, alarm.name, alarm.detector, alarm.direction


def _row(story: Story, alarm: Alarm, raised: list[Alarm], now_open: set[str]) -> dict[str, Any]:
    name = alarm_id(alarm)
    key = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
    resolved = next((told.resolved for _, _, told in story.alarms.get(key, ()) if told.resolved is not None), None)
    status, note = _status(story, name, raised, name in now_open)
    return {
        "id": name,
        "tier": alarm.tier,
        "name": alarm.name,
        "detector": alarm.detector,
        "attempt": alarm.attempt,
        "step": alarm.step,
        "onset": alarm.onset,
        "onset_low": alarm.onset_low,
        "onset_high": alarm.onset_high,
        # A fact has no odds.
        "evidence": None if alarm.detector == Canary.name else finite(alarm.evidence),
        "threshold": None if alarm.detector == Canary.name else finite(alarm.threshold),
        "summary": short(alarm.summary, TEXT),
        "resolved": resolved,
        "count": len(raised),
        "status": status,
        "said": _said(note),
    }


def _status(story: Story, name: str, raised: list[Alarm], is_open: bool) -> tuple[str, Note | None]:
    """How a row is shown, and the note that says so. A mute holds for the whole fingerprint until its step."""
    said = story.notes.get(name, [])
    note = said[-1] if said else None
    plain = "open" if is_open else "resolved"
    if note is not None and note.kind == "false_alarm":
        return "false", note
    mutes = [told for alarm in raised for told in story.notes.get(alarm_id(alarm), ()) if told.kind == "mute"]
    held = [told for told in mutes if told.until is not None and told.until > story.last_step]
    if held and is_open:
        return "muted", held[-1]
    if note is not None and note.kind == "acknowledge":
        return ("acknowledged" if is_open else plain), note
    return plain, note


def _said(note: Note | None) -> str:
    if note is None:
        return ""
    until = "" if note.until is None else f" until step {note.until}"
    return short(f"{SAID[note.kind]}{until}{f': {note.reason}' if note.reason else ''}", TEXT)
