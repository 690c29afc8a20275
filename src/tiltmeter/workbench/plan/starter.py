"""Writes a starting configuration for a trainer and method: commented, within all recommended ranges, monitored.

Each is accepted by that trainer's own parser and passes the linter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.workbench.plan.lint.rules_ranges import LEAST, LORA

Trainer = Literal["trl", "verl", "openrlhf"]
METHODS: Mapping[str, tuple[str, ...]] = {
    "trl": ("grpo", "rloo", "dpo", "kto", "sft", "reward"),
    "verl": ("ppo", "grpo", "rloo"),
    "openrlhf": ("ppo", "grpo", "rloo", "reinforce", "dpo"),
}
RATES = {"dpo": 5e-7, "kto": 5e-7, "sft": 2e-5, "reward": 1e-5}
RL_RATE = 2e-6
BETA = 0.02
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
#: TRL's names: of the files for accelerate that it ships, and of optimisers.
SHARDED = {"zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "fsdp2"}
OPTIMISERS = {"adamw-8bit": "adamw_bnb_8bit", "sgd": "sgd"}
#: A setting, its value and the reason for it.
Line = tuple[str, object, str]


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
    start = _resolve_choices(
        method, {**DEFAULTS, **{name: value for name, value in choices.items() if value is not None}}
    )
    from tiltmeter.workbench.plan.starter_shell import openrlhf, verl

    return {"trl": _trl, "verl": verl, "openrlhf": openrlhf}[trainer](start)


def unsupported_choices(trainer: Trainer, method: str, choices: Mapping[str, object]) -> list[str]:
    """Choices that the file written by `starter` cannot express, to be shown to the user.

    >>> choices = {"optimiser": "sgd", "sharding": "zero2", "gpus": 8, "reference": False}
    >>> unsupported_choices("openrlhf", "grpo", choices)
    ['the optimiser (sgd)', 'no reference: its KL penalty needs one']
    """
    settings = {**DEFAULTS, **{name: value for name, value in choices.items() if value is not None}}
    trl = trainer == "trl"
    sharding, optimiser = str(settings["sharding"]), str(settings["optimiser"] or "adamw")
    supported = {"trl": ("none", *SHARDED), "verl": ("fsdp",), "openrlhf": ("zero1", "zero2", "zero3")}[trainer]
    reasons = [
        (sharding not in supported and settings["gpus"] != 1, f"the sharding ({sharding})"),
        (optimiser not in ("adamw", *(OPTIMISERS if trl else ())), f"the optimiser ({optimiser})"),
        (settings["precision"] not in (("bf16", "mixed", "fp32") if trl else ("bf16",)), "the precision"),
        (not trl and method in LEAST and settings["vllm"] != "colocate", "the place of vLLM: it is beside the trainer"),
        (method in LEAST and settings["reference"] is False, "no reference: its KL penalty needs one"),
    ]
    return [what for is_missing, what in reasons if is_missing]


def _is_sharded(start: StarterChoices) -> bool:
    return start.gpus > 1 and start.sharding in SHARDED


def _resolve_choices(method: str, choices: Mapping[str, object]) -> StarterChoices:
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


def _trl(start: StarterChoices) -> str:
    """YAML for `trl METHOD --config FILE`."""
    online = start.method in ("grpo", "rloo")
    lines: list[Line] = [
        ("model_name_or_path", start.model, ""),
        ("dataset_name", start.dataset, "a column named prompt" if online else ""),
        ("output_dir", start.output, ""),
        ("num_processes", start.gpus, "devices; read by accelerate"),
        *([("accelerate_config", SHARDED[start.sharding], "TRL ships it")] if _is_sharded(start) else []),
        ("learning_rate", start.rate, "with LoRA ten times that for all weights" if start.lora else ""),
        ("lr_scheduler_type", "cosine", ""),
        ("warmup_steps", 0.05, "below 1: a share of the run"),
        ("per_device_train_batch_size", start.batch, ""),
        ("gradient_accumulation_steps", start.accumulate, _per_update(start)),
        ("gradient_checkpointing", start.checkpointing, ""),
        # TRL loads weights in float32 unless told otherwise, and trains those by autocast where bf16 is true.
        ("dtype", "bfloat16" if start.precision == "bf16" else "float32", "of the weights"),
        ("bf16", start.precision != "fp32", ""),
    ]
    if start.optimiser in OPTIMISERS:
        lines += [("optim", OPTIMISERS[start.optimiser], "")]
    if online:
        lines += _trl_online(start)
    if start.method in ("dpo", "kto"):
        lines += [("beta", 0.1, "the KL penalty"), ("max_length", start.prompt + start.response, "prompt and answer")]
    if start.method in ("sft", "reward"):
        lines += [("max_length", start.prompt + start.response, "tokens of a text")]
    if start.lora:
        task = [("lora_task_type", "SEQ_CLS", "")] if start.method == "reward" else []
        lines += [("use_peft", True, ""), ("lora_r", start.lora, ""), ("lora_alpha", 2 * start.lora, ""), *task]
    lines += [("save_steps", 50, "a run that goes wrong goes back to one of these"), ("logging_steps", 1, "")]
    file = f"{start.method}.yaml"
    how = [
        f"# {start.method.upper()} with TRL 1.16: trl {start.method} --config {file}; tiltmeter plan --lint {file}",
        "# The command makes its trainer itself. To watch the run, make it in a script of yours, with these settings:",
        "#     trainer = ...Trainer(...); tiltmeter.attach(trainer); trainer.train()",
    ]
    return "\n".join([*how, *(_yaml(line) for line in lines)]) + "\n"


def _trl_online(start: StarterChoices) -> list[Line]:
    reward: Line = ("reward_model_name_or_path", start.reward_model, "")
    if start.reward_model is None:
        reward = ("reward_funcs", f"[{start.reward}]", "a function of yours, by its import path")
    lines: list[Line] = [
        reward,
        ("num_generations", start.group, "answers to a prompt: the group"),
        ("max_completion_length", start.response, "tokens of an answer"),
        ("temperature", 1.0, ""),
    ]
    if start.method == "grpo":
        lines += [
            ("beta", BETA, "the KL penalty, in the loss; 0 cannot be raised while it trains"),
            ("entropy_coef", 0.001, "hardly acts, and can be raised; 0 cannot"),
            ("mask_truncated_completions", True, "answers that were cut off are not trained on"),
        ]
    else:
        lines += [("beta", BETA, "the KL penalty, in the reward and summed over an answer: not GRPO's number")]
    if start.vllm == "server":
        serve = f"first, on other GPUs: trl vllm-serve --model {start.model}"
        lines += [("use_vllm", True, "needs trl[vllm]"), ("vllm_mode", "server", serve)]
    elif start.vllm != "none":
        lines += [
            ("use_vllm", True, "needs trl[vllm]"),
            ("vllm_mode", "colocate", ""),
            ("vllm_gpu_memory_utilization", start.share, ""),
            ("vllm_enable_sleep_mode", start.sleep, ""),
        ]
    return [*lines, ("log_completions", True, "")]


def _per_update(start: StarterChoices) -> str:
    total = start.batch * start.accumulate * start.gpus
    if start.method in ("grpo", "rloo"):
        return f"{total} answers per update: {total // start.group} groups"
    return f"{total} {'pairs' if start.method in ('dpo', 'reward') else 'texts'} per update"


def _yaml(line: Line) -> str:
    key, value, why = line
    return f"{key}: {number(value)}" + (f"  # {why}" if why else "")
