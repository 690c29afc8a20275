"""What the labels of a step say of their source: whether gold differs inside prompts, and which are missing."""

from __future__ import annotations

from math import exp, isfinite, lgamma

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.groups import Floats, Ints, group_sums, standardise

SAME = 1e-6  # labels nearer than this are equal


def count_gold(
    gold: Floats, reward: Floats, starts: Ints, differing: NDArray[np.bool_] | None = None, *, requested: bool = True
) -> dict[str, float]:
    """Counts and sums over the labels of a step; NaN is a label that did not come, where `requested` for all.

    A group counts where two of its answers have a label, and answers differ: in reward, or as `differing` says of the
    group. Nothing that is requested of equal answers tells whether gold looks at them.

    >>> counts = count_gold(np.array([1.0, 0, 1, 1]), np.array([2.0, 1, 3, 1]), np.array([0, 2, 4]))
    >>> [counts[name] for name in ("labels", "low", "high", "groups", "differ", "apart")]
    [4, 0.0, 1.0, 2, 1, 1]
    """
    finite = np.isfinite(gold)
    if not finite.any() or len(starts) < 2:
        return {}
    both = finite & np.isfinite(reward)
    paid_least, paid_most = _extremes(np.where(both, reward, np.nan), starts)
    least, most = _extremes(gold, starts)
    labels = np.add.reduceat(finite.astype(np.int64), starts[:-1])
    differs = paid_most - paid_least > SAME * (1.0 + np.abs(paid_most))
    telling = (labels > 1) & (differs if differing is None else differs | differing)
    firsts = least[telling]
    facts: dict[str, float] = {
        "labels": int(finite.sum()),
        "low": float(gold[finite].min()),
        "high": float(gold[finite].max()),
        "groups": int(telling.sum()),
        "differ": int((most - least > SAME)[telling].sum()),
        "apart": int((np.abs(np.diff(firsts)) > SAME).sum()),
    }
    if len(firsts):
        facts |= {"first": float(firsts[0]), "last": float(firsts[-1])}
    facts |= _spreads(gold, reward, both & np.repeat(telling, np.diff(starts)), starts)
    return facts | (_absent(finite, reward, starts) if requested else {})


def _extremes(values: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """The least and the largest finite value of each group; of none, infinities that never differ by more than 0."""
    finite = np.isfinite(values)
    low = np.minimum.reduceat(np.where(finite, values, np.inf), starts[:-1])
    high = np.maximum.reduceat(np.where(finite, values, -np.inf), starts[:-1])
    return np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 0.0)


def _spreads(gold: Floats, reward: Floats, rows: NDArray[np.bool_], starts: Ints) -> dict[str, float]:
    """Sums of squares and products inside the groups, and the mean reward."""
    if not rows.any():
        return {}
    (golds, counts), (rewards, _) = (group_sums(np.where(rows, values, np.nan), starts) for values in (gold, reward))
    sizes, many = np.diff(starts), np.maximum(counts, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        g = (gold - np.repeat(golds / many, sizes))[rows]
        r = (reward - np.repeat(rewards / many, sizes))[rows]
        sums = {"gold_squares": (g * g).sum(), "reward_squares": (r * r).sum(), "products": (g * r).sum()}
        sums["reward"] = reward[rows].mean()
    if not all(map(isfinite, sums.values())):
        return {}
    return {"free": int(rows.sum() - (counts > 0).sum()), **{name: float(value) for name, value in sums.items()}}


def _absent(finite: NDArray[np.bool_], reward: Floats, starts: Ints) -> dict[str, float]:
    """Missing labels in groups that have others, their standardised reward, its variance had chance chosen them, and
    the most that one group could add."""
    z, spread, _ = standardise(reward, starts)
    size = group_sums(reward, starts)[1].astype(np.float64)
    pay, missing = group_sums(np.where(finite, np.nan, z), starts)
    partly = (missing > 0) & (missing < size) & (np.nan_to_num(spread) > 0.0)
    if not partly.any():
        return {}
    n, m = size[partly], missing[partly].astype(np.float64)
    noise, most = m * (n - m) / (n - 1.0), np.sqrt(m * (n - m))
    return {
        "absent": int(m.sum()),
        "absent_pay": float(pay[partly].sum()),
        "absent_noise": float(noise.sum()),
        "absent_most": float(most.max()),
    }


def chance_of_none(here: int, before: int, times: int) -> float:
    """The chance that all of `times` events fall among the `before` cases and none among the `here`, if chance alone
    said where: Fisher's exact test.

    >>> round(chance_of_none(16, 48, 24), 6), chance_of_none(5, 8, 0)
    (0.000129, 1.0)
    """
    all_before = lgamma(before + 1.0) - lgamma(before - times + 1.0)
    anywhere = lgamma(before + here + 1.0) - lgamma(before + here - times + 1.0)
    return exp(all_before - anywhere)


def chance_of_choice(pay: float, noise: float, largest: float) -> float:
    """A bound on the chance that rows which chance has chosen are paid so much more than the others of their groups.

    Bernstein's inequality, which holds for draws without replacement too (Hoeffding 1963); `largest`: what one group
    may add at most.

    >>> chance_of_choice(60.0, 30.0, 4.0) < 1e-7, chance_of_choice(-3.0, 30.0, 4.0)
    (True, 1.0)
    """
    if pay <= 0.0 or noise <= 0.0:
        return 1.0
    return exp(-pay * pay / (2.0 * (noise + largest * pay / 3.0)))
