"""Measures steps in parallel processes ahead of the loop, which still takes them one by one in their order.

So the journal is that of a single process: a worker answers for a step and knows nothing of the one before. The first
steps go out one at a time, because what later ones are compared with is made of them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from secrets import token_hex

from tiltmeter.audit.engine.engine import Engine
from tiltmeter.audit.engine.worker import MeasureSpec, measure_steps, unpack_readings
from tiltmeter.data.baseline import Baseline
from tiltmeter.monitor.arrivals import Rollouts, StepReady
from tiltmeter.monitor.measure_step import InProcess, StepMeasurement
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.rank_summary import rank_ranges
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory, StepFile

BYTES = 8_000_000  # of files in one piece of work: about a second of it
ALONE = 16  # steps without a baseline; a run that has none by then has no rollouts to speak of
STEPS = 64  # in one piece of work, however small they are

Files = tuple[StepFile, ...]


class ParallelMeasurer:
    """A measurer whose steps are measured by workers in advance. A step outside the plan is measured here."""

    def __init__(self, run: RunDirectory, config: Config, engine: Engine, *, strict: bool = False) -> None:
        self.run, self.config, self.engine, self.strict = run, config, engine, strict
        self._in_process = InProcess(run, config, strict=strict)
        self._plan = [files for attempt in run.attempts() for files in _steps(run.files(attempt, []))]
        self._places = {files: place for place, files in enumerate(self._plan)}
        self._baseline: Baseline | None = None
        self._sent_alone = 0  # steps that were sent out by themselves, because there was no baseline yet
        self._next = 0  # place in the plan of what comes out next
        self._results: Iterator[StepMeasurement] = iter(())

    def step(
        self, arrival: StepReady, baseline: Baseline | None, off: Container[str]
    ) -> tuple[StepMeasurement, Rollouts | None]:
        place = self._places.get(arrival.files)
        if place is None or (baseline is None and self._sent_alone >= ALONE):
            return self._in_process.step(arrival, baseline, off)
        if baseline is None or baseline is not self._baseline or place < self._next:
            self.close()
            self._baseline, self._next = baseline, place
            # What is measured ahead without a baseline would have to be measured again with it.
            plan = self._plan[place : place + 1] if baseline is None else self._plan[place:]
            self._sent_alone += baseline is None
            self._results = self._measure(plan, baseline)
        while True:
            measured = next(self._results)
            self._next += 1
            if self._next > place:
                break
        attempt, step, ranks = arrival.attempt, arrival.step, list(measured.hashes)
        if measured.facts is None:
            return measured, None
        return measured, lambda: read_step(self.run, attempt, step, rank_ranges(ranks))

    def close(self) -> None:
        """Let the workers go."""
        if hasattr(self._results, "close"):
            self._results.close()
        self._results = iter(())

    def _measure(self, plan: Sequence[Files], baseline: Baseline | None) -> Iterator[StepMeasurement]:
        names = tuple(part.name for part in self.config.instruments)
        spec = MeasureSpec(
            str(self.run.path.resolve()), self.config.plugins, names, baseline, self.strict, token_hex(8)
        )
        for part in self.engine.map(measure_steps, spec, chunk_steps(plan)):
            yield from map(unpack_readings, part)


def chunk_steps(plan: Sequence[Files]) -> Iterator[tuple[Files, ...]]:
    """Neighbouring steps together, until there is about a second of work in them."""
    piece: list[Files] = []
    size = 0
    for files in plan:
        piece.append(files)
        size += sum(_size(file) for file in files)
        if size >= BYTES or len(piece) >= STEPS:
            yield tuple(piece)
            piece, size = [], 0
    if piece:
        yield tuple(piece)


def _size(file: StepFile) -> int:
    try:
        whole = file.path.stat().st_size
    except OSError:
        return 0  # packed or deleted since: whoever reads it will find out
    return whole if file.row_groups is None else whole // 64


def _steps(files: Sequence[StepFile]) -> Iterator[Files]:
    """Files by step; those of one step are neighbours."""
    by_step: dict[int, list[StepFile]] = {}
    for file in files:
        by_step.setdefault(file.step, []).append(file)
    yield from (tuple(ranks) for ranks in by_step.values())
