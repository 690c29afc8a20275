"""Rewards that are harder to hack: plain callables for any trainer that calls reward functions as TRL does.

    from tiltmeter import rewards

    reward = rewards.combine({"right": check, "style": rewards.clipped(model, -2.0, 2.0)}, weights={"style": 0.2})
    trainer = GRPOTrainer(..., reward_funcs=reward)

A row that could not be scored is None, never 0. torch and transformers are imported only when they are needed. No file
bears a function's name, so no submodule can take a function's place.
"""

from __future__ import annotations

from tiltmeter.gold.checks.code_reward import code
from tiltmeter.gold.checks.maths_reward import maths
from tiltmeter.gold.guards.canaries import canaried
from tiltmeter.gold.guards.observe_columns import observed
from tiltmeter.gold.guards.process_reward import process
from tiltmeter.gold.guards.reward import InfraError, Reward, Scores, texts
from tiltmeter_workbench.rewards.distillation import distil
from tiltmeter_workbench.rewards.judge_reward import judge
from tiltmeter_workbench.rewards.lagrangian import constrained
from tiltmeter_workbench.rewards.length import length_debiased, overlong
from tiltmeter_workbench.rewards.pareto_front import pareto
from tiltmeter_workbench.rewards.process_model import step_model
from tiltmeter_workbench.rewards.repetition_penalty import repetition
from tiltmeter_workbench.rewards.reward_ensemble import ensemble
from tiltmeter_workbench.rewards.reward_model import model
from tiltmeter_workbench.rewards.shaping import clipped, reference_means, shaped
from tiltmeter_workbench.rewards.typicality import typicality_debiased
from tiltmeter_workbench.rewards.verifiers.verifier_gate import gate
from tiltmeter_workbench.rewards.weight_averaging import warm
from tiltmeter_workbench.rewards.weighted_sum import combine
from tiltmeter_workbench.rewards.worst_group_reward import worst_group

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
