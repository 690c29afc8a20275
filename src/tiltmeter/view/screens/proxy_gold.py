"""The proxy-and-gold plot: reward and gold over steps and over KL distance, with peak, checkpoints and forecast."""

from __future__ import annotations

from math import ceil

import numpy as np
from msgspec import UNSET, UnsetType

from tiltmeter.data.records import Floats, Ints
from tiltmeter.stats.overoptimisation import forecast_peak
from tiltmeter.stats.zero_crossing import Forecast, falls_back, normal_quantile, slope_forecast
from tiltmeter.verdict.gold_standing import PAIR_LEVEL, GoldStanding
from tiltmeter.view.payloads.plots import CheckpointGold, ForecastCurve, GoldPeak, PooledGold, ProxyGoldPanel
from tiltmeter.view.screens.gold import NAMES, gold_name
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
SMOOTH = 5  # steps at either end whose mean reward is said
BLOCKS = 20  # points that a forecast is fitted to; neighbouring steps are pooled
AHEAD = 30  # points of a forecast's curve
COVER = 0.8  # coverage of a forecast's interval
ENOUGH = 30  # labels of one stretch; steps with as many are not pooled
STRETCHES = 60  # at most
FEW_STEPS = 4  # of a stretch, below which their scatter is not used


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
    return ProxyGoldPanel(
        title=TITLE,
        sentence=describe_truth(reader, proxy, source, gold),
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
        peak=_peak_in_range(reader.verdict.gold, root, step_range),
        checkpoints=checkpoint_rows(reader, root, step_range),
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


def _peak_in_range(gold: GoldStanding | None, root: ReadingSeries, step_range: StepRange) -> GoldPeak | None:
    best, step = (None, None) if gold is None else (gold.best, gold.best_step)
    if best is None or step is None or step_range.slice_of(np.array([step])) != slice(0, 1):
        return None
    return GoldPeak(step=step, root_kl=distance_before(root, step), gold=json_number(best.mean))


def distance_before(root: ReadingSeries, step: int) -> float | None:
    """The distance at a step, or at the last earlier step at which it is known."""
    place = int(np.searchsorted(root.steps, step, "right")) - 1
    return json_number(float(root.values[place])) if place >= 0 else None


def checkpoint_rows(reader: RunReader, root: ReadingSeries, step_range: StepRange) -> list[CheckpointGold]:
    """Each saved model with the gold around it; the best is the one that stop advice names."""
    saved_steps = np.array([step for step in saved_at(reader) if step <= reader.run_facts.last_step], np.int64)
    if not len(saved_steps):
        return []
    stop_advice = reader.verdict.advice
    best = None if stop_advice is None or stop_advice.best is None else stop_advice.best.step
    gold, saved = reader.verdict.gold, saved_steps.tolist()
    around = {} if gold is None else {step: gold.at(step, saved) for step in saved}
    return [
        CheckpointGold(
            step=step,
            root_kl=distance_before(root, step),
            gold=None if (estimate := around.get(step)) is None else json_number(estimate.gold),
            best=step == best,
        )
        for step in saved
        if step_range.slice_of(np.array([step])) == slice(0, 1)
    ]


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


def describe_truth(reader: RunReader, proxy: ReadingSeries, source: str, gold: ReadingSeries) -> str:
    """The change of proxy and gold, as a sentence."""
    text = f"The reward {_describe_change(*mean_of_ends(proxy))}" if len(proxy.steps) else "No reward"
    if not source:
        return f"{text}; no gold: BLIND. {explain_missing(reader, 'gold.mean', 'gold')}"
    labels, standing = int(gold.n.sum()), reader.verdict.gold
    what = f"{NAMES.get(source, source)} {_describe_change(*gold_ends(standing))}"
    if standing is not None:
        now, best = standing.now, standing.best
        what += f" (steps {now.first} to {now.last})" if now.first < now.last else ""
        peak = "" if best is None else f"; it was highest at steps {best.first} to {best.last}, at {best.mean:.2f}"
    else:
        peak = ""
    return f"{text}; {what}, on {labels:,} {'items' if source.startswith('eval.') else 'labels'}{peak}."


def gold_ends(standing: GoldStanding | None) -> tuple[float, float]:
    """Gold at first and now; NaN where it is not known."""
    return (float("nan"), float("nan")) if standing is None else (standing.first.mean, standing.now.mean)


def _describe_change(first: float, last: float) -> str:
    return "has no value" if np.isnan(first) else f"went from {first:.2f} to {last:.2f}"


def mean_of_ends(series: ReadingSeries) -> tuple[float, float]:
    """Means of the first steps and of the newest; NaN where there is no value."""
    values = series.values[np.isfinite(series.values)]
    if not len(values):
        return float("nan"), float("nan")
    window = min(SMOOTH, max(len(values) // 3, 1))
    return float(values[:window].mean()), float(values[-window:].mean())
