"""Writes a starting configuration for a trainer and method: commented, within all recommended ranges, monitored.

Each is accepted by that trainer's own parser and passes the linter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tiltmeter.errors import AttachError
from tiltmeter_workbench.plan.lint.rules_ranges import LEAST
from tiltmeter_workbench.plan.starter_choices import resolve_choices
from tiltmeter_workbench.plan.starter_shell import openrlhf, verl
from tiltmeter_workbench.plan.starter_trl import OPTIMISERS, SHARDED, trl

Trainer = Literal["trl", "verl", "openrlhf"]
METHODS: Mapping[str, tuple[str, ...]] = {
    "trl": ("grpo", "rloo", "dpo", "kto", "sft", "reward"),
    "verl": ("ppo", "grpo", "rloo"),
    "openrlhf": ("ppo", "grpo", "rloo", "reinforce", "dpo"),
}
DEFAULTS: Mapping[str, object] = {
    "model": "Qwen/Qwen2.5-1.5B-Instruct",
    "dataset": None,
    "reward": None,
    "reward_model": None,
    "output": "runs/first",
    "batch": 4,
    "length": 2048,
    "accumulate": 1,
    "precision": "bf16",
    "optimiser": None,
    "lora": None,
    "gpus": 8,
    "sharding": "none",
    "checkpointing": True,
    "vllm": "colocate",
    "vllm_share": 0.4,
    "vllm_sleep": False,
    "group": 8,
    "reference": True,
    "verifier": True,
}


def starter(trainer: Trainer, method: str, choices: Mapping[str, object]) -> str:
    """The text of a file. Raises `AttachError`, with what there is, for a method the trainer does not have.

    >>> print(starter("trl", "dpo", {"gpus": 2}).splitlines()[3])
    model_name_or_path: Qwen/Qwen2.5-1.5B-Instruct
    """
    if trainer not in METHODS:
        raise AttachError(f"there is no trainer {trainer!r} here: choose one of {', '.join(METHODS)}")
    if method not in METHODS[trainer]:
        gone = "; TRL 1.16 has no PPO: veRL and OpenRLHF have" if (trainer, method) == ("trl", "ppo") else ""
        raise AttachError(f"no start for {method} with {trainer}: choose one of {', '.join(METHODS[trainer])}{gone}")
    strange = [name for name in choices if name not in DEFAULTS]
    if strange:
        raise AttachError(f"no choice {', '.join(strange)}: there are {', '.join(DEFAULTS)}")
    start = resolve_choices(
        method, {**DEFAULTS, **{name: value for name, value in choices.items() if value is not None}}
    )
    return {"trl": trl, "verl": verl, "openrlhf": openrlhf}[trainer](start)


def unsupported_choices(trainer: Trainer, method: str, choices: Mapping[str, object]) -> list[str]:
    """Choices that the file written by `starter` cannot express, to be shown to the user.

    >>> choices = {"optimiser": "sgd", "sharding": "zero2", "gpus": 8, "reference": False}
    >>> unsupported_choices("openrlhf", "grpo", choices)
    ['the optimiser (sgd)', 'no reference: its KL penalty needs one']
    """
    settings = {**DEFAULTS, **{name: value for name, value in choices.items() if value is not None}}
    for_trl = trainer == "trl"
    sharding, optimiser = str(settings["sharding"]), str(settings["optimiser"] or "adamw")
    supported = {"trl": ("none", *SHARDED), "verl": ("fsdp",), "openrlhf": ("zero1", "zero2", "zero3")}[trainer]
    reasons = [
        (sharding not in supported and settings["gpus"] != 1, f"the sharding ({sharding})"),
        (optimiser not in ("adamw", *(OPTIMISERS if for_trl else ())), f"the optimiser ({optimiser})"),
        (settings["precision"] not in (("bf16", "mixed", "fp32") if for_trl else ("bf16",)), "the precision"),
        (
            not for_trl and method in LEAST and settings["vllm"] != "colocate",
            "the place of vLLM: it is beside the trainer",
        ),
        (method in LEAST and settings["reference"] is False, "no reference: its KL penalty needs one"),
    ]
    return [what for is_missing, what in reasons if is_missing]
