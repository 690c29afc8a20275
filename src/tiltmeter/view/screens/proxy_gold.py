"""The proxy-and-gold plot: reward and gold over steps and over KL distance, with peak, checkpoints and forecast."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from msgspec import UNSET, UnsetType

from tiltmeter.data.records import Floats, Ints
from tiltmeter.stats.overoptimisation import forecast_peak
from tiltmeter.stats.zero_crossing import Forecast, falls_back, normal_quantile, slope_forecast
from tiltmeter.verdict.stop_advice import ENOUGH_LABELS, PAIR_LEVEL, WINDOW
from tiltmeter.view.payloads.plots import CheckpointGold, ForecastCurve, GoldPeak, PooledGold, ProxyGoldPanel
from tiltmeter.view.screens.gold import NAMES, gold_name, highest_window
from tiltmeter.view.screens.gold import checkpoints as saved_at
from tiltmeter.view.screens.readings import explain_missing
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader
from tiltmeter.view.screens.series import (
    POINTS,
    REACH,
    LineSpec,
    StepRange,
    build_lines,
    json_number,
    json_numbers,
    label_stderr,
    values_at,
)

TITLE = "Proxy and gold"
LOWER = 0.01  # drop below the peak from which gold counts as lower
SMOOTH = 5  # steps in the moving mean that finds the peak of gold
BLOCKS = 20  # points that a forecast is fitted to; neighbouring steps are pooled
AHEAD = 30  # points of a forecast's curve
COVER = 0.8  # coverage of a forecast's interval
ENOUGH = 30  # labels of one stretch; steps with as many are not pooled
STRETCHES = 60  # at most
FEW_STEPS = 4  # of a stretch, below which their scatter is not used


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest gold and the current gold, both smoothed."""

    step: int
    gold: float
    now: float


def truth_panel(reader: RunReader, step_range: StepRange, points: int = POINTS) -> ProxyGoldPanel:
    """The reward on the left axis in its own units, gold on the right; distance and labels at the same steps."""
    proxy = reader.columns.lineage_series("reward.mean")
    source = gold_name(reader)
    if not len(proxy.steps) and not source:
        reason = explain_missing(reader, "reward.mean", "reward")
        return ProxyGoldPanel(
            title=TITLE, sentence=reason, steps=[], lines=[], branches=[], flagged=[], shown=0, of=0, left="", right="",
            log=False, empty=reason, root_kl=[], peak=None, checkpoints=[], labels=[], forecast=None,
        )  # fmt: skip
    specs = [LineSpec("reward.mean", "reward (proxy)", "left", "proxy", interval=True)] if len(proxy.steps) else []
    if source:
        label = NAMES.get(source, source)
        specs.append(LineSpec(source, label, "right", "gold", interval=True))
    series = build_lines(reader, specs, step_range, points)
    steps = np.asarray(series.steps, np.int64)
    gold, root = reader.columns.lineage_series(source), root_kl(reader)
    gold_peak = find_peak(gold, alarmed=bool(reader.run_facts.open_alarms("alarm")), pairs=source == PAIR_LEVEL)
    return ProxyGoldPanel(
        title=TITLE,
        sentence=describe_truth(reader, proxy, source, gold, gold_peak),
        steps=series.steps,
        lines=series.lines,
        branches=series.branches,
        flagged=series.flagged,
        shown=series.shown,
        of=series.of,
        left="mean reward" if len(proxy.steps) else "",
        right=f"{NAMES[source]} (0 to 1)" if source in NAMES else source,
        log=False,
        empty="" if series.steps else "No step of the chosen range has a reward or gold; choose a wider range.",
        root_kl=json_numbers(values_at(root.steps, root.values, steps)),
        peak=_peak_in_range(gold_peak, root, step_range),
        checkpoints=checkpoint_rows(reader, gold, root, step_range),
        labels=np.nan_to_num(values_at(gold.steps, gold.n.astype(np.float64), steps)).astype(int).tolist(),
        forecast=forecast_gold(reader, source, gold, root),
        pooled=pool_gold(step_range.cut_series(gold), root),
    )


def pool_gold(gold: ReadingSeries, root: ReadingSeries) -> PooledGold | UnsetType:
    """If steps have few labels, means over stretches that have enough; else nothing."""
    n = np.maximum(gold.n[np.isfinite(gold.values)], 1)
    total = int(n.sum())
    if total < ENOUGH or np.median(n) >= ENOUGH:
        return UNSET
    return pool_stretches(gold, root, max(ENOUGH, ceil(total / STRETCHES)))


def pool_stretches(gold: ReadingSeries, root: ReadingSeries, each: int) -> PooledGold:
    """Means over stretches of so many labels, with 95 % intervals.

    A stretch's error is that of its labels or the scatter of its steps, whichever is larger: prompts differ from step
    to step, which the error of one step may not include.
    """
    finite = np.isfinite(gold.values)
    series = ReadingSeries(gold.steps[finite], gold.values[finite], gold.n[finite], gold.stderr[finite])
    n = np.maximum(series.n, 1)
    starts = stretch_starts(n, each)
    labels, steps = np.add.reduceat(n, starts), np.diff([*starts, len(n)])
    mean = np.add.reduceat(n * series.values, starts) / labels
    half_width = REACH * np.sqrt(np.add.reduceat((n * label_stderr(series)) ** 2, starts)) / labels
    scatter = np.sqrt(np.add.reduceat((n * (series.values - np.repeat(mean, steps))) ** 2, starts)) / labels
    freedom = np.maximum(steps - 1, 1)
    scatter *= np.sqrt(steps / freedom) * _student_quantile(freedom)
    half_width = np.where(steps >= FEW_STEPS, np.maximum(half_width, scatter), half_width)
    low, high = mean - half_width, mean + half_width
    if 0.0 <= series.values.min() <= series.values.max() <= 1.0:
        low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
    distance_at = values_at(root.steps, root.values, series.steps)
    known_labels = n * np.isfinite(distance_at)
    distance = np.add.reduceat(known_labels * np.nan_to_num(distance_at), starts), np.add.reduceat(known_labels, starts)
    return PooledGold(
        steps=np.rint(np.add.reduceat(n * series.steps, starts) / labels).astype(int).tolist(),
        root_kl=json_numbers(np.divide(*distance, out=np.full(len(mean), np.nan), where=distance[1] > 0)),
        gold=json_numbers(mean, 4),
        low=json_numbers(low, 4),
        high=json_numbers(high, 4),
        labels=labels.tolist(),
    )


def stretch_starts(n: Ints, each: int) -> Ints:
    """First steps of stretches with at least so many labels each; the remainder belongs to the last stretch.

    >>> stretch_starts(np.array([6, 6, 20, 1, 7, 3]), 12).tolist()
    [0, 2]
    """
    count = np.cumsum(n)
    starts, used = [0], 0
    while count[-1] - used >= 2 * each:
        end = int(np.searchsorted(count, used + each))
        used = int(count[end])
        if count[-1] - used < each:
            break
        starts.append(end + 1)
    return np.array(starts, np.int64)


def _student_quantile(freedom: Ints) -> Floats:
    """Standard errors of a 95 % interval where the error itself is of so few values: `from_student` turned around."""
    near = REACH * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)
    return np.asarray(np.sqrt(freedom * np.expm1(near**2 / freedom)), np.float64)


def root_kl(reader: RunReader) -> ReadingSeries:
    """Distance from the reference in root nats; a KL whose estimate fell below 0 counts as 0."""
    root = reader.columns.lineage_series("policy.kl_root")
    if len(root.steps):
        return root
    kl = reader.columns.lineage_series("policy.kl.k3")
    return ReadingSeries(kl.steps, np.sqrt(np.maximum(kl.values, 0.0)), kl.n, np.full(len(kl.steps), np.nan))


def find_peak(gold: ReadingSeries, *, alarmed: bool, pairs: bool = False) -> Peak | None:
    """The peak of gold, if gold is lower now and that is not chance: an alarm is open, or the drop is large (the best
    of many means is high by chance). Audited pairs come from other prompts at each step, so without an alarm their
    level shows nothing. With few labels a step, the mean is over more steps."""
    values, steps = gold.values[np.isfinite(gold.values)], gold.steps[np.isfinite(gold.values)]
    if not len(values):
        return None
    window = max(SMOOTH, ceil(ENOUGH_LABELS / max(float(gold.n.mean()), 1.0)))
    if len(values) < 2 * window:
        return None
    best_index, top, now, noise = highest_window(values, window)
    if top - now < LOWER or (not alarmed and (pairs or top - now < 4.0 * noise)):
        return None
    return Peak(int(steps[best_index + window // 2]), top, now)


def _peak_in_range(gold_peak: Peak | None, root: ReadingSeries, step_range: StepRange) -> GoldPeak | None:
    if gold_peak is None or step_range.slice_of(np.array([gold_peak.step])) != slice(0, 1):
        return None
    return GoldPeak(
        step=gold_peak.step, root_kl=distance_before(root, gold_peak.step), gold=json_number(gold_peak.gold)
    )


def distance_before(root: ReadingSeries, step: int) -> float | None:
    """The distance at a step, or at the last earlier step at which it is known."""
    place = int(np.searchsorted(root.steps, step, "right")) - 1
    return json_number(float(root.values[place])) if place >= 0 else None


def checkpoint_rows(
    reader: RunReader, gold: ReadingSeries, root: ReadingSeries, step_range: StepRange
) -> list[CheckpointGold]:
    """Each saved model with the gold around it; the best is the one that stop advice names."""
    saved_steps = np.array([step for step in saved_at(reader) if step <= reader.run_facts.last_step], np.int64)
    if not len(saved_steps):
        return []
    stop_advice = reader.verdict.advice
    best = None if stop_advice is None or stop_advice.best is None else stop_advice.best.step
    level = gold_around(gold, saved_steps)
    return [
        CheckpointGold(
            step=step,
            root_kl=distance_before(root, step),
            gold=json_number(float(level[row])),
            best=step == best,
        )
        for row, step in enumerate(saved_steps.tolist())
        if step_range.slice_of(np.array([step])) == slice(0, 1)
    ]


def gold_around(gold: ReadingSeries, steps: Ints, window: int = WINDOW) -> Floats:
    """Gold within some steps of each of these, weighted by labels; NaN where there is none."""
    value = np.where(np.isfinite(gold.values), gold.values, 0.0)
    weight = np.where(np.isfinite(gold.values), np.maximum(gold.n, 1), 0)
    low, high = np.searchsorted(gold.steps, steps - window), np.searchsorted(gold.steps, steps + window, "right")
    total, count = (np.concatenate(([0.0], np.cumsum(part))) for part in (value * weight, weight))
    labels = count[high] - count[low]
    return np.where(labels > 0, (total[high] - total[low]) / np.maximum(labels, 1), np.nan)


def forecast_gold(reader: RunReader, source: str, gold: ReadingSeries, root: ReadingSeries) -> ForecastCurve | None:
    """The forecast of the distance at which gold peaks: by a fitted curve or, for audited pairs, by where their slope
    crosses zero. None if the data do not allow one."""
    distance = values_at(root.steps, root.values, gold.steps)
    valid = np.isfinite(distance) & np.isfinite(gold.values)
    if not source or valid.sum() < 8 or falls_back(root.values[np.isfinite(root.values)]):
        return None
    if source == PAIR_LEVEL:
        return _forecast_from_slope(reader.columns.lineage_series("gold.slope"), root)
    d, level, weight = distance[valid], gold.values[valid], np.maximum(gold.n[valid], 1).astype(np.float64)
    first = (d <= 0.1) | (np.arange(len(d)) == 0)
    if level.min() < 0.0 or level.max() > 1.0 or (~first).sum() < 8:
        return None
    start = float(np.average(level[first], weights=weight[first]))
    origin = float(np.sqrt(max(start * (1.0 - start), 0.01) / weight[first].sum()))
    blocks = np.array_split(np.flatnonzero(~first), min(BLOCKS, int((~first).sum())))
    mean, far = (np.array([np.average(part[b], weights=weight[b]) for b in blocks]) for part in (level, d))
    error = np.array([float(np.sqrt((weight[b] ** 2 * label_stderr(gold)[valid][b] ** 2).sum())) for b in blocks])
    error /= np.array([weight[b].sum() for b in blocks])
    fitted = forecast_peak(far, mean - start, error, start=start, start_stderr=origin, cover=COVER)
    return _forecast_curve(fitted, far, mean - start, error, start) if fitted.holds else None


def _forecast_curve(fitted: Forecast, d: Floats, gain: Floats, error: Floats, start: float) -> ForecastCurve:
    """The fitted curve R = d (α - β ln d) from the observed range to somewhat beyond the peak, with its band."""
    used = d >= 0.3
    d, gain, error = d[used], gain[used], error[used]
    design = np.column_stack((d, -d * np.log(d))) / error[:, None]
    covariance = np.linalg.pinv(design.T @ design)
    coefficients = covariance @ design.T @ (gain / error)
    residual = gain / error - design @ coefficients
    covariance = covariance * max(1.0, float(residual @ residual) / max(len(d) - 2, 1))
    grid = np.linspace(float(d.min()), 1.2 * max(float(d.max()), fitted.peak), AHEAD)
    basis = np.column_stack((grid, -grid * np.log(grid)))
    middle = start + basis @ coefficients
    half_width = normal_quantile(COVER) * np.sqrt(np.einsum("ij,jk,ik->i", basis, covariance, basis))
    return ForecastCurve(
        root_kl=json_numbers(grid, 4),
        gold=json_numbers(np.clip(middle, 0.0, 1.0), 4),
        low=json_numbers(np.clip(middle - half_width, 0.0, 1.0), 4),
        high=json_numbers(np.clip(middle + half_width, 0.0, 1.0), 4),
        peak=json_number(fitted.peak, 4),
        sentence=_describe_forecast(fitted, float(d.max()), "If gold's curve goes on"),
    )


def _forecast_from_slope(slope: ReadingSeries, root: ReadingSeries) -> ForecastCurve | None:
    distance = values_at(root.steps, root.values, slope.steps)
    valid = np.isfinite(distance) & np.isfinite(slope.values)
    d, u, weight = distance[valid], slope.values[valid], np.maximum(slope.n[valid], 1).astype(np.float64)
    if len(d) < 8:
        return None
    blocks = np.array_split(np.arange(len(d)), min(3 * BLOCKS, len(d)))
    far, mean = (np.array([np.average(part[b], weights=weight[b]) for b in blocks]) for part in (d, u))
    fitted = slope_forecast(far, mean, np.array([weight[b].sum() for b in blocks]), cover=COVER)
    if not fitted.holds:
        return None
    text = _describe_forecast(
        fitted, float(root.values[np.isfinite(root.values)].max()), "By the slope of audited pairs"
    )
    return ForecastCurve(root_kl=[], gold=[], low=[], high=[], peak=json_number(fitted.peak, 4), sentence=text)


def _describe_forecast(fitted: Forecast, farthest: float, basis: str) -> str:
    end = f"{fitted.high:.2g}" if np.isfinite(fitted.high) else "no end"
    when = "peaks" if fitted.peak > farthest else "peaked"
    return (
        f"{basis}, it {when} at a distance of {fitted.peak:.2g} root nats ({COVER:.0%}: {fitted.low:.2g} to {end}); "
        f"the run has been as far as {farthest:.2g}. A forecast, with no guarantee."
    )


def describe_truth(
    reader: RunReader, proxy: ReadingSeries, source: str, gold: ReadingSeries, gold_peak: Peak | None
) -> str:
    """The change of proxy and gold, as a sentence."""
    text = _describe_change("The reward", proxy) if len(proxy.steps) else "No reward"
    if not source:
        return f"{text}; no gold: BLIND. {explain_missing(reader, 'gold.mean', 'gold')}"
    labels = int(gold.n.sum())
    what = _describe_change(NAMES.get(source, source), gold)
    first, last = newest_window(gold)
    what += f" (steps {first} to {last})" if first < last else ""
    text = f"{text}; {what}, on {labels:,} {'items' if source.startswith('eval.') else 'labels'}"
    if gold_peak is not None:
        text += f"; it was highest around step {gold_peak.step}, at {gold_peak.gold:.3g}"
    return f"{text}."


def newest_window(series: ReadingSeries) -> tuple[int, int]:
    """First and last of the steps whose mean is what a series says now; both 0 where there is no value."""
    steps = series.steps[np.isfinite(series.values)]
    return (int(steps[-_end_window(series)]), int(steps[-1])) if len(steps) else (0, 0)


def _describe_change(what: str, series: ReadingSeries) -> str:
    first, last = mean_of_ends(series)
    return f"{what} has no value" if np.isnan(first) else f"{what} went from {first:.3g} to {last:.3g}"


def mean_of_ends(series: ReadingSeries) -> tuple[float, float]:
    """Means at the start and now; NaN where there is no value.

    With few labels a step they are over more steps, at most a third of the run.
    """
    values = series.values[np.isfinite(series.values)]
    if not len(values):
        return float("nan"), float("nan")
    window = _end_window(series)
    return float(values[:window].mean()), float(values[-window:].mean())


def _end_window(series: ReadingSeries) -> int:
    count = int(np.isfinite(series.values).sum())
    return min(max(SMOOTH, ceil(ENOUGH_LABELS / max(float(series.n.mean()), 1.0))), max(count // 3, 1))
