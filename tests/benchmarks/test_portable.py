"""Other file systems under a few kills, and one recorded run on a processor that can do less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sizes import CAMPAIGN, size

Bench = Callable[..., dict[str, Any]]


def test_nothing_acknowledged_is_lost_on_a_server_that_loses_replies(bench: Bench) -> None:
    figures = bench("crash", "--cycles", str(size(6, 50)), "--file-system", "lost replies")
    assert figures["acknowledged"] + figures["events_acknowledged"] > 0
    assert figures["lost"] == figures["torn_reads"] == figures["events_lost"] == figures["events_changed"] == 0


@pytest.mark.skipif(not CAMPAIGN, reason="kernels are compiled anew for each set of features: minutes")
def test_a_replay_does_not_depend_on_the_processors_features(bench: Bench) -> None:
    figures = bench("portable", "--skip-crashes", "--runs", "gold_column")
    assert figures["feature_sets"] == 3 and figures["different"] == {}
