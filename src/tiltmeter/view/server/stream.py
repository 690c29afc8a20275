"""Server-sent events: one channel per run, a bounded queue per client, and event ids to resume from."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool

from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal import Event
from tiltmeter.verdict.states import State
from tiltmeter.view.payloads.encode import encode
from tiltmeter.view.payloads.people import EntryMessage, Pushed, ResetMessage, StateMessage, StepMessage
from tiltmeter.view.screens.fleet import SEVERITY
from tiltmeter.view.screens.history import RunHistory
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import headline
from tiltmeter.view.server.access import EVERY_RUN, Access, Person, RequestError
from tiltmeter.view.server.run_list import ListedRun, RunList, RunRows

POLL_SECONDS = 0.5
ENDED_SECONDS = 1.5  # an ended run may be resumed
FLEET_SECONDS = 2.0
BEAT_SECONDS = 5.0  # how often the age of the data is sent, also when nothing happens
MOST_CLIENTS = 64
MOST_EACH = 32  # pages of one person, where there are several
QUEUE = 256  # messages that may wait for a client before it gets a reset
BACKLOG = 500  # messages kept for a client that reconnects; one that missed more gets a reset
RIGHTS_SECONDS = 1.0  # how often rights that changed are looked for
EXPIRY_SECONDS = 60.0  # how often everybody is looked up, because sessions also end by themselves
IDLE_LOOKS = 20  # without a client before a channel closes; a reloaded page reconnects within seconds


ChannelKey = tuple[str, tuple[str, ...]]  # a run, or "" and the patterns of the runs

_log = logging.getLogger("tiltmeter.view.server")


@dataclass(frozen=True)
class Message:
    """One message of the stream; without an id if it is not about an event of the run."""

    data: Pushed
    id: str = ""

    @cached_property
    def encoded(self) -> bytes:
        """As it is sent, made once for all who listen."""
        head = f"id: {self.id}\n" if self.id else ""
        return b"%bdata: %b\n\n" % (head.encode("ascii"), encode(self.data))  # ASCII: no line break can be in it


RESET = Message(ResetMessage())


class StreamStatus(NamedTuple):
    """The status of a run or of the fleet, as it is sent."""

    state: State = "BLIND"
    sentence: str = ""
    step: int = -1
    age_s: float | None = None
    live: bool = False
    mark: tuple[int, int] = (0, 0)  # changes if the fleet's rows do

    def changed(self, before: StreamStatus) -> bool:
        """Whether it must be sent now. Ages change every second, so they wait for the next beat."""
        return (self.state, self.step, self.live, self.mark) != (before.state, before.step, before.live, before.mark)

    def payload(self) -> StateMessage:
        age = None if self.age_s is None else round(self.age_s, 1)
        return StateMessage(state=self.state, sentence=self.sentence, step=self.step, age_s=age, live=self.live)


@dataclass(eq=False)
class Client:
    """One connected page."""

    person: Person = field(default_factory=lambda: Person(frozenset()))
    rights_stamp: object = None  # when the person's rights were last looked up: the accounts' version and the minute
    is_over: bool = False
    queue: asyncio.Queue[Message | None] = field(default_factory=lambda: asyncio.Queue(QUEUE))

    def put(self, message: Message | None) -> None:
        if self.is_over:
            return
        if self.queue.full():
            while not self.queue.empty():
                self.queue.get_nowait()
            self.queue.put_nowait(RESET)
        if message is not None or not self.queue.full():
            self.queue.put_nowait(message)

    def end(self) -> None:
        """Send nothing more, whatever waits."""
        self.is_over = True
        while not self.queue.empty():
            self.queue.get_nowait()
        self.queue.put_nowait(None)


@dataclass(eq=False)
class Channel:
    """One run, or without a reader the runs that are covered by patterns, and the clients that follow it."""

    reader: RunReader | None
    patterns: tuple[str, ...] = EVERY_RUN
    clients: set[Client] = field(default_factory=set)
    events_sent: int = 0  # events
    history: RunHistory = field(default_factory=RunHistory)
    recent: deque[tuple[int, Message]] = field(default_factory=lambda: deque(maxlen=BACKLOG))  # by event position
    status: StreamStatus = field(default_factory=StreamStatus)
    last_sent: StreamStatus = field(default_factory=StreamStatus)
    last_beat: float = 0.0
    ready: bool = False

    @property
    def pause(self) -> float:
        if self.reader is None:
            return FLEET_SECONDS
        return POLL_SECONDS if self.status.live else ENDED_SECONDS


class EventStream:
    """All channels and their clients. Runs in the server's event loop; only reading a run happens in a thread."""

    def __init__(self, run_list: RunList, make_row: Callable[[RunReader], ListedRun], access: Access) -> None:
        self.run_list, self.make_row, self.access = run_list, make_row, access
        self._channels: dict[ChannelKey, Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._checking: asyncio.Task[None] | None = None
        self._entering = 0
        self.most_clients = MOST_CLIENTS
        self.closing = False

    @property
    def clients(self) -> int:
        return self._entering + sum(len(channel.clients) for channel in self._channels.values())

    async def open(self, run: str, after: str, person: Person) -> AsyncIterator[bytes]:
        """Subscribe to a run that the person may see, or to all of these. Raises `RequestError` before the first byte
        if that is not possible."""
        name = person.name
        if self.clients >= self.most_clients:
            raise RequestError(503, f"{self.most_clients} pages listen already: close one", **{"Retry-After": "5"})
        own = sum(client.person.name == name for channel in self._channels.values() for client in channel.clients)
        if name and own >= MOST_EACH:
            raise RequestError(429, f"{own} of your pages listen already: close one", **{"Retry-After": "5"})
        self._entering += 1
        try:
            channel = await self._open_channel((run, EVERY_RUN if run else person.runs))
        finally:
            self._entering -= 1
        client = Client(person)
        missed = self._missed_messages(channel, after)
        channel.clients.add(client)  # no await since the line above: no message is lost or sent twice
        self._check_people()
        return self._listen(channel, client, missed)

    def close(self) -> None:
        """Disconnect every client; called when the server ends."""
        self.closing = True
        for channel in self._channels.values():
            for client in channel.clients:
                client.put(None)

    def _check_people(self) -> None:
        """From now on, as long as somebody listens, end the streams of those whose rights end."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.get_running_loop().create_task(self._end_revoked())

    async def _end_revoked(self) -> None:
        while not self.closing and any(channel.clients for channel in self._channels.values()):
            await asyncio.sleep(RIGHTS_SECONDS)
            clients = [client for channel in self._channels.values() for client in channel.clients]
            stamp: tuple[int, float] | None
            try:
                stamp = (await run_in_threadpool(self.access.version), time.monotonic() // EXPIRY_SECONDS)
                due = [client for client in clients if client.rights_stamp != stamp]
                may_stay = await run_in_threadpool(self._who_still_may, [client.person for client in due])
            except Exception:  # noqa: BLE001
                # Whoever cannot be looked up may have been revoked; their pages ask again, and get the error.
                _log.exception("the rights of people who listen cannot be read")
                stamp, due, may_stay = None, clients, [False] * len(clients)
            for client, stays in zip(due, may_stay, strict=True):
                client.rights_stamp = stamp
                if not stays:
                    client.end()

    def _who_still_may(self, people: Sequence[Person]) -> list[bool]:
        """Run in a thread: of each person, whether they may still view the runs that they could when they came."""
        today: dict[tuple[str, str, bool], Person | None] = {}
        for person in people:
            key = (person.name, person.session, person.by_proxy)
            if key not in today:
                today[key] = self.access.renew(person)
        now = [today[person.name, person.session, person.by_proxy] for person in people]
        return [
            one is not None and "view" in one.roles and one.runs == person.runs
            for one, person in zip(now, people, strict=True)
        ]

    async def _open_channel(self, key: ChannelKey) -> Channel:
        run, channel = key[0], self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(self.run_list.reader(run) if run else None, key[1])
            task = asyncio.get_running_loop().create_task(self._follow(key, channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while not channel.ready:
            if self._channels.get(key) is not channel:
                raise RequestError(503, "the run could not be read; try again")
            await asyncio.sleep(0.01)
        return channel

    def _missed_messages(self, channel: Channel, after: str) -> list[Message]:
        """The first messages of a client: all since its last event id, and the current status."""
        reader = channel.reader
        if reader is None or channel.events_sent <= reader.events.first:
            now = Message(channel.status.payload(), "")
            return [now] if not after or reader is None else [RESET, now]
        first = reader.events.first
        events = reader.events[first : channel.events_sent]
        now = Message(channel.status.payload(), _event_id(events[-1]))
        if not after:
            return [now]
        position = next((first + k for k in range(len(events) - 1, -1, -1) if _event_id(events[k]) == after), None)
        full = len(channel.recent) == BACKLOG
        if position is None or (full and channel.recent[0][0] > position + 1):
            return [RESET, now]
        return [*(message for at, message in channel.recent if at > position), now]

    async def _listen(self, channel: Channel, client: Client, missed: list[Message]) -> AsyncIterator[bytes]:
        try:
            yield b"".join(message.encoded for message in missed)
            while not self.closing and not client.is_over and (message := await client.queue.get()) is not None:
                yield message.encoded
        finally:
            channel.clients.discard(client)

    async def _follow(self, key: ChannelKey, channel: Channel) -> None:
        """Poll the run every half second, until a while after the last client has gone."""
        idle = 0
        try:
            while idle < IDLE_LOOKS and not self.closing:
                snapshot = await run_in_threadpool(self._take_snapshot, channel)
                for message in self._messages_to_send(channel, snapshot):
                    for client in channel.clients:
                        client.put(message)
                channel.ready = True
                await asyncio.sleep(channel.pause)
                idle = 0 if channel.clients or self._entering else idle + 1
        except Exception:  # noqa: BLE001
            # The run was deleted, replaced or cannot be read: clients reconnect and get the error from another route.
            _log.exception("no longer following %s", key[0] or "the fleet")
        finally:
            self._channels.pop(key, None)
            for client in channel.clients:
                client.put(RESET)  # the run it shows may be gone
                client.put(None)

    def _take_snapshot(self, channel: Channel) -> Snapshot:
        """Run in a thread: messages for the new events, and the current status."""
        if channel.reader is None:
            return Snapshot(0, [], fleet_status(self.run_list.rows(self.make_row, channel.patterns)))
        reader = channel.reader
        if self.run_list.reader(reader.id).directory_id != reader.directory_id:
            raise StoreError("another run is there now")
        with self.run_list.marks.reading(reader.id), reader.lock:
            reader.refresh(force=True)
            events, messages = len(reader.events), []
            if channel.events_sent < reader.events.first:  # of these no client is told one by one
                channel.history, channel.events_sent = RunHistory(), reader.events.first
                for event in reader.events.rare_before():
                    channel.history.add(event)
            for position in range(channel.events_sent, events):
                event, before = reader.events[position], len(channel.history.entries)
                channel.history.add(event)
                if event.kind == "step_done":
                    step_message = StepMessage(attempt=event.attempt, step=event.step)
                    messages.append((position, Message(step_message, _event_id(event))))
                new = channel.history.entries[before:]
                messages += [(position, Message(EntryMessage(entry=entry), _event_id(event))) for entry in new]
            return Snapshot(events, messages, stream_status(reader))

    def _messages_to_send(self, channel: Channel, snapshot: Snapshot) -> list[Message]:
        """Run in the event loop: the messages to send; last the status, if it changed or a beat is due."""
        channel.events_sent, channel.status = snapshot.events, snapshot.status
        channel.recent.extend(snapshot.messages)
        messages = [message for _, message in snapshot.messages]
        now = time.monotonic()
        if snapshot.status.changed(channel.last_sent) or now - channel.last_beat >= BEAT_SECONDS:
            messages.append(Message(snapshot.status.payload()))
            channel.last_sent, channel.last_beat = snapshot.status, now
        return messages


class Snapshot(NamedTuple):
    """The result of one poll: the number of events, messages of new events by position, and the status."""

    events: int
    messages: list[tuple[int, Message]]
    status: StreamStatus


def stream_status(reader: RunReader) -> StreamStatus:
    """The status of a run, from its verdict."""
    head = headline(reader, reader.verdict)
    return StreamStatus(head.state, head.sentence, head.step, head.age_s, head.live)


def fleet_status(runs: RunRows) -> StreamStatus:
    """The worst status of all runs that are not archived; it changes whenever that of any run does."""
    rows = [run.row for run in runs.listed if not run.row.archived]
    worst: State = min((row.state for row in rows), key=SEVERITY.__getitem__, default="BLIND")
    if runs.unread and SEVERITY[worst] > SEVERITY["BLIND"]:
        worst = "BLIND"  # what is not read yet may be worse
    needs = sum(row.state == "ACT" for row in rows)
    live = sum(row.live for row in rows)
    ages = [row.age_s for row in rows if row.age_s is not None]
    marked = ((row.run, row.state, row.step, row.live, row.archived, *row.tags) for row in (r.row for r in runs.listed))
    mark = hash(tuple(marked))
    left = f", {runs.unread} not read yet" if runs.unread else ""
    sentence = f"{len(rows)} runs, {live} live, {needs} with an alarm{left}"
    steps = max((row.step for row in rows), default=-1)
    return StreamStatus(worst, sentence, steps, min(ages, default=None), live > 0, (mark, runs.unread))


def _event_id(event: Event) -> str:
    return f"{event.attempt}-{event.seq}"
