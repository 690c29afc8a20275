"""Rules of existing tools that read no gold: KL, entropy, advantages, length, reward variance and components.

Each is worded after the published behaviour of its package. Where a package counts reward calls, a call is a rollout,
looked at when its step ends; components are known per step only, so there a call is a step. KL and entropy here are
those of the whole answer: thresholds published for values per token are crossed early, and the recalibrated ones are
the fair comparison.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tiltmeter_lab.baselines.rule import BaselineRule, RuleInput
from tiltmeter_lab.baselines.windows import cusum, row_correlation, trailing, trailing_mean
from tiltmeter_lab.worlds.world import Floats

TINY = 1e-12
DRIFT_LAG = 21  # steps between the two samples of advantages that are compared


def ewma(series: Floats, weight: float = 0.3) -> Floats:
    """Exponentially weighted mean from the first value on.

    >>> ewma(np.array([1.0, 2.0])).tolist()
    [1.0, 1.3]
    """
    out = np.empty(len(series))
    level = series[0]
    for index, value in enumerate(series):
        level = level + weight * (value - level)
        out[index] = level
    return out


def kl_acceleration(run: RuleInput) -> Floats:
    """Second difference of smoothed KL; 0 for the first two steps."""
    assert run.kl is not None
    return np.concatenate([[0.0, 0.0], np.diff(ewma(run.kl), 2)])


def entropy_trend(run: RuleInput) -> Floats:
    """First difference of smoothed entropy; 0 for the first step."""
    assert run.entropy is not None
    return np.concatenate([[0.0], np.diff(ewma(run.entropy))])


def advantage_drift(run: RuleInput) -> Floats:
    """Wasserstein distance between a step's advantages and those 21 steps before; 0 until there are such."""
    assert run.advantage is not None
    drift = np.zeros(run.steps)
    ordered = np.sort(run.advantage, axis=1)
    drift[DRIFT_LAG:] = np.abs(ordered[DRIFT_LAG:] - ordered[:-DRIFT_LAG]).mean(1)
    return drift


def _z_scores(series: Floats, start: int, warm: int, robust: bool = False) -> Floats:
    """z by the `warm` values from `start` on, NaN until they are over. Robust: by their median and MAD."""
    z = np.full(len(series), np.nan)
    base = series[start : start + warm]
    if len(series) > start + warm:
        centre = np.median(base) if robust else base.mean()
        spread = 1.4826 * np.median(np.abs(base - centre)) if robust else base.std()
        z[start + warm :] = (series[start + warm :] - centre) / (spread + TINY)
    return z


def kl_cusum(run: RuleInput) -> Floats:
    return cusum(_z_scores(kl_acceleration(run), 0, 20), 0.5)


def entropy_cusum(run: RuleInput) -> Floats:
    return cusum(_z_scores(-entropy_trend(run), 0, 20), 0.5)


def advantage_cusum(run: RuleInput) -> Floats:
    """From the step on at which the drift exists: its zeros before would make every later value an outlier."""
    return cusum(_z_scores(advantage_drift(run), DRIFT_LAG, 20), 0.5)


def flight_tube(run: RuleInput) -> Floats:
    """The smaller of (distance outside the tube / 1) and (CUSUM of KL acceleration / 5), the least of five steps.

    Above 1 means both conditions for five steps running. Repaired: the 30 steps of warm-up begin when the advantage
    drift exists, where the published form has a tube of width zero.
    """
    signals = (kl_acceleration(run), entropy_trend(run), advantage_drift(run))
    z = np.stack([_z_scores(signal, DRIFT_LAG, 30, robust=True) for signal in signals])
    outside = np.sqrt((np.maximum(np.abs(z) - 3.0, 0.0) ** 2).sum(0))
    both = np.minimum(outside, cusum(z[0], 0.5) / 5.0)
    return np.asarray(trailing(both, 5).min(1), np.float64)


def flight_threshold(run: RuleInput, repaired: bool) -> Floats:
    """The largest of three signals in its bad direction, in standard deviations of its own past, after 20 values.

    Repaired: the drift's past begins when the drift exists.
    """
    signals = (
        (kl_acceleration(run), 0),
        (-entropy_trend(run), 0),
        (advantage_drift(run), DRIFT_LAG if repaired else 0),
    )
    scores = []
    for series, start in signals:
        values = series[start:]
        n = np.arange(len(values))
        with np.errstate(divide="ignore", invalid="ignore"):
            # Past values only; centred on the first so that squares do not cancel.
            shifted = values - values[:1]
            mean = (np.cumsum(shifted) - shifted) / n
            variance = (np.cumsum(shifted**2) - shifted**2) / n - mean**2
            z = (shifted - mean) / (np.sqrt(np.maximum(variance, 0.0)) + TINY)
        score = np.full(run.steps, np.nan)
        score[start + 20 :] = z[20:]
        scores.append(score)
    return np.asarray(np.fmax.reduce(scores), np.float64)


def rlwatch_kl(run: RuleInput) -> Floats:
    """z of KL against the up to 99 values before it, from the twentieth step on."""
    assert run.kl is not None
    score = np.full(run.steps, np.nan)
    if run.steps < 20:
        return score
    past = sliding_window_view(np.concatenate([np.full(99, np.nan), run.kl]), 99)[19:-1]
    score[19:] = (run.kl[19:] - np.nanmean(past, axis=1)) / (np.nanstd(past, axis=1) + TINY)
    return score


def rlwatch_entropy(run: RuleInput) -> Floats:
    """Minus the highest entropy of the last 25 steps, counted from the twentieth: above -1 none of them reached 1."""
    assert run.entropy is not None
    score = np.full(run.steps, np.nan)
    score[19:] = -trailing(run.entropy[19:], 25).max(1)
    return score


def rewardspy_component(run: RuleInput) -> Floats:
    """The largest share among the absolute means of the components over up to 100 steps, from the thirtieth on."""
    score = np.full(run.steps, np.nan)
    parts = [part for name, part in run.parts.items() if name != "total"]
    if len(parts) < 2:
        return score
    total = np.concatenate([np.zeros((len(parts), 1)), np.cumsum(parts, axis=1)], axis=1)
    end = np.arange(30, run.steps + 1)
    means = np.abs(total[:, end] - total[:, np.maximum(end - 100, 0)]) / np.minimum(end, 100)
    whole = means.sum(0)
    score[29:] = np.divide(means.max(0), whole, out=np.full(len(end), np.nan), where=whole > 0)
    return score


def _last_calls(values: Floats, after: int) -> tuple[Floats, Floats]:
    """The first 100 values and, at each step's end, the last 100; rows of NaN until there are `after` values."""
    flat = values.ravel()
    ends = values.shape[1] * np.arange(1, len(values) + 1)
    rows = np.full((len(values), 100), np.nan)
    complete = ends >= max(after, 100)
    if complete.any():
        rows[complete] = sliding_window_view(flat, 100)[ends[complete] - 100]
    return flat[:100], rows


def rewardspy_length(run: RuleInput) -> Floats:
    """How far the mean of the last 100 lengths is from that of the first 100, in the latter's standard deviations."""
    assert run.lengths is not None
    start, last = _last_calls(run.lengths, 200)
    spread = start.std(ddof=1) if len(start) > 1 else 0.0
    if spread < 1.0:
        return np.full(run.steps, np.nan)
    return np.asarray(np.abs(last.mean(1) - start.mean()) / spread, np.float64)


def rewardspy_variance(run: RuleInput) -> Floats:
    """Minus the standard deviation of the last 100 rewards over that of the first 20."""
    assert run.reward is not None
    start, last = _last_calls(run.reward, 100)
    spread = start[:20].std()
    return np.full(run.steps, np.nan) if spread == 0 else np.asarray(-last.std(1) / spread, np.float64)


def ptt_high(run: RuleInput, kl: bool = True) -> Floats:
    """The worst of its high-severity conditions that a run here can show, each divided so that its limit is 1.

    KL over 0.30; mean entropy of 30 steps under 1.0; standard deviation of mean length over the last 30 steps under
    20% of that over the first 30; mean group standard deviation of 20 steps under 0.01; correlation of reward and
    length over 50 steps beyond 0.8; reward's standard deviation, largest of 5 steps, 2.5 times its mean of 20. Not
    here: diversity, loss, gradient norm, refusals, slices, clip share, empty answers, importance ratio.
    """
    conditions = [np.full(run.steps, np.nan)]
    with np.errstate(divide="ignore", invalid="ignore"):
        if kl and run.kl is not None:
            conditions.append(run.kl / 0.30)
        if run.entropy is not None:
            conditions.append(1.0 / np.maximum(trailing_mean(run.entropy, 30), 0.0))
        if run.length is not None:
            spread = trailing(run.length, 30).std(1)
            spread[:59] = np.nan
            conditions.append(0.2 * run.length[:30].std() / spread)
            conditions.append(np.abs(row_correlation(trailing(run.proxy, 50), trailing(run.length, 50))) / 0.8)
        if run.group_sd is not None:
            conditions.append(0.01 / trailing_mean(run.group_sd.mean(1), 20))
        if run.reward_sd is not None:
            conditions.append(trailing(run.reward_sd, 5).max(1) / trailing_mean(run.reward_sd, 20) / 2.5)
    return np.asarray(np.fmax.reduce(conditions), np.float64)


_THREE = ("kl", "entropy", "advantage")


def _rule(name: str, source: str, published: float, rule: partial[Floats], *needs: str) -> BaselineRule:
    return BaselineRule(name, "geometry", source, published, rule, False, needs)


GEOMETRY: tuple[BaselineRule, ...] = (
    _rule("kl_cusum", "flight-recorder", 5.0, partial(kl_cusum), "kl"),
    _rule("entropy_cusum", "flight-recorder's signal", 5.0, partial(entropy_cusum), "entropy"),
    _rule("advantage_cusum", "flight-recorder's signal", 5.0, partial(advantage_cusum), "advantage"),
    _rule("flight_tube", "flight-recorder, repaired", 1.0, partial(flight_tube), *_THREE),
    _rule("flight_threshold", "flight-recorder", 4.0, partial(flight_threshold, repaired=False), *_THREE),
    _rule(
        "flight_threshold_repaired", "flight-recorder, repaired", 4.0, partial(flight_threshold, repaired=True), *_THREE
    ),
    _rule("rlwatch_kl", "rlwatch", 3.0, partial(rlwatch_kl), "kl"),
    _rule("rlwatch_entropy", "rlwatch", -1.0, partial(rlwatch_entropy), "entropy"),
    _rule("rewardspy_component", "rewardspy", 0.9, partial(rewardspy_component)),
    _rule("rewardspy_length", "rewardspy", 3.0, partial(rewardspy_length), "lengths"),
    _rule("rewardspy_variance", "rewardspy", -0.05, partial(rewardspy_variance), "reward"),
    _rule("ptt_high", "post-training-toolkit", 1.0, partial(ptt_high)),
    _rule("ptt_high_without_kl", "post-training-toolkit", 1.0, partial(ptt_high, kl=False)),
)
