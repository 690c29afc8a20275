"""The trainer's own scalars: loss, gradient norm, learning rate and others."""

from __future__ import annotations

import math

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch

#: Canonical names of a trainer's scalars that become readings; adapters translate into them. `kl_old_new` is absent
#: because it has an instrument of its own (`policy.kl_old`).
SCALARS = (
    "reward",  # what the trainer says it optimised, its batch mean; ours is `reward.mean`
    "reward_std",  # its spread, over the batch in some trainers and within groups in others; ours is `reward.spread`
    "dead_group_share",  # of groups whose rewards are equal, as the trainer counts them; ours is `reward.dead_share`
    "length_mean",  # tokens of a completion as the trainer counts them; ours is `length.mean`
    "loss",  # what the optimiser minimised, all terms
    "policy_loss",  # its policy term alone
    "value_loss",  # its critic term, where there is a critic
    "grad_norm",  # of the gradient before clipping
    "learning_rate",  # as the scheduler reports it; the optimiser may use another for one step
    "clip_share",  # of tokens whose ratio was clipped, in [0, 1]
    "beta",  # KL coefficient in force
    "entropy_coef",  # entropy bonus in force
    "entropy",  # mean per token as the trainer computes it, nats; ours is `policy.entropy`
    "kl_ref",  # to the reference as the trainer estimates it, usually per token; ours is `policy.kl`
    "kl_engine_trainer",  # engine against trainer as the trainer estimates it; ours is `engine.gap`
    "truncated_share",  # of completions cut at the length limit, in [0, 1]
    "step_seconds",  # wall time of the step
    "checkpoint",  # the step of a checkpoint that was saved since the last step
    "margin",  # on pairs: chosen minus rejected, in the implicit reward or a reward model's
    "accuracy",  # on pairs: how often chosen is above rejected, in [0, 1]
    "chosen_reward",  # implicit reward of the chosen answers, beta times their log-ratio to the reference
    "rejected_reward",
    "chosen_logprob",  # of the chosen answers, nats per answer; falling while margins rise is displacement
    "rejected_logprob",
    "token_accuracy",  # supervised: how often the likeliest token is the right one, in [0, 1]
)


class Training:
    """The trainer's own scalars of the step, under one name whatever the trainer, as far as it logs them; and
    `nonfinite_count`, how many of all its scalars are NaN or infinite.

    Health of the optimisation, apart from what it optimises. A gradient norm that jumps or a clipped share that climbs
    often comes before a KL that runs away; schedules (warm-up, a new beta) are the innocent cause. A loss near 0 means
    nothing: with one update per batch the policy term is about 0 by construction. Dead groups show in
    `reward.dead_share` and in `grad_norm`. A scalar that is NaN has no reading of its own, which on a chart looks like
    nothing; that is why the NaN are counted.

    Formula: the scalars themselves; nonfinite_count = Σ 1[scalar is NaN or infinite]
    Source: the trainer

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0], scalars={"loss": 0.5, "grad_norm": float("nan"), "epoch": 1})
    >>> {name: values.tolist() for name, values in Training().measure(batch, None).items()}
    {'loss': [0.5], 'grad_norm': [nan], 'nonfinite_count': [1.0]}
    """

    name = "training"
    grain = "batch"
    needs = ("scalars",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        scalars = {name: float(batch.scalars[name]) for name in SCALARS if name in batch.scalars}
        values = {name: np.array([value if math.isfinite(value) else np.nan]) for name, value in scalars.items()}
        nonfinite = sum(not math.isfinite(value) for value in batch.scalars.values())
        return {**values, "nonfinite_count": np.array([float(nonfinite)])}
