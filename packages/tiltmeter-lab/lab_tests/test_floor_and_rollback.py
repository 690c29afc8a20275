"""What no proved alarm can do better, and where a rollback goes: on exact paths and on recorded runs."""

from __future__ import annotations

import numpy as np
import pytest

from tiltmeter_lab.evaluate_run import rollback_gap
from tiltmeter_lab.floor import NATS, floor_regret, floor_step
from tiltmeter_lab.rollback import rollback_step
from tiltmeter_lab.tiny.run_files import load_packed
from tiltmeter_lab.tiny.score import estimate_truth, to_trace

CLIFF = np.concatenate([np.full(50, 0.6), np.full(50, 0.4)])


def test_a_drop_of_a_constant_level_is_seen_when_the_squared_distance_says_so() -> None:
    """A window of a steps at 0.6 and b at 0.4 is a b / (a + b) * 0.2² away from its mean, squared and added up."""
    variance = 0.004
    b = np.arange(1, 51)
    nats = 50 * b / (50 + b) * 0.2**2 / (2 * variance)
    assert floor_step(CLIFF, np.full(100, variance)) == 49 + b[nats >= NATS][0]


def test_what_never_falls_is_never_seen_and_fewer_labels_see_later() -> None:
    assert floor_step(np.linspace(0.2, 0.8, 100), np.full(100, 1e-6)) is None
    steps = [floor_step(CLIFF, np.full(100, 0.2 / labels)) for labels in (512, 64, 8)]
    assert all(step is not None for step in steps) and steps == sorted(steps, key=lambda step: step or 0)
    assert len(set(steps)) == 3


@pytest.mark.parametrize("name", ["length_hacking-0", "mode_collapse-1", "phrase_gaming-2"])
def test_of_a_recorded_hack_the_floor_falls_with_labels_and_a_rollback_finds_the_peak(name: str) -> None:
    trace = to_trace(load_packed()[name])
    truth = estimate_truth(trace)
    floors = [floor_regret(trace, truth, share) for share in (0.02, 0.1, 1.0)]
    assert 0.03 < floors[2] < floors[1] < floors[0] <= truth.drop + 1e-9
    alarm = min(truth.peak + 70, len(trace.gold) - 1)
    gaps = [truth.regret(trace.gold, rollback_step(trace, alarm, seed)) for seed in range(4)]
    assert np.median(gaps) < 0.03 < truth.regret(trace.gold, alarm)
    assert rollback_step(trace, alarm, 0) == rollback_step(trace, alarm, 0) <= alarm


def test_a_rollback_sees_nothing_after_the_alarm_and_a_miss_counts_in_full() -> None:
    run = load_packed()["mode_collapse-0"]
    changed = {name: values.copy() for name, values in run.items()}
    changed["gold"][81:], changed["reward"][81:] = 1.0, 0.0
    assert rollback_step(to_trace(changed), 80, 3) == rollback_step(to_trace(run), 80, 3)
    trace = to_trace(run)
    truth = estimate_truth(trace)
    assert rollback_gap(trace, truth, None, 0) == pytest.approx(truth.drop, abs=1e-6)
