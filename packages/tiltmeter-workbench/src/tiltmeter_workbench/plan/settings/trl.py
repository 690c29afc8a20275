"""Reads TRL configurations: a file for `trl --config`, a Python script or a shell script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.plan.settings.files import METHODS, parse_value
from tiltmeter_workbench.plan.settings.shell import options
from tiltmeter_workbench.plan.settings.trainer_settings import (
    Setting,
    Source,
    TrainerSettings,
    find_settings,
    product,
    trainer_tables,
)

#: Tiltmeter's names and TRL's keys.
NAMES = {
    "lr": "learning_rate",
    "schedule": "lr_scheduler_type",
    "group": "num_generations",
    "epochs": "num_iterations",
    "clip_low": "epsilon",
    "clip_high": "epsilon_high",
    "entropy": "entropy_coef",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "max_response": "max_completion_length",
    "max_total": "max_length",
    "model": "model_name_or_path",
    "reward_model": "reward_model_name_or_path",
    "loss_type": "loss_type",
    "scale_rewards": "scale_rewards",
    "lora": "use_peft",
    "bf16": "bf16",
    "fp16": "fp16",
    "save": "save_strategy",
}
#: Keys that earlier versions of TRL or transformers had, and what replaces them.
GONE = {
    "max_prompt_length": "prompts are no longer cut: filter the data set",
    "warmup_ratio": "`warmup_steps` takes a share below 1 as well",
    "torch_dtype": "it is `dtype` now",
    "evaluation_strategy": "it is `eval_strategy` now",
    "max_seq_length": "it is `max_length` now",
    "vllm_device": "vLLM runs as a server or, with `vllm_mode: colocate`, beside the trainer",
    "kl_coef": "it is `beta` now",
    "num_ppo_epochs": "it is `num_iterations` now",
    "rloo_k": "it is `num_generations` now",
    "use_liger_loss": "it is `use_liger_kernel` now",
    "overwrite_output_dir": "give another `output_dir`",
    "logging_dir": "set the TENSORBOARD_LOGGING_DIR variable",
}
_SCRIPT = re.compile(rf"(?:^|[/_.\-])({'|'.join((*METHODS, 'reward_modeling'))})(?:$|[_.\-])")
_RENAMED = {"gspo": "grpo", "reward_modeling": "reward"}


def recognises(source: Source) -> bool:
    """Whether a file is TRL's: one of its classes, its command or a script named after a method, or its keys."""
    if source.form == "python":
        return bool(source.command)
    if source.form == "shell":
        return _find_settings_start(source.command) is not None
    return _count_own_keys(source.explicit) >= 2


def _count_own_keys(keys: Iterable[str]) -> int:
    """How many of the keys are TRL's."""
    table = trainer_tables()["trl"]
    fields = {*table["shared"], *(key for own in table["methods"].values() for key in own), *GONE}
    return sum(key in fields for key in keys)


def _find_settings_start(words: tuple[str, ...]) -> tuple[int, str] | None:
    """Where TRL's settings begin among the words of a command, and the method that the command names."""
    for at, word in enumerate(words):
        if word == "trl" and at + 1 < len(words) and words[at + 1] in METHODS:
            return at + 2, words[at + 1]
        match = _SCRIPT.search(word) if word.endswith(".py") or "trl." in word else None
        after = words[at + 1 : at + 2]
        if not word.startswith("--") and after and after[0].startswith("--"):
            if match is not None:
                return at + 1, match[1]
            if word.endswith(".py") and _count_own_keys(options(words[at + 1 :])) >= 3:
                return at + 1, ""
    return None


def parse_settings(source: Source, method: str | None) -> TrainerSettings:
    explicit = dict(source.explicit)
    names: tuple[str, ...] = tuple(
        word.removesuffix("Config").removesuffix("Trainer").lower() for word in source.command
    )
    if source.form == "shell":
        at, name = _find_settings_start(source.command) or (0, "")
        names = (name,) if name else ()
        launcher = options(source.command[:at])
        explicit = {key: _option_value(words) for key, words in options(source.command[at:]).items()}
        explicit |= {key: _option_value(launcher[key][:1]) for key in ("num_processes",) if launcher.get(key)}
        explicit = {
            _strip_negation(key)[0]: value if _strip_negation(key)[1] else False for key, value in explicit.items()
        }
    table = trainer_tables()["trl"]
    method_name = method or _detect_method(source, explicit, names)
    method_name = _RENAMED.get(method_name, method_name)
    defaults = {**table["shared"], **table["methods"].get(method_name, {})}
    ppo = method_name == "ppo"  # which TRL no longer has: its keys cannot be judged
    unknown = (
        () if ppo or method_name not in table["methods"] else tuple(key for key in explicit if key not in defaults)
    )
    gone = {key: GONE[key] for key in unknown if key in GONE}
    return TrainerSettings(
        str(source.path), "trl", table["version"], method_name, source.form, explicit,
        _common_settings(explicit, defaults, method_name),
        tuple(key for key in unknown if key not in gone and key not in ("config", "accelerate_config")), gone,
    )  # fmt: skip


def _strip_negation(key: str) -> tuple[str, bool]:
    """`--no_gradient_checkpointing` is how a flag that is on by default is turned off."""
    bare = key.replace("-", "_")
    return (bare.removeprefix("no_"), False) if bare.startswith("no_") else (bare, True)


def _option_value(words: list[str]) -> Any:
    if not words:
        return True
    return parse_value(words[0].rstrip(",")) if len(words) == 1 else [parse_value(word.rstrip(",")) for word in words]


def _detect_method(source: Source, explicit: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The method: what a command or class names, what the file's name or comments say, else whose own keys it has."""
    methods: dict[str, dict[str, Any]] = trainer_tables()["trl"]["methods"]
    for name in (*names, *source.hints[:1]):
        if name in methods or name in _RENAMED or name == "ppo":
            return name
    own = {name: sum(key in keys for key in explicit) for name, keys in methods.items()}
    if "reward_funcs" in explicit or "reward_model_name_or_path" in explicit:
        own = {name: count for name, count in own.items() if name in ("grpo", "rloo")}
    best = max(own.values())
    first = [name for name, count in own.items() if count == best]
    if best == 0 or len(first) > 3:
        raise AttachError(f"{source.path} does not say which method of TRL it is for: add --method {'|'.join(methods)}")
    return first[0]


def _common_settings(explicit: Mapping[str, Any], defaults: Mapping[str, Any], method: str) -> dict[str, Setting]:
    common = find_settings(explicit, defaults, NAMES)
    parts = find_settings(
        explicit,
        defaults,
        {
            "device": "per_device_train_batch_size",
            "steps": "gradient_accumulation_steps",
            "devices": "num_processes",
            "generation": "generation_batch_size",
            "reuse": "steps_per_generation",
            "beta": "beta",
            "warmup": "warmup_steps",
            "max_steps": "max_steps",
        },
    )
    one = Setting(1, "num_processes", False)
    responses = product(parts.get("device"), parts.get("steps"), parts.get("devices", one))
    if responses is not None:
        common["responses"] = Setting(
            responses, "per_device_train_batch_size", "device" in parts and parts["device"].explicit
        )
    if "devices" in parts:
        common["devices"] = parts["devices"]
    common |= _kl_settings(parts.get("beta"), method, explicit.get("use_bias_correction_kl", True) is True)
    warmup = parts.get("warmup")
    if warmup is not None and isinstance(warmup.value, (int, float)):
        if warmup.value < 1:
            common["warmup"] = warmup
        else:
            common["warmup_steps"] = warmup
    if "max_steps" in parts and parts["max_steps"].explicit:
        common["total_steps"] = parts["max_steps"]
    if explicit.get("use_peft") not in (None, False):  # alone it decides; one that is not read counts as on
        common["lora"] = Setting(True, "use_peft", True)
    return common


def _kl_settings(beta: Setting | None, method: str, corrected: bool) -> dict[str, Setting]:
    """The KL penalty in TRL: GRPO has it in the loss as k3, RLOO in the reward as k1 summed over the answer.

    Multiplied by the ratio to the sampling policy, as it is unless that is turned off, k3 has the right gradient.
    """
    if beta is None:
        return {}
    if method == "grpo":
        estimator = Setting("k3 corrected" if corrected else "k3", "use_bias_correction_kl", not corrected)
        return {"beta_loss": beta, "kl_loss_estimator": estimator}
    if method == "rloo":
        return {"beta_reward": beta, "kl_reward_estimator": Setting("k1", beta.key, False)}
    return {"beta": beta}
