"""The sandbox's benchmark runs at a small size, and what it reports holds together; no time is judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sandbox.py"


def test_the_benchmark_counts_attacks_leaks_and_forgeries() -> None:
    done = subprocess.run([sys.executable, str(BENCHMARK), "--quick", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    if result.get("measured") is False:
        pytest.skip(done.stderr)
    assert result["blocked"] == result["attacks"] == sum(row["attacks"] for row in result["sieges"]) > 0, done.stderr
    assert result["forgeries_paid_values_out"] == 0
    leak = result["leak"]
    assert (leak["programs"], leak["not_ended"], leak["files_left"], leak["children_left"]) == (100, 0, 0, 0)
    assert leak["descriptors_growth"] == leak["processes_growth"] == 0
    middle = {row["how"]: row["p50_ms"] for row in result["latency"]}
    assert result["pooled_vs_bare"] == pytest.approx(middle["pooled"] / middle["bare"], rel=0.05)
