"""The labelling screen's tasks, blind by construction: what is to be judged next, an answer, and taking it back."""

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
from typing import Any

from tiltmeter.dashboard.access import RequestError, make_secret, own_folder
from tiltmeter.dashboard.tasks import Room, Step, Thing
from tiltmeter.encode import log_line
from tiltmeter.gold.people import LONGEST_NAME, PAIR, PEOPLE, SINGLE, Said, say, take_back
from tiltmeter.page.book import Book

COMMAND = f"tiltmeter watch RUN --gold {PEOPLE}"
EVERY = 9  # pairs of a rater's own, after which one of them is shown again with sides swapped: one task in ten
MOST_ISSUED = 4096
LONGEST_GUIDE = 20_000  # bytes
LONGEST_LOOK = 10**9  # milliseconds

KEYS = "Where only one answer is shown, key 1 is useless and key 5 is flawless."

_log = logging.getLogger("tiltmeter.dashboard")


def shipped_guide() -> str:
    """What `tiltmeter preferences --guide` says to raters; the rest of it is for whoever asks them."""
    whole = (files("tiltmeter") / "preferences" / "guide.md").read_text("utf-8")
    return whole.partition("\n## How to judge\n")[2].partition("\n## ")[0].strip()


GUIDE = f"{shipped_guide()}\n{KEYS}"

_LOCK = threading.RLock()
_ROOMS: dict[str, Room] = {}  # by run
_ISSUED: OrderedDict[tuple[str, str], tuple[str, Offer]] = OrderedDict()  # run and offer, by rater and task


@dataclass(frozen=True, eq=False)
class Offer:
    """A thing as it is put to one rater."""

    step: Step
    shown: tuple[int, ...]  # numbers of the labels, A first
    repeat: bool = False


def next_task(books: Iterable[Book], rater: str, why: str = "") -> dict[str, Any]:
    """What this rater is to judge next, or why there is nothing. Asked again, it gives the same.

    Steps come in the order in which they were drawn, because that is the order in which their labels close; inside a
    step in an order of the rater's own. Nothing in it says what was paid, when it was written or in which run.
    """
    with _LOCK:
        rooms = _rooms(books, rater)
        found = _repeat(rooms, rater) or _first(rooms, rater)
        return _nothing(rooms, rater, why) if found is None else _payload(rooms, rater, *found, why)


def answer(books: Iterable[Book], rater: str, task: str, given: str, milliseconds: int) -> dict[str, Any]:
    """Store an answer, then the next task. Of two answers to one task the first stands until it is taken back."""
    with _LOCK:
        books = list(books)
        rooms = _rooms(books, rater)
        room, offer = _known(rooms, rater, task)
        allowed = PAIR if len(offer.shown) == 2 else SINGLE
        if given not in allowed:
            raise RequestError(400, f"this is answered by one of {', '.join(allowed)}")
        before = [said for said in offer.step.answers.look().standing if said.rater == rater]
        if not any(_same_thing(said, offer.shown, offer.repeat) for said in before):
            try:
                took = min(max(int(milliseconds), 0), LONGEST_LOOK)
                mark = hashlib.sha256(_guide(room).encode()).hexdigest()[:8]
                asked = offer.step.asked
                say(room.run, asked, rater, offer.shown, given, milliseconds=took, repeat=offer.repeat, guide=mark)
            except OSError as error:
                raise RequestError(507, f"the answer could not be stored: {error.strerror}; try again") from None
        return next_task(books, rater)


def undo(books: Iterable[Book], rater: str) -> dict[str, Any]:
    """Take this rater's last answer back, and give its task again. Both files stay.

    Where the step's labels are closed it changes nothing any more: it is stored, and the next task comes.
    """
    with _LOCK:
        books = list(books)
        rooms = _rooms(books, rater)
        own = _own(rooms, rater)
        if not own:
            return next_task(books, rater, "There is no answer to take back.")
        room, step, said = own[-1]
        try:
            take_back(room.run, step.asked, said)
        except OSError as error:
            raise RequestError(507, f"it could not be taken back: {error.strerror}; try again") from None
        step.answers.look()
        if not room.is_open(step):
            return next_task(books, rater, "The labels of that one are closed: it was used as it was.")
        return _payload(rooms, rater, room, Offer(step, said.shown, said.repeat), "")


def _rooms(books: Iterable[Book], rater: str) -> list[Room]:
    """The runs whose gold is people now, as they are now."""
    if not rater or len(rater) > LONGEST_NAME:
        raise RequestError(400, f"a rater has a name of 1 to {LONGEST_NAME} characters")
    rooms = []
    for book in books:
        try:
            room = _room(book)
        except Exception as error:  # noqa: BLE001  # a run that cannot be read keeps nobody from judging the others
            _log.warning("no tasks of %s: %s: %s", book.id, type(error).__name__, log_line(str(error), 200))
            continue
        rooms += [room] if room is not None else []
    return rooms


def _room(book: Book) -> Room | None:
    with book.lock:
        book.refresh()
        gold, waiting = book.story.gold, sorted(book.story.unlabelled)
    if gold is None or gold["name"] != PEOPLE:
        return None
    room = _ROOMS.get(book.id)
    if room is None or room.identity != book.run.identity():  # another run under the same path
        room = _ROOMS[book.id] = Room(book.run)
    room.look(waiting)
    return room


# -- which ------------------------------------------------------------------------------------------------------------


def _first(rooms: Sequence[Room], rater: str) -> tuple[Room, Offer] | None:
    """The first thing that is open for a rater: oldest step first, and what was picked by hand last."""
    waiting = [(room, step) for room in rooms for step in room.open_steps()]
    for room, step in sorted(waiting, key=lambda one: (one[1].picked, one[1].asked.time)):
        things = room.things(step)
        for thing in sorted(_open_for(step, things, rater), key=lambda one: _id(room, step, one, rater)):
            if room.texts(step, thing) is not None:
                return room, Offer(step, _sided(room, step, thing, rater))
    return None


def _open_for(step: Step, things: Iterable[Thing], rater: str) -> list[Thing]:
    """Those that this rater has not answered and that want for raters."""
    said = [one for one in step.answers.standing if not one.repeat]
    mine = {frozenset(one.shown) for one in said if one.rater == rater}
    raters = Counter(frozenset(one.shown) for one in said)
    return [t for t in things if frozenset(t) not in mine and raters[frozenset(t)] < step.raters]


def _own(rooms: Sequence[Room], rater: str) -> list[tuple[Room, Step, Said]]:
    """A rater's answers that stand, oldest first."""
    found = [
        (room, step, said)
        for room in rooms
        for step in room.steps.values()
        for said in step.answers.standing
        if said.rater == rater
    ]
    return sorted(found, key=lambda one: (one[2].time, one[2].file))


def _repeat(rooms: Sequence[Room], rater: str) -> tuple[Room, Offer] | None:
    """An earlier pair of the rater's with sides swapped, when one is due."""
    own = [one for one in _own(rooms, rater) if len(one[2].shown) == 2]
    again = {(id(step), frozenset(said.shown)) for _, step, said in own if said.repeat}
    first = [one for one in own if not one[2].repeat]
    if len(first) // EVERY <= len(again):
        return None
    # Not the last few, which are remembered.
    old = [one for one in first[:-3] if one[2].answer != "skip" and (id(one[1]), frozenset(one[2].shown)) not in again]
    for room, step, said in sorted(old, key=lambda one: _id(one[0], one[1], one[2].shown, rater, repeat=True)):
        if room.texts(step, said.shown) is not None:
            return room, Offer(step, said.shown[::-1], repeat=True)
    return None


def _known(rooms: Sequence[Room], rater: str, task: str) -> tuple[Room, Offer]:
    """The offer with this id: one that was made, or, after a restart of the server, one that would be."""
    run, offer = _ISSUED.get((rater, task), ("", None))
    for room in rooms:
        if offer is not None and room.key == run:
            return room, offer
    for room in rooms:
        for step in room.open_steps():
            for thing in room.things(step):
                if hmac.compare_digest(_id(room, step, thing, rater), task):
                    return room, Offer(step, _sided(room, step, thing, rater))
    repeat = _repeat(rooms, rater)
    if repeat is not None and hmac.compare_digest(_id(repeat[0], repeat[1].step, repeat[1].shown, rater, True), task):
        return repeat
    raise RequestError(404, "this task is not known here any more: go on with the next one")


def _same_thing(said: Said, shown: Sequence[int], repeat: bool) -> bool:
    return frozenset(said.shown) == frozenset(shown) and said.repeat == repeat


# -- what is sent -----------------------------------------------------------------------------------------------------


def _payload(rooms: Sequence[Room], rater: str, room: Room, offer: Offer, why: str) -> dict[str, Any]:
    prompt, texts = room.texts(offer.step, offer.shown) or (None, [])
    task = _id(room, offer.step, offer.shown, rater, offer.repeat)
    _ISSUED[rater, task] = (room.key, offer)
    _ISSUED.move_to_end((rater, task))
    while len(_ISSUED) > MOST_ISSUED:
        _ISSUED.popitem(last=False)
    if not why and not room.at_work:
        why = f"No monitor is at work on this machine. Answers are kept; to have them counted: {COMMAND}"
    kind = "pair" if len(offer.shown) == 2 else "single"
    return {
        "task": task, "kind": kind, "prompt": prompt, "texts": texts, "done": _today(rooms, rater),
        "left": _left(rooms, rater), "guide": _guide(room), "why": why, "rater": rater, "agreement": [],
        "consistency": None,
    }  # fmt: skip


def _nothing(rooms: Sequence[Room], rater: str, why: str) -> dict[str, Any]:
    told = [why] if why else []
    if not rooms:
        told.append(f'No run here asks people. Open it with gold="{PEOPLE}", or follow it with: {COMMAND}')
    else:
        waiting = [room for room in rooms if room.waiting]
        told.append("Nothing is left for you to judge now; more comes while training runs.")
        if any(not room.at_work for room in waiting):
            told.append(f"No monitor is at work on this machine. To have the answers counted: {COMMAND}")
    guide = _guide(rooms[0]) if len(rooms) == 1 else GUIDE
    return {
        "task": "", "kind": "", "prompt": None, "texts": [], "done": _today(rooms, rater), "left": 0, "guide": guide,
        "why": " ".join(told), "rater": rater, "agreement": _agreement(rooms, rater),
        "consistency": _consistency(rooms, rater),
    }  # fmt: skip


def _left(rooms: Sequence[Room], rater: str) -> int:
    """How many tasks a rater has before them, pairs that will come again included: else those could be told apart."""
    open_ = sum(len(_open_for(step, room.guess(step), rater)) for room in rooms for step in room.open_steps())
    own = [said for _, _, said in _own(rooms, rater) if len(said.shown) == 2]
    repeats = sum(said.repeat for said in own)
    return max(open_ + max((len(own) - repeats + open_) // EVERY - repeats, 0), 1)


def _today(rooms: Sequence[Room], rater: str) -> int:
    day = time.localtime()[:3]
    return sum(time.localtime(said.time)[:3] == day for _, _, said in _own(rooms, rater))


def _agreement(rooms: Sequence[Room], rater: str) -> list[dict[str, Any]]:
    """With each other rater, how many of the things that both judged they judged alike."""
    same: Counter[str] = Counter()
    both: Counter[str] = Counter()
    for step in (step for room in rooms for step in room.steps.values()):
        said = [one for one in step.answers.standing if not one.repeat and one.values]
        mine = {frozenset(one.shown): one.values for one in said if one.rater == rater}
        for one in said:
            if one.rater != rater and (ours := mine.get(frozenset(one.shown))) is not None:
                both[one.rater] += 1
                same[one.rater] += ours == one.values
    return [{"with": name, "same": same[name], "of": both[name]} for name in sorted(both)]


def _consistency(rooms: Sequence[Room], rater: str) -> dict[str, int] | None:
    """How many of the pairs that came twice the rater judged alike."""
    same = of = 0
    for step in (step for room in rooms for step in room.steps.values()):
        said = [one for one in step.answers.standing if one.rater == rater and one.values]
        first = {frozenset(one.shown): one.values for one in said if not one.repeat}
        for one in said:
            if one.repeat and frozenset(one.shown) in first:
                of += 1
                same += first[frozenset(one.shown)] == one.values
    return {"same": same, "of": of} if of else None


def _guide(room: Room) -> str:
    """How to judge: the run's own `guide.md` or `guide.txt`, else ours."""
    for name in ("guide.md", "guide.txt"):
        try:
            handle = os.open(room.run.path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
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


# -- what is secret ---------------------------------------------------------------------------------------------------


def _id(room: Room, step: Step, thing: Thing, rater: str, repeat: bool = False) -> str:
    """A task's name, which says nothing to whoever does not have the secret, and is the same after a restart."""
    facts = [room.key, step.asked.digest, step.asked.attempt, step.asked.step, sorted(thing), rater, repeat]
    return hmac.new(_secret(), json.dumps(facts).encode(), hashlib.sha256).hexdigest()[:32]


def _sided(room: Room, step: Step, thing: Thing, rater: str) -> tuple[int, ...]:
    """Which side is A, by a coin of this rater's and this thing's own."""
    name = _id(room, step, thing, rater)
    coin = hmac.new(_secret(), f"side {name}".encode(), hashlib.sha256).digest()[0] & 1
    return tuple(sorted(thing, reverse=bool(coin)))


def _secret() -> bytes:
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return _kept_in(Path(home) / "tiltmeter" / "dashboard")


@cache
def _kept_in(folder: Path) -> bytes:
    own_folder(folder)
    return make_secret(folder / "labelling.secret").encode()
