"""One step measured: its files read, every instrument asked. A function of files alone, so any process may do it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tiltmeter.arrivals import Step
from tiltmeter.baseline import Baseline
from tiltmeter.batches import join
from tiltmeter.config import Config
from tiltmeter.instruments import Instrument
from tiltmeter.panel import Answer, ask, lacking
from tiltmeter.records import RolloutBatch
from tiltmeter.steps import contents, gather
from tiltmeter.store import RunDirectory, StepFile


@dataclass(frozen=True, slots=True)
class Measured:
    """What the files of a step hold, and what every instrument said of them; a few kilobytes, whatever the step."""

    hashes: Mapping[int, str]  # by rank
    counters: Mapping[int, Mapping[str, Any]]  # by rank
    unreadable: Mapping[int, str]  # why, by rank
    written: float  # when, for display and for calling a run stale
    rows: int = 0
    facts: Mapping[str, Any] | None = None  # as `steps.contents` tells them; None: nothing could be read
    fingerprint: str = ""
    absent: Mapping[str, str] | None = None  # columns that instruments would need, by instrument
    answers: tuple[Answer, ...] = ()


#: The rollouts of a step, read again where nobody kept them.
Rollouts = Callable[[], RolloutBatch]


def measure(
    run: RunDirectory,
    files: Iterable[StepFile],
    parts: Sequence[Instrument],
    baseline: Baseline | None,
    *,
    strict: bool = False,
    off: Container[str] = (),
) -> tuple[Measured, RolloutBatch | None]:
    """Read the files of one step and ask every instrument; the rollouts too, None where no file could be read."""
    read = gather(run, files)
    told = (read.hashes, read.counters, read.unreadable, read.written)
    if not read.batches:
        return Measured(*told), None
    batch = join(read.batches, shared_groups=read.shared)
    absent = {part.name: ", ".join(lack) for part in parts if (lack := lacking(part, batch))}
    answers = ask(parts, batch, baseline, strict=strict, off=off)
    return Measured(*told, len(batch), contents(batch), batch.fingerprint, absent, answers), batch


class Bench(Protocol):
    """Where steps are measured."""

    def step(
        self, arrival: Step, baseline: Baseline | None, off: Container[str]
    ) -> tuple[Measured, Rollouts | None]: ...


class Here:
    """Measures each step when it is asked for, in this process: what a live run needs."""

    def __init__(self, run: RunDirectory, config: Config, *, strict: bool = False) -> None:
        self.run, self.parts, self.strict = run, config.instruments, strict

    def step(self, arrival: Step, baseline: Baseline | None, off: Container[str]) -> tuple[Measured, Rollouts | None]:
        measured, batch = measure(self.run, arrival.files, self.parts, baseline, strict=self.strict, off=off)
        return measured, None if batch is None else lambda: batch
