"""Replay: run a stored run through the monitor loop again, in the recorded order, and compare the events."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.monitor.live_arrivals import LiveArrivals
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.recorded_arrivals import RecordedArrivals
from tiltmeter.rundir.journal import Event, JournalReader, read_events
from tiltmeter.rundir.payloads import AttemptOpen, SettingsChanged
from tiltmeter.rundir.store import RunDirectory


@dataclass(frozen=True)
class Replay:
    """The events of the replay, the recorded events, and the first difference between them."""

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
            if then is None or now is None or not then.same_content(now):
                return then, now
        return None


def replay(run: RunDirectory, config: Config, *, strict: bool = False) -> Replay:
    """Measure and fold a recorded run again. A run that was never watched is measured for the first time.

    Labels are read from the run, and no gold source is called. Without one in `config`, the recorded one is used.
    """
    tail = JournalReader(run.path / "events")
    recorded = list(tail.poll())
    if config.gold is None:
        config = config.with_recorded_gold(recorded_gold(recorded))
    source = RecordedArrivals(run, recorded) if recorded else LiveArrivals(run)
    with tempfile.TemporaryDirectory(prefix="tiltmeter-") as folder:
        loop = MonitorLoop(run, config, events_folder=Path(folder), source=source, durable=False, strict=strict)
        try:
            loop.poll()
        finally:
            loop.close()
        return Replay(read_events(Path(folder)), recorded, tail.skipped, config.digest)


def recorded_gold(recorded: Iterable[Event]) -> Mapping[str, Any] | None:
    """The gold source of a recorded run; None if it had none."""
    notes = (item.payload for item in recorded if item.kind in ("attempt", "note"))
    sources = [note.gold for note in notes if isinstance(note, (AttemptOpen, SettingsChanged)) and note.gold]
    return sources[-1] if sources else None
