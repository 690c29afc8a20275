"""`typicality_debiased` takes out of a reward what answers are paid for being likely under the base model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tiltmeter.gold.guards.composed_reward import ComposedReward, Floats, OnInfra, Part, PartScores, Rows, function_name

#: Prompts and answers to the log-likelihood of each answer given its prompt, in nats; NaN: not known.
Likelihood = Callable[[Sequence[str], Sequence[str]], "Floats | Sequence[float]"]


@dataclass(frozen=True)
class TypicalityRule:
    """r - α log π_base(answer | prompt)."""

    likelihood: Likelihood = field(repr=False)
    alpha: float

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        scores = next(iter(part_scores.scores.values()))
        nats = np.asarray(self.likelihood(rows.prompt_texts, rows.texts), np.float64)
        if nats.shape != scores.shape:
            raise ValueError(f"the likelihood answered {nats.shape} to {len(scores)} completions: one number each")
        return scores - self.alpha * np.where(np.isfinite(nats), nats, np.nan)


def typicality_debiased(
    part: Part,
    likelihood: Likelihood,
    alpha: float,
    *,
    name: str = "typicality_debiased",
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """The reward minus what it pays an answer for being typical: r - α log π_base(answer | prompt).

    People prefer what reads familiar, so a reward model fitted to their choices pays r = r_true + α log π_base. Under a
    KL penalty β its optimum is the base model raised to the power 1 + α/β, tilted by r_true: answers that were likely
    become likelier although nobody asked for it, and diversity is lost (Zhang et al. 2025, arXiv 2510.01171). With the
    right α the power is 1 again.

    `alpha` is in units of the reward for each nat. For a reward model trained on pairs, it is what `tiltmeter data
    preferences DATA --base FOLDER` reports, the log-odds of winning for each nat at equal length. `likelihood` is any
    function of prompts and answers: `model_likelihood(FOLDER)` of `tiltmeter_workbench.preferences.likelihood`, or the
    reference log-probabilities of your loop. It must be the base model's and stay the same.

    Every further token lowers a log-likelihood, so this alone pays for length: put `length_debiased` around it. What it
    cannot do: good writing is likely too, and an α that was estimated without ratings of quality takes that out too.
    A row without a likelihood is None.

    >>> likely = lambda prompts, answers: [-1.0 if answer == "the usual" else -5.0 for answer in answers]
    >>> liked = lambda completions, **_: [0.4 if c == "the usual" else -2.0 for c in completions]
    >>> reward = typicality_debiased(liked, likely, 0.6)
    >>> [round(one, 9) for one in reward(prompts=["tell me"] * 2, completions=["the usual", "something else"])]
    [1.0, 1.0]
    """
    if not np.isfinite(alpha):
        raise ValueError("alpha must be a finite number: what the reward pays for one nat")
    rule = TypicalityRule(likelihood, float(alpha))
    return ComposedReward(name, {function_name(part): part}, rule, settings=(float(alpha),), on_infra=on_infra)
