"""Stop advice: whether to continue training, and which checkpoint is the best so far, estimated from gold labels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, nan, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from tiltmeter.data.reading_table import ReadingTable, by_name
from tiltmeter.data.records import Alarm, Floats, Reading
from tiltmeter.stats.gold_curve import GoldCurve
from tiltmeter.verdict.run_facts import PAST, RunFacts

Word = Literal["continue", "stop", "cannot tell"]

CONFIDENCE = 0.95
STOP_CONFIDENCE = 0.99  # confidence that gold has fallen, needed to advise a stop without an alarm
WINDOW = 10  # steps on either side of a checkpoint whose gold is pooled
ENOUGH_LABELS = 30  # with fewer in the window, it is widened up to halfway to the next checkpoint
MIN_LABELS = 8  # labels below which a checkpoint has no estimate
RECENT_STEPS = 40  # steps after which gold is too old; or twice the usual gap between labels, if that is larger
MAX_WINDOWS = 40  # stretches of the past that gold now is compared with; a longer run has longer ones
LOOKS = 10  # a stretch: the comparison is made at every step, with labels that overlap
LEAST_DUELS = 20  # recent duels below which they say nothing
MAX_KL = 100.0  # nats of KL to the reference; beyond it, gold should have risen
MIN_ENTROPY_RATIO = 0.2  # of the entropy at the start

PAIR_LEVEL = "gold.level"
CHECKPOINT = "training.checkpoint"
#: Readings of gold, in order of preference: the first present is used. Evaluations come last, each on its own scale.
SOURCES = ("gold.mean", "gold.answers", PAIR_LEVEL)


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
    fall: float | None = None  # of gold below its best stretch: a larger one is excluded (95 %); None: nothing is
    lower: bool = False  # gold stands lower than it did, by more than chance
    excluded: bool = False  # that a quarter of gold is lost, against every earlier stretch: without it no run is OK


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
    `gold.answers`, else `gold.level`, else the evaluation series with most items; `gold.slope`, `policy.kl.k3` and
    `policy.entropy_ratio` if present; `alarms` that are open; and `checkpoints`, at which the model was saved.
    `gold.level`, from audited pairs alone, orders checkpoints and never advises a stop by itself.

    The estimate at a checkpoint pools the readings within 10 steps of it, weighted by their labels; with fewer than 30
    labels the window grows up to halfway to the next checkpoint. Its standard error is the larger of the readings' own
    standard errors and their scatter. The checkpoint with the highest estimate is the best, and checkpoints
    after an open alarm's onset are excluded. The highest of K estimates is biased upwards, so the K intervals hold
    simultaneously (Šidák: z at 1 - (1 - 0.95^(1/K)) / 2); the chosen one is then valid, if conservative. The intervals
    are not valid if gold moves much within a window or if labels were selected by their value; they are about
    this gold source only.

    *Stop*: an alarm on gold is open; or gold now is below an earlier stretch of the run by more than chance (99 %,
    corrected for K² comparisons: with each of K stretches, at each; unlike the alarm, this test is not valid under
    continuous monitoring); or answers of now lose to earlier ones; or the KL is above 100 nats, or entropy is below a
    fifth, and gold has not risen. *Cannot tell*: no gold, no recent gold, or labels do not exclude that a quarter of it
    is lost against every earlier stretch (`stats/gold_curve.py`). Otherwise *continue*. `fall` is the largest fall
    below the best stretch that is not excluded.

    >>> rise = [Reading(0, t, "gold.mean", 0.4 + 0.004 * min(t, 100 - t), 64, 0.05) for t in range(100)]
    >>> advice = advise(99, rise, checkpoints=[20, 50, 80])
    >>> advice.word, advice.best.step, round(advice.best.gold, 2)
    ('stop', 50, 0.58)
    """
    return advise_by_name(step, by_name(readings), alarms, checkpoints)


def advise_by_name(
    step: int, readings: Mapping[str, ReadingTable], alarms: Sequence[Alarm], checkpoints: Sequence[int]
) -> Advice:
    """As `advise`, of readings by their names."""
    usable = ((name, one.where(np.isfinite(one.values) & (one.steps <= step))) for name, one in readings.items())
    series = {name: one for name, one in usable if len(one)}
    open_alarms = [alarm for alarm in alarms if alarm.tier == "alarm" and alarm.resolved is None]
    past = PAST if open_alarms and PAST in series else ""
    source = _source(series, open_alarms) or past
    saved_steps = sorted({at for at in checkpoints if at <= step})
    if not source:
        if open_alarms:
            return Advice("stop", _alarm_reason(open_alarms), None, None, "")
        why = "no gold to judge by; gold= at attach, or declared evaluations, would tell"
        return Advice("cannot tell", why, None, None, "")
    gold = _GoldSeries(series[source])
    by = _GoldSeries(series[past]) if past else gold  # labels of the whole past say more than those the alarm needed
    # Where the whole past was labelled, its level says which checkpoint is good; else only what is before the onset.
    bound = min((alarm.onset_high if past else alarm.onset for alarm in open_alarms), default=step)
    candidates = [
        estimate for at in saved_steps if at <= bound and (estimate := by.around(at, saved_steps)) is not None
    ]
    reach = _sidak_z(len(candidates))
    best = max(candidates, key=lambda estimate: (estimate.gold, estimate.step), default=None)
    best = None if best is None else best.with_reach(reach)
    now = gold.latest(step)
    peak = _peak(gold, now, step)
    curve = GoldCurve(series[source], evaluations=source.startswith("eval."))
    if open_alarms:
        word, why = _stop(_alarm_reason(open_alarms))
    elif source == PAIR_LEVEL:
        word, why = _decide_by_pairs(step, series, peak, curve)
    else:
        word, why = _decide(step, series, gold, now, peak, curve)
    if saved_steps and best is None:
        why += "; no checkpoint has gold around it" + (" from before the onset" if open_alarms else "")
    latest = None if now is None else now.with_reach(_sidak_z(1))
    lower = peak is not None and peak.is_significant
    fall = None if curve.last_look is None else curve.last_look.fall
    return Advice(word, why, _to_estimate(best), _to_estimate(latest), source, fall, lower, curve.excludes_loss)


def _decide_by_pairs(
    step: int, series: Mapping[str, ReadingTable], peak: _Peak | None, curve: GoldCurve
) -> tuple[Word, str]:
    """The advice from audited pairs without an alarm. Pairs come from prompts whose rewards differ, so their mean gold
    falls too when prompts become always solved: a fall of it is no proof that gold fell, and forbids to go on calmly.
    Their slope along the reward shows where gold is going, duels whether answers got worse."""
    duels = _since(series, "gold.duel", step - RECENT_STEPS)
    counts, values = duels.counts, duels.values
    if counts.sum() >= LEAST_DUELS:
        mean = float((counts * values).sum() / counts.sum())
        error = sqrt(float((counts**2 * (values - mean) ** 2).sum())) / float(counts.sum())
        if mean < -_sidak_z(1, STOP_CONFIDENCE) * error - 0.02:
            return _stop(f"answers of now lose to earlier ones in duels by {-mean:.2g} of gold: more than chance")
    if peak is not None and peak.is_significant:
        return "cannot tell", (
            f"gold of audited pairs is lower than around step {peak.best.step}, where it was {peak.best.gold:.2f}: "
            "either gold has fallen, or solved prompts left the pairs; an evaluation, or gold for all completions of "
            "some prompts, would tell"
        )
    if not curve.excludes_loss:
        return "cannot tell", say_what_is_missing(curve)
    if (slope := _positive_slope(series, step)) is not None:
        return "continue", f"no alarm, and the reward still points towards gold (slope {slope:.2g})"
    why = (
        "no alarm, and audited pairs do not say more: gold for all completions of some prompts, or an evaluation, would"
    )
    return "cannot tell", why


def advise_on_run(run_facts: RunFacts, before: float = inf) -> Advice | None:
    """Advice on a recorded run; None without labels, evaluations and traps. `before`: only checkpoints of earlier
    steps may be named."""
    if not run_facts.steps or not (run_facts.labels or run_facts.evaluations or run_facts.traps):
        return None
    spans = run_facts.spans()
    readings = {name: history.on_lineage(spans) for name, history in run_facts.history.items()}
    saved = readings.get(CHECKPOINT)
    saved_steps = [] if saved is None else sorted({int(at) for at in saved.values if at < before})
    return advise_by_name(run_facts.last_step, readings, run_facts.open_alarms("alarm"), saved_steps)


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


@dataclass(frozen=True, slots=True)
class _Peak:
    """The best earlier stretch of a run beside gold now."""

    best: _PooledGold
    now: _PooledGold
    rivals: int  # stretches of which it is the best

    @property
    def drop(self) -> float:
        return self.best.gold - self.now.gold

    @property
    def error(self) -> float:
        return sqrt(self.best.stderr**2 + self.now.stderr**2)

    @property
    def is_significant(self) -> bool:
        """Whether gold now is lower by more than chance. Any stretch may be the best, and the test is repeated at
        every step, which is worth about ten looks a stretch."""
        return self.drop > _sidak_z(LOOKS * self.rivals**2, STOP_CONFIDENCE) * self.error


class _GoldSeries:
    """The gold readings of a run in step order, pooled into means around a step."""

    def __init__(self, readings: ReadingTable) -> None:
        order = np.argsort(readings.steps, kind="stable")
        self.steps, self.values = readings.steps[order], readings.values[order]
        self.n = np.maximum(readings.counts[order], 1.0)
        self.variance = _variances(readings)[order]
        # Of one label, from how much steps scatter around their neighbours: a window alone has too few steps to tell.
        parts = [slice(low, low + WINDOW) for low in range(0, len(order) - WINDOW + 1, WINDOW)]
        scatter = [float((self.n[part] * (self.values[part] - self._mean(part)) ** 2).sum()) for part in parts]
        self.label_variance = sum(scatter) / (len(parts) * (WINDOW - 1)) if parts else 0.0
        gaps = np.diff(self.steps)
        self.gap = float(np.median(gaps)) if len(gaps) else 1.0

    def _mean(self, part: slice) -> float:
        return float((self.n[part] * self.values[part]).sum() / self.n[part].sum())

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

    def stretches(self, until: int) -> list[_PooledGold]:
        """The run up to a step in stretches of equal length, each with enough labels where there are enough."""
        first, span = int(self.steps[0]), until - int(self.steps[0]) + 1
        rate = float(self.n.sum()) / max(int(self.steps[-1]) - first + 1, 1)
        length = max(2 * WINDOW, ceil(span / MAX_WINDOWS), ceil(ENOUGH_LABELS / rate))
        parts = (
            self.between(low, low + length - 1, low + length // 2) for low in range(first, until - length + 2, length)
        )
        return [part for part in parts if part is not None]

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
            square = max(square, scatter, self.label_variance / total)
        return _PooledGold(step, mean, sqrt(square), total)


def _variances(readings: ReadingTable) -> Floats:
    """Of the readings' means. Gold lies in [0, 1], so m (1 - m) / n bounds it where a reading has no standard error;
    two successes and two failures are added (Agresti-Coull), or all-right would have variance 0."""
    counts, stderrs = readings.counts, readings.stderrs
    means = (np.clip(readings.values, 0.0, 1.0) * counts + 2.0) / (counts + 4.0)
    return np.where(stderrs > 0.0, stderrs**2, means * (1.0 - means) / (counts + 4.0))


def _sidak_z(many: int, confidence: float = CONFIDENCE) -> float:
    """The z value at which `many` two-sided intervals hold simultaneously (Šidák)."""
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence ** (1.0 / max(1, many)))


def _source(series: Mapping[str, ReadingTable], alarms: Sequence[Alarm]) -> str:
    """The reading that gold is taken from; of evaluations the one an alarm is about, else the one with most items."""
    for name in SOURCES:
        if name in series:
            return name
    evaluations = sorted(name for name in series if name.startswith("eval."))
    for alarm in alarms:
        if alarm.name in evaluations:
            return alarm.name
    return max(evaluations, key=lambda name: float(series[name].counts.sum()), default="")


def _peak(gold: _GoldSeries, now: _PooledGold | None, step: int) -> _Peak | None:
    """The best earlier stretch beside gold now. Stretches that overlap would share labels."""
    earlier = [] if now is None else gold.stretches(step - 2 * WINDOW)
    if now is None or not earlier:
        return None
    return _Peak(max(earlier, key=lambda part: part.gold), now, len(earlier))


def _decide(
    step: int,
    series: Mapping[str, ReadingTable],
    gold: _GoldSeries,
    now: _PooledGold | None,
    peak: _Peak | None,
    curve: GoldCurve,
) -> tuple[Word, str]:
    old = step - int(gold.steps[-1])
    if now is None or old > max(RECENT_STEPS, 2.0 * gold.gap):
        return (
            "cannot tell",
            f"the newest gold is {old} steps old, or of fewer than {MIN_LABELS} labels; label more recent steps",
        )
    if peak is not None and peak.is_significant:
        best = peak.best
        # What it is now is said once on a page, at the end of the picture: two windows would give two numbers.
        return _stop(f"gold is lower than around step {best.step}, where it was {best.gold:.2f}: more than chance")
    first = gold.between(int(gold.steps[0]), int(gold.steps[0]) + 2 * WINDOW, int(gold.steps[0]))
    gained = first is not None and now.gold - first.gold > 2.0 * sqrt(first.stderr**2 + now.stderr**2)
    drift = "" if gained else _drift_reason(series)
    if drift and first is not None and first.step + 4 * WINDOW <= step:
        return _stop(f"{drift}, and gold has not risen ({first.gold:.2f} at first, {now.gold:.2f} now)")
    look = curve.last_look
    if look is None or not curve.excludes_loss:
        return "cannot tell", say_what_is_missing(curve)
    trend = "" if _positive_slope(series, step) is None else "; the reward still points towards gold"
    return (
        "continue",
        f"no sign that gold is lost: it is {now.gold:.2f}, a fall above {look.fall:.2f} is excluded{trend}",
    )


def _stop(why: str) -> tuple[Word, str]:
    return "stop", why


def say_what_is_missing(curve: GoldCurve) -> str:
    """Why a loss of gold is not excluded, and what would tell."""
    look = curve.last_look
    if look is None:
        return f"{curve.labels} labels are too few to compare gold now with gold before; label more"
    where = f"at steps {look.best.first} to {look.best.last}"
    if look.lower_than is not None:
        part = look.lower_than
        return (
            f"gold of the newest steps is lower than at steps {part.first} to {part.last}, where it was "
            f"{part.mean:.2f}: more than chance"
        )
    if look.more_labels is None:
        return (
            f"gold was {look.best.mean:.2f} {where} and is {look.now.mean:.2f}: a loss of {look.allowed:.2f} is likely"
        )
    if look.margins[0] > 0.0:
        return (
            f"{look.now.n} labels of the newest steps do not exclude a loss of {look.allowed:.2f} of gold, which was "
            f"{look.best.mean:.2f} {where}; about {look.more_labels} more would tell"
        )
    return f"a loss of {look.allowed:.2f} of gold is excluded at the last steps only: a few more will tell"


def _drift_reason(series: Mapping[str, ReadingTable]) -> str:
    """Why gold should have risen by now: a large KL or a collapsed entropy; empty if neither."""
    kl, entropy = (_recent_mean(series, name) for name in ("policy.kl.k3", "policy.entropy_ratio"))
    if kl is not None and kl > MAX_KL:
        return f"the KL to the reference is {kl:.0f} nats"
    if entropy is not None and entropy < MIN_ENTROPY_RATIO:
        return f"entropy is {100 * entropy:.0f} % of what it was"
    return ""


def _since(series: Mapping[str, ReadingTable], name: str, step: int) -> ReadingTable:
    """The readings of a name after a step."""
    readings = series.get(name, ReadingTable(name))
    return readings.where(readings.steps > step)


def _positive_slope(series: Mapping[str, ReadingTable], step: int) -> float | None:
    """The mean slope of gold along the reward in recent steps, if it is above 0 by more than chance."""
    recent = _since(series, "gold.slope", step - RECENT_STEPS).values
    if len(recent) < MIN_LABELS:
        return None
    mean, error = float(np.mean(recent)), float(np.std(recent, ddof=1)) / sqrt(len(recent))
    return mean if mean > 2.0 * error else None


def _recent_mean(series: Mapping[str, ReadingTable], name: str) -> float | None:
    newest = max(series[name].steps, default=0) if name in series else 0
    values = _since(series, name, newest - WINDOW).values
    return float(values.mean()) if len(values) else None


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
