"""Tests of binary features of an answer (phrases, form): how often the answer that has the feature wins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_workbench.preferences.checks.decided_pairs import DecidedPairs, Floats, Ints
from tiltmeter_workbench.stats.logistic import fit_logistic, sigmoid
from tiltmeter_workbench.stats.paired_wins import fewest_pairs, p_value, shift, win_tails

# Fixed before anything was measured: "clear" means that this would have been found, with this chance.
COMMON = 0.2  # of prompts have a comparison in which one answer has the feature
WINS = 0.75  # of these are won by it
POWER = 0.8
TOO_FEW = "there are too few comparisons to have found one that tells 1 in 5 apart and wins 3 in 4 of them."
MANY = 400  # comparisons that differ in the feature, from which power is high enough anyway
NEAR = 2.0  # standard errors: below, nothing is significant after correction, and no exact p-value is computed


@dataclass(frozen=True, eq=False)
class Presence:
    """Comparisons in which one answer has a feature: `side` is 1 where only the first has it, -1 where only the second.

    Sorted by feature. Of each prompt only the first such comparison counts: answers to one prompt are alike, and one
    answer is often part of several comparisons. Labels are not used here.

    >>> both = Presence.of(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([1, 1, -1]), np.array([0, 0]), 2)
    >>> both.feature.tolist(), both.item.tolist(), both.counts.tolist()
    ([0, 1], [0, 1], [1, 1])
    """

    feature: Ints
    item: Ints
    side: Ints
    counts: Ints  # comparisons by feature

    @classmethod
    def of(cls, feature: Ints, item: Ints, side: Ints, prompt: Ints, features: int) -> Presence:
        order = np.lexsort((item, prompt[item], feature))
        feature, item, side = feature[order], item[order], side[order]
        first = np.ones(len(feature), bool)
        first[1:] = (feature[1:] != feature[:-1]) | (prompt[item[1:]] != prompt[item[:-1]])
        return cls(feature[first], item[first], side[first], np.bincount(feature[first], minlength=features))

    def where(self, feature: int) -> slice:
        low, high = np.searchsorted(self.feature, [feature, feature + 1])
        return slice(int(low), int(high))


class WinTests(NamedTuple):
    """Test results by feature: wins of `counts`, expected wins, z, p (1 where not computed); the number of tests and
    the fewest pairs of a tested feature."""

    wins: Ints
    expected: Floats
    z: Floats
    p: Floats
    tests: int
    fewest: int

    def significant(self, alpha: float) -> Ints:
        """Significant features: Bonferroni over the tests, with family-wise error `alpha`."""
        return np.flatnonzero(self.p <= alpha / max(self.tests, 1))


def run_win_tests(decided: DecidedPairs, has: Presence, alpha: float) -> WinTests:
    """Whether answers with each feature win more or less often than length, quality and order explain."""
    features = len(has.counts)
    odds = _explained_log_odds(decided, decided.table())
    chance = sigmoid(has.side * odds[has.item])
    won = (has.side > 0) == (decided.won[has.item] == 1.0)
    wins = np.bincount(has.feature, weights=won, minlength=features).astype(np.int64)
    expected = np.bincount(has.feature, weights=chance, minlength=features).astype(np.float64)
    spread = np.sqrt(np.bincount(has.feature, weights=chance * (1.0 - chance), minlength=features))
    z = np.divide(wins - expected, spread, out=np.zeros(features), where=spread > 0.0)
    fewest = fewest_pairs(has.counts, alpha)
    able = has.counts >= fewest
    p = np.ones(features)
    for feature in np.flatnonzero(able & (np.abs(z) > NEAR)).tolist():
        p[feature] = p_value(chance[has.where(feature)], int(wins[feature]))
    return WinTests(wins, expected, z, p, int(able.sum()), fewest)


def effect(decided: DecidedPairs, has: Presence, feature: int, alpha: float) -> tuple[float, float, float]:
    """Log-odds of winning that having it adds, what else is known held equal, with an interval at `alpha`.

    The wider of two: that of the exact test, which takes what the rest explains for known, and that of a joint fit by
    prompts, which does not but needs many pairs.
    """
    here = has.where(feature)
    item, side = has.item[here], has.side[here]
    column = np.zeros(len(decided))
    column[item] = side
    rest = decided.table()
    fit = fit_logistic(np.column_stack((column, rest)), decided.won, clusters=decided.prompt)
    joint = bool(np.isfinite(fit.coefficients).all()) and not fit.separated
    odds = rest @ fit.coefficients[1:] if joint else _explained_log_odds(decided, rest)
    wins = int(((side > 0) == (decided.won[item] == 1.0)).sum())
    exact = shift(side * odds[item], wins, alpha)
    if not joint:
        return exact
    wide = student_t_quantile(max(fit.clusters - 1, 1), 1.0 - alpha) * float(fit.stderr[0])
    estimate = float(fit.coefficients[0])
    return estimate, min(exact.low, estimate - wide), max(exact.high, estimate + wide)


def _explained_log_odds(decided: DecidedPairs, rest: Floats) -> Floats:
    """Log-odds of the first answer from what is held equal; 0 where there is nothing to hold."""
    if not rest.shape[1]:
        return np.zeros(len(decided))
    coefficients = fit_logistic(rest, decided.won).coefficients
    return rest @ coefficients if np.isfinite(coefficients).all() else np.zeros(len(decided))


def has_power(prompts: int, level: float) -> bool:
    """Whether a test at `level` has the power to find a feature that is common and wins often.

    >>> has_power(1000, 1e-5), has_power(100, 1e-5)
    (True, False)
    """
    n = min(int(COMMON * prompts), MANY)
    needed = next((wins for wins in range(n // 2, n + 1) if p_value(np.full(n, 0.5), wins) <= level), None)
    return needed is not None and win_tails(np.full(n, WINS), needed)[1] >= POWER
