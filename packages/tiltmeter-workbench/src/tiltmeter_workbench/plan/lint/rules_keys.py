"""Lint errors for what a trainer does not have or refuses at once: unknown keys, values, methods and combinations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from tiltmeter_workbench.plan.lint.rule import LintMatch, LintRule, format_value
from tiltmeter_workbench.plan.settings.trainer_settings import NAMES, TrainerSettings, trainer_tables
from tiltmeter_workbench.plan.settings.verl import METHODS

READ = "2026-11-16"
PACKAGES = "the packages of TRL 1.16.0, veRL 0.9.1 and OpenRLHF 0.11.2 [read]"
TRL = "TRL 1.16.0, trainer/*_config.py [read]"

ESTIMATORS = frozenset(METHODS)
#: Values that are taken from a closed list, where the trainer's table does not say so itself.
CHOICES: Mapping[tuple[str, str, str], tuple[Any, ...]] = {
    ("trl", "grpo", "loss_type"): ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    ("trl", "grpo", "scale_rewards"): ("group", "batch", "none", True, False),
    ("trl", "grpo", "importance_sampling_level"): ("token", "sequence"),
    ("trl", "grpo", "vllm_mode"): ("colocate", "server"),
    ("trl", "rloo", "vllm_mode"): ("colocate", "server"),
    ("trl", "dpo", "loss_type"): (
        *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired"),
        *("apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"),
    ),
    ("verl", "", "actor_rollout_ref.actor.kl_loss_type"): (
        *(
            "kl",
            "k1",
            "abs",
            "mse",
            "k2",
            "low_var_kl",
            "k3",
            "kl+",
            "k1+",
            "abs+",
            "low_var_kl+",
            "k3+",
            "mse+",
            "k2+",
        ),
    ),
    ("verl", "", "algorithm.kl_penalty"): ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"),
    ("verl", "", "actor_rollout_ref.actor.loss_agg_mode"): (
        *("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
    ),
    ("verl", "", "algorithm.kl_ctrl.type"): ("fixed", "adaptive"),
}


def distance(one: str, other: str) -> int:
    """Edit distance: letters to change, add, leave out or swap to turn one word into the other.

    >>> distance("entropy_coef", "entropy_coeff"), distance("lenght", "length"), distance("beta", "beta")
    (1, 1, 0)
    """
    rows = [list(range(len(other) + 1))]
    for at, letter in enumerate(one, 1):
        row = [at]
        for to, with_letter in enumerate(other, 1):
            best = min(rows[-1][to] + 1, row[-1] + 1, rows[-1][to - 1] + (letter != with_letter))
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == with_letter:
                best = min(best, rows[-2][to - 2] + 1)
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


@cache
def fields(trainer: str, method: str) -> frozenset[str]:
    """Every key of a trainer's version, for a method where they differ."""
    table = trainer_tables()[trainer]
    methods = table["methods"]
    own = [methods[method]] if method in methods else list(methods.values())
    return frozenset({*table.get("shared", {}), *(key for one in own for key in one)})


def nearest_key(key: str, among: frozenset[str]) -> str | None:
    """The closest known key in the same group: edit distance 1, or 2 in a long word."""
    group, _, last = key.rpartition(".")
    allowed = 0 if len(last) < 4 or len(last) > 60 else 1 if len(last) < 8 else 2
    near = []
    for other in among:
        other_group, _, word = other.rpartition(".")
        if other_group == group and abs(len(word) - len(last)) <= allowed and word != last:
            far = distance(last, word)
            if far <= allowed:
                near.append((far, other))
    return min(near)[1] if near else None


def _misspelt_keys(settings: TrainerSettings) -> Iterator[LintMatch]:
    among = fields(settings.trainer, settings.method)
    for key in settings.unknown[:50]:
        suggestion = nearest_key(key, among)
        if suggestion is not None:
            ends = "it stops, or with a plus in front nobody reads it" if settings.trainer == "verl" else "it stops"
            sentence = f"{settings.name} has no setting {format_value(key)}: {ends}"
            yield LintMatch(format_value(key), settings.explicit.get(key), sentence, f"write {suggestion}")


def _unknown_keys(settings: TrainerSettings) -> Iterator[LintMatch]:
    among = fields(settings.trainer, settings.method)
    rest = [key for key in settings.unknown[:50] if nearest_key(key, among) is None]
    if rest:
        names = ", ".join(format_value(key) for key in rest[:6]) + (
            f" and {len(rest) - 6} more" if len(rest) > 6 else ""
        )
        yield LintMatch(
            format_value(rest[0]),
            settings.explicit.get(rest[0]),
            f"not among the settings of {settings.name}: {names}",
            "leave them out, unless your script or your version of the trainer reads them",
        )


def _removed_keys(settings: TrainerSettings) -> Iterator[LintMatch]:
    for key, what in (settings.gone or {}).items():
        sentence = f"{key} is gone: {settings.name} stops at the start"
        yield LintMatch(key, settings.explicit.get(key), sentence, f"take it out; {what}")


def _old_names(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.on("old_names"):
        yield LintMatch(
            settings.key("old_names"),
            None,
            f"the options have the names of an older OpenRLHF; {settings.version} has dots in them and refuses these",
            "keep to the version it was written for, or rename them (`--actor.adam.lr` was `--actor_learning_rate`)",
        )


def _no_ppo(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.method == "ppo":
        yield LintMatch(
            "PPOConfig" if settings.form == "python" else "ppo",
            None,
            f"{settings.name} has no PPO, neither in trl.trainer nor in trl.experimental",
            "GRPO or RLOO in TRL, or PPO with veRL (algorithm.adv_estimator=gae) or OpenRLHF",
        )


def _choice(settings: TrainerSettings) -> Iterator[LintMatch]:
    table = trainer_tables()[settings.trainer].get("choices", {})
    lists = {key: tuple(values) for key, values in table.items()}
    lists |= {
        key: values
        for (trainer, method, key), values in CHOICES.items()
        if trainer == settings.trainer and method in ("", settings.method)
    }
    for key, allowed in lists.items():
        value = settings.explicit.get(key)
        words = value if isinstance(value, list) else [value]
        wrong = [word for word in words if isinstance(word, str) and word not in allowed]
        if wrong:
            names = ", ".join(str(one) for one in allowed if isinstance(one, str))
            yield LintMatch(
                key, value, f"{settings.name} does not know {key} {format_value(wrong[0])}", f"one of {names}"
            )


def _estimator(settings: TrainerSettings) -> Iterator[LintMatch]:
    """veRL lets anybody register an estimator, so only a likely misspelling is reported."""
    word = settings.text("estimator")
    if word and word not in ESTIMATORS:
        suggestion = nearest_key(word, ESTIMATORS)
        if suggestion is not None:
            sentence = f"{settings.name} knows no advantage estimator {format_value(word)}"
            yield LintMatch(settings.key("estimator"), word, sentence, suggestion)


def _sync_rollout(settings: TrainerSettings) -> Iterator[LintMatch]:
    key = "actor_rollout_ref.rollout.mode"
    if settings.explicit.get(key) == "sync":
        yield LintMatch(
            key, "sync", f"{settings.name} has no rollouts of mode sync any more and stops", "leave the key out"
        )


def _generation_sizes(settings: TrainerSettings) -> Iterator[LintMatch]:
    both = ("generation_batch_size", "steps_per_generation")
    if all(settings.explicit.get(key) is not None for key in both):
        sentence = f"{settings.name} takes generation_batch_size or steps_per_generation, and stops when both are set"
        yield LintMatch(both[0], settings.explicit[both[0]], sentence, "keep one of the two")


def _auto_batch(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.explicit.get("auto_find_batch_size") is True and settings.method in ("grpo", "rloo"):
        yield LintMatch(
            "auto_find_batch_size",
            True,
            f"a batch that shrinks would cut groups apart, so {settings.name} refuses it",
            "turn it off and lower per_device_train_batch_size",
        )


def _half_twice(settings: TrainerSettings) -> Iterator[LintMatch]:
    if settings.explicit.get("fp16") is True and settings.explicit.get("bf16") is True:
        yield LintMatch("fp16", True, "fp16 and bf16 exclude each other, and both are on", "keep bf16")


def _reward_weights(settings: TrainerSettings) -> Iterator[LintMatch]:
    weights, rewards = settings.explicit.get("reward_weights"), settings.explicit.get("reward_funcs")
    if isinstance(weights, list) and isinstance(rewards, list):
        number = len(rewards) + bool(settings.explicit.get("reward_model_name_or_path"))
        if len(weights) != number:
            sentence = f"{len(weights)} weights for {number} rewards: {settings.name} stops"
            yield LintMatch("reward_weights", weights, sentence, "one weight for each reward")


def _async_sleep(settings: TrainerSettings) -> Iterator[LintMatch]:
    explicit = settings.explicit
    if explicit.get("train.async_enable") is True and explicit.get("vllm.enable_sleep") is True:
        if explicit.get("train.colocate_all") is True:
            sentence = f"engines that sleep while it trains cannot generate beside training: {settings.name} stops"
            yield LintMatch(
                "vllm.enable_sleep", True, sentence, "leave out --vllm.enable_sleep or --train.async_enable"
            )
    elif explicit.get("train.partial_rollout_enable") is True and explicit.get("train.async_enable") is not True:
        sentence = f"{settings.name} has partial rollouts only when it trains asynchronously, and stops"
        yield LintMatch("train.partial_rollout_enable", True, sentence, "add --train.async_enable")


def _no_reward(settings: TrainerSettings) -> Iterator[LintMatch]:
    sources = ("reward.model_name_or_path", "reward.remote_url", "train.agent_func_path")
    if settings.method in ("dpo", "reward", "sft") or any(settings.explicit.get(key) for key in sources):
        return
    if settings.form == "shell":
        sentence = f"there is no reward: {settings.name} stops, or goes on with no reward at all"
        yield LintMatch(sources[0], None, sentence, "give --reward.model_name_or_path, --reward.remote_url or an agent")


RULES = (
    LintRule("unknown-key", "error", "a misspelt key", "all", _misspelt_keys, PACKAGES, READ),
    LintRule("gone-key", "error", "a key that an earlier version had", NAMES["trl"], _removed_keys,
         TRL, READ, ("trl",)),
    LintRule("trl-no-ppo", "error", "PPO asked of TRL", "TRL", _no_ppo,
         "TRL 1.16.0 [ran]: no module of that name", READ, ("trl",)),
    LintRule("bad-choice", "error", "a value that is not on the list", "all", _choice, PACKAGES, READ),
    LintRule("bad-estimator", "error", "a misspelt advantage estimator", "veRL", _estimator,
         "veRL 0.9.1, trainer/ppo/core_algos.py [read]", READ, ("verl",)),
    LintRule("verl-sync-rollout", "error", "rollouts of mode sync", "veRL", _sync_rollout,
         "veRL 0.9.1, workers/config/rollout.py [read]", READ, ("verl",)),
    LintRule("generation-sizes", "error", "two settings for one size", "TRL GRPO, RLOO", _generation_sizes,
         TRL, READ, ("trl",)),
    LintRule("auto-batch", "error", "batches that shrink by themselves", "TRL GRPO, RLOO", _auto_batch,
         TRL, READ, ("trl",)),
    LintRule("half-twice", "error", "fp16 and bf16 at once", "TRL", _half_twice,
         "transformers 5 [read]", READ, ("trl",)),
    LintRule("reward-weights", "error", "as many weights as rewards", "TRL GRPO, RLOO", _reward_weights,
         "TRL 1.16.0, trainer/grpo_trainer.py [read]", READ, ("trl",)),
    LintRule("async-sleep", "error", "asynchronous training against what it excludes", "OpenRLHF", _async_sleep,
         "OpenRLHF 0.11.2, cli/train_ppo_ray.py [read]", READ, ("openrlhf",)),
    LintRule("no-reward", "error", "no source of reward", "OpenRLHF, shell", _no_reward,
         "OpenRLHF 0.11.2, cli/train_ppo_ray.py [read]", READ, ("openrlhf",)),
    LintRule("other-key", "note", "a key this version does not have", "all", _unknown_keys, PACKAGES, READ),
    LintRule("old-names", "note", "options named before they had dots", "OpenRLHF", _old_names,
         PACKAGES, READ, ("openrlhf",)),
)  # fmt: skip
