"""What could be changed in a run, what was, what came of it, and how a person asks for it: page and CLI share this."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from tiltmeter.control import Kind, Offer, Receipt, Request, answered, ask, read_knobs, receipts, request_for, requests
from tiltmeter.diagnosis import FAILURES, knobs_for
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.interventions.docket import OPEN
from tiltmeter.interventions.outcome import WATCHED
from tiltmeter.interventions.steward import GAIN, PATIENCE, Steward, onsets
from tiltmeter.journal import Event, read, record_of
from tiltmeter.page.book import Book
from tiltmeter.page.history import History, told
from tiltmeter.page.words import change, finite, number, short
from tiltmeter.records import Action, Alarm, Finding, Reading
from tiltmeter.signing import read_token
from tiltmeter.store import RunDirectory

HOUR = 3600.0  # how long an operator's request waits for the end of a step
CHECKPOINT = "training.checkpoint"
HEEDED = frozenset({*WATCHED, CHECKPOINT})
MOST = 500  # actions that a page lists, the newest: a controller makes thousands
#: By what an operator may ask, the states an action must be in.
ALLOWED: Mapping[str, Sequence[str]] = {"approve": OPEN, "reject": OPEN, "undo": ("applied",)}


def actions(book: Book) -> dict[str, Any]:
    """The log of actions, newest first, the knobs as they stand, and what mode act would ask for now."""
    with book.lock:
        _ = book.verdict  # a book that was just opened is read first
        history = book.folded("history", History)
        offer = offered(book, history)
        rows = action_rows(book, list(history.actions.values())[-MOST:])
        rehearsal = book.folded("rehearsal", lambda: Rehearsal(book.run))
        return {
            "rows": rows[::-1],
            "mode": "" if offer is None else offer.mode,
            "knobs": [] if offer is None else _knobs(offer, history, book.story.attempt),
            "dry_run": [wanted(request) for request in book.kept("rehearsed", rehearsal.requests)],
        }


def offered(book: Book, history: History) -> Offer | None:
    """What the newest attempt's trainer lets others change; None: nothing, or it has not said yet."""
    attempt = book.story.attempt
    facts = {} if attempt is None else _offer(book, history, attempt)
    return Offer.of(facts) if facts else None


def _offer(book: Book, history: History, attempt: int) -> Mapping[str, Any]:
    """As the journal has it, or while it has none as the trainer published it; empty: nothing can be changed."""
    if attempt not in history.offers:
        try:
            history.offers[attempt] = read_knobs(book.run, attempt).facts()
        except StoreError:
            return {}
    return history.offers[attempt]


def action_rows(book: Book, found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Actions as the page lists them, in the order given."""
    found = list(found)
    history = book.folded("history", History)
    refused = _undo_refused(book.run) if found else {}
    waiting = pending(book, history) if found else {}
    rows = []
    for row in found:
        asked = waiting.get(row["id"], "")
        sentence = row["sentence"] or ""
        if why := refused.get(row["id"]):
            sentence = f"{sentence}; undo refused: {why}".removeprefix("; ")
        offer = _offer(book, history, row["attempt"])
        runs = row["attempt"] == book.story.attempt and row["attempt"] not in book.story.ended
        # A request is for the attempt that runs, once.
        heard = runs and not asked and offer.get("mode") in ("advise", "act")
        rows.append(_row(row, offer, heard, asked, sentence))
    return rows


def _row(row: Mapping[str, Any], offer: Mapping[str, Any], heard: bool, asked: str, sentence: str) -> dict[str, Any]:
    knob: Mapping[str, Any] = next((knob for knob in offer.get("knobs", ()) if knob["name"] == row["knob"]), {})
    can = [kind for kind, states in ALLOWED.items() if heard and row["state"] in states]
    if row["knob"] in ("stop", "rollback"):
        can = [kind for kind in can if kind != "undo"]
    return {
        **{key: row[key] for key in ("id", "attempt", "step", "told", "finding", "knob", "state")},
        "time": row["time"] or None,
        **{side: finite(row[side]) for side in ("before", "after")},
        "change": change(row),
        **{side: finite(knob.get(side)) for side in ("floor", "ceiling")},
        "reason": short(str(row["reason"]), 400),
        "pending": asked,
        "outcome": short(sentence, 400),
        "can": can,
    }


def pending(book: Book, history: History) -> dict[str, str]:
    """By action, what a person asked and nobody has answered."""
    return {request.action: request.kind for request in unanswered(book, history) if request.kind != "note"}


def unanswered(book: Book, history: History) -> list[Request]:
    """Signed requests of operators that wait for the trainer or the monitor. Who may not read the run's token sees
    none: anybody could have put them there."""
    if not (book.run.path / "control" / "requests").is_dir() or book.story.attempt is None:
        return []
    try:
        token = read_token(book.run)
    except AttachError:
        return []
    known = answered(book.run) | history.decided
    good, _ = requests(
        book.run, known, token, attempt=book.story.attempt, step=book.story.last_step, mode="act", kinds=get_args(Kind)
    )
    return [request for request in good if request.who == "operator"]


def _knobs(offer: Offer, history: History, attempt: int | None) -> list[dict[str, Any]]:
    """The knobs with the values that actions have given them since attach."""
    values = {name: knob.value for name, knob in offer.knobs.items()}
    for row in sorted(history.actions.values(), key=lambda row: (row["time"], row["told"])):
        if row["attempt"] == attempt and row["state"] in ("applied", "reverted") and row["knob"] in values:
            values[row["knob"]] = row["after" if row["state"] == "applied" else "before"]
    return [
        {
            "name": name,
            "value": finite(values[name]),
            "floor": finite(knob.floor),
            "ceiling": finite(knob.ceiling),
            "why": knob.why,
        }
        for name, knob in offer.knobs.items()
    ]


def listed(run: RunDirectory, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Every action in its newest state, oldest first, with its outcome and an undo that the trainer refused."""
    found = told(events).actions
    for name, why in _undo_refused(run).items():
        if name in found:
            found[name]["undo_refused"] = why
    return [{key: value for key, value in row.items() if key != "time"} for row in found.values()]


def _undo_refused(run: RunDirectory) -> dict[str, str]:
    """By action, why the trainer refused to undo it."""
    refused = {}
    for receipt in receipts(run, set())[0]:
        name, _, kind = receipt.id.rpartition(".")
        if kind == "undo" and receipt.state == "refused":
            refused[name] = receipt.why
    return refused


class Rehearsal:
    """What mode act would ask for: the journal told to a steward that may act."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._steward: Steward | None = None
        self._findings: list[Finding] = []
        self._alarms: dict[tuple[object, ...], Alarm] = {}
        self._readings: list[Reading] = []
        self._saved: dict[int, set[int]] = {}
        self._canaries = False

    def add(self, event: Event) -> None:
        record = record_of(event) if event.kind in ("alarm", "finding", "action") else None
        steward = self._steward
        if event.kind == "attempt" and event.data["state"] == "open":
            gold = event.data.get("gold") or {}
            self._enter(event.attempt, judged=bool(gold.get("judged", False)))
        elif isinstance(record, Alarm):
            key = (record.attempt, record.name, record.detector, record.direction, record.step)
            self._alarms.pop(key, None)
            if record.resolved is None:
                self._alarms[key] = record
        elif isinstance(record, Finding):
            self._findings.append(record)
        elif isinstance(record, Action) and steward is not None:
            steward.recall(record, event.step)
        elif event.kind == "note" and event.data.get("note") == "receipt" and steward is not None:
            steward.heard(Receipt(**event.data["told"]), event.step)
        if "measured" in event.data:
            self._readings += _heeded(event)
            self._canaries = bool(event.data.get("canaries_pass", self._canaries))
        if event.kind == "step_done":
            self._step(event.attempt, event.step)

    def _step(self, attempt: int, step: int) -> None:
        saved = self._saved.setdefault(attempt, set())
        saved |= {int(reading.value) for reading in self._readings if reading.name == CHECKPOINT}
        if self._steward is not None:
            since = onsets(self._findings, self._alarms.values())
            self._steward.consider(attempt, step, self._findings, self._readings, sorted(saved), since)
            self._steward.judge_outcome(step)
        self._findings, self._readings = [], []

    def _enter(self, attempt: int, *, judged: bool) -> None:
        try:
            offer = read_knobs(self.run, attempt)
        except StoreError:
            return  # a loop that lets nothing be changed
        if self._steward is None:
            order = {failure: knobs_for(failure) for failure in FAILURES}
            ranks = int(self.run.attempt(attempt).get("ranks", 1))
            self._steward = Steward(
                "act", offer.knobs, judged=judged, target_kl=offer.target_kl, order=order, ranks=ranks
            )
        self._steward.enter(attempt, "act", offer.knobs)

    def requests(self) -> list[Request]:
        """What it would ask for after the last step."""
        steward = self._steward
        return [] if steward is None else steward.requests(steward.open, canaries_pass=self._canaries)


def _heeded(event: Event) -> list[Reading]:
    """The few readings of an event that a steward looks at: a long run has half a million others."""
    return [
        Reading(event.attempt, event.step, name, packed[0], packed[1], packed[2])
        for part in ("measured", "derived")
        for name, packed in event.data.get(part, {}).items()
        if name in HEEDED or name.startswith(GAIN)
    ]


def rehearsed(run: RunDirectory, events: Iterable[Event]) -> list[Request]:
    """What mode act would ask for after the last step."""
    rehearsal = Rehearsal(run)
    for event in events:
        rehearsal.add(event)
    return rehearsal.requests()


def operate(run: RunDirectory, name: str, kind: Kind, events: Iterable[Event] | None = None) -> Request:
    """Sign and leave an operator's request about an action: approve, reject or undo. Raises `StoreError` with the
    reason if there is nothing to ask, and `AttachError` for whoever may not ask."""
    states = ALLOWED[kind]
    rows = {row["id"]: row for row in listed(run, read(run.path / "events") if events is None else events)}
    if name not in rows:
        raise StoreError(f"{run.path} has no action {name!r}; see: tiltmeter actions {run.path}")
    row = rows[name]
    if row["state"] not in states:
        raise StoreError(f"{name} is {row['state']}, not {' or '.join(states)}: there is nothing to {kind}")
    if read_knobs(run, row["attempt"]).mode == "observe":
        raise StoreError(f"{run.path} is only observed: attach with mode='advise' to let changes be made")
    action = Action(**{key: row[key] for key in Action.__dataclass_fields__})
    until: dict[str, Any] = (
        {"expires_time": time.time() + HOUR} if kind == "undo" else {"expires_step": action.step + PATIENCE}
    )
    back = {key: row[key] for key in ("with_knob", "with_value") if key in row}
    try:
        request = request_for(action, kind, "operator", **until, **back)
        ask(run, request, read_token(run))
    except ValueError as error:
        raise StoreError(str(error)) from None
    except FileExistsError:
        raise StoreError(f"that was asked already; see: tiltmeter actions {run.path}") from None
    return request


def wanted(request: Request) -> str:
    """A request in words."""
    extra = "" if request.with_knob is None else f" with {request.with_knob} {number(request.with_value or 0.0)}"
    return f"{request.kind} {request.action}: {request.knob} to {number(request.value)}{extra}"
