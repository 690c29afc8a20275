"""Attaching to TRL never hurts: with a fault at every step, training ends with the parameters of an unwatched run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sizes import size

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Bench = Callable[..., dict[str, Any]]

#: Each of these has to be met even at the small size, or the test has looked at nothing.
WANTED = {
    "disk_full", "directory_away", "read_only",
    "instrument_raises", "instrument_answers_nonsense", "detector_raises", "gold_raises", "gold_answers_nonsense",
    "garbage_requests", "garbage_labels", "garbage_rollouts", "request_not_heard", "request_forged", "our_take_raises",
    "our_hear_raises", "our_finish_raises", "our_poll_raises", "rewards_all_none", "rewards_nan",
}  # fmt: skip

#: They hit a monitor that lives at that moment; on a busy machine one kind or another finds none.
OF_THE_MONITOR = {"monitor_killed", "monitor_stopped", "monitor_disk_full"}


def test_training_ends_as_if_unwatched_in_hundreds_of_faults(bench: Bench) -> None:
    faults = size(40, 300)
    figures = bench("trl_faults", "--faults", str(faults), "--steps", str(size(30, 110)))
    assert figures["injected"] >= faults
    assert figures["training_failures"] == 0, figures["failures"]
    assert figures["unaccounted_batches"] == 0
    assert set(figures["by_kind"]) >= WANTED
    assert OF_THE_MONITOR & set(figures["by_kind"])


def test_an_adapter_that_hurts_training_is_found_out(bench: Bench) -> None:
    figures = bench("trl_faults", "--broken", "--faults", "1", "--steps", "24", "--patience", "0")
    assert figures["training_failures"] == figures["runs"] == 2
    raised, changed = figures["failures"]
    assert "Error" in raised
    assert "not those of an unwatched run" in changed
