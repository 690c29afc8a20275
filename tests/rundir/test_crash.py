"""P2: no acknowledged rollout is lost when a writer is killed at any moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sizes import size

pytestmark = pytest.mark.disk
Bench = Callable[..., dict[str, Any]]


def test_nothing_acknowledged_is_lost_in_dozens_of_kills(bench: Bench) -> None:
    cycles = size(12, 50)
    figures = bench("crash", "--cycles", str(cycles))
    assert figures["cycles"] == cycles
    # Every cycle acknowledges at least once before it is killed; less would mean the harness looked at nothing.
    assert figures["acknowledged"] + figures["events_acknowledged"] >= cycles
    assert min(figures[f"cycles_{kind}"] for kind in ("store", "wait", "thin", "journal")) >= 1
    assert figures["files"] >= figures["acknowledged"] > 0
    assert figures["lost"] == figures["torn_reads"] == 0
    assert figures["events_lost"] == figures["events_changed"] == 0


def test_a_store_that_acknowledges_too_early_is_caught(bench: Bench) -> None:
    figures = bench("crash", "--cycles", "20", "--broken")
    assert figures["lost"] > 0
    assert figures["torn_reads"] > 0
    assert figures["events_lost"] > 0
