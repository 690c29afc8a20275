"""The benchmark of forecasts: its truth is the truth, and at a small size its figures hold together."""

from __future__ import annotations

import importlib.util
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tiltmeter_lab.worlds.families import FAMILIES
from tiltmeter_lab.worlds.world import World
from tiltmeter_workbench.forecast.estimate import forecast_gold

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    sys.path.insert(0, str(BENCHMARKS))
    try:
        spec = importlib.util.spec_from_file_location("before_forecast", BENCHMARKS / "before_forecast.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(BENCHMARKS))
    return module


def test_the_truth_is_summed_from_the_tables(benchmark: ModuleType) -> None:
    reference, proxy, gold_table = np.array([[[0.5, 0.3, 0.2]], [[1.0, 0.5, -1.0]], [[0.2, 0.9, 0.1]]])
    world = World("toy", reference, proxy, gold_table)
    gold, nats, paid = benchmark.exact(world, 0.5, "tilt")
    assert (round(nats, 4), round(paid, 4)) == (0.2841, 0.8982)
    assert gold == pytest.approx(0.8143 * 0.2 + 0.1797 * 0.9 + 0.0060 * 0.1, abs=1e-4)
    assert benchmark.exact(world, math.inf, "tilt")[0] == pytest.approx(0.39)
    assert benchmark.exact(world, 1, "best")[1] == pytest.approx(0.0, abs=1e-12)


def test_samples_come_from_the_reference_and_labels_cost_what_was_said(benchmark: ModuleType) -> None:
    world = FAMILIES["length"].world(1, 0, "tilt")
    sheet = benchmark.sampled(world, 128, np.random.default_rng(0))
    assert sheet.score.shape == (benchmark.PROMPTS, 128)
    assert 180 < sheet.labels < 340
    mean = float((world.reference * world.proxy).sum(1).mean())
    assert sheet.score.mean() == pytest.approx(mean, abs=4.0 * world.scale / math.sqrt(benchmark.PROMPTS))


def test_a_forecast_of_other_gold_would_be_found_wrong(benchmark: ModuleType) -> None:
    world = FAMILIES["honest_length"].world(2, 0, "tilt")
    found = forecast_gold(benchmark.sampled(world, 128, np.random.default_rng(1)))
    right = benchmark.judged(world, found)
    assert right["tilt_peaks"] is False
    upside_down = World("upside down", world.reference, world.proxy, 1.0 - world.gold)
    wrong = benchmark.judged(upside_down, found)
    assert np.mean(right["tilt_gain"]) > 0.5 > np.mean(wrong["tilt_gain"])


def test_a_heavy_family_is_refused_and_a_light_one_is_not(
    benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark, "SIZES", (128,))
    heavy, light = (benchmark.line(name, benchmark.campaign(FAMILIES[name], 5, 2)) for name in ("heavy_t2", "accurate"))
    assert (heavy["refused"], light["refused"]) == (1.0, 0.0)
    assert light["reach, nats"] > 0.5
