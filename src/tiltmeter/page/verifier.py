"""Can this grader be fooled, and has it been? Audits, canaries by worker, and what could not be graded."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from tiltmeter.errors import StoreError
from tiltmeter.journal import Event
from tiltmeter.page.book import Book
from tiltmeter.page.words import short
from tiltmeter.verifier_audits import listed, noted, read

AUDITS = 5  # shown, the newest
CELLS = 60  # of a worker's strip
WORKERS = 64
TEXT = 2000  # characters of a forgery's text
_READING = re.compile(r"verifier\.(judge\.)?(worker|key)\.(\d{1,6})")


def verifier(book: Book) -> dict[str, Any]:
    """What is known of the verifier of a run. Nothing here is a verdict: a mis-scored canary is an alarm besides."""
    _ = book.verdict  # a book that was just opened is read first
    with book.lock:
        story, errors = book.story, book.folded("verifier errors", _Errors)
        names = [name for name in book.columns.names() if _READING.fullmatch(name)]
        book.columns.gather(names)
        attempts = sorted(story.attempts, reverse=True)
        facts = next((told for attempt in attempts if (told := noted(book.run, attempt)) is not None), None)
        workers = [_worker(book, name, story.last_step) for name in names if ".worker." in name]
        keys = _keys(book, [name for name in names if ".key." in name], facts)
        share = book.columns.line("verifier.unanswered_share")
    audits, damaged = _audits(book)
    workers.sort(key=lambda row: (not row["failed"], row["kind"] == "judge", row["worker"]))
    return {
        "sandboxes": [] if facts is None else facts["sandboxes"],
        "attached": None if facts is None else facts["time"],
        "errors": {"rows": errors.rows, "infra": errors.infra, "unscored": errors.unscored},
        "audits": audits,
        "damaged": damaged,
        "workers": workers[:WORKERS],
        "workers_left_out": max(0, len(workers) - WORKERS),
        "unanswered": round(float((share.values * share.n).sum())),
        "canaries": keys,
    }


class _Errors:
    """Completions so far, and those without a reward, by why."""

    def __init__(self) -> None:
        self.rows = self.infra = self.unscored = 0

    def add(self, event: Event) -> None:
        if event.kind != "step_done":
            return
        self.rows += int(event.data["rows"])
        told = event.data.get("unscored", {})
        flags: Counter[str] = Counter(told.get("reward", {}))
        # A part that failed leaves the whole row without a reward, where the parts are one function.
        parts = [reasons.get("infra", 0) for name, reasons in told.items() if name.startswith("reward")]
        self.infra += max(parts, default=0)
        self.unscored += sum(flags.values()) - flags.get("infra", 0)


def _worker(book: Book, name: str, last: int) -> dict[str, Any]:
    """One reward worker over the run: cells of equal spans of steps, each with how many canaries it mis-scored."""
    match = _READING.fullmatch(name)
    assert match is not None
    line = book.columns.line(name)
    failed = (line.values * line.n).round().astype(int)
    width = max(1, -(-(last + 1) // CELLS))
    cells: list[int | None] = [None] * min(CELLS, max(1, -(-(last + 1) // width)))
    for step, count in zip((line.steps // width).tolist(), failed.tolist(), strict=True):
        if step < len(cells):
            cells[step] = (cells[step] or 0) + count
    wrong = line.steps[failed > 0]
    return {
        "worker": int(match[3]),
        "kind": "judge" if match[1] else "rule",
        "asked": int(line.n.sum()),
        "failed": int(failed.sum()),
        "first": int(wrong[0]) if len(wrong) else None,
        "width": width,
        "cells": cells,
    }


def _keys(book: Book, names: list[str], facts: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Each canary with its text, as far as the run was told it, and how often it was mis-scored."""
    told = {} if facts is None else dict(enumerate(facts["canaries"]))
    rows = []
    for name in names:
        match = _READING.fullmatch(name)
        assert match is not None
        line, known = book.columns.line(name), told.get(int(match[3]), {})
        rows.append(
            {
                "number": int(match[3]),
                "kind": "judge" if match[1] else "rule",
                "expect": known.get("expect", ""),
                "text": short(known.get("text", ""), 200),
                "named": bool(known),
                "asked": int(line.n.sum()),
                "failed": round(float((line.values * line.n).sum())),
            }
        )
    return sorted(rows, key=lambda row: (-row["failed"], row["number"]))


def _audits(book: Book) -> tuple[list[dict[str, Any]], int]:
    """The newest audits, forgeries that were paid first; and how many files could not be read."""
    found: list[dict[str, Any]] = []
    damaged = 0
    order = {"paid": 0, "could not judge": 1, "not paid": 2}
    for path in listed(book.run)[:AUDITS]:
        try:
            told = book.once("audit", path.name, lambda path=path: read(path), AUDITS)  # type: ignore[misc]
        except StoreError:
            damaged += 1
            continue
        rows = sorted(told["tried"], key=lambda row: order[row["status"]])
        # By these names a redacted report knows sentences that may quote somebody.
        shown = [{**_renamed(row, "cause"), "text": short(row["text"], TEXT)} for row in rows]
        found.append({**_renamed(told, "summary"), "tried": shown})
    return found, damaged


def _renamed(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {name if key == "why" else key: value for key, value in row.items()}
