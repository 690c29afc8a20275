"""Lint errors for runs that start but cannot train as intended: no signal, no KL penalty, a learning rate too high."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tiltmeter_workbench.plan.lint.rule import LintMatch, LintRule, format_value
from tiltmeter_workbench.plan.lint.rules_ranges import LORA, top_rate
from tiltmeter_workbench.plan.settings.trainer_settings import GROUPED, ONLINE, PAIRS, TrainerSettings

READ = "2026-11-16"
TIMES = 20  # times the top of the range; shipped examples stay far below
BETA_MOST = 2.0
CRITIC_MOST = 1e-3  # a hundred times what is shipped
VERL_BUDGET = 16384  # tokens on a device, where the file does not say
WORLDS = tuple(1 << power for power in range(11))
KL = "gradients of KL estimators: arXiv 2510.01555, 2512.21852; joschu.net/blog/kl-approx.html"


def _lr_too_high(settings: TrainerSettings) -> Iterator[LintMatch]:
    lr, top = settings.number("lr"), top_rate(settings.method)
    if lr is None or top is None:
        return
    lora = settings.on("lora")
    top *= LORA if lora else 1
    if lr > TIMES * top * (1 + 1e-9):
        how = "with LoRA" if lora else "for all weights"
        sentence = f"a learning rate of {format_value(lr)} is {format_value(lr / top)} times "
        sentence += f"the top of {settings.method.upper()}'s range {how}"
        fix = f"{how} start at {format_value(top / 2)}"
        yield LintMatch(settings.key("lr"), lr, f"{sentence}: the policy is lost within a few steps", fix)


def _critic_too_high(settings: TrainerSettings) -> Iterator[LintMatch]:
    critic = settings.number("critic_lr")
    if settings.method == "ppo" and critic is not None and critic > CRITIC_MOST:
        sentence = (
            f"a value head that learns at {format_value(critic)} never settles, and advantages are made of its errors"
        )
        yield LintMatch(settings.key("critic_lr"), critic, sentence, "2 to 5 times the policy's rate")


def _lr_not_positive(settings: TrainerSettings) -> Iterator[LintMatch]:
    for name in ("lr", "critic_lr"):
        lr = settings.number(name)
        if lr is not None and lr <= 0:
            yield LintMatch(
                settings.key(name),
                lr,
                f"with a learning rate of {format_value(lr)} nothing is learned",
                "set it above 0",
            )


def _not_finite(settings: TrainerSettings) -> Iterator[LintMatch]:
    for one in settings.common.values():
        if one.explicit and isinstance(one.value, float) and not math.isfinite(one.value):
            yield LintMatch(
                one.key, one.value, f"{format_value(one.value)} is no setting: what it touches is NaN", "a number"
            )


def _group_of_one(settings: TrainerSettings) -> Iterator[LintMatch]:
    group = settings.number("group")
    if settings.method in GROUPED and group is not None and group < 2:
        how = "" if settings.is_explicit("group") else ", the default,"
        sentence = f"a group of {format_value(group)}{how} is its own mean: every advantage is 0 and nothing is learned"
        yield LintMatch(settings.key("group"), group, sentence, "8 or 16 answers to a prompt")


def _group_not_divisible(settings: TrainerSettings) -> Iterator[LintMatch]:
    """TRL cuts the generated batch into groups; where the number of processes is not set, any power of two may be."""
    if settings.method not in ("grpo", "rloo"):
        return
    explicit, group = settings.explicit, settings.number("group")
    device, steps = explicit.get("per_device_train_batch_size", 8), explicit.get("gradient_accumulation_steps", 1)
    steps = explicit.get("steps_per_generation") or steps
    whole = explicit.get("generation_batch_size")
    if group is None or group < 2 or not isinstance(device, int) or not isinstance(steps, int):
        return
    devices = settings.number("devices")
    worlds = WORLDS if devices is None else (devices,)
    sizes = [whole] if isinstance(whole, int) else [device * steps * world for world in worlds]
    if all(size % group for size in sizes):
        many = f"{format_value(float(sizes[0]))} answers" if len(sizes) == 1 else f"{sizes[0]} answers a process"
        sentence = f"{many} at a time cannot be cut into groups of {format_value(group)}: {settings.name} stops"
        yield LintMatch(
            settings.key("group"), group, sentence, "a group size that divides the batch, or a batch it divides"
        )


def _not_divisible(settings: TrainerSettings) -> Iterator[LintMatch]:
    rollout, devices = settings.number("rollout"), settings.number("devices")
    dynamic = settings.explicit.get("actor_rollout_ref.actor.use_dynamic_bsz") is True
    if not dynamic and rollout and devices and rollout % devices:
        sentence = (
            f"{format_value(rollout)} answers cannot be shared out among {format_value(devices)} devices: "
            f"{settings.name} stops"
        )
        yield LintMatch(
            settings.key("rollout"), rollout, sentence, "make prompts times answers a multiple of the devices"
        )


def _mini_over_batch(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.trainer == "verl":
        mini, rollout_size = settings.number("mini_batch"), settings.number("prompts")
        key = settings.key("mini_batch")
    else:
        mini, rollout_size = settings.number("responses"), settings.number("rollout")
        key = settings.key("responses")
    if (
        settings.trainer == "trl"
        or settings.method not in ONLINE
        or mini is None
        or rollout_size is None
        or mini <= rollout_size
    ):
        return
    sentence = (
        f"an update wants {format_value(mini)} and a rollout gives {format_value(rollout_size)}: "
        "none is ever made of one rollout"
    )
    yield LintMatch(key, mini, sentence, f"at most {format_value(rollout_size)}, or a larger rollout")


def _beta_negative(settings: TrainerSettings) -> Iterator[LintMatch]:
    for name in ("beta", "beta_loss", "beta_reward"):
        beta = settings.number(name)
        if beta is not None and beta < 0:
            what = "prefers the rejected answer" if settings.method in PAIRS else "pays for leaving the reference"
            yield LintMatch(
                settings.key(name),
                beta,
                f"a beta of {format_value(beta)} {what}",
                f"{format_value(-beta)} is a KL penalty",
            )


def _dpo_beta_zero(settings: TrainerSettings) -> Iterator[LintMatch]:
    beta = settings.number("beta")
    if settings.method in PAIRS and beta == 0:
        sentence = "with beta 0 the loss is the same for every policy: nothing is learned"
        yield LintMatch(settings.key("beta"), beta, sentence, "0.1 is the usual start")


def _beta_too_high(settings: TrainerSettings) -> Iterator[LintMatch]:
    for name in ("beta_loss", "beta_reward"):
        beta = settings.number(name)
        if settings.method in ONLINE and beta is not None and beta > BETA_MOST:
            sentence = f"a beta of {format_value(beta)} holds the policy at the reference whatever the reward says"
            yield LintMatch(settings.key(name), beta, sentence, "0.01 to 0.2")


def _k1_as_loss(settings: TrainerSettings) -> Iterator[LintMatch]:
    beta = settings.number("beta_loss")
    if settings.text("kl_loss_estimator") == "k1" and beta is not None and beta > 0:
        sentence = "k1 as a loss has a gradient of mean 0: the KL penalty has no effect, whatever its coefficient"
        fix = "k2 as a loss, or k1 in the reward"
        yield LintMatch(settings.key("kl_loss_estimator"), "k1", sentence, fix)


def _kl_twice(settings: TrainerSettings) -> Iterator[LintMatch]:
    loss, reward = settings.number("beta_loss"), settings.number("beta_reward")
    if loss is not None and reward is not None and loss > 0 and reward > 0:
        sentence = (
            f"two KL penalties at once, {format_value(reward)} in the reward and {format_value(loss)} in the loss"
        )
        yield LintMatch(settings.key("beta_reward"), reward, sentence, "keep one of them")


def _temperature_zero(settings: TrainerSettings) -> Iterator[LintMatch]:
    temperature = settings.number("temperature")
    if settings.method in ONLINE and temperature is not None and temperature <= 0:
        sentence = "greedy sampling gives the same answer every time: nothing is explored, and logits are divided by 0"
        yield LintMatch(
            settings.key("temperature"), temperature, sentence, "1.0, the temperature the policy is trained at"
        )


def _top_p_zero(settings: TrainerSettings) -> Iterator[LintMatch]:
    top_p = settings.number("top_p")
    if settings.method in ONLINE and top_p is not None and not 0 < top_p <= 1:
        yield LintMatch(
            settings.key("top_p"), top_p, f"top_p of {format_value(top_p)} keeps no share of the answers", "1.0"
        )


def _length_zero(settings: TrainerSettings) -> Iterator[LintMatch]:
    for name in ("max_response", "max_prompt", "max_total"):
        length = settings.number(name)
        if length is not None and length <= 0:
            yield LintMatch(
                settings.key(name), length, f"{format_value(length)} tokens leave no room for a text", "at least 256"
            )


def _no_room(settings: TrainerSettings) -> Iterator[LintMatch]:
    explicit = settings.explicit
    response, prompt = settings.number("max_response"), settings.number("max_prompt") or 0
    if response is None or settings.method not in ONLINE:
        return
    limits: list[tuple[str, float]] = []
    total = settings.number("max_total")
    if settings.trainer == "openrlhf" and settings.is_explicit("max_response") and total is not None:
        limits = [(settings.key("max_total"), total - 1)]
    elif settings.trainer == "trl":
        limits = [("vllm_max_model_length", explicit.get("vllm_max_model_length"))]  # type: ignore[list-item]
        prompt = 1
    elif settings.trainer == "verl":
        limits = [(settings.key("engine_length"), settings.number("engine_length") or float("inf"))]
        key = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
        budget = explicit.get(key, VERL_BUDGET)
        if explicit.get("actor_rollout_ref.actor.use_dynamic_bsz") is True and isinstance(budget, int):
            parallel = explicit.get("actor_rollout_ref.actor.ulysses_sequence_parallel_size", 1)
            limits.append((key, budget * (parallel if isinstance(parallel, int) else float("inf"))))
    for key, limit in limits:
        if isinstance(limit, (int, float)) and prompt + response > limit:
            room = format_value(explicit.get(key, limit))
            sentence = f"a prompt and an answer of up to {format_value(response)} tokens do not fit into {room}"
            yield LintMatch(
                key, explicit.get(key), sentence, f"at least {format_value(prompt + response)}, or shorter answers"
            )


def _entropy_sign(settings: TrainerSettings) -> Iterator[LintMatch]:
    entropy = settings.number("entropy")
    if entropy is not None and entropy < 0:
        sentence = f"a coefficient of {format_value(entropy)} rewards losing entropy: all three trainers add the bonus"
        yield LintMatch(settings.key("entropy"), entropy, sentence, f"{format_value(-entropy)} keeps entropy up")


def _clip(settings: TrainerSettings) -> Iterator[LintMatch]:
    for name in ("clip_low", "clip_high"):
        clip = settings.number(name)
        if settings.method in ONLINE and clip is not None and clip <= 0 and settings.is_explicit(name):
            sentence = f"a clip range of {format_value(clip)} cuts every gradient off after the first step"
            yield LintMatch(settings.key(name), clip, sentence, "0.2")


def _reference(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.explicit.get("sync_ref_model") is True and settings.number("beta_loss") == 0:
        sentence = "the reference is to follow the policy, and with beta 0 there is none"
        yield LintMatch("sync_ref_model", True, f"{sentence}: {settings.name} stops", "a beta above 0, or leave it out")


def _filter_range(settings: TrainerSettings) -> Iterator[LintMatch]:
    key = "algo.dynamic_filtering_range"
    ends, on = settings.explicit.get(key), settings.explicit.get("algo.dynamic_filtering_enable") is True
    if not on or not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(one, (int, float)) for one in ends):
        return
    if ends[0] >= ends[1]:
        sentence = (
            f"no group has a mean reward between {format_value(ends[0])} and {format_value(ends[1])}: "
            "none is kept, and it stops"
        )
        yield LintMatch(key, ends, sentence, "the lower end first")


def _filter_metric(settings: TrainerSettings) -> Iterator[LintMatch]:
    explicit, key = settings.explicit, "algorithm.filter_groups.metric"
    if explicit.get("algorithm.filter_groups.enable") is not True or explicit.get(key, "reward") == "acc":
        return
    shaped = [name for name, value in explicit.items() if name.endswith("overlong_buffer_cfg.enable") and value is True]
    if shaped:
        sentence = (
            "groups are kept by a reward that a length penalty has shaped, so groups of all wrong answers stay in"
        )
        yield LintMatch(
            key, explicit.get(key, "reward"), f"{sentence} (one such policy was destroyed in 40 steps)", "metric=acc"
        )


def _warmup_never_ends(settings: TrainerSettings) -> Iterator[LintMatch]:
    share, steps, total = (settings.number(name) for name in ("warmup", "warmup_steps", "total_steps"))
    if share is not None and share >= 1:
        yield LintMatch(settings.key("warmup"), share, "the warm-up is as long as the run", "0.05")
    if steps is not None and total is not None and 0 < total <= steps:
        sentence = (
            f"{format_value(steps)} steps of warm-up in a run of {format_value(total)}: "
            "the learning rate is never reached"
        )
        yield LintMatch(settings.key("warmup_steps"), steps, sentence, f"{format_value(max(1.0, total // 20))} steps")


ARITHMETIC = "arithmetic of the method"
RULES = (
    LintRule("lr-too-high", "error",
         f"a learning rate over {TIMES} times the top of the range ({LORA} times more with LoRA)", "all",
         _lr_too_high, "the range of lr-range; shipped examples are at most 2 times its top [read]", READ),
    LintRule("critic-too-high", "error", f"a critic's learning rate above {CRITIC_MOST:g}", "PPO", _critic_too_high,
         "veRL 0.9.1 ships 1e-5, OpenRLHF 0.11.2 9e-6 [read]", READ),
    LintRule("lr-not-positive", "error", "a learning rate of 0 or less", "all", _lr_not_positive, ARITHMETIC, READ),
    LintRule("not-finite", "error", "a setting that is NaN or infinite", "all", _not_finite, ARITHMETIC, READ),
    LintRule("group-of-one", "error", "one answer to a prompt where the group is the baseline", "GRPO, RLOO, baselines",
         _group_of_one, "arithmetic; TRL 1.16.0 and OpenRLHF 0.11.2 refuse it, veRL 0.9.1 does not [read]", READ),
    LintRule("group-not-divisible", "error", "a batch that does not divide into groups", "TRL GRPO, RLOO",
         _group_not_divisible, "TRL 1.16.0, trainer/grpo_config.py [read]", READ, ("trl",)),
    LintRule("batch-not-divisible", "error", "a batch that devices cannot share", "veRL", _not_divisible,
         "veRL 0.9.1, utils/config.py [read]", READ, ("verl",)),
    LintRule("mini-batch-over-batch", "error", "an update larger than the rollout", "veRL, OpenRLHF", _mini_over_batch,
         "veRL 0.9.1, workers/config/actor.py; OpenRLHF 0.11.2, trainer/ppo_trainer.py [read]", READ),
    LintRule("beta-negative", "error", "a negative KL coefficient", "all", _beta_negative, ARITHMETIC, READ),
    LintRule("dpo-beta-zero", "error", "DPO or KTO with beta 0", "DPO, KTO", _dpo_beta_zero,
         "arXiv 2305.18290, the loss", READ),
    LintRule("beta-too-high", "error", f"a beta above {BETA_MOST:g}", "PPO, GRPO, RLOO", _beta_too_high,
         ARITHMETIC, READ),
    LintRule("kl-k1-as-loss", "error", "the plain log-ratio as a loss", "veRL, OpenRLHF", _k1_as_loss, KL, READ),
    LintRule("kl-twice", "error", "KL in the reward and in the loss", "veRL", _kl_twice,
         "veRL 0.9.1, utils/config.py prints a notice only [read]", READ, ("verl",)),
    LintRule("temperature-zero", "error", "greedy rollouts", "PPO, GRPO, RLOO", _temperature_zero, ARITHMETIC, READ),
    LintRule("top-p-zero", "error", "top_p outside 0 to 1", "PPO, GRPO, RLOO", _top_p_zero, ARITHMETIC, READ),
    LintRule("length-zero", "error", "texts of no length", "all", _length_zero, ARITHMETIC, READ),
    LintRule("no-room", "error", "answers longer than what must hold them", "PPO, GRPO, RLOO", _no_room,
         "veRL 0.9.1, utils/seqlen_balancing.py; OpenRLHF 0.11.2; TRL 1.16.0 [read]", READ),
    LintRule("entropy-sign", "error", "an entropy bonus below 0", "PPO, GRPO, RLOO", _entropy_sign,
         "the trainers' losses: TRL 1.16.0, veRL 0.9.1, OpenRLHF 0.11.2 [read]", READ),
    LintRule("clip-not-positive", "error", "a clip range of 0 or less", "PPO, GRPO, RLOO", _clip, ARITHMETIC, READ),
    LintRule("reference-without-leash", "error", "a moving reference with beta 0", "TRL GRPO", _reference,
         "TRL 1.16.0, trainer/grpo_trainer.py:1190 [read]", READ, ("trl",)),
    LintRule("filter-range", "error", "dynamic filtering that keeps nothing", "OpenRLHF", _filter_range,
         "OpenRLHF 0.11.2, cli/train_ppo_ray.py [read]", READ, ("openrlhf",)),
    LintRule("filter-metric", "error", "dynamic sampling on a shaped reward", "veRL", _filter_metric,
         "github.com/verl-project/verl-recipe/pull/125", READ, ("verl",)),
    LintRule("warmup-never-ends", "error", "warm-up as long as the run", "all", _warmup_never_ends, ARITHMETIC, READ),
)  # fmt: skip
