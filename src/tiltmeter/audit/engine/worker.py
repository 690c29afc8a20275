"""What a worker process does: read the files of some steps and run every instrument on them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Reading
from tiltmeter.instruments import Instrument
from tiltmeter.monitor.measure_step import StepMeasurement, measure
from tiltmeter.monitor.panel import InstrumentResult
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory, StepFile

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as <malloc.h> numbers them
REUSED_BYTES = 1 << 22  # smaller ones are reused: asking the system for each costs a tenth of the time


@dataclass(frozen=True, slots=True)
class MeasureSpec:
    """What steps are measured with, in values that can be sent to another process."""

    run: str
    plugins: tuple[str, ...]
    parts: tuple[str, ...]  # names of the instruments that are asked
    baseline: Baseline | None
    strict: bool = False
    key: str = ""  # names this spec: equal keys, equal specs


def measure_steps(spec: MeasureSpec, steps: tuple[tuple[StepFile, ...], ...]) -> list[Packed]:
    """Each of these steps, measured. Pure: the same call gives the same result."""
    run, parts = _run(spec.run), _parts(spec.plugins, spec.parts)
    return [pack_readings(measure(run, files, parts, spec.baseline, strict=spec.strict)[0]) for files in steps]


#: What was measured without its readings; and these as plain tuples. Sending a hundred records one by one would take
#: a tenth of the time that it takes to make them.
Packed = tuple[StepMeasurement, list[tuple[str, list[tuple[Any, ...]], str]]]


def pack_readings(measured: StepMeasurement) -> Packed:
    plain = [
        (
            answer.part,
            [
                (r.attempt, r.step, r.name, r.value, r.n, r.stderr, r.values, r.against, r.keys, r.slices)
                for r in answer.readings
            ],
            answer.error,
        )
        for answer in measured.answers
    ]
    return replace(measured, answers=()), plain


def unpack_readings(message: Packed) -> StepMeasurement:
    """The inverse of `pack_readings`.

    >>> answers = (InstrumentResult("a", (Reading(0, 1, "a", 0.5, 2),)), InstrumentResult("b", (), "no"))
    >>> some = StepMeasurement({}, {}, {}, 0.0, answers=answers)
    >>> unpack_readings(pack_readings(some)) == some
    True
    """
    measured, plain = message
    answers = tuple(InstrumentResult(part, tuple(Reading(*row) for row in rows), error) for part, rows, error in plain)
    return replace(measured, answers=answers)


def limit_resources() -> None:
    """Make this process a worker: no threads of its own, and memory that goes back when a step is done.

    There are as many workers as cores, so threads would only fight over them. Arrow's own allocator and the C library
    both keep what a step needed at its peak, which after a large step is most of what the process holds.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc's; another C library returns memory in its own way
        library.mallopt(M_MMAP_THRESHOLD, REUSED_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, 4 * REUSED_BYTES)


@lru_cache(maxsize=1)  # packed files stay open from one piece of work to the next
def _run(path: str) -> RunDirectory:
    limit_resources()
    return RunDirectory(path)


@lru_cache(maxsize=1)
def _parts(plugins: tuple[str, ...], names: tuple[str, ...]) -> tuple[Instrument, ...]:
    wanted_names = set(names)
    return tuple(part for part in Config.standard(plugins).instruments if part.name in wanted_names)
