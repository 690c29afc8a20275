"""`tiltmeter reward tilt`: the worked numbers through the command line, tables of many responses, and refusals."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tiltmeter_workbench.common.table_files import write_rows
from tiltmeter_workbench.verbs.reward.tilt import tilt

app = typer.Typer()
app.command()(tilt)

H = ("--references", "0.5,0.3,0.2", "--rewards", "1,0.5,-1")


def told(*options: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, [*options, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def shown(*options: str) -> str:
    done = CliRunner(env={"COLUMNS": "120"}).invoke(app, list(options), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_the_worked_example_in_full() -> None:
    found = told(*H, "--beta", "0.5")
    point = found["points"][0]
    assert [round(row["unnormalised"][0], 4) for row in found["rows"]] == [3.6945, 0.8155, 0.0271]
    assert [round(row["policy"][0], 4) for row in found["rows"]] == [0.8143, 0.1797, 0.0060]
    assert (round(point["z"], 4), round(point["kl"], 4), round(point["reward"], 4)) == (4.5371, 0.2841, 0.8982)
    assert point["log_z"] == pytest.approx(math.log(point["z"]))
    # The optimum's value, E[r] - β KL, is β log Z.
    assert point["reward"] - 0.5 * point["kl"] == pytest.approx(0.5 * point["log_z"])
    probabilities = [row["policy"][0] for row in found["rows"]]
    assert point["entropy"] == pytest.approx(-sum(p * math.log(p) for p in probabilities))


def test_without_data_it_shows_the_worked_example_and_says_so() -> None:
    screen = shown()
    for figure in ("0.8143", "0.1797", "0.0060", "3.6945", "4.5371", "0.2841", "0.8982", "worked example"):
        assert figure in screen
    assert "█" in screen


def test_the_limits_of_beta() -> None:
    found = told(*H, "--beta", "0,0.01,0.0001,inf")
    policies = list(zip(*(row["policy"] for row in found["rows"]), strict=True))
    assert policies[0] == (1.0, 0.0, 0.0)
    assert policies[1] == pytest.approx((1.0, 0.0, 0.0), abs=1e-12)
    assert policies[2] == pytest.approx((1.0, 0.0, 0.0), abs=1e-12)
    assert policies[3] == pytest.approx((0.5, 0.3, 0.2))
    zero, _, small, none = found["points"]
    assert zero["log_z"] is None
    assert none["beta"] is None
    assert (small["z"], round(small["log_z"], 4)) == (None, 9999.3069)
    assert "log Z" in shown(*H, "--beta", "0,0.5,inf")


def test_a_target_kl_finds_its_beta() -> None:
    assert told(*H, "--target-kl", "0.2841157")["points"][0]["beta"] == pytest.approx(0.5, abs=1e-4)
    assert told(*H, "--target-kl", "0.28")["points"][0]["kl"] == pytest.approx(0.28, abs=1e-9)
    done = CliRunner().invoke(app, [*H, "--target-kl", "3"])
    assert done.exit_code == 2
    assert "0.693147" in done.output


def test_gold_falls_while_the_reward_rises_in_a_sweep() -> None:
    found = told(*H, "--golds", "0.2,0.9,0.0", "--beta", "inf,10,0.1")
    rewards, gold = ([point[name] for point in found["points"]] for name in ("reward", "gold"))
    assert rewards == sorted(rewards)
    assert gold[0] < gold[1] > gold[2]


def test_a_table_of_a_hundred_thousand_responses_at_a_tiny_beta(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    logs, reward = rng.normal(-900.0, 2.0, 100_000), rng.normal(size=100_000)  # of long texts: no float holds exp(-900)
    rows = [{"response": f"r{at}", "logprob": logs[at], "reward": reward[at]} for at in range(len(logs))]
    write_rows(tmp_path / "many.jsonl", rows)
    found = told(str(tmp_path / "many.jsonl"), "--beta", "1,0.0001")
    assert found["responses"] == 100_000
    assert len(found["rows"]) == 1000
    assert found["rows"][0]["response"] == f"r{reward.argmax()}"
    assert found["rows"][0]["policy"][1] == pytest.approx(1.0)
    assert found["points"][1]["reward"] == pytest.approx(reward.max())
    assert "exp(-8" in found["notes"][0]


def test_what_a_model_wrote_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.jsonl", [{"response": "\x1b[2J[bold]x", "reference": 2, "reward": 1}])
    screen = shown(str(tmp_path / "t.jsonl"))
    assert "\x1b[2J" not in screen
    assert "[bold]x" in screen
    assert "add up to 2" in screen


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--references", "0.5,0.5"), "needs --rewards"),
        (("--references", "0.5,0.5", "--rewards", "1"), "one number for each"),
        (("--rewards", "1,two"), "numbers with commas"),
        (("--rewards", "1,nan"), "finite"),
        (("--references", "-1,2", "--rewards", "1,2"), "0 or more"),
        ((*H, "--beta", "-1"), "0 or more"),
        ((*H, "--beta", "1", "--target-kl", "0.1"), "not both"),
    ],
)
def test_wrong_usage_says_what_is_wrong(options: tuple[str, ...], said: str) -> None:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(options))
    assert done.exit_code == 2
    assert said in done.output


def test_a_table_without_its_columns_names_them(tmp_path: Path) -> None:
    write_rows(tmp_path / "t.jsonl", [{"response": "a", "score": 1}])
    done = CliRunner().invoke(app, [str(tmp_path / "t.jsonl")])
    assert "needs the columns reward and reference" in str(done.exception)
    write_rows(tmp_path / "u.jsonl", [{"reference": 1, "reward": None}])
    assert "every row needs its numbers" in str(CliRunner().invoke(app, [str(tmp_path / "u.jsonl")]).exception)


def test_what_the_reference_never_gives_has_no_weight_however_well_it_pays() -> None:
    found = told("--references", "0.5,0,0.5", "--rewards", "1,100,0", "--beta", "0.1")
    assert found["rows"][1]["unnormalised"] == [0.0]


def test_a_logprob_below_every_float_is_told(tmp_path: Path) -> None:
    write_rows(tmp_path / "far.jsonl", [{"logprob": -1.0, "reward": 0.0}, {"logprob": -2000.0, "reward": 1.0}])
    assert any("never given" in note for note in told(str(tmp_path / "far.jsonl"))["notes"])


def test_rewards_as_large_as_floats_go_do_not_overflow() -> None:
    found = told("--references", "0.5,0.5", "--rewards", "1e308,-1e308", "--beta", "0.1")
    assert found["rows"][0]["policy"] == [1.0]
