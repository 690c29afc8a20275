"""Control requests from the page: a closed list of kinds, each request only once and only about recent steps."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from typing import Any

from tiltmeter.errors import TiltmeterError
from tiltmeter.rundir.remote.inbox import leave_file
from tiltmeter.rundir.requests import CHANGES
from tiltmeter.rundir.run_path import entries
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.payloads.people import Controlled
from tiltmeter.view.screens.actions import describe_request, submit_action_request
from tiltmeter.view.screens.alarms import submit_note
from tiltmeter.view.screens.reading_room.notes import KINDS, submit_entry
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.server.access import RequestError
from tiltmeter.view.server.state import ApiRequest

STALE_STEPS = 50
STALE_SECONDS = 900.0  # a fast run makes fifty steps within seconds
MOST_NONCES = 100_000
MOST_PICKED = 2000  # rollouts of a run that a person may ask a label for
ACTIONS = ("approve", "reject", "undo")
MUTE_STEPS = 50
LONGEST_REASON = 500
NOTES = ("acknowledge", "mute", "false_alarm")


def handle_control(request: ApiRequest) -> Controlled:
    """Check a request against the current state of the run, then store it for monitor and trainer."""
    state, params = request.state, request.params
    reader = request.reader()
    with state.lock:
        if params["nonce"] in state.nonces:
            raise RequestError(409, "this request was made before: reload and request it again")
        state.nonces[params["nonce"]] = None
        if len(state.nonces) > MOST_NONCES:
            del state.nonces[next(iter(state.nonces))]
    with reader.lock:
        reader.refresh(force=True)
        check_step(reader, params["step"])
    try:
        return execute(reader, params, request.person.name if request.person else "")
    except KeyError:
        raise RequestError(404, "this run has nothing with that id") from None
    except (TiltmeterError, ValueError) as error:
        raise RequestError(409, log_line(str(error))) from None
    except OSError as error:
        raise RequestError(507, f"this could not be stored: {error.strerror}; reload and request it again") from None


def execute(reader: RunReader, params: Mapping[str, Any], author: str = "") -> Controlled:
    kind, target, reason = params["kind"], params["target"], params["reason"]
    if kind not in KINDS and len(reason) > LONGEST_REASON:
        raise ValueError(f"a reason has at most {LONGEST_REASON} characters")
    if kind in ACTIONS:
        action_request = submit_action_request(reader.run, target, kind, reader.events, author=author)
        who = (
            "The trainer answers at the end of its step" if action_request.kind in CHANGES else "The monitor records it"
        )
        return Controlled(request=action_request.id, text=f"{describe_request(action_request)}: requested. {who}.")
    if kind in NOTES:
        with reader.lock:
            until = reader.run_facts.last_step + MUTE_STEPS if kind == "mute" else None
            note_request = submit_note(
                reader.run,
                reader.run_facts,
                target,
                kind,
                reason=reason,
                until=until,
                nonce=params["nonce"],
                author=author,
            )
        return Controlled(request=note_request.id, text="Noted. It is shown once the monitor has recorded it.")
    if kind in KINDS:
        return Controlled(request=target, text=submit_entry(reader, kind, target, reason, author))
    return request_label(reader, target, reason, author)


def check_step(reader: RunReader, step: int) -> None:
    """Refuse a request that was decided on an old step or on a future one."""
    last = reader.run_facts.last_step
    if step > last:
        raise RequestError(409, f"decided on step {step}, but the run is at step {last}: look again")
    if last - step <= STALE_STEPS:
        return
    step_time = next((e.time for e in reversed(reader.events) if e.kind == "step_done" and e.step == step), 0.0)
    if time.time() - step_time > STALE_SECONDS:
        raise RequestError(409, f"decided on step {step}, and the run is at step {last} now: look again")


def request_label(reader: RunReader, rollout: str, reason: str, author: str = "") -> Controlled:
    """Request a gold label of one rollout. It is stored apart from the random sample, and the test never uses it."""
    parts = rollout.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise KeyError(rollout)
    attempt, step, row = map(int, parts)
    files = reader.run.find(attempt, step) if attempt in reader.run.attempts() else []
    if row >= sum(len(reader.run.read(file, ("group",))[0]) for file in files):
        raise KeyError(rollout)
    if sum(1 for _ in entries(reader.run.path / "gold" / "picked")) >= MOST_PICKED:
        raise ValueError(f"{MOST_PICKED} rollouts were picked already: label those first")
    name = rollout_id(attempt, step, row)
    facts = {"rollout": name, "picked": True, "reason": reason, "time": time.time(), "id": secrets.token_hex(8)}
    facts |= {"author": author} if author else {}
    try:
        leave_file(reader.run, ("gold", "picked"), f"{name}.json", facts)
    except FileExistsError:
        raise ValueError("a label of this rollout was requested before") from None
    return Controlled(request=name, text="Requested. The label serves as evidence; the alarm test never uses it.")
