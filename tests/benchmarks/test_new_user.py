"""The tasks of a new user: commands come from the pages, and a page that promises something else is noticed."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import new_user

RECORDED = json.loads((new_user.ROOT / "benchmarks" / "results" / "new_user.json").read_text())


@pytest.fixture
def desk(tmp_path: Path) -> new_user.Desk:
    return new_user.Desk(tmp_path, {"PATH": os.environ["PATH"], "HOME": str(tmp_path)})


def console(text: str) -> new_user.Block:
    return new_user.Block("", "console", "", text)


def test_blocks_are_found_with_their_heading_and_title() -> None:
    (block,) = [one for one in new_user.blocks("probe.md") if one.heading == "Try it" and one.language == "python"]
    assert block.title == "rewards.py" and "def score" in block.text


def test_a_page_that_shows_what_is_not_printed_or_another_exit_code_stops_the_task(desk: new_user.Desk) -> None:
    desk.console(console("$ printf 'one\\ntwo\\nthree\\n'\none\n...\nthree\n$ false\n$ echo $?\n1\n"))
    with pytest.raises(new_user.StuckError, match="the page shows 'four'"):
        desk.console(console("$ printf 'one\\n'\nfour\n"))
    with pytest.raises(new_user.StuckError, match="the page shows '0'"):
        desk.console(console("$ false\n$ echo $?\n0\n"))
    with pytest.raises(new_user.StuckError, match="exit code 1"):
        desk.console(console("$ false\n"))


def test_programs_are_pasted_into_one_session_and_their_errors_stop_the_task(desk: new_user.Desk) -> None:
    desk.python(new_user.Block("a", "python", "", "x = 2\n"))
    desk.python(new_user.Block("b", "python", "", "open('x.txt', 'w').write(str(x))\n"))
    assert (desk.folder / "x.txt").read_text() == "2"
    with pytest.raises(new_user.StuckError, match="ZeroDivisionError"):
        desk.python(new_user.Block("c", "python", "", "1 / 0\n"))
    desk.close()


def test_a_line_that_a_page_no_longer_has_stops_the_task(desk: new_user.Desk) -> None:
    with pytest.raises(new_user.StuckError, match="has no line"):
        desk.shell("gold.md", "Draft a check and test it", "tiltmeter gold nonsense")


def test_what_is_recorded_is_what_the_pages_say_now() -> None:
    assert set(RECORDED["by_task"]) == set(new_user.TASKS)
    assert RECORDED["tasks_done"] == RECORDED["tasks"] == len(new_user.TASKS) >= 10
    pages = re.sub(r"^\$ ", "", "\n".join(path.read_text() for path in new_user.DOCS.rglob("*.md")), flags=re.M)
    theirs = {command for task in RECORDED["by_task"].values() for command in task.get("commands", ())}
    own = [one for one in theirs if one not in pages and not one.startswith(("echo", "python"))]
    # Two runs of the demo that a task begins with, and lines in which a name of the reader's was put.
    assert sum("demo-runs" not in one and "--keep runs" not in one and "127.0.0.1" not in one for one in own) <= 1, own
