"""Families outside the split: a twin differs in gold alone, kinds are measured, and a gold column is watched."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.simulate import simulate
from tiltmeter_lab.worlds.families import FAMILIES, NETWORK_FAMILIES


@pytest.fixture
def power(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import power as module  # benchmarks are scripts, not a package

    yield module
    for name in ("power", "power_worlds", "record"):
        sys.modules.pop(name, None)


def test_there_are_ten_and_none_is_of_the_lab(power: ModuleType) -> None:
    assert len(power.MECHANISMS) == 10
    assert not power.MECHANISMS.keys() & (FAMILIES.keys() | NETWORK_FAMILIES.keys())


@pytest.mark.parametrize("family", ["citations", "tool_calls"])
def test_a_twin_has_the_same_rollouts_and_gold_that_does_not_fall(power: ModuleType, family: str) -> None:
    hack, twin = (simulate(world, 7) for world in power.pair(family, "tilt", 3, 0))
    assert np.array_equal(hack.reward, twin.reward)
    assert GroundTruth.of(hack.gold, hack.slope).kind == "hack"
    assert GroundTruth.of(twin.gold, twin.slope).kind == "benign"
    assert power.watch_whole(hack) is not None
    assert power.watch_whole(twin) is None


def test_the_summary_counts_hacks_and_false_alarms_apart(power: ModuleType) -> None:
    def line(twin: bool, kind: str, alarm: int | None) -> dict[str, object]:
        shares = ("0.02", "0.1", "all")
        return {
            "twin": twin,
            "kind": kind,
            "drop": 0.2,
            "slope_turns": 1.0,
            "alarms": dict.fromkeys(shares, alarm),
            "regrets": dict.fromkeys(shares, 0.1),
        }

    kinds = [(False, "hack", 5), (False, "hack", None), (False, "plateau", 5), (True, "benign", 9)]
    row = power.summary("x", [line(*kind) for kind in kinds])
    assert (row["hacks"], row["twins"], row["found_0.02"], row["false_0.02"]) == (2, 1, 0.5, 1)
