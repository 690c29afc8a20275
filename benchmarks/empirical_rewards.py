"""Bradley-Terry reward models trained on comparisons of recorded answers, by judges with different faults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter_workbench.stats.bradley_terry import win_chance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Judge:
    """Who labels, and what the reward model sees. The judge prefers the answer with the higher
    `gold_weight` gold + `bias_weight` bias by Bradley-Terry odds, and errs outright in `flips` of the comparisons."""

    comparisons: int
    features: str  # "hidden": the language model's own states; "sentence": MiniLM's; "both"
    per_prompt: bool  # whether each prompt has weights of its own beside the common ones
    gold_weight: float = 5.0
    flips: float = 0.1
    bias: str = ""  # "length" or "format", each standardised over all answers
    bias_weight: float = 0.0
    ridge: float = 1.0


#: Chosen from about twenty designs, after a look at where their gold peaks, so that some overoptimise and some do not:
#: how often reward models fail cannot be read off this list.
JUDGES: dict[str, Judge] = {
    "good": Judge(5000, "both", per_prompt=True, flips=0.05, ridge=20.0),
    "fair": Judge(1000, "both", per_prompt=True, flips=0.05, ridge=5.0),
    "overfitted": Judge(5000, "both", per_prompt=True, flips=0.05, ridge=0.1),
    "few": Judge(200, "hidden", per_prompt=False),
    "weak": Judge(1000, "sentence", per_prompt=False, flips=0.25),
    "length": Judge(5000, "both", per_prompt=True, bias="length", bias_weight=2.0),
    "format": Judge(5000, "both", per_prompt=True, bias="format", bias_weight=2.0),
}


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers by prompt and sample: their gold, what a judge may be biased to, and their features."""

    gold: Floats  # [P, S]
    biases: dict[str, Floats]  # each [P, S]
    features: dict[str, Floats]  # each [P, S, D]


def principal(values: Floats, train: int, size: int) -> Floats:
    """The main directions of features centred by prompt, with unit variance overall; centre and directions from the
    training samples alone."""
    centred = values - values[:, :train].mean(axis=1, keepdims=True)
    _, _, directions = np.linalg.svd(centred[:, :train].reshape(-1, values.shape[2]), full_matrices=False)
    scores: Floats = centred @ directions[:size].T
    scores /= np.sqrt(np.mean(scores[:, :train] ** 2, axis=(0, 1)).mean())
    return scores


def design(answers: Answers, judge: Judge, train: int) -> Floats:
    """The features a judge's reward model is linear in, [P, S, D]."""
    kinds = ["hidden", "sentence"] if judge.features == "both" else [judge.features]
    common = np.concatenate([principal(answers.features[kind], train, 64) for kind in kinds], axis=2)
    if not judge.per_prompt:
        return common
    prompts, samples, _ = common.shape
    own = np.zeros((prompts, samples, prompts, 32))
    strong = np.concatenate([principal(answers.features[kind], train, 32 // len(kinds)) for kind in kinds], axis=2)
    own[np.arange(prompts), :, np.arange(prompts)] = strong
    return np.concatenate([common, own.reshape(prompts, samples, -1)], axis=2)


def labelled(answers: Answers, judge: Judge, train: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Comparisons of two training samples of one prompt: (prompt, preferred, rejected)."""
    prompt = rng.integers(len(answers.gold), size=judge.comparisons)
    first = rng.integers(train, size=judge.comparisons)
    second = (first + rng.integers(1, train, size=judge.comparisons)) % train
    worth = judge.gold_weight * answers.gold
    if judge.bias:
        worth = worth + judge.bias_weight * answers.biases[judge.bias]
    chance = win_chance(worth[prompt, first], worth[prompt, second])
    wins = (rng.random(judge.comparisons) < chance) ^ (rng.random(judge.comparisons) < judge.flips)
    return prompt, np.where(wins, first, second), np.where(wins, second, first)


def fitted(gaps: Floats, ridge: float) -> Floats:
    """Weights that make the preferences most likely: logistic regression on feature gaps, by Newton's method."""
    weights = np.zeros(gaps.shape[1])
    for _ in range(30):
        chance = win_chance(gaps @ weights, 0.0)
        slope = gaps.T @ (1.0 - chance) - ridge * weights
        curve = (gaps * (chance * (1.0 - chance))[:, None]).T @ gaps + ridge * np.eye(len(weights))
        step = np.linalg.solve(curve, slope)
        weights += step
        if np.abs(step).max() < 1e-8:
            return weights
    raise RuntimeError("the reward model did not converge: raise its ridge")


def accuracy(score: Floats, gold: Floats) -> float:
    """How often the better of two answers to a prompt has the higher score, over all pairs whose gold differs."""
    right, pairs = 0.0, 0
    for row, worth in zip(score, gold, strict=True):
        differs = worth[:, None] > worth[None, :]
        gap = row[:, None] - row[None, :]
        right += float((differs & (gap > 0)).sum() + 0.5 * (differs & (gap == 0)).sum())
        pairs += int(differs.sum())
    return right / pairs


def reward_model(answers: Answers, judge: Judge, train: int, seed: int) -> tuple[Floats, dict[str, Any]]:
    """Scores of all answers [P, S] and the facts of the training. Only the first `train` samples of a prompt were
    compared, so the others' scores are out of sample."""
    features = design(answers, judge, train)
    prompt, better, worse = labelled(answers, judge, train, np.random.default_rng(seed))
    weights = fitted(features[prompt, better] - features[prompt, worse], judge.ridge)
    score: Floats = features @ weights
    return score, {
        **asdict(judge),
        "seed": seed,
        "accuracy_trained": round(accuracy(score[:, :train], answers.gold[:, :train]), 4),
        "accuracy_held_out": round(accuracy(score[:, train:], answers.gold[:, train:]), 4),
    }
