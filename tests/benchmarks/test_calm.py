"""The audit of false calm, on a few of its troubles: each kind of ending once, and a healthy run that is calm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sizes import CAMPAIGN

Bench = Callable[..., dict[str, Any]]
SOME = [
    "coding assistant, all labelled",
    "gold raises",
    "hollow, all labelled",
]


def test_no_surface_is_calm_over_a_planted_trouble(bench: Bench) -> None:
    figures = bench("calm", *([] if CAMPAIGN else ["--only", *SOME]))
    assert figures["troubles"] >= len(SOME)
    assert (figures["surfaces"], figures["false_calm"], figures["calm"]) == (8, 0, [])
    assert figures["calm_when_healthy"] == 8, "the check would see calm if there were any"
