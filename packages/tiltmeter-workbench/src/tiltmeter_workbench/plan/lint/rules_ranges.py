"""Lint notes for settings outside the recommended range, with the range, its source and the likely cost."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tiltmeter_workbench.plan.lint.rule import LintMatch, LintRule, format_value
from tiltmeter_workbench.plan.settings.trainer_settings import GROUPED, ONLINE, PAIRS, TrainerSettings
from tiltmeter_workbench.stats.advantages import dead_share, expected_spread

READ = "2026-11-16"
#: Learning rates for all weights, lowest and highest of what is recommended.
RATES = {
    **dict.fromkeys(ONLINE, (1e-6, 5e-6)),
    **dict.fromkeys(PAIRS, (1e-7, 5e-7)),
    "sft": (5e-6, 5e-5),
    "reward": (1e-6, 1e-4),
}
LORA = 10  # times the rate for all weights: adapters start at 0 and are small
BETAS = (0.01, 0.2)
WARMUP = (0.05, 0.10)
CRITIC = (2.0, 5.0)
LEAST = {"ppo": 64, **dict.fromkeys(GROUPED, 128)}
PAIR_BATCH = (32, 128)
SMALL_GROUP = 4
SMALL_REWARD = 0.25  # of the policy's parameters


def top_rate(method: str) -> float | None:
    """The highest learning rate that is recommended for all weights."""
    return RATES[method][1] if method in RATES else None


def _rate(settings: TrainerSettings) -> Iterator[LintMatch]:
    lr = settings.number("lr")
    if lr is None or settings.method not in RATES:
        return
    lora = settings.on("lora")
    low, high = (end * (LORA if lora else 1) for end in RATES[settings.method])
    # A plain rate is also low enough for adapters.
    low = low / LORA if lora else low
    if lr > 0 and not low <= lr <= high * (1 + 1e-9):
        how = " with LoRA" if lora else ""
        side = "above" if lr > high else "below"
        more = (
            " That is a rate for SFT; RL wants 10 to 100 times less."
            if lr >= 1e-5 and settings.method in ONLINE
            else ""
        )
        default = "" if settings.is_explicit("lr") else ", the trainer's default,"
        range_of = f"{format_value(low)} to {format_value(high)}, the range of {settings.method.upper()}{how}."
        sentence = f"{format_value(lr)}{default} is {side} {range_of}"
        yield LintMatch(settings.key("lr"), lr, sentence + more, f"try {format_value(high if lr > high else low)}")


def _warmup(settings: TrainerSettings) -> Iterator[LintMatch]:
    share = settings.number("warmup")
    if settings.method in (*ONLINE, *PAIRS) and share is not None and not WARMUP[0] <= share <= WARMUP[1] and share < 1:
        sentence = f"a warm-up of {share * 100:g} % of the run: 5 to 10 % lets the optimiser measure before it steps"
        yield LintMatch(settings.key("warmup"), share, sentence, "0.05")


def _schedule(settings: TrainerSettings) -> Iterator[LintMatch]:
    schedule = settings.text("schedule")
    if settings.method in (*ONLINE, *PAIRS) and schedule and not schedule.startswith("cosine"):
        sentence = (
            f"a {format_value(schedule)} schedule: cosine takes the last steps small, where over-optimisation sets in"
        )
        yield LintMatch(settings.key("schedule"), schedule, sentence, "cosine")


def _critic(settings: TrainerSettings) -> Iterator[LintMatch]:
    lr, critic = settings.number("lr"), settings.number("critic_lr")
    if settings.method == "ppo" and lr and critic and not CRITIC[0] <= critic / lr <= CRITIC[1]:
        sentence = (
            f"the value head learns at {format_value(critic / lr)} times the policy's rate; 2 to 5 times is usual"
        )
        yield LintMatch(settings.key("critic_lr"), critic, sentence, format_value(3 * lr))


def _batch(settings: TrainerSettings) -> Iterator[LintMatch]:
    responses, least = settings.number("responses"), LEAST.get(settings.method)
    if responses is not None and least is not None and responses < least:
        alone = settings.trainer == "trl" and settings.number("devices") is None
        where = " on one process" if alone else ""
        sentence = (
            f"{format_value(responses)} answers per update{where}, "
            f"where {least} are the least for a gradient worth its step"
        )
        fix = "more processes or more gradient accumulation" if alone else f"{least} or more"
        yield LintMatch(settings.key("responses"), responses, sentence, fix)


def _pair_batch(settings: TrainerSettings) -> Iterator[LintMatch]:
    pairs = settings.number("responses")
    if settings.method not in PAIRS or pairs is None or PAIR_BATCH[0] <= pairs <= PAIR_BATCH[1]:
        return
    alone = settings.trainer == "trl" and settings.number("devices") is None
    if alone and pairs < PAIR_BATCH[0] and PAIR_BATCH[0] / pairs <= 8 and not settings.is_explicit("responses"):
        return
    where = " on one process" if alone else ""
    yield LintMatch(
        settings.key("responses"), pairs, f"{format_value(pairs)} pairs per update{where}; 32 to 128 are usual", "64"
    )


def _beta(settings: TrainerSettings) -> Iterator[LintMatch]:
    for name in ("beta", "beta_loss", "beta_reward"):
        beta = settings.number(name)
        if beta is not None and beta > 0 and not BETAS[0] <= beta <= BETAS[1] and settings.method in (*ONLINE, *PAIRS):
            side = "a strong KL penalty" if beta > BETAS[1] else "hardly a KL penalty"
            unit = ", summed over an answer's tokens" if settings.trainer == "trl" and settings.method == "rloo" else ""
            sentence = f"a beta of {format_value(beta)}{unit} is {side}; 0.01 to 0.2 is recommended"
            yield LintMatch(settings.key(name), beta, sentence, "0.02" if settings.method in ONLINE else "0.1")


def _no_kl_penalty(settings: TrainerSettings) -> Iterator[LintMatch]:
    betas = [settings.number(name) for name in ("beta_loss", "beta_reward")]
    if settings.method in ONLINE and any(beta == 0 for beta in betas) and not any(beta for beta in betas):
        name = "beta_loss" if settings.number("beta_loss") == 0 else "beta_reward"
        restart = "" if settings.trainer != "trl" else " and a beta of 0 cannot be raised while it trains"
        sentence = f"no KL penalty: nothing holds the policy to its reference, the KL to it is not measured{restart}"
        yield LintMatch(settings.key(name), 0, sentence, "0.01 or more; where you want none, 1e-6 still measures it")


def _group(settings: TrainerSettings) -> Iterator[LintMatch]:
    group = settings.number("group")
    if settings.method not in GROUPED or group is None or not 2 <= group < SMALL_GROUP:
        return
    size = int(group)
    sentence = (
        f"groups of {size}: of prompts solved half the time {dead_share(0.5, size):.0%} teach nothing, of those solved "
        f"one time in ten {dead_share(0.1, size):.0%}; the rewards' spread is {expected_spread(0.5, size):.2f}, with 8 "
        f"it is {expected_spread(0.5, 8):.2f} at {8 / size:.1f} times the sampling"
    )
    yield LintMatch(settings.key("group"), size, sentence, "8 or 16")


def _entropy(settings: TrainerSettings) -> Iterator[LintMatch]:
    entropy = settings.number("entropy")
    if settings.method in ("ppo", "grpo") and not entropy:
        adaptive = settings.explicit.get("use_adaptive_entropy") is True
        if not adaptive:
            late = {"trl": "it is fixed at the start whether there is one", "openrlhf": "without one it is not logged"}
            reason = late.get(settings.trainer, "the workers read it at the start only")
            sentence = f"no entropy bonus, and none can be added when entropy falls: {reason}"
            yield LintMatch(settings.key("entropy"), entropy, sentence, "0.001, which hardly acts")


def _reward_size(settings: TrainerSettings) -> Iterator[LintMatch]:
    policy, reward = (_billions(settings.text(name)) for name in ("model", "reward_model"))
    if policy and reward and reward < SMALL_REWARD * policy:
        sentence = (
            f"a reward model of {format_value(reward)} billion judges a policy of {format_value(policy)}: "
            "it is the easier to fool"
        )
        yield LintMatch(
            settings.key("reward_model"), settings.text("reward_model"), sentence, "one nearer to the policy's size"
        )


def _billions(name: str) -> float | None:
    """Billions of parameters according to a model's name.

    >>> _billions("Qwen/Qwen3-0.6B"), _billions("OpenRLHF/Llama-3-8b-rm"), _billions("HuggingFaceTB/SmolLM2-135M")
    (0.6, 8.0, 0.135)
    """
    match = re.search(r"(?<![\d.])(\d+(?:\.\d+)?)([bm])(?![a-z])", name.lower())
    return None if match is None else float(match[1]) / (1 if match[2] == "b" else 1000)


def _k3_as_loss(settings: TrainerSettings) -> Iterator[LintMatch]:
    beta, estimator = settings.number("beta_loss"), settings.text("kl_loss_estimator")
    if beta and estimator in ("k3", "abs"):
        what = "the forward KL, from reference to policy" if estimator == "k3" else "no KL at all"
        fix = (
            "use_bias_correction_kl: true"
            if settings.trainer == "trl"
            else "k2"
            if settings.trainer == "openrlhf"
            else "k3+"
        )
        sentence = f"{estimator} as a loss has the gradient of {what}: not the KL penalty of PPO"
        yield LintMatch(settings.key("kl_loss_estimator"), estimator, sentence, fix)


def _reward_estimator(settings: TrainerSettings) -> Iterator[LintMatch]:
    beta, estimator = settings.number("beta_reward"), settings.text("kl_reward_estimator")
    if beta and estimator and estimator != "k1":
        sentence = f"{estimator} in the reward: only k1 there gives the gradient of the KL"
        yield LintMatch(settings.key("kl_reward_estimator"), estimator, sentence, "k1")


def _top_p(settings: TrainerSettings) -> Iterator[LintMatch]:
    top_p, top_k = settings.number("top_p"), settings.number("top_k")
    cut = (top_p is not None and 0 < top_p < 1) or (top_k is not None and top_k > 0)
    if settings.method in ONLINE and cut:
        name = "top_p" if top_p is not None and top_p < 1 else "top_k"
        sentence = (
            "answers are drawn from a cut distribution and trained on as if from the whole: ratios and KL are off"
        )
        yield LintMatch(settings.key(name), settings.value(name), sentence, "top_p 1 and no top_k while it trains")


def _no_checkpoints(settings: TrainerSettings) -> Iterator[LintMatch]:
    save = settings.value("save")
    if settings.method in (*ONLINE, *PAIRS) and (save in ("no", False) or (isinstance(save, int) and save <= 0)):
        sentence = "no checkpoints on the way: a run that goes wrong cannot go back to where it was right"
        yield LintMatch(settings.key("save"), save, sentence, "every 20 to 100 steps")


def _filter_on_reward(settings: TrainerSettings) -> Iterator[LintMatch]:
    explicit, key = settings.explicit, "algorithm.filter_groups.metric"
    shaped = any(name.endswith("overlong_buffer_cfg.enable") and value is True for name, value in explicit.items())
    if explicit.get("algorithm.filter_groups.enable") is True and explicit.get(key, "reward") != "acc" and not shaped:
        yield LintMatch(
            key,
            explicit.get(key, "reward"),
            "groups are kept by the reward; a shaped one keeps what is all wrong",
            "acc",
        )


def _same_files(settings: TrainerSettings) -> Iterator[LintMatch]:
    train, held_out = settings.explicit.get("data.train_files"), settings.explicit.get("data.val_files")
    if isinstance(train, str) and train == held_out:
        yield LintMatch("data.val_files", held_out, "it is validated on what it is trained on", "other prompts")


def _trl_reward(settings: TrainerSettings) -> Iterator[LintMatch]:
    keys = ("reward_funcs", "reward_model_name_or_path")
    file = settings.form in ("yaml", "toml", "json")
    if file and settings.method in ("grpo", "rloo") and not any(settings.explicit.get(key) for key in keys):
        sentence = "the file names no reward: `trl grpo` stops without one, a script of your own may have it"
        yield LintMatch(keys[0], None, sentence, "reward_funcs or reward_model_name_or_path")


def _sequence(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.explicit.get("importance_sampling_level") != "sequence":
        return
    loss, clip = settings.text("loss_type"), settings.number("clip_low")
    if loss in ("bnpo", "dr_grpo", "dapo", "cispo"):
        sentence = f"ratios of whole answers with a loss averaged over tokens ({loss}): long answers weigh more"
        yield LintMatch("loss_type", loss, sentence, "loss_type: grpo")
    if clip is not None and clip >= 0.1:
        sentence = f"a clip range of {format_value(clip)} for ratios of whole answers, per token, never cuts anything"
        yield LintMatch(settings.key("clip_low"), clip, sentence, "3e-4 and epsilon_high 4e-4, as GSPO has it")


def _fp16(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.explicit.get("fp16") is True or settings.text("precision") == "fp16":
        sentence = "fp16 overflows where bf16 does not; in RL with its long tails that ends in NaN"
        yield LintMatch("fp16" if settings.trainer == "trl" else settings.key("precision"), "fp16", sentence, "bf16")


def _adaptive(settings: TrainerSettings) -> Iterator[LintMatch]:
    target = settings.explicit.get("algo.kl.target")
    if target is not None and target is not False:
        sentence = "OpenRLHF's own source calls its adaptive KL controller incompatible with the rest"
        yield LintMatch("algo.kl.target", target, sentence, "leave it out: a fixed coefficient")


def _adapters_off(settings: TrainerSettings) -> Iterator[LintMatch]:
    keys = [key for key in settings.explicit if key.startswith("lora_") or key in ("load_in_4bit", "load_in_8bit")]
    if keys and settings.form != "python" and settings.explicit.get("use_peft") in (None, False):
        sentence = f"without use_peft {settings.name} makes no adapters: all weights are trained"
        yield LintMatch(keys[0], settings.explicit[keys[0]], sentence, "use_peft: true")


SHIPPED = "examples shipped with TRL 1.16.0, veRL, OpenRLHF [read]"
PRACTICE = "recommended range"
KL = "gradients of KL estimators: arXiv 2510.01555, 2512.21852"
RULES = (
    LintRule("lr-range", "note",
         "learning rates: 1e-6 to 5e-6 PPO, GRPO, RLOO; 1e-7 to 5e-7 DPO, KTO; 10 times more with LoRA", "all",
         _rate, f"{PRACTICE}; arXiv 2402.03300, 2310.16944; LoRA: {SHIPPED}", READ),
    LintRule("warmup-range", "note", "warm-up of 5 to 10 %", "RL, DPO, KTO", _warmup,
         f"{PRACTICE}; arXiv 2310.16944; KTO as shipped with TRL 1.16.0 [read]", READ),
    LintRule("schedule", "note", "cosine schedule", "RL, DPO, KTO", _schedule,
         f"{PRACTICE}; the default of OpenRLHF 0.11.2 [read]", READ),
    LintRule("critic-rate", "note", "value head at 2 to 5 times the policy's rate", "PPO", _critic,
         f"{PRACTICE}; veRL ships 10 times, OpenRLHF 18 [read]", READ),
    LintRule("batch-small", "note", "64 answers per update of PPO, 128 where groups are the baseline", "RL", _batch,
         f"{PRACTICE}; arXiv 2402.03300 has 1024", READ),
    LintRule("pair-batch", "note", "32 to 128 pairs per update", "DPO, KTO", _pair_batch,
         f"{PRACTICE}; arXiv 2305.18290, 2310.16944; OpenRLHF ships 256 [read]", READ),
    LintRule("beta-range", "note", "beta of 0.01 to 0.2", "RL, DPO, KTO", _beta,
         f"{PRACTICE}; arXiv 2203.02155, 2402.03300, 2305.18290", READ),
    LintRule("leash-off", "note", "no KL to a reference at all", "RL", _no_kl_penalty,
         "TRL 1.16.0 [ran]: beta 0 has no reference model; veRL 0.9.1, OpenRLHF 0.11.2 [read]", READ),
    LintRule("group-small", "note", f"groups under {SMALL_GROUP}, with their dead share p^G + (1-p)^G", "grouped RL",
         _group, "arithmetic", READ),
    LintRule("entropy-off", "note", "an entropy bonus that could not be turned on later", "PPO, GRPO", _entropy,
         "TRL 1.16.0 [ran]: ignored when started at 0; veRL, OpenRLHF [read]", READ),
    LintRule("reward-model-small", "note", "a reward model under a quarter of the policy's size", "RL", _reward_size,
         "arXiv 2210.10760: larger reward models are over-optimised later", READ),
    LintRule("kl-k3-as-loss", "note", "k3 as a loss", "veRL, OpenRLHF, TRL", _k3_as_loss, KL, READ),
    LintRule("kl-reward-estimator", "note", "another estimator than k1 in the reward", "veRL, OpenRLHF",
         _reward_estimator, KL, READ),
    LintRule("cut-sampling", "note", "top_p or top_k while training", "RL", _top_p,
         "arithmetic; github.com/huggingface/trl/issues/4772", READ),
    LintRule("no-checkpoints", "note", "nothing saved on the way", "RL, DPO, KTO", _no_checkpoints,
         "a rollback needs one: github.com/verl-project/verl/issues/4281", READ),
    LintRule("filter-on-reward", "note", "dynamic sampling on the reward", "veRL", _filter_on_reward,
         "github.com/verl-project/verl-recipe/pull/125", READ, ("verl",)),
    LintRule("same-files", "note", "validation on the training data", "veRL", _same_files,
         "arithmetic", READ, ("verl",)),
    LintRule("trl-no-reward", "note", "no reward in the file", "TRL GRPO, RLOO", _trl_reward,
         "TRL 1.16.0, scripts/grpo.py [read]", READ, ("trl",)),
    LintRule("sequence-ratios", "note", "whole-answer ratios with a token's loss or clip", "TRL GRPO", _sequence,
         "TRL 1.16.0, trainer/grpo_trainer.py:928; arXiv 2507.18071", READ, ("trl",)),
    LintRule("adapters-off", "note", "LoRA's settings without use_peft", "TRL", _adapters_off,
         "TRL 1.16.0, trainer/utils.py: get_peft_config [read]", READ, ("trl",)),
    LintRule("fp16", "note", "fp16", "all", _fp16, "arithmetic: the largest fp16 number is 65504", READ),
    LintRule("adaptive-kl", "note", "OpenRLHF's adaptive KL", "OpenRLHF", _adaptive,
         "OpenRLHF 0.11.2, trainer/ppo_trainer.py:252 [read]", READ, ("openrlhf",)),
)  # fmt: skip
