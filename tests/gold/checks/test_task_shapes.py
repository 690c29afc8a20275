"""Tests of tasks in the columns of well-known datasets: recognised by content, run in a sandbox, divided for gold."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.gold.checks.code_reward import CodeReward
from tiltmeter.gold.checks.code_tasks import TaskColumns
from tiltmeter.gold.checks.keep_back import divide_tests
from tiltmeter.gold.checks.task_shapes import recognise, row_tests, task_key
from tiltmeter.rewards import code

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
ADD, THREE = "def add(a, b): return a + b", "def add(a, b): return 3"
METHOD = "class Solution:\n    def add(self, a, b): return a + b"
SUM, PRINTS_THREE = "print(sum(map(int, input().split())))", "print(3)"
ASSERTS = ["assert add(1, 2) == 3", "assert add(2, 2) == 4", "assert add(5, 0) == 5"]
STDIN = {"inputs": ["1 2\n", "3 4\n"], "outputs": ["3\n", "7\n"]}

#: By name: the shape, a row, a right completion, and one that passes the first test alone.
ROWS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "HumanEval": (
        "HumanEval",
        {"test": "def check(candidate):\n" + "\n".join(f"    {one}" for one in ASSERTS).replace("add(", "candidate("),
         "entry_point": "add", "canonical_solution": "    return a + b\n", "prompt": "def add(a, b):\n"}, ADD, THREE,
    ),
    "HumanEval with a program": (
        "HumanEval",
        {"test": "def check(candidate):\n    for a in range(3): assert abs(candidate(a, 1) - a - 1) < 1e-6",
         "entry_point": "add", "canonical_solution": "    return a + b\n", "prompt": "def add(a, b):\n"}, ADD, THREE,
    ),
    "MBPP": ("MBPP", {"text": "Add.", "test_list": ASSERTS, "test_setup_code": "", "code": ADD}, ADD, THREE),
    "APPS, a program": ("APPS", {"input_output": json.dumps(STDIN)}, SUM, PRINTS_THREE),
    "APPS, a function": (
        "APPS",
        {"input_output": json.dumps({"fn_name": "add", "inputs": [[1, 2], [2, 2]], "outputs": [[3], [4]]})},
        METHOD, THREE,
    ),
    "LiveCodeBench, a function": (
        "LiveCodeBench",
        {"public_test_cases": json.dumps(
            [{"input": f"{a}\n{b}", "output": str(a + b), "testtype": "functional"} for a, b in ((1, 2), (2, 2))]
         ), "metadata": json.dumps({"func_name": "add"})}, METHOD, THREE,
    ),
    "LiveCodeBench, a program": (
        "LiveCodeBench",
        {"public_test_cases": json.dumps([{"input": "1 2", "output": "3", "testtype": "stdin"},
                                          {"input": "2 2", "output": "4", "testtype": "stdin"}]),
         "metadata": "{}"}, f"{SUM}\nimport sys; sys.exit(0)", PRINTS_THREE,
    ),
    "open-r1": (
        "open-r1",
        {"verification_info": {"language": "python", "test_cases": [
            {"fn_name": None, "input": given, "output": wanted, "type": "stdin_stdout"}
            for given, wanted in zip(*STDIN.values(), strict=True)]}}, SUM, PRINTS_THREE,
    ),
    "verifiers": ("verifiers", {"info": {"tests": ASSERTS}}, ADD, THREE),
    "veRL": ("veRL", {"ground_truth": json.dumps(STDIN)}, SUM, PRINTS_THREE),
    "veRL's own column": ("veRL", {"reward_model": {"style": "rule", "ground_truth": json.dumps(ASSERTS)}}, ADD, THREE),
    "tiltmeter": (
        "tiltmeter",
        {"cases": [{"args": [1, 2], "expected": 3}, {"args": [2, 2], "expected": 4}], "entry_point": "add"}, ADD, THREE,
    ),
    "unit_tests": ("unit_tests", {"unit_tests": "\n".join(ASSERTS)}, ADD, THREE),
}  # fmt: skip


@pytest.fixture(scope="module")
def reward() -> CodeReward:
    return code(isolation="pooled")


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_read_by_what_it_holds_and_its_tests_are_run(name: str, reward: CodeReward) -> None:
    shape, row, right, wrong = ROWS[name]
    found = recognise(row)
    assert found is not None and found[0].name == shape
    columns = {column: [value] * 2 for column, value in row.items() if column != "prompt"}
    prompts = [row.get("prompt", "")] * 2
    assert reward(prompts=prompts, completions=[right, wrong], **columns) == [1.0, 0.0], reward.outcomes


@pytest.mark.parametrize(
    "row",
    [
        {"answer": "42"},
        {"answer": "We assert that it is 42."},
        {"question": "What is a test?", "tests": "none"},
        {"input_output": "not json"},
        {"input_output": json.dumps({"inputs": ["1"], "outputs": []})},
        {"public_test_cases": "eJxrYJmaxQABGlN6WIA="},  # LiveCodeBench's hidden tests are pickled: never opened
        {"ground_truth": {"inputs": [{"a": 1}], "outputs": ["2"]}},
        {"test_list": []},
        {},
    ],
)
def test_what_holds_no_tests_is_not_taken_for_some(row: dict[str, Any]) -> None:
    assert recognise(row) is None


@pytest.mark.skipif(not DATA.exists(), reason="HumanEval and MBPP are not on this machine")
@pytest.mark.parametrize(("file", "shape"), [("humaneval/humaneval", "HumanEval"), ("mbpp/mbpp", "MBPP")])
def test_every_task_of_the_published_datasets_is_recognised(file: str, shape: str) -> None:
    with gzip.open(DATA / f"{file}.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    assert {found[0].name if (found := recognise(row)) else None for row in rows} == {shape}


def test_rows_of_a_shape_that_differ_have_different_tests() -> None:
    rows = [{"test_list": [f"assert add(1, {k}) == {1 + k}"]} for k in range(3)]
    assert len({task_key(row, TaskColumns()) for row in rows}) == 3


# -- tests that are kept back -----------------------------------------------------------------------------------------

TASK = {"test_list": [f"assert add({k}, 1) == {k + 1}" for k in range(10)]}


def test_the_same_tests_are_kept_back_in_every_process_and_whatever_their_order() -> None:
    paid, kept = divide_tests(row_tests(TASK, TaskColumns()), 0.3)
    assert (len(paid.cases), len(kept.cases)) == (7, 3)
    assert not {case.args for case in paid.cases} & {case.args for case in kept.cases}
    turned = {"test_list": TASK["test_list"][::-1]}
    assert {case.args for case in divide_tests(row_tests(turned, TaskColumns()), 0.3)[1].cases} == {
        case.args for case in kept.cases
    }
    program = (
        "from tiltmeter.gold.checks.keep_back import divide_tests\n"
        "from tiltmeter.gold.checks.task_shapes import recognise\n"
        f"print([case.args[0] for case in divide_tests(recognise({TASK!r})[1], 0.3)[1].cases])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == [case.args[0] for case in kept.cases]


def test_an_input_that_stands_there_twice_is_on_one_side() -> None:
    tests = row_tests({"test_list": ["assert add(1, 1) == 2"] * 4 + ["assert add(2, 1) == 3"]}, TaskColumns())
    paid, kept = divide_tests(tests, 0.5)
    assert {case.args for case in paid.cases} | {case.args for case in kept.cases} == {(1, 1), (2, 1)}
    assert not {case.args for case in paid.cases} & {case.args for case in kept.cases}


def test_answers_written_for_the_paid_tests_are_paid_and_a_task_with_one_test_keeps_nothing() -> None:
    reward = code(isolation="pooled", keep_back=0.3)
    paid, _ = divide_tests(row_tests(TASK, TaskColumns()), 0.3)
    known = {case.args[0]: case.expected for case in paid.cases}
    hack = f"def add(a, b): return {known!r}.get(a)"
    assert reward(completions=[hack, ADD], test_list=[TASK["test_list"]] * 2) == [1.0, 1.0]
    assert reward.undivided == 0
    assert reward(completions=[ADD], test_list=[["assert add(1, 1) == 2"]]) == [1.0]
    assert reward.undivided == 1


@pytest.mark.parametrize("share", [1.0, -0.1, 2])
def test_a_share_that_leaves_nothing_to_pay_on_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="keep_back"):
        code(keep_back=share)


def test_a_reward_that_keeps_nothing_back_has_the_fingerprint_that_it_had() -> None:
    assert code().identity == code(keep_back=0.0).identity != code(keep_back=0.3).identity
