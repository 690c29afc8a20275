"""A scenario as an unmodified TRL trainer, ready for `train()` or for `tiltmeter.attach`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiltmeter_lab.tiny.rewards import LIMIT
from tiltmeter_lab.tiny.scenarios import Scenario

if TYPE_CHECKING:
    from trl import GRPOTrainer


def schedule(scenario: Scenario, seed: int, steps: int, groups: int) -> list[str]:
    """The prompt of every group of the run, in order: whole shuffled rounds of the prompts of each part.

    >>> from tiltmeter_lab.tiny.scenarios import scenario
    >>> prompts = schedule(scenario("curriculum"), seed=0, steps=10, groups=2)
    >>> len(prompts), sorted({prompt.split()[1] for prompt in prompts[:10]})
    (20, ['color', 'taste'])
    """
    rng = random.Random(f"schedule/{seed}")
    parts = scenario.prompts
    chosen: list[str] = []
    for at, prompts in enumerate(parts):
        end = steps * (at + 1) // len(parts) * groups
        while len(chosen) < end:
            chosen += rng.sample(prompts, len(prompts))
        del chosen[end:]
    return chosen


def make_trainer(
    scenario: Scenario,
    seed: int,
    folder: str | Path,
    *,
    base: str | Path,
    steps: int = 200,
    rollouts: int = 64,
    group_size: int = 8,
    columns: Mapping[str, Callable[[str], Any]] | None = None,
    **changes: Any,
) -> GRPOTrainer:
    """The trainer of a scenario. `base` is the folder of `model.base_policy`; `columns` are further columns of the
    dataset, each made of the prompt; `changes` are settings of GRPOConfig.

    `beta` is small and not 0, so that the KL to the reference is measured and can be raised during the run.
    """
    from datasets import Dataset
    from transformers import AutoTokenizer
    from transformers.utils import logging
    from trl import GRPOConfig, GRPOTrainer

    logging.disable_progress_bar()
    settings: dict[str, Any] = {
        "output_dir": str(folder),
        "seed": seed,
        "max_steps": steps,
        "logging_steps": 1,
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "per_device_train_batch_size": rollouts,
        "num_generations": group_size,
        "max_completion_length": LIMIT,
        "save_strategy": "no",
        "lr_scheduler_type": "constant_with_warmup",
        "beta": 0.005,
        "shuffle_dataset": False,
        **scenario.settings,
        **changes,
    }
    prompts = schedule(scenario, seed, steps, rollouts // group_size)
    more = {name: [make(prompt) for prompt in prompts] for name, make in (columns or {}).items()}
    return GRPOTrainer(
        model=str(base),
        args=GRPOConfig(**settings),
        reward_funcs=list(scenario.rewards),
        train_dataset=Dataset.from_dict({"prompt": prompts, **more}),
        processing_class=AutoTokenizer.from_pretrained(str(base)),
    )
