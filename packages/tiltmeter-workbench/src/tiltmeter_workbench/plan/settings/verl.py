"""Reads veRL configurations: Hydra keys from a YAML file or the overrides of a shell command."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tiltmeter_workbench.plan.settings.files import parse_value
from tiltmeter_workbench.plan.settings.trainer_settings import (
    UNREAD,
    Setting,
    Source,
    TrainerSettings,
    find_setting,
    find_settings,
    product,
    trainer_tables,
)

ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
NAMES = {
    "lr": f"{ACTOR}.optim.lr",
    "schedule": f"{ACTOR}.optim.lr_scheduler_type",
    "group": f"{ROLLOUT}.n",
    "prompts": "data.train_batch_size",
    "mini_batch": f"{ACTOR}.ppo_mini_batch_size",
    "epochs": f"{ACTOR}.ppo_epochs",
    "clip_low": f"{ACTOR}.clip_ratio_low",
    "clip_high": f"{ACTOR}.clip_ratio_high",
    "entropy": f"{ACTOR}.entropy_coeff",
    "temperature": f"{ROLLOUT}.temperature",
    "top_p": f"{ROLLOUT}.top_p",
    "top_k": f"{ROLLOUT}.top_k",
    "max_prompt": "data.max_prompt_length",
    "max_response": "data.max_response_length",
    "engine_length": f"{ROLLOUT}.max_model_len",
    "model": f"{MODEL}.path",
    "loss_type": f"{ACTOR}.policy_loss.loss_mode",
    "save": "trainer.save_freq",
    "total_steps": "trainer.total_training_steps",
}
METHODS = {
    "gae": "ppo",
    "grpo": "grpo",
    "grpo_vectorized": "grpo",
    "grpo_passk": "grpo",
    "gdpo": "grpo",
    "rloo": "rloo",
    "rloo_vectorized": "rloo",
    "reinforce_plus_plus": "reinforce",
    "reinforce_plus_plus_baseline": "reinforce_baseline",
    "remax": "remax",
    "opo": "opo",
    "gpg": "gpg",
    "optimal_token_baseline": "opo",
    "tir_optimal_token_baseline": "opo",
}
#: veRL's names for the estimators; one with a plus has k2's gradient whatever its value.
ESTIMATORS = {"kl": "k1", "k1": "k1", "abs": "abs", "mse": "k2", "k2": "k2", "low_var_kl": "k3", "k3": "k3"}
_OVERRIDE = re.compile(r"^([+~]{0,2})([A-Za-z_][\w./@-]*)=(.*)$", re.S)
_STARTS = re.compile(r"(^|\.|/)(verl(\.|/)|main_(ppo|dapo|grpo)\w*(\.py)?$)|^verl\.")


def recognises(source: Source) -> bool:
    """Whether a file is veRL's: a command that starts one of its trainers, or its tree."""
    if source.form == "shell":
        return _find_command(source.command) is not None
    return any(key.startswith(("actor_rollout_ref.", "algorithm.adv_estimator")) for key in source.explicit)


def _find_command(words: tuple[str, ...]) -> int | None:
    for at, word in enumerate(words):
        if _STARTS.search(word) and any(_OVERRIDE.match(one) for one in words[at + 1 :]):
            return at
    return None


def parse_settings(source: Source, method: str | None) -> TrainerSettings:
    explicit = dict(source.explicit)
    added: set[str] = set()
    if source.form == "shell":
        explicit = {}
        for word in source.command[(_find_command(source.command) or 0) + 1 :]:
            match = _OVERRIDE.match(word)
            if match is not None and match[1] != "~":
                explicit[match[2]] = parse_value(match[3])
                if match[1]:
                    added.add(match[2])
    table = trainer_tables()["verl"]
    defaults = table["methods"]["main_ppo"]
    estimator = find_setting(explicit, defaults, "algorithm.adv_estimator")
    word = estimator.value if estimator is not None else "gae"
    method_name = method or METHODS.get(word if isinstance(word, str) else "", str(word))
    if explicit.get("distillation.enabled") is True or "sft" in " ".join(source.command[:8]):
        method_name = method or "other"
    unknown = tuple(key for key in explicit if _is_unknown(key, key in added, defaults, table["open"]))
    common = _common_settings(explicit, defaults, method_name)
    if estimator is not None:
        common["estimator"] = estimator
    return TrainerSettings(
        str(source.path), "verl", table["version"], method_name, source.form, explicit, common,
        () if method_name == "other" else unknown, {},
    )  # fmt: skip


def _is_unknown(key: str, added: bool, defaults: Mapping[str, Any], open_groups: list[str]) -> bool:
    """A key veRL does not have. A group by itself, Hydra's own, what an open group holds and what is ours are known."""
    if key in defaults or "@" in key or "/" in key or key.startswith(("hydra.", "trainer.tiltmeter.", "defaults")):
        return False
    if key.endswith("_target_") or any(known_key.startswith(f"{key}.") for known_key in defaults):
        return False
    if any(key.startswith(f"{one}.") for one in open_groups):
        return False
    # With a plus anything may be added: it is a mistake only where a key that is read is meant.
    return not added or f"{key.rpartition('.')[0]}." in _groups(defaults)


def _groups(defaults: Mapping[str, Any]) -> set[str]:
    return {f"{key.rpartition('.')[0]}." for key in defaults}


def _common_settings(explicit: Mapping[str, Any], defaults: Mapping[str, Any], method: str) -> dict[str, Setting]:
    common = find_settings(explicit, defaults, NAMES)
    clip = find_setting(explicit, defaults, f"{ACTOR}.clip_ratio")
    for name in ("clip_low", "clip_high"):
        if clip is not None and clip.explicit and not (name in common and common[name].explicit):
            common[name] = clip
    if method == "ppo":
        common |= find_settings(explicit, defaults, {"critic_lr": "critic.optim.lr"})
    mini, group = common.get("mini_batch"), common.get("group")
    responses = product(mini, group)
    if mini is not None and responses is not None:
        common["responses"] = Setting(responses, mini.key, mini.explicit)
    rollout = product(common.get("prompts"), group)
    if rollout is not None:
        common["rollout"] = Setting(rollout, NAMES["prompts"], common["prompts"].explicit)
    per_node = find_settings(explicit, defaults, {"a": "trainer.n_gpus_per_node", "b": "trainer.nnodes"})
    devices = product(per_node.get("a"), per_node.get("b"))
    if devices is not None:
        common["devices"] = Setting(devices, "trainer.n_gpus_per_node", per_node["a"].explicit)
    return common | _kl_settings(explicit, defaults) | _warmup(explicit, defaults) | _models(explicit, defaults)


def _kl_settings(explicit: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Setting]:
    common = {}
    for switch, name, coefficient, estimator in (
        (f"{ACTOR}.use_kl_loss", "loss", f"{ACTOR}.kl_loss_coef", f"{ACTOR}.kl_loss_type"),
        ("algorithm.use_kl_in_reward", "reward", "algorithm.kl_ctrl.kl_coef", "algorithm.kl_penalty"),
    ):
        on, beta, kind = (find_setting(explicit, defaults, key) for key in (switch, coefficient, estimator))
        if on is None or beta is None or kind is None or on.value is UNREAD:
            continue
        common[f"beta_{name}"] = beta if on.value is True else Setting(0.0, on.key, on.explicit)
        if on.value is True and isinstance(kind.value, str):
            word = kind.value
            value = "k2" if word.endswith("+") else ESTIMATORS.get(word, word)
            common[f"kl_{name}_estimator"] = Setting(value, kind.key, kind.explicit)
    return common


def _warmup(explicit: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Setting]:
    parts = find_settings(
        explicit,
        defaults,
        {"warmup": f"{ACTOR}.optim.lr_warmup_steps_ratio", "steps": f"{ACTOR}.optim.lr_warmup_steps"},
    )
    steps = parts.get("steps")
    if steps is not None and isinstance(steps.value, (int, float)) and steps.value > 0:
        return {"warmup_steps": steps}
    return {"warmup": parts["warmup"]} if "warmup" in parts else {}


def _models(explicit: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Setting]:
    common = {}
    reward = find_setting(explicit, defaults, "reward.reward_model.model_path")
    if explicit.get("reward.reward_model.enable") is True and reward is not None:
        common["reward_model"] = reward
    for key in (f"{MODEL}.lora_rank", f"{MODEL}.lora.rank"):
        rank = explicit.get(key)
        if isinstance(rank, int) and rank > 0:
            common["lora"] = Setting(True, key, True)
    if explicit.get(f"{ROLLOUT}.do_sample") is False:
        common["temperature"] = Setting(0, f"{ROLLOUT}.do_sample", True)
    return common
