"""What a person may ask of a run through the page: a closed list, each request once and not about what is past."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from tiltmeter.control import CHANGES
from tiltmeter.dashboard.access import RequestError
from tiltmeter.dashboard.site import Asked
from tiltmeter.durable import entries, publish, sync_folder
from tiltmeter.encode import log_line
from tiltmeter.errors import TiltmeterError
from tiltmeter.page.actions import operate, wanted
from tiltmeter.page.alarms import say
from tiltmeter.page.book import Book
from tiltmeter.page.samples import rollout_id

STALE_STEPS = 50
STALE_SECONDS = 900.0  # a fast run makes fifty steps while somebody reads a sentence
MOST_NONCES = 100_000
MOST_PICKED = 2000  # rollouts of a run that a person may ask a label for
ACTIONS = ("approve", "reject", "undo")
MUTE_STEPS = 50
NOTES = ("acknowledge", "mute", "false_alarm")


def control(asked: Asked) -> dict[str, Any]:
    """Check a request against what the run is now, then leave it where monitor and trainer look."""
    site, given = asked.site, asked.given
    book = asked.book()
    with site.lock:
        if given["nonce"] in site.nonces:
            raise RequestError(409, "this request was made before: look again and ask anew")
        site.nonces[given["nonce"]] = None
        if len(site.nonces) > MOST_NONCES:
            del site.nonces[next(iter(site.nonces))]
    with book.lock:
        book.refresh(impatient=True)
        check_step(book, given["step"])
    try:
        return carry_out(book, given)
    except KeyError:
        raise RequestError(404, "this run has nothing with that id") from None
    except (TiltmeterError, ValueError) as error:
        raise RequestError(409, log_line(str(error))) from None
    except OSError as error:
        raise RequestError(507, f"this could not be stored: {error.strerror}; look again, and ask anew") from None


def carry_out(book: Book, given: Mapping[str, Any]) -> dict[str, Any]:
    kind, target, reason = given["kind"], given["target"], given["reason"]
    if kind in ACTIONS:
        asked = operate(book.run, target, kind, book.events)
        who = "The trainer answers at the end of its step" if asked.kind in CHANGES else "The monitor writes it down"
        return {"request": asked.id, "text": f"{wanted(asked)}: asked. {who}."}
    if kind in NOTES:
        with book.lock:
            until = book.story.last_step + MUTE_STEPS if kind == "mute" else None
            left = say(book.run, book.story, target, kind, reason=reason, until=until, nonce=given["nonce"])
        return {"request": left.id, "text": "Noted. It is shown once the monitor has written it down."}
    return pick(book, target, reason)


def check_step(book: Book, step: int) -> None:
    """Refuse what was decided on a step that is long past, or that is yet to come."""
    last = book.story.last_step
    if step > last:
        raise RequestError(409, f"decided on step {step}, but the run is at step {last}: look again")
    if last - step <= STALE_STEPS:
        return
    seen = next((e.time for e in reversed(book.events) if e.kind == "step_done" and e.step == step), 0.0)
    if time.time() - seen > STALE_SECONDS:
        raise RequestError(409, f"decided on step {step}, and the run is at step {last} now: look again")


def pick(book: Book, rollout: str, reason: str) -> dict[str, Any]:
    """Ask for a gold label of one rollout. Kept apart from what the monitor drew: it is evidence, and never a bet."""
    parts = rollout.split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise KeyError(rollout)
    attempt, step, row = map(int, parts)
    files = book.run.find(attempt, step) if attempt in book.run.attempts() else []
    if row >= sum(len(book.run.read(file, ("group",))[0]) for file in files):
        raise KeyError(rollout)
    folder = book.run.path / "gold" / "picked"
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
    if sum(1 for _ in entries(folder)) >= MOST_PICKED:
        raise ValueError(f"{MOST_PICKED} rollouts were picked already: label those first")
    name = rollout_id(attempt, step, row)
    facts = {"rollout": name, "picked": True, "reason": reason, "time": time.time(), "id": secrets.token_hex(8)}
    try:
        publish(folder / f"{name}.json", [json.dumps(facts).encode("ascii")])
    except FileExistsError:
        raise ValueError("a label was asked for this one before") from None
    return {"request": name, "text": "Asked. The label serves as evidence; the alarm test never uses it."}
