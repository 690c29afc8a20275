"""Every method a recipe may name: where it lives, what it reads, what it leaves, and which of TRL's classes sets it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, cast

from tiltmeter.train.method import Train
from tiltmeter.train.recipe import Method

Leaves = Literal["policy", "reward", "files"]

METHODS: dict[Method, str] = {
    "sft": "tiltmeter.train.sft:train",
    "reward": "tiltmeter.train.reward:train",
    "dpo": "tiltmeter.train.preference:train",
    "ipo": "tiltmeter.train.preference:train",
    "kto": "tiltmeter.train.preference:train",
    "grpo": "tiltmeter.train.online:train",
    "rloo": "tiltmeter.train.online:train",
    "ppo": "tiltmeter.train.ppo:train",
    "constitution": "tiltmeter.train.constitution:train",
    "iterative_dpo": "tiltmeter.train.iterative:train",
    "refresh": "tiltmeter.train.refresh:train",
}


@dataclass(frozen=True)
class Kind:
    """What one method is to a recipe. `fields` are those of a stage beside method, name, model, data and options."""

    does: str
    config: str | None  # TRL's class, whose fields stand under `trl`
    leaves: tuple[Leaves, ...]
    fields: frozenset[str]
    needs: tuple[str, ...] = ("data",)


_TRAINED = frozenset({"eval", "trl", "lora", "watch"})
_REWARDED = _TRAINED | {"rewards", "guards", "gold"}
_NEEDS = ("data", "rewards")

KINDS: dict[Method, Kind] = {
    "sft": Kind("supervised fine-tuning", "SFTConfig", ("policy",), _TRAINED),
    "reward": Kind("a reward model, or several", "RewardConfig", ("reward",), _TRAINED),
    "dpo": Kind("direct preference optimisation", "DPOConfig", ("policy",), _TRAINED),
    "ipo": Kind("DPO with the IPO loss", "DPOConfig", ("policy",), _TRAINED),
    "kto": Kind("learning from answers called good or bad", "KTOConfig", ("policy",), _TRAINED),
    "grpo": Kind("group relative policy optimisation", "GRPOConfig", ("policy",), _REWARDED, _NEEDS),
    "rloo": Kind("REINFORCE against the rest of the group", "RLOOConfig", ("policy",), _REWARDED, _NEEDS),
    "ppo": Kind(
        "PPO, which TRL no longer has: writes configurations for veRL and OpenRLHF", None, ("files",),
        frozenset({"eval", "lora", "rewards", "guards", "gold", "watch"}), _NEEDS,
    ),
    "constitution": Kind("critique, revision and AI preference labels", None, ("files",), frozenset()),
    "iterative_dpo": Kind(
        "rounds of sampling, ranking and DPO", "DPOConfig", ("policy", "files"), _REWARDED, _NEEDS
    ),
    "refresh": Kind(
        "GRPO whose reward model is trained again on audited rollouts", "GRPOConfig", ("policy", "files"),
        _REWARDED, _NEEDS,
    ),
}  # fmt: skip


def module_of(method: Method) -> Any:
    """The module a method lives in. What is heavy there is imported when it trains."""
    return import_module(METHODS[method].partition(":")[0])


def trainer_of(method: Method) -> Train:
    """The function that trains by this method."""
    return cast(Train, getattr(module_of(method), METHODS[method].partition(":")[2]))


def options_of(method: Method) -> Mapping[str, str]:
    """The options of a method, each with what it says: the `OPTIONS` of its module."""
    return cast("Mapping[str, str]", module_of(method).OPTIONS)


def config_of(method: Method) -> type[Any] | None:
    """TRL's configuration class of a method; None where TRL has none."""
    name = KINDS[method].config
    return None if name is None else cast("type[Any]", getattr(import_module("trl"), name))
