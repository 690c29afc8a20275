"""What a run holds that can serve as gold: what is found, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

from tiltmeter import rewards
from tiltmeter.gold.find_gold import TrainingSetup, find_gold, suggest_gold

TASK = {"test_list": [f"assert add({k}, 1) == {k + 1}" for k in range(10)]}


SUMS = [{"prompt": f"What is {k} + 2?", "answer": str(k + 2)} for k in range(20)]


def rows(**columns: Any) -> list[dict[str, Any]]:
    return [dict(columns)] * 20


@pytest.mark.parametrize(
    ("run", "name", "words"),
    [
        (TrainingSetup({"mine": len}, rows=rows(**TASK)), "tests", "all of them"),
        (TrainingSetup({"code": rewards.code(keep_back=0.3)}, rows=rows(**TASK)),
         "tests:keep_back=0.3", "never paid on"),
        (TrainingSetup({"code": rewards.code()}, rows=rows(**TASK)), "", "keep_back=0.3"),
        (TrainingSetup({"mine": len}, rows=SUMS), "answers:answer,as=number,trial=yes", "'answer'"),
        (TrainingSetup({"mine": len}, rows=rows(answer="42")), "", "did not take it because it holds the same"),
        (TrainingSetup({"maths": rewards.maths()}, rows=SUMS), "", "cannot be gold too"),
        (TrainingSetup({"maths": rewards.maths()}, rows=rows(answer="42"), evaluates=True),
         "", "Evaluations count too"),
        (TrainingSetup({"m": len}, rows=SUMS + rows(prompt="Why?", answer="So it is, as all know")), "", "BLIND"),
        (TrainingSetup({"m": len}, rows=rows(test_list=["assert add(1, 1) == 2" + " " * 40_000])),
         "", "too long to be"),
        (TrainingSetup({"code": rewards.code(keep_back=0.3)}, rows=rows(test_list=["assert add(1, 1) == 2"])), "",
         "20 of 20 tasks have one test: nothing is kept back"),
        (TrainingSetup({"brevity": len}, unpaid=["right"], columns=["prompt"]), "", 'gold="reward:right"'),
        (TrainingSetup({"brevity": len}), "", "BLIND"),
    ],
)  # fmt: skip
def test_what_is_found_is_said_in_at_most_six_lines(run: TrainingSetup, name: str, words: str) -> None:
    found = find_gold(run)
    assert found.name == name
    assert words in "\n".join(found.lines) and len(found.lines) <= 6
    assert ("BLIND" in "\n".join(found.lines)) == (not name and not run.evaluates)
    assert (not name) or any(line.startswith("It sees") and "not see" in line for line in found.lines)


@pytest.mark.parametrize(
    ("reward_names", "columns", "words"),
    [
        (["accuracy_reward"], ["prompt", "answer"], ["stricter", "score(completion, answer)"]),
        (["format_reward", "len"], ["prompt"], ["format_reward checks answers itself", "judge.toml"]),
        (["my-reward-model"], ["prompt"], ["reward model", "labels of people"]),
        (["brevity"], ["prompt", "tests"], ["score(completion, tests)"]),
        ([], [], ["judge.toml"]),
    ],
)
def test_the_advice_says_what_could_be_gold_here(reward_names: list[str], columns: list[str], words: list[str]) -> None:
    lines = suggest_gold(reward_names, columns)
    assert all(word in "\n".join(lines) for word in [*words, "evals=", "BLIND"])
    assert len(lines) <= 6
