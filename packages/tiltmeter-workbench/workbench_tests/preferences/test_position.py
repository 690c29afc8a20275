"""Preference for a place: from one order, from both, and of real judges."""

from __future__ import annotations

import csv
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tiltmeter_workbench.preferences.checks import position
from tiltmeter_workbench.preferences.finding import ALPHA
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import sigmoid

DATA = Path(__file__).parents[5] / "shared" / "data" / "llmbar"
SHARE = ALPHA / 6


def asked(votes: np.ndarray, swapped: np.ndarray | None = None) -> Comparisons:
    count, raters = votes.shape
    names = [f"rater {n}" for n in range(raters)]
    texts = [f"answer {n}" for n in range(count)]
    return Comparisons([f"q{n}" for n in range(count)], texts, texts, votes, names, swapped, order_known=True)


def judge(seed: int, pull: float, sure: float, count: int = 400) -> Comparisons:
    """A judge of both orders: being shown first adds `pull` to the log-odds, whatever the answers are worth."""
    rng = np.random.default_rng(seed)
    worth = sure * rng.normal(size=(count, 1))
    votes, swapped = (rng.random((count, 1)) < sigmoid(worth + side) for side in (pull, -pull))
    return asked(votes.astype(float), swapped.astype(float))


@pytest.mark.parametrize("seed", range(4))
def test_a_pull_to_the_first_place_is_found_and_measured_with_quality_held_equal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    quality = rng.normal(size=(800, 2))
    won = rng.random(800) < sigmoid(1.5 * (quality[:, 0] - quality[:, 1]) + 0.5)
    finding = position.check(replace(asked(won[:, None].astype(float)), quality=quality), alpha=SHARE, seed=0)
    assert finding.state == "found" and finding.low > 0.5
    low, high = finding.facts["log_odds"][1:]
    assert low <= 0.5 <= high


def test_even_choices_are_clear_and_an_unknown_order_says_nothing() -> None:
    votes = np.tile([1.0, 0.0], 1000)[:, None]
    assert position.check(asked(votes), alpha=SHARE, seed=0).state == "clear"
    unknown = replace(asked(np.ones((500, 1))), order_known=False)
    assert position.check(unknown, alpha=SHARE, seed=0).state == "cannot tell"


@pytest.mark.parametrize("seed", range(4))
def test_two_orders_measure_the_pull_without_knowing_the_answers_worth(seed: int) -> None:
    finding = position.check(judge(seed, 0.8, 2.0), alpha=SHARE, seed=0)
    assert finding.state == "found"
    _, low, high = finding.facts["log_odds"]
    assert low <= 0.8 <= high
    row = finding.rows[0]
    assert row["to_first_shown"] > 2 * row["to_second_shown"]
    assert row["same_in_both_orders"] == pytest.approx(finding.estimate, abs=1e-4)
    assert finding.examples and "turned round" in finding.examples[0].why


def test_a_judge_who_only_wavers_is_not_called_biased() -> None:
    false = sum(position.check(judge(seed, 0.0, 1.0), alpha=0.05, seed=0).state == "found" for seed in range(100))
    assert false <= 9
    assert position.check(judge(1, 0.0, 1.0), alpha=0.05, seed=0).state == "cannot tell"


def test_a_judge_whose_verdicts_hardly_ever_change_is_clear() -> None:
    votes = np.random.default_rng(0).integers(0, 2, (600, 1)).astype(float)
    swapped = votes.copy()
    swapped[:6] = 1.0 - swapped[:6]
    finding = position.check(asked(votes, swapped), alpha=SHARE, seed=0)
    assert finding.state == "clear" and finding.estimate == pytest.approx(0.99, abs=1e-4)


def test_each_rater_is_judged_alone_and_one_biased_among_them_is_named() -> None:
    fair, pulled = judge(2, 0.0, 3.0), judge(3, 1.5, 1.0)
    assert fair.swapped is not None and pulled.swapped is not None
    both = asked(np.hstack((fair.votes, pulled.votes)), np.hstack((fair.swapped, pulled.swapped)))
    finding = position.check(both, alpha=SHARE, seed=0)
    assert finding.state == "found" and finding.facts["raters_found"] == ["rater 1"]
    assert finding.sentence.startswith("rater 1")


def real(part: str, prompting: str, judges: tuple[str, ...]) -> Comparisons:
    with gzip.open(DATA / "pairs.jsonl.gz", "rt", encoding="utf-8") as file:
        pairs = [row for row in map(json.loads, file) if row["subset"].startswith(part)]
    place = {(row["subset"], str(row["idx"])): item for item, row in enumerate(pairs)}
    votes, swapped = np.full((2, len(pairs), len(judges)), np.nan)
    with gzip.open(DATA / "judge_decisions.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            item = place.get((row["subset"], row["idx"]))
            if item is not None and row["judge"] in judges and (row["prompting"], row["run"]) == (prompting, "0"):
                for into, name in ((votes, "winner_unswapped"), (swapped, "winner_swapped")):
                    into[item, judges.index(row["judge"])] = {"1": 1.0, "2": 0.0}.get(row[name], np.nan)
    columns = [[str(row[name]) for row in pairs] for name in ("input", "output_1", "output_2")]
    return Comparisons(columns[0], columns[1], columns[2], votes, judges, swapped, order_known=True)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the public data sets are not at {DATA.parent}")
def test_the_published_order_consistency_is_that_of_the_adversarial_part_under_the_plain_prompt() -> None:
    """All four adversarial subsets together, 319 pairs: 0.92 for GPT-4 and 0.64 for ChatGPT; no other part gives both.

    ChatGPT's changes go to the answer shown first, 108 of 114. GPT-4's 25 changes go there 17 times, which chance does
    by itself once in nine: its order is not consistent, but that it favours a place is not beyond doubt here.
    """
    finding = position.check(real("LLMBar/Adversarial", "Vanilla", ("GPT-4", "ChatGPT")), alpha=SHARE, seed=0)
    assert finding.state == "found" and finding.facts["raters_found"] == ["ChatGPT"]
    rows = {row["rater"]: row for row in finding.rows}
    told = ", ".join(f"{name} {rows[name]['same_in_both_orders']:.2f}" for name in ("GPT-4", "ChatGPT"))
    page = (Path(__file__).parents[4] / "docs" / "worked-examples.md").read_text("utf-8")
    assert f"| the same verdict in both orders: {told} |" in page
    assert (rows["ChatGPT"]["to_first_shown"], rows["ChatGPT"]["to_second_shown"]) == (108, 6)
    assert (rows["GPT-4"]["comparisons"], rows["GPT-4"]["state"]) == (319, "cannot tell")
    for part, prompting in (("LLMBar/Natural", "Vanilla"), ("LLMBar/Adversarial", "CoT"), ("Processed", "Vanilla")):
        others = position.check(real(part, prompting, ("GPT-4", "ChatGPT")), alpha=SHARE, seed=0).rows
        assert [round(row["same_in_both_orders"], 2) for row in others] != [0.92, 0.64]
