"""The readings of a step by slice: what is bet on, the means of some instruments, and which tasks are paid."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, Reading, RolloutBatch
from tiltmeter.data.slices import (
    bets_by_slice,
    group_slices,
    means_by_slice,
    overpay_by_slice,
    prompts_by_slice,
    row_slices,
    row_tasks,
    with_single_readings,
)
from tiltmeter.instruments import Instrument
from tiltmeter.instruments.gold_overpay import GoldOverpay

#: What is read of slices that were not named: overpay finds what the slope and the level do, and costs less.
BY_FACTS = ("reward.mean", "gold.mean", "gold.overpay")


def slice_readings(
    part: Instrument,
    batch: RolloutBatch,
    of_all: Reading,
    values: Floats,
    weights: Floats | None,
    baseline: Baseline | None,
    first_steps: Baseline | None,
) -> list[Reading]:
    """The same reading by slice: what is bet on, and of `by_slice` parts the means. `baseline`: what the part may
    compare with; `first_steps`: the same, by whose facts rows are divided whatever the part compares."""
    first_steps = first_steps if part.name in BY_FACTS else None
    is_bet = getattr(part, "audited", False) and part.grain == "group"
    if not is_bet and not getattr(part, "by_slice", False):
        return []
    if not is_bet:
        slices, tasks = row_slices(batch, first_steps), row_tasks(batch) if part.name == "reward.mean" else None
        means = None if slices is None else means_by_slice(of_all, values, slices, weights)
        paid = None if tasks is None else _paid_by_task(of_all, values, tasks)
        return [one for one in (means, paid) if one is not None]
    slices = group_slices(batch, first_steps)
    if slices is None:
        return []
    if isinstance(part, GoldOverpay):
        return with_single_readings(overpay_by_slice(of_all, values, part.labels(batch, baseline), slices))
    if not getattr(part, "by_prompt", False):
        return with_single_readings(bets_by_slice(of_all, values.tolist(), slices))
    groups = np.flatnonzero(np.isfinite(values)).tolist()
    size = int(np.diff(batch.starts)[groups[0]])
    numbers = {group: prompt_number(batch, group) for group in groups}
    return with_single_readings(prompts_by_slice(of_all, values.tolist(), numbers, slices, size))


def _paid_by_task(of_all: Reading, reward: Floats, tasks: Sequence[str]) -> Reading | None:
    """The share of each task's rollouts that are paid, where rewards lie in [0, 1]: half of the most, or more."""
    finite = np.isfinite(reward)
    if not ((reward[finite] >= 0.0) & (reward[finite] <= 1.0)).all():
        return None
    paid = np.where(finite, reward >= 0.5, np.nan)
    return means_by_slice(replace(of_all, name="task.paid"), paid, tasks, None)


def prompt_number(batch: RolloutBatch, group: int) -> int:
    """A number that is equal where the prompt is, of 48 bits, so that JSON holds it exactly; one that is equal to no
    other where the prompt is not known.

    >>> from tiltmeter.data.batches import from_columns
    >>> prompt_number(from_columns(0, [0], prompt=["2 + 2?"]), 0)
    96602473540332
    """
    text = None if batch.prompt is None else batch.prompt[int(batch.starts[group])]
    name = f"{batch.step}-{group}" if text is None else f"prompt {text}"
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=6).digest())
