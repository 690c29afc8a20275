"""The loop behind all sinks: reads new events of a run, builds messages and hands them to each sink."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from tiltmeter.errors import AttachError, StoreError, TiltmeterError
from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.trackers.messages import MessageBuilder
from tiltmeter.view.trackers.position import BusyError, SinkPosition, state_folder
from tiltmeter.view.trackers.sink import RunIdentity, TrackerSink
from tiltmeter.view.trackers.sink_thread import SinkThread

LOOK_SECONDS = 1.0
REST_RATIO = 20  # rest over the time of a look: listing a long run takes a twentieth of a core at most
BUSY_SECONDS = 3.0  # between two attempts to lock a busy target
LAST_LOOKS = 5  # attempts to read an unreadable run after its end
PATIENCE = 90.0  # seconds at the end: longer than the pause between two alerts of one title

log = logging.getLogger("tiltmeter")


@dataclass(frozen=True, slots=True)
class SinkSpec:
    """One sink as given by the user: its kind, and the project, folder, port or address."""

    sink: str
    target: str
    if_free: bool = False  # if another process already sends to this target, skip it
    join: bool = False  # the target is the trainer's own run

    @property
    def shows_rollouts(self) -> bool:
        return self.join or self.sink == "otlp"


def follow(
    run: RunDirectory,
    specs: Sequence[SinkSpec],
    *,
    state: Path | None = None,
    once: bool = False,
    over: Callable[[], bool] | None = None,
    may_end: Callable[[], bool] | None = None,
    on_skip: Callable[[str], None] | None = None,
    on_finish: Callable[[str], None] = lambda sink: None,
    patience: float = PATIENCE,
) -> Mapping[str, str]:
    """Send a run to sinks until it has ended; returns what could not be delivered, by sink.

    A sink that cannot start raises `AttachError` before anything is sent. One that fails later is retried and stops
    nothing. `over`: called between polls by a follower that ends together with its monitor; such a follower also
    waits for targets that another process holds. `may_end`: whether the end of the run is the end; without it, where
    `over` is not given. `on_skip`: is told of a sink that cannot start, which is then left out; `on_finish`: of each
    that is done. Ctrl-C ends it like the end of the run.
    """
    reader = RunReader(run)
    builder = MessageBuilder(reader, evidence=any(spec.shows_rollouts for spec in specs))
    threads: list[SinkThread] = []
    done, failing, looks_left = False, False, 1 if once else LAST_LOOKS
    try:
        threads = _open_threads(run, builder.run, specs, state, on_skip)
        if not threads and over is not None:
            threads = _wait_for_free_sink(
                lambda: _open_threads(run, builder.run, specs, state, on_skip), over, patience
            )
        while threads:
            last, began = once or done or (over is not None and over()), time.monotonic()
            try:
                batch = builder.next_batch(last=last)
                for thread in threads:
                    thread.enqueue(batch)
                done = last or ((over is None if may_end is None else may_end()) and has_ended(reader))
            except (StoreError, OSError) as error:
                looks_left -= last
                if not looks_left and isinstance(error, StoreError):
                    raise
                if not looks_left:
                    raise StoreError(f"{run.path} cannot be read: {error}") from error
                if not failing:
                    log.warning("%s; trying again", log_line(str(error), 300))
                failing = True
            else:
                failing = False
                if last:
                    break
            rest = max(LOOK_SECONDS, REST_RATIO * (time.monotonic() - began))
            time.sleep(rest if failing or not done else 0.0)
    except KeyboardInterrupt:
        patience = min(patience, 5.0)  # the user waits; the next start continues from the stored position
    finally:
        undelivered = _finish_all(threads, patience, on_finish)
    return undelivered


def has_ended(reader: RunReader) -> bool:
    """As of the last poll: every rank has closed and all is measured, or both trainer and monitor are gone."""
    if reader.run_facts.attempt is not None and reader.run_facts.attempt in reader.run_facts.ended:
        return reader.run_facts.attempt == max(reader.run.attempts(), default=-1) and not reader.run_facts.unlabelled
    return not reader.verdict.checks["fresh"].ok and monitor_running(reader.run) is not True


def parent_gone(parent: int) -> bool:
    return os.getppid() != parent


def _wait_for_free_sink(
    open_threads: Callable[[], list[SinkThread]], over: Callable[[], bool], patience: float
) -> list[SinkThread]:
    """Wait until a target is free: its current process may belong to a killed monitor, and end. Once the run is over,
    wait for as long as that process may need to finish."""
    log.info("another process sends to the same target; waiting until it ends")
    deadline = float("inf")
    while time.monotonic() < deadline:
        time.sleep(BUSY_SECONDS)
        if threads := open_threads():
            return threads
        if over():
            deadline = min(deadline, time.monotonic() + patience)
    return []


def _open_threads(
    run: RunDirectory,
    run_id: RunIdentity,
    specs: Sequence[SinkSpec],
    state: Path | None,
    on_skip: Callable[[str], None] | None = None,
) -> list[SinkThread]:
    folder = state_folder(run) if state is None else state
    opened: list[tuple[str, TrackerSink, SinkPosition]] = []
    try:
        for spec in specs:
            try:
                position = SinkPosition(folder, spec.sink, spec.target, run_id.id)
            except BusyError:
                if spec.if_free:
                    continue
                raise
            try:
                module = import_module(f"tiltmeter.view.trackers.{spec.sink}")
                open_sink = module.join_run if spec.join else module.open_sink
                sink: TrackerSink = open_sink(spec.target, run_id, position.memo)
                if sink.remembers:
                    position.save()  # so that a run created in a tracker is found again
            except BaseException as error:
                position.close()
                if on_skip is None or not isinstance(error, Exception):
                    raise
                on_skip(f"{spec.sink}: {log_line(str(error), 300)}")
                continue
            opened.append((spec.sink, sink, position))
    except BaseException as error:
        for _, sink, position in opened:
            sink.close()
            position.close()
        if isinstance(error, Exception) and not isinstance(error, TiltmeterError):
            raise AttachError(f"{spec.sink} does not start: {log_line(str(error), 300)}") from error
        raise
    return [SinkThread(name, sink, position) for name, sink, position in opened]


def _finish_all(threads: Sequence[SinkThread], patience: float, on_finish: Callable[[str], None]) -> dict[str, str]:
    """Finish all sinks in parallel, because each may have to wait."""
    undelivered: dict[str, str] = {}

    def finish(sink_thread: SinkThread) -> None:
        if text := sink_thread.finish(patience):
            undelivered[sink_thread.name] = text
        on_finish(sink_thread.name)

    finishers = [threading.Thread(target=finish, args=(sink_thread,)) for sink_thread in threads]
    for thread in finishers:
        thread.start()
    for thread in finishers:
        thread.join()
    return undelivered
