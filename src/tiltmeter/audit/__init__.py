"""Audits a finished run in any known format: reads it, and measures it with the same loop that watches live runs."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiltmeter.audit.dataset_join import DatasetRows
from tiltmeter.audit.engine.engine import Engine
from tiltmeter.audit.engine.parallel import ParallelMeasurer
from tiltmeter.audit.importing import ENGINE_BYTES, import_run
from tiltmeter.audit.label_file import GoldLabels
from tiltmeter.audit.linked_run import link_run
from tiltmeter.audit.readers import find_runs
from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.data.baseline import Baseline
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold.corrected_judge import CorrectedJudge
from tiltmeter.gold.people import PeopleSource
from tiltmeter.monitor.arrivals import Rollouts, StepReady
from tiltmeter.monitor.list_entry_writer import leave_list_entry
from tiltmeter.monitor.live_arrivals import LiveArrivals
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.measure_step import InProcess, Measurer, StepMeasurement
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import monitor_lock
from tiltmeter.monitor.recorded_arrivals import RecordedArrivals
from tiltmeter.monitor.replay import recorded_gold
from tiltmeter.rundir.journal import Event, JournalReader, read_events
from tiltmeter.rundir.store import RunDirectory, read_json

WAIT_SECONDS = 0.05  # between polls while labels are pending

Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@dataclass(frozen=True, slots=True)
class AuditedRun:
    """An audited run: its run directory, and notes on how its files were read."""

    name: str
    run: RunDirectory
    notes: tuple[str, ...]
    problem: str = ""  # why this run could not be audited, where the others were


def audit(
    path: Path,
    home: Path,
    options: ReadOptions,
    config: Config,
    *,
    engine: Engine | None = None,
    forced: bool = False,
    labels: GoldLabels | None = None,
    dataset: DatasetRows | None = None,
    progress: Progress = lambda what, done, of: None,
) -> Iterator[AuditedRun]:
    """Audit every run at `path`, each into a directory of its own under `home`.

    `engine`: the workers, used where there is enough data; `forced`: use them always. An audit that was killed is
    resumed in the same `home`. `dataset`: rows whose columns are joined to the rollouts, by their prompts.
    """
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    if isinstance(config.gold, (PeopleSource, CorrectedJudge)):
        raise AttachError(
            "people label at the page of a run: audit with --keep DIR first, then `tiltmeter watch DIR/RUN "
            "--gold people` and `tiltmeter view DIR`"
        )
    used_names: set[str] = set()
    sources = _sources(path, options, labels, dataset)
    for source in sources:
        name = _safe_name(source.name if isinstance(source, ExternalRun) else _run_name(source))
        name = next(
            one for one in (name, *(f"{name}-{k}" for k in range(2, len(used_names) + 3))) if one not in used_names
        )
        used_names.add(name)
        try:
            yield _audit_one(source, home / name, config, engine, forced, labels, dataset, progress)
        except StoreError as error:
            if len(sources) == 1:
                raise
            yield AuditedRun(name, RunDirectory(home / name), (), str(error))


def _audit_one(
    source: RunDirectory | ExternalRun,
    place: Path,
    config: Config,
    engine: Engine | None,
    forced: bool,
    labels: GoldLabels | None,
    dataset: DatasetRows | None,
    progress: Progress,
) -> AuditedRun:
    before: RunDirectory | None = None
    if isinstance(source, ExternalRun):
        run, import_notes = import_run(
            source, place, engine=engine, forced=forced, labels=labels, dataset=dataset,
            on_piece=lambda done, of: progress("read", done, of),
        )  # fmt: skip
        notes = (*source.notes, *import_notes)
    else:
        run, notes = link_run(source, place, gold=config.gold is None), (f"{source.path} is a run of ours",)
        before = source if config.gold is None else None
    measure(run, config, engine if forced or _bytes(run) >= ENGINE_BYTES else None, before, progress)
    return AuditedRun(place.name, run, notes)


def measure(
    run: RunDirectory, config: Config, engine: Engine | None, before: RunDirectory | None, progress: Progress
) -> None:
    """Measure a stored run with the monitor loop. `before`: the run whose journal says what was used, and when."""
    recorded = [] if before is None else read_events(before.path / "events")
    with monitor_lock(run):
        config = config.with_recorded_gold(recorded_gold(recorded))
        if recorded or _journal_digest(run) not in (None, config.digest):
            # A replay starts from the beginning, and a journal made with other settings is not continued. The same
            # files give the same journal again.
            _clear(run)
        ahead = ParallelMeasurer(run, config, engine) if engine is not None else None
        total = sum(len({file.step for file in run.files(attempt, [])}) for attempt in run.attempts())
        measurer = _ProgressMeasurer(ahead or InProcess(run, config), total, progress)
        try:
            if recorded:
                _run_loop(
                    MonitorLoop(run, config, source=RecordedArrivals(run, recorded), measurer=measurer, durable=False),
                    once=True,
                )
            if not recorded or (config.gold is None and _unmeasured(run, recorded)):
                _run_loop(
                    MonitorLoop(run, config, source=LiveArrivals(run), measurer=measurer, durable=False), once=False
                )
        finally:
            if ahead is not None:
                ahead.close()
        leave_list_entry(run)


def _run_loop(watch: MonitorLoop, *, once: bool) -> None:
    try:
        while (watch.poll() or watch.waiting) and not once:
            if watch.waiting:
                time.sleep(WAIT_SECONDS)
    finally:
        watch.close()


def _unmeasured(run: RunDirectory, recorded: Sequence[Event]) -> bool:
    """Whether there are stored steps that no monitor has measured: it died, or the run goes on."""
    done = {(item.attempt, item.step) for item in recorded if item.kind == "step_done"}
    return any((attempt, file.step) not in done for attempt in run.attempts() for file in run.files(attempt, []))


def _clear(run: RunDirectory) -> None:
    """Delete the journal, to start again. Raises if that would delete gold labels."""
    gold = run.path / "gold"
    if not gold.is_symlink() and any((gold / "labels").rglob("*.json")):
        raise StoreError(
            f"{run.path} was judged with other settings, and labels were given for that: give the same options, or "
            "name another place with --keep"
        )
    for part in (run.path / "events", gold):
        if not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)


def _journal_digest(run: RunDirectory) -> str | None:
    """The settings digest at the start of the journal; None if there is no journal."""
    begun = (item.data.get("config") for item in JournalReader(run.path / "events").poll() if item.kind == "attempt")
    return next(begun, None)


class _ProgressMeasurer:
    """Measures steps and reports progress."""

    def __init__(self, measurer: Measurer, total: int, progress: Progress) -> None:
        self._measurer, self._total, self._progress, self._done = measurer, total, progress, 0

    def step(
        self, arrival: StepReady, baseline: Baseline | None, off: Container[str]
    ) -> tuple[StepMeasurement, Rollouts | None]:
        result = self._measurer.step(arrival, baseline, off)
        self._done += 1
        self._progress("measured", self._done, self._total)
        return result


def _sources(
    path: Path, options: ReadOptions, labels: GoldLabels | None, dataset: DatasetRows | None
) -> list[RunDirectory] | list[ExternalRun]:
    """Tiltmeter run directories at this path or one level below; else the runs that a reader finds."""
    ours = [path, path / "tiltmeter"] if path.is_dir() else []
    runs = [RunDirectory(folder) for folder in ours if _is_run(folder)][:1]
    if not runs and path.is_dir():
        runs = [RunDirectory(folder) for folder in sorted(path.iterdir()) if folder.is_dir() and _is_run(folder)]
    if runs and not options.format and labels is None and dataset is None:
        return runs
    if runs and not options.format and dataset is not None:
        raise AttachError(f"{path} is a run of ours, which holds the dataset's columns already: leave --dataset out")
    if runs and labels is not None:
        raise AttachError(
            f"{path} is a run of ours, whose rollouts are never changed: name a function as --gold file.py:function "
            "that looks the labels up"
        )
    return find_runs(path, options)


def _is_run(folder: Path) -> bool:
    """Whether a folder is a Tiltmeter run directory. Raises for one of a newer format."""
    if not isinstance(read_json(folder / "run.json").get("format"), int):
        return False
    RunDirectory(folder).identity()
    return True


def _run_name(run: RunDirectory) -> str:
    """A run's name. Inside a trainer's output folder every run is called `tiltmeter`: use that folder's name."""
    path = run.path.resolve()
    return path.parent.name if path.name == "tiltmeter" else path.name


def _bytes(run: RunDirectory) -> int:
    paths = {file.path for attempt in run.attempts() for file in run.files(attempt, [])}
    return sum(path.stat().st_size for path in paths)


def _safe_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:100] or "run"
