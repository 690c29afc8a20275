"""The actions of a run for page and CLI: the knobs, the action log with outcomes, and requests of an operator."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from tiltmeter.data.records import Action, Alarm, Finding, Reading
from tiltmeter.diagnosis import FAILURES, knobs_for
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.interventions.action_log import OPEN
from tiltmeter.interventions.outcome import WATCHED
from tiltmeter.interventions.policy import GAIN, PATIENCE, InterventionPolicy, onsets
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.payloads import AttemptOpen, ReceiptRead
from tiltmeter.rundir.receipts import answered_ids, read_receipts
from tiltmeter.rundir.requests import (
    ENDED,
    ControlOffer,
    ControlRequest,
    Kind,
    parse_receipt,
    read_knobs,
    read_requests,
    request_for,
    write_request,
)
from tiltmeter.rundir.run_path import is_folder
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.alarms import Actions, KnobRow
from tiltmeter.view.payloads.overview import ActionRequest, ActionRow
from tiltmeter.view.screens.history import RunHistory, build_history
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.wording import describe_change, finite_or_none, format_number, truncate

HOUR = 3600.0  # how long a request to undo stays valid
CHECKPOINT = "training.checkpoint"
POLICY_READINGS = frozenset({*WATCHED, CHECKPOINT})
MOST = 500  # newest actions that the page lists; the KL controller makes thousands
#: By kind of request, the states in which an action accepts it.
ALLOWED: Mapping[ActionRequest, Sequence[str]] = {"approve": OPEN, "reject": OPEN, "undo": ("applied",)}


def actions(reader: RunReader) -> Actions:
    """The action log, newest first, the knobs with their current values, and what mode act would request now."""
    with reader.lock:
        _ = reader.verdict  # reads the run if it was just opened
        history = reader.get_fold("history", RunHistory)
        offer = current_offer(reader, history)
        rows = action_rows(reader, list(history.actions.values())[-MOST:])
        dry_run = reader.get_fold("rehearsal", lambda: InterventionDryRun(reader.run))
        return Actions(
            rows=rows[::-1],
            mode="" if offer is None else offer.mode,
            knobs=[] if offer is None else _knobs(offer, history, reader.run_facts.attempt),
            dry_run=[describe_request(request) for request in reader.cache_until_event("rehearsed", dry_run.requests)],
        )


def current_offer(reader: RunReader, history: RunHistory) -> ControlOffer | None:
    """The knobs that the newest attempt's trainer offers; None if it offers none or has not published them yet."""
    attempt = reader.run_facts.attempt
    facts = {} if attempt is None else _offer_facts(reader, history, attempt)
    return ControlOffer.of(facts) if facts else None


def _offer_facts(reader: RunReader, history: RunHistory, attempt: int) -> Mapping[str, Any]:
    """The offer from the journal, or else as the trainer published it; empty if nothing can be changed."""
    if attempt not in history.knob_offers:
        try:
            history.knob_offers[attempt] = read_knobs(reader.run, attempt).facts()
        except StoreError:
            return {}
    return history.knob_offers[attempt]


def action_rows(reader: RunReader, actions: Iterable[Mapping[str, Any]]) -> list[ActionRow]:
    """Actions as the page lists them, in the order given."""
    actions = list(actions)
    history = reader.get_fold("history", RunHistory)
    refused = _undo_refused(reader.run) if actions else {}
    pending_rows = pending_requests(reader, history) if actions else {}
    rows = []
    for row in actions:
        pending_kind = pending_rows.get(row["id"], "")
        sentence = row["sentence"] or ""
        if why := refused.get(row["id"]):
            sentence = f"{sentence}; undo refused: {why}".removeprefix("; ")
        offer = _offer_facts(reader, history, row["attempt"])
        is_running = row["attempt"] == reader.run_facts.attempt and row["attempt"] not in reader.run_facts.ended
        # A request can be made once, and only for the attempt that is running.
        can_request = is_running and not pending_kind and offer.get("mode") in ("advise", "act")
        rows.append(_row(row, offer, can_request, pending_kind, sentence))
    return rows


def _row(
    row: Mapping[str, Any], offer: Mapping[str, Any], can_request: bool, pending_kind: str, sentence: str
) -> ActionRow:
    knob: Mapping[str, Any] = next((knob for knob in offer.get("knobs", ()) if knob["name"] == row["knob"]), {})
    allowed = [kind for kind, states in ALLOWED.items() if can_request and row["state"] in states]
    if row["knob"] in ("stop", "rollback"):
        allowed = [kind for kind in allowed if kind != "undo"]
    return ActionRow(
        id=row["id"],
        attempt=row["attempt"],
        step=row["step"],
        state_step=row["told"],
        finding=row["finding"],
        knob=row["knob"],
        state=row["state"],
        time=row["time"] or None,
        before=finite_or_none(row["before"]),
        after=finite_or_none(row["after"]),
        change=describe_change(row),
        floor=finite_or_none(knob.get("floor")),
        ceiling=finite_or_none(knob.get("ceiling")),
        reason=truncate(str(row["reason"]), 400),
        pending=pending_kind,
        outcome=truncate(sentence, 400),
        can=allowed,
    )


def pending_requests(reader: RunReader, history: RunHistory) -> dict[str, str]:
    """By action, the kind of the operator request that is not answered yet."""
    return {request.action: request.kind for request in unanswered_requests(reader, history) if request.kind != "note"}


def unanswered_requests(reader: RunReader, history: RunHistory) -> list[ControlRequest]:
    """Signed operator requests that the trainer or the monitor has not answered. Without read access to the run's
    token the list is empty, because signatures cannot be checked."""
    if not (reader.run.path / "control" / "requests").is_dir() or reader.run_facts.attempt is None:
        return []
    try:
        token = read_token(reader.run)
    except AttachError:
        return []
    done_ids = answered_ids(reader.run) | history.decided_requests
    valid, _ = read_requests(
        reader.run,
        done_ids,
        token,
        attempt=reader.run_facts.attempt,
        step=reader.run_facts.last_step,
        mode="act",
        kinds=get_args(Kind),
    )
    return [request for request in valid if request.who == "operator"]


def _knobs(offer: ControlOffer, history: RunHistory, attempt: int | None) -> list[KnobRow]:
    """The knobs with their current values: as attached, then as changed by actions."""
    values = {name: knob.value for name, knob in offer.knobs.items()}
    ended: dict[str, str] = {}
    for row in sorted(history.actions.values(), key=lambda row: (row["time"], row["told"])):
        if row["attempt"] == attempt and row["state"] in ("applied", "reverted") and row["knob"] in values:
            values[row["knob"]] = row["after" if row["state"] == "applied" else "before"]
            if str(row["reason"]).startswith(ENDED):
                ended[row["knob"]] = truncate(str(row["reason"]), 400)
    return [
        KnobRow(
            name=name,
            value=finite_or_none(values[name]),
            floor=finite_or_none(knob.floor),
            ceiling=finite_or_none(knob.ceiling),
            why=ended.get(name, knob.why),
        )
        for name, knob in offer.knobs.items()
    ]


def list_actions(run: RunDirectory, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Every action in its newest state, oldest first, with its outcome and an undo that the trainer refused."""
    actions = build_history(events).actions
    for name, why in _undo_refused(run).items():
        if name in actions:
            actions[name]["undo_refused"] = why
    return [{key: value for key, value in row.items() if key != "time"} for row in actions.values()]


def _undo_refused(run: RunDirectory) -> dict[str, str]:
    """By action, why the trainer refused to undo it; nothing without the token that signed it."""
    refused: dict[str, str] = {}
    if not is_folder(run.path / "control" / "receipts"):
        return refused
    try:
        receipts, _ = read_receipts(run, set(), read_token(run))
    except AttachError:
        return refused
    for receipt in receipts:
        name, _, kind = receipt.id.rpartition(".")
        if kind == "undo" and receipt.state == "refused":
            refused[name] = receipt.why
    return refused


class InterventionDryRun:
    """A dry run of mode act: the journal is replayed to an intervention policy that may act."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._policy: InterventionPolicy | None = None
        self._findings: list[Finding] = []
        self._alarms: dict[tuple[object, ...], Alarm] = {}
        self._readings: list[Reading] = []
        self._checkpoints: dict[int, set[int]] = {}
        self._canaries = False

    def add(self, event: Event) -> None:
        policy = self._policy
        match event.payload:
            case AttemptOpen(gold=gold):
                self._enter_attempt(event.attempt, judged=bool((gold or {}).get("judged", False)))
            case Alarm() as alarm:
                key = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
                self._alarms.pop(key, None)
                if alarm.resolved is None:
                    self._alarms[key] = alarm
            case Finding() as finding:
                self._findings.append(finding)
            case Action() as action if policy is not None:
                policy.restore(action, event.step)
            case ReceiptRead(message=message) if policy is not None:
                policy.heard(parse_receipt(message), event.step)
        if "measured" in event.data:
            self._readings += _policy_readings(event)
            self._canaries = bool(event.data.get("canaries_pass", self._canaries))
        if event.kind == "step_done":
            self._finish_step(event.attempt, event.step)

    def _finish_step(self, attempt: int, step: int) -> None:
        checkpoints = self._checkpoints.setdefault(attempt, set())
        checkpoints |= {int(reading.value) for reading in self._readings if reading.name == CHECKPOINT}
        if self._policy is not None:
            onset_steps = onsets(self._findings, self._alarms.values())
            self._policy.consider(attempt, step, self._findings, self._readings, sorted(checkpoints), onset_steps)
            self._policy.judge_outcome(step)
        self._findings, self._readings = [], []

    def _enter_attempt(self, attempt: int, *, judged: bool) -> None:
        try:
            offer = read_knobs(self.run, attempt)
        except StoreError:
            return  # this trainer offers no knobs
        if self._policy is None:
            order = {failure: knobs_for(failure) for failure in FAILURES}
            ranks = int(self.run.attempt(attempt).get("ranks", 1))
            self._policy = InterventionPolicy(
                "act", offer.knobs, judged=judged, target_kl=offer.target_kl, order=order, ranks=ranks
            )
        self._policy.begin_attempt(attempt, "act", offer.knobs)

    def requests(self) -> list[ControlRequest]:
        """The requests it would make after the last step."""
        policy = self._policy
        return [] if policy is None else policy.requests(policy.open, canaries_pass=self._canaries)


def _policy_readings(event: Event) -> list[Reading]:
    """The readings of an event that the intervention policy uses; a long run has half a million others."""
    return [
        Reading(event.attempt, event.step, name, packed[0], packed[1], packed[2])
        for part in ("measured", "derived")
        for name, packed in event.data.get(part, {}).items()
        if name in POLICY_READINGS or name.startswith(GAIN)
    ]


def dry_run_requests(run: RunDirectory, events: Iterable[Event]) -> list[ControlRequest]:
    """The requests that mode act would make after the last step."""
    dry_run = InterventionDryRun(run)
    for event in events:
        dry_run.add(event)
    return dry_run.requests()


def submit_action_request(
    run: RunDirectory, name: str, kind: ActionRequest, events: Iterable[Event] | None = None, *, author: str = ""
) -> ControlRequest:
    """Sign and store an operator's request about an action: approve, reject or undo. Raises `StoreError` with the
    reason if the action does not allow it, and `AttachError` without permission."""
    states = ALLOWED[kind]
    rows = {row["id"]: row for row in list_actions(run, read_events(run.path / "events") if events is None else events)}
    if name not in rows:
        raise StoreError(f"{run.path} has no action {name!r}; see: tiltmeter approve {run.path}")
    row = rows[name]
    if row["state"] not in states:
        raise StoreError(f"{name} is {row['state']}, not {' or '.join(states)}: there is nothing to {kind}")
    if read_knobs(run, row["attempt"]).mode == "observe":
        raise StoreError(f"{run.path} is only observed: attach with mode='advise' to let changes be made")
    action = Action(**{key: row[key] for key in Action.__dataclass_fields__})
    until: dict[str, Any] = (
        {"expires_time": time.time() + HOUR} if kind == "undo" else {"expires_step": action.step + PATIENCE}
    )
    with_knob = {key: row[key] for key in ("with_knob", "with_value") if key in row}
    try:
        request = request_for(action, kind, "operator", **until, **with_knob, author=author)
        write_request(run, request, read_token(run))
    except ValueError as error:
        raise StoreError(str(error)) from None
    except FileExistsError:
        raise StoreError(f"that was asked already; see: tiltmeter approve {run.path}") from None
    return request


def describe_request(request: ControlRequest) -> str:
    """A request in words."""
    with_text = (
        "" if request.with_knob is None else f" with {request.with_knob} {format_number(request.with_value or 0.0)}"
    )
    return f"{request.kind} {request.action}: {request.knob} to {format_number(request.value)}{with_text}"
