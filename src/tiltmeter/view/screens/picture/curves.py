"""What the picture of a run shows: two curves, the steps that matter, and words where one is missing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from tiltmeter.data.records import Floats
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.states import State
from tiltmeter.view.payloads.overview import Mark
from tiltmeter.view.payloads.picture import PictureColour
from tiltmeter.view.screens.gold import gold_name, last_good
from tiltmeter.view.screens.history import RunHistory
from tiltmeter.view.screens.proxy_gold import ENOUGH, describe_truth, gold_ends, mean_of_ends, pool_stretches
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader
from tiltmeter.view.screens.wording import format_number

POINTS = 160  # of the reward's curve; above, each point is the mean of a stretch of steps
GOLD_POINTS = 24
ACTIONS = 12  # changes that are marked, the newest
NO_GOLD = "no gold: BLIND"
NOTHING = "no step is measured yet"


@dataclass(frozen=True, slots=True)
class CurvePoints:
    """A curve over steps with what lies around it; NaN interrupts it."""

    steps: Floats
    values: Floats
    low: Floats
    high: Floats
    of: int = 1  # steps behind a point

    def __bool__(self) -> bool:
        return bool(np.isfinite(self.values).any())

    def thin(self, most: int) -> CurvePoints:
        """The same in at most so many points."""
        count = np.ones(len(self.steps), np.int64)
        return stretch_means(ReadingSeries(np.rint(self.steps).astype(np.int64), self.values, count, self.values), most)


@dataclass(frozen=True, slots=True)
class PictureFlag:
    """A step that matters, in a few words; `low` and `high` are its interval."""

    step: int
    text: str
    colour: PictureColour
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class PictureCurves:
    """All that the picture of a run shows, whatever its size."""

    name: str
    state: State
    verdict: str
    sentence: str
    first: int
    last: int
    proxy: CurvePoints
    gold: CurvePoints
    abandoned: tuple[CurvePoints, ...]  # the reward of attempts that were left
    proxy_ends: tuple[float, float]  # at the start and now
    gold_ends: tuple[float, float]
    shaded_from: int | None  # from here on the gap is shaded
    flags: tuple[PictureFlag, ...]
    keep: PictureFlag | None  # the checkpoint to keep, on the curve of gold
    actions: tuple[Mark, ...]  # what was changed, and where the reward became another one
    missing: str  # what is not there, across the picture
    why_missing: str
    notes: tuple[str, ...]


def read_curves(reader: RunReader) -> PictureCurves:
    """The picture's content as of the last refresh."""
    curves = reader.cache_until_event("picture", lambda: _read_curves(reader))
    # A verdict may change with time alone.
    return replace(curves, state=reader.verdict.state, verdict=reader.verdict.sentence)


def _read_curves(reader: RunReader) -> PictureCurves:
    verdict = reader.verdict
    series, source = reader.columns.lineage_series("reward.mean"), gold_name(reader)
    gold_series = reader.columns.lineage_series(source)
    standing = verdict.gold
    proxy, gold = stretch_means(series, POINTS), pool_curve(gold_series, gold_ends(standing))
    both = np.concatenate([series.steps, gold_series.steps])
    first, last = (int(both.min()), int(both.max())) if len(both) else (0, 0)
    flags = _flags(reader)
    shaded_from = verdict.alarms[0].onset if verdict.alarms else None
    peak = None if standing is None or verdict.alarms else standing.best_step
    if peak is not None and verdict.advice is not None and verdict.advice.word == "stop":
        flags, shaded_from = (_flag(peak, "gold was highest", "gold"), *flags), peak
    if verdict.state == "HOLLOW" and shaded_from is None:
        shaded_from = first
    keep = last_good(reader)
    word = "last good" if shaded_from is not None else "best checkpoint"
    return PictureCurves(
        name=reader.name,
        state=verdict.state,
        verdict=verdict.sentence,
        sentence=_sentence(describe_truth(reader, series, source, gold_series), flags),
        first=first,
        last=last,
        proxy=proxy,
        gold=gold,
        abandoned=_abandoned(reader),
        proxy_ends=mean_of_ends(series),
        gold_ends=gold_ends(standing),
        shaded_from=shaded_from,
        flags=flags,
        keep=None if keep is None else _flag(keep.step, word, "ok", f", gold {format_number(round(keep.gold, 2))}"),
        actions=_actions(reader),
        missing=NO_GOLD if not source and len(both) else NOTHING if not len(both) else "",
        why_missing="nothing here says whether these answers are any good" if not source and len(both) else "",
        notes=(
            *(["last good: no checkpoint to go back to"] if keep is None and shaded_from is not None else []),
            *_notes(series, proxy),
        ),
    )


def caption(curves: PictureCurves) -> list[str]:
    """What the picture says in words: both numbers, and the steps that matter."""
    ends = [
        f"{what} {format_number(round(start, 2))} → {format_number(round(now, 2))}"
        for what, points, (start, now) in (
            ("reward", curves.proxy, curves.proxy_ends),
            ("gold", curves.gold, curves.gold_ends),
        )
        if points
    ]
    flags = [flag.text for flag in (*curves.flags, curves.keep) if flag is not None]
    missing = [": ".join(filter(None, (curves.missing, curves.why_missing)))] if curves.missing else []
    changes = [f"step {mark.step}: {mark.text}" for mark in curves.actions[-2:]]
    lines = ("; ".join([*missing, *ends]), "; ".join([*flags, *curves.notes, *changes]))
    return [log_line(line) for line in lines if line]


def stretch_means(series: ReadingSeries, points: int) -> CurvePoints:
    """A series as at most so many means over equal stretches of steps, with the lowest and the highest value of each.

    >>> ones = np.ones(4)
    >>> steps = ReadingSeries(np.arange(4), np.array([1.0, 3.0, np.nan, 5.0]), ones.astype(int), ones)
    >>> stretch_means(steps, 2).values.tolist(), stretch_means(steps, 2).high.tolist()
    ([2.0, 5.0], [3.0, 5.0])
    """
    steps, values = series.steps.astype(np.float64), np.where(np.isfinite(series.values), series.values, np.nan)
    if len(steps) <= points:
        return CurvePoints(steps, values, values, values)
    each = ceil(len(steps) / points)
    starts = np.arange(0, len(steps), each)
    count = np.add.reduceat(np.isfinite(values).astype(np.float64), starts)
    sizes = np.diff([*starts, len(steps)])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.add.reduceat(np.nan_to_num(values), starts) / np.where(count > 0, count, np.nan)
    low = np.minimum.reduceat(np.where(np.isfinite(values), values, np.inf), starts)
    high = np.maximum.reduceat(np.where(np.isfinite(values), values, -np.inf), starts)
    empty = count == 0
    low[empty], high[empty] = np.nan, np.nan
    return CurvePoints(np.add.reduceat(steps, starts) / sizes, mean, low, high, each)


def pool_curve(gold: ReadingSeries, ends: tuple[float, float]) -> CurvePoints:
    """Gold over stretches of enough labels; it begins and ends at what gold was at first and is now."""
    nothing = np.empty(0)
    if not np.isfinite(gold.values).any():
        return CurvePoints(nothing, nothing, nothing, nothing)
    labels = int(np.maximum(gold.n, 1).sum())
    no_distance = ReadingSeries(np.empty(0, np.int64), nothing, np.empty(0, np.int64), nothing)
    pooled = pool_stretches(gold, no_distance, max(ENOUGH, ceil(labels / GOLD_POINTS)))
    middle, low, high = (np.array(row, np.float64) for row in (pooled.gold, pooled.low, pooled.high))
    with_gold = gold.steps[np.isfinite(gold.values)]
    steps = np.array([with_gold[0], *pooled.steps, with_gold[-1]], np.float64)
    begin, end = (middle[at] if np.isnan(ends[at]) else ends[at] for at in (0, -1))
    values = np.array([begin, *middle, end])
    return CurvePoints(
        steps,
        values,
        np.concatenate([begin + (low - middle)[:1], low, end + (low - middle)[-1:]]),
        np.concatenate([begin + (high - middle)[:1], high, end + (high - middle)[-1:]]),
    )


def _flag(
    step: int, word: str, colour: PictureColour, more: str = "", low: int | None = None, high: int | None = None
) -> PictureFlag:
    return PictureFlag(
        step, f"{word}: step {step}{more}", colour, step if low is None else low, step if high is None else high
    )


def _flags(reader: RunReader) -> tuple[PictureFlag, ...]:
    verdict = reader.verdict
    if verdict.alarms:
        alarm = verdict.alarms[0]
        low, high = alarm.onset_low, alarm.onset_high
        between = f" ({low} to {high})" if high > low else ""
        others = f" and {len(verdict.alarms) - 1} more" if len(verdict.alarms) > 1 else ""
        return (_flag(alarm.onset, "turned", "act", between, low, high), _flag(alarm.step, "alarm", "act", others))
    if verdict.warnings and verdict.state == "WATCH":
        return (_flag(verdict.warnings[0].step, "warning", "watch"),)
    return ()


def _abandoned(reader: RunReader) -> tuple[CurvePoints, ...]:
    current = reader.run_facts.attempt
    branches = (
        reader.columns.branch_series(attempt, "reward.mean")
        for attempt in reader.run_facts.attempts
        if attempt != current
    )
    return tuple(stretch_means(branch, POINTS // 4) for branch in branches if len(branch.steps))


def _actions(reader: RunReader) -> tuple[Mark, ...]:
    marks = [mark for mark in reader.get_fold("history", RunHistory).marks if mark.kind in ("did", "stop", "segment")]
    return tuple(marks[-ACTIONS:])


def _notes(series: ReadingSeries, proxy: CurvePoints) -> list[str]:
    notes = []
    if proxy.of > 1:
        notes.append(f"{len(series.steps):,} steps: points are means of {proxy.of}, pale: lowest to highest")
    if missing := int((~np.isfinite(series.values)).sum()):
        notes.append(f"no finite reward at {missing:,} {'step' if missing == 1 else 'steps'}")
    return notes


def _sentence(truth: str, flags: tuple[PictureFlag, ...]) -> str:
    return " ".join([truth, *(f"{flag.text[:1].upper()}{flag.text[1:]}." for flag in flags)])
