"""Stop advice: whether to continue training, and which checkpoint is the best so far, estimated from gold labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.rundir.journal import Event, readings_of
from tiltmeter.verdict.run_state import RunState

Word = Literal["continue", "stop", "cannot tell"]

CONFIDENCE = 0.95
STOP_CONFIDENCE = 0.99  # confidence that gold has fallen, needed to advise a stop without an alarm
WINDOW = 10  # steps on either side of a checkpoint whose gold is pooled
ENOUGH_LABELS = 30  # with fewer in the window, it is widened up to halfway to the next checkpoint
MIN_LABELS = 8  # labels below which a checkpoint has no estimate
RECENT_STEPS = 40  # steps after which gold is too old; or twice the usual gap between labels, if that is larger
TOLERANCE = 0.25  # if a larger loss of gold cannot be excluded, the advice is "cannot tell"
MAX_KL = 100.0  # nats of KL to the reference; beyond it, gold should have risen
MIN_ENTROPY_RATIO = 0.2  # of the entropy at the start

PAIR_LEVEL = "gold.level"
#: Readings of gold, in order of preference: the first present is used. Evaluations come last, each on its own scale.
SOURCES = ("gold.mean", PAIR_LEVEL)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Gold around one step: the mean over `n` labels and its confidence interval."""

    step: int
    gold: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do with the run now, why, and which checkpoint to keep; `best` None: no checkpoint can be named."""

    word: Word
    why: str
    best: Estimate | None
    now: Estimate | None
    source: str  # the reading that was used; empty without gold


@dataclass(frozen=True, slots=True)
class AdviceScore:
    """Advice scored afterwards: true gold at the advised, last, highest-reward and truly best checkpoint."""

    advised: float
    last: float
    best_proxy: float
    best: float


def advise(
    step: int, readings: Iterable[Reading], alarms: Sequence[Alarm] = (), checkpoints: Sequence[int] = ()
) -> Advice:
    """Continue, stop or cannot tell, and the best checkpoint up to `step`, from the readings of the current lineage.

    The reward cannot say when to stop: it keeps rising during reward hacking. Inputs are `gold.mean`, else
    `gold.level`, else the evaluation series with most items; `gold.slope`, `policy.kl.k3` and `policy.entropy_ratio`
    if present; `alarms` that are open; and `checkpoints`, the steps at which the model was saved. `gold.level`, from
    audited pairs alone, orders checkpoints and never advises a stop by itself.

    The estimate at a checkpoint pools the readings within 10 steps of it, weighted by their labels; with fewer than 30
    labels the window grows up to halfway to the next checkpoint. Its standard error is the larger of the readings' own
    standard errors and their scatter. The checkpoint with the highest estimate is the best, and checkpoints
    after an open alarm's onset are excluded. The highest of K estimates is biased upwards, so the K intervals hold
    simultaneously (Šidák: z at 1 - (1 - 0.95^(1/K)) / 2); the chosen one is then valid, if conservative. The intervals
    are not valid if gold moves much within a window or if labels were selected by their value; they are about
    this gold source only.

    *Stop*: an alarm on gold is open; or gold now is below an earlier checkpoint's by more than chance (99 %, corrected
    for K² comparisons: with each checkpoint, at each checkpoint; unlike the alarm, this test is not valid under
    continuous monitoring); or the KL is above 100 nats, or entropy is below a fifth, and gold has not risen. *Cannot
    tell*: no gold, no recent gold, or too few labels to exclude a loss of 0.25. Otherwise *continue*.

    >>> rise = [Reading(0, t, "gold.mean", 0.4 + 0.004 * min(t, 100 - t), 64, 0.05) for t in range(100)]
    >>> advice = advise(99, rise, checkpoints=[20, 50, 80])
    >>> advice.word, advice.best.step, round(advice.best.gold, 2)
    ('stop', 50, 0.58)
    """
    series: dict[str, list[Reading]] = {}
    for reading in readings:
        if isfinite(reading.value) and reading.step <= step:
            series.setdefault(reading.name, []).append(reading)
    open_alarms = [alarm for alarm in alarms if alarm.tier == "alarm" and alarm.resolved is None]
    source = _source(series, open_alarms)
    saved_steps = sorted({at for at in checkpoints if at <= step})
    if not source:
        if open_alarms:
            return Advice("stop", _alarm_reason(open_alarms), None, None, "")
        why = "no gold to judge by; gold= at attach, or declared evaluations, would tell"
        return Advice("cannot tell", why, None, None, "")
    gold = _GoldSeries(series[source])
    bound = min((alarm.onset for alarm in open_alarms), default=step)
    candidates = [
        estimate for at in saved_steps if at <= bound and (estimate := gold.around(at, saved_steps)) is not None
    ]
    reach = _sidak_z(len(candidates))
    best = max(candidates, key=lambda estimate: (estimate.gold, estimate.step), default=None)
    best = None if best is None else best.with_reach(reach)
    now = gold.latest(step)
    word, why = _decide(step, series, open_alarms, gold, candidates, now)
    if source == PAIR_LEVEL and not open_alarms:
        word, why = _decide_by_slope(step, series)
    if saved_steps and best is None:
        why += "; no checkpoint has gold around it" + (" from before the onset" if open_alarms else "")
    return Advice(
        word, why, _to_estimate(best), _to_estimate(None if now is None else now.with_reach(_sidak_z(1))), source
    )


def _decide_by_slope(step: int, series: Mapping[str, Sequence[Reading]]) -> tuple[Word, str]:
    """The advice from audited pairs without an alarm. Pairs come from prompts whose rewards differ, so their mean gold
    shifts when prompts become always or never solved: it can order checkpoints only. Their slope along the reward does
    show where gold is going."""
    recent = [reading for reading in series.get("gold.slope", ()) if reading.step > step - RECENT_STEPS]
    slopes = [reading.value for reading in recent]
    if len(slopes) >= MIN_LABELS:
        mean = float(np.mean(slopes))
        error = float(np.std(slopes, ddof=1)) / sqrt(len(slopes))
        if mean > 2.0 * error:
            return "continue", f"no alarm, and the reward still points towards gold (slope {mean:.2g})"
    why = (
        "no alarm, and audited pairs do not say more: gold for all completions of some prompts, or an evaluation, would"
    )
    return "cannot tell", why


def advise_on_run(run_state: RunState, events: Iterable[Event]) -> Advice | None:
    """Advice on a recorded run, from its events; None if there are neither labels nor evaluations."""
    if not run_state.steps or not (run_state.labels or run_state.evaluations):
        return None
    spans = run_state.spans()
    readings = [
        reading for event in events if event.step < spans.get(event.attempt, -1) for reading in readings_of(event)
    ]
    saved_steps = sorted({int(reading.value) for reading in readings if reading.name == "training.checkpoint"})
    return advise(run_state.last_step, readings, run_state.open_alarms("alarm"), saved_steps)


def score_advice(
    advised: int | None, checkpoints: Sequence[int], gold: Mapping[int, float], proxy: Mapping[int, float]
) -> AdviceScore:
    """Score advice afterwards: true gold at the advised checkpoint and at those one would keep without advice.

    `gold` and `proxy` are curves by step, interpolated where a checkpoint lies between. No advice (None) means the last
    checkpoint.

    >>> true = {0: 0.4, 50: 0.8, 100: 0.3}
    >>> score = score_advice(50, [25, 50, 75, 100], true, {0: 0.0, 100: 1.0})
    >>> score.advised, score.last, score.best_proxy, score.best
    (0.8, 0.3, 0.3, 0.8)
    """
    steps = sorted(checkpoints)
    if not steps:
        raise ValueError("no checkpoint, so none could be kept: pass the steps at which the model was saved")
    true, paid = ({at: _at(curve, at) for at in steps} for curve in (gold, proxy))
    checkpoint = steps[-1] if advised is None else advised
    return AdviceScore(
        _at(gold, checkpoint), true[steps[-1]], true[max(steps, key=lambda at: (paid[at], at))], max(true.values())
    )


@dataclass(frozen=True, slots=True)
class _PooledGold:
    """A mean of labels with its standard error."""

    step: int
    gold: float
    stderr: float
    n: int
    reach: float = nan

    def with_reach(self, reach: float) -> _PooledGold:
        return _PooledGold(self.step, self.gold, self.stderr, self.n, reach)


class _GoldSeries:
    """The gold readings of a run in step order, pooled into means around a step."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        ordered = sorted(readings, key=lambda reading: reading.step)
        self.steps = np.array([reading.step for reading in ordered])
        self.values = np.array([reading.value for reading in ordered])
        self.n = np.array([max(1, reading.n) for reading in ordered])
        self.variance = np.array([_variance(reading) for reading in ordered])
        gaps = np.diff(self.steps)
        self.gap = float(np.median(gaps)) if len(gaps) else 1.0

    def around(self, step: int, others: Sequence[int]) -> _PooledGold | None:
        """Within the window, or as far as halfway to the next of `others` if that holds too few labels."""
        half_gap = min((abs(step - other) for other in others if other != step), default=4 * WINDOW) // 2
        estimate = self.between(step - WINDOW, step + WINDOW, step)
        if estimate is None or estimate.n < ENOUGH_LABELS:
            wide = max(half_gap, WINDOW, int(self.gap))
            estimate = self.between(step - wide, step + wide, step)
        return estimate

    def latest(self, step: int) -> _PooledGold | None:
        """The newest labels: those of one window, or the last few readings if it has too few."""
        estimate = self.between(step - 2 * WINDOW, step, step)
        if estimate is None or estimate.n < ENOUGH_LABELS:
            back = max(RECENT_STEPS, 2 * int(self.gap))
            estimate = self.between(step - back, step, step)
        return estimate

    def between(self, low: int, high: int, step: int) -> _PooledGold | None:
        part = slice(np.searchsorted(self.steps, low), np.searchsorted(self.steps, high, side="right"))
        n, values = self.n[part], self.values[part]
        total = int(n.sum())
        if total < MIN_LABELS:
            return None
        mean = float((n * values).sum() / total)
        square = float((n**2 * self.variance[part]).sum()) / total**2
        if len(values) >= 4:  # prompts differ between steps, which a single step's standard error does not include
            scatter = float((n**2 * (values - mean) ** 2).sum()) / total**2 * len(values) / (len(values) - 1)
            square = max(square, scatter)
        return _PooledGold(step, mean, sqrt(square), total)


def _variance(reading: Reading) -> float:
    """Of one reading's mean. Gold lies in [0, 1], so m (1 - m) / n bounds it where the reading has no standard
    error; two successes and two failures are added (Agresti-Coull), or all-right would have variance 0."""
    if reading.stderr is not None and reading.stderr > 0.0:
        return reading.stderr**2
    mean = (min(max(reading.value, 0.0), 1.0) * reading.n + 2.0) / (reading.n + 4.0)
    return mean * (1.0 - mean) / (reading.n + 4.0)


def _sidak_z(many: int, confidence: float = CONFIDENCE) -> float:
    """The z value at which `many` two-sided intervals hold simultaneously (Šidák)."""
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence ** (1.0 / max(1, many)))


def _source(series: Mapping[str, Sequence[Reading]], alarms: Sequence[Alarm]) -> str:
    """The reading that gold is taken from; of evaluations the one an alarm is about, else the one with most items."""
    for name in SOURCES:
        if name in series:
            return name
    evaluations = sorted(name for name in series if name.startswith("eval."))
    for alarm in alarms:
        if alarm.name in evaluations:
            return alarm.name
    return max(evaluations, key=lambda name: sum(reading.n for reading in series[name]), default="")


def _decide(
    step: int,
    series: Mapping[str, Sequence[Reading]],
    alarms: Sequence[Alarm],
    gold: _GoldSeries,
    candidates: Sequence[_PooledGold],
    now: _PooledGold | None,
) -> tuple[Word, str]:
    if alarms:
        return "stop", _alarm_reason(alarms)
    old = step - int(gold.steps[-1])
    if now is None or old > max(RECENT_STEPS, 2.0 * gold.gap):
        return (
            "cannot tell",
            f"the newest gold is {old} steps old, or of fewer than {MIN_LABELS} labels; label more recent steps",
        )
    # Overlapping windows share labels: the drop is judged against earlier ones only.
    earlier = [estimate for estimate in candidates if estimate.step + WINDOW <= step - 2 * WINDOW]
    first = gold.between(int(gold.steps[0]), int(gold.steps[0]) + 2 * WINDOW, int(gold.steps[0]))
    rivals = earlier or ([first] if first is not None and first.step + 4 * WINDOW <= step else [])
    peak = max(rivals, key=lambda estimate: estimate.gold, default=None)
    drop, error = (0.0, now.stderr) if peak is None else (peak.gold - now.gold, sqrt(peak.stderr**2 + now.stderr**2))
    # Any of them may be the peak, and the test is repeated at about every checkpoint.
    if peak is not None and drop > _sidak_z(len(rivals) ** 2, STOP_CONFIDENCE) * error:
        return "stop", f"gold is {now.gold:.2f}, and was {peak.gold:.2f} at step {peak.step}: more than chance"
    gained = first is not None and now.gold - first.gold > 2.0 * sqrt(first.stderr**2 + now.stderr**2)
    drift = "" if gained else _drift_reason(series)
    if drift and first is not None and first.step + 4 * WINDOW <= step:
        return "stop", f"{drift}, and gold has not risen ({first.gold:.2f} at first, {now.gold:.2f} now)"
    loss = drop + NormalDist().inv_cdf(CONFIDENCE) * error
    if loss > TOLERANCE:
        return "cannot tell", f"{now.n} recent labels cannot exclude a loss of {loss:.2f} of gold; label more"
    slope = _recent_mean(series.get("gold.slope", ()))
    trend = "" if slope is None or slope <= 0.0 else "; the reward still points towards gold"
    return (
        "continue",
        f"no sign that gold is lost: it is {now.gold:.2f}, a loss above {max(loss, 0.0):.2f} is excluded{trend}",
    )


def _drift_reason(series: Mapping[str, Sequence[Reading]]) -> str:
    """Why gold should have risen by now: a large KL or a collapsed entropy; empty if neither."""
    kl, entropy = (_recent_mean(series.get(name, ())) for name in ("policy.kl.k3", "policy.entropy_ratio"))
    if kl is not None and kl > MAX_KL:
        return f"the KL to the reference is {kl:.0f} nats"
    if entropy is not None and entropy < MIN_ENTROPY_RATIO:
        return f"entropy is {100 * entropy:.0f} % of what it was"
    return ""


def _recent_mean(readings: Sequence[Reading]) -> float | None:
    newest = max((reading.step for reading in readings), default=0)
    values = [reading.value for reading in readings if reading.step > newest - WINDOW]
    return sum(values) / len(values) if values else None


def _alarm_reason(alarms: Sequence[Alarm]) -> str:
    first = min(alarms, key=lambda alarm: alarm.onset)
    return f"an alarm is open on {first.name}: gold is being lost since about step {first.onset}"


def _to_estimate(pooled: _PooledGold | None) -> Estimate | None:
    if pooled is None:
        return None
    low, high = pooled.gold - pooled.reach * pooled.stderr, pooled.gold + pooled.reach * pooled.stderr
    return Estimate(pooled.step, pooled.gold, max(low, 0.0), min(high, 1.0), pooled.n)


def _at(curve: Mapping[int, float], step: int) -> float:
    steps = sorted(curve)
    return float(np.interp(step, steps, [curve[at] for at in steps]))
