"""The loop: read a step, measure it, fold it, decide, write it down. Read this file first.

`Watch.advance` is the whole of it, live and in replay. What the loop remembers is a function of the journal, so
starting again is reading the journal again. The parts themselves, and the boundary that keeps their errors in, are in
`panel.py`; what is ready when is in `arrivals.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.arrivals import Arrival, Ended, LiveArrivals, Opened, RecordedArrivals, Step, Trouble
from tiltmeter.batches import join
from tiltmeter.config import Config
from tiltmeter.errors import StoreError
from tiltmeter.journal import Event, Journal, Tail, event, event_id, reading_event, readings_of, record_of
from tiltmeter.lineage import lineage
from tiltmeter.panel import Panel
from tiltmeter.records import FLAGS, Fault, RolloutBatch
from tiltmeter.store import RunDirectory


class Watch:
    """One run's loop, over the run's own journal or, for replay, another one."""

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        *,
        events: Path | None = None,
        source: LiveArrivals | RecordedArrivals | None = None,
        strict: bool = False,
    ) -> None:
        self.run, self.config = run, config
        self.events = run.path / "events" if events is None else events
        self.source = LiveArrivals(run) if source is None else source
        self.panel = Panel(config, strict=strict)
        self._digest = config.digest
        self._attempts: dict[int, Mapping[str, Any]] = {}
        self._first: dict[int, int] = {}  # first measured step by attempt
        self._current: int | None = None  # the attempt whose lineage the panel's folds have seen
        self._baseline: RolloutBatch | None = None
        self._fingerprint: str | None = None
        self._segment = 0
        self._losses: dict[tuple[int, int], dict[str, int]] = {}
        self.journal = self._restore()

    def poll(self) -> int:
        """Handle whatever is ready; the number of steps measured."""
        measured = 0
        for arrival in self.source.poll():
            self.advance(arrival)
            measured += isinstance(arrival, Step)
        return measured

    def advance(self, arrival: Arrival) -> None:
        """Handle one arrival: every event it causes is on disk when this returns."""
        match arrival:
            case Opened():
                made = self._opened(arrival)
            case Step():
                made = self._step(arrival)
            case Ended():
                made = self._ended(arrival)
            case Trouble(fault):
                made = [event(fault, fault.attempt, fault.step, self._digest)]
        for item in made:
            self.journal.append(item)
            self.source.done(item)

    def close(self) -> None:
        self.journal.close()

    def _opened(self, arrival: Opened) -> list[Event]:
        self._attempts[arrival.attempt] = arrival.facts
        parts = [
            {
                "name": part.name,
                "tier": part.tier,
                "alpha": part.alpha,
                "watches": list(part.watches),
                "least": int(getattr(part, "least", 0)),
            }
            for part in self.panel.detectors
        ]
        data = {"state": "open", "facts": dict(arrival.facts), "config": self._digest, "detectors": parts}
        return [Event("attempt", arrival.attempt, -1, data, event_id("attempt", arrival.attempt, "open", self._digest))]

    def _step(self, arrival: Step) -> list[Event]:
        attempt, step = arrival.attempt, arrival.step
        self._enter(attempt, step)
        made: list[Event] = []
        batches, files, unreadable = [], [], []
        counters: dict[str, dict[str, int]] = {}
        written = 0.0
        facts: dict[str, Any] = {}
        for position, file in enumerate(arrival.files):
            try:
                batch, facts, digest = self.run.read(file)
            except StoreError as error:
                if arrival.hashes is not None:
                    raise
                unreadable.append(file.name)
                fault = Fault(attempt, step, "file", f"{file.name}: {str(error)[:300]}")
                made.append(event(fault, attempt, step, self._digest))
                continue
            if arrival.hashes is not None and digest != arrival.hashes[position]:
                raise StoreError(f"{file.path} is not the file that was measured: its hash differs from the journal's")
            batches.append(batch)
            files.append([file.name, digest, len(batch)])
            counters[str(file.rank)] = facts.get("counters") or {}
            written = max(written, float(facts.get("time", 0.0)))  # for display, and for calling a run stale
        for rank, counts in counters.items():
            made += self._lost(attempt, step, int(rank), counts)
        data: dict[str, Any] = {"files": files, "missing": list(arrival.missing), "unreadable": unreadable}
        data |= {"rows": sum(map(len, batches)), "counters": counters, "written": written}
        if batches:
            batch = join(batches, shared_groups=facts.get("groups") == "shared")
            made += self._measure(batch)
            data |= {"labels": _labels(batch), "unscored": _unscored(batch), "segment": self._segment}
            data |= {"fingerprint": batch.fingerprint}
        made.append(Event("step_done", attempt, step, data, event_id("step_done", attempt, step, self._digest)))
        return made

    def _measure(self, batch: RolloutBatch) -> list[Event]:
        attempt, step = batch.attempt, batch.step
        made: list[Event] = []
        if self._baseline is None and len(batch):
            self._baseline = batch
        if step == self._first[attempt] and (absent := self.panel.lacks(batch)):
            key = event_id("note", attempt, "absent", self._digest)
            made.append(Event("note", attempt, step, {"note": "absent", "absent": absent}, key))
        if self._fingerprint is not None and batch.fingerprint != self._fingerprint:
            # What a proxy-gold gap meant before this step says nothing after it.
            self._segment += 1
            data = {
                "note": "segment",
                "segment": self._segment,
                "before": self._fingerprint,
                "after": batch.fingerprint,
            }
            made.append(Event("note", attempt, step, data, event_id("note", attempt, step, "segment", self._digest)))
        self._fingerprint = batch.fingerprint
        measured = self.panel.measure(batch, self._baseline)
        derived, alarms = self.panel.fold(measured)
        made.append(reading_event(attempt, step, measured, derived, self._digest))
        made += [event(alarm, attempt, step, self._digest) for alarm in alarms]
        made += [event(fault, attempt, step, self._digest) for fault in self.panel.close_step()]
        return made

    def _ended(self, arrival: Ended) -> list[Event]:
        made: list[Event] = []
        for rank, counters in arrival.counters.items():
            made += self._lost(arrival.attempt, arrival.step, rank, counters)
        data = {"state": "end", "counters": {str(rank): dict(counts) for rank, counts in arrival.counters.items()}}
        key = event_id("attempt", arrival.attempt, "end", self._digest)
        return [*made, Event("attempt", arrival.attempt, arrival.step, data, key)]

    def _lost(self, attempt: int, step: int, rank: int, counters: Mapping[str, int]) -> list[Event]:
        """A Fault for what the trainer's side had to thin or drop since this rank was last heard of."""
        before = self._losses.get((attempt, rank), {})
        grown = {key: counters.get(key, 0) - before.get(key, 0) for key in ("thinned", "dropped", "unsynced")}
        self._losses[attempt, rank] = dict(counters)
        if not any(count > 0 for count in grown.values()):
            return []
        told = ", ".join(f"{count} {key}" for key, count in grown.items() if count > 0)
        fault = Fault(attempt, step, "writer", f"rank {rank}: {told} (of {counters.get('seen', 0)} batches seen)")
        return [event(fault, attempt, step, self._digest)]

    def _enter(self, attempt: int, step: int, before: float = float("inf")) -> None:
        """At an attempt's first step, give the folds the history that this lineage had then, and no other."""
        self._first.setdefault(attempt, step)
        if attempt == self._current:
            return
        self._current = attempt
        self.panel.renew()
        spans = lineage(attempt, self._attempts, self._first)
        spans[attempt] = step
        past: dict[int, list[Event]] = {ancestor: [] for ancestor in spans}
        for found, done in _steps(Tail(self.events).poll()):
            if done.seq < before and done.step < spans.get(done.attempt, -1) and found is not None:
                past[done.attempt].append(found)
        for found in (item for items in past.values() for item in items):
            self.panel.fold(readings_of(found), history=True)

    def _restore(self) -> Journal:
        """Everything remembered, from what the journal says; then a writing end that continues it."""
        tail = Tail(self.events)
        seq, unfinished, faults = 0, set(), []
        found: Event | None = None
        for item in tail.poll():
            seq = max(seq, item.seq + 1)
            self.source.done(item)
            unfinished.add(item.id)
            match item.kind:
                case "attempt" if item.data["state"] == "open":
                    self._attempts[item.attempt] = item.data["facts"]
                case "attempt":
                    self._losses |= {(item.attempt, int(r)): dict(c) for r, c in item.data["counters"].items()}
                case "reading":
                    found = item
                case "fault" if item.data["part"] not in ("store", "file", "writer"):
                    faults.append(record_of(item))
                case "step_done":
                    self._recall(item, found, faults)
                    found, faults = None, []
                    unfinished = set()
        return Journal(self.events, seq, unfinished)

    def _recall(self, done: Event, found: Event | None, faults: list[Any]) -> None:
        self._enter(done.attempt, done.step, before=done.seq)
        self._losses |= {(done.attempt, int(rank)): dict(c) for rank, c in done.data["counters"].items()}
        if found is None:
            return
        self._fingerprint, self._segment = done.data["fingerprint"], done.data["segment"]
        self.panel.fold(readings_of(found))
        self.panel.close_step(faults)
        if self._baseline is None and done.data["rows"]:
            self._baseline = self._first_batch(done)

    def _first_batch(self, done: Event) -> RolloutBatch | None:
        """The start policy's rollouts again; None if they were deleted since, and the next step stands in for them."""
        names = {name for name, *_ in done.data["files"]}
        try:
            read = [self.run.read(file) for file in self.run.find(done.attempt, done.step) if file.name in names]
        except StoreError:
            return None
        if len(read) < len(names):
            return None
        return join([batch for batch, _, _ in read], shared_groups=read[-1][1].get("groups") == "shared")


def _steps(events: Iterator[Event]) -> Iterator[tuple[Event | None, Event]]:
    """Each closed step's readings (None if nothing could be read) and the event that closed it."""
    found: Event | None = None
    for item in events:
        if item.kind == "reading":
            found = item
        elif item.kind == "step_done":
            yield found, item
            found = None


def _labels(batch: RolloutBatch) -> int:
    return 0 if batch.gold is None else int(np.isfinite(batch.gold).sum())


def _unscored(batch: RolloutBatch) -> dict[str, dict[str, int]]:
    """How many rows of each column are not plain values, by reason."""
    return {
        column: {FLAGS[code]: int(count) for code, count in enumerate(np.bincount(codes)) if code and count}
        for column, codes in batch.flags.items()
    }
