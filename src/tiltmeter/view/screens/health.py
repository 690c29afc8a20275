"""The monitor screen: whether the monitor itself works, so that an OK verdict can be trusted."""

from __future__ import annotations

import time
from pathlib import Path

from tiltmeter.monitor.process import monitor_running
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.run_path import entries
from tiltmeter.version import __version__
from tiltmeter.view.payloads.monitor import FaultRow, Health, IndexState, MonitorHealth, NameValue, PartOff, RankRow
from tiltmeter.view.screens.readings import absent_rows
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import check_rows
from tiltmeter.view.screens.wording import truncate

LATE = 3  # steps behind the others from which a rank is late; the monitor waits for as many
FAULTS = 50
DISK_SECONDS = 60.0  # adding up the size of a long run takes a while
TEXT = 300


def health(reader: RunReader) -> Health:
    """Ranks, monitor, checks, faults and losses of a run. The server fills in the size of its index."""
    with reader.lock:
        verdict, run_facts = reader.verdict, reader.run_facts
        last_time = max(run_facts.last_times.values(), default=None)
        lost, total = run_facts.lost
        return Health(
            ranks=rank_rows(reader),
            monitor=MonitorHealth(
                step=run_facts.last_step,
                behind=0 if reader.watcher.ages is None else reader.watcher.ages.behind,
                age_s=None if last_time is None else round(max(0.0, time.time() - last_time), 1),
                running=monitor_running(reader.run),
            ),
            checks=check_rows(verdict),
            off=[PartOff(part=part, error=truncate(error, TEXT)) for part, error in run_facts.off.items()],
            faults=[
                FaultRow(attempt=fault.attempt, step=fault.step, part=fault.part, error=truncate(fault.error, TEXT))
                for fault in run_facts.faults[: -FAULTS - 1 : -1]
            ],
            absent=absent_rows(reader.run_facts),
            disk_bytes=reader.get_fold("disk", _DiskUsage).size(reader.run.path),
            skipped=run_facts.skipped,
            seen=total,
            lost=lost,
            cost=_trainer_counters(reader),
            versions=_versions(reader),
            index=IndexState(rollouts=0, ready=0.0),
        )


def rank_rows(reader: RunReader) -> list[RankRow]:
    """The newest stored step of each rank of the newest attempt, its age, and whether it is late."""
    attempts = reader.run.attempts()
    if not attempts:
        return []
    attempt, run_facts = attempts[-1], reader.run_facts
    newest: dict[int, tuple[int, Path]] = {}
    for file in reader.run.files(attempt, []):
        if file.step >= newest.get(file.rank, (-1, file.path))[0]:
            newest[file.rank] = (file.step, file.path)
    newest_step = max((step for step, _ in newest.values()), default=-1)
    rows = []
    for rank in range(int(reader.run.attempt(attempt).get("ranks", 1))):
        step, path = newest.get(rank, (-1, None))
        mtime = None if path is None else path.stat().st_mtime
        if mtime is not None and step == run_facts.last_step and run_facts.recent:
            mtime = min(mtime, run_facts.recent[-1][0] or mtime)  # copying a run changes the files' times
        rows.append(
            RankRow(
                rank=rank,
                step=step,
                age_s=None if mtime is None else round(max(0.0, time.time() - mtime), 1),
                late=newest_step - step >= LATE,
                lost=run_facts.losses.get((attempt, rank), 0),
            )
        )
    return rows


class _DiskUsage:
    """How much a run takes on disk, added up at most once a minute."""

    of_rare = True

    def __init__(self) -> None:
        self._bytes, self._measured_at = 0, float("-inf")

    def add(self, event: Event) -> None:
        """Does nothing: files grow without events too, so the size depends on the clock."""

    def size(self, path: Path) -> int:
        if time.monotonic() - self._measured_at > DISK_SECONDS:
            self._bytes, self._measured_at = _folder_bytes(path), time.monotonic()
        return self._bytes


def _folder_bytes(path: Path) -> int:
    total, folders = 0, [path]
    while folders:
        try:
            folder = folders.pop()
            for entry in entries(folder):
                if entry.is_dir(follow_symlinks=False):
                    folders.append(folder / entry.name)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # packed or deleted meanwhile
    return total


def _trainer_counters(reader: RunReader) -> list[NameValue]:
    """Counters that the trainer's writer stored when it closed; empty before that."""
    rows = []
    for attempt in reader.run.attempts()[-1:]:
        for rank, counts in reader.run.counters(attempt).items():
            counter_texts = [
                f"{counts[key]} {key}" for key in ("written", "thinned", "dropped", "unsynced") if key in counts
            ]
            rows.append(NameValue(name=f"rank {rank}", value=", ".join(counter_texts)))
    return rows


def _versions(reader: RunReader) -> list[NameValue]:
    facts = reader.run.identity()
    writer_version = str(facts.get("version", ""))
    rows = [NameValue(name="viewer", value=__version__), NameValue(name="format", value=str(facts["format"]))]
    return [*rows, NameValue(name="run written by", value=writer_version)] if writer_version else rows
