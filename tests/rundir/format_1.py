"""Journals as format 1 had them: one line for each event, so that an arrival could be torn between its lines."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tiltmeter.rundir.journal import Event, list_journal, parse
from tiltmeter.rundir.store import RunDirectory


def write_format_1(run: RunDirectory) -> None:
    """Rewrite a run's journal: the same events, as a monitor of format 1 would have left them."""
    events = [
        event
        for path in list_journal(run.path / "events")
        for line in path.read_bytes().splitlines(keepends=True)
        for event in parse(line)
    ]
    for path in list_journal(run.path / "events"):
        path.unlink()
    for event in sorted(events, key=lambda event: event.seq):
        with (run.path / "events" / f"{event.attempt}.jsonl").open("ab") as file:
            file.write(format_1_line(event))


def tear_format_1(run: RunDirectory, events: Iterable[Event], seq: int, rng: np.random.Generator) -> None:
    """Die in the middle of an arrival, as a monitor of format 1 could: some of its lines are on disk."""
    write_format_1(run)
    places = [replace(event, seq=seq + place) for place, event in enumerate(events)]
    lines = [(event.attempt, format_1_line(event)) for event in places]
    stop = int(rng.integers(0, sum(len(line) for _, line in lines)))
    for attempt, line in lines:
        with (run.path / "events" / f"{attempt}.jsonl").open("ab") as file:
            file.write(line[: max(stop, 0)])
        stop -= len(line)
        if stop <= 0:
            return


def format_1_line(event: Event) -> bytes:
    keys = ("id", "seq", "kind", "attempt", "step", "time", "data")
    plain = {name: getattr(event, name) for name in keys} | dict(event.extra)
    text = json.dumps(plain, allow_nan=False, separators=(",", ":")).encode("ascii")
    return b'%b,"crc":"%08x"}\n' % (text[:-1], zlib.crc32(text))
