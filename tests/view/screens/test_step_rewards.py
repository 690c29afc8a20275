"""Process rewards from a step's file to the page: scores of steps, their texts, the first bad one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.view.as_sent import as_sent

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.report.redact import redact_texts
from tiltmeter.view.screens import rollouts as rollouts_screen
from tiltmeter.view.screens.rollouts import STEPS
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import rollouts as pages

group, score_rows = as_sent(rollouts_screen.group), as_sent(rollouts_screen.score_rows)
rollout = as_sent(pages.rollout)

SAID = ["2 + 2 is 4\nso it is 5\nand 5 is right", "One. Two.", "no steps", "x"]
SCORES = [[0.9, 0.25, 0.1], [0.75, 0.5], [], [3.0]]
WANT = [
    [
        {"reward": 0.9, "text": "2 + 2 is 4", "bad": False},
        {"reward": 0.25, "text": "so it is 5", "bad": True},
        {"reward": 0.1, "text": "and 5 is right", "bad": False},
    ],
    [{"reward": 0.75, "text": "One.", "bad": False}, {"reward": 0.5, "text": "Two.", "bad": False}],
    [],
    [{"reward": 3.0, "text": "x", "bad": False}],  # not on a scale from 0 to 1: nobody said what is bad
]


@pytest.fixture(params=["loose", "packed"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(3):
        told: dict[str, Any] = {} if step == 2 else {"step_reward": SCORES}  # not every step need have them
        columns: dict[str, Any] = {"reward": [1.0, 0.5, None, 0.0], "completion": SAID, "prompt": ["p"] * 4}
        rewards = {"a": [1.0, 0.0, 0.0, 0.0], "b.list.element": [0.0] * 4}
        batch = from_columns(step, [0] * 4, rewards=rewards, **columns, **told)
        run.write(batch, 0, {"time": time.time()})
    run.close_rank(0, 0, {"seen": 3})
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    if request.param == "packed":
        pack(run)
    return run


def rounded(found: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{**step, "reward": pytest.approx(step["reward"], abs=1e-6)} for step in found]


def test_the_page_and_the_report_show_the_same_steps(run: RunDirectory) -> None:
    book = RunReader(run)
    for row, want in enumerate(WANT):
        shown, reported = rollout(book, f"0-1-{row}"), group(book, f"0-1-{row}")["rollout"]
        assert rounded(shown["steps"]) == want and rounded(reported["steps"]) == want
        assert [part["name"] for part in shown["rewards"]] == ["a", "b.list.element"]
    assert rollout(book, "0-2-0")["steps"] == [] == group(book, "0-2-0")["rollout"]["steps"]


def test_steps_that_cannot_be_told_apart_have_no_text_and_a_late_bad_one_is_kept() -> None:
    assert score_rows("one line", [0.9, 0.1]) == [
        {"reward": 0.9, "text": None, "bad": False}, {"reward": 0.1, "text": None, "bad": True},
    ]  # fmt: skip
    assert score_rows(None, [0.9])[0]["text"] is None
    many = score_rows(None, [0.9] * 5000 + [0.1])
    assert len(many) == STEPS + 1 and many[-1]["bad"]


def test_a_redacted_report_holds_no_text_of_steps() -> None:
    told = redact_texts({"rollout": {"steps": score_rows(SAID[0], SCORES[0])}}, b"key")
    assert "so it is 5" not in str(told) and "characters" in str(told)
