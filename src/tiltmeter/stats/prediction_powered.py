"""Few labels of people and many of a judge, as one bet about what people say (prediction-powered inference).

At a step B pairs are drawn. A judge is asked about all of them and guesses f_i in [-1, 1]; people are asked about m of
them, a set S drawn at random without regard to what the judge says, and give u_i in [-1, 1]. With a trust t in
[0, `MOST_TRUST`] that earlier steps have fixed,

    v = t mean_all f + mean_S (u - t f),     E v = mean of E u over the B pairs, whatever the judge says.

So a bet on v is a bet on what people would say of all pairs. A judge that agrees with them makes v less noisy, one
that does not makes it noisier, and no judge moves its mean. With c = m / B it is v <= 1 + 2 t (1 - c) <= `TOP`, reached
where the judge is against every pair of S and for all others, and people are for those of S. A stake on v is therefore
at most 1 / `TOP`: that is the price of a judge, and why the trust is bounded.

The noise of v is smallest for t = E u f / E f², estimated from earlier steps. Source: Angelopoulos et al. 2023
(2301.09633) and 2311.01453 for the estimate and its weight; one bet a step with a bounded trust is our own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_TRUST = 0.5
TOP = 1.0 + 2.0 * MOST_TRUST
PRIOR = 3.0  # pairs' worth of belief that the judge deserves half of the most
PRIOR_SQUARE = 0.4  # mean square of a guess, for that belief
MEMORY = 0.995  # per step with labels of people: the policy moves, and with it what the judge knows


def corrected_mean(guesses: Sequence[float], people: Mapping[int, float], trust: float) -> float:
    """v of a step: the judge's guess of every pair, and by its number what people said of some.

    >>> corrected_mean([1.0, 1.0, -1.0, 1.0], {1: -1.0, 2: -1.0}, 0.5)
    -0.75
    """
    if not people or not 0.0 <= trust <= MOST_TRUST:
        raise ValueError("people answered nothing, or the judge is trusted more than the bound allows")
    f = np.asarray(guesses, np.float64)
    of_people = np.array([value - trust * f[number] for number, value in people.items()])
    return float(trust * f.mean() + of_people.mean())


@dataclass
class JudgeTrust:
    """How far a judge's guesses are followed, by how they went with what people said.

    >>> judge = JudgeTrust()
    >>> before = judge.trust
    >>> for _ in range(30):
    ...     judge.learn([0.9, -0.9], [0.9, 0.9])  # right in one of two
    >>> before, judge.trust < 0.2
    (0.25, True)
    """

    product: float = PRIOR * PRIOR_SQUARE * MOST_TRUST / 2.0
    square: float = PRIOR * PRIOR_SQUARE

    @property
    def trust(self) -> float:
        return min(max(self.product / self.square, 0.0), MOST_TRUST)

    def learn(self, guesses: Sequence[float], people: Sequence[float]) -> None:
        """Pairs of a step that both have judged."""
        f, u = np.asarray(guesses, np.float64), np.asarray(people, np.float64)
        if len(f):
            self.product = MEMORY * self.product + float(f @ u)
            self.square = MEMORY * self.square + float(f @ f)

    def state(self) -> dict[str, float]:
        return {"product": self.product, "square": self.square}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> JudgeTrust:
        return cls(float(state["product"]), float(state["square"]))
