"""Each promise of the threat model names tests, and these exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text("utf-8")
PROMISES = [
    line.strip("|").split("|")
    for part in PAGE.partition("## What is promised")[2].split("### ")[1:]
    for line in part.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| promise"))
]


@pytest.mark.parametrize(("promise", "tests"), PROMISES, ids=[promise.strip()[:60] for promise, _ in PROMISES])
def test_a_promise_has_tests_that_exist(promise: str, tests: str) -> None:
    names = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", tests)
    assert names, f"nothing tests that {promise.strip()}"
    for file, name in names:
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text("utf-8"), re.M), f"{file} has no {name}"


def test_every_part_has_promises_and_says_where_they_end() -> None:
    parts = PAGE.partition("## What is promised")[2].split("### ")[1:]
    assert len(parts) == 8 and len(PROMISES) >= 20
    assert all("*Limits.*" in part for part in parts)
