"""Rewards that learn while training goes on: the slope of length, and multipliers that find a known optimum."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.composed_reward import ComposedReward
from tiltmeter.stats.regression import within_slope
from tiltmeter_workbench import rewards


class Trainer:
    """What a reward function can find out about TRL's trainer."""

    def __init__(self) -> None:
        self.model = SimpleNamespace(training=True)
        self.logged: dict[str, list[float]] = {}

    def log_metric(self, name: str, value: float) -> None:
        self.logged.setdefault(name, []).append(value)


def taste(completions: list[str], worth: list[float], **_: Any) -> list[float]:
    """What the answer is worth, plus 0.01 for each character."""
    return [value + 0.01 * len(text) for text, value in zip(completions, worth, strict=True)]


def step(rng: np.random.Generator, groups: int = 8, size: int = 8) -> dict[str, Any]:
    rows = groups * size
    lengths = rng.integers(20, 400, rows)
    return {
        "prompts": [f"p{row // size}" for row in range(rows)],
        "completions": ["x" * int(n) for n in lengths],
        # Prompts with long answers are worth less: the slope between prompts is not the one inside them.
        "worth": (rng.normal(size=rows) - 3.0 * np.repeat(np.arange(groups), size)).tolist(),
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_pay_of_length_goes_and_the_worth_stays(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reward = rewards.length_debiased(taste, unit="characters", decay=0.95)
    for _ in range(40):
        reward(**step(rng))
    assert reward.rule.slope == pytest.approx(0.01, abs=0.002)
    now = step(rng, groups=60)
    told = np.array(reward(**now), float)
    lengths = np.array([float(len(text)) for text in now["completions"]])
    starts = np.arange(0, len(told) + 1, 8)
    left, error, _ = within_slope(told, lengths, starts)
    before, _, _ = within_slope(np.array(reward.told["taste"], float), lengths, starts)
    assert before == pytest.approx(0.01, abs=4 * error) and abs(left) < 4 * error + 0.002
    groups = np.repeat(np.arange(60), 8)
    worth = np.array(now["worth"]) + 3.0 * groups
    inside = told - np.repeat(told.reshape(-1, 8).mean(axis=1), 8)
    assert np.corrcoef(inside, worth)[0, 1] > 0.8


def test_the_slope_by_hand_and_only_from_steps_before() -> None:
    rows = {"prompts": ["p", "p", "q", "q"], "completions": ["a", "aaa", "aa", "aaaa"]}
    scores = iter([[1.0, 5.0, 0.0, 2.0], [1.0, 5.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0]])
    reward = rewards.length_debiased(lambda completions, **_: next(scores), unit="characters", least=4, decay=0.5)
    # dx is -1, 1 in both groups; dy is -2, 2 and -1, 1: slope (4 + 2) / 4 = 1.5. The mean length is 2.5.
    assert reward(**rows) == [1.0, 5.0, 0.0, 2.0], "there is no step before the first"
    assert reward.rule.slope == 1.5 and reward.rule.middle == 2.5
    assert reward(**rows) == [1.0 + 2.25, 5.0 - 0.75, 0.75, 2.0 - 2.25]
    assert reward.rule.sums.tolist() == [6.0, 9.0, 6.0, 15.0, 6.0]  # half of the first, and the second
    reward(**rows)
    assert reward.rule.slope == pytest.approx(4.5 / 7.0)


def test_too_little_says_nothing_about_length() -> None:
    rows = {"prompts": ["p", "p"], "completions": ["a", "aaa"]}
    reward = rewards.length_debiased(lambda completions, **_: [0.0, 9.0], unit="characters")
    for _ in range(5):
        assert reward(**rows) == [0.0, 9.0]
    same = rewards.length_debiased(lambda completions, **_: [0.0, 9.0], unit="characters", least=1)
    for _ in range(5):
        assert same(prompts=["p", "p"], completions=["a", "b"]) == [0.0, 9.0]
    with pytest.raises(TypeError, match="call it with prompts="):
        reward(completions=["a", "b"])


@pytest.mark.parametrize("seed", range(5))
def test_multipliers_find_the_known_optimum(seed: int) -> None:
    """Two kinds of answer: one is worth 1 and never polite, the other worth 0.2 and always polite. The most that is
    worth having with politeness of at least 0.7 is 0.7 of the second kind, whatever the multiplier is."""
    rng = np.random.default_rng(seed)
    polite = lambda completions, **_: [float(c == "polite") for c in completions]  # noqa: E731
    worth = lambda completions, **_: [0.2 if c == "polite" else 1.0 for c in completions]  # noqa: E731
    reward = rewards.constrained(worth, {"polite": (polite, 0.7)}, rate=0.05)
    beta, logit = 0.2, 0.0
    shares, multipliers = [], []
    for _ in range(1500):
        share = 1.0 / (1.0 + math.exp(-logit))
        said = ["polite" if drawn else "useful" for drawn in rng.random(64) < share]
        told = np.array(reward(completions=said), float)
        is_polite = np.array([c == "polite" for c in said])
        if is_polite.any() and not is_polite.all():
            # The policy moves towards its best answer to this reward on a leash of beta: logit = difference / beta.
            logit += 0.2 * ((told[is_polite].mean() - told[~is_polite].mean()) / beta - logit)
        shares.append(share)
        multipliers.append(reward.rule.multipliers["polite"])
    assert np.mean(shares[-500:]) == pytest.approx(0.7, abs=0.02)
    # It rests where (λ - 0.8) / (1 + λ) = beta logit(0.7).
    rest = beta * math.log(0.7 / 0.3)
    assert np.mean(multipliers[-500:]) == pytest.approx((0.8 + rest) / (1.0 - rest), abs=0.05)


def test_multipliers_by_hand() -> None:
    reward = rewards.constrained(
        lambda completions, **_: [1.0, None],
        {"safe": (lambda completions, **_: [0.0, 0.5], 1.0), "calm": (lambda completions, **_: [None, None], 0.5)},
        rate=2.0, ceiling=2.5, start=1.0,
    )  # fmt: skip
    assert reward(completions=["a", "b"]) == [None, None], "calm said nothing, so no row is whole"
    assert reward.rule.multipliers == {"safe": 2.5, "calm": 1.0}  # 1 + 2 (1 - 0.25) is cut off; calm is not known
    slack = rewards.constrained(lambda completions, **_: [1.0], {"c": (lambda completions, **_: [5.0], 1.0)}, start=1.0)
    assert slack(completions=["a"]) == [3.0] and slack.rule.multipliers == {"c": pytest.approx(0.8)}
    for _ in range(9):
        slack(completions=["a"])
    assert slack.rule.multipliers == {"c": 0.0} and slack(completions=["a"]) == [1.0]


def constrained() -> ComposedReward:
    debiased = rewards.length_debiased(taste, unit="characters", least=4)
    return rewards.constrained(debiased, {"polite": (lambda completions, **_: [0.0] * len(completions), 0.5)})


def test_a_resumed_run_goes_on_with_what_was_learnt(tmp_path: Path) -> None:
    straight, first = constrained(), constrained()
    rngs = [np.random.default_rng(1), np.random.default_rng(1)]
    for _ in range(4):
        straight(**step(rngs[0]))
        first(**step(rngs[1]))
    first.save(tmp_path / "reward.json")
    resumed = constrained()
    resumed.load(tmp_path / "reward.json")
    now = step(rngs[0])
    assert resumed(**now) == straight(**now) != constrained()(**now)
    assert json.loads((tmp_path / "reward.json").read_text())["rule"]["multipliers"]["polite"] > 0.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reward.json"]
    with pytest.raises(ValueError, match="multipliers of"):
        rewards.constrained(taste, {"other": (taste, 0.5)}).load(tmp_path / "reward.json")
    with pytest.raises(ValueError, match="state is of another reward"):
        rewards.combine([taste]).load(tmp_path / "reward.json")


def test_nothing_is_learnt_from_an_evaluation() -> None:
    trainer, rng = Trainer(), np.random.default_rng(0)
    scaled = rewards.ensemble([taste], scale=100)
    scaled(**step(rng), log_metric=trainer.log_metric)
    trainer.model.training, known = False, scaled.state()
    scaled(**step(rng), log_metric=trainer.log_metric)
    assert scaled.state() == known
    trainer.model.training = True
    reward = constrained()
    reward(**step(rng), log_metric=trainer.log_metric)
    before = reward.state()
    trainer.model.training = False
    reward(**step(rng), log_metric=trainer.log_metric)
    assert reward.state() == before
    trainer.model.training = True
    reward(**step(rng), log_metric=trainer.log_metric)
    assert reward.state() != before
    assert trainer.logged["constrained/polite/multiplier"] == pytest.approx([0.0, 0.025, 0.025])
    assert len(trainer.logged["length_debiased/slope"]) == 3


@pytest.mark.parametrize("kind", ["constrained", "length_debiased", "ensemble"])
def test_several_processes_must_agree(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ranks with half of the rows each learn what one with all of them learns."""

    def make(agree: Any = None) -> ComposedReward:
        if kind == "constrained":
            return rewards.constrained(taste, {"long": (taste, 9.0)}, agree=agree)
        if kind == "length_debiased":
            return rewards.length_debiased(taste, unit="characters", least=2, agree=agree)
        return rewards.ensemble([taste, taste], scale=64, agree=agree)

    whole, rng = make(), np.random.default_rng(3)
    now, later = step(rng), step(rng)
    whole(**now)
    halves = [{key: values[:32] for key, values in now.items()}, {key: values[32:] for key, values in now.items()}]
    sums: list[list[float]] = []

    def note(own: list[float]) -> list[float]:
        sums.append(own)
        return own

    for half in halves:
        make(note)(**half)
    total = [a + b for a, b in zip(*sums, strict=True)]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(AttachError, match="agree="):
        make()
    ranks = [make(lambda own: total) for _ in halves]
    for rank, half in zip(ranks, halves, strict=True):
        rank(**half)
    assert ranks[0](**later) == ranks[1](**later) == pytest.approx(whole(**later))
