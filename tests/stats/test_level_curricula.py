"""The level of gold where prompts come back in another mixture: a harder mixture of the same prompts is no loss."""

from __future__ import annotations

import numpy as np

from tiltmeter.stats.level_drop import LevelDropTest

STEPS, GROUPS, ANSWERS = 150, 16, 8
CHANCE = np.repeat([0.25, 0.85], 100)  # of a good answer, by prompt


def highest_evidence(seed: int, *, loss: float = 0.0) -> float:
    """Of a run whose share of hard prompts grows from a fifth to four fifths; `loss` of each prompt from step 100."""
    rng, test, highest = np.random.default_rng([8, seed]), LevelDropTest(), -np.inf
    for step in range(STEPS):
        hard = rng.binomial(GROUPS, 0.2 + 0.6 * step / STEPS)
        prompts = np.concatenate([rng.permutation(100)[:hard], 100 + rng.permutation(100)[: GROUPS - hard]])
        chance = CHANCE[prompts] - (loss if step >= 100 else 0.0)
        test.place(step, prompts, rng.binomial(ANSWERS, chance) / ANSWERS, ANSWERS)
        highest = max(highest, test.evidence)
    return highest


def test_a_mixture_of_the_same_prompts_that_turns_harder_is_no_fall_of_gold() -> None:
    assert np.mean([highest_evidence(seed) for seed in range(6)]) < 1.0


def test_a_loss_on_each_prompt_is_seen_all_the_same() -> None:
    assert min(highest_evidence(seed, loss=0.2) for seed in range(3)) > 10.0
