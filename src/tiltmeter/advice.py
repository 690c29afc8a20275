"""Stop advice: whether to go on, and which checkpoint so far is the best, from what gold has said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan, sqrt
from statistics import NormalDist
from typing import Literal

import numpy as np

from tiltmeter.journal import Event, readings_of
from tiltmeter.records import Alarm, Reading
from tiltmeter.story import Story

Word = Literal["continue", "stop", "cannot tell"]

CONFIDENCE = 0.95
SURE = 0.99  # that gold has fallen, before a stop is advised without an alarm
WINDOW = 10  # steps on either side of a checkpoint whose gold is pooled
LABELS = 30  # below so many in the window it is widened, halfway to the next checkpoint
FEWEST = 8  # labels below which a checkpoint has no estimate
RECENT = 40  # steps after which gold says nothing about the run as it is; twice the usual distance if that is more
TOLERANCE = 0.25  # a loss of gold that cannot be excluded, from which on nothing is advised
DRIFT = 100.0  # nats of KL to the reference that should have bought something
COLLAPSED = 0.2  # of the entropy at the start

PAIRS = "gold.level"
#: Sources of gold, the first that there is being used; evaluations come last, each on a scale of its own.
SOURCES = ("gold.mean", PAIRS)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Gold around one step: a mean over `n` labels, with the interval it is quoted with."""

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
class Kept:
    """Advice scored with hindsight: true gold at the advised, the last, the best-paid and the truly best checkpoint."""

    advised: float
    last: float
    best_proxy: float
    best: float

    @property
    def over_last(self) -> float:
        return self.advised - self.last

    @property
    def over_best_proxy(self) -> float:
        return self.advised - self.best_proxy

    @property
    def regret(self) -> float:
        return self.best - self.advised


def advise(
    step: int, readings: Iterable[Reading], alarms: Sequence[Alarm] = (), checkpoints: Sequence[int] = ()
) -> Advice:
    """Continue, stop or cannot tell, and the best checkpoint up to `step`, from the readings of the current lineage.

    The reward cannot say when to stop: it rises throughout a hack. Used are `gold.mean`, else `gold.level`, else the
    evaluation series with most items; `gold.slope`, `policy.kl.k3` and `policy.entropy_ratio` where there are any;
    `alarms` that are open; and `checkpoints`, the steps at which the model was saved. `gold.level`, of audited pairs
    alone, orders checkpoints and never advises a stop by itself.

    The estimate at a checkpoint pools the readings within 10 steps of it, weighted by their labels; with fewer than 30
    labels it reaches halfway to the next checkpoint. Its standard error is the larger of what the readings say of
    themselves and their scatter. The checkpoint with the highest estimate is the best, and an open alarm's onset bounds
    it from above. Choosing the highest of K flatters it, so all K intervals are made to hold at once (Šidák:
    z at 1 - (1 - 0.95^(1/K)) / 2): then the chosen one's holds however it was chosen, if too wide. Void if gold moves
    much within a window, if labels were chosen after they were seen, or beyond the gold source's own opinion.

    *Stop*: an alarm on gold is open; or gold now is below an earlier checkpoint's by more than chance (99 %, with K²
    comparisons allowed for: one with each, asked at each; this is no proof for a run that is looked at all the time,
    which the alarm is); or the KL has gone beyond 100 nats, or entropy below a fifth, and gold has not risen. *Cannot
    tell*: no gold, none of late, or too few labels to exclude a loss of 0.25. Otherwise *continue*.

    >>> rise = [Reading(0, t, "gold.mean", 0.4 + 0.004 * min(t, 100 - t), 64, 0.05) for t in range(100)]
    >>> told = advise(99, rise, checkpoints=[20, 50, 80])
    >>> told.word, told.best.step, round(told.best.gold, 2)
    ('stop', 50, 0.58)
    """
    series: dict[str, list[Reading]] = {}
    for reading in readings:
        if isfinite(reading.value) and reading.step <= step:
            series.setdefault(reading.name, []).append(reading)
    proved = [alarm for alarm in alarms if alarm.tier == "alarm" and alarm.resolved is None]
    source = _source(series, proved)
    saved = sorted({at for at in checkpoints if at <= step})
    if not source:
        if proved:
            return Advice("stop", _alarmed(proved), None, None, "")
        why = "no gold to judge by; gold= at attach, or declared evaluations, would tell"
        return Advice("cannot tell", why, None, None, "")
    gold = _Gold(series[source])
    bound = min((alarm.onset for alarm in proved), default=step)
    candidates = [found for at in saved if at <= bound and (found := gold.around(at, saved)) is not None]
    reach = _simultaneous(len(candidates))
    best = max(candidates, key=lambda found: (found.gold, found.step), default=None)
    best = None if best is None else best.within(reach)
    now = gold.latest(step)
    word, why = _word(step, series, proved, gold, candidates, now)
    if source == PAIRS and not proved:
        word, why = _by_slope(step, series)
    if saved and best is None:
        why += "; no checkpoint has gold around it" + (" from before the onset" if proved else "")
    return Advice(word, why, _told(best), _told(None if now is None else now.within(_simultaneous(1))), source)


def _by_slope(step: int, series: Mapping[str, Sequence[Reading]]) -> tuple[Word, str]:
    """What audited pairs can say without an alarm. They are of prompts whose rewards differ: their level moves when
    prompts are mastered or given up, so it orders checkpoints at best; along the reward they do say where gold goes."""
    recent = [reading for reading in series.get("gold.slope", ()) if reading.step > step - RECENT]
    us = [reading.value for reading in recent]
    if len(us) >= FEWEST:
        mean = float(np.mean(us))
        error = float(np.std(us, ddof=1)) / sqrt(len(us))
        if mean > 2.0 * error:
            return "continue", f"no alarm, and the reward still points towards gold (slope {mean:.2g})"
    why = (
        "no alarm, and audited pairs do not say more: gold for all completions of some prompts, or an evaluation, would"
    )
    return "cannot tell", why


def advice_on(story: Story, events: Iterable[Event]) -> Advice | None:
    """Advice on a run as its journal has it; None where nothing but the reward is known, which cannot say it."""
    if not story.steps or not (story.labels or story.evaluations):
        return None
    spans = story.spans()
    told = [reading for event in events if event.step < spans.get(event.attempt, -1) for reading in readings_of(event)]
    saved = sorted({int(reading.value) for reading in told if reading.name == "training.checkpoint"})
    return advise(story.last_step, told, story.open("alarm"), saved)


def gold_kept(
    advised: int | None, checkpoints: Sequence[int], gold: Mapping[int, float], proxy: Mapping[int, float]
) -> Kept:
    """Score advice afterwards: true gold at the advised checkpoint against what one would have kept without advice.

    `gold` and `proxy` are curves by step, interpolated where a checkpoint lies between. No advice (None) keeps the last
    checkpoint, as one would.

    >>> true = {0: 0.4, 50: 0.8, 100: 0.3}
    >>> found = gold_kept(50, [25, 50, 75, 100], true, {0: 0.0, 100: 1.0})
    >>> round(found.over_last, 2), round(found.over_best_proxy, 2), found.regret
    (0.5, 0.5, 0.0)
    """
    steps = sorted(checkpoints)
    if not steps:
        raise ValueError("no checkpoint, so none could be kept: pass the steps at which the model was saved")
    true, paid = ({at: _at(curve, at) for at in steps} for curve in (gold, proxy))
    taken = steps[-1] if advised is None else advised
    return Kept(_at(gold, taken), true[steps[-1]], true[max(steps, key=lambda at: (paid[at], at))], max(true.values()))


@dataclass(frozen=True, slots=True)
class _Pooled:
    """A mean of labels with its standard error."""

    step: int
    gold: float
    stderr: float
    n: int
    reach: float = nan

    def within(self, reach: float) -> _Pooled:
        return _Pooled(self.step, self.gold, self.stderr, self.n, reach)


class _Gold:
    """A series of gold, asked for its mean around a step."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        ordered = sorted(readings, key=lambda reading: reading.step)
        self.steps = np.array([reading.step for reading in ordered])
        self.values = np.array([reading.value for reading in ordered])
        self.n = np.array([max(1, reading.n) for reading in ordered])
        self.variance = np.array([_variance(reading) for reading in ordered])
        gaps = np.diff(self.steps)
        self.gap = float(np.median(gaps)) if len(gaps) else 1.0

    def around(self, step: int, others: Sequence[int]) -> _Pooled | None:
        """Within the window, or as far as halfway to the next of `others` if that holds too few labels."""
        room = min((abs(step - other) for other in others if other != step), default=4 * WINDOW) // 2
        found = self.between(step - WINDOW, step + WINDOW, step)
        if found is None or found.n < LABELS:
            wide = max(room, WINDOW, int(self.gap))
            found = self.between(step - wide, step + wide, step)
        return found

    def latest(self, step: int) -> _Pooled | None:
        """The newest labels: those of one window, or the last few readings if it has too few."""
        found = self.between(step - 2 * WINDOW, step, step)
        if found is None or found.n < LABELS:
            back = max(RECENT, 2 * int(self.gap))
            found = self.between(step - back, step, step)
        return found

    def between(self, low: int, high: int, step: int) -> _Pooled | None:
        part = slice(np.searchsorted(self.steps, low), np.searchsorted(self.steps, high, side="right"))
        n, values = self.n[part], self.values[part]
        total = int(n.sum())
        if total < FEWEST:
            return None
        mean = float((n * values).sum() / total)
        square = float((n**2 * self.variance[part]).sum()) / total**2
        if len(values) >= 4:  # prompts differ from step to step, which one step's own error may not show
            scatter = float((n**2 * (values - mean) ** 2).sum()) / total**2 * len(values) / (len(values) - 1)
            square = max(square, scatter)
        return _Pooled(step, mean, sqrt(square), total)


def _variance(reading: Reading) -> float:
    """Of one reading's mean. Gold lies in [0, 1], so m (1 - m) / n bounds it where the reading does not say; the count
    is made four larger, half of them at each end, or all-right would be certain."""
    if reading.stderr is not None and reading.stderr > 0.0:
        return reading.stderr**2
    mean = (min(max(reading.value, 0.0), 1.0) * reading.n + 2.0) / (reading.n + 4.0)
    return mean * (1.0 - mean) / (reading.n + 4.0)


def _simultaneous(many: int, confidence: float = CONFIDENCE) -> float:
    """Standard errors that make so many two-sided intervals hold at once (Šidák)."""
    return NormalDist().inv_cdf(0.5 + 0.5 * confidence ** (1.0 / max(1, many)))


def _source(series: Mapping[str, Sequence[Reading]], alarms: Sequence[Alarm]) -> str:
    """What gold is read from: of evaluations the one that an alarm is about, or the one with most items."""
    for name in SOURCES:
        if name in series:
            return name
    evaluations = sorted(name for name in series if name.startswith("eval."))
    for alarm in alarms:
        if alarm.name in evaluations:
            return alarm.name
    return max(evaluations, key=lambda name: sum(reading.n for reading in series[name]), default="")


def _word(
    step: int,
    series: Mapping[str, Sequence[Reading]],
    alarms: Sequence[Alarm],
    gold: _Gold,
    candidates: Sequence[_Pooled],
    now: _Pooled | None,
) -> tuple[Word, str]:
    if alarms:
        return "stop", _alarmed(alarms)
    old = step - int(gold.steps[-1])
    if now is None or old > max(RECENT, 2.0 * gold.gap):
        return (
            "cannot tell",
            f"the newest gold is {old} steps old, or of fewer than {FEWEST} labels; label more of late",
        )
    # Overlapping windows share labels: the drop is judged against earlier ones only.
    earlier = [found for found in candidates if found.step + WINDOW <= step - 2 * WINDOW]
    first = gold.between(int(gold.steps[0]), int(gold.steps[0]) + 2 * WINDOW, int(gold.steps[0]))
    rivals = earlier or ([first] if first is not None and first.step + 4 * WINDOW <= step else [])
    peak = max(rivals, key=lambda found: found.gold, default=None)
    drop, error = (0.0, now.stderr) if peak is None else (peak.gold - now.gold, sqrt(peak.stderr**2 + now.stderr**2))
    # Any of them may be the peak, and the question is asked again at about every checkpoint.
    if peak is not None and drop > _simultaneous(len(rivals) ** 2, SURE) * error:
        return "stop", f"gold is {now.gold:.2f}, and was {peak.gold:.2f} at step {peak.step}: more than chance"
    gained = first is not None and now.gold - first.gold > 2.0 * sqrt(first.stderr**2 + now.stderr**2)
    wasted = "" if gained else _wasted(series)
    if wasted and first is not None and first.step + 4 * WINDOW <= step:
        return "stop", f"{wasted}, and gold has not risen ({first.gold:.2f} at first, {now.gold:.2f} now)"
    loss = drop + NormalDist().inv_cdf(CONFIDENCE) * error
    if loss > TOLERANCE:
        return "cannot tell", f"{now.n} labels of late cannot exclude a loss of {loss:.2f} of gold; label more"
    slope = _recent_mean(series.get("gold.slope", ()))
    leads = "" if slope is None or slope <= 0.0 else "; the reward still points towards gold"
    return (
        "continue",
        f"no sign that gold is lost: it is {now.gold:.2f}, a loss above {max(loss, 0.0):.2f} is excluded{leads}",
    )


def _wasted(series: Mapping[str, Sequence[Reading]]) -> str:
    """What has been spent that should have bought gold; empty if nothing much."""
    kl, entropy = (_recent_mean(series.get(name, ())) for name in ("policy.kl.k3", "policy.entropy_ratio"))
    if kl is not None and kl > DRIFT:
        return f"the KL to the reference is {kl:.0f} nats"
    if entropy is not None and entropy < COLLAPSED:
        return f"entropy is {100 * entropy:.0f} % of what it was"
    return ""


def _recent_mean(readings: Sequence[Reading]) -> float | None:
    newest = max((reading.step for reading in readings), default=0)
    values = [reading.value for reading in readings if reading.step > newest - WINDOW]
    return sum(values) / len(values) if values else None


def _alarmed(alarms: Sequence[Alarm]) -> str:
    first = min(alarms, key=lambda alarm: alarm.onset)
    return f"an alarm is open on {first.name}: gold is being lost since about step {first.onset}"


def _told(found: _Pooled | None) -> Estimate | None:
    if found is None:
        return None
    low, high = found.gold - found.reach * found.stderr, found.gold + found.reach * found.stderr
    return Estimate(found.step, found.gold, max(low, 0.0), min(high, 1.0), found.n)


def _at(curve: Mapping[int, float], step: int) -> float:
    steps = sorted(curve)
    return float(np.interp(step, steps, [curve[at] for at in steps]))
