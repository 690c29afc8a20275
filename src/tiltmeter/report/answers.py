"""What a report carries: the answers that the page would get from a server, by the address it would ask for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import tiltmeter
from tiltmeter.page.actions import actions
from tiltmeter.page.alarms import alarm, alarms
from tiltmeter.page.book import Book
from tiltmeter.page.geometry import geometry
from tiltmeter.page.phrases import phrases
from tiltmeter.page.pinned import pinned
from tiltmeter.page.plots import plots
from tiltmeter.page.rollouts import group
from tiltmeter.page.summary import summary
from tiltmeter.page.verifier import verifier
from tiltmeter.report.redact import redacted

ROLLOUTS = 10  # completions an alarm, with their groups


def collected(book: Book, *, rollouts: int = ROLLOUTS, redact: bool = False) -> dict[str, Any]:
    """The report's data: who made it and up to which step, and every answer by address. `redact`: text of prompts and
    completions is replaced by its length and a hash, so that equal texts can still be told."""
    book.refresh(impatient=True)
    made = dict(_answers(book, rollouts))
    told = made["/api/summary"]
    when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(told["now"]))
    about = f"Report of tiltmeter {tiltmeter.__version__}, {when} UTC, up to step {told['step']}"
    if redact:
        made, about = redacted(made), f"{about}; texts are redacted"
    return {"made": about, "answers": made}


def _answers(book: Book, rollouts: int) -> Iterator[tuple[str, Any]]:
    told = summary(book)
    yield "/api/summary", told
    yield "/api/plots", plots(book)
    yield "/api/geometry", geometry(book)
    yield "/api/phrases", phrases(book)
    yield "/api/pinned", pinned(book)
    yield "/api/actions", actions(book)
    yield "/api/verifier", verifier(book)
    listed = alarms(book)
    yield "/api/alarms", listed
    proves = [row["id"] for row in told["proves"]]
    for row in listed["rows"]:
        detail = alarm(book, row["id"])
        if detail is None:
            continue  # listed a moment ago, and gone since
        yield _address("/api/alarm", {"id": row["id"]}), detail
        proves += [shown["id"] for shown in detail["exemplars"][:rollouts]]
    for name in dict.fromkeys(proves[: max(rollouts, len(told["proves"]))] if not listed["rows"] else proves):
        yield _address("/api/group", {"id": name}), group(book, name)


def _address(path: str, asked: Mapping[str, str]) -> str:
    """As the page writes it."""
    return f"{path}?{urlencode(asked)}"
