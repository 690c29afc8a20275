"""The loop: read a step, measure it, fold it, decide, write it down. Read this file first.

`Watch.advance` is the whole of it, live and in replay. What the loop remembers is a function of the journal, so
starting again is reading the journal again. The parts themselves, and the boundary that keeps their errors in, are in
`panel.py`; what is ready when is in `arrivals.py`; what is advised and done about it in `counsel.py`. The file is long
because what is restored has to stand beside what is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tiltmeter.arrivals import (
    FILES,
    Answered,
    Arrival,
    Ended,
    Evaluated,
    Labelled,
    LiveArrivals,
    Opened,
    Step,
    Tried,
    Trouble,
)  # fmt: skip
from tiltmeter.arrivals import RecordedArrivals as Recorded
from tiltmeter.baseline import Comparison
from tiltmeter.config import Config
from tiltmeter.control import Offer, Receipt, Request
from tiltmeter.counsel import Counsel
from tiltmeter.errors import StoreError
from tiltmeter.gold.desk import Desk
from tiltmeter.gold.function import FunctionSource
from tiltmeter.journal import Event, Journal, Tail, event, event_id, jsonable, reading_event, readings_of, record_of
from tiltmeter.lineage import lineage
from tiltmeter.measuring import Bench, Here, Measured, Rollouts
from tiltmeter.panel import Panel
from tiltmeter.ranks import Losses, account, combined, spans
from tiltmeter.records import Alarm, Fault, Reading, RolloutBatch
from tiltmeter.steps import closed_steps, stored
from tiltmeter.store import RunDirectory
from tiltmeter.story import Note

NOT_PARTS = ("writer", "sampler", "counsel")  # of faults that no part of the panel has made


class Watch:
    """One run's loop, over the run's own journal or, for replay, another one."""

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        *,
        events: Path | None = None,
        source: LiveArrivals | Recorded | None = None,
        reward: FunctionSource | None = None,
        bench: Bench | None = None,
        durable: bool = True,
        strict: bool = False,
    ) -> None:
        self.run, self.config, self._durable = run, config, durable
        self.bench = Here(run, config, strict=strict) if bench is None else bench
        self.events = run.path / "events" if events is None else events
        self.source = LiveArrivals(run) if source is None else source
        self.panel = Panel(config, strict=strict)
        live = isinstance(self.source, LiveArrivals)
        self.desk: Desk | None = None
        if config.gold is not None:
            self.desk = Desk(run, config.gold, config.gold_share, config.gold_steps, live=live)
        self._digest = config.digest
        self.counsel = Counsel(run, self._digest, live=live, reward=reward, gold=config.gold, strict=strict)
        self._attempts: dict[int, Mapping[str, Any]] = {}
        self._first: dict[int, int] = {}  # first measured step by attempt
        self._current: int | None = None  # the attempt whose lineage the panel's folds have seen
        self._now: tuple[int, int] | None = None  # the step that was measured last
        self._fingerprint: str | None = None
        self._segment = 0
        self._losses = Losses()
        self._muted = False  # the journal says that advice failed at the step that is being read
        self._begun = False  # a step is partly in the journal, and must be finished before anything else
        self._offers: dict[int, Offer] = {}  # by attempt, as the journal has them
        self._unread = ""  # why the reference could not be read, until that is told
        self._compared = Comparison(self._read_reference())
        self.journal = self._restore()

    def poll(self) -> int:
        """Handle whatever is ready; the number of steps measured, labels settled and evaluations taken in."""
        begun, self._begun = self._begun, False
        handled = 0 if begun else self._settle()
        for arrival in self.source.poll():
            if begun and isinstance(arrival, Evaluated):
                continue  # it comes again: first what a monitor that was killed had begun to write down
            self.advance(arrival)
            handled += isinstance(arrival, (Step, Evaluated))
            begun = begun and not isinstance(arrival, (Step, Ended))
            handled += 0 if begun else self._settle()
        for facts in () if begun else self.counsel.poll():
            self.advance(Tried(facts))
        self.counsel.send()
        return handled

    def advance(self, arrival: Arrival) -> None:
        """Handle one arrival: every event it causes is on disk when this returns."""
        match arrival:
            case Opened():
                made = self._opened(arrival)
            case Step():
                made = self._step(arrival)
            case Ended():
                made = self._ended(arrival)
            case Labelled():
                made = self._labelled(arrival)
            case Evaluated():
                made = self._evaluated(arrival)
            case Answered():
                made = self._answered(arrival)
            case Tried(facts):
                where = (int(facts["attempt"]), int(facts["step"]))
                made = [Event("note", *where, facts, event_id("note", "experiment", *where, facts["failure"]))]
            case Trouble(fault):
                made = [event(fault, fault.attempt, fault.step, self._digest)]
        for item in made:
            self.journal.append(item)
            self.source.done(item)

    @property
    def waiting(self) -> bool:
        """Whether labels were asked for that may still come."""
        return self.desk is not None and bool(self.desk.waiting)

    def _settle(self) -> int:
        """Ask for gold and settle the steps whose labels are complete; how many those were."""
        settled = 0
        for ready in self.desk.poll() if self.desk is not None else ():
            if isinstance(ready, Fault):
                self.advance(Trouble(ready))
            else:
                self.advance(Labelled(*ready))
                settled += 1
        return settled

    def close(self) -> None:
        self.journal.close()

    def _opened(self, arrival: Opened) -> list[Event]:
        self._attempts[arrival.attempt] = arrival.facts
        data = {"state": "open", "facts": dict(arrival.facts), "config": self._digest, **self._promises()}
        return [Event("attempt", arrival.attempt, -1, data, event_id("attempt", arrival.attempt, "open", self._digest))]

    def _promises(self) -> dict[str, Any]:
        """What each detector promises, the fewest bets after which it could speak, and whose gold it speaks of."""
        detectors = [
            {
                "name": part.name,
                "tier": part.tier,
                "alpha": part.alpha,
                "watches": list(part.watches),
                "least": int(getattr(part, "least", 0)),
            }
            for part in self.panel.detectors
        ]
        return {"detectors": detectors, "gold": None if self.desk is None else self.desk.facts}

    def _step(self, arrival: Step) -> list[Event]:
        attempt, step = arrival.attempt, arrival.step
        resolved, advised = self._enter(attempt, step)
        compared = self._compared.against(step)
        read, rollouts = self.bench.step(arrival, compared, self.panel.off)
        if arrival.sha256 is not None and read.unreadable:
            raise StoreError(next(iter(read.unreadable.values())))
        hashes = read.hashes
        if arrival.sha256 not in (None, combined(hashes)):
            raise StoreError(f"step {step} of attempt {attempt}: the files are not those that were measured")
        faults = [Fault(attempt, step, "file", why) for why in read.unreadable.values()]
        made = [event(fault, attempt, step, self._digest) for fault in faults]
        told = account(read.counters)
        made += [event(alarm, attempt, step, self._digest) for alarm in resolved] + advised
        made += self._lost(attempt, step, told)
        data: dict[str, Any] = {"ranks": spans(hashes), "sha256": combined(hashes), "missing": spans(arrival.missing)}
        unreadable = [*arrival.unreadable, *read.unreadable]
        data |= {"unreadable": spans(unreadable), "rows": read.rows, "written": read.written, **told}
        if read.facts is not None and rollouts is not None:
            made += self._measured(attempt, step, read, rollouts)
            data |= {**read.facts, "segment": self._segment, "fingerprint": read.fingerprint}
            warned = any(
                item.kind == "alarm" and item.data["tier"] == "warning" and item.data["resolved"] is None
                for item in made
            )
            drawn, failed = self._draw(rollouts, hashes, warned)
            data |= drawn
            made += failed
        self._now = (attempt, step)
        made.append(Event("step_done", attempt, step, data, event_id("step_done", attempt, step, self._digest)))
        return made

    def _measured(self, attempt: int, step: int, read: Measured, rollouts: Rollouts) -> list[Event]:
        made: list[Event] = []
        if step == self._first[attempt] and read.absent:
            key = event_id("note", attempt, "absent", self._digest)
            made.append(Event("note", attempt, step, {"note": "absent", "absent": dict(read.absent)}, key))
        if self._fingerprint is not None and read.fingerprint != self._fingerprint:
            # What a proxy-gold gap meant before this step says nothing after it.
            self._segment += 1
            data = {
                "note": "segment",
                "segment": self._segment,
                "before": self._fingerprint,
                "after": read.fingerprint,
            }
            made.append(Event("note", attempt, step, data, event_id("note", attempt, step, "segment", self._digest)))
            self.counsel.segment()
        self._fingerprint = read.fingerprint
        made += self._told_baseline(attempt, step)
        measured = self.panel.take(read.answers, attempt, step)
        derived, alarms = self.panel.fold(measured)
        made.append(reading_event(attempt, step, measured, derived, self._digest))
        made += [event(alarm, attempt, step, self._digest) for alarm in alarms]
        self.counsel.alarmed(alarms)
        compared = self._compared.against(step)
        made += self.counsel.step(attempt, step, [*measured, *derived], rollouts, compared)
        made += [event(fault, attempt, step, self._digest) for fault in self.panel.close_step()]
        if self._compared.baseline is None:
            self._compared.add(rollouts())
        return made

    def _draw(self, rollouts: Rollouts, ranks: Iterable[int], warned: bool) -> tuple[dict[str, Any], list[Event]]:
        """Choose what to ask gold about, once a step is measured; what `step_done` says of it."""
        if self.desk is None:
            return {}, []
        batch = rollouts()
        try:
            return self.desk.draw(batch, ranks, boost=warned), []
        except (OSError, StoreError):
            raise
        except Exception as error:
            if self.panel.strict:
                raise
            fault = Fault(batch.attempt, batch.step, "sampler", f"{type(error).__name__}: {str(error)[:200]}")
            return {}, [event(fault, batch.attempt, batch.step, self._digest)]

    def _labelled(self, arrival: Labelled) -> list[Event]:
        """A step's labels are complete: its bets are placed, in the order in which they were drawn."""
        assert self.desk is not None
        attempt, step = arrival.attempt, arrival.step
        closed = self.desk.close(attempt, step)
        self.counsel.canaries_pass = bool(closed.facts.get("canaries_pass", False))
        key = event_id("labels_closed", attempt, step, self._digest)
        return self._late("labels_closed", attempt, step, closed.readings(), closed.facts, key)

    def _evaluated(self, arrival: Evaluated) -> list[Event]:
        told = arrival.evaluation
        reading = Reading(told.attempt, told.step, f"eval.{told.name}", told.value, told.n)
        data = {"note": "evaluation", "file": told.file, "name": told.name, "value": told.value, "n": told.n}
        key = event_id("note", told.attempt, told.step, "evaluation", told.name, self._digest)
        return self._late("note", told.attempt, told.step, [reading], data, key)

    def _answered(self, arrival: Answered) -> list[Event]:
        """What came back about a change, and the states it brings actions to."""
        attempt, step = self._now or (0, -1)
        told = arrival.told
        note, file = "decision", told.id
        if isinstance(told, Receipt):
            note, file = "receipt", told.file.removesuffix(".json")
        data = {"note": note, "file": file, "told": jsonable(asdict(told))}
        made = [Event("note", attempt, step, data, event_id("note", note, file))]
        made += self._dismissed(told, attempt, step)
        made += self.counsel.heard(told, attempt, step)
        for moved in made[1:]:
            # How much is labelled is ours to change; anybody could plant a receipt, but not an action of the journal's.
            if moved.data.get("knob") == "gold_share" and self.desk is not None:
                after = {"applied": moved.data["after"], "reverted": moved.data["before"]}.get(moved.data["state"])
                if after is not None:
                    self.desk.spend(after)
        return made

    def _dismissed(self, told: Receipt | Request, attempt: int, step: int) -> list[Event]:
        """An operator's note that an open alarm is false resolves it. Other notes are only written down."""
        note = Note.read(told.text) if isinstance(told, Request) and told.kind == "note" else None
        if note is None or note.kind != "false_alarm":
            return []
        resolved = self.panel.dismiss(note.about, step)
        self.counsel.alarmed(resolved)
        return [event(alarm, attempt, step, self._digest) for alarm in resolved]

    def _late(
        self, kind: str, attempt: int, step: int, readings: list[Reading], facts: Mapping[str, Any], key: str
    ) -> list[Event]:
        """Readings that come after their step. Their own event is first: it fixes their place among all others."""
        at = self._now or (attempt, step)
        derived, made = self._fold_late(attempt, step, readings)
        told = reading_event(attempt, step, readings, derived, self._digest).data
        return [Event(kind, attempt, step, {**facts, "at": list(at), **told}, key), *made]

    def _fold_late(self, attempt: int, step: int, readings: list[Reading]) -> tuple[list[Reading], list[Event]]:
        """What late readings lead to: derived ones, and the events of their alarms and faults."""
        abandoned = self._abandoned(attempt, step)
        derived, alarms = self.panel.fold(readings, abandoned=abandoned, now=self._now)
        if not abandoned:
            self.counsel.late([*readings, *derived])
        if abandoned and self.panel.standing and self._current is not None:
            # The run went back before this was known. What that resolves is resolved once all of it is known.
            waiting = [] if self.desk is None else self.desk.waiting
            if not any(self._abandoned(*key) for key in waiting):
                alarms += self.panel.rewind(self._current, self._first[self._current])
        at = self._now or (attempt, step)
        self.counsel.alarmed(alarms)
        made = [event(alarm, *at, self._digest) for alarm in alarms]
        faults = self.panel.close_step(kind="late")
        return derived, made + [event(fault, attempt, step, self._digest) for fault in faults]

    def _abandoned(self, attempt: int, step: int) -> bool:
        """Whether the run has gone back behind this step."""
        limits = {} if self._current is None else lineage(self._current, self._attempts, self._first)
        return step >= limits.get(attempt, -1)

    def _told_baseline(self, attempt: int, step: int) -> list[Event]:
        """Once per run, before the first comparison: what later steps are compared with."""
        made: list[Event] = []
        if self._unread:
            made.append(event(Fault(attempt, step, "reference", self._unread), attempt, step, self._digest))
            self._unread = ""
        if (news := self._compared.news) is not None:
            self._compared.told = news.source
            absent = self.panel.cannot_compare(news)
            data = {"note": "baseline", "source": news.source, "rows": len(news.batch), "absent": absent}
            made.append(Event("note", attempt, step, data, event_id("note", "baseline", news.source, self._digest)))
        return made

    def _read_reference(self) -> RolloutBatch | None:
        """What the run was given to be compared with; why it cannot be read is told at the first step."""
        try:
            return self.run.reference()
        except StoreError as error:
            self._unread = str(error)[:300]
            return None

    def _ended(self, arrival: Ended) -> list[Event]:
        made = self._lost(arrival.attempt, arrival.step, arrival.account)
        key = event_id("attempt", arrival.attempt, "end", self._digest)
        return [*made, Event("attempt", arrival.attempt, arrival.step, {"state": "end", **arrival.account}, key)]

    def _lost(self, attempt: int, step: int, told: Mapping[str, Any]) -> list[Event]:
        """A Fault for what each rank had to thin or drop since it was last heard of."""
        faults = [Fault(attempt, step, "writer", why) for why in self._losses.grown(attempt, told["lost"])]
        return [event(fault, attempt, step, self._digest) for fault in faults]

    def _enter(self, attempt: int, step: int, before: float = float("inf")) -> tuple[list[Alarm], list[Event]]:
        """At an attempt's first step, give the folds the history that this lineage had then, and no other.

        Returns the alarms that going back to this step resolves, and what is said about that.
        """
        self._first.setdefault(attempt, step)
        if attempt == self._current:
            return [], []
        self._current = attempt
        if self.desk is not None:
            self.desk.rewind(attempt, step)
        self._compared.rewind(step)
        self.panel.renew()
        self.counsel.leave()
        limits = lineage(attempt, self._attempts, self._first)
        limits[attempt] = step
        past: dict[int, list[Event]] = {ancestor: [] for ancestor in limits}
        for found, done in closed_steps(Tail(self.events).poll()):
            if done.seq < before and done.step < limits.get(done.attempt, -1) and found is not None:
                past[done.attempt].append(found)
        history = [item for items in past.values() for item in items]
        for found in history:
            self.counsel.alarmed(self.panel.fold(readings_of(found), history=True)[1])
        resolved = self.panel.rewind(attempt, step)
        self.counsel.alarmed(resolved)
        made: list[Event] = []
        offer = self._offers.get(attempt)
        if offer is None and (offer := self.source.offer(attempt)) is not None:
            data = {"note": "offer", "offer": offer.facts()}
            made.append(Event("note", attempt, step, data, event_id("note", attempt, "offer", self._digest)))
        judged = self.desk is not None and bool(self.desk.facts.get("judged"))
        return resolved, made + self.counsel.enter(attempt, step, map(_all_readings, history), offer, judged=judged)

    def _restore(self) -> Journal:
        """Everything remembered, from what the journal says; then a writing end that continues it."""
        seq, config, unfinished = 0, self._digest, set()
        faults: list[Fault] = []
        found: Event | None = None
        last: Event | None = None
        owed: dict[str, Event] = {}  # what the last late readings led to, and was not met yet
        for item in Tail(self.events).poll():
            seq, last = max(seq, item.seq + 1), item
            self.source.done(item)
            unfinished.add(item.id)
            config = item.data.get("config", config)
            if self.desk is not None and item.kind != "step_done":
                self.desk.recall(item)
            match item.kind:
                case _ if owed.pop(item.id, None) is not None:
                    continue
                case "attempt":
                    if item.data["state"] == "open":
                        self._attempts[item.attempt] = item.data["facts"]
                    self._losses.grown(item.attempt, item.data.get("lost", {}))
                    self._begun = False
                case "note" if item.data.get("note") == "experiment":
                    pass
                case "note" if item.data.get("note") == "offer":
                    self._begun = True
                    self._offers[item.attempt] = Offer.of(item.data["offer"])
                case "note" if item.data.get("note") in ("receipt", "decision"):
                    kind = Receipt if item.data["note"] == "receipt" else Request
                    owed = {made.id: made for made in self._answered(Answered(kind(**item.data["told"])))[1:]}
                case "labels_closed" | "note" if "measured" in item.data:
                    self.counsel.canaries_pass = bool(item.data.get("canaries_pass", False))
                    owed = {made.id: made for made in self._fold_late(item.attempt, item.step, readings_of(item))[1]}
                case "fault" if item.data["part"] in FILES:
                    pass
                case "step_done":
                    self._recall(item, found, faults)
                    if self.desk is not None:
                        self.desk.recall(item)  # now, because an attempt is entered before its first step is drawn
                    found, faults, owed, unfinished, self._begun = None, [], {}, set(), False
                case _:
                    self._begun = self._begun or item.data.get("note") != "config"
                    found = item if item.kind == "reading" else found
                    faults += self._recall_part(item)
        if self.desk is not None:
            self.desk.resume()
        journal = Journal(self.events, seq, unfinished, durable=self._durable)
        for made in owed.values():
            journal.append(made)
        if config != self._digest and last is not None:
            # Another version or other plug-ins from here on: a replay must know that one set of settings is not enough.
            data = {"note": "config", "config": self._digest, **self._promises()}
            key = event_id("note", "config", journal.seq, self._digest)
            journal.append(Event("note", last.attempt, last.step, data, key))
        return journal

    def _recall_part(self, item: Event) -> list[Fault]:
        """Part of a step that was begun; the fault if it is one of the panel."""
        if item.kind == "note" and item.data.get("note") == "baseline":
            self._compared.told = item.data["source"]
        elif item.kind == "fault" and item.data["part"] == "reference":
            self._unread = ""
        elif item.kind == "fault" and item.data["part"] == "counsel":
            self._muted = True
        elif item.kind == "fault" and item.data["part"] not in NOT_PARTS:
            fault = record_of(item)
            assert isinstance(fault, Fault)
            return [fault]
        return []

    def _recall(self, done: Event, found: Event | None, faults: list[Fault]) -> None:
        self._enter(done.attempt, done.step, before=done.seq)
        self._now = (done.attempt, done.step)
        self._losses.grown(done.attempt, done.data["lost"])
        if found is None:
            return
        if done.data["segment"] > self._segment:
            self.counsel.segment()
        self._fingerprint, self._segment = done.data["fingerprint"], done.data["segment"]
        self.counsel.alarmed(self.panel.fold(readings_of(found))[1])
        if self._muted:
            self.counsel.mute()
            self._muted = False
        self.counsel.step(done.attempt, done.step, _all_readings(found), None, None)
        self.panel.close_step(faults)
        if self._compared.baseline is None and done.data["rows"]:
            try:
                batch = stored(self.run, done.attempt, done.step, done.data["ranks"])
            except StoreError:
                batch = None  # deleted since: later steps stand in
            self._compared.add(batch)


def _all_readings(found: Event) -> list[Reading]:
    return [*readings_of(found), *readings_of(found, "derived")]
