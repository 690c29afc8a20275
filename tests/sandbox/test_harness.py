"""What a sandbox tells becomes a grade, or no grade; nothing that broke becomes a 0."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, Self

import pytest

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.rewards import InfraError, code
from tiltmeter.sandbox import Ended, Limits
from tiltmeter.sandbox.harness import Case, grade, hard_coded
from tiltmeter.sandbox.recorded_tests import plain_cases
from tiltmeter.sandbox.values import clipped, encode

CASES = [Case((2, 3), 5), Case((20, 30), 50)]
Kind = Literal["ended", "timeout", "limit", "infra"]


class Scripted:
    """A sandbox that says what a test wants it to say, with the right mark."""

    tier = isolation = "scripted"

    def __init__(self, lines: Callable[[str], str], kind: Kind = "ended") -> None:
        self.lines, self.kind, self.given = lines, kind, [""]

    def run(self, program: str, stdin: str = "") -> Ended:
        self.given = [program, stdin]
        return Ended(self.kind, 0, self.lines(json.loads(stdin)["mark"]), "", f"it was {self.kind}", 0.1)

    def run_many(self, jobs: Sequence[tuple[str, str]], workers: int = 2) -> list[Ended]:
        return [self.run(*job) for job in jobs]

    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


def saying(*told: Any, start: bool = True) -> Callable[[str], str]:
    lines = [["started", [3, 11]], *told] if start else list(told)
    return lambda mark: "".join(f"noise\n{mark} {json.dumps(line)}\n" for line in lines)


RIGHT = (["value", [0, 5]], ["value", [1, 50]])


def graded(sandbox: Scripted) -> Any:
    return grade(sandbox, "code", "add", CASES)


def test_right_values_pass() -> None:
    outcome = graded(Scripted(saying(*RIGHT)))
    assert (outcome.kind, outcome.passed, outcome.cases, outcome.first_failed) == ("passed", 2, 2, None)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ([["value", [0, 5]]], "ended before"),
        ([["value", [0, 5]], ["value", [1, 51]]], "differs"),
        ([["value", [0, 5]], ["value", [1, True]]], "bool"),
        ([["value", [0, 5]], ["value", [1, 50.0]]], "float"),
        ([["value", [0, 5]], ["raised", [1, "KeyError"]]], "KeyError"),
        ([["value", [0, 5]], ["unencodable", [1, "Anything"]]], "Anything"),
        ([["value", [0, 5]], ["value", [1, ["q", 1]]]], "read"),
        ([*RIGHT, ["value", [0, 6]]], "twice"),
        ([*RIGHT, ["value", [7, 6]]], "twice"),
        ([["value", ["0", 5]], ["value", [1, 50]]], "twice"),
        ([["broken", "SyntaxError"], *RIGHT], "loaded"),
        ([["missing", "add"]], "no add"),
        ([["passed", True], ["verdict", "passed"]], "ended before"),
    ],
)
def test_anything_but_the_right_values_fails(told: list[Any], reason: str) -> None:
    outcome = graded(Scripted(saying(*told)))
    assert outcome.kind == "failed" and reason in outcome.reason


def test_a_key_larger_than_any_encoder_writes_is_a_wrong_answer() -> None:
    key = ["t", *[1] * 20_001]
    for told, expected in ((["d", [key, 1]], {1: 1}), (["s", key], {1})):
        outcome = grade(Scripted(saying(["value", [0, told]])), "code", "add", [Case((), expected)])
        assert (outcome.kind, outcome.reason) == ("failed", "case 0: what it returned cannot be read")


def test_lines_without_the_mark_are_nothing() -> None:
    assert graded(Scripted(lambda mark: saying(*RIGHT)("0" * 32) + saying()(mark))).kind == "failed"


@pytest.mark.parametrize("kind", ["timeout", "limit"])
def test_a_limit_is_said_as_such_and_what_came_before_it_is_counted(kind: Kind) -> None:
    outcome = graded(Scripted(saying(["value", [0, 5]]), kind))
    assert (outcome.kind, outcome.passed, outcome.reason) == (kind, 1, f"it was {kind}")


def test_running_out_of_memory_is_a_limit() -> None:
    assert graded(Scripted(saying(["raised", [0, "MemoryError"]]))).kind == "limit"
    assert graded(Scripted(saying(["broken", "MemoryError: "]))).kind == "limit"


def test_a_broken_sandbox_is_no_grade_even_if_values_came() -> None:
    assert graded(Scripted(saying(*RIGHT), "infra")).kind == "infra"
    assert graded(Scripted(saying(*RIGHT, start=False))).kind == "infra"
    assert graded(Scripted(lambda mark: "python: not found")).kind == "infra"


def test_no_cases_are_no_grade() -> None:
    assert grade(Scripted(saying()), "code", "add", []).kind == "infra"


def test_what_is_expected_never_enters_the_sandbox() -> None:
    sandbox = Scripted(saying())
    grade(sandbox, "code", "add", [Case((2, 3), "the expected value"), Case((1, 1), 987654321)])
    assert "expected value" not in "".join(sandbox.given) and "987654321" not in "".join(sandbox.given)
    assert json.loads(sandbox.given[1])["inputs"] == [["t", ["t", 2, 3], ["d"]], ["t", ["t", 1, 1], ["d"]]]


def test_the_mark_is_another_one_each_time() -> None:
    marks = set()
    for _ in range(20):
        sandbox = Scripted(saying())
        graded(sandbox)
        marks.add(json.loads(sandbox.given[1])["mark"])
    assert len(marks) == 20


def rows(sandbox: Scripted, **how: Any) -> tuple[list[float | None], Any]:
    reward = code(sandbox=sandbox, **how)
    cases = [{"args": [2, 3], "expected": 5}, {"args": [20, 30], "expected": 50}]
    return reward(completions=["def add(a, b): ..."], cases=[cases], entry_point=["add"]), reward


def test_a_reward_is_none_and_not_0_where_the_sandbox_broke() -> None:
    scores, reward = rows(Scripted(saying(*RIGHT), "infra"))
    assert scores == [None] and reward.infra == [True]
    with pytest.raises(InfraError, match="1 of 1"):
        rows(Scripted(saying(*RIGHT), "infra"), on_infra="raise")


def test_a_rewards_fingerprint_changes_with_its_settings_and_not_with_what_it_grades() -> None:
    sandbox = Scripted(saying(*RIGHT))
    _, reward = rows(sandbox)
    made: list[dict[str, Any]] = [
        {},
        {"partial": True},
        {"strict": True},
        {"hidden": 3},
        {"tolerance": 0.1},
        {"limits": Limits(memory_mb=64)},
    ]
    marks = [fingerprint([code(sandbox=sandbox, **how)]) for how in made]
    assert fingerprint([reward]) == marks[0] and len(set(marks)) == len(made)


@pytest.mark.parametrize("kind", ["timeout", "limit"])
def test_a_reward_is_0_where_the_code_took_too_much(kind: Kind) -> None:
    scores, reward = rows(Scripted(saying(*RIGHT), kind))
    assert scores == [0.0] and reward.infra == [False]


def test_partial_credit_is_the_share_of_cases() -> None:
    half = Scripted(saying(["value", [0, 5]], ["value", [1, 0]]))
    assert rows(half)[0] == [0.0]
    assert rows(half, partial=True)[0] == [0.5]


@pytest.mark.parametrize(
    "columns",
    [
        {},
        {"cases": [[]], "entry_point": ["f"]},
        {"cases": [[{"args": [1], "expected": 2}]]},
        {"cases": ["{"], "entry_point": ["f"]},
        {"cases": [[{"args": [1]}]], "entry_point": ["f"]},
        {"tests": ["assert abs(f(1) - 2) < 1"], "entry_point": ["f"]},
        {"tests": [""], "entry_point": ["f"]},
    ],
)
def test_a_row_without_tests_is_no_grade(columns: dict[str, Any]) -> None:
    reward = code(sandbox=Scripted(saying()))
    assert reward(completions=["x"], **columns) == [None]
    assert reward.infra == [True] and reward.outcomes[0].reason


def test_plain_tests_are_read_and_others_are_left_to_the_recorder() -> None:
    check = """METADATA = {}
def check(candidate):
    assert True, 'x'
    assert candidate([1, 2]) == {'a': (1,)}, 'why'
"""
    assert plain_cases(check, "f") == [Case(([1, 2],), {"a": (1,)})]
    for more in (
        *("assert f(1) > 2", "assert not f(1)", "assert f(x) == 2", "for i in range(3): assert f(i) == i"),
        *("assert f(1) == f(1)", "assert f(1) == 2 == 2", "assert g(1) == 2", "x = f(1)"),
        *("assert f(1) == 2; import os; os._exit(0)", "assert f(*a) == 1"),
    ):
        assert plain_cases(f"assert f(1) == 1\n{more}", "f") is None, more
    assert plain_cases("", "f") is None and plain_cases("def (", "f") is None


def test_values_known_by_heart_are_noticed_and_names_of_classes_are_not() -> None:
    expected: list[Any] = [120, 5040, [1, 2, 3]]
    literals = [clipped(encode(value)) for value in expected]
    assert hard_coded(literals, expected) == (True, 3)
    assert hard_coded(literals[:1], expected) == (False, 1)
    yes_no = ["valid", "invalid", "valid", "invalid"]
    assert hard_coded([clipped(word) for word in yes_no], yes_no) == (False, 0)
    everywhere: list[Any] = [0, 1, None, True, "a", []]
    assert hard_coded([clipped(encode(value)) for value in everywhere], everywhere) == (False, 0)
