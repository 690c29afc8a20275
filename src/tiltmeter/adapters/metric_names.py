"""The table of metric names: trainers' keys and the canonical name of each, for live runs and files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

MOST_METRICS = 10_000  # of one step

#: Columns that say which step a row belongs to, best first. A tracker's own `_step` counts calls, not updates.
STEP_COLUMNS = (
    *("train/global_step", "trainer/global_step", "training/global_step", "global_step", "step", "trainer/step"),
    *("train/step", "training_step", "train_step", "iteration", "iter", "update", "rollout_id", "rollout/step"),
    "_step",
)

#: By canonical name the keys that mean it, best first; `train/` in front of a key is taken off before it is looked up.
#: [read] in the trainers' sources, except TRL's, which were recorded. Names lie, so some are absent on purpose:
#: prime-rl's `ref_kl` has the other sign. `actor/ppo_kl` is no KL to the reference, and `entropy_loss` is no loss.
ALIASES: Mapping[str, tuple[str, ...]] = {
    "reward": (
        *("reward", "critic/score/mean", "reward/avg_raw_reward", "rollout/reward_mean", "rollout/raw_reward"),
        *("agg/all/reward/mean", "ppo_actor/task_reward/avg", "ppo_actor/task_reward", "mean_reward", "reward_mean"),
        *("reward/mean", "rewards/mean"),
    ),
    "reward_std": ("reward_std", "rollout/reward_std", "reward/std", "group_reward_std"),
    "kl_ref": (
        *("kl_ref", "kl", "actor/reward_kl_penalty", "actor/kl_loss", "loss/avg_kl", "policy/policy_kl", "kl_penalty"),
        *("objective/kl2_avg", "objective/kl", "kl_loss"),
    ),
    "kl_old_new": (
        *("kl_old_new", "actor/ppo_kl", "ppo_kl"),
        *("ppo_actor/update/approx_kl/avg", "ppo_actor/update/approx_kl"),
    ),
    "kl_engine_trainer": (
        *("kl_engine_trainer", "sampling/sampling_logp_difference/mean", "rollout_corr/kl", "vllm_kl", "gen_kl_error"),
        *("mismatch_kl/all/mean", "policy/rollout_train_logprobs_abs_diff_mean", "train_rollout_logprob_abs_diff"),
        *("debug/vllm_local_reverse_kl", "ppo_actor/update/behave_approx_kl/avg"),
    ),
    "entropy": (
        *("entropy", "actor/entropy", "actor/entropy_loss", "policy_entropy", "policy/policy_entropy", "entropy_loss"),
        *("entropy/all/mean", "policy/entropy_avg", "approx_entropy", "ppo_actor/update/entropy/avg"),
        "ppo_actor/update/entropy",
    ),
    "dead_group_share": ("dead_group_share", "frac_reward_zero_std"),
    "truncated_share": (
        *("truncated_share", "completions/clipped_ratio", "response_length/clip_ratio", "response_clip_ratio"),
        *("rollout/truncated_rate", "rollout/truncated_ratio", "agg/all/is_truncated/mean"),
    ),
    "clip_share": (
        *("clip_share", "clip_ratio/region_mean", "actor/pg_clipfrac", "ppo_clip_ratio", "policy/clipfrac_avg"),
        "ppo_actor/update/clip_ratio/avg",
    ),
    "length_mean": (
        *("length_mean", "completions/mean_length", "response_length/mean", "rollout/response_length_mean"),
        *("generate/avg_num_tokens", "agg/all/num_output_tokens/mean", "completion_length"),
    ),
    "beta": ("beta", "actor/reward_kl_penalty_coeff", "actor/kl_coef", "loss/kl_loss_coef"),
    "entropy_coef": ("entropy_coef",),
    "learning_rate": ("learning_rate", "lr", "actor/lr", "actor_lr"),
    "loss": ("loss", "actor/loss"),
    "policy_loss": ("policy_loss", "actor/pg_loss", "policy/policy_loss", "pg_loss"),
    "value_loss": ("value_loss", "critic/vf_loss", "critic_loss"),
    "grad_norm": ("grad_norm", "actor/grad_norm", "actor_grad_norm"),
    "step_seconds": ("step_seconds", "step_time", "timing_s/step", "timing/step_total"),
    "margin": ("margin", "rewards/margins"),
    "accuracy": ("accuracy", "rewards/accuracies"),
    "chosen_reward": ("chosen_reward", "rewards/chosen"),
    "rejected_reward": ("rejected_reward", "rewards/rejected"),
    "chosen_logprob": ("chosen_logprob", "logps/chosen"),
    "rejected_logprob": ("rejected_logprob", "logps/rejected"),
    "token_accuracy": ("token_accuracy", "mean_token_accuracy"),
}

#: A tracker's own columns, which measure nothing.
BOOKKEEPING = frozenset({"_timestamp", "_runtime", "_step", "_wandb"})
#: Columns that may differ between rows of one step: a change in them does not mean that the step was repeated.
CLOCKS = BOOKKEEPING | {"epoch", "train/epoch", "time", "timestamp", "wall_time"}


#: Evaluations of held-out items that are shares of right answers, by how trainers name them: TRL and OpenRLHF
#: `eval_NAME`, prime-rl `eval/ENV/NAME`, veRL `val-core/SOURCE/acc/mean@N`. Loss, lengths and rewards are none.
_EVALUATION = re.compile(r"(?:eval[_/]|val-core/)(?P<name>.+)")
_SHARE_OF_RIGHT = re.compile(
    r"(?:^|[_/ -])(?:acc|accuracy|exact_match|em|pass@?1|pass_rate|solve_rate|success|success_rate|win_rate)"
    r"(?:/mean@\d+)?$"
)


def evaluation_keys(metrics: Mapping[str, Any]) -> list[str]:
    """The keys of metrics whose meaning is plain: the share of held-out items that are right, from 0 to 1.

    A reward on held-out prompts is none, whatever it is called: a hack raises it as well.

    >>> evaluation_keys({"eval_accuracy": 0.4, "eval_loss": 0.3, "eval_rewards/accuracy/mean": 0.5, "accuracy": 0.2})
    ['eval_accuracy']
    >>> evaluation_keys({"val-core/gsm8k/acc/mean@4": 0.5, "val-core/gsm8k/reward/mean@4": 0.5, "eval_acc": 71.0})
    ['val-core/gsm8k/acc/mean@4']
    """
    return [key for key, value in first_metrics(metrics).items() if _is_share_of_right(key, value)]


def _is_share_of_right(key: object, value: object) -> bool:
    match = _EVALUATION.fullmatch(key) if isinstance(key, str) else None
    if match is None or "reward" in match["name"] or not _SHARE_OF_RIGHT.search(match["name"]):
        return False
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value <= 1.0


def step_column(columns: Collection[str], requested: str | None = None) -> str | None:
    """The column that counts steps: the requested one, else the best known name among these.

    >>> step_column({"reward", "_step", "train/global_step"}), step_column({"reward"})
    ('train/global_step', None)
    """
    if requested is not None:
        return requested if requested in columns else None
    return next((name for name in STEP_COLUMNS if name in columns), None)


def first_metrics(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """What a trainer logged, as a dict: of a mapping without end only the first."""
    return dict(islice(metrics.items(), MOST_METRICS))


def canonical_names(columns: Collection[str], requested: Mapping[str, str] | None = None) -> dict[str, str]:
    """The columns that have a canonical name, with that name; of several that mean the same, the best.

    >>> canonical_names(["actor/ppo_kl", "actor/kl_loss", "actor/reward_kl_penalty", "perf/mfu"])
    {'actor/reward_kl_penalty': 'kl_ref', 'actor/ppo_kl': 'kl_old_new'}
    """
    chosen = requested or {}
    names = {theirs: ours for ours, theirs in chosen.items()}
    plain = {column.removeprefix("train/"): column for column in sorted(columns, reverse=True)}
    for ours, keys in ALIASES.items():
        if ours in chosen:
            continue
        best = next((plain[key] for key in keys if key in plain and plain[key] not in names), None)
        if best is not None:
            names[best] = ours
    return names


def translation(columns: Collection[str], requested: Mapping[str, str]) -> dict[str, str]:
    """For each column its canonical name, or its own; the user's choices come first, each name is used once.

    >>> names = translation(["train/kl", "proxy_g", "reward", "my/own"], {"reward": "proxy_g"})
    >>> [names[name] for name in ("train/kl", "proxy_g", "reward", "my/own")]
    ['kl_ref', 'reward', 'file.reward', 'my/own']
    """
    names = canonical_names(columns, requested)
    used = set(names.values())
    # A column whose own name is a canonical name that another column took gets the prefix `file.`.
    return {column: names.get(column) or (f"file.{column}" if column in used else column) for column in columns}
