"""Leaves a run's entry for lists of runs beside its journal: read from it as any reader does, so that it says the same.

It never stops a monitor: what goes wrong is logged once, and no file is written from then on. The last one then grows
old, which its readers see.
"""

from __future__ import annotations

import logging
import math
import time
from contextlib import suppress

import numpy as np

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Alarm
from tiltmeter.gold.label_files import asks_people
from tiltmeter.rundir.journal import Event, JournalReader, list_journal
from tiltmeter.rundir.journal_chain.check import ChainCheck
from tiltmeter.rundir.run_path import OpenRun, remove
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.checks import patience_seconds
from tiltmeter.verdict.list_entry import (
    NAME,
    SCHEMA,
    SENTENCE,
    ListEntry,
    captured_settings,
    gold_values,
    journal_end,
    lineage_values,
    make_spark,
    names_in_order,
    newest_change,
    series_values,
    write_list_entry,
)
from tiltmeter.verdict.message import competing_findings, shorten
from tiltmeter.verdict.page_snapshot import PageSnapshotWriter
from tiltmeter.verdict.run_facts import RunFacts, alarm_id
from tiltmeter.verdict.verdict import Verdict, ages, verdict_of

CHANGE_SECONDS = 2.0  # between two files while there is news
BEAT_SECONDS = 10.0  # between two while there is none
SHARE = 0.02  # of the time that is spent on them, at most
LATE = 3.0  # pauses after which a monitor that wrote nothing is late
LEAST_LATE_SECONDS = 30.0
CHUNK_SECONDS = 0.2  # of reading a long journal at once, because measuring waits for it
REWARD = "reward.mean"
KL = "policy.kl.k3"

log = logging.getLogger("tiltmeter")


class ListEntryWriter:
    """Writes the list entry of one run, for as long as its monitor runs."""

    def __init__(self, run: RunDirectory) -> None:
        self.run, self._off = run, False
        self._run_facts = RunFacts()
        self._alarm_times: dict[str, float] = {}
        self._rewards = ReadingTable(REWARD)
        self._journal = JournalReader(run.path / "events")
        self._chain = ChainCheck(run, repeats=False)
        self._snapshots = PageSnapshotWriter(run)
        if (snapshot := self._snapshots.snapshot) is not None:
            self._run_facts = snapshot.run_facts
            self._alarm_times, self._rewards = snapshot.extra["alarm_times"], snapshot.extra["rewards"]
            snapshot.continue_reading(self._journal)
        self._events = self._journal.poll()
        self._caught_up = False
        self._pause, self._next, self._next_beat = CHANGE_SECONDS, 0.0, 0.0
        self._news = True

    def update(self, *, over: bool = False) -> None:
        """Read what is new and write the file if it is time to. `over`: the monitor ends; it is written anyway."""
        now = time.monotonic()
        if self._off or (not over and now < self._next):
            return
        try:
            self._read(time.monotonic() + (math.inf if over else CHUNK_SECONDS))
            if self._caught_up and (over or self._news or now >= self._next_beat):
                self._write(over)
                self._news, self._next_beat = False, now + BEAT_SECONDS
            if over:
                self._chain.save()
        except Exception as error:  # noqa: BLE001 - no monitor may end because of a convenience
            self._off = True
            log.warning("no list entry any more, lists of runs read the journal: %s: %s", type(error).__name__, error)
            with suppress(OSError):
                remove(self.run.path / "cache" / NAME, missing_ok=True)
        cost = time.monotonic() - now
        self._pause = max(CHANGE_SECONDS, cost / SHARE) if self._caught_up else 0.0
        self._next = time.monotonic() + self._pause

    def _read(self, deadline: float) -> None:
        if self._caught_up:
            self._events = self._journal.poll()
        self._caught_up = False
        for event in self._events:
            self._add(event)
            if time.monotonic() > deadline:
                return
        self._run_facts.skipped = self._journal.skipped
        self._run_facts.set_journal(self._chain.update(max(0.0, deadline - time.monotonic())))
        self._caught_up = True
        extra = {"alarm_times": self._alarm_times, "rewards": self._rewards}
        self._snapshots.write_if_due(self._run_facts, self._journal, extra)

    def _add(self, event: Event) -> None:
        self._news = True
        self._run_facts.add(event)
        self._snapshots.add(event, self._journal.line)
        if isinstance(alarm := event.payload, Alarm) and alarm.resolved is None:
            self._alarm_times.setdefault(alarm_id(alarm), event.time)
        packed = event.data.get("measured", {}).get(REWARD) if event.kind == "reading" else None
        if packed is not None:
            self._rewards.add(event.attempt, event.step, *packed[:3])

    def _write(self, over: bool) -> None:
        names = names_in_order(list_journal(self.run.path / "events"))
        if not names or (ending := self._journal_end(names[-1])) is None:
            return  # nothing is concluded yet
        run_facts, now = self._run_facts, time.time()
        last = ages(self.run, run_facts)
        verdict = verdict_of(run_facts, last)
        if ending != self._journal_end(names[-1]):
            return  # another monitor writes: this is no time to say how it stands
        finding, _ = competing_findings(run_facts)
        best = None if verdict.advice is None else verdict.advice.best
        drift = lineage_values(run_facts, KL)
        late = max(LEAST_LATE_SECONDS, LATE * max(self._pause, BEAT_SECONDS))
        content = ListEntry(
            schema=SCHEMA,
            heartbeat=now,
            due=now + late,
            over=over,
            journal=names[-1],
            journal_bytes=ending[0],
            journal_tail=ending[1],
            state=verdict.state,
            sentence=shorten(verdict.sentence, SENTENCE),
            live=run_facts.attempt is None or run_facts.attempt not in run_facts.ended,
            attempt=run_facts.attempt or 0,
            step=run_facts.last_step,
            first=max(0, min(run_facts.first.values(), default=0)),
            data_time=now - last.data if run_facts.recent else None,
            patience=patience_seconds(run_facts),
            since=self._since(verdict),
            failure="" if finding is None else finding.failure[:300],
            confidence=0.0 if finding is None else finding.confidence,
            onset=verdict.alarms[0].onset if verdict.alarms else None,
            last_good=None if best is None else best.step,
            proxy=make_spark(series_values(run_facts, self._rewards)),
            gold=make_spark(gold_values(run_facts, "" if verdict.gold is None else verdict.gold.source)),
            kl=float(drift[-1]) if len(drift) and np.isfinite(drift[-1]) else None,
            labels=run_facts.labels,
            people=run_facts.gold is not None and asks_people(run_facts.gold),
            change=newest_change(run_facts),
            settings=captured_settings(run_facts),
            agreement=verdict.agreement,
            level=verdict.level,
        )
        write_list_entry(self.run, content)

    def _journal_end(self, name: str) -> tuple[int, str] | None:
        with OpenRun(str(self.run.path)) as opened:
            return journal_end(opened, name)

    def _since(self, verdict: Verdict) -> float:
        alarms = verdict.alarms or (verdict.warnings if verdict.state == "WATCH" else ())
        last = max(self._run_facts.last_times.values(), default=0.0)
        return min((self._alarm_times.get(alarm_id(one), last) for one in alarms), default=last)


def leave_list_entry(run: RunDirectory) -> None:
    """Leave the list entry of a run that was measured and is not watched any more."""
    ListEntryWriter(run).update(over=True)
