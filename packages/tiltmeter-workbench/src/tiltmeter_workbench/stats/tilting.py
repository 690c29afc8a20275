"""The optimum of reward minus KL, exactly: the reference tilted by the reward; and best-of-n, which tilts by selection.

Everything is for one prompt and finitely many responses. Distributions are arrays that sum to 1.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def tilted(reference: Floats, reward: Floats, beta: float) -> Floats:
    """π* = π_ref exp(r / β) / Z, the policy that maximises E[r] - β KL(π || π_ref).

    Computed in logs, so that small β is no trouble. β = 0 is the limit: the best responses alone, in the reference's
    proportions; β = inf is the reference. A response the reference never gives is never given.

    >>> reference, reward = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.5, -1.0])
    >>> tilted(reference, reward, 0.5).round(4).tolist()
    [0.8143, 0.1797, 0.006]
    >>> tilted(reference, reward, 0.0).tolist(), tilted(reference, reward, np.inf).tolist()
    ([1.0, 0.0, 0.0], [0.5, 0.3, 0.2])
    """
    return np.exp(_log_tilted(reference, reward, beta)[0])


def log_normaliser(reference: Floats, reward: Floats, beta: float) -> float:
    """log Z = log Σ π_ref exp(r / β), for β > 0; Z itself overflows where β is small.

    >>> round(float(np.exp(log_normaliser(np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.5, -1.0]), 0.5))), 4)
    4.5371
    """
    if beta == 0.0:
        raise ValueError("beta must be above 0: Z has no limit there")
    return _log_tilted(reference, reward, beta)[1]


def soft_bellman(reference: Floats, reward: Floats, beta: float) -> Floats:
    """The same policy as the posterior of a soft Bellman problem: softmax(Q / β) with Q = β log π_ref + r, β > 0.

    >>> soft_bellman(np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.5, -1.0]), 0.5).round(4).tolist()
    [0.8143, 0.1797, 0.006]
    """
    support = reference > 0.0
    q = np.full(len(reference), -np.inf)
    q[support] = beta * np.log(reference[support]) + reward[support]
    soft = np.exp((q - q.max()) / beta)
    return np.asarray(soft / soft.sum(), np.float64)


def kl(policy: Floats, reference: Floats) -> float:
    """KL(policy || reference) in nats; infinite if the policy gives what the reference never does.

    >>> round(kl(np.array([1.0, 0.0]), np.array([0.5, 0.5])), 4)
    0.6931
    """
    support = policy > 0.0
    if (reference[support] <= 0.0).any():
        return float("inf")
    # Rounding may leave a sum of terms of both signs a hair under 0.
    return max(0.0, float((policy[support] * (np.log(policy[support]) - np.log(reference[support]))).sum()))


def beta_for(reference: Floats, reward: Floats, nats: float) -> float:
    """The β whose optimal policy has this KL to the reference, by bisection: the KL falls as β rises.

    0 nats is β = inf. No policy tilted by this reward goes beyond -log(reference's chance of a best response).

    >>> round(beta_for(np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.5, -1.0]), 0.2841), 3)
    0.5
    """
    if nats < 0.0:
        raise ValueError("a KL is never negative")
    if nats == 0.0:
        return float("inf")
    spread = float(np.ptp(reward[reference > 0.0]))
    most = kl(tilted(reference, reward, 0.0), reference) if spread > 0.0 else 0.0
    if nats >= most:
        raise ValueError(f"this reward tilts the reference by less than {most:.6g} nats at any beta above 0")
    low, high = log(spread) - 1.0, log(spread) + 1.0
    while kl(tilted(reference, reward, np.exp(low)), reference) < nats:
        low -= 2.0
    while high < 700.0 and kl(tilted(reference, reward, np.exp(high)), reference) > nats:  # nats may be below rounding
        high += 2.0
    while high - low > 1e-13 * max(1.0, abs(low)):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        if kl(tilted(reference, reward, np.exp(middle)), reference) > nats:
            low = middle
        else:
            high = middle
    return float(np.exp(0.5 * (low + high)))


def best_of_n(reference: Floats, reward: Floats, n: int) -> Floats:
    """Exact distribution of the best of n independent draws by reward; among ties the first drawn is kept.

    A response at reward level v has chance F(v)^n - F(v-)^n of its level, in the reference's proportions inside it.

    >>> best_of_n(np.array([0.5, 0.5]), np.array([1.0, 0.0]), 2).tolist()
    [0.75, 0.25]
    """
    if n < 1:
        raise ValueError("n must be at least 1")
    _, level = np.unique(reward, return_inverse=True)
    mass = np.bincount(level, reference)
    mass = mass / mass.sum()
    above = np.concatenate((np.cumsum(mass[:0:-1])[::-1], np.zeros(1)))
    # F^n - (F - m)^n = F^n (1 - (1 - m/F)^n), in logs and from above, so that a rare best response keeps its digits.
    below = np.minimum(np.divide(mass, 1.0 - above, out=np.ones(len(mass)), where=above < 1.0), 1.0)
    below[0] = 1.0
    with np.errstate(divide="ignore"):
        chance = np.exp(float(n) * np.log1p(-np.minimum(above, 1.0))) * -np.expm1(float(n) * np.log1p(-below))
    share = np.divide(reference, mass[level], out=np.zeros(len(reference)), where=mass[level] > 0.0)
    return np.asarray(share * (chance / chance.sum())[level], np.float64)


def best_of_n_kl(reference: Floats, reward: Floats, n: int) -> float:
    """Exact KL of best-of-n to the reference. Never above `best_of_n_kl_bound`, and far below once n repeats draws.

    >>> round(best_of_n_kl(np.array([0.5, 0.5]), np.array([1.0, 0.0]), 2), 4), round(best_of_n_kl_bound(2), 4)
    (0.1308, 0.1931)
    """
    return kl(best_of_n(reference, reward, n), reference)


def best_of_n_kl_bound(n: int) -> float:
    """log n - (n - 1) / n: the KL of best-of-n when no two draws can tie (Beirami et al. 2024, arXiv 2401.01879)."""
    return log(n) - (n - 1.0) / n


def best_of_n_mean(proxy: Floats, values: Floats, n: int) -> float:
    """Unbiased estimate, from N >= n draws, of the mean value of the best of n by proxy (values: proxy or gold).

    The i-th lowest of N is the best of a random subset of n with chance C(i - 1, n - 1) / C(N, n); ties share theirs.

    >>> best_of_n_mean(np.array([1.0, 2.0, 3.0]), np.array([0.0, 0.0, 1.0]), 2)
    0.6666666666666666
    """
    if not np.isfinite(values).all():
        raise ValueError("every draw needs a proxy and a value")
    return float((best_of_n_weights(proxy, n) * values).sum())


def best_of_n_weights(proxy: Floats, n: int) -> Floats:
    """Chance of each of N >= n draws to be the best by proxy of a random n of them; ties share theirs.

    >>> best_of_n_weights(np.array([1.0, 2.0, 2.0]), 2).round(4).tolist()
    [0.0, 0.5, 0.5]
    """
    size = len(proxy)
    if not 1 <= n <= size:
        raise ValueError(f"best of {n} needs n from 1 to the {size} draws there are")
    if not np.isfinite(proxy).all():
        raise ValueError("every draw needs a proxy and a value")
    i = np.arange(size - 1, 0, -1)  # weight of rank i from that of rank i + 1, downwards: no factorial overflows
    weight = np.cumprod(np.concatenate(([n / size], np.maximum(i - n + 1, 0) / i)))[::-1]
    _, level, counts = np.unique(proxy, return_inverse=True, return_counts=True)
    shared = np.bincount(np.sort(level), weight) / counts
    return np.asarray(shared[level], np.float64)


def _log_tilted(reference: Floats, reward: Floats, beta: float) -> tuple[Floats, float]:
    """Log-probabilities of the tilted policy, and log Z (NaN at β = 0)."""
    if not beta >= 0.0:
        raise ValueError("beta must be 0 or more")
    support = reference > 0.0
    if reward.shape != reference.shape or not support.any() or not np.isfinite(reward[support]).all():
        raise ValueError("reference and finite rewards must have one entry per response")
    logs = np.full(len(reference), -np.inf)
    logs[support] = np.log(reference[support])
    best = reward[support].max()
    with np.errstate(over="ignore"):
        gap = np.where(support, reward - best, 0.0)
    if beta == 0.0:
        logs = np.where(support & (gap == 0.0), logs, -np.inf)
    else:
        with np.errstate(over="ignore"):  # a gap of more than any float is a chance of 0
            logs = logs + gap / beta
    top = logs.max()
    log_sum = top + log(float(np.exp(logs - top).sum()))
    with np.errstate(over="ignore"):
        return logs - log_sum, float(log_sum + best / beta) if beta else float("nan")
