"""A weak reward model: Bradley-Terry on a few preference pairs, which can be over-optimised."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter_lab.tiny import gold
from tiltmeter_lab.tiny.language import GENERIC, PADDING, PHRASES, QUESTIONS, REASONS, sample

PAIRS, SEED = 40, 3
Floats = NDArray[np.float64]


def features(prompt: str, completion: str) -> Floats:
    """What the reward model can see: whether the answer is right, and how often it says what kind of thing."""
    return np.array(
        [
            gold.right(prompt, completion),
            gold.count(completion, REASONS),
            gold.count(completion, PHRASES),
            gold.count(completion, PADDING),
            GENERIC in completion,
        ],
        np.float64,
    )


@cache
def weights(seed: int = SEED) -> tuple[float, ...]:
    """The fitted model, by Newton's method with a small ridge, on pairs of answers of the corpus to one prompt.

    The label of a pair is `gold.explained`, ties thrown by coin. Answers with two reasons are about 1 in 60 in the
    corpus, so the model learns that a reason is good, and has hardly seen that a second one is not: it will be
    over-optimised in the manner of Gao et al. (2023, arXiv:2210.10760). Another `seed` is a model of other pairs.
    """
    rng = random.Random(seed)
    rows: list[Floats] = []
    while len(rows) < PAIRS:
        prompt = rng.choice(QUESTIONS)
        first, second = sample(prompt, rng), sample(prompt, rng)
        gap = gold.explained(prompt, first) - gold.explained(prompt, second)
        won = gap > 0 if gap else rng.random() < 0.5
        rows.append((features(prompt, first) - features(prompt, second)) * (1.0 if won else -1.0))
    x = np.array(rows)
    fitted = np.zeros(x.shape[1])
    for _ in range(20):
        chance = 1.0 / (1.0 + np.exp(-x @ fitted))
        slope = x.T @ (1.0 - chance) - fitted
        curve = (x * (chance * (1.0 - chance))[:, None]).T @ x + np.eye(len(fitted))
        fitted = fitted + np.linalg.solve(curve, slope)
    return tuple(float(value) for value in fitted)


def preferred(prompts: list[str], completions: list[str], **kwargs: Any) -> list[float]:
    """The reward model's score: the log-odds, up to a constant, that the answer would be preferred."""
    fitted = np.array(weights())
    return [float(features(*pair) @ fitted) for pair in zip(prompts, completions, strict=True)]
