"""Readings of reward, gold and length on batches whose answer is known."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.instruments import Instrument
from tiltmeter.instruments.dead_groups import DeadGroups
from tiltmeter.instruments.dead_sides import DeadSides
from tiltmeter.instruments.ensemble import EnsembleDisagreement
from tiltmeter.instruments.gain_share import GainShare
from tiltmeter.instruments.gold_agreement import GoldAgreement
from tiltmeter.instruments.gold_covariance import GoldCovariance
from tiltmeter.instruments.gold_gap import GoldGap
from tiltmeter.instruments.infra import InfraFailures
from tiltmeter.instruments.length_gain import LengthGain
from tiltmeter.instruments.length_residual import LengthResidual
from tiltmeter.instruments.length_slope import LengthSlope
from tiltmeter.instruments.reward_win import RewardWin
from tiltmeter.instruments.saturation import Saturation
from tiltmeter.instruments.spread_share import SpreadShare
from tiltmeter.instruments.unscored import Unscored
from tiltmeter.monitor.panel import readings
from tiltmeter.stats.ensembles import disagreement
from tiltmeter_workbench.stats.advantages import advantages, dead_share, expected_spread

GROUPS, SIZE = 32, 8
PROMPTS = np.repeat(np.arange(GROUPS), SIZE)


def step(rng: np.random.Generator, **columns: Any) -> RolloutBatch:
    """A step of 32 prompts with 8 completions each; columns not given are drawn."""
    rows = GROUPS * SIZE
    drawn: dict[str, Any] = {
        "reward": rng.normal(size=rows),
        "gold": (rng.random(rows) < 0.5).astype(float),
        "length": rng.integers(50, 300, rows),
    }
    return from_columns(0, PROMPTS, **{**drawn, **columns})


def read(part: Instrument, batch: RolloutBatch, start: RolloutBatch | None = None) -> dict[str, float]:
    """The readings of one instrument, through the loop's own means."""
    return {found.name: found.value for found in readings(part, batch, None if start is None else Baseline(start))}


def test_advantages_of_the_worked_example_name_their_standard_deviation() -> None:
    rewards, starts = np.array([0.2, 0.8, 0.5, 0.3]), np.array([0, 4])
    assert rewards.mean() == pytest.approx(0.45)
    assert round(rewards.std(), 4) == 0.2291
    assert round(rewards.std(ddof=1), 4) == 0.2646
    assert advantages(rewards, starts, "population").round(2).tolist() == [-1.09, 1.53, 0.22, -0.65]
    assert advantages(rewards, starts, "sample").round(2).tolist() == [-0.94, 1.32, 0.19, -0.57]
    assert advantages(rewards, starts, "centred") == pytest.approx([-0.25, 0.35, 0.05, -0.15])
    assert advantages(rewards, starts, "leave_one_out") == pytest.approx([-1 / 3, 7 / 15, 1 / 15, -0.2])


def test_figures_in_circulation_for_that_example_fit_no_standard_deviation() -> None:
    circulating, deviations = np.array([-1.13, 1.58, 0.23, -0.68]), np.array([-0.25, 0.35, 0.05, -0.15])
    implied = deviations / circulating
    assert (implied < 0.2291).all()  # below the smaller of the two


def test_advantages_equal_a_loop_over_groups() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        sizes = rng.integers(1, 7, rng.integers(1, 6))
        starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        rewards = rng.integers(0, 3, starts[-1]).astype(float) if rng.random() < 0.5 else rng.normal(size=starts[-1])
        rewards[rng.random(len(rewards)) < 0.1] = np.nan
        epsilon = float(rng.choice([0.0, 1e-4]))
        found = {form: advantages(rewards, starts, form, epsilon) for form in ("population", "sample", "centred")}
        apart = advantages(rewards, starts, "leave_one_out")
        for first, stop in itertools.pairwise(starts):
            group = rewards[first:stop]
            known = group[np.isfinite(group)]
            for row, reward in enumerate(group, start=first):
                if math.isnan(reward):
                    assert all(math.isnan(values[row]) for values in (*found.values(), apart))
                    continue
                centred = reward - known.mean()
                flat = len(known) < 2 or np.ptp(known) == 0
                for form, ddof in (("population", 0), ("sample", 1)):
                    expected = 0.0 if flat else centred / (known.std(ddof=ddof) + epsilon)
                    assert found[form][row] == pytest.approx(expected, rel=1e-9, abs=1e-12)
                assert found["centred"][row] == pytest.approx(centred, abs=1e-12)
                others = known.sum() - reward
                lonely = len(known) < 2
                left_out = 0.0 if lonely else reward - others / (len(known) - 1)
                assert apart[row] == pytest.approx(left_out, rel=1e-9, abs=1e-9)


def test_a_group_of_one_has_advantage_zero_and_an_unknown_form_is_refused() -> None:
    for form in ("population", "sample", "centred", "leave_one_out"):
        assert advantages(np.array([7.0]), np.array([0, 1]), form).tolist() == [0.0]
    with pytest.raises(ValueError, match="population, sample, centred, leave_one_out"):
        advantages(np.array([7.0]), np.array([0, 1]), "zscore")  # type: ignore[arg-type]


def test_spread_and_dead_share_of_fair_rewards() -> None:
    assert round(expected_spread(0.5, 2), 3) == 0.25
    assert round(expected_spread(0.5, 8), 3) == 0.464
    assert dead_share(0.5, 2) == 0.5
    assert round(dead_share(0.5, 8), 4) == 0.0078
    rng = np.random.default_rng(1)
    rewards = (rng.random((100_000, 6)) < 0.3).astype(float)
    assert rewards.std(axis=1).mean() == pytest.approx(expected_spread(0.3, 6), abs=3e-3)
    assert (np.ptp(rewards, axis=1) == 0).mean() == pytest.approx(dead_share(0.3, 6), abs=3e-3)


def test_disagreement_is_the_spread_over_the_members_that_scored_a_row() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        members = rng.normal(size=(rng.integers(1, 6), 7))
        holed = np.where(rng.random(members.shape) < 0.2, np.nan, members)
        enough = np.isfinite(holed).sum(axis=0) >= 3
        spread = [np.nanstd(column) if ok else np.nan for column, ok in zip(holed.T, enough, strict=True)]
        assert disagreement(holed) == pytest.approx(spread, nan_ok=True)


def test_dead_groups_high_and_low_add_up_to_all_dead_groups() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        chance = rng.random(GROUPS).repeat(SIZE) ** rng.uniform(0.1, 8)
        batch = step(rng, reward=(rng.random(GROUPS * SIZE) < chance).astype(float))
        sides = DeadSides().measure(batch, None)
        if np.ptp(batch.reward) > 0:  # type: ignore[arg-type]
            assert (sides["high_share"] + sides["low_share"]).tolist() == DeadGroups().measure(batch, None).tolist()


def test_a_batch_of_equal_rewards_is_high_or_low_only_by_the_baseline() -> None:
    solved, mixed = from_columns(0, [0, 0, 1, 1], reward=[1] * 4), from_columns(0, [0, 0, 1, 1], reward=[0, 1, 0, 1])
    assert read(DeadSides(), solved) == {}
    assert read(DeadSides(), solved, mixed) == {"reward.dead.high_share": 1.0, "reward.dead.low_share": 0.0}
    assert read(DeadSides(), replace(solved, fingerprint="another"), mixed) == {}
    failed = from_columns(0, [0, 0, 1, 1], reward=[0] * 4)
    assert read(DeadSides(), failed, mixed) == {"reward.dead.high_share": 0.0, "reward.dead.low_share": 1.0}


def test_saturation_needs_an_atom_at_the_top() -> None:
    rng = np.random.default_rng(4)
    smooth = step(rng)
    clipped = step(rng, reward=np.minimum(rng.normal(size=GROUPS * SIZE), 0.5))
    assert read(Saturation(), smooth) == {"reward.saturated_share": 0.0}
    share = float((clipped.reward == 0.5).mean())  # type: ignore[union-attr]
    assert read(Saturation(), clipped) == {"reward.saturated_share": pytest.approx(share)}
    assert read(Saturation(), from_columns(0, [0, 0], reward=[0, 0])) == {}
    solved, mixed = from_columns(0, [0, 0], reward=[1, 1]), from_columns(0, [0, 0], reward=[0, 1])
    assert read(Saturation(), solved, mixed) == {"reward.saturated_share": 1.0}
    once_higher = from_columns(0, [0, 0], reward=[0, 9])
    assert read(Saturation(), solved, once_higher) == {"reward.saturated_share": 0.0}


def test_rows_without_a_reward_are_counted_and_failures_of_machines_apart() -> None:
    parts = {"judge": [1.0, TimeoutError("judge"), None, 1.0]}
    batch = from_columns(0, [0, 0, 1, 1], reward=[1.0, None, None, OSError("disk")], rewards=parts)
    assert read(Unscored(), batch) == {"reward.unscored_share": 0.75}
    assert read(InfraFailures(), batch) == {"reward.infra_share": 0.5}
    no_reward = from_columns(0, [0, 0], length=[3, 4])
    assert read(InfraFailures(), no_reward) == {}


def test_the_win_share_is_a_half_at_the_start_and_knows_no_scale() -> None:
    rng = np.random.default_rng(5)
    start, now = step(rng), step(rng, reward=rng.normal(1.0, 1.0, GROUPS * SIZE))
    assert read(RewardWin(), start, start)["reward.win_share"] == pytest.approx(0.5)
    value = read(RewardWin(), now, start)["reward.win_share"]
    assert value == pytest.approx(0.76, abs=0.06)  # P(N(1, 1) > N(0, 1)) = 0.760
    stretched = [replace(batch, reward=np.exp(3.0 * batch.reward)) for batch in (now, start)]  # type: ignore[operator]
    assert read(RewardWin(), *stretched)["reward.win_share"] == value
    assert read(RewardWin(), replace(now, fingerprint="another"), start) == {}
    assert read(RewardWin(), now) == {}


def weighted(rng: np.random.Generator, correct: float, style: float, blank: float = 0.0) -> RolloutBatch:
    """Total = correct + 0.3 style + 2, style on another scale, sometimes not scored."""
    rows = GROUPS * SIZE
    parts = {"correct": (rng.random(rows) < correct).astype(float), "style": rng.normal(style, 1.0, rows)}
    parts["style"][rng.random(rows) < blank] = np.nan
    total = parts["correct"] + 0.3 * np.nan_to_num(parts["style"]) + 2.0
    return step(rng, reward=total, rewards=parts)


def test_the_gain_is_shared_out_by_component() -> None:
    rng = np.random.default_rng(6)
    for blank in (0.0, 0.3):
        start, now = weighted(rng, 0.5, 0.0, blank), weighted(rng, 0.4, 3.0, blank)
        found = read(GainShare(), now, start)
        gain = now.reward.mean() - start.reward.mean()  # type: ignore[union-attr]
        correct = now.rewards["correct"].mean() - start.rewards["correct"].mean()
        assert found["reward.gain_share.correct"] == pytest.approx(correct / gain, rel=1e-6)
        assert sum(found.values()) == pytest.approx(1.0)
        assert found["reward.gain_share.style"] > 1.0  # correctness fell


def test_there_is_no_share_of_a_gain_that_may_be_noise_or_across_a_change_of_reward() -> None:
    rng = np.random.default_rng(7)
    start, now = weighted(rng, 0.5, 0.0), weighted(rng, 0.5, 3.0)
    assert set(read(GainShare(), now, start)) == {"reward.gain_share.correct", "reward.gain_share.style"}
    assert read(GainShare(), start, now) == {}  # a loss
    assert read(GainShare(), start, start) == {}
    assert read(GainShare(), replace(now, fingerprint="another"), start) == {}
    renamed = replace(start, rewards={"other": start.rewards["correct"]})
    assert read(GainShare(), now, renamed) == {}


def test_the_spread_inside_groups_is_shared_out_by_component() -> None:
    rng = np.random.default_rng(8)
    batch = weighted(rng, 0.5, 0.0)
    assert batch.reward is not None
    inside = {
        name: (part.reshape(GROUPS, SIZE) - part.reshape(GROUPS, SIZE).mean(axis=1, keepdims=True)).ravel()
        for name, part in {"total": batch.reward, **batch.rewards}.items()
    }
    found = read(SpreadShare(), batch)
    for name, weight in (("correct", 1.0), ("style", 0.3)):
        expected = weight * (inside[name] @ inside["total"]) / (inside["total"] @ inside["total"])
        assert found[f"reward.spread_share.{name}"] == pytest.approx(expected, rel=1e-6)
    assert sum(found.values()) == pytest.approx(1.0)


def ensemble(rng: np.random.Generator, top_noise: float, members: int = 3) -> RolloutBatch:
    """Members on different scales that agree up to noise, which is larger where the mean is high."""
    rows = GROUPS * SIZE
    truth = rng.normal(size=rows)
    noise = np.where(truth > np.quantile(truth, 0.9), top_noise, 0.1)
    parts = {f"rm.{k}": 10.0**k * (truth + noise * rng.normal(size=rows)) + k for k in range(members)}
    return step(rng, reward=truth, rewards=parts)


def test_disagreement_on_the_best_paid_rises_above_that_on_all() -> None:
    rng = np.random.default_rng(9)
    start = ensemble(rng, 0.1)
    calm, hacked = read(EnsembleDisagreement(), start, start), read(EnsembleDisagreement(), ensemble(rng, 2.0), start)
    assert calm["reward.disagreement.top"] == pytest.approx(calm["reward.disagreement.all"], rel=0.4)
    assert hacked["reward.disagreement.top"] > 3 * hacked["reward.disagreement.all"]
    top = EnsembleDisagreement().measure(start, Baseline(start))["top"]
    assert np.isfinite(top).sum() == math.ceil(0.1 * (len(start) - 1))


def test_disagreement_needs_three_members_of_one_name_and_the_same_reward() -> None:
    rng = np.random.default_rng(10)
    pair = ensemble(rng, 1.0, members=2)
    assert read(EnsembleDisagreement(), pair, pair) == {}
    trio = ensemble(rng, 1.0)
    assert read(EnsembleDisagreement(), trio) == {}
    assert read(EnsembleDisagreement(), replace(trio, fingerprint="another"), trio) == {}
    unrelated = replace(trio, rewards=dict(zip(("a", "b", "c.0"), trio.rewards.values(), strict=True)))
    assert read(EnsembleDisagreement(), unrelated, unrelated) == {}
    stuck = replace(trio, rewards={**trio.rewards, "rm.2": np.ones(len(trio))})
    assert read(EnsembleDisagreement(), stuck, stuck) == {}


def test_the_gap_is_zero_at_the_start_and_grows_when_only_the_reward_does() -> None:
    rng = np.random.default_rng(11)
    start = step(rng)
    assert read(GoldGap(), start, start)["gold.gap"] == pytest.approx(0.0, abs=1e-12)
    hacked = step(rng, reward=start.reward + 10.0)  # type: ignore[operator]
    assert read(GoldGap(), hacked, start)["gold.gap"] == pytest.approx(0.5, abs=0.06)
    honest = step(rng, reward=start.reward + 10.0, gold=np.ones(len(start)))  # type: ignore[operator]
    assert read(GoldGap(), honest, start)["gold.gap"] == pytest.approx(0.25, abs=0.06)  # half of the start had gold 1
    assert read(GoldGap(), replace(hacked, fingerprint="another"), start) == {}
    assert read(GoldGap(), hacked, replace(start, gold=None)) == {}


def test_the_gap_undoes_unequal_labelling() -> None:
    """Good answers are labelled three times as often, now and at the start; the gap must not see it."""
    rng = np.random.default_rng(12)

    def sampled(batch: RolloutBatch) -> RolloutBatch:
        assert batch.gold is not None
        chance = np.where(batch.gold == 1.0, 0.9, 0.3)
        asked = rng.random(len(batch)) < chance
        return replace(batch, gold=np.where(asked, batch.gold, np.nan), gold_chance=np.where(asked, chance, np.nan))

    gaps, naive = [], []
    for _ in range(60):
        start, now = step(rng), step(rng, gold=(rng.random(GROUPS * SIZE) < 0.8).astype(float))
        full = read(GoldGap(), now, start)["gold.gap"]
        gaps.append(read(GoldGap(), sampled(now), sampled(start))["gold.gap"] - full)
        blind = replace(sampled(now), gold_chance=np.ones(len(now)))
        naive.append(read(GoldGap(), blind, start)["gold.gap"] - full)
    error = np.std(gaps) / math.sqrt(60)
    assert abs(np.mean(gaps)) < 3 * error
    assert abs(np.mean(naive)) > 5 * error


def test_covariance_of_a_wholly_labelled_group_is_the_population_one() -> None:
    rng = np.random.default_rng(13)
    advantage, gold = rng.normal(size=(2, GROUPS * SIZE))
    batch = step(rng, advantage=advantage, gold=1.0 / (1.0 + np.exp(gold)))
    found = GoldCovariance().measure(batch, None)
    for k in range(GROUPS):
        rows = slice(k * SIZE, (k + 1) * SIZE)
        assert found[k] == pytest.approx(np.cov(advantage[rows], batch.gold[rows], ddof=0)[0, 1])  # type: ignore[index]


def test_covariance_is_the_same_on_average_over_all_ways_to_label_a_part() -> None:
    rng = np.random.default_rng(14)
    advantage, gold = rng.normal(size=6), rng.random(6)
    whole = np.cov(advantage, gold, ddof=0)[0, 1]
    for labelled in (2, 3, 5):
        found = []
        for rows in itertools.combinations(range(6), labelled):
            asked = np.isin(np.arange(6), rows)
            some = np.where(asked, gold, np.nan)
            chance = np.where(asked, labelled / 6, np.nan)
            batch = from_columns(0, [0] * 6, advantage=advantage, gold=some, gold_chance=chance)
            found.append(GoldCovariance().measure(batch, None)[0])
        assert np.mean(found) == pytest.approx(whole, rel=1e-9)


def test_agreement_is_the_share_of_rightly_ordered_pairs() -> None:
    rng = np.random.default_rng(15)
    batch = step(rng)
    assert read(GoldAgreement(), batch)["gold.agreement"] == pytest.approx(0.5, abs=0.1)
    assert batch.gold is not None
    perfect = replace(batch, reward=batch.gold * 7.0 - 3.0)
    assert read(GoldAgreement(), perfect) == {"gold.agreement": 1.0}
    assert read(GoldAgreement(), replace(perfect, reward=-perfect.reward)) == {"gold.agreement": 0.0}  # type: ignore[operator]
    assert read(GoldAgreement(), replace(batch, gold=np.ones(len(batch)))) == {}


def paid(rng: np.random.Generator, longer: int, better: float, price: float = 0.01) -> RolloutBatch:
    """Reward = price x length + quality, with prompts, the same ones at every step, that differ in both."""
    rows = GROUPS * SIZE
    hard = np.random.default_rng(99).normal(size=GROUPS).repeat(SIZE)
    length = (rng.integers(100, 200, rows) + 40 * np.abs(hard)).astype(int) + longer
    return step(rng, reward=price * length + better - 3.0 * hard + rng.normal(0, 0.2, rows), length=length)


def test_the_price_of_length_and_its_standard_error_are_those_of_least_squares() -> None:
    rng = np.random.default_rng(16)
    for _ in range(30):
        batch = paid(rng, 0, 0.0)
        (found,) = readings(LengthSlope(), batch, None)
        dummies = (PROMPTS[:, None] == np.arange(GROUPS)).astype(float)
        assert batch.length is not None
        fitted = sm.OLS(batch.reward, np.column_stack((batch.length / 100, dummies))).fit(
            cov_type="cluster", cov_kwds={"groups": PROMPTS}
        )
        correction = math.sqrt((len(batch) - 1) / (len(batch) - GROUPS - 1))
        assert found.value == pytest.approx(fitted.params[0], rel=1e-9)
        assert found.stderr == pytest.approx(fitted.bse[0] / correction, rel=1e-6)
        assert found.stderr is not None
        assert found.value == pytest.approx(1.0, abs=6 * found.stderr)


def test_a_gain_by_length_alone_leaves_nothing_and_an_honest_gain_stays() -> None:
    rng = np.random.default_rng(17)
    start, padded, honest = paid(rng, 0, 0.0), paid(rng, 500, 0.0), paid(rng, 0, 5.0)

    for batch, gain, share in ((padded, 0.0, 1.0), (honest, 5.0, 0.0)):
        assert read(LengthResidual(), batch, start)["length.residual_gain"] == pytest.approx(gain, abs=0.3)
        assert read(LengthGain(), batch, start)["length.gain_share"] == pytest.approx(share, abs=0.05)
    assert read(LengthGain(), start, start) == {}
    assert read(LengthGain(), start, honest) == {}  # a loss has no shares


def test_a_length_hack_that_ends_at_the_limit_is_still_seen() -> None:
    """All completions are as long as allowed: today's slope is gone, the start's is not."""
    rng = np.random.default_rng(18)
    start = paid(rng, 0, 0.0)
    full = np.full(len(start), 2_000)
    now = step(rng, length=full, reward=0.01 * full + rng.normal(0, 0.2, len(start)))
    assert read(LengthSlope(), now) == {}
    assert read(LengthGain(), now, start)["length.gain_share"] == pytest.approx(1.0, abs=0.15)
    assert read(LengthGain(), replace(now, fingerprint="another"), start) == {}
    assert read(LengthResidual(), replace(now, fingerprint="another"), start) == {}


@pytest.mark.parametrize("make", [RewardWin, GoldGap, GoldAgreement, DeadSides, Saturation, LengthGain, GainShare])
def test_scale_free_readings_do_not_change_when_the_reward_is_scaled(make: Any) -> None:
    rng = np.random.default_rng(19)
    start, now = weighted(rng, 0.3, 0.0), weighted(rng, 0.6, 2.0)

    def scaled(batch: RolloutBatch) -> RolloutBatch:
        assert batch.reward is not None
        parts: dict[str, Floats] = {name: 64.0 * part for name, part in batch.rewards.items()}
        return replace(batch, reward=64.0 * batch.reward + 8.0, rewards=parts)

    plain = read(make(), now, start)
    assert plain
    assert read(make(), scaled(now), scaled(start)) == pytest.approx(plain, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        DeadSides,
        Saturation,
        RewardWin,
        GainShare,
        SpreadShare,
        EnsembleDisagreement,
        GoldGap,
        GoldAgreement,
        LengthSlope,
        LengthResidual,
        LengthGain,
    ],
)
def test_an_infinite_reward_is_as_good_as_none(make: Any) -> None:
    rng = np.random.default_rng(20)
    start, now = ensemble(rng, 0.1), ensemble(rng, 1.0)
    assert now.reward is not None
    now = replace(now, reward=now.reward + 3.0)

    def with_value(batch: RolloutBatch, value: float) -> RolloutBatch:
        assert batch.reward is not None
        reward, first = batch.reward.copy(), batch.rewards["rm.0"].copy()
        reward[[3, 40]], first[[7, 40]] = [value, -value], value
        return replace(batch, reward=reward, rewards={**batch.rewards, "rm.0": first})

    with np.errstate(all="raise", under="ignore"):
        infinite = read(make(), with_value(now, np.inf), with_value(start, np.inf))
    assert infinite
    assert infinite == read(make(), with_value(now, np.nan), with_value(start, np.nan))


def test_a_component_that_never_scored_has_no_share_and_a_new_one_takes_none_from_others() -> None:
    rng = np.random.default_rng(3)
    parts = {"correct": rng.random(64), "style": rng.random(64), "judge": np.full(64, np.nan)}
    group = np.arange(64) // 8
    batch = from_columns(1, group, reward=parts["correct"] + parts["style"] + 9, rewards=parts)
    start = from_columns(0, group, reward=parts["correct"], rewards={"correct": parts["correct"]})
    assert set(read(SpreadShare(), batch)) == {"reward.spread_share.correct", "reward.spread_share.style"}
    assert read(GainShare(), batch, start) == {}
    both = from_columns(0, group, reward=parts["correct"] + parts["style"], rewards=parts)
    assert "reward.gain_share.judge" not in read(GainShare(), batch, both)
