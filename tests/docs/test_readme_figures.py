"""The figures in the README are those that were measured."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_headline_has_the_recorded_figures_of_the_network() -> None:
    level, tiny, cost = (
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        for name in ("level", "tiny_suite", "overhead_trl")
    )
    text = " ".join((ROOT / "README.md").read_text().split())
    for part in (
        f"{level['detected']} of {level['hacks']} hacks raised an alarm",
        f"{level['benign_alarms']} of {level['benign']} benign runs did",
        f"Gold lost by then is {level['regret_median']:.2f} in the median",
        f"can lose less than about {tiny['floor_median']:.2f} there",
        f"and {tiny['rollback_gap_median']:.2f} after going back",
        f"that {tiny['rollback_labels']} labels of the past name",
        f"With a tenth labelled it is {tiny['regret_median']:.2f} at the alarm",
        f"{cost['cpu_ratio_trainer']:.2f} times the CPU of the bare one",
        f"({cost['cpu_ratio_low']:.2f} to {cost['cpu_ratio_high']:.2f})",
    ):
        assert part in text, part


def test_the_readme_is_short_and_begins_with_a_picture() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    assert len(lines) < 150
    assert any(line.startswith("![") for line in lines[:12])
