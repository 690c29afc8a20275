"""Faults around a training loop, a few of them and without a monitor; all of them, watched, in the campaign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sizes import CAMPAIGN

Bench = Callable[..., dict[str, Any]]
SOME = ("signal_storm", "sigint_handled_in_close")


def test_training_ends_as_if_nobody_watched_and_every_batch_is_counted(bench: Bench) -> None:
    options = () if CAMPAIGN else ("--unwatched", "--steps", "24", "--only", *SOME)
    figures = bench("training_faults", *options)
    assert figures["wrong"] == []
    assert (figures["training_failed"], figures["uncounted"], figures["green"]) == (0, 0, 0)
    assert figures["faults"] >= (30 if CAMPAIGN else len(SOME)) - len(figures["left_out"])
    assert figures["control_is_ok"]


def test_a_boundary_that_hides_signals_is_found_out(bench: Bench) -> None:
    figures = bench(
        "training_faults", "--broken", "--unwatched", "--steps", "8", "--only", "sigterm_handled_in_observe"
    )
    assert figures["training_failed"] == 1
