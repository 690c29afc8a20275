"""Methods compared on answers of known truth: figures by hand, no false claims, and the verb against a real server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.command_line import tiltmeter
from tests.gold.judge_server import JudgeReply, judge_server
from tests.sizes import size

from tiltmeter.errors import AttachError
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.models.oversight.method import Grade
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_workbench.oversight.graded import GradedAnswers, calibration_error
from tiltmeter_workbench.oversight.known_answers import STYLES, KnownAnswer, in_every_style, make_sums, read_answers
from tiltmeter_workbench.oversight.render import ERROR, best_over_bare, conclude


def graded(name: str, answers: list[KnownAnswer], values: Any) -> GradedAnswers:
    table = np.asarray(values, np.float64)
    return GradedAnswers(name, answers, table, np.maximum(table, 1.0 - table))


def test_figures_are_those_worked_out_by_hand() -> None:
    answers = [KnownAnswer(f"q{k // 2}", "x", k % 2 == 0) for k in range(4)]
    one = GradedAnswers.of_grades("m", answers, [Grade(0.9, 0.9), Grade(0.6, 0.6), JudgeError("no"), Grade(0.2, 0.8)])
    assert one.correct.tolist() == [1.0, 0.0, 0.5, 1.0] and one.missing == 0.25
    assert one.accuracy.value == 0.625
    assert one.brier.value == pytest.approx((0.01 + 0.36 + 0.25 + 0.04) / 4)
    assert one.calibration_error.value == pytest.approx((abs(0.9 - 1.0) + abs(0.6 - 0.0) + abs(0.8 - 1.0)) / 3)
    assert calibration_error(np.array([np.nan]), np.array([1.0])) != calibration_error(np.array([0.5]), np.array([0.5]))


def test_a_sums_wrong_twin_differs_in_one_calculation_and_in_the_end() -> None:
    for right, wrong in zip(*[iter(make_sums(30, seed=4))] * 2, strict=True):
        checked = []
        for one in (right, wrong):
            lines = one.answer.splitlines()[:-1]
            sides = [line.split(" = ") for line in lines]
            values = [dict(zip("abc", side.split(), strict=True)) for side, _ in sides]
            sums = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
            checked.append(
                sum(
                    sums[v["b"]](int(v["a"]), int(v["c"])) != int(told)
                    for v, (_, told) in zip(values, sides, strict=True)
                )
            )
        assert checked == [0, 1] and (right.truth, wrong.truth) == (True, False)


def test_no_method_is_called_better_where_none_is() -> None:
    """Every method a coin of its own: claims must be rare, and one that really is better must be found."""
    rng, trials, claims = np.random.default_rng(5), size(80, 600), 0
    answers = [KnownAnswer(f"q{k // 2}", "x", k % 2 == 0) for k in range(40)]
    for _ in range(trials):
        methods = [graded(f"m{k}", answers, rng.choice([0.2, 0.8], 40)) for k in range(6)]
        claims += conclude(methods, methods[0])[0] == "better"
    assert upper_bound(claims, trials) <= size(20, 10) / 100, f"{claims} of {trials}, and {ERROR} is promised"
    truth = np.array([0.9 if one.truth else 0.1 for one in answers])
    better = [graded("bare", answers, rng.choice([0.2, 0.8], 40)), graded("good", answers, truth)]
    assert conclude(better, better[0])[0] == "better"


def test_few_tasks_and_missing_grades_are_no_ground_for_a_claim() -> None:
    two = [KnownAnswer("q", "x", True), KnownAnswer("q", "y", False)]
    methods = [graded("bare", two, [0.8, 0.8]), graded("good", two, [0.9, 0.1])]
    assert conclude(methods, methods[0]) == ("cannot say", "1 tasks are too few for an interval: 10 are needed")
    many = [KnownAnswer(f"q{k}", "x", True) for k in range(20)]
    silent = graded("bare", many, np.full(20, np.nan))
    assert conclude([silent, graded("good", many, np.ones(20))], silent)[0] == "cannot say"
    assert best_over_bare([silent], silent) is None


def test_a_policy_that_wants_grades_leaves_the_plain_style_only_where_another_is_paid_more() -> None:
    answers = in_every_style(make_sums(12))
    honest = graded("honest", answers, [0.9 if one.truth else 0.1 for one in answers])
    fooled = graded(
        "fooled", answers, [1.0 if one.style == "flattery" else 0.7 if one.truth else 0.3 for one in answers]
    )
    assert honest.tilted[0] > 0.69 and honest.tilted[1] < 0.01 and honest.best_of_n.value > 0.99
    assert fooled.tilted[0] < 0.31 and fooled.worst_style == ("flattery", 1.0)
    assert fooled.best_of_n.value < 0.7 < honest.best_of_n.value


def test_styles_keep_the_answers_own_lines() -> None:
    (right, _) = make_sums(1)
    for change in STYLES.values():
        assert right.answer in change(right.answer)


def test_rows_without_a_truth_are_refused_with_the_row(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(
        '{"prompt": "a", "completion": "b", "truth": 1}\n{"prompt": "a", "completion": "b", "truth": 0.5}\n'
    )
    with pytest.raises(AttachError, match="row 2: needs prompt"):
        read_answers(file)


def close_reader(data: dict[str, Any], system: str) -> JudgeReply:
    """Sees an error only in a step that it is shown by itself."""
    steps = [line for line in str(data.get("step", "")).splitlines() if " = " in line]
    sums = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    parts = [line.replace("=", "").split() for line in steps]
    wrong = any(sums[sign](int(one), int(two)) != int(result) for one, sign, two, result in parts)
    return JudgeReply({"score": 1 if wrong else 9})


def test_the_verb_compares_methods_on_any_endpoint_and_asks_nothing_twice(tmp_path: Path) -> None:
    calls = []

    def reply(data: dict[str, Any], system: str) -> JudgeReply:
        calls.append(data)
        return close_reader(data, system)

    with judge_server(reply) as url:
        file = tmp_path / "judge.toml"
        file.write_text(f'url = "{url}"\nmodel = "m"\nguide = "It is right."\n')
        words = ("gold", "oversight", file, "--methods", "step_checks", "--plain", "--work", tmp_path / "kept")
        done = tiltmeter(*map(str, words), "--json")
        told = json.loads(done.stdout)
        assert done.returncode == 0 and told["outcome"] == "better", done.stderr
        assert [one["method"] for one in told["methods"]] == ["bare", "step_checks"]
        assert told["methods"][0]["accuracy"] == 0.5 and told["methods"][1]["accuracy"] == 1.0
        assert len(calls) <= 40 * 6 and "at most 240 calls" in done.stderr
        before = len(calls)
        again = tiltmeter(*map(str, words))
        assert len(calls) == before and "better than the bare judge" in again.stdout
    lacking = tiltmeter("gold", "oversight", str(file), "--methods", "oracle")
    assert lacking.returncode == 2 and "there is no method 'oracle'" in lacking.stderr
