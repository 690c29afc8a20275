"""Measure one step: read its files and run every instrument. Depends on files only, so any process may do it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import join, with_gold
from tiltmeter.data.memo import shared_results
from tiltmeter.data.records import SHARED_STEP, RolloutBatch
from tiltmeter.instruments import Instrument
from tiltmeter.instruments.gold_overpay import GoldOverpay
from tiltmeter.monitor.arrivals import Rollouts, StepReady
from tiltmeter.monitor.behaviour_sketch import find_behaviours
from tiltmeter.monitor.panel import InstrumentResult, missing_columns, run_guarded, run_instruments
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.payloads import BehaviourSeen
from tiltmeter.rundir.step_files import read_step_files, summarize_batch
from tiltmeter.rundir.store import RunDirectory, StepFile
from tiltmeter.stats.groups import standardise

BEHAVIOURS = "behaviours"  # the part that finds them, in faults


@dataclass(frozen=True, slots=True)
class StepMeasurement:
    """What was read from a step's files, and every instrument's result; a few kilobytes, whatever the step."""

    hashes: Mapping[int, str]  # by rank
    counters: Mapping[int, Mapping[str, Any]]  # by rank
    unreadable: Mapping[int, str]  # why, by rank
    written: float  # when, for display and for calling a run stale
    rows: int = 0
    facts: Mapping[str, Any] | None = None  # as `summarize_batch` returns them; None: nothing could be read
    fingerprint: str = ""
    absent: Mapping[str, str] | None = None  # columns that instruments would need, by instrument
    answers: tuple[InstrumentResult, ...] = ()
    behaviours: tuple[BehaviourSeen, ...] = ()  # as this step alone shows them


def measure(
    run: RunDirectory,
    files: Iterable[StepFile],
    parts: Sequence[Instrument],
    baseline: Baseline | None,
    *,
    strict: bool = False,
    off: Container[str] = (),
) -> tuple[StepMeasurement, RolloutBatch | None]:
    """Read the files of one step and run every instrument; also returns the rollouts, None if no file could be read."""
    step_data = read_step_files(run, files)
    file_facts = (step_data.hashes, step_data.counters, step_data.unreadable, step_data.written)
    if not step_data.batches:
        return StepMeasurement(*file_facts), None
    batch = join(step_data.batches, shared_groups=step_data.shared)
    absent = {part.name: ", ".join(lack) for part in parts if (lack := missing_columns(part, batch))}
    with shared_results():
        answers = run_instruments(parts, batch, baseline, strict=strict, off=off)
        behaviours: tuple[BehaviourSeen, ...] = ()
        if BEHAVIOURS not in off:
            of_step, error = run_guarded(lambda: find_behaviours(batch, baseline), strict=strict)
            behaviours = of_step or ()
            answers += (InstrumentResult(BEHAVIOURS, (), error),) if error else ()
    facts = summarize_batch(batch)
    return StepMeasurement(*file_facts, len(batch), facts, batch.fingerprint, absent, answers, behaviours), batch


def measure_labels(
    parts: Sequence[Instrument],
    batch: RolloutBatch,
    baseline: Baseline | None = None,
    *,
    shared: bool = False,
    strict: bool = False,
    off: Container[str] = (),
) -> list[InstrumentResult]:
    """What the instruments say about gold of a step of which every answer was asked about.

    A label that is missing counts in favour of the run in what is bet on the slope: 1 where the answer is reinforced, 0
    where it is suppressed. Leaving it out would be a choice by its outcome. A prompt of which one is missing is no
    evidence about the level; what is not known of its overpay is counted against the bet. `shared`: whoever gave the
    labels may have had a mood at this step, so that its bets count as one.
    """
    assert batch.gold is not None
    lacking = np.isnan(batch.gold)
    filled = batch
    if lacking.any() and batch.reward is not None:
        reinforced = standardise(batch.reward, batch.starts)[0] > 0.0
        filled = with_gold(batch, np.where(lacking, reinforced.astype(np.float64), batch.gold).tolist())
    results: list[InstrumentResult] = []
    for part in parts:
        is_bet = getattr(part, "audited", False) and not getattr(part, "by_prompt", False)
        labelled = filled if is_bet else batch
        if isinstance(part, GoldOverpay):
            labelled = replace(batch, gold_chance=np.ones(len(batch)))
        for result in run_instruments([part], labelled, baseline, strict=strict, off=off):
            if shared and is_bet:
                marked = tuple(replace(one, against=SHARED_STEP) for one in result.readings)
                result = replace(result, readings=marked)
            results.append(result)
    return results


class Measurer(Protocol):
    """Something that measures steps: this process, or a pool of others."""

    def step(
        self, arrival: StepReady, baseline: Baseline | None, off: Container[str]
    ) -> tuple[StepMeasurement, Rollouts | None]: ...


class InProcess:
    """Measures each step in this process, when it is requested; used for live runs."""

    def __init__(self, run: RunDirectory, config: Config, *, strict: bool = False) -> None:
        self.run, self.parts, self.strict = run, config.instruments, strict

    def step(
        self, arrival: StepReady, baseline: Baseline | None, off: Container[str]
    ) -> tuple[StepMeasurement, Rollouts | None]:
        measured, batch = measure(self.run, arrival.files, self.parts, baseline, strict=self.strict, off=off)
        return measured, None if batch is None else lambda: batch
