"""Upper tail of the reward."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.tails import prompt_tail, tail_readings


class RewardTail:
    """Upper tail of the reward within prompts: `verdict` (-1 light, 0 cannot tell, 1 heavy), and at its top tenth the
    coefficient of variation of the excesses (`cv`, 1 for an exponential tail) and the tail index (`moment`, `hill`).

    If a reward's error is heavy-tailed, a policy can gain without bound at a vanishing KL: no KL penalty holds it, and
    the remedy is a bounded reward. One step mostly cannot tell: for the right verdict in 95 % of samples, normal
    rewards (light) take about 6,000 completions, a Student t of two degrees of freedom (heavy) about 1,000. Innocent
    causes: prompts of different scale look heavy (then mostly 0), clipped rewards and low temperatures look light. No
    verdict below 100 scored completions (20 at a visible bound, which is light), without spread, or with more than 10 %
    of the tail in one value.

    Formula: sqrt(k) (CV - 1) of the k excesses over the top 20, 10, 5 and 2.5 % of the rewards less their group's
    median. Heavy: the largest is above its 99 % point under exponential tails, and CV > 1 at the two highest thresholds
    with 50 excesses. Light: the second smallest is below its 1 % point, or the maximum is an atom. Else, or where the
    moment estimator disagrees, cannot tell
    Source: arXiv 2407.14503 for why; del Castillo, Daoudi and Lockhart 2014 for the test; Dekkers, Einmahl and de Haan
    1989

    >>> import numpy as np
    >>> from tiltmeter.data.batches import from_columns
    >>> reward = np.random.default_rng(0).pareto(1.5, 1024)
    >>> readings = RewardTail().measure(from_columns(0, np.repeat(range(64), 16), reward=reward), None)
    >>> readings["verdict"].tolist(), sorted(readings)
    ([1.0], ['cv', 'hill', 'moment', 'verdict'])
    """

    name = "reward.tail"
    grain = "batch"
    needs = ("reward",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.reward is not None
        return tail_readings(prompt_tail(batch.reward, batch.starts))
