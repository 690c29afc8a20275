"""Rewards that are harder to hack: plain callables for any trainer that calls reward functions as TRL does.

    from tiltmeter import rewards

    reward = rewards.combine({"right": check, "style": rewards.clipped(model, -2.0, 2.0)}, weights={"style": 0.2})
    trainer = GRPOTrainer(..., reward_funcs=reward)

A row that could not be scored is None, never 0. torch and transformers are imported only when they are needed. No file
bears a function's name, so no submodule can take a function's place.
"""

from __future__ import annotations

from tiltmeter.rewards.canaries import canaried
from tiltmeter.rewards.distillation import distil
from tiltmeter.rewards.judge_reward import judge
from tiltmeter.rewards.lagrangian import constrained
from tiltmeter.rewards.length import length_debiased, overlong
from tiltmeter.rewards.observe_columns import observed
from tiltmeter.rewards.pareto_front import pareto
from tiltmeter.rewards.process_model import step_model
from tiltmeter.rewards.process_reward import process
from tiltmeter.rewards.repetition_penalty import repetition
from tiltmeter.rewards.reward import InfraError, Reward, Scores, texts
from tiltmeter.rewards.reward_ensemble import ensemble
from tiltmeter.rewards.reward_model import model
from tiltmeter.rewards.shaping import clipped, reference_means, shaped
from tiltmeter.rewards.typicality import typicality_debiased
from tiltmeter.rewards.verifiers.code_reward import code
from tiltmeter.rewards.verifiers.maths_reward import maths
from tiltmeter.rewards.verifiers.verifier_gate import gate
from tiltmeter.rewards.weight_averaging import warm
from tiltmeter.rewards.weighted_sum import combine
from tiltmeter.rewards.worst_group_reward import worst_group

__all__ = [
    "InfraError",
    "Reward",
    "Scores",
    "canaried",
    "clipped",
    "code",
    "combine",
    "constrained",
    "distil",
    "ensemble",
    "gate",
    "judge",
    "length_debiased",
    "maths",
    "model",
    "observed",
    "overlong",
    "pareto",
    "process",
    "reference_means",
    "repetition",
    "shaped",
    "step_model",
    "texts",
    "typicality_debiased",
    "warm",
    "worst_group",
]
