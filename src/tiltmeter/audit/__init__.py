"""A run that already happened, in anybody's files: read, measured and judged by the loop that watches live ones."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tiltmeter.adapters.readers import find
from tiltmeter.adapters.readers.foreign import Asked, Foreign
from tiltmeter.arrivals import LiveArrivals, RecordedArrivals, Step
from tiltmeter.audit.borrowed import borrow
from tiltmeter.audit.importing import ENGINE_BYTES, import_run
from tiltmeter.audit.labels import Labels
from tiltmeter.baseline import Baseline
from tiltmeter.config import Config
from tiltmeter.engine import Engine
from tiltmeter.engine.ahead import Ahead
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold.people import PeopleSource
from tiltmeter.journal import Event, Tail
from tiltmeter.measuring import Bench, Here, Measured, Rollouts
from tiltmeter.monitor import only_monitor
from tiltmeter.replay import MADE_BY_THE_LOOP, gold_of
from tiltmeter.store import RunDirectory
from tiltmeter.watch import Watch

WAIT_SECONDS = 0.05  # for labels that are being given

Progress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@dataclass(frozen=True, slots=True)
class Audited:
    """A run that was audited: where its journal is, and what there is to say about how its files were read."""

    name: str
    run: RunDirectory
    said: tuple[str, ...]
    problem: str = ""  # why it could not be audited: one of several, and the others were


def audit(
    path: Path,
    home: Path,
    asked: Asked,
    config: Config,
    *,
    engine: Engine | None = None,
    forced: bool = False,
    labels: Labels | None = None,
    progress: Progress = lambda what, done, of: None,
) -> Iterator[Audited]:
    """Audit every run at `path`, each into a directory of its own under `home`.

    `engine`: where work runs, where there is enough of it; `forced`: however little there is. An audit that was killed
    goes on in the same `home`.
    """
    if not path.exists():
        raise StoreError(f"{path} does not exist")
    if isinstance(config.gold, PeopleSource):
        raise AttachError(
            "people label at the page of a run: audit with --keep DIR first, then `tiltmeter watch DIR/RUN "
            "--gold people` and `tiltmeter view DIR`"
        )
    taken: set[str] = set()
    sources = _sources(path, asked, labels)
    for source in sources:
        name = _plain(source.name if isinstance(source, Foreign) else _called(source))
        name = next(one for one in (name, *(f"{name}-{k}" for k in range(2, len(taken) + 3))) if one not in taken)
        taken.add(name)
        try:
            yield _audited(source, home / name, config, engine, forced, labels, progress)
        except StoreError as error:
            if len(sources) == 1:
                raise
            yield Audited(name, RunDirectory(home / name), (), str(error))


def _audited(
    source: RunDirectory | Foreign,
    place: Path,
    config: Config,
    engine: Engine | None,
    forced: bool,
    labels: Labels | None,
    progress: Progress,
) -> Audited:
    before: RunDirectory | None = None
    if isinstance(source, Foreign):
        run, told = import_run(
            source, place, engine=engine, forced=forced, labels=labels,
            on_piece=lambda done, of: progress("read", done, of),
        )  # fmt: skip
        said = (*source.said, *told)
    else:
        run, said = borrow(source, place, gold=config.gold is None), (f"{source.path} is a run of ours",)
        before = source if config.gold is None else None
    measure(run, config, engine if forced or _bytes(run) >= ENGINE_BYTES else None, before, progress)
    return Audited(place.name, run, said)


def measure(
    run: RunDirectory, config: Config, engine: Engine | None, before: RunDirectory | None, progress: Progress
) -> None:
    """Take a run that is stored through the loop. `before`: the run whose journal says what was used, and when."""
    past = () if before is None else Tail(before.path / "events").poll()
    recorded = [item for item in past if item.kind in MADE_BY_THE_LOOP]
    with only_monitor(run):
        config = config.recorded(gold_of(recorded))
        if recorded or _settings(run) not in (None, config.digest):
            # What was used and in which order is told from the beginning, and what was concluded with other settings is
            # not gone on with. Making it again from the same files gives the same.
            _clear(run)
        ahead = Ahead(run, config, engine) if engine is not None else None
        total = sum(len({file.step for file in run.files(attempt, [])}) for attempt in run.attempts())
        bench = _Counted(ahead or Here(run, config), total, progress)
        try:
            if recorded:
                _follow(
                    Watch(run, config, source=RecordedArrivals(run, recorded), bench=bench, durable=False), once=True
                )
            if not recorded or (config.gold is None and _unmeasured(run, recorded)):
                _follow(Watch(run, config, source=LiveArrivals(run), bench=bench, durable=False), once=False)
        finally:
            if ahead is not None:
                ahead.close()


def _follow(watch: Watch, *, once: bool) -> None:
    try:
        while (watch.poll() or watch.waiting) and not once:
            if watch.waiting:
                time.sleep(WAIT_SECONDS)
    finally:
        watch.close()


def _unmeasured(run: RunDirectory, recorded: Sequence[Event]) -> bool:
    """Whether steps are stored that no monitor has come to: it died, or the run goes on."""
    done = {(item.attempt, item.step) for item in recorded if item.kind == "step_done"}
    return any((attempt, file.step) not in done for attempt in run.attempts() for file in run.files(attempt, []))


def _clear(run: RunDirectory) -> None:
    """Begin again. Labels that somebody gave are not thrown away for it."""
    gold = run.path / "gold"
    if not gold.is_symlink() and any((gold / "labels").rglob("*.json")):
        raise StoreError(
            f"{run.path} was judged with other settings, and labels were given for that: give the same options, or "
            "name another place with --keep"
        )
    for part in (run.path / "events", gold):
        if not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)


def _settings(run: RunDirectory) -> str | None:
    """The digest of the settings that a journal was begun with; None if there is none."""
    begun = (item.data.get("config") for item in Tail(run.path / "events").poll() if item.kind == "attempt")
    return next(begun, None)


class _Counted:
    """A bench that says how far it has got."""

    def __init__(self, bench: Bench, total: int, progress: Progress) -> None:
        self._bench, self._total, self._progress, self._done = bench, total, progress, 0

    def step(self, arrival: Step, baseline: Baseline | None, off: Container[str]) -> tuple[Measured, Rollouts | None]:
        found = self._bench.step(arrival, baseline, off)
        self._done += 1
        self._progress("measured", self._done, self._total)
        return found


def _sources(path: Path, asked: Asked, labels: Labels | None) -> list[RunDirectory] | list[Foreign]:
    """Run directories of ours, at this place or one below; else what a reader knows."""
    ours = [path, path / "tiltmeter"] if path.is_dir() else []
    runs = [RunDirectory(folder) for folder in ours if _is_run(folder)][:1]
    if not runs and path.is_dir():
        runs = [RunDirectory(folder) for folder in sorted(path.iterdir()) if folder.is_dir() and _is_run(folder)]
    if runs and not asked.format and labels is None:
        return runs
    if runs and labels is not None:
        raise AttachError(
            f"{path} is a run of ours, whose rollouts are never changed: name a function as --gold file.py:function "
            "that looks the labels up"
        )
    return find(path, asked)


def _is_run(folder: Path) -> bool:
    """Whether a folder holds a run of ours. Raises for one of a newer format: no other reader would know more."""
    try:
        told = json.loads((folder / "run.json").read_bytes())
    except (OSError, ValueError):
        return False
    if not isinstance(told, dict) or not isinstance(told.get("format"), int):
        return False
    RunDirectory(folder).identity()
    return True


def _called(run: RunDirectory) -> str:
    """Inside a trainer's output folder every run has the same name: there it is called as that folder is."""
    path = run.path.resolve()
    return path.parent.name if path.name == "tiltmeter" else path.name


def _bytes(run: RunDirectory) -> int:
    paths = {file.path for attempt in run.attempts() for file in run.files(attempt, [])}
    return sum(path.stat().st_size for path in paths)


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:100] or "run"
