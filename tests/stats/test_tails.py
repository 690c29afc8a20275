"""Tail estimators against slow references, and the verdict on laws whose answer is known.

The seeds here were drawn once and nothing was fitted to them; development used others.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats as scipy_stats

from tiltmeter.data.batches import from_columns
from tiltmeter.instruments.error_tail import ErrorTail
from tiltmeter.instruments.reward_tail import RewardTail
from tiltmeter.stats import tails
from tiltmeter.stats.tails import CANNOT_TELL, HEAVY, LIGHT, largest, prompt_tail, upper_tail

DATA = Path(__file__).parents[2].parent / "shared" / "data"

Draw = Callable[[np.random.Generator, int], np.ndarray]

LAWS: dict[str, Draw] = {
    "exponential": lambda rng, n: rng.exponential(size=n),
    "normal": lambda rng, n: rng.normal(size=n),
    "pareto": lambda rng, n: 1.0 + rng.pareto(2.0, n),
    "t2": lambda rng, n: rng.standard_t(2, n),
    "lognormal": lambda rng, n: rng.lognormal(0.0, 1.0, n),
}


def test_the_largest_values_are_those_of_a_full_sort() -> None:
    rng = np.random.default_rng(101)
    for _ in range(500):
        values = rng.normal(size=int(rng.integers(1, 80))).round(1)
        count = int(rng.integers(1, 90))
        assert largest(values, count).tolist() == sorted(values, reverse=True)[:count]


def test_hill_and_moment_equal_a_full_sort_in_exact_sums() -> None:
    rng = np.random.default_rng(102)
    for _ in range(500):
        values = rng.pareto(rng.uniform(0.5, 5.0), int(rng.integers(30, 300))) + rng.uniform(0.0, 2.0)
        counts = [int(k) for k in rng.integers(2, 29, 3)]
        ordered = sorted(map(float, values), reverse=True)
        top = largest(values, max(counts) + 1)
        for k, xi, gamma in zip(counts, tails.hill(top, counts), tails.moment(top, counts), strict=True):
            logs = [math.log(x) - math.log(ordered[k]) for x in ordered[:k]]
            first, second = math.fsum(logs) / k, math.fsum(x * x for x in logs) / k
            assert xi == pytest.approx(first, rel=1e-12)
            assert gamma == pytest.approx(first + 1.0 - 0.5 / (1.0 - first**2 / second), rel=1e-9)


def test_the_variation_equals_its_definition() -> None:
    rng = np.random.default_rng(103)
    for _ in range(500):
        values = rng.normal(rng.uniform(-5, 5), 1.0, 200)
        ordered = sorted(map(float, values), reverse=True)
        k = int(rng.integers(2, 50))
        excess = [x - ordered[k] for x in ordered[:k]]
        assert tails.excess_variation(np.array(ordered), [k])[0] == pytest.approx(
            scipy_stats.variation(excess, ddof=1), rel=1e-12
        )


def test_estimators_find_the_index_of_known_laws() -> None:
    rng = np.random.default_rng(104)
    outside = {"hill": 0, "moment": 0}
    for _ in range(200):
        xi, k = float(rng.uniform(0.2, 1.5)), 200
        top = largest(rng.random(20_000) ** -xi, 1000)
        outside["hill"] += abs(tails.hill(top, [k])[0] - xi) > 4 * xi / math.sqrt(k)
        outside["moment"] += abs(tails.moment(top, [k])[0] - xi) > 4 * math.sqrt((1 + xi**2) / k)
    assert max(outside.values()) <= 1
    uniform = largest(1.0 + rng.random(100_000), 4001)
    assert tails.moment(uniform, [1000])[0] == pytest.approx(-1.0, abs=0.25)


def test_estimators_say_nothing_where_there_is_nothing() -> None:
    flat, negative = np.ones(20), -np.arange(1.0, 21.0)
    assert tails.hill(flat, [5]).tolist() == [0.0]
    for top, counts in ((negative, [5]), (np.arange(3.0), [5]), (flat, [0])):
        assert np.isnan(tails.hill(top, counts)).all()
        assert np.isnan(tails.moment(top, counts)).all()
    assert np.isnan(tails.moment(flat, [5])).all()
    assert np.isnan(tails.excess_variation(flat, [5])).all()


def simulated_critical(n: int, draws: int, seed: int = 1) -> tuple[float, float]:
    """`critical_values` by simulation: exponential samples with the same numbers of values above the thresholds."""
    statistics = _simulate(tails.tail_counts(n), draws, np.random.default_rng(seed))
    return float(np.quantile(statistics[0], 0.99)), float(np.quantile(statistics[1], 0.01))


def _simulate(counts: NDArray[np.int64], draws: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Largest and second smallest statistic of each draw. Excesses of exponential order statistics over the (k+1)-th
    are sums of independent spacings E_i / i (Rényi), so only the top of a sample is drawn."""
    parts = []
    most = int(counts[0])
    for begin in range(0, draws, many := max(1, 1_000_000 // most)):
        spacings = rng.exponential(size=(min(many, draws - begin), most)) / np.arange(most, 0, -1)
        top = np.pad(np.cumsum(spacings, axis=1)[:, ::-1], ((0, 0), (0, 1)))
        excesses = [top[:, :k] - top[:, k : k + 1] for k in counts.tolist()]
        variation = np.stack([excess.std(axis=1, ddof=1) / excess.mean(axis=1) for excess in excesses])
        statistic = np.sort(np.sqrt(counts)[:, None] * (variation - 1.0), axis=0)
        parts.append(statistic[[-1, 1]])
    return np.concatenate(parts, axis=1)


@pytest.mark.parametrize("n", [130, 512, 2_500])
def test_critical_values_of_the_table_are_those_of_a_plain_simulation(n: int) -> None:
    """By numpy alone: whole exponential samples, sorted. The table is the stricter neighbour, within its noise."""
    rng = np.random.default_rng(105)
    high, second = [], []
    for _ in range(4_000):
        top = np.sort(rng.exponential(size=n))[::-1]
        counts = [k for k in (n // 5, n // 10, n // 20, n // 40) if k >= 10]
        cv = [np.std(top[:k] - top[k], ddof=1) / np.mean(top[:k] - top[k]) for k in counts]
        statistic = sorted(math.sqrt(k) * (c - 1) for k, c in zip(counts, cv, strict=True))
        high.append(statistic[-1])
        second.append(statistic[1])
    upper, lower = tails.critical_values(n)
    assert 0.005 < np.mean(np.array(high) > upper) < 0.0145  # 1 % in 4,000, give or take three standard errors
    assert 0.005 < np.mean(np.array(second) < lower) < 0.0145
    assert simulated_critical(n, 20_000, seed=9) == pytest.approx((upper, lower), abs=0.15)


def test_each_row_of_the_table_is_what_its_simulation_gives_and_between_rows_the_stricter_holds() -> None:
    for n, upper, lower in tails._CRITICAL:
        again = simulated_critical(int(n), 20_000 if n < 2_000 else 2_000, seed=7)
        assert again == pytest.approx((upper, lower), abs=0.2 if n < 2_000 else 0.6)  # four standard errors
    for n in (100, 101, 399, 400, 5_000, 10**7):
        near = sorted(tails._CRITICAL, key=lambda row: abs(math.log(row[0] / n)))[0]
        upper, lower = tails.critical_values(n)
        assert upper >= near[1]
        assert lower <= near[2]


def test_exponential_tails_get_a_verdict_in_one_sample_of_a_hundred_on_either_side() -> None:
    rng = np.random.default_rng(120)
    verdicts = [upper_tail(rng.exponential(size=512)).verdict for _ in range(1_000)]
    assert verdicts.count(HEAVY) <= 20  # ten expected at most; above 20 has a chance of 1 in 500
    assert verdicts.count(LIGHT) <= 20


@pytest.mark.parametrize(
    ("law", "right"),
    [
        ("exponential", {LIGHT, CANNOT_TELL}),  # the boundary: E exp(tX) is finite for small t
        ("normal", {LIGHT}),
        ("pareto", {HEAVY}),
        ("t2", {HEAVY}),
        ("lognormal", {HEAVY, CANNOT_TELL}),
    ],
)
def test_the_verdict_is_right_in_95_of_100_samples_of_ten_thousand(law: str, right: set[int]) -> None:
    rng = np.random.default_rng([106, *law.encode()])
    verdicts = [upper_tail(LAWS[law](rng, 10_000)).verdict for _ in range(200)]
    assert sum(verdict in right for verdict in verdicts) >= 190


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n", [512, 2_000])
def test_a_small_sample_may_not_tell_but_is_hardly_ever_wrong(law: str, n: int) -> None:
    rng = np.random.default_rng([107, n, *law.encode()])
    wrong = HEAVY if law in ("exponential", "normal") else LIGHT
    verdicts = [upper_tail(LAWS[law](rng, n)).verdict for _ in range(200)]
    assert sum(verdict == wrong for verdict in verdicts) <= 6  # 1 %, two expected


def test_the_verdict_does_not_depend_on_unit_zero_or_order() -> None:
    rng = np.random.default_rng(108)
    for draw in LAWS.values():
        values = draw(rng, 2_000)
        verdict = upper_tail(values).verdict
        assert upper_tail(1e150 * values).verdict == verdict
        assert upper_tail(rng.permutation(values) + 7.0).verdict == verdict
        assert upper_tail(np.concatenate((values, [np.nan, np.inf, -np.inf]))).verdict == verdict


def test_only_the_upper_tail_counts() -> None:
    rng = np.random.default_rng(109)
    assert upper_tail(-rng.pareto(2.0, 10_000)).verdict == LIGHT


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (np.zeros(0), "too few"),
        (np.arange(99.0), "too few"),
        (np.full(500, np.nan), "too few"),
        (np.ones(500), "no spread"),
        (np.repeat(np.arange(25.0), 20)[:-17], "ties"),
    ],
)
def test_a_sample_that_cannot_be_judged_is_refused_with_the_reason(values: np.ndarray, reason: str) -> None:
    tail = upper_tail(values)
    assert math.isnan(tail.verdict)
    assert tail.reason == reason
    if reason == "too few":
        assert tail.needed == 500


def test_an_atom_at_the_maximum_is_bounded_and_light_from_few_values_on() -> None:
    rng = np.random.default_rng(110)
    clipped = np.minimum(rng.pareto(1.0, 3_000), 5.0)
    assert upper_tail(clipped).reason == "bounded"
    passed = (rng.random(64) < 0.4).astype(float)
    assert prompt_tail(passed, np.arange(0, 65, 8)).verdict == LIGHT


def test_rewards_rounded_as_half_precision_rounds_them_are_judged_alike() -> None:
    rng = np.random.default_rng(119)
    for law, right in (("normal", LIGHT), ("t2", HEAVY), ("exponential", CANNOT_TELL)):
        verdicts = []
        for _ in range(40):
            values = (3.0 + LAWS[law](rng, 10_000)).astype(np.float32)
            rounded = (values.view(np.uint32) & 0xFFFF0000).astype(np.uint32).view(np.float32)  # bfloat16, truncated
            verdicts.append(upper_tail(rounded.astype(np.float64)).verdict)
        assert verdicts.count(right) >= 37


@pytest.mark.skipif(not DATA.exists(), reason="the shared data is not beside this checkout")
def test_a_real_reward_model_in_half_precision_is_judged_and_its_prompts_differ_in_scale() -> None:
    with gzip.open(DATA / "math_group_samples_rm" / "samples.jsonl.gz", "rt") as lines:
        rows = [json.loads(line) for line in lines]
    batch = from_columns(0, [row["idx"] for row in rows], reward=[row["rm_score"] for row in rows])
    assert batch.reward is not None
    tail = prompt_tail(batch.reward, batch.starts)
    assert (tail.verdict, tail.reason) == (CANNOT_TELL, "scales differ")
    assert RewardTail().measure(batch, None)["verdict"].tolist() == [0.0]


def test_the_sample_size_named_would_help() -> None:
    rng = np.random.default_rng(111)
    helped = named = 0
    for _ in range(100):
        tail = upper_tail(rng.normal(size=800))
        if tail.verdict == CANNOT_TELL and math.isfinite(tail.needed) and tail.needed < 50_000:
            assert tail.needed > 800
            named += 1
            helped += upper_tail(rng.normal(size=int(1.5 * tail.needed))).verdict == LIGHT
    assert named > 30
    assert helped > 0.4 * named


@pytest.mark.parametrize("size", [4, 8, 16])
def test_prompts_of_one_scale_are_judged_like_one_sample(size: int) -> None:
    rng = np.random.default_rng([112, size])
    starts = np.arange(0, 9_601, size)
    level = np.repeat(rng.normal(0.0, 3.0, 9_600 // size), size)
    normal = [prompt_tail(level + rng.normal(size=9_600), starts).verdict for _ in range(20)]
    student = [prompt_tail(level + rng.standard_t(2, 9_600), starts).verdict for _ in range(20)]
    assert normal.count(LIGHT) >= 18
    assert student.count(HEAVY) >= 16


@pytest.mark.parametrize("size", [4, 8, 64])
@pytest.mark.parametrize("law", ["exponential", "normal"])
def test_prompts_of_different_scale_do_not_fake_a_heavy_tail(size: int, law: str) -> None:
    rng = np.random.default_rng([113, size, *law.encode()])
    starts = np.arange(0, 4_097, size)
    pooled = faked = 0
    for _ in range(40):
        scale = np.repeat(rng.lognormal(0.0, 1.0, 4_096 // size), size)
        values = scale * LAWS[law](rng, 4_096)
        pooled += upper_tail(values).verdict == HEAVY
        faked += prompt_tail(values, starts).verdict == HEAVY
    assert pooled >= 20  # or there would be nothing to guard against
    assert faked <= 2


def test_a_heavy_tail_is_seen_through_different_scales_where_groups_are_large() -> None:
    rng = np.random.default_rng(114)
    starts = np.arange(0, 8_193, 64)
    seen = 0
    for _ in range(20):
        scale = np.repeat(rng.lognormal(0.0, 1.0, 128), 64)
        seen += prompt_tail(scale * rng.standard_t(2, 8_192), starts).verdict == HEAVY
    assert seen >= 18


def test_dividing_by_each_groups_own_range_would_decide_by_group_size() -> None:
    """Why `prompt_tail` does not: normal rewards would turn heavy in groups of 8, Pareto ones light in groups of 4."""
    rng = np.random.default_rng(115)

    def ranged(values: np.ndarray, size: int) -> np.ndarray:
        rows = values.reshape(-1, size)
        low, middle, high = np.quantile(rows, (0.25, 0.5, 0.75), axis=1)[:, :, None]
        return np.asarray((rows - middle) / (high - low)).ravel()

    assert sum(upper_tail(ranged(rng.normal(size=9_600), 8)).verdict == HEAVY for _ in range(10)) >= 7
    assert sum(upper_tail(ranged(rng.pareto(2.0, 9_600), 4)).verdict == LIGHT for _ in range(10)) >= 9


def test_single_completions_per_prompt_are_pooled() -> None:
    rng = np.random.default_rng(116)
    assert prompt_tail(rng.pareto(1.5, 3_000), np.arange(3_001)).verdict == HEAVY


def test_the_error_counts_and_not_a_reward_that_is_high_because_gold_is() -> None:
    rng = np.random.default_rng(117)
    gold = rng.random(8_000)
    group = np.repeat(np.arange(500), 16)
    honest = from_columns(0, group, reward=3.0 * gold + 0.2 * rng.normal(size=8_000), gold=gold)
    wrong = from_columns(0, group, reward=3.0 * gold + 0.2 * rng.standard_t(1.5, 8_000), gold=gold)
    assert ErrorTail().measure(honest, None)["verdict"].tolist() == [-1.0]
    assert ErrorTail().measure(wrong, None)["verdict"].tolist() == [1.0]


def test_error_without_labels_or_without_different_ones_has_no_tail() -> None:
    reward = np.random.default_rng(118).normal(size=400)
    for gold in (np.full(400, np.nan), np.ones(400)):
        found = ErrorTail().measure(from_columns(0, np.arange(400) // 8, reward=reward, gold=gold), None)
        assert all(np.isnan(values).all() for values in found.values())


def test_one_prompt_that_has_collapsed_onto_the_best_answer_is_no_bound_of_the_reward() -> None:
    rng = np.random.default_rng(11)
    for _ in range(20):
        values = rng.pareto(1.5, 1_024)
        values[:8] = values.max() + 1.0
        assert prompt_tail(values, np.arange(0, 1_025, 8)).verdict == 1
        values[[100, 200, 300]] = values[0]  # several prompts reach it: now it is one
        assert prompt_tail(values, np.arange(0, 1_025, 8)).reason == "bounded"
