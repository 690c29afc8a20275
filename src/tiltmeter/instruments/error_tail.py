"""Upper tail of the reward's error against gold."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.tails import prompt_tail, tail_readings


class ErrorTail:
    """Upper tail of the reward's error, that is of what it pays above gold, on labelled completions: `verdict` (-1
    light, 0 cannot tell, 1 heavy), and at its top tenth `cv`, `moment` and `hill` as in `reward.tail`.

    It is the error, not the reward, whose tail decides whether a KL penalty protects: completions far above what they
    deserve are what a policy is pulled towards. Gold is bounded, so a heavy verdict here is one about the reward;
    rewards that are high because gold is high count less. Traps: labels are few, so this is mostly "cannot tell" (0) or
    nothing; where labels are asked for more often at high rewards, the tail seen is that of the labelled; and prompts
    of different scale look heavy, as in `reward.tail`.

    Formula: tail of (reward - median) / IQR - (gold - mean) / sd over labelled completions, as in `reward.tail`
    Source: arXiv 2407.14503

    >>> from tiltmeter.data.batches import from_columns
    >>> rng = np.random.default_rng(0)
    >>> batch = from_columns(0, [0] * 2000, reward=rng.pareto(1.5, 2000), gold=rng.random(2000) < 0.5)
    >>> ErrorTail().measure(batch, None)["verdict"].tolist()
    [1.0]
    """

    name = "gold.error_tail"
    grain = "batch"
    needs = ("reward", "gold")
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.reward is not None
        assert batch.gold is not None
        labelled = np.isfinite(batch.reward) & np.isfinite(batch.gold)
        error = np.full(len(batch), np.nan)
        if labelled.any():
            reward, gold = batch.reward[labelled], batch.gold[labelled]
            low, middle, high = np.quantile(reward / 2, (0.25, 0.5, 0.75))  # halved: a difference must not overflow
            sd = float(gold.std())
            if high > low and sd > 1e-9:
                error[labelled] = (reward / 2 - middle) / (high - low) - (gold - gold.mean()) / sd
        return tail_readings(prompt_tail(error, batch.starts))
