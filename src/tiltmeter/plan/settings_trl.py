"""TRL's settings: the fields of its configurations, from a file for its command line, a script or a shell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.plan.settings import Given, Settings, Source, gathered, known, product
from tiltmeter.plan.settings_files import METHODS, plain
from tiltmeter.plan.settings_shell import options

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
#: Keys that TRL or transformers had, and what became of them.
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


def recognised(source: Source) -> bool:
    """Whether a file is TRL's: one of its classes, its command or a script named after a method, or its keys."""
    if source.form == "python":
        return bool(source.command)
    if source.form == "shell":
        return _place(source.command) is not None
    return _ours(source.said) >= 2


def _ours(keys: Iterable[str]) -> int:
    """How many of the keys are TRL's."""
    table = known()["trl"]
    fields = {*table["shared"], *(key for own in table["methods"].values() for key in own), *GONE}
    return sum(key in fields for key in keys)


def _place(words: tuple[str, ...]) -> tuple[int, str] | None:
    """Where TRL's settings begin among the words of a command, and the method that the command names."""
    for at, word in enumerate(words):
        if word == "trl" and at + 1 < len(words) and words[at + 1] in METHODS:
            return at + 2, words[at + 1]
        named = _SCRIPT.search(word) if word.endswith(".py") or "trl." in word else None
        after = words[at + 1 : at + 2]
        if not word.startswith("--") and after and after[0].startswith("--"):
            if named is not None:
                return at + 1, named[1]
            if word.endswith(".py") and _ours(options(words[at + 1 :])) >= 3:
                return at + 1, ""
    return None


def settings(source: Source, method: str | None) -> Settings:
    said = dict(source.said)
    named: tuple[str, ...] = tuple(
        word.removesuffix("Config").removesuffix("Trainer").lower() for word in source.command
    )
    if source.form == "shell":
        at, name = _place(source.command) or (0, "")
        named = (name,) if name else ()
        launcher = options(source.command[:at])
        said = {key: _value(words) for key, words in options(source.command[at:]).items()}
        said |= {key: _value(launcher[key][:1]) for key in ("num_processes",) if launcher.get(key)}
        said = {_positive(key)[0]: value if _positive(key)[1] else False for key, value in said.items()}
    table = known()["trl"]
    found = method or _method(source, said, named)
    found = _RENAMED.get(found, found)
    defaults = {**table["shared"], **table["methods"].get(found, {})}
    ppo = found == "ppo"  # which TRL no longer has: its keys cannot be judged
    unknown = () if ppo or found not in table["methods"] else tuple(key for key in said if key not in defaults)
    gone = {key: GONE[key] for key in unknown if key in GONE}
    return Settings(
        str(source.path), "trl", table["version"], found, source.form, said, _plain(said, defaults, found),
        tuple(key for key in unknown if key not in gone and key not in ("config", "accelerate_config")), gone,
    )  # fmt: skip


def _positive(key: str) -> tuple[str, bool]:
    """`--no_gradient_checkpointing` is how a flag that is on by default is turned off."""
    bare = key.replace("-", "_")
    return (bare.removeprefix("no_"), False) if bare.startswith("no_") else (bare, True)


def _value(words: list[str]) -> Any:
    if not words:
        return True
    return plain(words[0].rstrip(",")) if len(words) == 1 else [plain(word.rstrip(",")) for word in words]


def _method(source: Source, said: Mapping[str, Any], named: tuple[str, ...]) -> str:
    """The method: what a command or class names, what the file's name or comments say, else whose own keys it has."""
    methods: dict[str, dict[str, Any]] = known()["trl"]["methods"]
    for name in (*named, *source.hints[:1]):
        if name in methods or name in _RENAMED or name == "ppo":
            return name
    own = {name: sum(key in keys for key in said) for name, keys in methods.items()}
    if "reward_funcs" in said or "reward_model_name_or_path" in said:
        own = {name: count for name, count in own.items() if name in ("grpo", "rloo")}
    best = max(own.values())
    first = [name for name, count in own.items() if count == best]
    if best == 0 or len(first) > 3:
        raise AttachError(f"{source.path} does not say which method of TRL it is for: add --method {'|'.join(methods)}")
    return first[0]


def _plain(said: Mapping[str, Any], defaults: Mapping[str, Any], method: str) -> dict[str, Given]:
    found = gathered(said, defaults, NAMES)
    parts = gathered(
        said,
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
    one = Given(1, "num_processes", False)
    responses = product(parts.get("device"), parts.get("steps"), parts.get("devices", one))
    if responses is not None:
        found["responses"] = Given(responses, "per_device_train_batch_size", "device" in parts and parts["device"].said)
    if "devices" in parts:
        found["devices"] = parts["devices"]
    found |= _leash(parts.get("beta"), method, said.get("use_bias_correction_kl", True) is True)
    warmup = parts.get("warmup")
    if warmup is not None and isinstance(warmup.value, (int, float)):
        if warmup.value < 1:
            found["warmup"] = warmup
        else:
            found["warmup_steps"] = warmup
    if "max_steps" in parts and parts["max_steps"].said:
        found["total_steps"] = parts["max_steps"]
    if said.get("use_peft") not in (None, False):  # alone it decides; one that is not read counts as on
        found["lora"] = Given(True, "use_peft", True)
    return found


def _leash(beta: Given | None, method: str, corrected: bool) -> dict[str, Given]:
    """Where TRL puts the KL: GRPO in the loss as k3, RLOO in the reward as k1 summed over the answer.

    Multiplied by the ratio to the sampling policy, as it is unless that is turned off, k3 has the right gradient.
    """
    if beta is None:
        return {}
    if method == "grpo":
        estimator = Given("k3 corrected" if corrected else "k3", "use_bias_correction_kl", not corrected)
        return {"beta_loss": beta, "kl_loss_estimator": estimator}
    if method == "rloo":
        return {"beta_reward": beta, "kl_reward_estimator": Given("k1", beta.key, False)}
    return {"beta": beta}
