"""The monitor loop: read what has arrived, apply it to the memory, commit the events. Read this file first.

`MonitorLoop.advance` handles every arrival, live and in replay: `_read` makes it an input (it measures a step, or
settles its labels), `MonitorMemory.apply` concludes, `Journal.commit` writes all its events on one line. The memory is
a function of the journal, so a restart applies the recorded inputs again and nothing else. `live_arrivals.py` decides
when a step is ready, `panel.py` runs instruments and detectors, `advisor.py` gives advice and starts interventions.
"""

from __future__ import annotations

import errno
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from msgspec import UNSET

from tiltmeter.data.records import SHARED_STEP, Fault
from tiltmeter.errors import StoreError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_queue import LabelQueue
from tiltmeter.monitor.advisor import Advisor
from tiltmeter.monitor.arrivals import (
    Arrival,
    EvaluationDeclared,
    ExperimentDone,
    FileFault,
    LabelsComplete,
    LabelsSettled,
    PastEstimated,
    PastLabelled,
    StepMeasured,
    StepReady,
)
from tiltmeter.monitor.live_arrivals import LiveArrivals
from tiltmeter.monitor.measure_step import InProcess, Measurer, measure_labels
from tiltmeter.monitor.memory import MonitorMemory
from tiltmeter.monitor.panel import InstrumentPanel
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.recorded_arrivals import RecordedArrivals, recorded_inputs, recorded_offer
from tiltmeter.monitor.restart_snapshot import (
    RestartSnapshot,
    RestartSnapshots,
    SkippedAdvisor,
    SkippedPanel,
    StaleSnapshotError,
)
from tiltmeter.monitor.step_mark import StepMark
from tiltmeter.rundir.journal import Event, Journal, JournalReader, as_journal_errors, event
from tiltmeter.rundir.journal_links import ChainEnd, make_key, run_name_in_chain
from tiltmeter.rundir.payloads import StepDone
from tiltmeter.rundir.rank_summary import combine_hashes, count_losses, rank_ranges
from tiltmeter.rundir.requests import ControlOffer
from tiltmeter.rundir.run_path import exists
from tiltmeter.rundir.store import RunDirectory

LAST_EVENTS = 256  # of the journal: more than one arrival concludes
SET_ASIDE = "set aside unread, because two monitors ended while they measured this step"

log = logging.getLogger("tiltmeter")


class MonitorLoop:
    """The loop of one run; it writes the run's own journal or, for replay, another one."""

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        *,
        events_folder: Path | None = None,
        source: LiveArrivals | RecordedArrivals | None = None,
        reward: FunctionSource | None = None,
        measurer: Measurer | None = None,
        durable: bool = True,
        strict: bool = False,
        on_progress: Callable[[], None] = lambda: None,
        mark: StepMark | None = None,
        snapshots: bool = False,
    ) -> None:
        self._on_progress, self._mark = on_progress, mark
        self.run, self.config, self._digest = run, config, config.digest
        self._reward, self._strict = reward, strict
        self.measurer = InProcess(run, config, strict=strict) if measurer is None else measurer
        self.events_folder = run.path / "events" if events_folder is None else events_folder
        self._is_own = events_folder is None
        self._snapshots = RestartSnapshots(run, self._digest) if snapshots else None
        snapshot = None if self._snapshots is None else self._snapshots.read()
        self._make_parts(source)
        try:
            self.journal = self._restore(durable, snapshot)
        except StaleSnapshotError:
            self._make_parts(source)
            self.journal = self._restore(durable, None)

    def _make_parts(self, source: LiveArrivals | RecordedArrivals | None) -> None:
        """Everything that remembers, without any memory."""
        run, config, strict = self.run, self.config, self._strict
        self.source = LiveArrivals(run) if source is None else source
        self.panel = InstrumentPanel(config, strict=strict)
        live = isinstance(self.source, LiveArrivals)
        self.label_queue: LabelQueue | None = None
        if config.gold is not None:
            self.label_queue = LabelQueue(run, config.gold, config.gold_share, config.gold_steps, live=live)
        self.advisor = Advisor(run, self._digest, live=live, reward=self._reward, gold=config.gold, strict=strict)
        self.memory = MonitorMemory(
            self._digest,
            self.panel,
            self.advisor,
            self.label_queue,
            reference=run.reference,
            history=self._read_history,
        )
        self._recorded_settings = self._digest  # the digest that the journal names last

    def poll(self) -> int:
        """Handle whatever is ready; returns the number of steps measured, steps labelled and evaluations read."""
        handled = self._close_labelled_steps()
        for arrival in self.source.poll():
            self.advance(arrival)
            handled += isinstance(arrival, (StepReady, EvaluationDeclared))
            handled += self._close_labelled_steps()
        for facts in self.advisor.poll_experiments():
            self.advance(ExperimentDone(facts))
        self.advisor.send_requests()
        return handled

    def advance(self, arrival: Arrival) -> None:
        """Handle one arrival; all its events are in the journal when this returns, or none is."""
        match arrival:
            case StepReady():
                events = self._measure(arrival)
            case LabelsComplete():
                assert self.label_queue is not None
                settled = self.label_queue.settle(arrival.attempt, arrival.step)
                readings = tuple(settled.readings())
                if settled.batch is not None:
                    parts, panel = self.config.gold_instruments, self.panel
                    shared = settled.against == SHARED_STEP
                    against = self.memory.baseline_for(arrival.step)
                    results = measure_labels(
                        parts, settled.batch, against, shared=shared, strict=panel.strict, off=panel.off
                    )
                    readings = tuple(panel.collect_readings(results, arrival.attempt, arrival.step))
                events = self.memory.apply(LabelsSettled(arrival.attempt, arrival.step, readings, settled.facts))
            case PastLabelled():
                assert self.label_queue is not None
                onset = self.label_queue.settle_past(arrival.attempt, arrival.step)
                events = self.memory.apply(PastEstimated(arrival.attempt, arrival.step, onset))
            case _:
                events = self.memory.apply(arrival)
        self.journal.commit(events)
        for item in events:
            self.source.mark_handled(item)
        if self._snapshots is not None and events:
            self._snapshots.write_if_due(self.memory, self.journal.seq, events[-1].id)
        self._on_progress()

    @property
    def waiting(self) -> bool:
        """Whether requested labels may still come."""
        return self.label_queue is not None and bool(self.label_queue.open_steps or self.label_queue.open_past)

    def close(self) -> None:
        self.journal.close()
        if self.label_queue is not None:
            self.label_queue.stop()

    def _measure(self, arrival: StepReady) -> list[Event]:
        """Read a step's files, run the instruments, and conclude."""
        attempt, step = arrival.attempt, arrival.step
        faults: list[Fault] = []
        if self._mark is not None and not self._mark.begin(attempt, step):
            # As a step of which no file can be read, so that a replay, which has no mark, does the same.
            faults = [Fault(attempt, step, "file", f"{file.name}: {SET_ASIDE}") for file in arrival.files]
            log.warning("step %d is set aside: two monitors ended while they measured it", step)
            arrival = replace(arrival, files=(), unreadable=tuple(file.rank for file in arrival.files))
        entered = self.memory.enter_attempt(attempt, step, self.source.read_offer)
        measurement, rollouts = self.measurer.step(arrival, self.memory.baseline_for(step), self.panel.off)
        if arrival.sha256 is not None and measurement.unreadable:
            raise StoreError(next(iter(measurement.unreadable.values())))
        if measurement.unreadable and not exists(self.run.path / "run.json"):
            # Moved or unmounted, perhaps for a moment: no file of it is to be given up.
            raise FileNotFoundError(errno.ENOENT, "the run directory is not there", str(self.run.path))
        sha256 = combine_hashes(measurement.hashes)
        if arrival.sha256 not in (None, sha256):
            raise StoreError(f"step {step} of attempt {attempt}: the files are not those that were measured")
        readable = measurement.facts is not None
        done = StepDone(
            ranks=rank_ranges(measurement.hashes),
            sha256=sha256,
            missing=rank_ranges(arrival.missing),
            unreadable=rank_ranges([*arrival.unreadable, *measurement.unreadable]),
            rows=measurement.rows,
            written=measurement.written,
            fingerprint=measurement.fingerprint if readable else UNSET,
            **count_losses(measurement.counters),
            **(measurement.facts or {}),
        )
        answers = measurement.answers if readable else None
        faults += [Fault(attempt, step, "file", why) for why in measurement.unreadable.values()]
        events = [event(fault, attempt, step, self._digest) for fault in faults]
        item = StepMeasured(attempt, step, done, answers, rollouts, measurement.absent, measurement.behaviours)
        return [*events, *entered, *self.memory.apply(item)]

    def _close_labelled_steps(self) -> int:
        """Ask for labels, and close the steps whose labels are complete; returns how many."""
        if self.label_queue is None:
            return 0
        count = 0
        for ready in self.label_queue.poll():
            if isinstance(ready, Fault):
                self.advance(FileFault(ready))
            else:
                self.advance(LabelsComplete(*ready))
                count += 1
        alarms = self.memory.alarms_without_onset
        if not alarms:
            self.label_queue.leave_past()
        for alarm in alarms:
            if self.label_queue.ask_past(*alarm, self.memory.stored_steps):
                self.advance(PastLabelled(*alarm))
        return count

    def _restore(self, durable: bool, snapshot: RestartSnapshot | None) -> Journal:
        """Apply every recorded input; returns a journal writer that continues the journal.

        Before the place of a snapshot the folds are skipped, because it has what they came to.
        """
        last: deque[Event] = deque(maxlen=LAST_EVENTS)
        if snapshot is not None:
            self._skip_folds()
        with as_journal_errors(self.events_folder):
            for known_input, events in recorded_inputs(self.run, self._recorded_events(last, snapshot)):
                self._on_progress()
                if snapshot is not None and events[0].seq >= snapshot.seq:
                    self._install(snapshot)
                    snapshot = None
                if isinstance(known_input, StepMeasured):
                    self._reenter_attempt(known_input, recorded_offer(events))
                self.memory.apply(known_input)
            if snapshot is not None:
                self._install(snapshot)
        if self.label_queue is not None:
            self.label_queue.resume()
        # A replay's journal is compared and thrown away: only the run's own is worth a chain.
        chain = ChainEnd(run_name_in_chain(self.run), make_key(self.run)) if self._is_own else None
        writer = Journal(self.events_folder, last[-1].seq + 1 if last else 0, durable=durable, chain=chain)
        if last and self._recorded_settings != self._digest:
            writer.commit([self.memory.settings_event(last[-1], writer.seq)])
        return writer

    def _skip_folds(self) -> None:
        self._snapshot_found = False  # the event that the snapshot was written after
        self.memory.panel = SkippedPanel(self.config)
        self.memory.advisor = SkippedAdvisor(self.run, self._digest, live=False)
        self.memory.history = tuple

    def _install(self, snapshot: RestartSnapshot) -> None:
        if not self._snapshot_found:
            raise StaleSnapshotError
        self.memory.panel, self.memory.advisor, self.memory.history = self.panel, self.advisor, self._read_history
        snapshot.install(self.memory)

    def _read_history(self) -> Iterator[Event]:
        return JournalReader(self.events_folder).poll()

    def _reenter_attempt(self, item: StepMeasured, offer: ControlOffer | None) -> None:
        assert item.recorded is not None
        self.memory.enter_attempt(item.attempt, item.step, lambda attempt: offer, item.recorded.seq)

    def _recorded_events(self, last: deque[Event], snapshot: RestartSnapshot | None) -> Iterator[Event]:
        """The events of the journal; each is also shown to the source, and the newest are kept in `last`."""
        for item in JournalReader(self.events_folder, 0 if snapshot is None else snapshot.seq).poll():
            self.source.mark_handled(item)
            last.append(item)
            if snapshot is not None and item.seq == snapshot.seq - 1:
                self._snapshot_found = item.id == snapshot.last
            self._recorded_settings = item.data.get("config", self._recorded_settings)
            yield item
