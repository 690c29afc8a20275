"""Typicality taken out of a reward: the optimum is the base model tilted by what is wanted, and no sharper."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tiltmeter_workbench import rewards

ANSWERS = ["a joke", "another joke", "a third one", "an odd one"]
BASE = np.array([0.6, 0.25, 0.1, 0.05])
WANTED = np.array([0.2, 0.2, 0.5, 0.1])
ALPHA, BETA = 0.6, 0.2


def likelihood(prompts: object, answers: Sequence[str]) -> list[float]:
    return [float(np.log(BASE[ANSWERS.index(answer)])) for answer in answers]


def biased(completions: list[str], **_: object) -> list[float]:
    """What raters who like the familiar teach a reward model."""
    return [WANTED[ANSWERS.index(c)] + ALPHA * np.log(BASE[ANSWERS.index(c)]) for c in completions]


def optimum(scores: object) -> np.ndarray:
    weights = BASE * np.exp(np.asarray(scores, float) / BETA)
    return np.asarray(weights / weights.sum())


def test_the_optimum_is_no_longer_a_power_of_the_base_model() -> None:
    rows = {"prompts": ["tell me"] * 4, "completions": ANSWERS}
    sharp, plain = optimum(biased(**rows)), optimum(rewards.typicality_debiased(biased, likelihood, ALPHA)(**rows))
    power = BASE ** (1.0 + ALPHA / BETA) * np.exp(WANTED / BETA)
    assert sharp == pytest.approx(power / power.sum())
    assert plain == pytest.approx(optimum(WANTED))
    entropy = [-(p * np.log(p)).sum() for p in (sharp, plain)]
    assert entropy[1] > 2.0 * entropy[0]


def test_a_row_without_a_likelihood_is_none_and_a_wrong_number_of_them_an_error() -> None:
    size = lambda completions, **_: [1.0 for _ in completions]  # noqa: E731
    rows = {"prompts": ["p", "p"], "completions": ["x", "y"]}
    assert rewards.typicality_debiased(size, lambda prompts, answers: [-1.0, np.nan], 0.5)(**rows) == [1.5, None]
    with pytest.raises(ValueError, match="one number each"):
        rewards.typicality_debiased(size, lambda prompts, answers: [-1.0], 0.5)(**rows)
    with pytest.raises(ValueError, match="finite"):
        rewards.typicality_debiased(size, likelihood, np.nan)


def test_pay_for_length_is_taken_out_by_what_stands_around_it() -> None:
    nats = lambda prompts, answers: [-2.0 * len(answer) for answer in answers]  # noqa: E731
    flat = lambda completions, **_: [0.0 for _ in completions]  # noqa: E731
    reward = rewards.length_debiased(rewards.typicality_debiased(flat, nats, 0.5), unit="characters", least=2)
    rows = {"prompts": ["p", "p"], "completions": ["a", "aaa"]}
    assert reward(**rows) == [1.0, 3.0]  # nothing is known of the slope yet
    assert reward(**rows) == pytest.approx([2.0, 2.0])


def test_the_worst_groups_reward_needs_two_groups_and_says_whom_it_serves() -> None:
    with pytest.raises(ValueError, match="two groups"):
        rewards.worst_group({"all": biased})
    up = lambda completions, **_: [1.0, 2.0]  # noqa: E731
    down = lambda completions, **_: [2.0, 0.0]  # noqa: E731
    reward = rewards.worst_group({"up": up, "down": down}, scale=[(0.0, 1.0), (0.0, 1.0)])
    assert reward(prompts=["p", "p"], completions=["x", "y"]) == [1.0, 0.0]
    assert reward.told == {"group.up": [1.0, 2.0], "group.down": [2.0, 0.0]}
