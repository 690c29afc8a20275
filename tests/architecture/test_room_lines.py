"""Rooms of the core do not grow unnoticed: each has a budget of lines, and a budget rises with a reason beside it."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src" / "tiltmeter"
#: A line for each room: the most lines that it may have, what it began with, and why it may have more, if it may.
ROOMS = {one["room"]: one for one in tomllib.loads(Path(__file__).with_name("room_lines.toml").read_text())["rooms"]}


def lines_by_room(src: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for path in src.rglob("*.py"):
        parts = path.relative_to(src).parts
        counts[parts[0] if len(parts) > 1 else "top level"] += len(path.read_text().splitlines())
    return dict(sorted(counts.items()))


def over_budget(counts: dict[str, int], rooms: dict[str, dict[str, object]]) -> list[str]:
    """Rooms that have more lines than they may, or no budget; and budgets that rose without a reason."""
    wrong = [f"{room} has no budget" for room in counts if room not in rooms]
    wrong += [f"{room} is no room" for room in rooms if room not in counts]
    for room, one in rooms.items():
        most, began = one["most"], one["began"]
        assert isinstance(most, int) and isinstance(began, int)
        if counts.get(room, 0) > most:
            wrong.append(f"{room} has {counts[room]} lines and may have {most}")
        if most > began and not one.get("reason"):
            wrong.append(f"{room} may have {most} lines, more than {began}, and no reason says why")
    return wrong


def test_every_room_is_within_its_budget() -> None:
    assert over_budget(lines_by_room(SRC), ROOMS) == []


@pytest.mark.parametrize(
    ("counts", "budget", "found"),
    [
        ({"data": 10}, {"data": {"most": 10, "began": 10}}, 0),
        ({"data": 11}, {"data": {"most": 10, "began": 10}}, 1),
        ({"data": 11}, {"data": {"most": 12, "began": 10}}, 1),
        ({"data": 11}, {"data": {"most": 12, "began": 10, "reason": "turns of conversations"}}, 0),
        ({"data": 9, "more": 1}, {"data": {"most": 10, "began": 10}}, 1),
        ({}, {"data": {"most": 10, "began": 10}}, 1),
    ],
)
def test_what_is_planted_is_seen(counts: dict[str, int], budget: dict[str, dict[str, object]], found: int) -> None:
    assert len(over_budget(counts, budget)) == found
