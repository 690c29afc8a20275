"""`tiltmeter spot`: which rollouts are shown, what is hidden, and what is said about them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.data.batches import from_columns
from tiltmeter.gold.spot_check import SpotCheck, best_paid, list_checks
from tiltmeter.rundir.store import RunDirectory

HOSTILE = "\x1b[2J\x1b]0;owned\x07[red]good[/red]"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    """Fifteen steps of eight rollouts, each step's last four paid best; one text is there in every step."""
    run = RunDirectory.create(tmp_path / "run", {"id": "a run of the tests"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(15):
        texts = [f"answer {step}/{row}" for row in range(7)] + [HOSTILE]
        reward = np.array([0.1, 0.2, 0.3, np.nan, 0.9, 0.9, 0.9, 0.95])
        batch = from_columns(step, [0] * 4 + [1] * 4, reward=reward, prompt=["p"] * 8, completion=texts)
        run.write(batch, 0, {"counters": {"seen": 15}})
    run.close_rank(0, 0, {"seen": 15})
    return run


def test_the_best_paid_of_the_newest_steps_are_shown_each_text_once(run: RunDirectory) -> None:
    newest, chosen = best_paid(run, 12, 5)
    assert newest == 14
    assert {one.step for one in chosen} <= set(range(10, 15))
    assert [one.text for one in chosen].count(HOSTILE) == 1
    assert all(one.reward >= 0.9 for one in chosen)
    assert [one.text for one in chosen] == [one.text for one in best_paid(run, 12, 5)[1]], "the same again"
    rewards = [one.reward for one in best_paid(run, 40, 5)[1]]
    assert len(rewards) == 5 * 6 + 1, "what has no reward is not among them"
    assert rewards != sorted(rewards)
    assert rewards != sorted(rewards, reverse=True), "their order says nothing about their pay"


@pytest.mark.parametrize(
    ("keys", "code", "says"),
    [
        ("n" * 11 + "y", 1, "Fewer than half of what is paid best is good"),
        ("y" * 12, 0, "At least half are good"),
        ("ynynynynynyn", 2, "cannot be said: the interval holds a half"),
        ("yyyq", 2, "cannot be said: fewer than 10 were judged"),
    ],
)
def test_answers_become_a_share_with_an_interval(run: RunDirectory, keys: str, code: int, says: str) -> None:
    result = CliRunner().invoke(app, ["spot", str(run.path), "--count", "12"], input="\n".join(keys) + "\n")
    assert result.exit_code == code
    assert says in result.stdout
    assert "\x1b" not in result.output, "no escape of a model's text reaches the terminal"
    assert "0.9" not in result.output.split("Of the ")[0], "who judges sees no reward"
    (check,) = list_checks(run)
    answers = [key for key in keys if key != "q"]
    assert (len(check.good), sum(check.good)) == (len(answers), answers.count("y"))
    again = CliRunner().invoke(app, ["spot", str(run.path), "--count", "12"], input="y\n" * 12)
    assert f"Earlier, up to step 14: {answers.count('y')} of {len(answers)} good." in again.stdout


def test_nothing_judged_is_nothing_kept_and_no_calm(run: RunDirectory) -> None:
    result = CliRunner().invoke(app, ["spot", str(run.path)], input="s\ns\nq\n")
    assert result.exit_code == 2
    assert not list_checks(run)


def test_for_machines(run: RunDirectory) -> None:
    result = CliRunner().invoke(app, ["spot", str(run.path), "--json", "--count", "12"], input="y\n" * 12)
    facts = json.loads(result.stdout)
    assert (facts["judged"], facts["good"], facts["at_least_half_good"]) == (12, 12, True)
    assert facts["reward_lowest"] == pytest.approx(0.9)


@pytest.mark.parametrize(("good", "count"), [(0, 30), (5, 30), (30, 30), (11, 23)])
def test_the_interval_is_that_of_clopper_and_pearson(good: int, count: int) -> None:
    rows = ((0, 1, 0, 0),) * count
    check = SpotCheck(0, 1, rows, (True,) * good + (False,) * (count - good), 1.0, 1.0, 0.0)
    exact = stats.binomtest(good, count).proportion_ci(method="exact")
    assert check.interval == pytest.approx((exact.low, exact.high), abs=1e-6)
