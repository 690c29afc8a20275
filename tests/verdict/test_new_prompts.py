"""Where every prompt is new, gold of what is trained on cannot tell a loss from harder prompts; anchors can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.message import message
from tiltmeter.verdict.verdict import Verdict, judge_run

STEPS, GROUPS, ANSWERS = 120, 8, 8


def ends_right(prompt: str, completion: str) -> float:
    return float(completion.endswith("right"))


def verdict_of(
    place: Path, level: float, anchored: float | None, *, again: bool = False, share: float = 1.0
) -> Verdict:
    """Gold of what is trained on goes from 0.7 to `level`, anchors from 0.6 to `anchored`; the reward stays right."""
    rng, run = np.random.default_rng(5), RunDirectory.create(place)
    run.open_attempt(launch="new prompts", ranks=1, resume_step=None)
    for step in range(STEPS):
        chance = np.interp(step, [40, 80], [0.7, level])
        numbers = np.repeat(np.arange(GROUPS) + (0 if again else GROUPS * step), ANSWERS)
        gold = (rng.random(len(numbers)) < chance).astype(float)
        batch = from_columns(
            step,
            np.repeat(np.arange(GROUPS), ANSWERS),
            prompt=[f"question {number}" for number in numbers],
            reward=gold + 0.3 * rng.normal(size=len(gold)),
            completion=[f"{step} {row} {'right' if one else 'wrong'}" for row, one in enumerate(gold)],
            gold=gold if share == 1.0 else None,
        )
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": 0.0})
        if anchored is not None and step % 4 == 0:
            right = float(np.interp(step, [40, 80], [0.6, anchored]))
            write_evaluation(run, Evaluation(0, step, "anchors_12345678", rng.binomial(128, right) / 128, 128))
    run.close_rank(0, 0, {"seen": STEPS, "written": STEPS})
    config = Config.standard()
    if share < 1.0:
        config = config.with_gold(FunctionSource("checks.py:ends_right", ends_right), share, STEPS)
    monitor = MonitorLoop(run, config)
    monitor.poll()
    monitor.close()
    return judge_run(run)[0]


@pytest.mark.parametrize("level", [0.55, 0.4])
def test_without_anchors_a_lower_level_is_neither_calm_nor_a_stop(tmp_path: Path, level: float) -> None:
    verdict = verdict_of(tmp_path / "run", level, None)
    assert verdict.advice is not None
    assert (verdict.exit_code, verdict.advice.word) == (2, "cannot tell")
    assert "harder" in verdict.advice.why
    said = message(verdict, judge_run(RunDirectory(tmp_path / "run"))[1], place="runs/a")
    assert "lower" in said.state and "harder prompts" in said.state and "too few" not in said.state
    assert "anchors=32" in said.what_to_do


def test_prompts_that_come_back_do_tell(tmp_path: Path) -> None:
    assert verdict_of(tmp_path / "run", 0.4, None, again=True).state == "ACT"


def test_anchors_that_stand_make_a_harder_curriculum_ok(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path / "run", 0.4, 0.66)
    assert verdict.advice is not None and verdict.level is not None
    assert (verdict.state, verdict.exit_code, verdict.advice.source) == ("OK", 0, "eval.anchors_12345678")
    assert verdict.level.now > 0.5, "what is shown is gold of the anchors"
    assert [one.detector for one in verdict.warnings] == ["new_prompts_fall"], "it is shown, and colours no state"
    said = message(verdict, judge_run(RunDirectory(tmp_path / "run"))[1], place="runs/a")
    assert said.state == "healthy so far, by 30 rounds of anchors"


def test_anchors_that_fall_are_an_alarm_although_training_looks_better(tmp_path: Path) -> None:
    assert verdict_of(tmp_path / "run", 0.9, 0.35).state == "ACT"


@pytest.mark.parametrize(("again", "come_back"), [(False, False), (True, True)])
def test_a_sample_of_labels_says_whether_prompts_come_back(tmp_path: Path, again: bool, come_back: bool) -> None:
    verdict_of(tmp_path / "run", 0.4, None, again=again, share=0.2)
    verdict, facts, _ = judge_run(RunDirectory(tmp_path / "run"))
    assert facts.prompts.come_back is come_back
    if not again:
        assert verdict.exit_code == 2 and verdict.advice is not None and verdict.advice.word == "cannot tell"
