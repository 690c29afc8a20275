"""The level test: it keeps its bound where gold does not fall, sees a fall that slopes cannot, and forgets nothing."""

from __future__ import annotations

from math import log

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.stats.level_drop import WEIGHT, LevelDropTest

PROMPTS, GROUPS, STEPS = 36, 8, 160


def prompt_order(rng: np.random.Generator) -> np.ndarray:
    """Shuffled epochs, as a data loader makes them."""
    epochs = [rng.permutation(PROMPTS) for _ in range(1 + STEPS * GROUPS // PROMPTS)]
    return np.concatenate(epochs)[: STEPS * GROUPS].reshape(STEPS, GROUPS)


def run(test: LevelDropTest, prompts: np.ndarray, mu: np.ndarray, answers: int, rng: np.random.Generator) -> float:
    """The highest evidence of a run of which `mu` is the chance of a good answer by step and prompt."""
    highest = -np.inf
    for step, groups in enumerate(prompts):
        test.place(step, groups, rng.binomial(answers, mu[step, groups]) / answers, answers)
        highest = max(highest, test.evidence)
    return highest


def boundary(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Runs in which the mean over prompts never falls, and nothing is to spare."""
    mu = np.clip(0.6 + rng.normal(0.0, 0.15, PROMPTS), 0.02, 0.98)[None].repeat(STEPS, 0)
    if kind == "churn":  # prompts go up and down, and their mean stays
        walk = np.cumsum(rng.normal(0.0, 0.02, (STEPS, PROMPTS)), 0).clip(-0.2, 0.2)
        mu = np.clip(mu + walk - walk.mean(1, keepdims=True), 0.0, 1.0)
        mu += np.maximum.accumulate(mu.mean(1))[:, None] - mu.mean(1, keepdims=True)
    elif kind == "plateau":
        mu = mu - 0.25 * np.clip(1.0 - np.arange(STEPS) / 50, 0.0, 1.0)[:, None]
    return np.clip(mu, 0.0, 1.0)


@pytest.mark.parametrize("kind", ["flat", "churn", "plateau"])
@pytest.mark.parametrize("answers", [2, 8])
def test_gold_that_does_not_fall_alarms_no_more_often_than_promised(kind: str, answers: int) -> None:
    runs, highest = size(25, 4000), []
    for seed in range(runs):
        rng = np.random.default_rng([seed, answers])
        highest.append(run(LevelDropTest(0.0), prompt_order(rng), boundary(kind, rng), answers, rng))
    for chance in (0.1, 0.02, 0.01):
        assert np.mean(np.array(highest) >= log(1.0 / chance)) <= chance + 2.0 * np.sqrt(chance / runs)


def test_a_test_that_takes_the_best_window_at_its_word_would_alarm() -> None:
    """The check can fail: without the price of a window's own noise the best of several windows is lucky, and a return
    to the mean looks like a fall."""
    from tiltmeter.stats.bets_below import BetsBelow

    class Naive(BetsBelow):
        def _price(self) -> None:
            self.evidence = float(np.logaddexp.reduce(self.log_money))

    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        prompts, mu = prompt_order(rng), boundary("flat", rng)
        test = LevelDropTest(0.0)
        highest = -np.inf
        for step, groups in enumerate(prompts):
            test.place(step, groups, rng.binomial(2, mu[step, groups]) / 2, 2)
            for one in test._references:
                one.bets_below.__class__ = Naive
            wealth = [one.evidence for one in test._references if np.isfinite(one.evidence)]
            highest = max([highest, *wealth])
        alarms += highest >= log(20.0)
    assert alarms >= 10


@pytest.mark.parametrize("paired", [True, False])
def test_a_fall_is_seen_soon_whether_or_not_prompts_come_back(paired: bool) -> None:
    late, onsets = [], []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        order = prompt_order(rng)
        keys = order if paired else np.arange(STEPS * GROUPS).reshape(STEPS, GROUPS)
        mu, test = boundary("flat", rng) * np.where(np.arange(STEPS) < 80, 1.0, 0.5)[:, None], LevelDropTest()
        for step in range(STEPS):
            test.place(step, keys[step], rng.binomial(8, mu[step, order[step]]) / 8, 8)
            if test.evidence >= log(250.0):
                late.append(step - 80)
                break
        assert test.paired is paired
        onsets.append(test.drop_steps()[1])
    assert len(late) == 10 and min(late) > 0 and np.median(late) <= (8 if paired else 25)
    assert 70 <= np.median(onsets) <= 82


def test_new_prompts_that_are_harder_are_no_fall() -> None:
    """A curriculum that adds prompts: the old ones are as good as they were."""
    rng = np.random.default_rng(0)
    test = LevelDropTest(0.0)
    for step in range(160):
        keys = np.concatenate([rng.integers(0, 20, 4), 1000 + step * 4 + np.arange(4)])
        means = rng.binomial(8, np.where(keys < 20, 0.7, 0.7 if step < 80 else 0.2)) / 8
        test.place(step, keys, means, 8)
    assert test.paired and test.evidence < log(20.0)


def test_all_weights_together_are_at_most_one() -> None:
    windows = np.arange(10**6)
    assert ((windows + 4.0) ** -1.5).sum() + 2.0 / np.sqrt(10**6 + 3.0) <= WEIGHT


def test_after_a_rewind_later_windows_are_no_reference_and_what_was_won_stays() -> None:
    rng = np.random.default_rng(1)
    test = LevelDropTest()
    for step in range(100):
        test.place(step, np.arange(8), rng.binomial(8, 0.9 if 40 <= step < 80 else 0.3, 8) / 8, 8)
    before = test.evidence
    assert before > log(1000.0)
    test.rewind(40)
    assert test.evidence == pytest.approx(before, abs=0.05)
    for step in range(40, 100):
        test.place(step, np.arange(8), rng.binomial(8, 0.3, 8) / 8, 8)
    assert test.evidence == pytest.approx(before, abs=0.05), "0.3 is what step 40 had: nothing has fallen"


def test_gold_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="voids the bound"):
        LevelDropTest().place(0, np.arange(1), np.array([1.2]), 8)
