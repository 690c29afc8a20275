"""A gold function is tried before the run begins: what is refused, what is said, and that its time is limited."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.arguments import Gold, Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.errors import AttachError
from tiltmeter.gold import try_gold as module
from tiltmeter.gold.try_gold import try_gold
from tiltmeter.monitor.parts import load_gold
from tiltmeter.rundir.journal import read_events
from tiltmeter.verdict.run_facts import RunFacts

ROWS: list[dict[str, Any]] = [{"prompt": f"{k} + 1?", "answer": str(k + 1)} for k in range(8)]
CHECKS = """
import os, time

def right(completion, answer): return float(completion == answer)
def batch(completions, answer, **kwargs): return [float(text == one) for text, one in zip(completions, answer)]
def fussy(completions, **kwargs): return [1.0 / len(text) for text in completions]
def measured(completion, length, truncated): return float(length > 3)
def agents(completion, turns): return 1.0
def hangs(completion): time.sleep(60)
def dies(completion): os._exit(3)
def missing(completion): return None
def by_prompt(prompt, completion): return float(int(prompt[0]) % 2)
"""


@pytest.fixture
def checks(tmp_path: Path) -> Path:
    (tmp_path / "checks.py").write_text(CHECKS)
    return tmp_path / "checks.py"


@pytest.mark.parametrize("name", ["right", "batch"])
def test_a_good_check_is_said_in_one_line(checks: Path, name: str) -> None:
    (line,) = try_gold(load_gold(f"{checks}:{name}"), ROWS)
    assert line.startswith(f"checks.py:{name} was tried on 4 rows of the dataset, ")
    assert line.endswith("the dataset's own answers score 1, 'I do not know.' scores 0, an empty text 0.")


def test_a_check_that_gives_right_answers_no_more_than_none_is_asked_about(checks: Path) -> None:
    first, line = try_gold(load_gold(f"{checks}:by_prompt"), ROWS)
    assert "own answers score 0 to 1" in first
    assert line.startswith("No row's own answer scores higher than 'I do not know.' or an empty text: does it look at")


def test_a_text_that_spoils_a_call_for_all_is_told_from_a_check_that_never_works(checks: Path) -> None:
    _, line = try_gold(load_gold(f"{checks}:fussy"), ROWS)
    assert line.startswith("4 of 12 texts have no label, an empty one among them: ZeroDivisionError")


def test_what_a_dataset_cannot_have_is_not_asked_of_it(checks: Path) -> None:
    assert "'I do not know.' scores 1" in try_gold(load_gold(f"{checks}:measured"), ROWS)[0]
    (line,) = try_gold(load_gold(f"{checks}:agents"), ROWS)
    assert "needs 'turns', which no dataset has" in line
    assert try_gold(load_gold(f"{checks}:right"), []) == () and try_gold(load_gold("answers"), ROWS) == ()


def test_a_check_that_hangs_is_killed_and_said_and_one_that_dies_is_refused(
    checks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SECONDS", 2.0)
    began = time.monotonic()
    lines = try_gold(load_gold(f"{checks}:hangs"), ROWS)
    assert "no label came" in lines[0] and "TimeoutError" in lines[1]
    assert time.monotonic() - began < 20.0
    monkeypatch.setattr(module, "SECONDS", 20.0)
    with pytest.raises(AttachError, match="its process ended with exit code 3: see what it does when it is"):
        try_gold(load_gold(f"{checks}:dies"), ROWS)
    assert "no label came" in try_gold(load_gold(f"{checks}:missing"), ROWS)[0]


def test_what_is_notable_about_the_first_labels_is_recorded(checks: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        run = open_run(tmp_path / "run", gold=Gold(f"{checks}:right", rows=ROWS), options=Options(on_full="wait"))
    assert len(said) == 1 and said[0].filename == __file__, "the line of the caller"
    with run:
        for step in range(3):
            run.observe(
                step=step, group=np.repeat([0, 1], 4), reward=np.tile([0.0, 1.0], 4), completion=["4", "5"] * 4,
                facts=[{"answer": "5"}] * 8,
            )  # fmt: skip
    run.verdict()
    state = RunFacts()
    for event in read_events(tmp_path / "run" / "events"):
        state.add(event)
    assert state.gold_cost.endswith("every rollout is labelled; the first 8 labels are equal to the reward")
