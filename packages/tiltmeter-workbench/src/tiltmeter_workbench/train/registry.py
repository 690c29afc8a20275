"""Registry of training methods: the module, allowed fields, outputs and TRL configuration class of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, cast

from tiltmeter_workbench.train.method_interface import TrainMethod
from tiltmeter_workbench.train.recipe import Method

Product = Literal["policy", "reward", "files"]

METHODS: dict[Method, str] = {
    "sft": "tiltmeter_workbench.train.methods.sft:train",
    "reward": "tiltmeter_workbench.train.methods.reward_model:train",
    "dpo": "tiltmeter_workbench.train.methods.dpo:train",
    "ipo": "tiltmeter_workbench.train.methods.dpo:train",
    "kto": "tiltmeter_workbench.train.methods.dpo:train",
    "grpo": "tiltmeter_workbench.train.methods.grpo:train",
    "rloo": "tiltmeter_workbench.train.methods.grpo:train",
    "ppo": "tiltmeter_workbench.train.methods.ppo:train",
    "constitution": "tiltmeter_workbench.train.methods.constitution:train",
    "iterative_dpo": "tiltmeter_workbench.train.methods.iterative_dpo:train",
    "refresh": "tiltmeter_workbench.train.methods.refresh:train",
    "process_reward": "tiltmeter_workbench.train.methods.process_reward:train",
}


@dataclass(frozen=True)
class MethodSpec:
    """Specification of a method. `fields` are its stage fields beside method, name, model, data and options."""

    does: str
    config: str | None  # TRL's class, whose fields stand under `trl`
    products: tuple[Product, ...]
    fields: frozenset[str]
    needs: tuple[str, ...] = ("data",)


_TRAINING_FIELDS = frozenset({"eval", "replay", "trl", "lora", "watch", "gold"})
_REWARD_FIELDS = _TRAINING_FIELDS | {"rewards", "guards"}
_DATA_AND_REWARDS = ("data", "rewards")

SPECS: dict[Method, MethodSpec] = {
    "sft": MethodSpec("supervised fine-tuning", "SFTConfig", ("policy",), _TRAINING_FIELDS),
    "reward": MethodSpec("a reward model, or several", "RewardConfig", ("reward",), _TRAINING_FIELDS - {"replay"}),
    "dpo": MethodSpec("direct preference optimisation", "DPOConfig", ("policy",), _TRAINING_FIELDS),
    "ipo": MethodSpec("DPO with the IPO loss", "DPOConfig", ("policy",), _TRAINING_FIELDS),
    "kto": MethodSpec("learning from answers called good or bad", "KTOConfig", ("policy",), _TRAINING_FIELDS),
    "grpo": MethodSpec(
        "group relative policy optimisation", "GRPOConfig", ("policy",), _REWARD_FIELDS, _DATA_AND_REWARDS
    ),
    "rloo": MethodSpec(
        "REINFORCE against the rest of the group", "RLOOConfig", ("policy",), _REWARD_FIELDS, _DATA_AND_REWARDS
    ),
    "ppo": MethodSpec(
        "PPO, which TRL no longer has: writes configurations for veRL and OpenRLHF", None, ("files",),
        frozenset({"eval", "lora", "rewards", "guards", "gold", "watch"}), _DATA_AND_REWARDS,
    ),
    "constitution": MethodSpec("critique, revision and AI preference labels", None, ("files",), frozenset()),
    "iterative_dpo": MethodSpec(
        "rounds of sampling, ranking and DPO", "DPOConfig", ("policy", "files"), _REWARD_FIELDS - {"replay"},
        _DATA_AND_REWARDS,
    ),
    "refresh": MethodSpec(
        "GRPO whose reward model is retrained on labelled pairs of its own rollouts", "GRPOConfig", ("policy", "files"),
        _REWARD_FIELDS - {"replay"}, _DATA_AND_REWARDS,
    ),
    "process_reward": MethodSpec(
        "a process reward model, from labelled steps", "RewardConfig", ("files",), frozenset({"eval", "trl"})
    ),
}  # fmt: skip


#: Methods that make no completions while they train: gold judges what they save.
JUDGED_AT_SAVES: frozenset[Method] = frozenset({"sft", "reward", "dpo", "ipo", "kto"})


def module_of(method: Method) -> Any:
    """The module a method lives in. What is heavy there is imported when it trains."""
    return import_module(METHODS[method].partition(":")[0])


def trainer_of(method: Method) -> TrainMethod:
    """The function that trains by this method."""
    return cast(TrainMethod, getattr(module_of(method), METHODS[method].partition(":")[2]))


def options_of(method: Method) -> Mapping[str, str]:
    """The options of a method, each with what it says: the `OPTIONS` of its module."""
    return cast("Mapping[str, str]", module_of(method).OPTIONS)


def config_of(method: Method) -> type[Any] | None:
    """TRL's configuration class of a method; None where TRL has none."""
    name = SPECS[method].config
    return None if name is None else cast("type[Any]", getattr(import_module("trl"), name))
