"""A guess of gold from what is known of every answer, learnt from labels so far: a ridge regression that forgets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CENTRES = (-1.5, -0.75, 0.0, 0.75, 1.5)  # of bumps over the reward
WIDTH = 6 + len(CENTRES)
FARTHEST = 8.0  # standard deviations of the first step, beyond which a feature says no more
MEMORY = 0.98  # per step, of labels
RIDGE = 1.0  # labels' worth of belief that a feature says nothing
LEAST_R2 = 0.1  # of labels that were not learnt yet, from which the guess is used
LEAST_LABELS = 40


@dataclass
class GoldSurrogate:
    """Predicts gold in [0, 1] from reward and length; a constant until it has shown that it predicts.

    >>> rng = np.random.default_rng(0)
    >>> model = GoldSurrogate()
    >>> for _ in range(30):
    ...     model.forget()
    ...     features = rng.normal(size=(16, 2))
    ...     model.learn(model.expand(features), (features[:, 0] > 0).astype(float))
    >>> model.forget()
    >>> model.r2 > 0.5, model.predict(model.expand(np.array([[2.0, 0.0], [-2.0, 0.0]]))).round()
    (True, array([1., 0.]))
    """

    origin: Floats | None = None  # mean and spread of the first step, in which features are counted
    spread: Floats = field(default_factory=lambda: np.ones(2))
    squares: Floats = field(default_factory=lambda: np.zeros((WIDTH, WIDTH)))
    products: Floats = field(default_factory=lambda: np.zeros(WIDTH))
    numbers: Floats = field(default_factory=lambda: np.zeros(4))  # labels, their sum, squared errors, squared spread

    def expand(self, features: Floats) -> Floats:
        """Rows of terms from rows of (reward, length). The first step fixes the units."""
        if self.origin is None:
            spread = features.std(0)
            self.origin, self.spread = features.mean(0), np.where(spread > 1e-9, spread, 1.0)
        reward, length = ((features - self.origin) / self.spread).clip(-FARTHEST, FARTHEST).T
        bumps = (np.exp(-2.0 * (reward - centre) ** 2) for centre in CENTRES)
        terms = (np.ones_like(reward), reward, length, reward * length, reward**2, length**2, *bumps)
        return np.stack(terms, -1)

    @property
    def mean(self) -> float:
        return float((self.numbers[1] + 1.0) / (self.numbers[0] + 2.0))

    @property
    def r2(self) -> float:
        """What is explained of labels before they are learnt; 0: too little to be used."""
        count, _, error, spread = self.numbers
        r2 = 1.0 - error / spread if spread > 0.0 else 0.0
        return float(r2) if r2 >= LEAST_R2 and count >= LEAST_LABELS else 0.0

    @property
    def weights(self) -> Floats:
        """By which terms are multiplied; the mean alone while nothing more is believed."""
        if self.r2 > 0.0:
            return self._fitted
        return np.concatenate([[self.mean], np.zeros(WIDTH - 1)])

    def predict(self, terms: Floats) -> Floats:
        return np.asarray((terms @ self.weights).clip(0.0, 1.0), np.float64)

    def learn(self, terms: Floats, gold: Floats) -> None:
        """Labels of a step, all at once: what is predicted of them counts for `r2` first."""
        if not len(gold):
            return
        error = ((gold - (terms @ self._fitted).clip(0.0, 1.0)) ** 2).sum()
        self.numbers = self.numbers + np.array([len(gold), gold.sum(), error, ((gold - self.mean) ** 2).sum()])
        self.squares = self.squares + terms.T @ terms
        self.products = self.products + terms.T @ gold

    def forget(self) -> None:
        """A step has passed."""
        self.squares, self.products = MEMORY * self.squares, MEMORY * self.products
        self.numbers = MEMORY * self.numbers

    @property
    def _fitted(self) -> Floats:
        penalty = RIDGE * np.eye(WIDTH)
        penalty[0, 0] = 1e-3
        return np.asarray(np.linalg.solve(self.squares + penalty, self.products), np.float64)

    def state(self) -> dict[str, Any]:
        upper = self.squares[np.triu_indices(WIDTH)]
        units = None if self.origin is None else [*self.origin.tolist(), *self.spread.tolist()]
        parts = {"squares": upper, "products": self.products, "numbers": self.numbers}
        return {"units": units, **{name: values.tolist() for name, values in parts.items()}}

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> GoldSurrogate:
        squares = np.zeros((WIDTH, WIDTH))
        squares[np.triu_indices(WIDTH)] = state["squares"]
        squares = squares + np.triu(squares, 1).T
        origin, spread = (None, np.ones(2)) if state["units"] is None else np.array(state["units"]).reshape(2, 2)
        return cls(origin, spread, squares, np.array(state["products"]), np.array(state["numbers"]))
