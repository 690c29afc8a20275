"""Writes starting configurations for TRL, as YAML for its command."""

from __future__ import annotations

from tiltmeter_workbench.plan.starter_choices import BETA, StarterChoices, number

#: TRL's names: of the files for accelerate that it ships, and of optimisers.
SHARDED = {"zero1": "zero1", "zero2": "zero2", "zero3": "zero3", "fsdp": "fsdp2"}
OPTIMISERS = {"adamw-8bit": "adamw_bnb_8bit", "sgd": "sgd"}
#: A setting, its value and the reason for it.
Line = tuple[str, object, str]


def trl(start: StarterChoices) -> str:
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
    gold = "" if online else ', gold="checks.py:score"'  # who makes no rollouts is judged by what it saves
    how = [
        f"# {start.method.upper()} with TRL 1.16: trl {start.method} --config {file}; tiltmeter lint {file}",
        "# The command makes its trainer itself. To watch the run, make it in a script of yours, with these settings:",
        f"#     trainer = ...Trainer(...); tiltmeter.attach(trainer{gold}); trainer.train()",
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


def _is_sharded(start: StarterChoices) -> bool:
    return start.gpus > 1 and start.sharding in SHARDED
