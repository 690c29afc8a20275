"""Rules about runs that start and do not do what is meant: no signal, no leash, a policy thrown away in one step."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tiltmeter.plan.rules import Found, Rule, shown
from tiltmeter.plan.rules_ranges import LORA, tops
from tiltmeter.plan.settings import GROUPED, ONLINE, PAIRS, Settings

READ = "2026-11-16"
TIMES = 20  # of the top of the range; what shipped examples use stays far below
LEASH_MOST = 2.0
CRITIC_MOST = 1e-3  # a hundred times what is shipped
VERL_BUDGET = 16384  # tokens on a device, where the file does not say
WORLDS = tuple(1 << power for power in range(11))
KL = "gradients of KL estimators: arXiv 2510.01555, 2512.21852; joschu.net/blog/kl-approx.html"


def _lr_too_high(settings: Settings) -> Iterator[Found]:
    lr, top = settings.number("lr"), tops(settings.method)
    if lr is None or top is None:
        return
    lora = settings.on("lora")
    top *= LORA if lora else 1
    if lr > TIMES * top * (1 + 1e-9):
        how = "with LoRA" if lora else "for all weights"
        sentence = f"a learning rate of {shown(lr)} is {shown(lr / top)} times the top of {settings.method.upper()}'s "
        sentence += f"range {how}"
        fix = f"{how} start at {shown(top / 2)}"
        yield Found(settings.key("lr"), lr, f"{sentence}: the policy is lost within a few steps", fix)


def _critic_too_high(settings: Settings) -> Iterator[Found]:
    critic = settings.number("critic_lr")
    if settings.method == "ppo" and critic is not None and critic > CRITIC_MOST:
        sentence = f"a value head that learns at {shown(critic)} never settles, and advantages are made of its errors"
        yield Found(settings.key("critic_lr"), critic, sentence, "2 to 5 times the policy's rate")


def _lr_not_positive(settings: Settings) -> Iterator[Found]:
    for name in ("lr", "critic_lr"):
        lr = settings.number(name)
        if lr is not None and lr <= 0:
            yield Found(
                settings.key(name), lr, f"with a learning rate of {shown(lr)} nothing is learned", "set it above 0"
            )


def _not_finite(settings: Settings) -> Iterator[Found]:
    for one in settings.plain.values():
        if one.said and isinstance(one.value, float) and not math.isfinite(one.value):
            yield Found(one.key, one.value, f"{shown(one.value)} is no setting: what it touches is NaN", "a number")


def _group_of_one(settings: Settings) -> Iterator[Found]:
    group = settings.number("group")
    if settings.method in GROUPED and group is not None and group < 2:
        how = "" if settings.is_said("group") else ", the default,"
        sentence = f"a group of {shown(group)}{how} is its own mean: every advantage is 0 and nothing is learned"
        yield Found(settings.key("group"), group, sentence, "8 or 16 answers to a prompt")


def _group_not_divisible(settings: Settings) -> Iterator[Found]:
    """TRL cuts the generated batch into groups; where the number of processes is unsaid, any power of two may be it."""
    if settings.method not in ("grpo", "rloo"):
        return
    said, group = settings.said, settings.number("group")
    device, steps = said.get("per_device_train_batch_size", 8), said.get("gradient_accumulation_steps", 1)
    steps = said.get("steps_per_generation") or steps
    whole = said.get("generation_batch_size")
    if group is None or group < 2 or not isinstance(device, int) or not isinstance(steps, int):
        return
    devices = settings.number("devices")
    worlds = WORLDS if devices is None else (devices,)
    sizes = [whole] if isinstance(whole, int) else [device * steps * world for world in worlds]
    if all(size % group for size in sizes):
        many = f"{shown(float(sizes[0]))} answers" if len(sizes) == 1 else f"{sizes[0]} answers a process"
        sentence = f"{many} at a time cannot be cut into groups of {shown(group)}: {settings.name} stops"
        yield Found(
            settings.key("group"), group, sentence, "a group size that divides the batch, or a batch it divides"
        )


def _not_divisible(settings: Settings) -> Iterator[Found]:
    rollout, devices = settings.number("rollout"), settings.number("devices")
    dynamic = settings.said.get("actor_rollout_ref.actor.use_dynamic_bsz") is True
    if not dynamic and rollout and devices and rollout % devices:
        sentence = (
            f"{shown(rollout)} answers cannot be shared out among {shown(devices)} devices: {settings.name} stops"
        )
        yield Found(settings.key("rollout"), rollout, sentence, "make prompts times answers a multiple of the devices")


def _mini_over_batch(settings: Settings) -> Iterator[Found]:
    if settings.trainer == "verl":
        mini, all_of = settings.number("mini_batch"), settings.number("prompts")
        key = settings.key("mini_batch")
    else:
        mini, all_of = settings.number("responses"), settings.number("rollout")
        key = settings.key("responses")
    if settings.trainer == "trl" or settings.method not in ONLINE or mini is None or all_of is None or mini <= all_of:
        return
    sentence = f"an update wants {shown(mini)} and a rollout gives {shown(all_of)}: none is ever made of one rollout"
    yield Found(key, mini, sentence, f"at most {shown(all_of)}, or a larger rollout")


def _beta_negative(settings: Settings) -> Iterator[Found]:
    for name in ("beta", "beta_loss", "beta_reward"):
        beta = settings.number(name)
        if beta is not None and beta < 0:
            what = "prefers the rejected answer" if settings.method in PAIRS else "pays for leaving the reference"
            yield Found(settings.key(name), beta, f"a beta of {shown(beta)} {what}", f"{shown(-beta)} is a leash")


def _dpo_beta_zero(settings: Settings) -> Iterator[Found]:
    beta = settings.number("beta")
    if settings.method in PAIRS and beta == 0:
        sentence = "with beta 0 the loss is the same for every policy: nothing is learned"
        yield Found(settings.key("beta"), beta, sentence, "0.1 is the usual start")


def _beta_too_high(settings: Settings) -> Iterator[Found]:
    for name in ("beta_loss", "beta_reward"):
        beta = settings.number(name)
        if settings.method in ONLINE and beta is not None and beta > LEASH_MOST:
            sentence = f"a beta of {shown(beta)} holds the policy at the reference whatever the reward says"
            yield Found(settings.key(name), beta, sentence, "0.01 to 0.2")


def _k1_as_loss(settings: Settings) -> Iterator[Found]:
    beta = settings.number("beta_loss")
    if settings.text("kl_loss_estimator") == "k1" and beta is not None and beta > 0:
        sentence = "k1 as a loss has a gradient of mean 0: the leash does not pull, whatever its coefficient"
        fix = "k2 as a loss, or k1 in the reward"
        yield Found(settings.key("kl_loss_estimator"), "k1", sentence, fix)


def _kl_twice(settings: Settings) -> Iterator[Found]:
    loss, reward = settings.number("beta_loss"), settings.number("beta_reward")
    if loss is not None and reward is not None and loss > 0 and reward > 0:
        sentence = (
            f"two leashes at once, {shown(reward)} in the reward and {shown(loss)} in the loss: no one beta is yours"
        )
        yield Found(settings.key("beta_reward"), reward, sentence, "keep one of them")


def _temperature_zero(settings: Settings) -> Iterator[Found]:
    temperature = settings.number("temperature")
    if settings.method in ONLINE and temperature is not None and temperature <= 0:
        sentence = "greedy sampling gives the same answer every time: nothing is explored, and logits are divided by 0"
        yield Found(settings.key("temperature"), temperature, sentence, "1.0, the temperature the policy is trained at")


def _top_p_zero(settings: Settings) -> Iterator[Found]:
    top_p = settings.number("top_p")
    if settings.method in ONLINE and top_p is not None and not 0 < top_p <= 1:
        yield Found(settings.key("top_p"), top_p, f"top_p of {shown(top_p)} keeps no share of the answers", "1.0")


def _length_zero(settings: Settings) -> Iterator[Found]:
    for name in ("max_response", "max_prompt", "max_total"):
        length = settings.number(name)
        if length is not None and length <= 0:
            yield Found(settings.key(name), length, f"{shown(length)} tokens leave no room for a text", "at least 256")


def _no_room(settings: Settings) -> Iterator[Found]:
    said = settings.said
    response, prompt = settings.number("max_response"), settings.number("max_prompt") or 0
    if response is None or settings.method not in ONLINE:
        return
    limits: list[tuple[str, float]] = []
    total = settings.number("max_total")
    if settings.trainer == "openrlhf" and settings.is_said("max_response") and total is not None:
        limits = [(settings.key("max_total"), total - 1)]
    elif settings.trainer == "trl":
        limits = [("vllm_max_model_length", said.get("vllm_max_model_length"))]  # type: ignore[list-item]
        prompt = 1
    elif settings.trainer == "verl":
        limits = [(settings.key("engine_length"), settings.number("engine_length") or float("inf"))]
        key = "actor_rollout_ref.actor.ppo_max_token_len_per_gpu"
        budget = said.get(key, VERL_BUDGET)
        if said.get("actor_rollout_ref.actor.use_dynamic_bsz") is True and isinstance(budget, int):
            parallel = said.get("actor_rollout_ref.actor.ulysses_sequence_parallel_size", 1)
            limits.append((key, budget * (parallel if isinstance(parallel, int) else float("inf"))))
    for key, limit in limits:
        if isinstance(limit, (int, float)) and prompt + response > limit:
            room = shown(said.get(key, limit))
            sentence = f"a prompt and an answer of up to {shown(response)} tokens do not fit into {room}"
            yield Found(key, said.get(key), sentence, f"at least {shown(prompt + response)}, or shorter answers")


def _entropy_sign(settings: Settings) -> Iterator[Found]:
    entropy = settings.number("entropy")
    if entropy is not None and entropy < 0:
        sentence = f"a coefficient of {shown(entropy)} pays for losing entropy: all three trainers add the bonus"
        yield Found(settings.key("entropy"), entropy, sentence, f"{shown(-entropy)} keeps entropy up")


def _clip(settings: Settings) -> Iterator[Found]:
    for name in ("clip_low", "clip_high"):
        clip = settings.number(name)
        if settings.method in ONLINE and clip is not None and clip <= 0 and settings.is_said(name):
            sentence = f"a clip range of {shown(clip)} cuts every gradient off after the first step"
            yield Found(settings.key(name), clip, sentence, "0.2")


def _reference(settings: Settings) -> Iterator[Found]:
    if settings.said.get("sync_ref_model") is True and settings.number("beta_loss") == 0:
        sentence = "the reference is to follow the policy, and with beta 0 there is none"
        yield Found("sync_ref_model", True, f"{sentence}: {settings.name} stops", "a beta above 0, or leave it out")


def _filter_range(settings: Settings) -> Iterator[Found]:
    key = "algo.dynamic_filtering_range"
    ends, on = settings.said.get(key), settings.said.get("algo.dynamic_filtering_enable") is True
    if not on or not isinstance(ends, list) or len(ends) != 2 or not all(isinstance(one, (int, float)) for one in ends):
        return
    if ends[0] >= ends[1]:
        sentence = (
            f"no group has a mean reward between {shown(ends[0])} and {shown(ends[1])}: none is kept, and it stops"
        )
        yield Found(key, ends, sentence, "the lower end first")


def _filter_metric(settings: Settings) -> Iterator[Found]:
    said, key = settings.said, "algorithm.filter_groups.metric"
    if said.get("algorithm.filter_groups.enable") is not True or said.get(key, "reward") == "acc":
        return
    shaped = [name for name, value in said.items() if name.endswith("overlong_buffer_cfg.enable") and value is True]
    if shaped:
        sentence = (
            "groups are kept by a reward that a length penalty has shaped, so groups of all wrong answers stay in"
        )
        yield Found(
            key, said.get(key, "reward"), f"{sentence} (one such policy was destroyed in 40 steps)", "metric=acc"
        )


def _warmup_never_ends(settings: Settings) -> Iterator[Found]:
    share, steps, total = (settings.number(name) for name in ("warmup", "warmup_steps", "total_steps"))
    if share is not None and share >= 1:
        yield Found(settings.key("warmup"), share, "the warm-up is as long as the run", "0.05")
    if steps is not None and total is not None and 0 < total <= steps:
        sentence = f"{shown(steps)} steps of warm-up in a run of {shown(total)}: the learning rate is never reached"
        yield Found(settings.key("warmup_steps"), steps, sentence, f"{shown(max(1.0, total // 20))} steps")


ARITHMETIC = "arithmetic of the method"
RULES = (
    Rule("lr-too-high", "error",
         f"a learning rate over {TIMES} times the top of the range ({LORA} times more with LoRA)", "all",
         _lr_too_high, "the range of lr-range; shipped examples are at most 2 times its top [read]", READ),
    Rule("critic-too-high", "error", f"a critic's learning rate above {CRITIC_MOST:g}", "PPO", _critic_too_high,
         "veRL 0.9.1 ships 1e-5, OpenRLHF 0.11.2 9e-6 [read]", READ),
    Rule("lr-not-positive", "error", "a learning rate of 0 or less", "all", _lr_not_positive, ARITHMETIC, READ),
    Rule("not-finite", "error", "a setting that is NaN or infinite", "all", _not_finite, ARITHMETIC, READ),
    Rule("group-of-one", "error", "one answer to a prompt where the group is the baseline", "GRPO, RLOO, baselines",
         _group_of_one, "arithmetic; TRL 1.16.0 and OpenRLHF 0.11.2 refuse it, veRL 0.9.1 does not [read]", READ),
    Rule("group-not-divisible", "error", "a batch that does not divide into groups", "TRL GRPO, RLOO",
         _group_not_divisible, "TRL 1.16.0, trainer/grpo_config.py [read]", READ, ("trl",)),
    Rule("batch-not-divisible", "error", "a batch that devices cannot share", "veRL", _not_divisible,
         "veRL 0.9.1, utils/config.py [read]", READ, ("verl",)),
    Rule("mini-batch-over-batch", "error", "an update larger than the rollout", "veRL, OpenRLHF", _mini_over_batch,
         "veRL 0.9.1, workers/config/actor.py; OpenRLHF 0.11.2, trainer/ppo_trainer.py [read]", READ),
    Rule("beta-negative", "error", "a leash that pushes", "all", _beta_negative, ARITHMETIC, READ),
    Rule("dpo-beta-zero", "error", "DPO or KTO with beta 0", "DPO, KTO", _dpo_beta_zero,
         "arXiv 2305.18290, the loss", READ),
    Rule("beta-too-high", "error", f"a leash above {LEASH_MOST:g}", "PPO, GRPO, RLOO", _beta_too_high,
         ARITHMETIC, READ),
    Rule("kl-k1-as-loss", "error", "the plain log-ratio as a loss", "veRL, OpenRLHF", _k1_as_loss, KL, READ),
    Rule("kl-twice", "error", "KL in the reward and in the loss", "veRL", _kl_twice,
         "veRL 0.9.1, utils/config.py prints a notice only [read]", READ, ("verl",)),
    Rule("temperature-zero", "error", "greedy rollouts", "PPO, GRPO, RLOO", _temperature_zero, ARITHMETIC, READ),
    Rule("top-p-zero", "error", "top_p outside 0 to 1", "PPO, GRPO, RLOO", _top_p_zero, ARITHMETIC, READ),
    Rule("length-zero", "error", "texts of no length", "all", _length_zero, ARITHMETIC, READ),
    Rule("no-room", "error", "answers longer than what must hold them", "PPO, GRPO, RLOO", _no_room,
         "veRL 0.9.1, utils/seqlen_balancing.py; OpenRLHF 0.11.2; TRL 1.16.0 [read]", READ),
    Rule("entropy-sign", "error", "an entropy bonus below 0", "PPO, GRPO, RLOO", _entropy_sign,
         "the trainers' losses: TRL 1.16.0, veRL 0.9.1, OpenRLHF 0.11.2 [read]", READ),
    Rule("clip-not-positive", "error", "a clip range of 0 or less", "PPO, GRPO, RLOO", _clip, ARITHMETIC, READ),
    Rule("reference-without-leash", "error", "a moving reference with beta 0", "TRL GRPO", _reference,
         "TRL 1.16.0, trainer/grpo_trainer.py:1190 [read]", READ, ("trl",)),
    Rule("filter-range", "error", "dynamic filtering that keeps nothing", "OpenRLHF", _filter_range,
         "OpenRLHF 0.11.2, cli/train_ppo_ray.py [read]", READ, ("openrlhf",)),
    Rule("filter-metric", "error", "dynamic sampling on a shaped reward", "veRL", _filter_metric,
         "github.com/verl-project/verl-recipe/pull/125", READ, ("verl",)),
    Rule("warmup-never-ends", "error", "warm-up as long as the run", "all", _warmup_never_ends, ARITHMETIC, READ),
)  # fmt: skip
