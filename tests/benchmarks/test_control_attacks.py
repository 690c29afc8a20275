"""Attacks on control, labels and tokens, some of those on files and all of those on the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.sizes import size

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

Bench = Callable[..., dict[str, Any]]


def test_no_attack_on_control_labels_or_tokens_is_applied(bench: Bench) -> None:
    figures = bench("control_attacks", "--every", str(size(6, 1)))
    assert figures["which"] == {} and figures["applied"] == 0
    assert figures["on_page"] >= 45
    assert figures["seen"] == figures["legal"], "what the owner does would have been seen"
    if figures["other_users"]:
        assert figures["attacks"] >= size(55, 110)
