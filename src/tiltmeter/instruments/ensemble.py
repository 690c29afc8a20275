"""Whether several reward models agree."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.ensembles import disagreement

LEAST = 3  # members


class EnsembleDisagreement:
    """Standard deviation over the members of a reward ensemble, on all completions and on the best-paid tenth.

    Members that learnt the same task differ where they were not taught. When `top` rises above `all`, the completions
    that win are those the members know least about. When both rise together the innocent cause is new prompts. Errors
    that all members share stay invisible. Members are reward functions whose names are equal up to the last dot
    ("helpful.0", "helpful.1", "helpful.2"), at least three; do not name the parts of one reward that way. Of several
    ensembles the mean is taken.

    Formula: sd_m( (r_mi - mean0_m) / sd0_m ), population form, mean0 and sd0 those of member m on the baseline; `top`
    only for completions at or above the 90th percentile of the reward
    Source: Coste et al. 2023, arXiv 2310.02743; shared errors: Eisenstein et al. 2023, arXiv 2312.09244

    >>> from tiltmeter.data.batches import from_columns
    >>> def step(**scores): return from_columns(0, [0, 0], reward=[0, 1], rewards=scores)
    >>> start = step(**{"h.0": [0, 2], "h.1": [0, 2], "h.2": [0, 2]})
    >>> now = step(**{"h.0": [1, 3], "h.1": [1, 3], "h.2": [1, 6]})
    >>> {part: v.round(3).tolist() for part, v in EnsembleDisagreement().measure(now, Baseline(start)).items()}
    {'all': [0.0, 1.414], 'top': [nan, 1.414]}
    """

    name = "reward.disagreement"
    grain = "rollout"
    needs = ("reward", "rewards")
    bounds = (0.0, None)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.reward is not None
        nothing = np.full(len(batch), np.nan)
        is_scored = np.isfinite(batch.reward)
        if baseline is None or not is_scored.any():
            return {"all": nothing, "top": nothing}
        scales = baseline.once(_scales)
        families: dict[str, list[Floats]] = {}
        for name, scores in batch.rewards.items():
            if name in scales and "." in name:
                mean, sd = scales[name]
                families.setdefault(name.rpartition(".")[0], []).append((scores - mean) / sd)
        spreads = [disagreement(np.array(members), LEAST) for members in families.values() if len(members) >= LEAST]
        if not spreads:
            return {"all": nothing, "top": nothing}
        spread = np.where(is_scored, np.mean(spreads, axis=0), np.nan)
        limit = np.quantile(batch.reward[is_scored], 0.9, method="higher")
        return {"all": spread, "top": np.where(is_scored & (batch.reward >= limit), spread, np.nan)}


def _scales(batch: RolloutBatch) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of every reward function that varies."""
    scales = {}
    for name, scores in batch.rewards.items():
        scores = scores[np.isfinite(scores)]
        if len(scores) and scores.std() > 1e-9 * (1.0 + abs(scores.mean())):
            scales[name] = float(scores.mean()), float(scores.std())
    return scales
