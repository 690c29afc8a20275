"""The tilted optimum and best-of-n against enumeration, and the worked numbers everybody quotes."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tiltmeter_workbench.stats.tilting import (
    Floats,
    best_of_n,
    best_of_n_kl,
    best_of_n_kl_bound,
    best_of_n_mean,
    best_of_n_weights,
    beta_for,
    kl,
    log_normaliser,
    soft_bellman,
    tilted,
)

REFERENCE, REWARD = np.array([0.5, 0.3, 0.2]), np.array([1.0, 0.5, -1.0])


def drawn(rng: np.random.Generator, most: int = 6) -> tuple[Floats, Floats]:
    """A reference policy, sometimes with responses it never gives, and rewards, sometimes with ties."""
    size = int(rng.integers(2, most + 1))
    reference = rng.dirichlet(np.ones(size))
    if rng.random() < 0.3:
        reference[0] = 0.0
        reference /= reference.sum()
    reward = rng.integers(0, 3, size).astype(float) if rng.random() < 0.5 else rng.normal(0, 3, size)
    return reference, reward


def test_the_worked_numbers() -> None:
    assert (REFERENCE * np.exp(REWARD / 0.5)).round(4).tolist() == [3.6945, 0.8155, 0.0271]
    assert math.exp(log_normaliser(REFERENCE, REWARD, 0.5)) == pytest.approx(4.5371, abs=5e-5)
    policy = tilted(REFERENCE, REWARD, 0.5)
    assert policy.round(4).tolist() == [0.8143, 0.1797, 0.0060]
    assert kl(policy, REFERENCE) == pytest.approx(0.2841, abs=5e-5)
    assert policy @ REWARD == pytest.approx(0.8982, abs=5e-5)
    assert tilted(REFERENCE, REWARD, 0.0).tolist() == [1.0, 0.0, 0.0]
    assert tilted(REFERENCE, REWARD, np.inf).tolist() == REFERENCE.tolist()


@pytest.mark.parametrize("beta", [0.01, 1e-4, 1e-300, 1e300])
def test_extreme_beta_is_stable(beta: float) -> None:
    with np.errstate(divide="raise", invalid="raise", over="raise"):
        policy = tilted(REFERENCE, REWARD, beta)
        far = tilted(REFERENCE, 1e200 * REWARD, beta)
    assert policy == pytest.approx([1.0, 0.0, 0.0] if beta < 1 else REFERENCE, abs=1e-12)
    assert far.sum() == pytest.approx(1.0)


def test_the_tilted_policy_is_the_plain_formula_and_the_soft_bellman_posterior() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        reference, reward = drawn(rng)
        beta = float(rng.uniform(0.1, 5.0))
        unnormalised = [p * math.exp(r / beta) for p, r in zip(reference, reward, strict=True)]
        z = math.fsum(unnormalised)
        policy = tilted(reference, reward, beta)
        assert policy == pytest.approx([u / z for u in unnormalised], rel=1e-12)
        assert policy == pytest.approx(soft_bellman(reference, reward, beta), rel=1e-12)
        assert log_normaliser(reference, reward, beta) == pytest.approx(math.log(z), rel=1e-12, abs=1e-12)


def test_no_other_policy_does_better_at_its_beta() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        reference, reward = drawn(rng)
        beta = float(rng.uniform(0.05, 5.0))
        policy = tilted(reference, reward, beta)
        best = policy @ reward - beta * kl(policy, reference)
        assert best == pytest.approx(beta * log_normaliser(reference, reward, beta), rel=1e-9, abs=1e-9)
        other = policy * rng.uniform(0.8, 1.25, len(policy))
        other /= other.sum()
        assert other @ reward - beta * kl(other, reference) <= best + 1e-12


def test_at_beta_zero_ties_keep_the_proportions_of_the_reference() -> None:
    policy = tilted(np.array([0.2, 0.3, 0.5, 0.0]), np.array([1.0, 1.0, 0.0, 9.0]), 0.0)
    assert policy == pytest.approx([0.4, 0.6, 0.0, 0.0])


def test_the_beta_of_a_wanted_kl_gives_that_kl() -> None:
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(600):
        reference, reward = drawn(rng)
        if np.ptp(reward[reference > 0]) == 0.0:
            continue
        most = kl(tilted(reference, reward, 0.0), reference)
        nats = float(most * rng.uniform(0.01, 0.99))
        assert kl(tilted(reference, reward, beta_for(reference, reward, nats)), reference) == pytest.approx(nats, 1e-6)
        found += 1
    assert found > 500
    assert beta_for(REFERENCE, REWARD, 0.0) == np.inf
    with pytest.raises(ValueError, match=r"less than 0\.693147 nats"):
        beta_for(REFERENCE, REWARD, 1.0)
    assert beta_for(REFERENCE, REWARD, 1e-30) > 1e6
    with pytest.raises(ValueError, match="less than 0 nats"):
        beta_for(REFERENCE, np.ones(3), 0.1)


def test_kl_of_what_the_reference_never_gives_is_infinite() -> None:
    assert kl(np.array([0.5, 0.5]), np.array([1.0, 0.0])) == math.inf
    assert kl(REFERENCE, REFERENCE) == 0.0


def test_best_of_n_is_the_enumeration_of_all_draws() -> None:
    rng = np.random.default_rng(3)
    for _ in range(500):
        reference, reward = drawn(rng, most=4)
        n = int(rng.integers(1, 5))
        expected = np.zeros(len(reference))
        for draw in itertools.product(range(len(reference)), repeat=n):
            first_best = max(draw, key=lambda y: reward[y])  # max keeps the first of equals
            expected[first_best] += math.prod(reference[y] for y in draw)
        assert best_of_n(reference, reward, n) == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_the_exact_kl_of_best_of_n_is_never_above_the_formula_without_ties() -> None:
    rng = np.random.default_rng(4)
    for _ in range(500):
        reference, reward = drawn(rng)
        n = int(rng.integers(1, 2000))
        assert best_of_n_kl(reference, reward, n) <= best_of_n_kl_bound(n) + 1e-12
    fine = np.full(100_000, 1e-5)
    assert best_of_n_kl(fine, np.arange(100_000.0), 8) == pytest.approx(best_of_n_kl_bound(8), abs=1e-4)
    assert best_of_n_kl_bound(1) == 0.0


def test_a_rare_best_response_keeps_its_digits() -> None:
    found = best_of_n(np.array([1e-18, 1.0]), np.array([1.0, 0.0]), 1000)
    assert found[0] == pytest.approx(1e-15, rel=1e-9)
    assert best_of_n(np.array([1e-18, 1.0]), np.array([1.0, 0.0]), 10**30)[0] == pytest.approx(1.0)


def test_the_estimate_of_best_of_n_is_the_mean_over_all_subsets() -> None:
    rng = np.random.default_rng(5)
    for _ in range(500):
        size = int(rng.integers(1, 8))
        n = int(rng.integers(1, size + 1))
        proxy, gold = rng.integers(0, 4, size).astype(float), rng.normal(size=size)
        means = []
        for subset in itertools.combinations(range(size), n):
            top = max(proxy[list(subset)])
            means.append(np.mean([gold[i] for i in subset if proxy[i] == top]))
        # Averaged over which of the tied ones is kept, as if each were equally likely to come first.
        assert best_of_n_mean(proxy, gold, n) == pytest.approx(np.mean(means), rel=1e-9, abs=1e-12)


def test_the_estimate_of_best_of_n_is_unbiased() -> None:
    reference, reward, gold = np.array([0.5, 0.3, 0.2]), np.array([0.0, 1.0, 1.0]), np.array([0.1, 0.9, 0.3])
    for size, n in ((3, 2), (4, 3), (5, 2)):
        expected = best_of_n(reference, reward, n) @ gold
        total = 0.0
        for draw in itertools.product(range(3), repeat=size):
            rows = list(draw)
            total += math.prod(reference[rows]) * best_of_n_mean(reward[rows], gold[rows], n)
        assert total == pytest.approx(expected, rel=1e-12)


def test_impossible_requests_are_refused() -> None:
    for call in (
        lambda: tilted(REFERENCE, REWARD, -1.0),
        lambda: tilted(REFERENCE, REWARD[:2], 1.0),
        lambda: tilted(REFERENCE, np.array([np.nan, 0.0, 0.0]), 1.0),
        lambda: log_normaliser(REFERENCE, REWARD, 0.0),
        lambda: beta_for(REFERENCE, REWARD, -0.1),
        lambda: best_of_n(REFERENCE, REWARD, 0),
        lambda: best_of_n_mean(REWARD, REWARD, 4),
        lambda: best_of_n_mean(np.array([np.nan]), np.ones(1), 1),
    ):
        with pytest.raises(ValueError):
            call()


def oracle(reference: Floats, reward: Floats, beta: float) -> tuple[list[float], float, float, float]:
    """Policy, log Z, KL and expected reward to forty digits; the KL is E[r] / β - log Z."""
    with localcontext() as context:
        context.prec = 40
        weights = [Decimal(p) * (Decimal(r) / Decimal(beta)).exp() for p, r in zip(reference, reward, strict=True)]
        z = sum(weights, Decimal(0))
        policy = [weight / z for weight in weights]
        paid = sum((p * Decimal(r) for p, r in zip(policy, reward, strict=True)), Decimal(0))
        return [float(p) for p in policy], float(z.ln()), float(paid / Decimal(beta) - z.ln()), float(paid)


@pytest.mark.parametrize("beta", [1e-4, 0.03, 1.0, 1e4])
@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_hundred_thousand_responses_agree_with_forty_digits(beta: float, scale: float) -> None:
    rng = np.random.default_rng(int(1e4 * beta))
    size = 100_000 if (beta, scale) == (1e-4, 1e-3) else 4_000
    reference = rng.dirichlet(np.full(size, 0.5)) + 1e-300
    reference /= reference.sum()
    reward = scale * rng.normal(size=size)
    policy, log_z, nats, paid = oracle(reference, reward, beta)
    found = tilted(reference, reward, beta)
    assert found == pytest.approx(policy, rel=1e-9, abs=1e-15)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert log_normaliser(reference, reward, beta) == pytest.approx(log_z, rel=1e-12, abs=1e-12)
    assert kl(found, reference) == pytest.approx(nats, rel=1e-9, abs=1e-12)
    assert found @ reward == pytest.approx(paid, rel=1e-9, abs=1e-12)


def test_the_oracle_would_notice_a_wrong_digit() -> None:
    policy, log_z, nats, paid = oracle(REFERENCE, REWARD, 0.5)
    assert [round(p, 4) for p in policy] == [0.8143, 0.1797, 0.0060]
    assert (round(math.exp(log_z), 4), round(nats, 4), round(paid, 4)) == (4.5371, 0.2841, 0.8982)
    with np.errstate(over="ignore", invalid="ignore"):
        overflown = REFERENCE * np.exp(REWARD / 1e-4)
        assert not np.isfinite(overflown / overflown.sum()).all()  # what tilted must not do


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-6, 1.0), st.floats(-50.0, 50.0)), min_size=2, max_size=30),
    st.floats(-9.0, 9.0),
)
def test_a_target_kl_leads_back_to_its_beta(rows: list[tuple[float, float]], log_beta: float) -> None:
    reference, reward = (np.array(column) for column in zip(*rows, strict=True))
    reference = reference / reference.sum()
    beta = math.exp(log_beta)
    nats = kl(tilted(reference, reward, beta), reference)
    most = kl(tilted(reference, reward, 0.0), reference)
    assume(1e-6 < nats < most - 1e-6)  # nearer to either end the KL hardly depends on beta
    found = beta_for(reference, reward, nats)
    assert kl(tilted(reference, reward, found), reference) == pytest.approx(nats, rel=1e-7, abs=1e-10)


def test_a_target_kl_is_found_for_a_hundred_thousand_responses() -> None:
    rng = np.random.default_rng(7)
    reference, reward = rng.dirichlet(np.ones(100_000)), rng.normal(size=100_000)
    for beta in (3.0, 0.2, 0.02):
        nats = kl(tilted(reference, reward, beta), reference)
        assert beta_for(reference, reward, nats) == pytest.approx(beta, rel=1e-5)


def test_weights_of_the_best_of_n_add_up_and_share_ties() -> None:
    rng = np.random.default_rng(8)
    for _ in range(200):
        proxy = rng.integers(0, 5, int(rng.integers(1, 40))).astype(float)
        n = int(rng.integers(1, len(proxy) + 1))
        weights = best_of_n_weights(proxy, n)
        assert weights.sum() == pytest.approx(1.0)
        assert all(len(set(weights[proxy == level].tolist())) == 1 for level in proxy)
        assert weights @ proxy == pytest.approx(best_of_n_mean(proxy, proxy, n))
