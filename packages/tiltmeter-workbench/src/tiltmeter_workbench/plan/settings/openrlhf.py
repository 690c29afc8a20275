"""Reads OpenRLHF configurations: the options of its commands, from a shell script or a file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tiltmeter_workbench.plan.settings.files import parse_value
from tiltmeter_workbench.plan.settings.shell import options
from tiltmeter_workbench.plan.settings.trainer_settings import (
    Setting,
    Source,
    TrainerSettings,
    find_setting,
    find_settings,
    product,
    trainer_tables,
)

NAMES = {
    "lr": "actor.adam.lr",
    "critic_lr": "critic.adam.lr",
    "schedule": "actor.lr_scheduler",
    "warmup": "actor.lr_warmup_ratio",
    "group": "rollout.n_samples_per_prompt",
    "prompts": "rollout.batch_size",
    "responses": "train.batch_size",
    "epochs": "train.max_epochs",
    "clip_low": "actor.eps_clip",
    "clip_high": "actor.eps_clip",
    "entropy": "actor.entropy_coef",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "max_response": "rollout.max_new_tokens",
    "max_total": "data.max_len",
    "precision": "ds.param_dtype",
    "model": "actor.model_name_or_path",
    "reward_model": "reward.model_name_or_path",
    "loss_type": "actor.policy_loss_type",
    "save": "ckpt.save_steps",
}
PAIR_NAMES = {
    "lr": "adam.lr",
    "schedule": "lr_scheduler",
    "warmup": "lr_warmup_ratio",
    "responses": "train.batch_size",
    "max_total": "data.max_len",
    "precision": "ds.param_dtype",
    "model": "model.model_name_or_path",
    "beta": "model.beta",
    "save": "ckpt.save_steps",
}
METHODS = {
    "gae": "ppo",
    "group_norm": "grpo",
    "dr_grpo": "grpo",
    "rloo": "rloo",
    "reinforce_baseline": "reinforce_baseline",
    "reinforce": "reinforce",
    "flash_reinforce": "reinforce",
}
COMMANDS = {"train_ppo_ray": "ppo", "train_ppo": "ppo", "train_dpo": "dpo", "train_rm": "reward", "train_sft": "sft"}
#: Names of options before they had dots, where a rule looks at them.
FLAT = {
    "actor_learning_rate": "actor.adam.lr",
    "critic_learning_rate": "critic.adam.lr",
    "advantage_estimator": "algo.advantage.estimator",
    "init_kl_coef": "algo.kl.init_coef",
    "use_kl_loss": "algo.kl.use_loss",
    "kl_estimator": "algo.kl.estimator",
    "kl_target": "algo.kl.target",
    "n_samples_per_prompt": "rollout.n_samples_per_prompt",
    "rollout_batch_size": "rollout.batch_size",
    "train_batch_size": "train.batch_size",
    "micro_train_batch_size": "train.micro_batch_size",
    "generate_max_len": "rollout.max_new_tokens",
    "max_epochs": "train.max_epochs",
    "eps_clip": "actor.eps_clip",
    "eps_clip_low_high": "actor.eps_clip_low_high",
    "entropy_loss_coef": "actor.entropy_coef",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "pretrain": "actor.model_name_or_path",
    "reward_pretrain": "reward.model_name_or_path",
    "remote_rm_url": "reward.remote_url",
    "agent_func_path": "train.agent_func_path",
    "save_steps": "ckpt.save_steps",
    "lora_rank": "ds.lora.rank",
    "dynamic_filtering": "algo.dynamic_filtering_enable",
    "dynamic_filtering_reward_range": "algo.dynamic_filtering_range",
    "async_train": "train.async_enable",
    "vllm_enable_sleep": "vllm.enable_sleep",
    "colocate_all_models": "train.colocate_all",
    "learning_rate": "adam.lr",
    "beta": "model.beta",
    "max_len": "data.max_len",
}
_START = re.compile(r"(?:openrlhf\.cli\.|^|/)(train_(?:ppo_ray|ppo|dpo|rm|sft))(?:\.py)?$")
_SIGNS = ("actor.adam.", "algo.kl.", "algo.advantage.", "rollout.n_samples_per_prompt", "ds.zero_stage", "model.beta")
_FLAT_SIGNS = ("actor_learning_rate", "init_kl_coef", "zero_stage", "rollout_batch_size", "micro_train_batch_size")


def recognises(source: Source) -> bool:
    """Whether a file is OpenRLHF's: one of its commands, or options only it has."""
    if source.form == "shell":
        return _find_command(source.command) is not None
    return any(key.startswith(_SIGNS) or key in _FLAT_SIGNS for key in source.explicit)


def _find_command(words: tuple[str, ...]) -> tuple[int, str] | None:
    for at, word in enumerate(words):
        match = _START.search(word)
        after = words[at + 1 :]
        if match is not None and any(one.startswith("--") for one in after):
            return at, match[1]
        if word.endswith(".py") and sum(one.startswith("--") and one[2:].startswith(_SIGNS) for one in after) >= 3:
            return at, "train_ppo_ray"  # a file that starts it, as the one that attaches Tiltmeter
    return None


def parse_settings(source: Source, method: str | None) -> TrainerSettings:
    explicit, command = dict(source.explicit), ""
    if source.form == "shell":
        at, command = _find_command(source.command) or (0, "train_ppo_ray")
        explicit = {key: _option_value(words) for key, words in options(source.command[at + 1 :]).items()}
    command = command or _infer_command(explicit, method)
    table = trainer_tables()["openrlhf"]
    defaults = table["methods"].get(command, table["methods"]["train_ppo_ray"])
    old = [key for key in explicit if "." not in key and key not in defaults]
    original = dict(explicit)
    if len(old) > len(explicit) / 2:  # a file of an older version: read by its old names, and reported as such
        explicit = {FLAT.get(key, key): value for key, value in explicit.items()}
        unknown: tuple[str, ...] = ()
    else:
        # An argument parser takes the beginning of a name for the name, if only one begins so.
        unknown = tuple(
            key for key in explicit if sum(one.startswith(key) for one in defaults) != 1 and key not in defaults
        )
        explicit = {_complete_key(key, defaults): value for key, value in explicit.items()}
    detected_method, common = _common_settings(explicit, defaults, COMMANDS[command])
    if original != explicit and "data.max_len" not in explicit:  # older versions had no limit on both together
        common.pop("max_total", None)
    common["old_names"] = Setting(bool(old) and not unknown and len(old) > len(original) / 2, ", ".join(old[:3]), True)
    return TrainerSettings(
        str(source.path),
        "openrlhf",
        table["version"],
        method or detected_method,
        source.form,
        explicit,
        common,
        unknown,
        {},
    )


def _complete_key(key: str, defaults: Mapping[str, Any]) -> str:
    matches = [one for one in defaults if one.startswith(key)]
    return matches[0] if key not in defaults and len(matches) == 1 else key


def _infer_command(explicit: Mapping[str, Any], method: str | None) -> str:
    by_method = {"dpo": "train_dpo", "reward": "train_rm", "sft": "train_sft"}
    if method in by_method:
        return by_method[method]
    return "train_dpo" if "model.beta" in explicit else "train_ppo_ray"


def _option_value(words: list[str]) -> Any:
    if not words:
        return True
    return parse_value(words[0]) if len(words) == 1 else [parse_value(word) for word in words]


def _common_settings(
    explicit: Mapping[str, Any], defaults: Mapping[str, Any], command: str
) -> tuple[str, dict[str, Setting]]:
    if command != "ppo":
        common = find_settings(explicit, defaults, PAIR_NAMES)
        return command, common | _lora(explicit)
    estimator = find_setting(explicit, defaults, "algo.advantage.estimator")
    word = estimator.value if estimator is not None and isinstance(estimator.value, str) else "gae"
    method = METHODS.get(word, word)
    common = find_settings(explicit, defaults, NAMES)
    if estimator is not None:
        common["estimator"] = estimator
    if method != "ppo":
        common.pop("critic_lr", None)
    clips = explicit.get("actor.eps_clip_low_high")
    if isinstance(clips, list) and len(clips) == 2:
        for name, value in zip(("clip_low", "clip_high"), clips, strict=True):
            common[name] = Setting(value, "actor.eps_clip_low_high", True)
    rollout = product(common.get("prompts"), common.get("group"))
    if rollout is not None:
        common["rollout"] = Setting(rollout, "rollout.batch_size", common["prompts"].explicit)
    return method, common | _kl_settings(explicit, defaults) | _lora(explicit)


def _kl_settings(explicit: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Setting]:
    """The KL penalty: one coefficient, in the reward unless `use_loss` is set."""
    beta, kind = (
        find_setting(explicit, defaults, "algo.kl.init_coef"),
        find_setting(explicit, defaults, "algo.kl.estimator"),
    )
    place = "loss" if explicit.get("algo.kl.use_loss") is True else "reward"
    common = {} if beta is None else {f"beta_{place}": beta}
    if kind is not None:
        unbiased = explicit.get("algo.kl.unbiased_gradient") is True
        common[f"kl_{place}_estimator"] = Setting("k2" if unbiased else kind.value, kind.key, kind.explicit)
    return common


def _lora(explicit: Mapping[str, Any]) -> dict[str, Setting]:
    rank = explicit.get("ds.lora.rank", 0)
    on = isinstance(rank, int) and rank > 0
    return {"lora": Setting(True, "ds.lora.rank", True)} if on else {}
