"""What each route answers: the page's builders, called with what was asked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import tiltmeter
import tiltmeter.page.actions
import tiltmeter.page.alarms
import tiltmeter.page.compare
import tiltmeter.page.geometry
import tiltmeter.page.health
import tiltmeter.page.phrases
import tiltmeter.page.pinned
import tiltmeter.page.plots
import tiltmeter.page.readings
import tiltmeter.page.series
import tiltmeter.page.summary
import tiltmeter.page.verifier
from tiltmeter import page
from tiltmeter.dashboard import control as controls
from tiltmeter.dashboard import labelling
from tiltmeter.dashboard import rollouts as pages
from tiltmeter.dashboard.access import RequestError
from tiltmeter.dashboard.shelf import OURS, row_of
from tiltmeter.dashboard.site import Asked
from tiltmeter.page.book import Book
from tiltmeter.page.fleet import worst_first
from tiltmeter.report.html import document

Answer = dict[str, Any]

MOST_ROWS = 1000  # runs in one answer


@contextmanager
def known(what: str) -> Iterator[None]:
    """A builder says by `KeyError` that there is nothing under an id or a name."""
    try:
        yield
    except KeyError:
        raise RequestError(404, f"this run has no such {what}") from None


@contextmanager
def sound() -> Iterator[None]:
    """A builder says by `ValueError` that it cannot be asked like that."""
    try:
        yield
    except ValueError as error:
        raise RequestError(400, str(error)) from None


def _range(asked: Asked) -> tuple[int | None, int | None, int]:
    return asked.given.get("from"), asked.given.get("to"), asked.given.get("points", page.series.POINTS)


def login(asked: Asked) -> Answer:
    token, person = asked.site.keys.swap(asked.given["code"])
    return {"token": token, "role": person.role}


def fleet(asked: Asked) -> Answer:
    rows, left_out = asked.site.shelf.rows(row_of)
    rows.sort(key=lambda row: worst_first(row, row["since"]))
    shown = [{name: value for name, value in row.items() if name not in OURS} for row in rows[:MOST_ROWS]]
    return {"version": tiltmeter.__version__, "runs": shown, "left_out": left_out + len(rows) - len(shown)}


def summary(asked: Asked) -> Answer:
    return page.summary.summary(asked.book(), since=asked.given.get("since"))


def plots(asked: Asked) -> Answer:
    return page.plots.plots(asked.book(), *_range(asked))


def geometry(asked: Asked) -> Answer:
    return page.geometry.geometry(asked.book(), *_range(asked)[:2])


def series(asked: Asked) -> Answer:
    book = asked.book()
    with known("reading"), book.lock:
        return page.series.series(book, asked.given["name"], *_range(asked))


def readings(asked: Asked) -> Answer:
    return page.readings.readings(asked.book())


def rollouts(asked: Asked) -> Answer:
    given = dict(asked.given)
    index = asked.site.index(given.pop("run"))
    order = {name: given.pop(name) for name in ("sort", "order", "after", "limit") if name in given}
    with sound():
        return pages.rollouts(index, given, **order, cancel=asked.cancelled)


def rollout(asked: Asked) -> Answer:
    with sound(), known("rollout"):
        return pages.rollout(asked.site.index(asked.given["run"]), asked.given["id"])


def group(asked: Asked) -> Answer:
    with sound(), known("rollout"):
        return pages.group(asked.site.index(asked.given["run"]), asked.given["id"])


def phrases(asked: Asked) -> Answer:
    return page.phrases.phrases(asked.book(), asked.given.get("step"))


def pinned(asked: Asked) -> Answer:
    return page.pinned.pinned(asked.book())


def alarms(asked: Asked) -> Answer:
    return page.alarms.alarms(asked.book())


def alarm(asked: Asked) -> Answer:
    found = page.alarms.alarm(asked.book(), asked.given["id"])
    if found is None:
        raise RequestError(404, "this run has no such alarm")
    return found


def actions(asked: Asked) -> Answer:
    return page.actions.actions(asked.book())


def compare(asked: Asked) -> Answer:
    ids = list(dict.fromkeys(asked.given["run"]))
    if not 2 <= len(ids) <= 6:
        raise RequestError(400, "2 to 6 different runs can be compared")
    books = [asked.site.book(id) for id in ids]
    for book in books:
        book.refresh()
    with known("reading"):
        return page.compare.compare(books, asked.given.get("x", "step"), asked.given.get("name"))


def verifier(asked: Asked) -> Answer:
    return page.verifier.verifier(asked.book())


def health(asked: Asked) -> Answer:
    index = asked.site.index(asked.given["run"])
    index.keep_up()
    return {**page.health.health(asked.book()), "index": {"rollouts": index.rollouts, "ready": index.ready}}


def report(asked: Asked) -> str:
    return document(asked.book(), redact=bool(asked.given.get("redact", 0)))


async def stream(asked: Asked) -> AsyncIterator[bytes]:
    run = asked.given.get("run", "")
    if run:
        asked.site.book(run)
    return await asked.site.stream.open(run, asked.after)


def label_next(asked: Asked) -> Answer:
    return labelling.next_task(_labelled(asked), _rater(asked))


def label(asked: Asked) -> Answer:
    given = asked.given
    return labelling.answer(_labelled(asked), _rater(asked), given["task"], given["answer"], given["milliseconds"])


def label_undo(asked: Asked) -> Answer:
    return labelling.undo(_labelled(asked), _rater(asked))


def _labelled(asked: Asked) -> list[Book]:
    """The runs whose gold is people."""
    rows, _ = asked.site.shelf.rows(row_of)
    books = []
    for row in rows:
        if row["people"]:
            with suppress(KeyError):  # deleted since it was listed
                books.append(asked.site.shelf.book(row["run"]))
    return books


def _rater(asked: Asked) -> str:
    assert asked.person is not None  # the route is for raters
    return asked.person.rater


def control(asked: Asked) -> Answer:
    return controls.control(asked)
