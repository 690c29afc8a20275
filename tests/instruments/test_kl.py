"""The three KLs, and what one sweep over two columns of log-probabilities yields, against slow and exact oracles."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Ragged, Reading, RolloutBatch
from tiltmeter.detectors.kl_acceleration import KlAcceleration
from tiltmeter.detectors.kl_root import KlRoot
from tiltmeter.instruments.engine_gap import EngineGap
from tiltmeter.instruments.kl import ReferenceKl
from tiltmeter.instruments.kl_tokens import TokenKl
from tiltmeter.instruments.old_kl import OldKl
from tiltmeter.stats.kl import token_sweep
from tiltmeter.testing import check_derived

INF, NAN = float("inf"), float("nan")


def swept(drawn: list[Any], other: list[Any], dtype: type[np.generic] = np.float32) -> Any:
    one, two = Ragged.of(drawn, dtype), Ragged.of(other, dtype)
    return token_sweep(one.values, one.offsets, two.values, two.offsets)


def excess(d: float) -> float:
    """e^d - 1 - d in 40 digits: float64 itself loses half of them for small d."""
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(d).exp() - 1 - Decimal(d))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sweep_equals_a_scalar_loop_in_forty_digits(dtype: type[np.generic]) -> None:
    rng = np.random.default_rng(11)
    cases = 0
    for _ in range(40):
        drawn: list[Any] = []
        other: list[Any] = []
        for _ in range(15):
            n = int(rng.integers(0, 30))
            spread = 10.0 ** rng.uniform(-6, 1)  # from a policy that has not moved to one that shares no token
            row = -rng.exponential(size=n)
            drawn.append(row.astype(dtype))
            other.append((row + rng.normal(0, spread, n)).astype(dtype))
            if n and rng.random() < 0.15:
                other[-1][rng.integers(n)] = rng.choice([NAN, INF, -INF])
        sweep = swept(drawn, other, dtype)
        for i, (ours, theirs) in enumerate(zip(drawn, other, strict=True)):
            cases += 1
            lost = sum(not math.isfinite(float(b)) for b in theirs)
            assert sweep.nonfinite[i] == lost
            assert sweep.tokens[i] == len(ours)
            d = [float(b) - float(a) for a, b in zip(ours, theirs, strict=True) if math.isfinite(float(b))]
            assert sweep.off[i] == sum(abs(math.expm1(x)) > 0.1 for x in d)
            if lost or not d:
                assert all(math.isnan(part[i]) for part in sweep[:6])
                continue
            absolute = math.fsum(map(abs, d))
            assert sweep.gap[i] == pytest.approx(absolute, rel=1e-12)
            assert sweep.k1[i] == pytest.approx(-math.fsum(d), rel=1e-12, abs=1e-12 * absolute)
            assert sweep.k2[i] == pytest.approx(math.fsum(x * x / 2 for x in d), rel=1e-12)
            assert sweep.k3[i] == pytest.approx(math.fsum(map(excess, d)), rel=1e-12)
            assert sweep.logprob[i] == pytest.approx(math.fsum(map(float, ours)), rel=1e-12)
            assert sweep.worst[i] == max(map(abs, d))
    assert cases >= 500


def test_the_sweep_equals_torch_in_float64() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(12)
    for _ in range(500):
        logits = torch.tensor(rng.normal(0, 2, (2, 20, 30)))
        drawn, other = torch.log_softmax(logits, -1)
        tokens = torch.tensor(rng.integers(0, 30, 20))
        ours, theirs = (column.gather(-1, tokens[:, None])[:, 0] for column in (drawn, other))
        sweep = swept([ours.numpy()], [theirs.numpy()], np.float64)
        d = theirs - ours
        assert sweep.k1[0] == pytest.approx(float(-d.sum()), abs=1e-10)
        assert sweep.k3[0] == pytest.approx(float((torch.exp(d) - 1 - d).sum()), rel=1e-10)


def test_estimates_from_drawn_tokens_agree_with_the_kl_by_enumeration() -> None:
    """k1 and k3 are unbiased: on 50-token pairs their means lie within four standard errors of Σ p ln(p/q)."""
    rng = np.random.default_rng(13)
    outside = 0
    for _ in range(500):
        p, q = rng.dirichlet(np.full(50, 2.0)), rng.dirichlet(np.full(50, 2.0))
        p, q = 0.7 * p + 0.3 * q, q  # overlapping, as a policy and its reference are
        exact = float((p * np.log(p / q)).sum())
        tokens = rng.choice(50, 400, p=p)
        sweep = swept([[x] for x in np.log(p)[tokens]], [[x] for x in np.log(q)[tokens]])
        for k in (sweep.k1, sweep.k3):
            outside += abs(k.mean() - exact) > 4 * k.std(ddof=1) / math.sqrt(400)
    assert outside <= 3  # of 1,000; a tail heavier than normal allows for a few


def test_tiny_distances_keep_their_size_and_sign() -> None:
    """Float32 arithmetic gives noise of either sign here."""
    d = np.full(1000, 1e-5)
    sweep = swept([np.zeros(1000)], [d], np.float64)
    assert sweep.k3[0] == pytest.approx(1000 * excess(1e-5), rel=1e-13)
    assert (swept([np.zeros(1)] * 99, [[x] for x in np.linspace(-1e-7, 1e-7, 99)], np.float64).k3 >= 0).all()


def test_an_overflowing_ratio_leaves_k1_and_takes_k3() -> None:
    sweep = swept([[-900.0, -1.0]], [[-1.0, -1.0]])
    assert sweep.k1[0] == -899.0
    assert math.isnan(sweep.k3[0])


def test_only_rows_of_different_lengths_lose_their_value() -> None:
    sweep = swept([[-1.0], [-1.0, -1.0], [-2.0]], [[-2.0], [-1.0], [-1.0]])
    assert np.isnan(sweep.k1).tolist() == [False, True, False]
    assert sweep.k1[[0, 2]].tolist() == [1.0, -1.0]
    assert sweep.tokens.tolist() == [1, 0, 1]


def test_a_completion_of_a_million_tokens_is_summed_exactly_enough() -> None:
    rng = np.random.default_rng(14)
    ours = -rng.exponential(size=10**6).astype(np.float32)
    theirs = ours + rng.normal(0, 0.05, 10**6).astype(np.float32)
    ends = np.array([0, 10**6])
    batch = RolloutBatch(0, 0, np.zeros(1, np.int64), logprob=Ragged(ours, ends), ref_logprob=Ragged(theirs, ends))
    d = theirs.astype(np.float64) - ours
    found = ReferenceKl().measure(batch, None)
    assert found["k1"][0] == pytest.approx(-math.fsum(d), rel=1e-10)
    assert found["k3"][0] == pytest.approx(math.fsum(np.expm1(d) - d), rel=1e-10)


def test_a_batch_without_rows_or_tokens_has_no_value() -> None:
    empty: list[list[list[float]]] = [[], [[], []]]
    for columns in empty:
        sweep = swept(columns, columns)
        assert np.isnan(sweep.k1).all()
        assert len(sweep.k1) == len(columns)


def test_the_three_kls_answer_three_questions() -> None:
    batch = from_columns(
        0,
        [0],
        logprob=[[-1.0, -2.0]],
        ref_logprob=[[-1.5, -2.0]],
        engine_logprob=[[-1.1, -2.0]],
        scalars={"kl_old_new": 0.25},
    )
    assert ReferenceKl().measure(batch, None)["k1"][0] == pytest.approx(0.5)
    assert EngineGap().measure(batch, None)["mean"][0] == pytest.approx(0.05, rel=1e-6)
    assert OldKl().measure(batch, None).tolist() == [0.25]


def test_the_engines_kl_is_taken_over_the_engines_tokens() -> None:
    """Tokens were drawn by the engine: the mean of k3 is KL(engine || trainer), not the other way round."""
    rng = np.random.default_rng(15)
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.4, 0.4, 0.2])
    tokens = rng.choice(3, 20_000, p=p)
    batch = from_columns(
        0,
        [0] * 20_000,
        engine_logprob=np.log(p)[tokens][:, None],
        logprob=np.log(q)[tokens][:, None],
        length=[1] * 20_000,
    )
    k3 = EngineGap().measure(batch, None)["k3"]
    assert abs(k3.mean() - (p * np.log(p / q)).sum()) < 4 * k3.std() / math.sqrt(20_000)


def test_per_token_kl_does_not_grow_with_length() -> None:
    batch = from_columns(0, [0, 0], logprob=[[-1.0] * 10, [-1.0] * 1000], ref_logprob=[[-1.2] * 10, [-1.2] * 1000])
    means = TokenKl().measure(batch, None)["mean"]
    assert means[0] == pytest.approx(means[1], rel=1e-9)
    whole = ReferenceKl().measure(batch, None)["k3"]
    assert whole[1] == pytest.approx(100 * whole[0], rel=1e-9)


def test_one_bad_token_of_many_shows_in_the_tail_not_in_the_mean() -> None:
    gap = EngineGap().measure(from_columns(0, [0], logprob=[[-1.0] * 99 + [-4.0]], engine_logprob=[[-1.0] * 100]), None)
    assert gap["mean"][0] < 0.05
    assert gap["worst"][0] == 3.0
    assert gap["off_share"][0] == 0.01


@pytest.mark.parametrize("make", [KlAcceleration, KlRoot])
def test_kl_folds_keep_their_contract(make: Any) -> None:
    check_derived(make)


def _folded(fold: Any, values: Any, every: int = 1) -> list[float]:
    answers = [fold.fold(Reading(0, every * t, "policy.kl.k3", float(v), 8, 0.1)) for t, v in enumerate(values)]
    return [answer.value for answer in answers if answer is not None]


@pytest.mark.parametrize("every", [1, 3])
def test_acceleration_is_that_of_a_parabola_and_nothing_on_a_line(every: int) -> None:
    steps = every * np.arange(200.0)
    assert _folded(KlAcceleration(), 0.5 * 0.02 * steps**2, every)[-1] == pytest.approx(0.02)
    assert _folded(KlAcceleration(), 3 + 0.7 * steps, every)[-1] == pytest.approx(0.0, abs=1e-9)


def test_acceleration_is_the_stated_difference_of_the_smoothed_series() -> None:
    values = np.random.default_rng(16).random(60)
    smooth = [values[0]]
    for value in values[1:]:
        smooth.append(0.8 * smooth[-1] + 0.2 * value)
    expected = [(smooth[t] - 2 * smooth[t - 10] + smooth[t - 20]) / 100 for t in range(20, 60)]
    np.testing.assert_allclose(_folded(KlAcceleration(), values), expected, atol=1e-12)


def test_the_root_follows_and_a_negative_kl_has_none() -> None:
    assert _folded(KlRoot(), [0.0, 2.25, -0.1, 4.0]) == [0.0, 1.5, 2.0]
    assert KlRoot().fold(Reading(0, 0, "policy.kl.k3", 0.0, 8, 0.1)).stderr is None  # type: ignore[union-attr]
