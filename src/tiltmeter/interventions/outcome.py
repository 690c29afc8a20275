"""Judges the outcome of an action: compares the steps before a change with the steps after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.records import Action, Reading

OutcomeVerdict = Literal["better", "worse", "no clear change"]
Points = Sequence[tuple[int, float]]  # (step, value)

GOLD = ("gold.mean", "gold.answers", "gold.level")  # the first that is there on both sides
SLOPE = "gold.slope"
SHORT_NAMES = {SLOPE: "slope", "reward.mean": "reward", "policy.kl.k3": "kl"}
WATCHED = (*GOLD, *SHORT_NAMES)
FEWEST = 5  # readings on a side, below which nothing is said of it
CLEAR = 3.0  # standard errors; those of steps that follow each other are too small, hence not 2


@dataclass(frozen=True, slots=True)
class ActionOutcome:
    """Whether gold did better after an action, in a word, with the numbers.

    It says what followed, not what caused it: a run learns and decays on its own. Without gold nobody can say whether a
    change did good, and the word is "no clear change".
    """

    action: str  # its id
    attempt: int
    step: int
    verdict: OutcomeVerdict
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)  # gold_before, gold_after, slope_before, ...


class ReadingHistory:
    """The readings that outcomes are judged by, of the last steps, by (attempt, step): some come late."""

    def __init__(self, limit: int = 2000) -> None:
        self._limit = limit
        self._values: dict[str, dict[tuple[int, int], float]] = {name: {} for name in WATCHED}
        self._gold: dict[int, int] = {}  # newest step with gold, by attempt

    def add(self, reading: Reading) -> bool:
        """Store a reading; False if outcomes do not use it, or it was stored before."""
        values, key = self._values.get(reading.name), (reading.attempt, reading.step)
        if values is None or key in values:
            return False
        values[key] = reading.value
        if len(values) > self._limit:
            del values[next(iter(values))]
        if reading.name.startswith("gold."):
            self._gold[reading.attempt] = max(reading.step, self._gold.get(reading.attempt, reading.step))
        return True

    def window(self, attempt: int, first: int, last: int) -> dict[str, Points]:
        """By name, the readings of these steps, in order of steps; absent where there are none.

        >>> history = ReadingHistory()
        >>> for step in (3, 1, 2): _ = history.add(Reading(0, step, "gold.mean", step / 10, 8))
        >>> history.window(0, 2, 9)
        {'gold.mean': [(2, 0.2), (3, 0.3)]}
        """
        windows = {
            name: [(step, values[attempt, step]) for step in range(first, last + 1) if (attempt, step) in values]
            for name, values in self._values.items()
        }
        return {name: points for name, points in windows.items() if points}

    def waits_for_gold(self, attempt: int, step: int) -> bool:
        """Whether gold comes in this run, and that of this step has not come yet."""
        return bool(self._gold) and self._gold.get(attempt, -1) < step

    def is_gold_falling(self, attempt: int, step: int, length: int) -> bool:
        """Whether gold clearly falls, or its slope is clearly negative, in the last steps."""
        points = self.window(attempt, step - length + 1, step)
        lines = [fit_line(points[name]) for name in GOLD if _is_enough(points.get(name, ()))]
        if any(_sign(fit.rise, fit.rise_error) < 0 for fit in lines):
            return True
        slopes = np.array([value for _, value in points.get(SLOPE, ())])
        return len(slopes) >= FEWEST and _sign(float(slopes.mean()), _standard_error(slopes)) < 0


class TrendLine(NamedTuple):
    """A line through readings: its level at the last step and its rise per step, each with a standard error."""

    level: float
    level_error: float
    rise: float
    rise_error: float


def fit_line(points: Points) -> TrendLine:
    """The least-squares line; its level is taken at the last step.

    >>> tuple(fit_line([(0, 1.0), (1, 2.0), (2, 3.0)]))
    (3.0, 0.0, 1.0, 0.0)
    """
    steps, values = np.array([s for s, _ in points], np.float64), np.array([v for _, v in points], np.float64)
    x = steps - steps.mean()
    spread = float(x @ x)
    rise = float(x @ values) / spread
    residual = values - values.mean() - rise * x
    noise = float(residual @ residual) / max(len(values) - 2, 1)
    end = float(x[-1])
    level_error = (noise * (1.0 / len(values) + end * end / spread)) ** 0.5
    return TrendLine(float(values.mean()) + rise * end, level_error, rise, (noise / spread) ** 0.5)


def verdict(before: Mapping[str, Points], after: Mapping[str, Points]) -> tuple[OutcomeVerdict, dict[str, float]]:
    """The word and the numbers, from readings by name.

    Gold at the end of each side is compared, and its trend, since a fall that was halted leaves gold lower than the
    average of the steps before. The trend counts where gold fell before (a halted fall is good) or falls now. The two
    must not contradict each other. If neither is clear, the slope of gold decides, which moves first.

    >>> fell, stands = [(t, 0.8 - 0.01 * t) for t in range(20)], [(t, 0.61) for t in range(20, 40)]
    >>> verdict({"gold.mean": fell}, {"gold.mean": stands})[0]
    'better'
    """
    numbers: dict[str, float] = {}
    for name, label in SHORT_NAMES.items():
        for side, points in (("before", before.get(name, ())), ("after", after.get(name, ()))):
            if points:
                numbers[f"{label}_{side}"] = float(np.mean([value for _, value in points]))
    gold = next((name for name in GOLD if _is_enough(before.get(name, ())) and _is_enough(after.get(name, ()))), None)
    word = 0
    if gold is not None:
        then, now = fit_line(before[gold]), fit_line(after[gold])
        numbers |= {"gold_before": then.level, "gold_after": now.level}
        numbers |= {"gold_rise_before": then.rise, "gold_rise_after": now.rise}
        level = _sign(now.level - then.level, hypot(now.level_error, then.level_error))
        trend = _sign(now.rise - then.rise, hypot(now.rise_error, then.rise_error))
        falling = then if trend > 0 else now
        word = level + (trend if _sign(falling.rise, falling.rise_error) < 0 else 0)
        if level or word:
            return _verdict_word(word), numbers
    if _is_enough(before.get(SLOPE, ())) and _is_enough(after.get(SLOPE, ())):
        a, b = (np.array([value for _, value in points[SLOPE]]) for points in (before, after))
        word = _sign(float(b.mean() - a.mean()), hypot(_standard_error(a), _standard_error(b)))
    return _verdict_word(word), numbers


def outcome(
    action: Action, attempt: int, step: int, before: Mapping[str, Points], after: Mapping[str, Points], remark: str = ""
) -> ActionOutcome:
    """The verdict on one action, in a sentence."""
    word, numbers = verdict(before, after)
    pairs = [
        f"{label} {numbers[f'{key}_before']:.3g} -> {numbers[f'{key}_after']:.3g}"
        for key, label in (("gold", "gold"), ("slope", "slope of gold"), ("reward", "reward"), ("kl", "KL"))
        if f"{key}_before" in numbers and f"{key}_after" in numbers
    ]
    caveat = "" if "gold_after" in numbers or "slope_after" in numbers else "; without gold nobody can say more"
    sentence = (
        f"after {action.knob} {action.before:g} -> {action.after:g}: {word} ({', '.join(pairs) or 'no readings'})"
    )
    return ActionOutcome(action.id, attempt, step, word, f"{sentence}{caveat}{remark}", numbers)


def _is_enough(points: Points) -> bool:
    return len(points) >= FEWEST


def _standard_error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _sign(change: float, error: float) -> int:
    if abs(change) <= max(CLEAR * error, 1e-9):
        return 0
    return 1 if change > 0 else -1


def _verdict_word(sign: int) -> OutcomeVerdict:
    return "better" if sign > 0 else "worse" if sign < 0 else "no clear change"
