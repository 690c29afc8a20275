"""Whether a few completions can be paid without limit."""

from __future__ import annotations

from tiltmeter.baseline import Baseline
from tiltmeter.records import Floats, RolloutBatch
from tiltmeter.stats.tails import prompt_tail, tail_readings


class RewardTail:
    """Upper tail of the reward within prompts: `verdict` (-1 light, 0 cannot tell, 1 heavy), and at its top tenth the
    coefficient of variation of the excesses (`cv`, 1 for an exponential tail) and the tail index by the `moment` and
    the `hill` estimator.

    If the error of a reward is heavy-tailed, a policy can gain without bound at a vanishing KL and no KL penalty holds
    it: collapse is then a cliff, and the remedy is a bounded reward, not a larger beta. Reward models measured so far
    look light. A step of a few hundred rollouts rarely tells: normal rewards take about 6,000 to be called light, a
    Student t with two degrees of freedom about 1,000 to be called heavy. Traps: prompts of different scale fake a
    heavy tail (then the verdict is 0 unless groups are large), clipped rewards and low temperatures look light, and n
    samples reach only a KL of ln n. No verdict below 100 scored completions (20 if the reward visibly reaches a bound,
    which is light), without spread, or with more than 10 % of the tail in one value.

    Formula: sqrt(k) (sd / mean - 1) of the k excesses over the top 20, 10, 5 and 2.5 %, against exponential tails
    Source: 2407.14503 for why; del Castillo, Daoudi and Lockhart 2014 for the test; Dekkers, Einmahl and de Haan 1989

    >>> import numpy as np
    >>> from tiltmeter.batches import from_columns
    >>> reward = np.random.default_rng(0).pareto(1.5, 1024)
    >>> found = RewardTail().measure(from_columns(0, np.repeat(range(64), 16), reward=reward), None)
    >>> found["verdict"].tolist(), sorted(found)
    ([1.0], ['cv', 'hill', 'moment', 'verdict'])
    """

    name = "reward.tail"
    grain = "batch"
    needs = ("reward",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.reward is not None
        return tail_readings(prompt_tail(batch.reward, batch.starts))
