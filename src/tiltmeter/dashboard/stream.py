"""News of a run for the pages that show it: one reader per run, a bounded queue per page, ids to resume by."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool

from tiltmeter.dashboard.access import RequestError
from tiltmeter.dashboard.shelf import Row, Shelf
from tiltmeter.errors import StoreError
from tiltmeter.journal import Event
from tiltmeter.page.book import Book
from tiltmeter.page.fleet import SEVERITY
from tiltmeter.page.history import History
from tiltmeter.page.summary import headline

POLL_SECONDS = 0.5
ENDED_SECONDS = 1.5  # a run that has ended may be taken up again
FLEET_SECONDS = 2.0
BEAT_SECONDS = 5.0  # how often a page hears how old its data are, also when nothing happens
MOST_CLIENTS = 64
QUEUE = 256  # messages that wait for a page before it is told to ask for everything again
BACKLOG = 500  # messages kept for a page that comes back; one that missed more asks for everything again
LONELY_LOOKS = 20  # after the last page has gone: one that is loaded again comes back within seconds


_log = logging.getLogger("tiltmeter.dashboard")


class Message(NamedTuple):
    """One event of the stream; without an id where it stands for a moment and not for an event of the run."""

    data: dict[str, Any]
    id: str = ""

    def encoded(self) -> bytes:
        text = json.dumps(self.data, allow_nan=False)  # ASCII: no line break can be in it
        head = f"id: {self.id}\n" if self.id else ""
        return f"{head}data: {text}\n\n".encode("ascii")


RESET = Message({"kind": "reset"})


class Standing(NamedTuple):
    """How a run stands at a moment."""

    state: str = "BLIND"
    sentence: str = ""
    step: int = -1
    age_s: float | None = None
    live: bool = False
    mark: tuple[int, int] = (0, 0)  # of what else a page would want to ask for again

    def changed(self, before: Standing) -> bool:
        """Ages and the sentences that hold them change every second: they wait for the next beat."""
        return (self.state, self.step, self.live, self.mark) != (before.state, before.step, before.live, before.mark)

    def pushed(self) -> dict[str, Any]:
        age = None if self.age_s is None else round(self.age_s, 1)
        told = {"state": self.state, "sentence": self.sentence, "step": self.step, "age_s": age, "live": self.live}
        return {"kind": "state", **told}


@dataclass(eq=False)
class Client:
    """One page that listens."""

    queue: asyncio.Queue[Message | None] = field(default_factory=lambda: asyncio.Queue(QUEUE))

    def put(self, message: Message | None) -> None:
        if self.queue.full():
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(RESET)
        if message is not None or not self.queue.full():
            self.queue.put_nowait(message)


@dataclass(eq=False)
class Watched:
    """One run, or with no book the fleet, and the pages that show it."""

    book: Book | None
    clients: set[Client] = field(default_factory=set)
    told: int = 0  # events
    history: History = field(default_factory=History)
    recent: deque[tuple[int, Message]] = field(default_factory=lambda: deque(maxlen=BACKLOG))  # by place of the event
    state: Standing = field(default_factory=Standing)
    said: Standing = field(default_factory=Standing)
    beat: float = 0.0
    ready: bool = False

    @property
    def pause(self) -> float:
        if self.book is None:
            return FLEET_SECONDS
        return POLL_SECONDS if self.state.live else ENDED_SECONDS


class Stream:
    """Everybody who listens. All of it runs in the server's loop; only reading a run happens in a thread."""

    def __init__(self, shelf: Shelf, row_of: Callable[[Book], Row]) -> None:
        self.shelf, self.row_of = shelf, row_of
        self._watched: dict[str, Watched] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._entering = 0
        self.closing = False

    @property
    def clients(self) -> int:
        return self._entering + sum(len(watched.clients) for watched in self._watched.values())

    async def open(self, run: str, after: str) -> AsyncIterator[bytes]:
        """Join those who watch a run. Raises `RequestError` before the first byte if that cannot be."""
        if self.clients >= MOST_CLIENTS:
            raise RequestError(503, f"{MOST_CLIENTS} pages listen already: close one", **{"Retry-After": "5"})
        self._entering += 1
        try:
            watched = await self._enter(run)
        finally:
            self._entering -= 1
        client = Client()
        missed = self._missed(watched, after)
        watched.clients.add(client)  # no other task has run since `_missed` looked: nothing is lost or doubled
        return self._listen(watched, client, missed)

    def close(self) -> None:
        """Let every page go; called when the server ends."""
        self.closing = True
        for watched in self._watched.values():
            for client in watched.clients:
                client.put(None)

    async def _enter(self, run: str) -> Watched:
        watched = self._watched.get(run)
        if watched is None:
            watched = self._watched[run] = Watched(self.shelf.book(run) if run else None)
            task = asyncio.get_running_loop().create_task(self._follow(run, watched))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while not watched.ready:
            if self._watched.get(run) is not watched:
                raise RequestError(503, "the run could not be read; try again")
            await asyncio.sleep(0.01)
        return watched

    def _missed(self, watched: Watched, after: str) -> list[Message]:
        """What a page is told first: all since the event it heard of last, and how things stand."""
        events = [] if watched.book is None else watched.book.events[: watched.told]
        now = Message(watched.state.pushed(), _id(events[-1]) if events else "")
        if not after or watched.book is None:
            return [now]
        place = next((k for k in range(len(events) - 1, -1, -1) if _id(events[k]) == after), None)
        full = len(watched.recent) == BACKLOG
        if place is None or (full and watched.recent[0][0] > place + 1):
            return [RESET, now]
        return [*(message for at, message in watched.recent if at > place), now]

    async def _listen(self, watched: Watched, client: Client, missed: list[Message]) -> AsyncIterator[bytes]:
        try:
            yield b"".join(message.encoded() for message in missed)
            while not self.closing and (message := await client.queue.get()) is not None:
                yield message.encoded()
        finally:
            watched.clients.discard(client)

    async def _follow(self, run: str, watched: Watched) -> None:
        """Look every half second, until a while after the last page has gone."""
        lonely = 0
        try:
            while lonely < LONELY_LOOKS and not self.closing:
                found = await run_in_threadpool(self._look, watched)
                for message in self._news(watched, found):
                    for client in watched.clients:
                        client.put(message)
                watched.ready = True
                await asyncio.sleep(watched.pause)
                lonely = 0 if watched.clients or self._entering else lonely + 1
        except Exception:  # noqa: BLE001
            # The run was deleted, replaced or cannot be read: pages come back and are told so by another route.
            _log.exception("no longer following %s", run or "the fleet")
        finally:
            self._watched.pop(run, None)
            for client in watched.clients:
                client.put(RESET)  # what it shows may be of a run that is no longer there
                client.put(None)

    def _look(self, watched: Watched) -> Found:
        """In a thread: what to say of events that were not told yet, and how the run stands."""
        if watched.book is None:
            return Found(0, [], fleet_standing(*self.shelf.rows(self.row_of)))
        book = watched.book
        if self.shelf.book(book.id).born != book.born:
            raise StoreError("another run is there now")
        with book.lock:
            book.refresh(impatient=True)
            events, found = len(book.events), []
            for place in range(watched.told, events):
                event, before = book.events[place], len(watched.history.entries)
                watched.history.add(event)
                if event.kind == "step_done":
                    told = {"kind": "step", "attempt": event.attempt, "step": event.step}
                    found.append((place, Message(told, _id(event))))
                new = watched.history.entries[before:]
                found += [(place, Message({"kind": "event", "entry": entry}, _id(event))) for entry in new]
            return Found(events, found, standing(book))

    def _news(self, watched: Watched, found: Found) -> list[Message]:
        """In the loop: what to tell everybody who listens; how things stand last, if it changed or a beat is due."""
        watched.told, watched.state = found.events, found.standing
        watched.recent.extend(found.messages)
        news = [message for _, message in found.messages]
        now = time.monotonic()
        if found.standing.changed(watched.said) or now - watched.beat >= BEAT_SECONDS:
            news.append(Message(found.standing.pushed()))
            watched.said, watched.beat = found.standing, now
        return news


class Found(NamedTuple):
    """One look: how many events there are, what is said of the new ones by their place, and how the run stands."""

    events: int
    messages: list[tuple[int, Message]]
    standing: Standing


def standing(book: Book) -> Standing:
    """How a run stands, in the words of its verdict."""
    told = headline(book, book.verdict)
    return Standing(told["state"], told["sentence"], told["step"], told["age_s"], told["live"])


def fleet_standing(rows: list[Row], left_out: int) -> Standing:
    """How the worst of all runs stands; it changes whenever any of them does."""
    worst = min((row["state"] for row in rows), key=SEVERITY.__getitem__, default="BLIND")
    needs = sum(row["state"] == "ACT" for row in rows)
    live = sum(bool(row["live"]) for row in rows)
    ages = [row["age_s"] for row in rows if row["age_s"] is not None]
    mark = hash(tuple((row["run"], row["state"], row["step"], row["live"]) for row in rows))
    sentence = f"{len(rows)} runs, {live} live, {needs} with an alarm"
    steps = max((row["step"] for row in rows), default=-1)
    return Standing(worst, sentence, steps, min(ages, default=None), live > 0, (mark, left_out))


def _id(event: Event) -> str:
    return f"{event.attempt}-{event.seq}"
