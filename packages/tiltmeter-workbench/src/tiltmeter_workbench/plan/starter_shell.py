"""Writes starting configurations as shell scripts, for veRL (Hydra overrides) and OpenRLHF (options)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from tiltmeter_workbench.plan.starter_choices import BETA, StarterChoices, number

#: A setting and its value; None is a flag.
Line = tuple[str, object]
ACTOR, ROLLOUT, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.model"
HEAD = "#!/usr/bin/env bash"
STOP = "set -euo pipefail"


def verl(start: StarterChoices) -> str:
    """A script that starts `verl.trainer.main_ppo` with Hydra's overrides."""
    lines = [*_verl_data(start), *_verl_actor(start), *_verl_kl(start), *_verl_reward(start)]
    lines += [
        ("trainer.n_gpus_per_node", start.gpus // start.nodes),
        ("trainer.nnodes", start.nodes),
        ("trainer.default_local_dir", start.output),
        ("trainer.logger", '["console","file"]'),
        ("trainer.save_freq", 50),
        ("trainer.test_freq", 20),
        ("trainer.total_epochs", 1),
    ]
    kl_place = "in the loss, with k2's gradient (k3+)" if start.method == "grpo" else "in the reward, as k1"
    how = [
        HEAD,
        f"# {start.method.upper()} with veRL 0.9: bash run.sh; tiltmeter lint run.sh",
        f"# The KL penalty, {BETA}, is {kl_place}. "
        "An entropy bonus of 0 cannot be raised later: it is read at the start.",
        "# TILTMETER_VERL=1 watches the run: it is in trainer.default_local_dir/tiltmeter.",
        STOP,
        "",
        "export TILTMETER_VERL=1",
    ]
    overrides = [shlex.quote(f"{key}={number(value)}") for key, value in lines]
    return "\n".join(how) + "\n" + _join_lines(["python3 -m verl.trainer.main_ppo", *overrides, '"$@"'])


def _verl_data(start: StarterChoices) -> list[Line]:
    return [
        ("algorithm.adv_estimator", "gae" if start.method == "ppo" else start.method),
        ("data.train_files", start.dataset if start.dataset.endswith(".parquet") else "data/train.parquet"),
        ("data.val_files", "data/test.parquet"),
        ("data.train_batch_size", start.prompts),
        ("data.max_prompt_length", start.prompt),
        ("data.max_response_length", start.response),
        ("data.filter_overlong_prompts", "True"),
    ]


def _verl_actor(start: StarterChoices) -> list[Line]:
    lines: list[Line] = [
        (f"{MODEL}.path", start.model),
        (f"{MODEL}.enable_gradient_checkpointing", str(start.checkpointing)),
        (f"{ACTOR}.optim.lr", start.rate),
        (f"{ACTOR}.optim.lr_scheduler_type", "cosine"),
        (f"{ACTOR}.optim.lr_warmup_steps_ratio", 0.05),
        (f"{ACTOR}.ppo_mini_batch_size", start.prompts if start.method == "ppo" else start.prompts // 2),
        (f"{ACTOR}.use_dynamic_bsz", "True"),
        (f"{ACTOR}.ppo_max_token_len_per_gpu", start.batch * (start.prompt + start.response)),
        (f"{ACTOR}.entropy_coeff", 0.001),
        (f"{ROLLOUT}.name", "vllm"),
        (f"{ROLLOUT}.n", 1 if start.method == "ppo" else start.group),
        (f"{ROLLOUT}.temperature", 1.0),
        (f"{ROLLOUT}.gpu_memory_utilization", start.share),
        (f"{ROLLOUT}.tensor_model_parallel_size", 1),
    ]
    if start.lora:
        lines += [(f"{MODEL}.lora_rank", start.lora), (f"{MODEL}.lora_alpha", 2 * start.lora)]
        lines += [(f"{ROLLOUT}.load_format", "safetensors")]  # adapters need the weights they stand on
    return lines


def _verl_kl(start: StarterChoices) -> list[Line]:
    if start.method == "grpo":
        loss = {"use_kl_loss": "True", "kl_loss_coef": BETA, "kl_loss_type": "k3+"}
        return [(f"{ACTOR}.{key}", value) for key, value in loss.items()]
    lines: list[Line] = [("algorithm.use_kl_in_reward", "True"), ("algorithm.kl_ctrl.kl_coef", BETA)]
    if start.method == "ppo":
        lines += [
            ("critic.model.path", start.model),
            ("critic.optim.lr", 3 * start.rate),
            ("critic.use_dynamic_bsz", "True"),
            ("critic.ppo_max_token_len_per_gpu", start.batch * (start.prompt + start.response)),
        ]
    return lines


def _verl_reward(start: StarterChoices) -> list[Line]:
    if start.reward_model:
        model = {"enable": "True", "model_path": start.reward_model, "rollout.name": "vllm"}
        return [(f"reward.reward_model.{key}", value) for key, value in model.items()]
    function = {"path": _file(start), "name": start.reward.removesuffix(".py").rpartition(".")[2]}
    return [(f"reward.custom_reward_function.{key}", value) for key, value in function.items()]


def openrlhf(start: StarterChoices) -> str:
    """A script for OpenRLHF's commands; methods that sample are started by a small file that attaches Tiltmeter."""
    common: list[Line] = [
        ("ckpt.output_dir", start.output),
        ("ckpt.save_steps", 50),
        ("data.max_len", start.prompt + start.response),
        ("data.apply_chat_template", None),
        ("ds.zero_stage", {"zero1": 1, "zero2": 2}.get(start.sharding, 3)),
        ("ds.param_dtype", "bf16"),
        ("train.micro_batch_size", start.batch),
    ]
    if start.lora:
        common += [("ds.lora.rank", start.lora), ("ds.lora.alpha", 2 * start.lora)]
    title = f"# {start.method.upper()} with OpenRLHF 0.11: bash run.sh; tiltmeter lint run.sh"
    return _pairs(start, title, common) if start.method == "dpo" else _online(start, title, common)


def _pairs(start: StarterChoices, title: str, common: list[Line]) -> str:
    lines: list[Line] = [
        ("model.model_name_or_path", start.model),
        ("data.dataset", start.dataset),
        ("train.batch_size", start.batch * start.accumulate * start.gpus),
        ("adam.lr", start.rate),
        ("lr_warmup_ratio", 0.05),
        ("model.beta", 0.1),
    ]
    if start.checkpointing:
        lines += [("model.gradient_checkpointing_enable", None)]
    why = (
        "# DPO samples nothing, so there is nothing to watch: look at the pairs first, with tiltmeter data preferences."
    )
    begin = f"deepspeed --num_gpus {start.gpus} --module openrlhf.cli.train_dpo"
    return "\n".join([HEAD, title, why, STOP, ""]) + "\n" + _join_lines([begin, *_options([*lines, *common])])


def _online(start: StarterChoices, title: str, common: list[Line]) -> str:
    in_loss = start.method in ("grpo", "reinforce")
    where = "in the loss, as k2" if in_loss else "in the reward, as k1"
    place = f"{start.output}/tiltmeter"
    capture_note = f"# In {_file(start)}: reward_func = tiltmeter.capture(reward_func, '{place}'), as in train.py."
    if start.reward_model:
        capture_note = (
            "# A reward model cannot be captured: with a function (--reward.remote_url) rollouts are recorded."
        )
    how = [
        *(HEAD, title, f"# The KL penalty, {BETA}, is {where}.", capture_note, STOP, ""),
        *("cat > train.py <<'EOF'", "import runpy", "", "from tiltmeter.adapters.openrlhf import install", ""),
        f'install("{place}")  # a path that every machine sees, the same in the reward file',
        'runpy.run_module("openrlhf.cli.train_ppo_ray", run_name="__main__")',
        "EOF",
    ]
    lines = [*_openrlhf_parts(start), *_openrlhf_learning(start, in_loss), *_openrlhf_rollout(start), *common]
    return "\n".join(how) + "\n" + _join_lines(["python3 train.py", *_options(lines)])


def _openrlhf_parts(start: StarterChoices) -> list[Line]:
    parts = ["actor", "ref"]
    parts += ["critic"] if start.method == "ppo" else []
    parts += ["reward"] if start.reward_model else []
    return [
        *((f"{part}.num_nodes", start.nodes) for part in parts),
        *((f"{part}.num_gpus_per_node", start.gpus // start.nodes) for part in parts),
        ("train.colocate_all", None),
        ("vllm.num_engines", start.gpus),
        ("vllm.gpu_memory_utilization", start.share),
        ("vllm.enable_sleep", None),
        ("ds.enable_sleep", None),
    ]


def _openrlhf_learning(start: StarterChoices, in_loss: bool) -> list[Line]:
    estimators = {"ppo": "gae", "grpo": "group_norm", "reinforce": "reinforce_baseline"}
    lines: list[Line] = [
        ("actor.model_name_or_path", start.model),
        ("algo.advantage.estimator", estimators.get(start.method, start.method)),
        ("algo.kl.init_coef", BETA),
        ("algo.kl.estimator", "k2" if in_loss else "k1"),
        ("actor.adam.lr", start.rate),
        ("actor.lr_warmup_ratio", 0.05),
        ("actor.entropy_coef", 0.001),
    ]
    lines += [("algo.kl.use_loss", None)] if in_loss else []
    lines += [("actor.gradient_checkpointing_enable", None)] if start.checkpointing else []
    if start.method == "ppo":
        lines += [("critic.adam.lr", 3 * start.rate), ("critic.lr_warmup_ratio", 0.05)]
    return lines


def _openrlhf_rollout(start: StarterChoices) -> list[Line]:
    group = 1 if start.method == "ppo" else start.group
    reward: Line = ("reward.remote_url", _file(start))
    if start.reward_model:
        reward = ("reward.model_name_or_path", start.reward_model)
    return [
        ("rollout.batch_size", start.prompts),
        ("rollout.n_samples_per_prompt", group),
        ("rollout.max_new_tokens", start.response),
        ("rollout.temperature", 1.0),
        ("train.batch_size", start.prompts * group // (1 if start.method == "ppo" else 2)),
        ("data.prompt_dataset", start.dataset),
        ("data.input_key", "prompt"),
        ("data.label_key", "label"),
        reward,
    ]


def _file(start: StarterChoices) -> str:
    """The file of a reward that is named by its import path."""
    return start.reward if start.reward.endswith(".py") else f"{start.reward.rpartition('.')[0] or start.reward}.py"


def _options(lines: Sequence[Line]) -> list[str]:
    return [f"--{key}" if value is None else f"--{key} {shlex.quote(number(value))}" for key, value in lines]


def _join_lines(words: Sequence[str]) -> str:
    return " \\\n    ".join(words) + "\n"
