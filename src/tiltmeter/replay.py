"""A stored run through the same loop again: the same files in the recorded order, into a journal of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.arrivals import LiveArrivals, RecordedArrivals
from tiltmeter.config import Config
from tiltmeter.journal import Event, Tail, read
from tiltmeter.store import RunDirectory
from tiltmeter.watch import Watch

MADE_BY_THE_LOOP = frozenset(
    {"attempt", "reading", "step_done", "labels_closed", "alarm", "finding", "action", "fault", "note"}
)


@dataclass(frozen=True)
class Replay:
    """What the loop says now, what it said then, and the first place where they part (None: nowhere)."""

    events: list[Event]
    recorded: list[Event]
    skipped: int  # torn or damaged lines of the recorded journal
    digest: str  # of the settings it was made with, the recorded gold source among them

    @property
    def difference(self) -> tuple[Event | None, Event | None] | None:
        """The first pair (then, now) that differ; either is None where the other side has more."""
        for position in range(max(len(self.events), len(self.recorded))):
            then = self.recorded[position] if position < len(self.recorded) else None
            now = self.events[position] if position < len(self.events) else None
            if then is None or now is None or not then.says_the_same(now):
                return then, now
        return None


def replay(run: RunDirectory, config: Config, *, strict: bool = False) -> Replay:
    """Measure and fold a recorded run again. A run that was never watched is measured for the first time.

    Answers of a gold source are read from the run, and nobody is asked; where `config` names none, the recorded one.
    """
    tail = Tail(run.path / "events")
    recorded = [item for item in tail.poll() if item.kind in MADE_BY_THE_LOOP]
    if config.gold is None:
        config = config.recorded(gold_of(recorded))
    source = RecordedArrivals(run, recorded) if recorded else LiveArrivals(run)
    with tempfile.TemporaryDirectory(prefix="tiltmeter-") as folder:
        watch = Watch(run, config, events=Path(folder), source=source, durable=False, strict=strict)
        try:
            watch.poll()
        finally:
            watch.close()
        return Replay(read(Path(folder)), recorded, tail.skipped, config.digest)


def gold_of(recorded: Iterable[Event]) -> Mapping[str, Any] | None:
    """Who gave the labels of a recorded run; None if nobody was asked."""
    said = (item.data for item in recorded if item.kind == "attempt" or item.data.get("note") == "config")
    told = [data["gold"] for data in said if data.get("gold")]
    return told[-1] if told else None
