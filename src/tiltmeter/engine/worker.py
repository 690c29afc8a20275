"""What a worker does: read the files of some steps and ask every instrument. Nothing else is sent to it or back."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from tiltmeter.baseline import Baseline
from tiltmeter.config import Config
from tiltmeter.instruments import Instrument
from tiltmeter.measuring import Measured, measure
from tiltmeter.panel import Answer
from tiltmeter.records import Reading
from tiltmeter.store import RunDirectory, StepFile

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as <malloc.h> numbers them
KEPT_BYTES = 1 << 22  # smaller ones are reused: asking the system for each costs a tenth of the time


@dataclass(frozen=True, slots=True)
class Recipe:
    """What steps are measured with, in terms that another process can make again."""

    run: str
    plugins: tuple[str, ...]
    parts: tuple[str, ...]  # names of the instruments that are asked
    baseline: Baseline | None
    strict: bool = False
    key: str = ""  # names this recipe: equal keys, equal recipes


def measure_steps(recipe: Recipe, steps: tuple[tuple[StepFile, ...], ...]) -> list[Packed]:
    """Each of these steps, measured. Pure: done twice, it says the same twice."""
    run, parts = _run(recipe.run), _parts(recipe.plugins, recipe.parts)
    return [packed(measure(run, files, parts, recipe.baseline, strict=recipe.strict)[0]) for files in steps]


#: What was measured without its readings; and these as plain tuples. Sending a hundred records one by one would take
#: a tenth of the time that it takes to make them.
Packed = tuple[Measured, list[tuple[str, list[tuple[Any, ...]], str]]]


def packed(measured: Measured) -> Packed:
    plain = [
        (
            answer.part,
            [(r.attempt, r.step, r.name, r.value, r.n, r.stderr, r.values, r.against) for r in answer.readings],
            answer.error,
        )
        for answer in measured.answers
    ]
    return replace(measured, answers=()), plain


def unpacked(sent: Packed) -> Measured:
    """What `packed` was given.

    >>> some = Measured({}, {}, {}, 0.0, answers=(Answer("a", (Reading(0, 1, "a", 0.5, 2),)), Answer("b", (), "no")))
    >>> unpacked(packed(some)) == some
    True
    """
    measured, plain = sent
    answers = tuple(Answer(part, tuple(Reading(*row) for row in rows), error) for part, rows, error in plain)
    return replace(measured, answers=answers)


def lean() -> None:
    """Make this process a worker: no threads of its own, and memory that goes back when a step is done.

    There are as many workers as cores, so threads would only fight over them. Arrow's own allocator and the C library
    both keep what a step needed at its peak, which after a large step is most of what the process holds.
    """
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # glibc's; another C library returns memory in its own way
        library.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, 4 * KEPT_BYTES)


@lru_cache(maxsize=1)  # packed files stay open from one piece of work to the next
def _run(path: str) -> RunDirectory:
    lean()
    return RunDirectory(path)


@lru_cache(maxsize=1)
def _parts(plugins: tuple[str, ...], names: tuple[str, ...]) -> tuple[Instrument, ...]:
    wanted = set(names)
    return tuple(part for part in Config.standard(plugins).instruments if part.name in wanted)
