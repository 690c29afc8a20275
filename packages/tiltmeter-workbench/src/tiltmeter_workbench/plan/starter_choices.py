"""What every starting configuration is made of: the choices, and the sizes that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter_workbench.plan.lint.rules_ranges import LEAST, LORA

RATES = {"dpo": 5e-7, "kto": 5e-7, "sft": 2e-5, "reward": 1e-5}
RL_RATE = 2e-6
BETA = 0.02


@dataclass(frozen=True)
class StarterChoices:
    """Choices with the sizes that follow from them."""

    method: str
    model: str
    dataset: str
    reward: str
    reward_model: str | None
    output: str
    batch: int
    accumulate: int
    gpus: int
    group: int
    prompt: int
    response: int
    rate: float
    lora: int | None
    checkpointing: bool
    precision: str
    share: float
    sleep: bool
    vllm: str
    sharding: str
    optimiser: str

    @property
    def nodes(self) -> int:
        return self.gpus // 8 if self.gpus % 8 == 0 else 1

    @property
    def prompts(self) -> int:
        """Prompts per rollout where a trainer counts them: a rollout of two updates, shared evenly by the devices."""
        least = math.lcm(self.gpus, 2)
        return max(least, math.ceil(128 / least) * least)


def resolve_choices(method: str, choices: Mapping[str, object]) -> StarterChoices:
    """The sizes that follow from a value for every choice. Raises `AttachError` for one that cannot be."""
    whole = {name: _positive_int(name, choices[name]) for name in ("batch", "length", "accumulate", "gpus", "group")}
    lora = None if not choices["lora"] else (16 if choices["lora"] is True else _positive_int("lora", choices["lora"]))
    group = whole["group"]
    if method in LEAST and method != "ppo" and group < 2:
        raise AttachError("a group of one teaches nothing: give at least 2 answers to a prompt")
    least = LEAST.get(method, 64 if method in ("dpo", "kto") else 1)
    accumulate = max(whole["accumulate"], math.ceil(least / (whole["batch"] * whole["gpus"])))
    if method in LEAST:
        step = group // math.gcd(group, whole["batch"] * whole["gpus"])
        accumulate = math.ceil(accumulate / step) * step  # so that a batch is whole groups
    share = choices["vllm_share"]
    if isinstance(share, bool) or not isinstance(share, (int, float)) or (method in LEAST and not 0 < share <= 1):
        raise AttachError(f"vLLM's share of a GPU is above 0 and at most 1, not {log_line(str(share), 40)}")
    reward_model = choices["reward_model"]
    return StarterChoices(
        method=method,
        model=_safe_name(choices["model"]),
        dataset=_safe_name(
            choices["dataset"] or ("trl-lib/ultrafeedback_binarized" if method in RATES else "your/prompts")
        ),
        reward=_safe_name(choices["reward"] or "rewards.right"),
        reward_model=None if not reward_model else _safe_name(reward_model),
        output=_safe_name(choices["output"]),
        batch=whole["batch"],
        accumulate=accumulate,
        gpus=whole["gpus"],
        group=group,
        prompt=max(1, whole["length"] // 4),
        response=max(1, whole["length"] - whole["length"] // 4),
        rate=RATES.get(method, RL_RATE) * (LORA if lora else 1),
        lora=lora,
        checkpointing=choices["checkpointing"] is not False and choices["checkpointing"] != "none",
        precision=str(choices["precision"]),
        share=float(share),
        sleep=choices["vllm_sleep"] is True,
        vllm=str(choices["vllm"] or "none"),
        sharding=str(choices["sharding"]),
        optimiser=str(choices["optimiser"] or "adamw"),
    )


def _positive_int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value < 1:
        raise AttachError(f"{name} must be a whole number of at least 1, not {log_line(str(value), 40)}")
    return int(value)


def _safe_name(value: object) -> str:
    """A name that is safe in a file people run: one word without shell or YAML syntax."""
    text = log_line(str(value), 300)
    if not text or any(char in text for char in "'\"`$\\;&|<>(){}\n") or text != text.strip():
        raise AttachError(f"{text!r} is no name that can stand in a configuration: letters, digits, . _ / - only")
    return text


def number(value: object) -> str:
    """A number as YAML, Hydra and a shell all read it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.1e}" if isinstance(value, float) and 0 < value < 1e-3 else f"{value}"
