"""The one loop behind all sinks: read what the monitor wrote, put it into words, hand it to each."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError, StoreError, TiltmeterError
from tiltmeter.monitor import at_work
from tiltmeter.page.book import Book
from tiltmeter.store import RunDirectory
from tiltmeter.trackers.feed import Feed
from tiltmeter.trackers.place import BusyError, Place, folder_in
from tiltmeter.trackers.sink import Named, Sink
from tiltmeter.trackers.telling import Telling

SINKS = ("wandb", "tensorboard", "mlflow", "trackio", "prometheus", "webhook")
LOOK_SECONDS = 1.0
BUSY_SECONDS = 3.0  # between two looks at whether a place is free
LAST_LOOKS = 5  # at a run that cannot be read, when it is over
PATIENCE = 90.0  # at the end: longer than an alert may have to wait for another of its title

log = logging.getLogger("tiltmeter")


@dataclass(frozen=True, slots=True)
class Wish:
    """One sink as the operator named it: its kind, and the project, folder, port or address."""

    sink: str
    target: str
    if_free: bool = False  # where another process tells this place already, leave it to that one


def follow(
    run: RunDirectory,
    wishes: Sequence[Wish],
    *,
    state: Path | None = None,
    once: bool = False,
    over: Callable[[], bool] | None = None,
    patience: float = PATIENCE,
) -> Mapping[str, str]:
    """Tell a run to sinks until it has ended; what could not be told, by sink.

    A sink that cannot start raises `AttachError` before anything is told. One that fails later is tried again and
    stops nothing. `over`: asked between looks, for whoever goes with somebody else and ends when that one does; it
    waits for places that another process tells. Ctrl-C ends it as the run's end does.
    """
    book = Book(run)
    telling = Telling(book)
    feeds: list[Feed] = []
    done, troubled, looks = False, False, 1 if once else LAST_LOOKS
    try:
        feeds = _open(run, telling.run, wishes, state)
        if not feeds and over is not None:
            feeds = _wait(lambda: _open(run, telling.run, wishes, state), over, patience)
        while feeds:
            last, began = once or done or (over is not None and over()), time.monotonic()
            try:
                news = telling.news(last=last)
                for feed in feeds:
                    feed.tell(news)
                done = last or (over is None and ended(book))
            except (StoreError, OSError) as error:
                looks -= last
                if not looks and isinstance(error, StoreError):
                    raise
                if not looks:
                    raise StoreError(f"{run.path} cannot be read: {error}") from error
                if not troubled:
                    log.warning("%s; trying again", log_line(str(error), 300))
                troubled = True
            else:
                troubled = False
                if last:
                    break
            # Listing a long run takes time: never spend more than a twentieth of a core on looking.
            time.sleep(max(LOOK_SECONDS, 20 * (time.monotonic() - began)) if troubled or not done else 0.0)
    except KeyboardInterrupt:
        patience = min(patience, 5.0)  # somebody waits for the prompt; the next start goes on where this one was
    finally:
        left = _finish(feeds, patience)
    return left


def ended(book: Book) -> bool:
    """As of the last look: every rank has closed and all is measured, or both trainer and monitor are gone."""
    if book.story.attempt is not None and book.story.attempt in book.story.ended:
        return book.story.attempt == max(book.run.attempts(), default=-1) and not book.story.unlabelled
    return not book.verdict.checks["fresh"].ok and at_work(book.run) is not True


def parent_gone(parent: int) -> bool:
    return os.getppid() != parent


def _wait(opened: Callable[[], list[Feed]], over: Callable[[], bool], patience: float) -> list[Feed]:
    """Sinks as soon as one is free: whoever tells them now may go with a monitor that was killed, and leave. When it is
    over they get as long as such a one takes for its last words."""
    log.info("another process tells the same place; waiting until it ends")
    deadline = float("inf")
    while time.monotonic() < deadline:
        time.sleep(BUSY_SECONDS)
        if feeds := opened():
            return feeds
        if over():
            deadline = min(deadline, time.monotonic() + patience)
    return []


def _open(run: RunDirectory, named: Named, wishes: Sequence[Wish], state: Path | None) -> list[Feed]:
    folder = folder_in(run) if state is None else state
    opened: list[tuple[str, Sink, Place]] = []
    try:
        for wish in wishes:
            try:
                place = Place(folder, wish.sink, wish.target, named.id)
            except BusyError:
                if wish.if_free:
                    continue
                raise
            try:
                sink: Sink = import_module(f"tiltmeter.trackers.{wish.sink}").open_sink(wish.target, named, place.memo)
                if sink.remembers:
                    place.save()  # a run that was begun in a tracker must be found again
            except BaseException:
                place.close()
                raise
            opened.append((wish.sink, sink, place))
    except BaseException as error:
        for _, sink, place in opened:
            sink.close()
            place.close()
        if isinstance(error, Exception) and not isinstance(error, TiltmeterError):
            raise AttachError(f"{wish.sink} does not start: {log_line(str(error), 300)}") from error
        raise
    return [Feed(name, sink, place) for name, sink, place in opened]


def _finish(feeds: Sequence[Feed], patience: float) -> dict[str, str]:
    """Close all of them at the same time: each may have a last thing to wait for."""
    left: dict[str, str] = {}

    def finish(feed: Feed) -> None:
        if told := feed.finish(patience):
            left[feed.name] = told

    closing = [threading.Thread(target=finish, args=(feed,)) for feed in feeds]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join()
    return left
