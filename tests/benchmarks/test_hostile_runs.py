"""The campaign over hostile run directories, on a few of its cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sizes import size

Bench = Callable[..., dict[str, Any]]


def test_a_hostile_run_directory_reaches_nothing_outside_of_itself(bench: Bench) -> None:
    figures = bench("hostile_runs", "--every", str(size(400, 10)))
    assert figures["cases"] >= size(30, 300) and figures["wrong"] == []
    outside = ("written_outside", "read_outside", "code_run", "hangs", "crashes", "over_memory", "escapes")
    assert [figures[kind] for kind in outside] == [0] * len(outside)
    assert figures["memory_mb_max"] < 1024
    assert figures["control"] == len(outside), "each of these would have been seen"
