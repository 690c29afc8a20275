"""The coverage alarm: found where the same is said to all, silent at the edge of its null, and re-armed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors import BUILTIN
from tiltmeter.detectors.coverage_fall import CHANCE, COVERAGE, LEAST, WINDOW, CoverageFall
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.betting import alpha_left
from tiltmeter.testing import check_detector
from tiltmeter.verdict.verdict import judge_run


def play(detector: CoverageFall, shares: Iterable[float], first: int = 0, attempt: int = 0) -> list[Alarm]:
    steps = (Reading(attempt, step, COVERAGE, float(share), 1) for step, share in enumerate(shares, first))
    return [alarm for alarm in map(detector.update, steps) if alarm is not None]


def test_the_contract_of_detectors_holds() -> None:
    check_detector(CoverageFall)


@pytest.mark.parametrize("healthy", [25, 60, 300])
def test_collapse_is_found_with_its_onset_whenever_it_comes(healthy: int) -> None:
    (raised,) = play(CoverageFall(), [0.96] * healthy + [0.5] * 60)
    assert raised.onset == healthy and raised.step - healthy < 35
    assert "in 50 %, at best 96 %, by chance 50 %" in raised.summary


def test_less_than_half_of_it_lost_is_no_collapse_nor_is_a_low_start_that_stays() -> None:
    assert play(CoverageFall(), [0.96] * 40 + [0.75] * 400) == []
    assert play(CoverageFall(), [0.55] * 400) == []
    assert play(CoverageFall(), [0.7] * 400) == []


def test_what_was_best_counts_and_not_the_start() -> None:
    assert play(CoverageFall(), [0.62] * 20 + [0.9] * 40 + [0.55] * 80)
    assert play(CoverageFall(), [0.62] * 60 + [0.57] * 80) == []


def test_the_bound_holds_at_the_edge_of_the_null_and_a_broken_edge_is_caught() -> None:
    def alarms(lower: float, runs: int) -> int:
        count = 0
        for seed in range(runs):
            rng, best, last = np.random.default_rng([13, seed]), 0.9, [0.9] * WINDOW
            detector = CoverageFall()
            play(detector, last)
            for step in range(WINDOW, 150):
                half = LEAST * (best - CHANCE)
                last.append(CHANCE + half + half * float(rng.choice([-1.0, 1.0])) - lower * half)
                count += len(play(detector, last[-1:], first=step))
                best = max(best, float(np.mean(last[-WINDOW:])))
        return count

    runs = size(40, 2_000)
    assert alarms(0.0, runs) <= 1 + runs * CoverageFall().alpha
    assert alarms(0.7, 10) > 5  # the harness can fail


def test_gold_and_coverage_together_spend_what_is_promised() -> None:
    alarms = [detector for detector in (make() for make in BUILTIN) if detector.tier == "alarm"]
    spent = [alpha_left(part.alpha, 1) if isinstance(part, GoldLossTest) else part.alpha for part in alarms]
    assert sum(spent) == pytest.approx(0.01)


def test_a_rewind_behind_the_onset_resolves_it_and_the_next_arming_needs_more() -> None:
    detector = CoverageFall()
    (raised,) = play(detector, [1.0] * 40 + [0.4] * 60)
    assert detector.rewind(1, 60) is None and detector.standing == raised
    resolved = detector.rewind(1, 30)
    assert resolved is not None and resolved.resolved == 30 and detector.standing is None
    (again,) = play(detector, [0.4] * 60, first=30, attempt=1)
    assert again.threshold > raised.threshold + 2.0
    dismissed = detector.dismiss(95)
    assert dismissed is not None and dismissed.resolved == 95


def test_a_run_that_says_the_same_to_everybody_is_act_without_gold(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rng, run = np.random.default_rng(3), RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="test", ranks=1, resume_step=None)
    group = np.repeat(np.arange(4), 4)
    for step in range(60):
        own = [rng.integers(0, 900, 8).tolist() for _ in range(4)]
        rows = [[1, 2, 3, 4, 5, 6] if step > 20 else [*own[number], int(rng.integers(0, 9))] for number in group]
        counters = {"seen": step + 1, "written": step + 1}
        batch = from_columns(step, group, tokens=rows, reward=rng.random(16), attempt=0)
        run.write(batch, 0, {"counters": counters, "time": 0.0})
    run.close_rank(0, 0, counters)
    loop = MonitorLoop(run, Config.standard())
    loop.poll()
    loop.close()
    verdict, state, _ = judge_run(run)
    assert verdict.state == "ACT" and verdict.alarms[0].name == COVERAGE and 20 <= verdict.alarms[0].onset <= 22
    assert state.findings["mode_collapse"].alarms == (COVERAGE,)
