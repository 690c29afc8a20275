"""What a TRL trainer holds that can serve as gold: reward functions, rows of its dataset, evaluations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter.gold.find_gold import ROWS, TrainingSetup
from tiltmeter.models.judge import read_judge
from tiltmeter.models.judge_cost import CHARACTERS, JudgeCost, judge_cost


def run_facts(trainer: Any) -> TrainingSetup:
    """The facts by which gold is found. Nothing of the user's is run: a dataset's own transforms are left out."""
    weights = [float(weight) for weight in trainer.reward_weights]
    named = list(zip(trainer.reward_func_names, trainer.reward_funcs, weights, strict=True))
    dataset = trainer.train_dataset
    evaluates = str(getattr(trainer.args.eval_strategy, "value", trainer.args.eval_strategy)) != "no"
    return TrainingSetup(
        {name: function for name, function, weight in named if weight != 0.0},
        [name for name, _, weight in named if weight == 0.0],
        _some_rows(dataset),
        [] if dataset is None else list(dataset.column_names or ()),
        evaluates and trainer.eval_dataset is not None,
    )


def rows_for_gold(trainer: Any) -> list[Mapping[str, Any]]:
    """Rows to try gold on; none where further columns may come with a rollout."""
    return [] if adds_columns(trainer) else _some_rows(trainer.train_dataset)


def adds_columns(trainer: Any) -> bool:
    """Whether reward functions may be handed more than the dataset has."""
    return any(vars(trainer).get(name) for name in ("rollout_func", "environment_factories", "environments"))


def check_unpaid(trainer: Any, name: str) -> None:
    """Raise `AttachError` unless this is a reward function that training does not use."""
    weights = dict(zip(trainer.reward_func_names, map(float, trainer.reward_weights), strict=True))
    if name not in weights:
        raise AttachError(f'gold="reward:{name}": there is no such reward function; there are {", ".join(weights)}')
    if weights[name] != 0.0:
        raise AttachError(
            f'gold="reward:{name}": the policy is trained on it, so it cannot be gold; its reward_weights must be 0'
        )


def judge_cost_of(trainer: Any, file: str, share: float, steps: int | None) -> JudgeCost:
    """What the judge that a file describes will cost this training."""
    args, prompts = trainer.args, [str(row.get("prompt", "")) for row in _some_rows(trainer.train_dataset)]
    characters = float(np.mean([len(prompt) for prompt in prompts])) if prompts else 0.0
    return judge_cost(
        read_judge(file),
        rollouts=rows_of_step(trainer),
        share=share,
        steps=steps,
        prompt_tokens=characters / CHARACTERS,
        completion_tokens=float(getattr(args, "max_completion_length", None) or 0),
    )


def rows_of_step(trainer: Any) -> int:
    """Completions of an optimiser step, over all ranks."""
    args = trainer.args
    return int(args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps)


def _some_rows(dataset: Any) -> list[Mapping[str, Any]]:
    """Rows spread over a dataset; none of one that is streamed: to look at it is to download it."""
    from datasets import Dataset

    if not isinstance(dataset, Dataset) or not len(dataset):
        return []
    plain = dataset.with_format(None)
    chosen = np.unique(np.linspace(0, len(plain) - 1, ROWS).astype(int))
    return [plain[int(at)] for at in chosen]
