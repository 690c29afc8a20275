"""Hostile objects through the entries of a trainer, on some kinds; all of them, and TRL, in the campaign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sizes import CAMPAIGN

Bench = Callable[..., dict[str, Any]]
SOME = ["error without", "without end"]


@pytest.mark.parametrize("only", [""] if CAMPAIGN else SOME)
def test_nothing_reaches_training_and_everything_lost_is_counted(bench: Bench, only: str) -> None:
    entries = ("observe", "capture", *(("attach",) if CAMPAIGN else ()))
    figures = bench("hostile_objects", "--only", only, "--entries", *entries)
    assert figures["kinds"] >= (40 if CAMPAIGN else 2)
    assert (figures["training_failures"], figures["uncounted"]) == (0, 0), figures


def test_a_boundary_that_lets_errors_through_is_found_out(bench: Bench) -> None:
    figures = bench("hostile_objects", "--broken", "--only", "cancelled", "--entries", "observe")
    assert figures["training_failures"] > 0
