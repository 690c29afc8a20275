"""How gold of a run stands: the one estimate that every sentence, table, picture and advice takes its numbers from.

A run has one source of gold: the reading closest to every answer, else an evaluation. `stats.gold_curve` says from it
what gold was at first, at its best and is now. While an alarm on gold is open, `stats.turn` says anew for every label,
of the past too, when gold turned down; what was said when the alarm was raised stays in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Alarm
from tiltmeter.stats.gold_curve import GoldCurve, Stretch
from tiltmeter.stats.turn import GoldTurn, best_checkpoint, fit_turn

PAIR_LEVEL = "gold.level"
#: Readings of gold, in order of preference: the first present is used; evaluations come last.
SOURCES = ("gold.mean", "gold.answers", PAIR_LEVEL)
PAST = "gold.past"  # labels of the past, bought after an alarm
ANCHORS = "eval.anchors_"  # begins the evaluations of prompts that Tiltmeter asks again
DATED = ("gold.slope", "gold.duel", "gold.prompts", "gold.change")  # alarms that gold's own curve can date
SLOPE = DATED[0]  # pay has turned against gold, which may not have fallen yet

CONFIDENCE = 0.95
REACH = 10  # steps on either side of a checkpoint whose gold is pooled
AFTER = 50  # steps behind an alarm whose labels say when gold turned; later ones may belong to a recovery
ENOUGH_LABELS = 30  # with fewer, up to halfway to the next checkpoint
LEAST_ROUNDS = 10  # of anchors, from which on they say where gold of a run with new prompts stands
MIN_LABELS = 8  # labels below which a checkpoint has no estimate


@dataclass(frozen=True, slots=True)
class Estimate:
    """Gold around one step: the mean over `n` labels and its confidence interval."""

    step: int
    gold: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class GoldLevel:
    """Gold now beside the run's best stretch; `change` is at most 0, with its 95 % interval."""

    now: float
    best: float
    change: float
    low: float
    high: float
    source: str  # the reading
    first: int  # steps that `now` is of
    last: int
    best_first: int
    best_last: int


@dataclass(frozen=True)
class GoldStanding:
    """Gold of a run by its source. `turn`: when it turned down; None while no alarm on it is open, or none is seen."""

    source: str
    curve: GoldCurve
    turn: GoldTurn | None

    @property
    def first(self) -> Stretch:
        return self.curve.first

    @property
    def now(self) -> Stretch:
        return self.curve.now

    @property
    def gain(self) -> float:
        """Of gold since the first steps, as it seems."""
        return self.now.mean - self.first.mean

    @property
    def level(self) -> GoldLevel:
        """Gold now against its best; where nothing earlier is better, its best is now."""
        look, now = self.curve.last_look, self.curve.now
        if look is None:
            low, high = now.ends(z_of(1))
            return self._level(now, now, (0.0, low - high, 0.0))
        return self._level(now, look.best if look.best.mean > now.mean else now, look.change)

    def _level(self, now: Stretch, best: Stretch, change: tuple[float, float, float]) -> GoldLevel:
        return GoldLevel(now.mean, best.mean, *change, self.source, now.first, now.last, best.first, best.last)

    @property
    def best(self) -> Stretch | None:
        """Where gold was highest; None: it is no lower now, as far as that can be told. Audited pairs come from other
        prompts at each step: without a turn a lower mean of theirs shows nothing."""
        look = self.curve.last_look
        if look is None or (self.source == PAIR_LEVEL and self.turn is None):
            return None
        return look.best if self.turn is not None or look.is_lower else None

    @property
    def fallen(self) -> tuple[Stretch, Stretch] | None:
        """The stretch from which gold has fallen so surely that training should stop, and now."""
        look = self.curve.last_look
        return None if look is None or look.fallen_from is None else (look.fallen_from, look.now)

    @property
    def best_step(self) -> int | None:
        """The step where gold was highest, as far as that can be told."""
        best = self.best
        return None if best is None else (best.first + best.last) // 2 if self.turn is None else self.turn.top

    @property
    def latest(self) -> Estimate:
        """Gold now, with its interval."""
        return _estimate(self.now.last, self.now, z_of(1))

    def date(self, alarms: Iterable[Alarm]) -> list[Alarm]:
        """The alarms, those on gold of the whole run with the turn that is known today."""
        return [alarm if self.turn is None else _with_turn(alarm, self.turn) for alarm in alarms]

    def checkpoint(self, saved_steps: Sequence[int], alarms: Sequence[Alarm]) -> Estimate | None:
        """The saved step with the most gold; while an alarm is open, the one to go back to. None: none can be named.

        With a turn that is the step with the highest lower end before it, else none after the lower end of an onset is
        named. The highest of K estimates is biased upwards, so the K intervals hold at once (Šidák).
        """
        undated = [alarm for alarm in alarms if self.turn is None or alarm.name not in DATED]
        end = min((alarm.onset_low for alarm in undated), default=None)
        saved = [at for at in saved_steps if end is None or at <= end]
        if self.turn is not None and len(undated) < len(alarms):
            at = best_checkpoint(self.turn, saved)
            return None if at is None else self._on_turn(at, self.turn)
        around = {at: part for at in saved if (part := self._around(at, saved_steps)) is not None}
        best = max(around, key=lambda at: (around[at].mean, at), default=None)
        return None if best is None else _estimate(best, around[best], z_of(len(around)))

    def at(self, step: int, saved_steps: Sequence[int]) -> Estimate | None:
        """Gold around one saved step, as `checkpoint` sees it."""
        if self.turn is not None and self.turn.curve.steps[0] <= step <= self.turn.curve.steps[-1]:
            return self._on_turn(step, self.turn)
        part = self._around(step, saved_steps)
        return None if part is None else _estimate(step, part, z_of(1))

    def _on_turn(self, step: int, turn: GoldTurn) -> Estimate:
        curve = turn.curve
        gold, low, high = (float(np.interp(step, curve.steps, one)) for one in (curve.level, curve.low, curve.high))
        near = self.curve.around(step, REACH)
        return Estimate(step, min(max(gold, 0.0), 1.0), max(low, 0.0), min(high, 1.0), 0 if near is None else near.n)

    def _around(self, step: int, others: Sequence[int]) -> Stretch | None:
        """Within the window, or as far as halfway to the next checkpoint if that holds too few labels."""
        part = self.curve.around(step, REACH)
        if part is None or part.n < ENOUGH_LABELS:
            half = min((abs(step - other) for other in others if other != step), default=4 * REACH) // 2
            part = self.curve.around(step, max(half, REACH, int(self.curve.gap)))
        return part if part is not None and part.n >= MIN_LABELS else None


def stand(
    step: int, readings: Mapping[str, ReadingTable], alarms: Sequence[Alarm], *, new_prompts: bool = False
) -> GoldStanding | None:
    """How gold stands at a step, from readings of the current lineage by name; None: there is none in [0, 1].

    `new_prompts`: prompts do not come back, so anchors say more than gold of what is trained on.
    """
    gold = [name for name in readings if name in (*SOURCES, PAST) or name.startswith("eval.")]
    usable = {name: one for name in gold if len(one := _usable(readings[name], step))}
    anchors = [name for name in usable if name.startswith(ANCHORS) and len(usable[name]) >= LEAST_ROUNDS]
    source = max(anchors, default="") if new_prompts else ""
    source = source or gold_source(usable, alarms)
    if not source:
        return None
    dated = [alarm for alarm in alarms if alarm.name in DATED]
    turn = _turn(source, usable, min(alarm.data_step for alarm in dated)) if dated else None
    if turn is not None and not turn.is_sure and all(alarm.name == SLOPE for alarm in dated):
        turn = None  # a curve fits noise too: such an alarm keeps its own date until gold has surely fallen
    return GoldStanding(source, GoldCurve(usable[source], evaluations=source.startswith("eval.")), turn)


def gold_source(readings: Mapping[str, ReadingTable], alarms: Iterable[Alarm]) -> str:
    """The reading that gold is taken from; of evaluations the one an alarm is about, else the one with most items;
    labels of the past where there is nothing else; empty: none."""
    for name in SOURCES:
        if name in readings and len(readings[name]):
            return name
    evaluations = sorted(name for name in readings if name.startswith("eval.") and len(readings[name]))
    for alarm in alarms:
        if alarm.name in evaluations:
            return alarm.name
    past = PAST if PAST in readings and len(readings[PAST]) else ""
    return max(evaluations, key=lambda name: float(readings[name].counts.sum()), default=past)


def z_of(many: int) -> float:
    """The z value at which so many two-sided intervals hold at once (Šidák)."""
    return NormalDist().inv_cdf(0.5 + 0.5 * CONFIDENCE ** (1.0 / max(1, many)))


def _usable(series: ReadingTable, step: int) -> ReadingTable:
    """Gold lies in [0, 1], but for rounding; what does not is on another scale, and no gold."""
    values = series.values
    return series.where((series.steps <= step) & (values >= -1e-9) & (values <= 1.0 + 1e-9))


def _turn(source: str, readings: Mapping[str, ReadingTable], until: int) -> GoldTurn | None:
    """Of the run's own labels with those of its past; audited pairs come from other prompts at each step, so beside
    labels of the past they are left out."""
    names = [name for name in (source, PAST) if name in readings]
    series = [readings[name].where(readings[name].steps <= until + AFTER) for name in names]
    series = series[-1:] if source == PAIR_LEVEL else series
    steps, values, counts = (
        np.concatenate([np.asarray(getattr(one, column), np.float64) for one in series])
        for column in ("steps", "values", "counts")
    )
    return _fit(steps.tobytes(), values.tobytes(), np.maximum(counts, 1.0).tobytes(), until)


@lru_cache(8)  # asked at every step and by every screen; labels of long after an alarm do not count
def _fit(steps: bytes, values: bytes, counts: bytes, until: int) -> GoldTurn | None:
    return fit_turn(*(np.frombuffer(one, np.float64) for one in (steps, values, counts)), until=until, after=AFTER)


def _with_turn(alarm: Alarm, turn: GoldTurn) -> Alarm:
    if alarm.name not in DATED:
        return alarm
    at = min(turn.step, alarm.data_step)
    before, today = f"since about step {alarm.onset} ", f"since about step {at} "
    low, high = min(turn.low, at), max(min(turn.high, alarm.data_step), at)
    return replace(alarm, onset=at, onset_low=low, onset_high=high, summary=alarm.summary.replace(before, today))


def _estimate(step: int, part: Stretch, z: float) -> Estimate:
    low, high = part.ends(z)
    return Estimate(step, part.mean, max(low, 0.0), min(high, 1.0), part.n)
