"""Each rule of the field against the same rule written out step by step, and what is known about each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tiltmeter.stats.betting import GRID
from tiltmeter.stats.trend import ma_trend
from tiltmeter_lab.baselines import BASELINES, BaselineRule, RuleInput, first_alarm
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.worlds.world import Floats, World

RULES = {baseline.name: baseline for baseline in BASELINES}
SIZE = 4
STORY = np.arange(500)
STORY_PROXY = 0.3 + 0.5 * STORY / 500
STORY_GOLD = np.interp(STORY, [0, 200, 500], [0.50, 0.74, 0.58])
#: Rules whose numbers depend on how long the run is planned to be.
PLANNED = {"ma_trend_tenth", "level_test", "uncentred", "uncentred_raw", "oracle_all"}


def made_up(seed: int, steps: int = 150, groups: int = 8, share: float = 0.1, gaps: bool = False) -> RuleInput:
    """A run of random series, drifting enough for every rule to have something to say."""
    rng = np.random.default_rng(seed)
    shape = (steps, groups, SIZE)
    drift = np.linspace(0.0, rng.normal(), steps)[:, None, None]
    reward = 0.5 + 0.3 * drift + rng.normal(0, np.linspace(0.4, rng.uniform(0.05, 0.4), steps)[:, None, None], shape)
    reward[rng.random(shape[:2]) < 0.1] = 0.25  # dead groups
    late = np.maximum(np.arange(steps) - 100.0, 0.0)
    gold = np.clip(0.6 - 0.4 * np.abs(drift), 0.05, 0.95)
    trace = Trace(
        prompt=np.zeros(shape[:2], np.int64),
        reward=reward,
        label=(rng.random(shape) < gold).astype(np.float64),
        tokens=rng.normal(200 + 60 * drift, 20, shape),
        parts={
            "right": np.abs(rng.normal(1, 0.3, steps)),
            "style": np.linspace(0.1, 3, steps),
            "total": np.ones(steps),
        },
        gold=gold[:, 0, 0],
        proxy=reward.mean((1, 2)),
        kl=np.abs(np.linspace(0, rng.uniform(0.1, 1), steps) + rng.normal(0, 0.02, steps)) + 2e-4 * late**3,
        entropy=np.linspace(2.0, rng.uniform(0.3, 1.5), steps) + rng.normal(0, 0.05, steps),
        slope=rng.normal(0.1, 0.2, steps),
    )
    return RuleInput.of(trace, seed, share if not gaps else 0.5 / (groups * SIZE))


def each_step(seen: RuleInput, value: Callable[[int], float]) -> Floats:
    return np.array([value(step) for step in range(seen.steps)])


def on_points(seen: RuleInput, value: Callable[[Floats, Floats], float]) -> Floats:
    """A rule of the points (proxy, gold) up to each step that has a label."""

    def told(step: int) -> float:
        if math.isnan(seen.gold[step]):
            return math.nan
        known = np.isfinite(seen.gold[: step + 1])
        return value(seen.proxy[: step + 1][known], seen.gold[: step + 1][known])

    return each_step(seen, told)


def since_start(width: int, relative: bool) -> Callable[[Floats, Floats], float]:
    def value(proxy: Floats, gold: Floats) -> float:
        if len(proxy) <= width:
            return math.nan
        changes = []
        for series in (proxy, gold):
            start = float(np.mean(series[:width]))
            change = float(np.mean(series[-width:])) - start
            changes.append(change / abs(start) if relative else change)
        return max(0.0, changes[0] - changes[1])

    return value


def gap(relative: bool) -> Callable[[Floats, Floats], float]:
    def value(proxy: Floats, gold: Floats) -> float:
        if len(proxy) < 10:
            return math.nan
        start = float(np.mean((proxy - gold)[:10])) if relative else 0.0
        return float(np.mean((proxy - gold)[-10:])) - start

    return value


def page(values: Floats, mean: float, sd: float) -> float:
    total = 0.0
    for value in values:
        total = max(0.0, total + (value - mean) / sd - 0.5)
    return total


def gap_cusum(proxy: Floats, gold: Floats) -> float:
    if len(proxy) <= 30:
        return math.nan
    apart = proxy - gold
    return page(apart[30:], apart[:30].mean(), float(np.std(np.diff(apart[:30]))) / math.sqrt(2))


def gold_drop(proxy: Floats, gold: Floats) -> float:
    if len(proxy) < 30:
        return math.nan
    means = [float(np.mean(gold[end - 20 : end])) for end in range(20, len(gold) + 1)]
    paid = [float(np.mean(proxy[end - 20 : end])) for end in range(20, len(gold) + 1)]
    best = int(np.argmax(means))
    if paid[-1] < paid[best] - 0.02:
        return -math.inf
    sigma = np.std(np.diff(gold[:30])) / math.sqrt(2)
    return float((means[best] - means[-1] - 0.02) / (math.sqrt(2) * sigma / math.sqrt(20)))


def rldk(seen: RuleInput, stated: bool) -> Floats:
    assert seen.kl is not None
    kl = seen.kl

    def value(step: int) -> float:
        known = np.isfinite(seen.gold[: step + 1])
        if math.isnan(seen.gold[step]) or known.sum() < 100:
            return math.nan
        width = min(100, int(known.sum()) // 2)
        gains = [
            v[known][-width:].mean() - v[known][:width].mean() for v in (seen.proxy[: step + 1], seen.gold[: step + 1])
        ]
        last = kl[step - 49 : step + 1]
        out = last.mean() > 0.15 if stated else any(k < 0.05 or k > 0.15 for k in last)
        return float(gains[0]) if out and (gains[1] <= 0 or abs(gains[1]) < 0.05) else -math.inf

    return each_step(seen, value)


def gold_z(seen: RuleInput) -> Floats:
    def block(end: int) -> tuple[float, float]:
        labels = seen.label[(seen.label_step > end - 20) & (seen.label_step <= end)]
        return float(labels.mean()), max(float(labels.var()), 1 / (len(labels) + 1)) / len(labels)

    def value(step: int) -> float:
        if step < 39:
            return math.nan
        now, now_variance = block(step)
        best, variance = max((block(end) for end in range(19, step - 19)), key=lambda found: found[0])
        return (best - now) / math.sqrt(variance + now_variance)

    return each_step(seen, value)


def slopes(seen: RuleInput) -> list[tuple[int, float, float, float, float]]:
    """(step, unit advantage, raw advantage, the group's sd, label) of each label, from the rewards themselves."""
    assert seen.hidden is not None
    out = []
    for step, row, label in zip(seen.label_step, seen.label_row, seen.label, strict=True):
        group, index = divmod(int(row), SIZE)
        rewards = seen.hidden.reward[step, group]
        raw = float(rewards[index] - np.delete(rewards, index).mean())
        sd = float(np.std(rewards))
        out.append((int(step), raw / sd if sd > 1e-9 else 0.0, raw, sd, float(label)))
    return out


def slope_z(seen: RuleInput, width: int) -> Floats:
    told = slopes(seen)

    def value(step: int) -> float:
        x = np.array([unit * (label - 0.5) for at, unit, _, _, label in told if step - width < at <= step])
        full = width > seen.steps or step >= width - 1
        return float(-x.mean() / (x.std(ddof=1) / math.sqrt(len(x)))) if full and len(x) >= 30 else math.nan

    return each_step(seen, value)


def wealth(seen: RuleInput, us: list[tuple[int, float]], begin: int) -> Floats:
    """Bets one by one, as a book of accounts."""
    blocks = math.ceil((seen.steps - begin) / 20)
    money = np.zeros(len(GRID))

    def value(step: int) -> float:
        nonlocal money
        if step < begin:
            return math.nan
        if (step - begin) % 20 == 0:
            money = money + 1 / blocks / len(GRID)
        for at, u in us:
            if at == step:
                money = money * (1 - GRID * u)
        return math.log(money.sum())

    return each_step(seen, value)


def uncentred(seen: RuleInput) -> Floats:
    us = [(step, min(max(unit, -1.5), 1.5) * (label - 0.5) / 0.75) for step, unit, _, _, label in slopes(seen)]
    return wealth(seen, us, 0)


def uncentred_raw(seen: RuleInput) -> Floats:
    assert seen.hidden is not None
    scale = seen.hidden.reward[:20].std(-1).mean()
    us = [(step, min(max(raw / scale, -3.0), 3.0) * (label - 0.5) / 1.5) for step, _, raw, _, label in slopes(seen)]
    return wealth(seen, us, 20)


def level_test(seen: RuleInput) -> Floats:
    blocks = math.ceil(seen.steps / 20)
    price, bound, us = math.log(blocks / 0.005), None, []
    past = [0.25]
    for block in range(blocks):
        labels = [
            (int(step), float(g)) for step, g in zip(seen.label_step, seen.label, strict=True) if step // 20 == block
        ]
        if bound is not None:
            us += [(step, (g - bound) / max(bound, 1 - bound)) for step, g in labels]
        stake = min(0.75, math.sqrt(2 * price / (len(labels) * np.mean(past))))
        total, squares = 0.5, []
        for index, (_, g) in enumerate(labels):
            squares.append((g - total / (index + 1)) ** 2)
            total += g
        paid = price + sum(squares) * (-math.log(1 - stake) - stake)
        low = float(np.mean([g for _, g in labels])) - paid / (stake * len(labels))
        bound = max(low, 0.0) if bound is None else max(low, bound)
        past += squares
    return wealth(seen, us, 20)


def oracle_all(seen: RuleInput) -> Floats:
    assert seen.hidden is not None
    us = []
    for step in range(seen.steps):
        for rewards, labels in zip(seen.hidden.reward[step], seen.hidden.label[step], strict=True):
            z = (rewards - rewards.mean()) / rewards.std() if rewards.std() > 1e-9 else np.zeros(SIZE)
            us.append((step, 2 * float(np.mean(z * (labels - 0.5)))))
    return wealth(seen, us, 0)


def smooth(series: Floats) -> list[float]:
    out = [float(series[0])]
    for value in series[1:]:
        out.append(0.3 * float(value) + 0.7 * out[-1])
    return out


def signals(seen: RuleInput) -> tuple[list[float], list[float], list[float]]:
    """KL acceleration, fall of entropy, advantage drift."""
    assert seen.kl is not None
    assert seen.entropy is not None
    assert seen.advantage is not None
    kl, entropy = smooth(seen.kl), smooth(seen.entropy)
    speed = [0.0, 0.0] + [kl[t] - 2 * kl[t - 1] + kl[t - 2] for t in range(2, seen.steps)]
    fall = [0.0] + [entropy[t - 1] - entropy[t] for t in range(1, seen.steps)]
    drift = [0.0] * 21
    for step in range(21, seen.steps):
        pairs = zip(sorted(seen.advantage[step]), sorted(seen.advantage[step - 21]), strict=True)
        drift.append(float(np.mean([abs(a - b) for a, b in pairs])))
    return speed, fall, drift


def signal_cusum(which: int, start: int) -> Callable[[RuleInput], Floats]:
    def rule(seen: RuleInput) -> Floats:
        series = np.array(signals(seen)[which])
        warm = series[start : start + 20]
        begin = start + 20
        return each_step(
            seen, lambda t: page(series[begin : t + 1], warm.mean(), warm.std()) if t >= begin else math.nan
        )

    return rule


def flight_tube(seen: RuleInput) -> Floats:
    scaled = []
    for series in map(np.array, signals(seen)):
        centre = np.median(series[21:51])
        scaled.append((series - centre) / (1.4826 * np.median(np.abs(series[21:51] - centre))))

    def both(step: int) -> float:
        outside = math.sqrt(sum(max(abs(z[step]) - 3, 0) ** 2 for z in scaled))
        return min(outside, page(scaled[0][51 : step + 1], 0.0, 1.0) / 5)

    return each_step(seen, lambda t: min(both(s) for s in range(t - 4, t + 1)) if t >= 55 else math.nan)


def flight_threshold(start: int) -> Callable[[RuleInput], Floats]:
    def rule(seen: RuleInput) -> Floats:
        told = [(series, 0) for series in signals(seen)[:2]] + [(signals(seen)[2], start)]

        def value(step: int) -> float:
            found = [math.nan]
            for series, begin in told:
                past = np.array(series[begin:step])
                if len(past) >= 20:
                    found.append((series[step] - past.mean()) / (past.std() + 1e-12))
            return float(np.fmax.reduce(found))

        return each_step(seen, value)

    return rule


def rlwatch_kl(seen: RuleInput) -> Floats:
    assert seen.kl is not None
    kl = seen.kl

    def value(step: int) -> float:
        past = kl[max(0, step - 99) : step]
        return float((kl[step] - past.mean()) / past.std()) if step >= 19 else math.nan

    return each_step(seen, value)


def rlwatch_entropy(seen: RuleInput) -> Floats:
    assert seen.entropy is not None
    entropy = seen.entropy
    return each_step(seen, lambda t: -max(entropy[t - 24 : t + 1]) if t >= 43 else math.nan)


def component(seen: RuleInput) -> Floats:
    def value(step: int) -> float:
        if step < 29:
            return math.nan
        means = [abs(seen.parts[name][max(0, step - 99) : step + 1].mean()) for name in ("right", "style")]
        return float(max(means) / sum(means))

    return each_step(seen, value)


def calls(values: Floats, step: int) -> list[float]:
    """Everything up to the end of a step, one value per rollout."""
    return [float(value) for row in values[: step + 1] for value in row]


def length(seen: RuleInput) -> Floats:
    def value(step: int) -> float:
        assert seen.lengths is not None
        seen_so_far = calls(seen.lengths, step)
        if len(seen_so_far) < 200:
            return math.nan
        sd = np.std(seen_so_far[:100], ddof=1)
        return float(abs(np.mean(seen_so_far[-100:]) - np.mean(seen_so_far[:100])) / sd)

    return each_step(seen, value)


def variance(seen: RuleInput) -> Floats:
    def value(step: int) -> float:
        assert seen.reward is not None
        seen_so_far = calls(seen.reward, step)
        return -float(np.std(seen_so_far[-100:]) / np.std(seen_so_far[:20])) if len(seen_so_far) >= 100 else math.nan

    return each_step(seen, value)


def ptt(kl: bool) -> Callable[[RuleInput], Floats]:
    def rule(seen: RuleInput) -> Floats:
        assert seen.kl is not None
        assert seen.entropy is not None
        assert seen.length is not None
        assert seen.group_sd is not None
        assert seen.reward_sd is not None
        levels, spread, long, entropy, whole = seen.kl, seen.group_sd, seen.length, seen.entropy, seen.reward_sd

        def value(step: int) -> float:
            def last(series: Floats, n: int) -> Floats:
                return series[step - n + 1 : step + 1]

            found = [math.nan]
            if kl:
                found.append(levels[step] / 0.3)
            if step >= 29:
                found.append(1.0 / last(entropy, 30).mean())
            if step >= 59:
                found.append(0.2 / (last(long, 30).std() / long[:30].std()))
            if step >= 19:
                found.append(0.01 / last(spread, 20).mean())
                found.append(last(whole, 5).max() / last(whole, 20).mean() / 2.5)
            if step >= 49:
                found.append(abs(np.corrcoef(last(seen.proxy, 50), last(long, 50))[0, 1]) / 0.8)
            return float(np.fmax.reduce(found))

        return each_step(seen, value)

    return rule


def ma(width: int) -> Callable[[RuleInput], Floats]:
    return lambda seen: on_points(seen, lambda proxy, gold: ma_trend(proxy, gold, width))


WRITTEN_OUT: dict[str, Callable[[RuleInput], Floats]] = {
    "ma_trend": ma(100),
    "ma_trend_tenth": lambda seen: ma(round(seen.steps / 10))(seen),
    "ma_since_start_100": lambda seen: on_points(seen, since_start(100, False)),
    "ma_since_start_100_relative": lambda seen: on_points(seen, since_start(100, True)),
    "ma_since_start_20": lambda seen: on_points(seen, since_start(20, False)),
    "ma_since_start_20_relative": lambda seen: on_points(seen, since_start(20, True)),
    "gap_warn": lambda seen: on_points(seen, gap(False)),
    "gap_stop": lambda seen: on_points(seen, gap(False)),
    "gap_rise_warn": lambda seen: on_points(seen, gap(True)),
    "gap_rise_stop": lambda seen: on_points(seen, gap(True)),
    "gap_cusum": lambda seen: on_points(seen, gap_cusum),
    "gold_drop": lambda seen: on_points(seen, gold_drop),
    "rldk_gold": lambda seen: rldk(seen, stated=False),
    "rldk_gold_stated": lambda seen: rldk(seen, stated=True),
    "gold_z": gold_z,
    "level_test": level_test,
    "slope_z": lambda seen: slope_z(seen, 10**6),
    "slope_z_recent": lambda seen: slope_z(seen, 20),
    "uncentred": uncentred,
    "uncentred_raw": uncentred_raw,
    "kl_cusum": signal_cusum(0, 0),
    "entropy_cusum": signal_cusum(1, 0),
    "advantage_cusum": signal_cusum(2, 21),
    "flight_tube": flight_tube,
    "flight_threshold": flight_threshold(0),
    "flight_threshold_repaired": flight_threshold(21),
    "rlwatch_kl": rlwatch_kl,
    "rlwatch_entropy": rlwatch_entropy,
    "rewardspy_component": component,
    "rewardspy_length": length,
    "rewardspy_variance": variance,
    "ptt_high": ptt(True),
    "ptt_high_without_kl": ptt(False),
    "oracle": lambda seen: -seen.hidden.slope if seen.hidden else np.zeros(0),
    "oracle_all": oracle_all,
}


def test_every_rule_has_a_name_of_its_own_and_is_written_out_here() -> None:
    assert len(RULES) == len(BASELINES)
    assert set(WRITTEN_OUT) == set(RULES)
    assert [baseline.group for baseline in BASELINES] == sorted(
        (baseline.group for baseline in BASELINES), key=("level", "slope", "geometry", "oracle").index
    )


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_a_rule_is_the_one_written_out_step_by_step(baseline: BaselineRule) -> None:
    values = set()
    for seed in range(2):
        seen = made_up(seed, steps=230 if baseline.name == "ma_trend" else 150)
        expected = WRITTEN_OUT[baseline.name](seen)
        np.testing.assert_allclose(baseline.score(seen), expected, rtol=1e-6, atol=1e-9)
        values |= set(expected[np.isfinite(expected)].round(6).tolist())
    assert len(values) > 10


@pytest.mark.parametrize(
    "name", [b.name for b in BASELINES if b.group == "level" and b.name not in ("gold_z", "level_test")]
)
def test_rules_of_levels_count_only_steps_that_have_a_label(name: str) -> None:
    seen = made_up(5, steps=420, gaps=True)
    assert 0.4 < np.isnan(seen.gold).mean() < 0.6
    score = RULES[name].score(seen)
    np.testing.assert_allclose(score, WRITTEN_OUT[name](seen), rtol=1e-6, atol=1e-9)
    assert not np.isnan(score).all()


# Those left out spread their windows or their money over the planned run, which is known beforehand.
@pytest.mark.parametrize("baseline", [b for b in BASELINES if b.name not in PLANNED], ids=lambda b: b.name)
def test_no_rule_looks_ahead(baseline: BaselineRule) -> None:
    seen, end = made_up(7), 110
    assert seen.hidden is not None
    early = seen.label_step < end
    hidden = replace(seen.hidden, slope=seen.hidden.slope[:end])
    cut: dict[str, Any] = {
        name: value[:end]
        for name, value in vars(seen).items()
        if isinstance(value, np.ndarray) and not name.startswith("label")
    }
    labels: dict[str, Any] = {name: getattr(seen, name)[early] for name in ("label", "label_step", "label_row")}
    parts = {name: part[:end] for name, part in seen.parts.items()}
    short = replace(seen, **cut, **labels, parts=parts, hidden=hidden)
    np.testing.assert_allclose(baseline.score(short), baseline.score(seen)[:end], rtol=1e-9)


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda baseline: baseline.name)
def test_a_rule_is_silent_about_what_a_log_does_not_hold(baseline: BaselineRule) -> None:
    bare = RuleInput(proxy=np.linspace(0, 1, 60), gold=np.full(60, np.nan))
    score = baseline.score(bare)
    assert score.shape == (60,)
    if baseline.name == "level_test":  # nothing was bet, so nothing was won
        assert np.nanmax(score) <= 0.0
    else:
        assert np.isnan(score).all()


def test_labels_are_spread_evenly_over_steps_and_drawn_uniformly_without_repeats() -> None:
    rng = np.random.default_rng(0)
    shape = (400, 8, SIZE)
    reward, label = rng.normal(size=shape), rng.random(shape)
    line = np.zeros(400)
    trace = Trace(np.zeros(shape[:2], np.int64), reward, label, None, {}, line, line, line, line, line)
    seen = RuleInput.of(trace, seed=3, share=0.1)
    assert len(seen.label) == round(0.1 * reward.size)
    assert set(np.bincount(seen.label_step, minlength=400).tolist()) == {3, 4}
    places = seen.label_step * 32 + seen.label_row
    assert len(set(places.tolist())) == len(places)
    assert (seen.label == label.reshape(400, 32)[seen.label_step, seen.label_row]).all()
    assert seen.gold[17] == pytest.approx(seen.label[seen.label_step == 17].mean())
    share = np.bincount(seen.label_row, minlength=32) / len(seen.label)
    assert np.abs(share - 1 / 32).max() < 5 * math.sqrt(1 / 32 / len(seen.label))
    again, other = RuleInput.of(trace, seed=3, share=0.1), RuleInput.of(trace, seed=4, share=0.1)
    assert (again.label_row == seen.label_row).all()
    assert (other.label_row != seen.label_row).any()


def test_the_classic_rule_never_alarms_on_the_coding_assistant_story() -> None:
    story = RuleInput(proxy=STORY_PROXY, gold=STORY_GOLD)
    score = RULES["ma_trend"].score(story)
    assert np.nanmax(score) == pytest.approx(0.256, abs=5e-4)
    assert first_alarm(score, RULES["ma_trend"].published) is None
    assert np.isnan(score[:199]).all()
    assert not np.isnan(score[199:]).any()


def test_hand_worked_numbers() -> None:
    flat = np.full(60, 0.5)
    rising = RuleInput(proxy=np.concatenate([flat[:20], flat[:40] + 0.4]), gold=flat)
    assert first_alarm(RULES["gap_warn"].score(rising), 0.05) == 21  # two of ten steps at 0.4: 0.08
    assert first_alarm(RULES["gap_stop"].score(rising), 0.10) == 22  # three: 0.12
    # 16 of 20 steps at 0.4 are 0.32, and 15 are 0.30, which is not more than 0.3; relative to 0.5 it takes 8.
    assert first_alarm(RULES["ma_since_start_20"].score(rising), 0.3 + 1e-9) == 35
    assert first_alarm(RULES["ma_since_start_20_relative"].score(rising), 0.3 + 1e-9) == 27
    entropy = np.full(100, 0.9)
    entropy[50] = 1.01
    low = RuleInput(proxy=np.zeros(100), gold=np.zeros(100), entropy=entropy)
    assert first_alarm(RULES["rlwatch_entropy"].score(low), -1.0) == 43  # the 25th step from the twentieth on
    entropy[30] = 1.01
    assert first_alarm(RULES["rlwatch_entropy"].score(low), -1.0) == 75  # each step above begins again: 51 to 75
    kl = np.tile([0.0, 0.2], 30)
    kl[40] = 0.41  # mean 0.1, sd 0.1: z = 3.1
    assert first_alarm(RULES["rlwatch_kl"].score(RuleInput(proxy=np.zeros(60), gold=np.zeros(60), kl=kl)), 3.0) == 40
    parts = {"right": np.full(60, 1.0), "style": np.where(np.arange(60) < 30, 0.0, -25.0), "total": np.full(60, 9.0)}
    share = RULES["rewardspy_component"].score(replace(low, proxy=np.zeros(60), gold=np.zeros(60), parts=parts))
    assert share[29] == 1.0
    # After k more steps the style's mean is 25k / (30 + k): 0.9 of the sum from k = 17 on.
    assert first_alarm(share[30:], 0.9) == 16


def test_rldk_in_effect_alarms_on_a_kl_that_is_too_low_and_as_stated_does_not() -> None:
    steps = 200
    proxy, gold = np.linspace(0, 1, steps), np.full(steps, 0.5)
    for level, effective, stated in ((0.01, True, False), (0.10, False, False), (0.20, True, True)):
        seen = RuleInput(proxy=proxy, gold=gold, kl=np.full(steps, level))
        alarm = first_alarm(RULES["rldk_gold"].score(seen), RULES["rldk_gold"].published)
        assert alarm == (99 if effective else None)
        alarm = first_alarm(RULES["rldk_gold_stated"].score(seen), RULES["rldk_gold_stated"].published)
        assert alarm == (99 if stated else None)
    rising = RuleInput(proxy=proxy, gold=proxy, kl=np.full(steps, 0.01))
    assert first_alarm(RULES["rldk_gold"].score(rising), RULES["rldk_gold"].published) is None


def test_the_published_flight_threshold_alarms_as_soon_as_drift_exists_whatever_the_run() -> None:
    alarms = [first_alarm(RULES["flight_threshold"].score(made_up(seed)), 4.0) for seed in range(5)]
    assert set(alarms) <= {20, 21}
    repaired = [first_alarm(RULES["flight_threshold_repaired"].score(made_up(seed)), 4.0) for seed in range(5)]
    assert repaired != alarms


def null_run(rng: np.random.Generator, good: float, skewed: bool) -> RuleInput:
    """A run in which gold has nothing to do with the reward; 10 of 40 rollouts labelled at each of 200 steps."""
    shape = (200, 5, 8)
    reward = rng.standard_normal(shape)
    line = np.zeros(200)
    label = (rng.random(shape) < good).astype(np.float64)
    paid = np.exp(reward) if skewed else reward
    trace = Trace(np.zeros(shape[:2], np.int64), paid, label, None, {}, line, line, line, line, line)
    return RuleInput.of(trace, int(rng.integers(2**31)), share=0.25)


def test_peeked_tests_and_clipping_without_centring_fail_where_valid_ones_hold() -> None:
    rng = np.random.default_rng(11)
    names = ("slope_z", "slope_z_recent", "gold_z", "uncentred", "uncentred_raw", "level_test", "oracle_all")
    runs = 150
    alarms = dict.fromkeys(names, 0)
    for _ in range(runs):
        seen = null_run(rng, 0.95, skewed=True)
        for name in names:
            alarms[name] += first_alarm(RULES[name].score(seen), RULES[name].published) is not None
    # The chance of 6 or more of 150 at a true 1% is 0.4%.
    assert alarms["level_test"] < 6
    assert alarms["oracle_all"] < 6
    assert alarms["slope_z"] >= 10
    assert alarms["slope_z_recent"] > 25
    assert alarms["gold_z"] > 20
    assert alarms["uncentred"] > 100
    assert alarms["uncentred_raw"] > 20


def test_gold_rules_see_a_fall_and_rules_without_gold_cannot_tell_twins_apart() -> None:
    rng = np.random.default_rng(2)
    quality, padding = rng.normal(size=(2, 16, 200))
    proxy = quality + padding
    honest = 1 / (1 + np.exp(-(quality + padding) / 2))
    hacked = 1 / (1 + np.exp(-(1 + quality / 2 - 2 * np.maximum(padding - 0.3, 0.0))))
    worlds = [
        World("twin", reference=np.full((16, 200), 1 / 200), proxy=proxy, gold=gold, tokens=200 + 50 * padding)
        for gold in (honest, hacked)
    ]
    good, bad = (RuleInput.of(simulate(world, seed=5), seed=6) for world in worlds)
    assert good.hidden is not None
    assert bad.hidden is not None
    assert bad.hidden.gold.max() - bad.hidden.gold[-1] > 0.2
    for baseline in BASELINES:
        if not baseline.gold:
            np.testing.assert_array_equal(baseline.score(good), baseline.score(bad))
    turn = int(np.argmax(bad.hidden.slope < 0))
    assert first_alarm(RULES["oracle"].score(bad), RULES["oracle"].published) == turn
    for name in ("slope_z_recent", "oracle_all", "gold_z", "level_test"):
        assert first_alarm(RULES[name].score(good), RULES[name].published) is None or name in (
            "slope_z_recent",
            "gold_z",
        )
        alarm = first_alarm(RULES[name].score(bad), RULES[name].published)
        assert alarm is not None, name
        assert alarm >= turn, name
