"""All runs at a glance: one row each, the worst first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from tiltmeter import __version__
from tiltmeter.page.book import Book
from tiltmeter.page.gold import gold_name, last_good
from tiltmeter.page.history import History
from tiltmeter.page.readings import spark
from tiltmeter.page.series import plain
from tiltmeter.page.summary import headline
from tiltmeter.page.words import change, findings, short
from tiltmeter.story import alarm_id
from tiltmeter.verdict import State

TEXT = 120
SEVERITY = {state: place for place, state in enumerate(get_args(State))}


def fleet(books: Iterable[Book], limit: int = 1000) -> dict[str, Any]:
    """Rows as of each book's last refresh: worst first, then those whose problem is oldest."""
    rows = []
    for book in books:
        with book.lock:
            first = headline(book, book.verdict)
            row = book.kept("fleet", lambda book=book: _row(book))  # type: ignore[misc]
            told = {**first, **row, "what": what(book)}
            rows.append((told, since(book)))
    rows.sort(key=lambda item: worst_first(*item))
    kept = [row for row, _ in rows[: max(0, limit)]]
    return {"version": __version__, "runs": kept, "left_out": len(rows) - len(kept)}


def worst_first(row: Mapping[str, Any], since: float) -> tuple[object, ...]:
    """Where a row stands among others: the worst first, those that are going before those that have ended."""
    return SEVERITY[row["state"]], not row["live"], since, row["name"]


def _row(book: Book) -> dict[str, Any]:
    """What changes only with the journal."""
    good, gold = last_good(book), gold_name(book)
    kl = book.columns.line("policy.kl.k3").values
    return {
        "last_good": None if good is None else good.step,
        "what": "",
        "proxy": plain(spark(book.columns.line("reward.mean").values), 4),
        "gold": plain(spark(book.columns.line(gold).values), 4) if gold else [],
        "kl": float(kl[-1]) if len(kl) and math.isfinite(kl[-1]) else None,
        "did": did(book.folded("history", History)),
        "labels": book.story.labels,
    }


def since(book: Book) -> float:
    """When the problem began: the oldest open alarm or warning, or the last sign of life."""
    history = book.folded("history", History)
    told = book.verdict.alarms or (book.verdict.warnings if book.verdict.state == "WATCH" else ())
    raised = [history.times.get(alarm_id(alarm), math.inf) for alarm in told]
    began = min(raised, default=max(history.last.values(), default=0.0))
    return float(began)


def what(book: Book) -> str:
    """The surest finding with its onset, or the sentence, short."""
    verdict, found = book.verdict, findings(book.story)
    if not found or verdict.state not in ("ACT", "WATCH"):
        return short(verdict.sentence, TEXT)
    when = f" since ~{verdict.alarms[0].onset}" if verdict.alarms else ""
    return short(f"{found[0].failure.replace('_', ' ')}{when} ({found[0].confidence:.0%} sure)", TEXT)


def did(history: History) -> str:
    """The newest change that was made; if none was, the newest that was proposed."""
    rows = list(history.actions.values())
    made = [row for row in rows if row["state"] in ("applied", "reverted")]
    open_ = [row for row in rows if row["state"] in ("proposed", "approved")]
    for row in (max(open_, key=lambda row: row["time"], default=None), made[-1] if made else None):
        if row is not None:
            return short(f"{change(row)} ({row['state']})", TEXT)
    return ""
