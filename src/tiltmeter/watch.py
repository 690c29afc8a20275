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
from tiltmeter.baseline import Baseline, Start, from_reference
from tiltmeter.batches import join
from tiltmeter.config import Config
from tiltmeter.errors import StoreError
from tiltmeter.journal import Event, Journal, Tail, event, event_id, reading_event, readings_of, record_of
from tiltmeter.lineage import lineage
from tiltmeter.panel import Panel
from tiltmeter.ranks import LOSSES, account, combined, expand, spans
from tiltmeter.records import FLAGS, Alarm, Fault, RolloutBatch
from tiltmeter.store import RunDirectory, StepFile


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
        self._baseline: Baseline | None = None
        self._start = Start()
        self._fingerprint: str | None = None
        self._segment = 0
        self._told = ""  # what the journal says that steps are compared with
        self._losses: dict[tuple[int, int], tuple[int, ...]] = {}  # last known, by (attempt, rank)
        self._unread = self._read_reference()
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
        data = {"state": "open", "facts": dict(arrival.facts), "config": self._digest, "detectors": self._promises()}
        return [Event("attempt", arrival.attempt, -1, data, event_id("attempt", arrival.attempt, "open", self._digest))]

    def _promises(self) -> list[dict[str, Any]]:
        """What each detector promises, and the fewest bets after which it could speak."""
        return [
            {
                "name": part.name,
                "tier": part.tier,
                "alpha": part.alpha,
                "watches": list(part.watches),
                "least": int(getattr(part, "least", 0)),
            }
            for part in self.panel.detectors
        ]

    def _step(self, arrival: Step) -> list[Event]:
        attempt, step = arrival.attempt, arrival.step
        resolved = self._enter(attempt, step)
        made: list[Event] = []
        batches: list[RolloutBatch] = []
        hashes: dict[int, str] = {}
        counters: dict[int, dict[str, Any]] = {}
        unreadable = list(arrival.unreadable)
        written = 0.0
        facts: dict[str, Any] = {}
        for file in arrival.files:
            try:
                batch, facts, digest = self._read(file)
            except StoreError as error:
                if arrival.sha256 is not None:
                    raise
                unreadable.append(file.rank)
                fault = Fault(attempt, step, "file", f"{file.name}: {str(error)[:300]}")
                made.append(event(fault, attempt, step, self._digest))
                continue
            batches.append(batch)
            hashes[file.rank] = digest
            counters[file.rank] = {**(facts.get("counters") or {}), "why": (facts.get("faults") or [""])[-1]}
            written = max(written, float(facts.get("time", 0.0)))  # for display, and for calling a run stale
        if arrival.sha256 not in (None, combined(hashes)):
            raise StoreError(f"step {step} of attempt {attempt}: the files are not those that were measured")
        told = account(counters)
        made += [event(alarm, attempt, step, self._digest) for alarm in resolved]
        made += self._lost(attempt, step, told)
        data: dict[str, Any] = {"ranks": spans(hashes), "sha256": combined(hashes), "missing": spans(arrival.missing)}
        data |= {"unreadable": spans(unreadable), "rows": sum(map(len, batches)), "written": written, **told}
        if batches:
            batch = join(batches, shared_groups=facts.get("groups") == "shared")
            made += self._measure(batch)
            data |= {"labels": _labels(batch), "unscored": _unscored(batch), "gold_differs": _gold_differs(batch)}
            data |= {"segment": self._segment, "fingerprint": batch.fingerprint}
        made.append(Event("step_done", attempt, step, data, event_id("step_done", attempt, step, self._digest)))
        return made

    def _read(self, file: StepFile) -> tuple[RolloutBatch, dict[str, Any], str]:
        """A file of a step; if it was packed since it was listed, its packed copy."""
        try:
            return self.run.read(file)
        except StoreError:
            again = [other for other in self.run.find(file.attempt, file.step) if other.rank == file.rank]
            if not again or again[0].path == file.path:
                raise
            return self.run.read(again[0])

    def _measure(self, batch: RolloutBatch) -> list[Event]:
        attempt, step = batch.attempt, batch.step
        made: list[Event] = []
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
        made += self._told_baseline(attempt, step)
        compared = self._baseline if self._baseline is not None and step > self._baseline.last else None
        measured = self.panel.measure(batch, compared)
        derived, alarms = self.panel.fold(measured)
        made.append(reading_event(attempt, step, measured, derived, self._digest))
        made += [event(alarm, attempt, step, self._digest) for alarm in alarms]
        made += [event(fault, attempt, step, self._digest) for fault in self.panel.close_step()]
        if self._baseline is None:
            self._baseline = self._start.add(batch)
        return made

    def _told_baseline(self, attempt: int, step: int) -> list[Event]:
        """Once per run, before the first comparison: what later steps are compared with."""
        made: list[Event] = []
        if self._unread:
            made.append(event(Fault(attempt, step, "reference", self._unread), attempt, step, self._digest))
            self._unread = ""
        if self._baseline is not None and self._told != self._baseline.source:
            self._told = self._baseline.source
            absent = self.panel.cannot_compare(self._baseline)
            data = {"note": "baseline", "source": self._told, "rows": len(self._baseline.batch), "absent": absent}
            made.append(Event("note", attempt, step, data, event_id("note", "baseline", self._told, self._digest)))
        return made

    def _read_reference(self) -> str:
        """Load what the run was given to be compared with; why that failed, or an empty string."""
        try:
            reference = self.run.reference()
        except StoreError as error:
            return str(error)[:300]
        if reference is not None and len(reference):
            self._baseline = from_reference(reference)
        return ""

    def _ended(self, arrival: Ended) -> list[Event]:
        made = self._lost(arrival.attempt, arrival.step, arrival.account)
        key = event_id("attempt", arrival.attempt, "end", self._digest)
        return [*made, Event("attempt", arrival.attempt, arrival.step, {"state": "end", **arrival.account}, key)]

    def _lost(self, attempt: int, step: int, told: Mapping[str, Any]) -> list[Event]:
        """A Fault for what each rank had to thin or drop since it was last heard of."""
        made = []
        for rank, (*counts, why) in told["lost"].items():
            before = self._losses.get((attempt, int(rank)), (0,) * len(LOSSES))
            self._losses[attempt, int(rank)] = tuple(counts)
            # The total makes two equal losses at one step, a batch and then the closing marker, two faults.
            pairs = zip(LOSSES, counts, before, strict=True)
            grown = [f"{now - then} {name} ({now} in all)" for name, now, then in pairs if now > then]
            if grown:
                fault = Fault(attempt, step, "writer", f"rank {rank}: {', '.join(grown)}: {why}")
                made.append(event(fault, attempt, step, self._digest))
        return made

    def _enter(self, attempt: int, step: int, before: float = float("inf")) -> list[Alarm]:
        """At an attempt's first step, give the folds the history that this lineage had then, and no other.

        Returns the alarms that going back to this step resolves.
        """
        self._first.setdefault(attempt, step)
        if attempt == self._current:
            return []
        self._current = attempt
        self._start.rewind(step)
        self.panel.renew()
        limits = lineage(attempt, self._attempts, self._first)
        limits[attempt] = step
        past: dict[int, list[Event]] = {ancestor: [] for ancestor in limits}
        for found, done in _steps(Tail(self.events).poll()):
            if done.seq < before and done.step < limits.get(done.attempt, -1) and found is not None:
                past[done.attempt].append(found)
        for found in (item for items in past.values() for item in items):
            self.panel.fold(readings_of(found), history=True)
        return self.panel.rewind(attempt, step)

    def _restore(self) -> Journal:
        """Everything remembered, from what the journal says; then a writing end that continues it."""
        tail = Tail(self.events)
        seq, config, unfinished = 0, self._digest, set()
        faults: list[Fault] = []
        found: Event | None = None
        last: Event | None = None
        for item in tail.poll():
            seq, last = max(seq, item.seq + 1), item
            self.source.done(item)
            unfinished.add(item.id)
            config = item.data.get("config", config)
            match item.kind:
                case "attempt":
                    if item.data["state"] == "open":
                        self._attempts[item.attempt] = item.data["facts"]
                    self._recall_losses(item)
                case "reading":
                    found = item
                case "note" if item.data.get("note") == "baseline":
                    self._told = item.data["source"]
                case "fault" if item.data["part"] == "reference":
                    self._unread = ""
                case "fault" if item.data["part"] not in ("store", "file", "writer"):
                    fault = record_of(item)
                    assert isinstance(fault, Fault)
                    faults.append(fault)
                case "step_done":
                    self._recall(item, found, faults)
                    found, faults, unfinished = None, [], set()
        journal = Journal(self.events, seq, unfinished)
        if config != self._digest and last is not None:
            # Another version or other plug-ins from here on: a replay must know that one set of settings is not enough.
            data = {"note": "config", "config": self._digest, "detectors": self._promises()}
            key = event_id("note", "config", seq, self._digest)
            journal.append(Event("note", last.attempt, last.step, data, key))
        return journal

    def _recall(self, done: Event, found: Event | None, faults: list[Fault]) -> None:
        self._enter(done.attempt, done.step, before=done.seq)
        self._recall_losses(done)
        if found is None:
            return
        self._fingerprint, self._segment = done.data["fingerprint"], done.data["segment"]
        self.panel.fold(readings_of(found))
        self.panel.close_step(faults)
        if self._baseline is None and done.data["rows"]:
            self._baseline = self._start.add(self._stored(done))

    def _recall_losses(self, item: Event) -> None:
        for rank, (*counts, _) in item.data.get("lost", {}).items():
            self._losses[item.attempt, int(rank)] = tuple(counts)

    def _stored(self, done: Event) -> RolloutBatch | None:
        """A measured step's rollouts again; None if they were deleted since."""
        ranks = set(expand(done.data["ranks"]))
        try:
            read = [self.run.read(file) for file in self.run.find(done.attempt, done.step) if file.rank in ranks]
        except StoreError:
            return None
        if len(read) < len(ranks):
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


def _gold_differs(batch: RolloutBatch) -> bool:
    """Whether gold ever says something that the reward does not: the same function twice can never alarm."""
    if batch.gold is None or batch.reward is None:
        return batch.gold is not None
    both = np.isfinite(batch.gold) & np.isfinite(batch.reward)
    # Within rounding: a reward kept in float32 and the same numbers in float64 are one function.
    return not np.allclose(batch.gold[both], batch.reward[both], rtol=1e-4, atol=1e-6)


def _unscored(batch: RolloutBatch) -> dict[str, dict[str, int]]:
    """How many rows of each column are not plain values, by reason."""
    return {
        column: {FLAGS[code]: int(count) for code, count in enumerate(np.bincount(codes)) if code and count}
        for column, codes in batch.flags.items()
    }
