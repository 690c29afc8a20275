"""The soak at a small size: a monitor is killed, everything is measured in the end, and a second part adds up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

Bench = Callable[..., dict[str, Any]]


def test_a_killed_monitor_comes_back_and_parts_add_up(bench: Bench, tmp_path: Path) -> None:
    options = ("--gold", "function", "--rate", "4", "--last", "0")
    first = bench("soak", str(tmp_path), *options, "--steps", "72", "--slot", "3", "--only", "killed")
    assert (first["parts"], first["steps"], first["measured_share"], first["failures"]) == (1, 72, 1.0, [])
    assert first["faults_killed"] == 1 and first["restarts"] == 1 and first["gap_s_max"] > 0.0
    both = bench("soak", str(tmp_path), *options, "--steps", "8", "--only")
    assert (both["parts"], both["steps"], both["measured_share"], both["restarts"]) == (2, 80, 1.0, 1)
    assert both["hours"] > first["hours"]
