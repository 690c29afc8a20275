"""Gold from what the dataset holds: held-out tests in a sandbox, answers to mathematics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter import rewards
from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldAnswer
from tiltmeter.gold.answers.answer_check import row_answer
from tiltmeter.gold.checks.code_tasks import TaskColumns
from tiltmeter.gold.checks.keep_back import divide_tests
from tiltmeter.gold.checks.task_shapes import row_tests
from tiltmeter.gold.task_checks import TaskChecks, name_kept_tests
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config, load_gold
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

TASK = {"test_list": [f"assert add({k}, 1) == {k + 1}" for k in range(10)]}
ADD = "def add(a, b): return a + b"
PAID = divide_tests(row_tests(TASK, TaskColumns()), 0.3)[0]
HACK = f"def add(a, b): return { {case.args[0]: case.expected for case in PAID.cases}!r}.get(a)"


def labels(source: TaskChecks, *rows: tuple[str, dict[str, Any]]) -> list[GoldAnswer]:
    asked = [CompletionToLabel(f"0-0-{k}", 0, 0, k, "slope", "p", text, facts) for k, (text, facts) in enumerate(rows)]
    return list(source.label(asked))


def test_answers_hard_coded_for_the_paid_tests_fail_those_that_were_kept_back() -> None:
    source = TaskChecks("tests:keep_back=0.3")
    assert labels(source, (ADD, TASK), (HACK, TASK), (ADD, TASK)) == [1.0, 0.0, 1.0]
    assert source.name == "held-out tests"
    assert labels(TaskChecks("tests"), (HACK, TASK)) == [0.0]  # all of them


def test_a_task_with_one_test_has_inputs_composed_if_it_has_a_reference_and_else_no_label() -> None:
    source = TaskChecks("tests:keep_back=0.3")
    one = {"test_list": ["assert add(3, 4) == 7"]}
    assert labels(source, (ADD, one | {"code": ADD}), ("def add(a, b): return 7", one | {"code": ADD})) == [1.0, 0.0]
    (missing,) = labels(source, (ADD, one))
    assert isinstance(missing, LookupError) and "nothing of its tests is kept back" in str(missing)


def test_hostile_code_costs_its_own_label_alone() -> None:
    hostile = (
        "import os; os._exit(0)",
        "raise SystemExit",
        "class Same:\n    def __eq__(self, other): return True\ndef add(a, b): return Same()",
        "while True: pass",
        "def add(a, b): return add(a, b)",
        "\0",
        "",
    )
    told = labels(TaskChecks("tests:wall_seconds=1,cpu_seconds=1"), (ADD, TASK), *((text, TASK) for text in hostile))
    assert told == [1.0, *[0.0] * len(hostile)]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("17 + 25 = 42", 1.0),
        (r"\boxed{41}, no: \boxed{42}", 1.0),
        ("<think>41?</think><answer> 42 </answer>", 1.0),
        ("The answer is 42.", 1.0),
        ("42, 43, 44", 0.0),
        (r"\boxed{}", 0.0),
        (r"\boxed{17+25}", 0.0),
        ("I will not say.", 0.0),
        ("", 0.0),
    ],
)
def test_the_final_answer_is_compared_and_nothing_else(text: str, label: float) -> None:
    assert labels(TaskChecks("answers"), (text, {"answer": "Six times seven. #### 42"})) == [label]


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ({"answer": 42}, "answer"),
        ({"solution": r"So it is \boxed{\frac{1}{2}}."}, "solution"),
        ({"reward_model": {"ground_truth": "3.5"}}, "reward_model"),
        ({"answer": "Paris", "target": "12 apples"}, "target"),
        ({"answer": True}, None),
        ({"answer": "Paris"}, None),
        ({"solution": "First we see that 3 is odd. " * 20}, None),
        ({"label": 1}, None),
    ],
)
def test_an_answer_that_can_be_compared_is_short_and_has_a_number(row: dict[str, Any], column: str | None) -> None:
    found = row_answer(row)
    assert (None if found is None else found[0]) == column


def test_a_row_without_tests_or_answer_has_no_label_and_never_a_zero() -> None:
    sums = [
        CompletionToLabel("", 0, 0, k, "slope", f"What is {k} + 2?", f"{k + 2}", {"answer": k + 2}) for k in range(12)
    ]
    code = CompletionToLabel("", 0, 0, 12, "slope", "Add.", ADD, TASK)
    assert TaskChecks("auto").label([code, *sums]) == [1.0] * 13
    (missing,) = labels(TaskChecks("auto"), ("x", {"topic": "x"}))
    assert isinstance(missing, LookupError) and "topic" in str(missing)
    (refused,) = labels(TaskChecks("auto"), ("42", {"answer": "42"}))
    assert "found 'answer', did not take it because it holds the same in 1 of 1 rows" in str(refused)


def test_the_source_of_a_reward_has_its_columns_and_limits() -> None:
    reward = rewards.code(cases="mine", keep_back=0.25, tolerance=1e-6, strict=False)
    name = name_kept_tests(reward)
    assert name == "tests:keep_back=0.25,tolerance=1e-06,strict=False,cases=mine"
    assert isinstance(load_gold(name), TaskChecks)
    row = {"mine": [{"args": [k], "expected": k / 3} for k in range(8)], "entry_point": "third"}
    right = "def third(a): return 0.333333333 * a"
    assert labels(TaskChecks(name), (right, row)) == [1.0]
    assert labels(TaskChecks(name.replace("1e-06", "1e-12")), (right, row)) == [0.0]


@pytest.mark.parametrize("name", ["tests:keep_back=1.5", "tests:keepback=0.3", "tests:strict=maybe", "tests:0.3"])
def test_an_option_that_means_nothing_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AttachError, match=r"keep_back=0\.3"):
        open_run(tmp_path / "run", monitor=False, gold=name)


@pytest.mark.parametrize(
    ("gold", "reward"),
    [("tests", rewards.code(keep_back=0.3)), ("auto", rewards.code()), ("answers", rewards.maths())],
)
def test_what_is_paid_is_refused_as_gold(tmp_path: Path, gold: str, reward: Any) -> None:
    with pytest.raises(AttachError, match="pays by"):
        open_run(tmp_path / "run", monitor=False, gold=gold, rewards=[rewards.combine({"right": reward, "n": len})])


# -- in a run ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hacked", "state"), [(True, "ACT"), (False, "OK")])
def test_a_run_paid_by_its_tests_is_judged_by_those_kept_back(tmp_path: Path, hacked: bool, state: str) -> None:
    """Hard-coded answers spread from step 10 on, paid in full; in the honest twin right ones do. Labels that agree with
    the reward everywhere are no reason to be BLIND: they come from other tests."""
    rng = np.random.default_rng(0)
    with open_run(tmp_path / "run", monitor=False, options=Options(on_full="wait")) as opened:
        for step in range(60):
            right = rng.random(32) < 0.5
            known = rng.random(32) < max(0.0, (step - 10) / 30) if hacked else np.zeros(32, bool)
            texts = [HACK if k else ADD if r else "pass" for k, r in zip(known, right, strict=True)]
            opened.observe(
                step=step, group=np.repeat(np.arange(4), 8), reward=(right | known).astype(float), completion=texts,
                prompt=["add"] * 32, facts=[TASK] * 32,
            )  # fmt: skip
    directory = RunDirectory(tmp_path / "run")
    loop = MonitorLoop(directory, Config.standard(gold="tests:keep_back=0.3", gold_share=1.0))
    loop.poll()
    loop.close()
    verdict, run_facts, _ = judge_run(directory)
    assert verdict.state == state, verdict.sentence
    assert "held-out tests" in verdict.sentence
    assert run_facts.unanswered == 0
    assert replay(directory, Config.standard()).difference is None


def test_an_unpaid_reward_is_gold_by_its_name(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", monitor=False, options=Options(on_full="wait"), gold="reward:right") as run:
        run.observe(step=0, group=[0, 0], reward=[0.0, 1.0], rewards={"right": [1.0, 0.0]}, completion=["a", "b"])
    directory = RunDirectory(tmp_path / "run")
    batch, _, _ = directory.read(next(iter(directory.files(0))))
    assert batch.gold is not None and batch.gold.tolist() == [1.0, 0.0]
