"""Agreement and level at a small size: intervals hold at every step, and who gained is not called hollow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sizes import size


def test_the_intervals_hold_at_every_step_and_no_run_that_gained_is_called_hollow(
    bench: Callable[..., dict[str, Any]],
) -> None:
    figures = bench("agreement", "--runs", str(size(60, 400)))
    assert figures["coverage"] >= 0.99 and figures["level_coverage"] >= 0.99
    assert figures["fixed_coverage"] < 0.97, "the check would see an interval that does not hold"
    assert figures["hollow_gained"] == figures["hollow_edge"] == figures["hollow_flat"] == 0.0
    assert figures["hollow_nothing"] > 0.8
