"""Every built-in against its contract, found through the same tuples the product uses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter import detectors, instruments
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Ragged, Reading, RolloutBatch
from tiltmeter.detectors import Detector
from tiltmeter.detectors.derived_readings import DERIVED, Derived
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.limit import Limit
from tiltmeter.gold.function import FunctionSource
from tiltmeter.instruments.gold_slope import GoldSlope
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.panel import readings
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir import journal
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.testing import check_derived, check_detector, check_instrument, sample_batch

#: Readings that no part of the panel takes: bets on audited labels, and whatever somebody declares as an evaluation.
MADE_BY_THE_LOOP = ("gold.duel", "gold.answers", "gold.reference", "gold.change", "eval", "slices")

MANY = size(40_000, 1_000_000)


def _title(part: Any) -> str:
    return repr(part()) if part in detectors.BUILTIN else part.__name__


@pytest.mark.parametrize("make", instruments.BUILTIN, ids=_title)
def test_instrument_keeps_its_contract(make: Callable[[], instruments.Instrument]) -> None:
    check_instrument(make)


@pytest.fixture(scope="module")
def endless() -> RolloutBatch:
    """A completion of a million tokens and four million characters beside an ordinary one; in the gate a 25th."""
    rng = np.random.default_rng(0)
    tokens = [rng.zipf(1.3, MANY).clip(0, 30_000), rng.integers(0, 50, 10), np.array([7])]
    offsets = np.concatenate(([0], np.cumsum([len(row) for row in tokens]))).astype(np.int64)
    words = np.array(["the", "so", "sorry", "```", "\n# ", "value,", "however", "!!!!", "x = 1", "éé"])
    text = " ".join(rng.choice(words, MANY))

    def column(values: Any, dtype: Any) -> Ragged:
        return Ragged(np.asarray(values).astype(dtype), offsets)

    noise = rng.normal(0, 0.1, offsets[-1])
    small = sample_batch([3], seed=0)
    return replace(
        small,
        length=np.diff(offsets),
        completion=(text, "short answer", "!" * 4 * MANY),
        prompt=("I think so. " * (MANY * 3 // 10), "why", "how"),
        tokens=column(np.concatenate(tokens), np.int32),
        logprob=column(-np.abs(noise), np.float32),
        ref_logprob=column(-np.abs(noise) + noise[::-1] / 10, np.float32),
        engine_logprob=column(-np.abs(noise), np.float32),
        entropy=column(np.abs(noise), np.float32),
    )


@pytest.mark.parametrize("make", instruments.BUILTIN, ids=_title)
def test_instrument_takes_a_completion_of_a_million_tokens(
    make: Callable[[], instruments.Instrument], endless: RolloutBatch
) -> None:
    part = make()
    begin = time.process_time()
    with np.errstate(all="raise", under="ignore"):
        found = readings(part, endless, Baseline(endless))
    assert time.process_time() - begin < max(4.0, 20e-6 * MANY), "not linear in tokens, or close to it"
    assert all(np.isfinite(reading.value) for reading in found)


@pytest.mark.parametrize("make", DERIVED, ids=_title)
def test_derived_reading_keeps_its_contract(make: Callable[[], Derived]) -> None:
    check_derived(make)


@pytest.mark.parametrize("make", detectors.BUILTIN, ids=_title)
def test_detector_keeps_its_contract(make: Callable[[], Detector]) -> None:
    check_detector(make)


def test_every_part_is_named_once_and_watches_what_exists() -> None:
    config = Config.standard()
    names = [part.name for part in config.instruments] + [make().name for make in config.derived]
    assert len(names) == len(set(names))
    watched = {name for fold in config.derived for name in fold().watches}
    watched |= {name for detector in config.detectors for name in detector().watches}
    for name in watched:
        known = any(name == one or name.startswith(f"{one}.") for one in (*names, *MADE_BY_THE_LOOP))
        assert known, f"nothing measures {name}"


def test_the_loop_makes_the_readings_that_no_part_of_the_panel_takes(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {"id": "drawn"})  # which draws the duels; not every step has one
    attempt = run.open_attempt(launch="a", ranks=1, resume_step=None)
    for step in range(90):
        reward, texts = np.tile(np.linspace(0.0, 1.0, 8), 8), [f"answer {row % 8}" for row in range(64)]
        run.write(from_columns(step, np.repeat(np.arange(8), 8), reward=reward, completion=texts, prompt=texts), 0, {})
    run.close_rank(attempt, 0, {"seen": 90, "dropped": 0})
    write_evaluation(run, Evaluation(attempt, 89, "held_out", 0.7, 200))
    watch = MonitorLoop(run, Config.standard().with_gold(FunctionSource("checks.py:right", _right), 0.5))
    watch.poll()
    watch.close()
    made = {name for event in journal.read_events(run.path / "events") for name in event.data.get("measured", {})}
    assert {"gold.slope", "gold.duel", "eval.held_out"} <= made


def _right(prompt: str, completion: str) -> float:
    return 1.0 if completion > "answer 3" else 0.0


def _at_the_limit(rng: np.random.Generator, name: str = "reward.dead_share", limit: float = 0.5) -> Iterator[Reading]:
    """The hardest null: a mean exactly at the limit, in large jumps, 400 looks."""
    for step, value in enumerate(rng.random(400) < limit):
        yield Reading(0, step, name, float(value), 8)


def _no_slope(rng: np.random.Generator) -> Iterator[Reading]:
    """Slope exactly zero with heavy-tailed rewards and mostly good gold, computed by the instrument itself."""
    slope = GoldSlope()
    group = np.repeat(np.arange(8), 8)
    for step in range(150):
        reward = rng.lognormal(0.0, 1.5, 64)
        batch = from_columns(step, group, reward=reward, gold=(rng.random(64) < 0.9).astype(float))
        yield from readings(slope, batch, None)


def test_the_warning_keeps_its_promise_at_the_limit_itself() -> None:
    check_detector(lambda: Limit("reward.dead_share", 0.5, alpha=0.05), _at_the_limit, runs=size(120, 400))


def test_the_alarm_keeps_its_promise_at_slope_zero() -> None:
    check_detector(lambda: GoldLossTest(alpha=0.05), _no_slope, runs=size(50, 200))


def test_a_promise_that_is_broken_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same check must refute a detector that spends ten times what it promises."""
    from tiltmeter.errors import ContractError

    monkeypatch.setattr("tiltmeter.detectors.limit.alpha_share", lambda alpha, arming: 10.0 * alpha)
    with pytest.raises(ContractError, match="null runs"):
        check_detector(lambda: Limit("reward.dead_share", 0.5, alpha=0.05), _at_the_limit, runs=size(150, 400))
