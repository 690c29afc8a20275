"""The plot of truth: what the reward says and what gold says, over steps and over distance from the reference."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from tiltmeter.advice import LABELS, PAIRS, WINDOW
from tiltmeter.page.book import Book, Readings
from tiltmeter.page.gold import NAMES, advice, gold_name, highest
from tiltmeter.page.gold import checkpoints as saved_at
from tiltmeter.page.readings import lacking
from tiltmeter.page.series import POINTS, REACH, Range, Wanted, at, drawn, empty_panel, errors, number, plain
from tiltmeter.records import Floats, Ints
from tiltmeter.stats.crossing import Forecast, falls_back, slope_forecast, two_sided
from tiltmeter.stats.overoptimisation import forecast_peak

TITLE = "Proxy and gold"
LOWER = 0.01  # than its peak: closer to it gold is still there
SMOOTH = 5  # steps whose mean a peak of gold is read from
BLOCKS = 20  # points of a forecast: neighbouring steps are pooled
AHEAD = 30  # points of a forecast's curve
COVER = 0.8  # of a forecast's interval
ENOUGH = 30  # labels of one stretch; steps with as many stand for themselves
STRETCHES = 60  # at most
FEW_STEPS = 4  # of a stretch, below which their scatter says nothing


@dataclass(frozen=True, slots=True)
class Peak:
    """Where gold stood highest, and where it stands now, both smoothed."""

    step: int
    gold: float
    now: float


def truth(book: Book, within: Range, points: int = POINTS) -> dict[str, Any]:
    """The reward on the left axis in its own units, gold on the right; distance and labels at the same steps."""
    proxy = book.columns.line("reward.mean")
    source = gold_name(book)
    if not len(proxy.steps) and not source:
        return dict(empty_panel(TITLE, lacking(book, "reward.mean", "reward"))) | _nothing()
    wanted = [Wanted("reward.mean", "reward (proxy)", "left", "proxy", interval=True)] if len(proxy.steps) else []
    if source:
        label = NAMES.get(source, source)
        wanted.append(Wanted(source, label, "right", "gold", interval=True))
    lines = drawn(book, wanted, within, points)
    steps = np.asarray(lines["steps"], np.int64)
    gold, root = book.columns.line(source), root_kl(book)
    highest = peak(gold, alarmed=bool(book.story.open("alarm")), pairs=source == PAIRS)
    ahead = forecast(book, source, gold, root)
    return {
        "title": TITLE,
        "sentence": sentence(book, proxy, source, gold, highest),
        **lines,
        "left": "mean reward" if len(proxy.steps) else "",
        "right": f"{NAMES[source]} (0 to 1)" if source in NAMES else source,
        "log": False,
        "empty": "" if lines["steps"] else "No step of the chosen range has a reward or gold; choose a wider range.",
        "root_kl": plain(at(root.steps, root.values, steps)),
        "peak": _peak(highest, root, within),
        "checkpoints": checkpoints(book, gold, root, within),
        "labels": np.nan_to_num(at(gold.steps, gold.n.astype(np.float64), steps)).astype(int).tolist(),
        "forecast": ahead,
        **pooled(within.cut(gold), root),
    }


def pooled(gold: Readings, root: Readings) -> dict[str, Any]:
    """Where steps have few labels, their means over stretches that have enough, with 95 % intervals; else nothing.

    A stretch's error is that of its labels or the scatter of its steps, whichever is larger: prompts differ from step
    to step, which one step's own error may not show.
    """
    kept = np.isfinite(gold.values)
    line = Readings(gold.steps[kept], gold.values[kept], gold.n[kept], gold.stderr[kept])
    n = np.maximum(line.n, 1)
    total = int(n.sum())
    if total < ENOUGH or np.median(n) >= ENOUGH:
        return {}
    starts = stretches(n, max(ENOUGH, ceil(total / STRETCHES)))
    labels, steps = np.add.reduceat(n, starts), np.diff([*starts, len(n)])
    mean = np.add.reduceat(n * line.values, starts) / labels
    reach = REACH * np.sqrt(np.add.reduceat((n * errors(line)) ** 2, starts)) / labels
    apart = np.sqrt(np.add.reduceat((n * (line.values - np.repeat(mean, steps))) ** 2, starts)) / labels
    freedom = np.maximum(steps - 1, 1)
    apart *= np.sqrt(steps / freedom) * _student(freedom)
    reach = np.where(steps >= FEW_STEPS, np.maximum(reach, apart), reach)
    low, high = mean - reach, mean + reach
    if 0.0 <= line.values.min() <= line.values.max() <= 1.0:
        low, high = np.maximum(low, 0.0), np.minimum(high, 1.0)
    far = at(root.steps, root.values, line.steps)
    seen = n * np.isfinite(far)
    distance = np.add.reduceat(seen * np.nan_to_num(far), starts), np.add.reduceat(seen, starts)
    found = {
        "steps": np.rint(np.add.reduceat(n * line.steps, starts) / labels).astype(int).tolist(),
        "root_kl": plain(np.divide(*distance, out=np.full(len(mean), np.nan), where=distance[1] > 0)),
        "gold": plain(mean, 4),
        "low": plain(low, 4),
        "high": plain(high, 4),
        "labels": labels.tolist(),
    }
    return {"pooled": found}


def stretches(n: Ints, each: int) -> Ints:
    """Where stretches of at least so many labels begin; what is left over at the end goes with the last.

    >>> stretches(np.array([6, 6, 20, 1, 7, 3]), 12).tolist()
    [0, 2]
    """
    count = np.cumsum(n)
    starts, taken = [0], 0
    while count[-1] - taken >= 2 * each:
        end = int(np.searchsorted(count, taken + each))
        taken = int(count[end])
        if count[-1] - taken < each:
            break
        starts.append(end + 1)
    return np.array(starts, np.int64)


def _student(freedom: Ints) -> Floats:
    """Standard errors of a 95 % interval where the error itself is of so few values: `from_student` turned around."""
    near = REACH * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)
    return np.asarray(np.sqrt(freedom * np.expm1(near**2 / freedom)), np.float64)


def root_kl(book: Book) -> Readings:
    """Distance from the reference in root nats; a KL whose estimate fell below 0 counts as 0."""
    root = book.columns.line("policy.kl_root")
    if len(root.steps):
        return root
    kl = book.columns.line("policy.kl.k3")
    return Readings(kl.steps, np.sqrt(np.maximum(kl.values, 0.0)), kl.n, np.full(len(kl.steps), np.nan))


def peak(gold: Readings, *, alarmed: bool, pairs: bool = False) -> Peak | None:
    """Where gold stood highest, if it is lower now and that is no chance: an alarm is open, or it is clearly lower (the
    best of many means is high by chance). Audited pairs are of other prompts at each step, so without an alarm their
    level says nothing. Few labels a step are smoothed over more steps."""
    values, steps = gold.values[np.isfinite(gold.values)], gold.steps[np.isfinite(gold.values)]
    if not len(values):
        return None
    window = max(SMOOTH, ceil(LABELS / max(float(gold.n.mean()), 1.0)))
    if len(values) < 2 * window:
        return None
    best, top, now, noise = highest(values, window)
    if top - now < LOWER or (not alarmed and (pairs or top - now < 4.0 * noise)):
        return None
    return Peak(int(steps[best + window // 2]), top, now)


def _peak(found: Peak | None, root: Readings, within: Range) -> dict[str, Any] | None:
    if found is None or within.part(np.array([found.step])) != slice(0, 1):
        return None
    return {"step": found.step, "root_kl": nearest(root, found.step), "gold": number(found.gold)}


def nearest(root: Readings, step: int) -> float | None:
    """The distance at a step, or at the last step before it at which one is known."""
    place = int(np.searchsorted(root.steps, step, "right")) - 1
    return number(float(root.values[place])) if place >= 0 else None


def checkpoints(book: Book, gold: Readings, root: Readings, within: Range) -> list[dict[str, Any]]:
    """Each saved model with the gold around it; the best is the one that stop advice names."""
    saved = np.array([step for step in saved_at(book) if step <= book.story.last_step], np.int64)
    if not len(saved):
        return []
    advised = advice(book)
    best = None if advised is None or advised.best is None else advised.best.step
    level = around(gold, saved)
    return [
        {
            "step": step,
            "root_kl": nearest(root, step),
            "gold": number(float(level[row])),
            "best": step == best,
        }
        for row, step in enumerate(saved.tolist())
        if within.part(np.array([step])) == slice(0, 1)
    ]


def around(gold: Readings, steps: Ints, window: int = WINDOW) -> Floats:
    """Gold within some steps of each of these, weighted by labels; NaN where there is none."""
    value = np.where(np.isfinite(gold.values), gold.values, 0.0)
    weight = np.where(np.isfinite(gold.values), np.maximum(gold.n, 1), 0)
    low, high = np.searchsorted(gold.steps, steps - window), np.searchsorted(gold.steps, steps + window, "right")
    total, count = (np.concatenate(([0.0], np.cumsum(part))) for part in (value * weight, weight))
    labels = count[high] - count[low]
    return np.where(labels > 0, (total[high] - total[low]) / np.maximum(labels, 1), np.nan)


def forecast(book: Book, source: str, gold: Readings, root: Readings) -> dict[str, Any] | None:
    """Where gold peaks over distance if what was seen goes on, by the fitted curve or, of audited pairs, by where their
    slope crosses zero; None wherever the statistics refuse."""
    distance = at(root.steps, root.values, gold.steps)
    known = np.isfinite(distance) & np.isfinite(gold.values)
    if not source or known.sum() < 8 or falls_back(root.values[np.isfinite(root.values)]):
        return None
    if source == PAIRS:
        return _by_slope(book.columns.line("gold.slope"), root)
    d, level, weight = distance[known], gold.values[known], np.maximum(gold.n[known], 1).astype(np.float64)
    first = (d <= 0.1) | (np.arange(len(d)) == 0)
    if level.min() < 0.0 or level.max() > 1.0 or (~first).sum() < 8:
        return None
    start = float(np.average(level[first], weights=weight[first]))
    origin = float(np.sqrt(max(start * (1.0 - start), 0.01) / weight[first].sum()))
    blocks = np.array_split(np.flatnonzero(~first), min(BLOCKS, int((~first).sum())))
    mean, far = (np.array([np.average(part[b], weights=weight[b]) for b in blocks]) for part in (level, d))
    error = np.array([float(np.sqrt((weight[b] ** 2 * errors(gold)[known][b] ** 2).sum())) for b in blocks])
    error /= np.array([weight[b].sum() for b in blocks])
    found = forecast_peak(far, mean - start, error, start=start, start_stderr=origin, cover=COVER)
    return _curve(found, far, mean - start, error, start) if found.holds else None


def _curve(found: Forecast, d: Floats, gain: Floats, error: Floats, start: float) -> dict[str, Any]:
    """The fitted curve R = d (α - β ln d) from what was seen to somewhat beyond the peak, with its band."""
    used = d >= 0.3
    d, gain, error = d[used], gain[used], error[used]
    design = np.column_stack((d, -d * np.log(d))) / error[:, None]
    spread = np.linalg.pinv(design.T @ design)
    line = spread @ design.T @ (gain / error)
    left = gain / error - design @ line
    spread = spread * max(1.0, float(left @ left) / max(len(d) - 2, 1))
    ahead = np.linspace(float(d.min()), 1.2 * max(float(d.max()), found.peak), AHEAD)
    basis = np.column_stack((ahead, -ahead * np.log(ahead)))
    middle = start + basis @ line
    reach = two_sided(COVER) * np.sqrt(np.einsum("ij,jk,ik->i", basis, spread, basis))
    return {
        "root_kl": plain(ahead, 4),
        "gold": plain(np.clip(middle, 0.0, 1.0), 4),
        "low": plain(np.clip(middle - reach, 0.0, 1.0), 4),
        "high": plain(np.clip(middle + reach, 0.0, 1.0), 4),
        "peak": number(found.peak, 4),
        "sentence": _expected(found, float(d.max()), "If gold's curve goes on"),
    }


def _by_slope(slope: Readings, root: Readings) -> dict[str, Any] | None:
    distance = at(root.steps, root.values, slope.steps)
    known = np.isfinite(distance) & np.isfinite(slope.values)
    d, u, weight = distance[known], slope.values[known], np.maximum(slope.n[known], 1).astype(np.float64)
    if len(d) < 8:
        return None
    blocks = np.array_split(np.arange(len(d)), min(3 * BLOCKS, len(d)))
    far, mean = (np.array([np.average(part[b], weights=weight[b]) for b in blocks]) for part in (d, u))
    found = slope_forecast(far, mean, np.array([weight[b].sum() for b in blocks]), cover=COVER)
    if not found.holds:
        return None
    told = _expected(found, float(root.values[np.isfinite(root.values)].max()), "By the slope of audited pairs")
    return {"root_kl": [], "gold": [], "low": [], "high": [], "peak": number(found.peak, 4), "sentence": told}


def _expected(found: Forecast, seen: float, by: str) -> str:
    end = f"{found.high:.2g}" if np.isfinite(found.high) else "no end"
    when = "peaks" if found.peak > seen else "peaked"
    return (
        f"{by}, it {when} at a distance of {found.peak:.2g} root nats ({COVER:.0%}: {found.low:.2g} to {end}); the run "
        f"has been as far as {seen:.2g}. A forecast, with no guarantee."
    )


def sentence(book: Book, proxy: Readings, source: str, gold: Readings, highest: Peak | None) -> str:
    """What proxy and gold did, in numbers."""
    told = _from_to("The reward", proxy) if len(proxy.steps) else "No reward"
    if not source:
        return f"{told}; no gold: BLIND. {lacking(book, 'gold.mean', 'gold')}"
    labels = int(gold.n.sum())
    what = _from_to(NAMES.get(source, source), gold)
    told = f"{told}; {what}, on {labels:,} {'items' if source.startswith('eval.') else 'labels'}"
    if highest is not None:
        told += f"; it was highest around step {highest.step}, at {highest.gold:.3g}, and is {highest.now:.3g} now"
    return f"{told}."


def _from_to(what: str, line: Readings) -> str:
    values = line.values[np.isfinite(line.values)]
    if not len(values):
        return f"{what} has no value"
    # Few labels a step tell nothing alone: as many steps at either end as hold enough of them, at most a third.
    window = min(max(SMOOTH, ceil(LABELS / max(float(line.n.mean()), 1.0))), max(len(values) // 3, 1))
    return f"{what} went from {values[:window].mean():.3g} to {values[-window:].mean():.3g}"


def _nothing() -> dict[str, Any]:
    return {"root_kl": [], "peak": None, "checkpoints": [], "labels": [], "forecast": None}
