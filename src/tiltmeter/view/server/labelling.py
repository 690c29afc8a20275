"""The labelling screen: the next blind task of a rater, storing an answer, and undoing it."""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from tiltmeter.gold.label_files import PEOPLE, asks_people
from tiltmeter.gold.people import (
    LONGEST_NAME,
    PAIR,
    SINGLE,
    RaterAnswer,
    store_answer,
    undo_answer,
)
from tiltmeter.rundir.run_path import open_file
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.payloads.people import LabelTask, RaterAgreement, RaterConsistency
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server.access import RequestError, ensure_private_folder, load_or_create_secret
from tiltmeter.view.server.labelling_tasks import LabelItem, LabelSession, LabelStep

COMMAND = f"tiltmeter watch RUN --gold {PEOPLE}"
REPEAT_EVERY = 9  # pairs of a rater after which one is repeated with sides swapped: one task in ten
MOST_ISSUED = 4096
LONGEST_GUIDE = 20_000  # bytes
LONGEST_LOOK = 10**9  # milliseconds

KEYS = "Where only one answer is shown, key 1 is useless and key 5 is flawless."

_log = logging.getLogger("tiltmeter.view.server")


def default_guide() -> str:
    """The part of the `tiltmeter data preferences --guide` text that is for raters."""
    whole = (files("tiltmeter.gold") / "guide.md").read_text("utf-8")
    return whole.partition("\n## How to judge\n")[2].partition("\n## ")[0].strip()


GUIDE = f"{default_guide()}\n{KEYS}"

_LOCK = threading.RLock()
_SESSIONS: dict[str, LabelSession] = {}  # by run
_ASSIGNMENTS: OrderedDict[tuple[str, str], tuple[str, Assignment]] = (
    OrderedDict()
)  # run and assignment, by rater and task


@dataclass(frozen=True, eq=False)
class Assignment:
    """An item as it is shown to one rater."""

    step: LabelStep
    shown: tuple[int, ...]  # numbers of the labels, A first
    repeat: bool = False


def next_task(readers: Iterable[RunReader], rater: str, why: str = "") -> LabelTask:
    """The next task of this rater, or why there is none. Repeated calls return the same task.

    Steps come in the order in which they were drawn, because their labels close in that order; within a step the order
    depends on the rater. A task shows no reward, no time and no run.
    """
    with _LOCK:
        sessions = _open_sessions(readers, rater)
        task = _due_repeat(sessions, rater) or _next_open_item(sessions, rater)
        return _no_task(sessions, rater, why) if task is None else _issue_task(sessions, rater, *task, why)


def submit_answer(readers: Iterable[RunReader], rater: str, task: str, value: str, milliseconds: int) -> LabelTask:
    """Store an answer and return the next task. Of two answers to one task the first counts until it is undone."""
    with _LOCK:
        readers = list(readers)
        sessions = _open_sessions(readers, rater)
        session, assignment = _find_assignment(sessions, rater, task)
        allowed = PAIR if len(assignment.shown) == 2 else SINGLE
        if value not in allowed:
            raise RequestError(400, f"this is answered by one of {', '.join(allowed)}")
        before = [reply for reply in assignment.step.answers.read_new().standing if reply.rater == rater]
        if not any(_is_reply_to(reply, assignment.shown, assignment.repeat) for reply in before):
            try:
                took = min(max(int(milliseconds), 0), LONGEST_LOOK)
                mark = hashlib.sha256(_read_guide(session).encode()).hexdigest()[:8]
                request = assignment.step.request
                store_answer(
                    session.run,
                    request,
                    rater,
                    assignment.shown,
                    value,
                    milliseconds=took,
                    repeat=assignment.repeat,
                    guide=mark,
                )
            except OSError as error:
                raise RequestError(507, f"the answer could not be stored: {error.strerror}; try again") from None
        return next_task(readers, rater)


def undo(readers: Iterable[RunReader], rater: str) -> LabelTask:
    """Undo this rater's last answer and return its task again. Both files stay.

    If the step's labels are closed already, the undo is stored without effect, and the next task is returned.
    """
    with _LOCK:
        readers = list(readers)
        sessions = _open_sessions(readers, rater)
        own_replies = _replies_of(sessions, rater)
        if not own_replies:
            return next_task(readers, rater, "There is no answer to take back.")
        session, step, reply = own_replies[-1]
        try:
            undo_answer(session.run, step.request, reply)
        except OSError as error:
            raise RequestError(507, f"it could not be taken back: {error.strerror}; try again") from None
        step.answers.read_new()
        if not session.is_open(step):
            return next_task(readers, rater, "The labels of that one are closed: it was used as it was.")
        return _issue_task(sessions, rater, session, Assignment(step, reply.shown, reply.repeat), "")


def _open_sessions(readers: Iterable[RunReader], rater: str) -> list[LabelSession]:
    """The up-to-date label sessions of the runs whose gold source is people."""
    if not rater or len(rater) > LONGEST_NAME:
        raise RequestError(400, f"a rater has a name of 1 to {LONGEST_NAME} characters")
    sessions = []
    for reader in readers:
        try:
            session = _session_for(reader)
        except Exception as error:  # noqa: BLE001  # an unreadable run must not block the others
            _log.warning("no tasks of %s: %s: %s", reader.id, type(error).__name__, log_line(str(error), 200))
            continue
        sessions += [session] if session is not None else []
    return sessions


def _session_for(reader: RunReader) -> LabelSession | None:
    with reader.lock:
        reader.refresh()
        gold, waiting = reader.run_facts.gold, sorted(reader.run_facts.unlabelled)
    if gold is None or not asks_people(gold):
        return None
    session = _SESSIONS.get(reader.id)
    if session is None or session.identity != reader.run.identity():  # another run under the same path
        session = _SESSIONS[reader.id] = LabelSession(reader.run)
    session.update(waiting)
    return session


# -- choice of the item -----------------------------------------------------------------------------------------------


def _next_open_item(sessions: Sequence[LabelSession], rater: str) -> tuple[LabelSession, Assignment] | None:
    """The first item that is open for a rater: oldest step first, hand-picked rollouts last."""
    waiting = [(session, step) for session in sessions for step in session.open_steps()]
    for session, step in sorted(waiting, key=lambda one: (one[1].picked, one[1].request.time)):
        items = session.items(step)
        for item in sorted(_items_open_for(step, items, rater), key=lambda one: _task_id(session, step, one, rater)):
            if session.texts(step, item) is not None:
                return session, Assignment(step, _order_sides(session, step, item, rater))
    return None


def _items_open_for(step: LabelStep, items: Iterable[LabelItem], rater: str) -> list[LabelItem]:
    """The items that this rater has not answered and that need more raters."""
    replies = [reply for reply in step.answers.standing if not reply.repeat]
    own_items = {frozenset(reply.shown) for reply in replies if reply.rater == rater}
    raters = Counter(frozenset(reply.shown) for reply in replies)
    return [item for item in items if frozenset(item) not in own_items and raters[frozenset(item)] < step.raters]


def _replies_of(sessions: Sequence[LabelSession], rater: str) -> list[tuple[LabelSession, LabelStep, RaterAnswer]]:
    """A rater's answers that were not undone, oldest first."""
    replies = [
        (session, step, reply)
        for session in sessions
        for step in session.steps.values()
        for reply in step.answers.standing
        if reply.rater == rater
    ]
    return sorted(replies, key=lambda entry: (entry[2].time, entry[2].file))


def _due_repeat(sessions: Sequence[LabelSession], rater: str) -> tuple[LabelSession, Assignment] | None:
    """An earlier pair of the rater's with sides swapped, when one is due."""
    own_pairs = [entry for entry in _replies_of(sessions, rater) if len(entry[2].shown) == 2]
    repeated = {(id(step), frozenset(reply.shown)) for _, step, reply in own_pairs if reply.repeat}
    first = [entry for entry in own_pairs if not entry[2].repeat]
    if len(first) // REPEAT_EVERY <= len(repeated):
        return None
    # Not the last few, which the rater may remember.
    old = [
        entry
        for entry in first[:-3]
        if entry[2].answer != "skip" and (id(entry[1]), frozenset(entry[2].shown)) not in repeated
    ]
    for session, step, reply in sorted(
        old, key=lambda entry: _task_id(entry[0], entry[1], entry[2].shown, rater, repeat=True)
    ):
        if session.texts(step, reply.shown) is not None:
            return session, Assignment(step, reply.shown[::-1], repeat=True)
    return None


def _find_assignment(sessions: Sequence[LabelSession], rater: str, task: str) -> tuple[LabelSession, Assignment]:
    """The assignment with this task id: one that was issued, or after a server restart one that would be."""
    run, assignment = _ASSIGNMENTS.get((rater, task), ("", None))
    for session in sessions:
        if assignment is not None and session.key == run:
            return session, assignment
    for session in sessions:
        for step in session.open_steps():
            for item in session.items(step):
                if hmac.compare_digest(_task_id(session, step, item, rater), task):
                    return session, Assignment(step, _order_sides(session, step, item, rater))
    repeat = _due_repeat(sessions, rater)
    if repeat is not None and hmac.compare_digest(
        _task_id(repeat[0], repeat[1].step, repeat[1].shown, rater, True), task
    ):
        return repeat
    raise RequestError(404, "this task is not known here any more: go on with the next one")


def _is_reply_to(reply: RaterAnswer, numbers: Sequence[int], repeat: bool) -> bool:
    return frozenset(reply.shown) == frozenset(numbers) and reply.repeat == repeat


# -- task as it is sent -----------------------------------------------------------------------------------------------


def _issue_task(
    sessions: Sequence[LabelSession], rater: str, session: LabelSession, assignment: Assignment, why: str
) -> LabelTask:
    prompt, texts = session.texts(assignment.step, assignment.shown) or (None, [])
    task = _task_id(session, assignment.step, assignment.shown, rater, assignment.repeat)
    _ASSIGNMENTS[rater, task] = (session.key, assignment)
    _ASSIGNMENTS.move_to_end((rater, task))
    while len(_ASSIGNMENTS) > MOST_ISSUED:
        _ASSIGNMENTS.popitem(last=False)
    if not why and not session.at_work:
        why = f"No monitor is at work on this machine. Answers are kept; to have them counted: {COMMAND}"
    return LabelTask(
        task=task,
        kind="pair" if len(assignment.shown) == 2 else "single",
        prompt=prompt,
        texts=texts,
        done=_answered_today(sessions, rater),
        left=_tasks_left(sessions, rater),
        guide=_read_guide(session),
        why=why,
        rater=rater,
        agreement=[],
        consistency=None,
    )


def _no_task(sessions: Sequence[LabelSession], rater: str, why: str) -> LabelTask:
    reasons = [why] if why else []
    if not sessions:
        reasons.append(f'No run here asks people. Open it with gold="{PEOPLE}", or follow it with: {COMMAND}')
    else:
        waiting = [session for session in sessions if session.waiting]
        reasons.append("Nothing is left for you to judge now; more comes while training runs.")
        if any(not session.at_work for session in waiting):
            reasons.append(f"No monitor is at work on this machine. To have the answers counted: {COMMAND}")
    guide = _read_guide(sessions[0]) if len(sessions) == 1 else GUIDE
    return LabelTask(
        task="",
        kind="",
        prompt=None,
        texts=[],
        done=_answered_today(sessions, rater),
        left=0,
        guide=guide,
        why=" ".join(reasons),
        rater=rater,
        agreement=_agreement(sessions, rater),
        consistency=_consistency(sessions, rater),
    )


def _tasks_left(sessions: Sequence[LabelSession], rater: str) -> int:
    """How many tasks are left for a rater, including future repeats, so that repeats cannot be recognized."""
    open_ = sum(
        len(_items_open_for(step, session.likely_items(step), rater))
        for session in sessions
        for step in session.open_steps()
    )
    own_pairs = [reply for _, _, reply in _replies_of(sessions, rater) if len(reply.shown) == 2]
    repeats = sum(reply.repeat for reply in own_pairs)
    return max(open_ + max((len(own_pairs) - repeats + open_) // REPEAT_EVERY - repeats, 0), 1)


def _answered_today(sessions: Sequence[LabelSession], rater: str) -> int:
    day = time.localtime()[:3]
    return sum(time.localtime(reply.time)[:3] == day for _, _, reply in _replies_of(sessions, rater))


def _agreement(sessions: Sequence[LabelSession], rater: str) -> list[RaterAgreement]:
    """For each other rater, how many of the items that both judged got the same answer."""
    same: Counter[str] = Counter()
    both: Counter[str] = Counter()
    for step in (step for session in sessions for step in session.steps.values()):
        replies = [reply for reply in step.answers.standing if not reply.repeat and reply.values]
        own_values = {frozenset(reply.shown): reply.values for reply in replies if reply.rater == rater}
        for reply in replies:
            if reply.rater != rater and (own := own_values.get(frozenset(reply.shown))) is not None:
                both[reply.rater] += 1
                same[reply.rater] += own == reply.values
    return [RaterAgreement(rater=name, same=same[name], of=both[name]) for name in sorted(both)]


def _consistency(sessions: Sequence[LabelSession], rater: str) -> RaterConsistency | None:
    """How many of the repeated pairs got the same answer from the rater."""
    same = of = 0
    for step in (step for session in sessions for step in session.steps.values()):
        replies = [reply for reply in step.answers.standing if reply.rater == rater and reply.values]
        first = {frozenset(reply.shown): reply.values for reply in replies if not reply.repeat}
        for reply in replies:
            if reply.repeat and frozenset(reply.shown) in first:
                of += 1
                same += first[frozenset(reply.shown)] == reply.values
    return RaterConsistency(same=same, of=of) if of else None


def _read_guide(session: LabelSession) -> str:
    """The labelling guide: the run's own `guide.md` or `guide.txt`, else the default."""
    for name in ("guide.md", "guide.txt"):
        try:
            handle = open_file(session.run.path / name)
        except OSError:
            continue
        try:
            text = os.read(handle, LONGEST_GUIDE).decode("utf-8", "replace")
        except OSError:
            continue
        finally:
            os.close(handle)
        if text.strip():
            return text
    return GUIDE


# -- ids and sides ---------------------------------------------------------------------------------------------------


def _task_id(session: LabelSession, step: LabelStep, item: LabelItem, rater: str, repeat: bool = False) -> str:
    """The id of a task: a keyed hash that reveals nothing and is the same after a restart."""
    facts = [session.key, step.request.digest, step.request.attempt, step.request.step, sorted(item), rater, repeat]
    return hmac.new(_labelling_secret(), json.dumps(facts).encode(), hashlib.sha256).hexdigest()[:32]


def _order_sides(session: LabelSession, step: LabelStep, item: LabelItem, rater: str) -> tuple[int, ...]:
    """Which side is A, by a keyed coin flip for this rater and item."""
    name = _task_id(session, step, item, rater)
    coin = hmac.new(_labelling_secret(), f"side {name}".encode(), hashlib.sha256).digest()[0] & 1
    return tuple(sorted(item, reverse=bool(coin)))


def _labelling_secret() -> bytes:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return _secret_in(Path(home) / "tiltmeter" / "dashboard")


@cache
def _secret_in(folder: Path) -> bytes:
    ensure_private_folder(folder)
    return load_or_create_secret(folder / "labelling.secret").encode()
