"""The campaign over hostile stores, on a few of its cases, with the two stores that every machine has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.sizes import size

Bench = Callable[..., dict[str, Any]]
HARM = ("written_outside", "deleted_outside", "code_run", "hangs", "secrets_found", "over_memory", "not_refused")


def test_a_hostile_store_harms_neither_its_readers_nor_its_writers(bench: Bench) -> None:
    figures = bench("hostile_stores", "--stores", "file,moto", "--every", str(size(80, 4)))
    assert figures["cases"] >= size(12, 250) and figures["wrong"] == []
    assert [figures[kind] for kind in (*HARM, "uncounted", "crashes")] == [0] * (len(HARM) + 2)
    assert 0 < figures["peak_mb"] <= 400
    assert figures["controls"] == len(HARM), "each of these would have been seen"
