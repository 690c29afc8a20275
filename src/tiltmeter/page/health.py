"""The health of the monitor itself: what makes a green verdict believable."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from tiltmeter import __version__
from tiltmeter.journal import Event
from tiltmeter.monitor import at_work
from tiltmeter.page.book import Book
from tiltmeter.page.history import History
from tiltmeter.page.readings import absent
from tiltmeter.page.words import short

LATE = 3  # steps behind the others after which a rank is late: so many complete steps the monitor waits for it
FAULTS = 50
DISK_SECONDS = 60.0  # the size of a long run takes a while to add up
TEXT = 300


def health(book: Book) -> dict[str, Any]:
    """Who was last heard of when, what is off, what was lost. The size of the index is the server's to fill in."""
    with book.lock:
        verdict, story, history = book.verdict, book.story, book.folded("history", History)
        told = max(history.last.values(), default=None)
        lost, seen = story.lost
        return {
            "ranks": ranks(book),
            "monitor": {
                "step": story.last_step,
                "behind": 0 if book.look.ages is None else book.look.ages.behind,
                "age_s": None if told is None else round(max(0.0, time.time() - told), 1),
                "running": at_work(book.run),
            },
            "checks": [{"name": name, "ok": check.ok, "why": check.why} for name, check in verdict.checks.items()],
            "off": [{"part": part, "error": short(error, TEXT)} for part, error in story.off.items()],
            "faults": [
                {"attempt": fault.attempt, "step": fault.step, "part": fault.part, "error": short(fault.error, TEXT)}
                for fault in story.faults[: -FAULTS - 1 : -1]
            ],
            "absent": absent(book.story),
            "disk_bytes": book.folded("disk", _Disk).size(book.run.path),
            "skipped": story.skipped,
            "seen": seen,
            "lost": lost,
            "cost": _cost(book),
            "versions": _versions(book),
            "index": {"rollouts": 0, "ready": 0.0},
        }


def ranks(book: Book) -> list[dict[str, Any]]:
    """The newest stored step of each rank of the newest attempt, and its age. Late: the others have left it behind."""
    attempts = book.run.attempts()
    if not attempts:
        return []
    attempt, story = attempts[-1], book.story
    newest: dict[int, tuple[int, Path]] = {}
    for file in book.run.files(attempt, []):
        if file.step >= newest.get(file.rank, (-1, file.path))[0]:
            newest[file.rank] = (file.step, file.path)
    front = max((step for step, _ in newest.values()), default=-1)
    made = []
    for rank in range(int(book.run.attempt(attempt).get("ranks", 1))):
        step, path = newest.get(rank, (-1, None))
        stamp = None if path is None else path.stat().st_mtime
        if stamp is not None and step == story.last_step and story.recent:
            stamp = min(stamp, story.recent[-1][0] or stamp)  # a copy of a run is no younger than the run
        made.append(
            {
                "rank": rank,
                "step": step,
                "age_s": None if stamp is None else round(max(0.0, time.time() - stamp), 1),
                "late": front - step >= LATE,
                "lost": story.losses.get((attempt, rank), 0),
            }
        )
    return made


class _Disk:
    """How much a run takes on disk, added up at most once a minute."""

    def __init__(self) -> None:
        self._bytes, self._looked = 0, float("-inf")

    def add(self, event: Event) -> None:
        """Files grow with or without events: only the clock counts here."""

    def size(self, path: Path) -> int:
        if time.monotonic() - self._looked > DISK_SECONDS:
            self._bytes, self._looked = _bytes(path), time.monotonic()
        return self._bytes


def _bytes(path: Path) -> int:
    total, folders = 0, [path]
    while folders:
        try:
            with os.scandir(folders.pop()) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # packed or purged while it was being looked at
    return total


def _cost(book: Book) -> list[dict[str, str]]:
    """What the trainer's side said of itself when it closed; nothing before that."""
    made = []
    for attempt in book.run.attempts()[-1:]:
        for rank, counts in book.run.counters(attempt).items():
            told = [f"{counts[key]} {key}" for key in ("written", "thinned", "dropped", "unsynced") if key in counts]
            made.append({"name": f"rank {rank}", "value": ", ".join(told)})
    return made


def _versions(book: Book) -> list[dict[str, str]]:
    facts = book.run.identity()
    written = str(facts.get("version", ""))
    made = [{"name": "viewer", "value": __version__}, {"name": "format", "value": str(facts["format"])}]
    return [*made, {"name": "run written by", "value": written}] if written else made
