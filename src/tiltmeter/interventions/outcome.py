"""What became of the run after a change: the steps before it held against the steps after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import hypot
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.records import Action, Reading

Verdict = Literal["better", "worse", "no clear change"]
Points = Sequence[tuple[int, float]]  # (step, value)

GOLD = ("gold.mean", "gold.level")  # the first that is there on both sides
SLOPE = "gold.slope"
SHOWN = {SLOPE: "slope", "reward.mean": "reward", "policy.kl.k3": "kl"}
WATCHED = (*GOLD, *SHOWN)
FEWEST = 5  # readings on a side, below which nothing is said of it
CLEAR = 3.0  # standard errors; those of steps that follow each other are too small, hence not 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether gold did better after an action, in a word, with the numbers.

    It says what followed, not what caused it: a run learns and decays on its own. Without gold nobody can say whether a
    change did good, and the word is "no clear change".
    """

    action: str  # its id
    attempt: int
    step: int
    verdict: Verdict
    sentence: str
    numbers: Mapping[str, float] = field(default_factory=dict)  # gold_before, gold_after, slope_before, ...


class History:
    """The readings that outcomes are judged by, of the last steps, by (attempt, step): some come late."""

    def __init__(self, kept: int = 2000) -> None:
        self._kept = kept
        self._values: dict[str, dict[tuple[int, int], float]] = {name: {} for name in WATCHED}
        self._gold: dict[int, int] = {}  # newest step with gold, by attempt

    def take_in(self, reading: Reading) -> bool:
        """Remember a reading; False if nobody asks for it, or it was known."""
        values, key = self._values.get(reading.name), (reading.attempt, reading.step)
        if values is None or key in values:
            return False
        values[key] = reading.value
        if len(values) > self._kept:
            del values[next(iter(values))]
        if reading.name.startswith("gold."):
            self._gold[reading.attempt] = max(reading.step, self._gold.get(reading.attempt, reading.step))
        return True

    def window(self, attempt: int, first: int, last: int) -> dict[str, Points]:
        """By name, the readings of these steps, in order of steps; absent where there are none.

        >>> history = History()
        >>> for step in (3, 1, 2): _ = history.take_in(Reading(0, step, "gold.mean", step / 10, 8))
        >>> history.window(0, 2, 9)
        {'gold.mean': [(2, 0.2), (3, 0.3)]}
        """
        found = {
            name: [(step, values[attempt, step]) for step in range(first, last + 1) if (attempt, step) in values]
            for name, values in self._values.items()
        }
        return {name: points for name, points in found.items() if points}

    def waits_for_gold(self, attempt: int, step: int) -> bool:
        """Whether gold comes in this run, and that of this step has not come yet."""
        return bool(self._gold) and self._gold.get(attempt, -1) < step

    def falls(self, attempt: int, step: int, length: int) -> bool:
        """Whether gold clearly falls, or is clearly pushed down, in the last steps."""
        points = self.window(attempt, step - length + 1, step)
        lines = [line(points[name]) for name in GOLD if _enough(points.get(name, ()))]
        if any(_sign(fit.rise, fit.rise_error) < 0 for fit in lines):
            return True
        pushes = np.array([value for _, value in points.get(SLOPE, ())])
        return len(pushes) >= FEWEST and _sign(float(pushes.mean()), _error(pushes)) < 0


class Line(NamedTuple):
    """A line through readings: its level at the last step and its rise per step, each with a standard error."""

    level: float
    level_error: float
    rise: float
    rise_error: float


def line(points: Points) -> Line:
    """The least-squares line; its level is taken at the last step.

    >>> line([(0, 1.0), (1, 2.0), (2, 3.0)])
    Line(level=3.0, level_error=0.0, rise=1.0, rise_error=0.0)
    """
    steps, values = np.array([s for s, _ in points], np.float64), np.array([v for _, v in points], np.float64)
    x = steps - steps.mean()
    spread = float(x @ x)
    rise = float(x @ values) / spread
    residual = values - values.mean() - rise * x
    noise = float(residual @ residual) / max(len(values) - 2, 1)
    end = float(x[-1])
    level_error = (noise * (1.0 / len(values) + end * end / spread)) ** 0.5
    return Line(float(values.mean()) + rise * end, level_error, rise, (noise / spread) ** 0.5)


def verdict(before: Mapping[str, Points], after: Mapping[str, Points]) -> tuple[Verdict, dict[str, float]]:
    """The word and the numbers, from readings by name.

    Gold at the end of each side is compared, and its trend, since a fall that was halted leaves gold lower than the
    average of the steps before. The trend counts where gold fell before (a halted fall is good) or falls now. The two
    must not contradict each other. If neither is clear, the slope of gold decides, which moves first.

    >>> fell, stands = [(t, 0.8 - 0.01 * t) for t in range(20)], [(t, 0.61) for t in range(20, 40)]
    >>> verdict({"gold.mean": fell}, {"gold.mean": stands})[0]
    'better'
    """
    numbers: dict[str, float] = {}
    for name, label in SHOWN.items():
        for side, points in (("before", before.get(name, ())), ("after", after.get(name, ()))):
            if points:
                numbers[f"{label}_{side}"] = float(np.mean([value for _, value in points]))
    gold = next((name for name in GOLD if _enough(before.get(name, ())) and _enough(after.get(name, ()))), None)
    word = 0
    if gold is not None:
        then, now = line(before[gold]), line(after[gold])
        numbers |= {"gold_before": then.level, "gold_after": now.level}
        numbers |= {"gold_rise_before": then.rise, "gold_rise_after": now.rise}
        level = _sign(now.level - then.level, hypot(now.level_error, then.level_error))
        trend = _sign(now.rise - then.rise, hypot(now.rise_error, then.rise_error))
        falling = then if trend > 0 else now
        word = level + (trend if _sign(falling.rise, falling.rise_error) < 0 else 0)
        if level or word:
            return _word(word), numbers
    if _enough(before.get(SLOPE, ())) and _enough(after.get(SLOPE, ())):
        a, b = (np.array([value for _, value in points[SLOPE]]) for points in (before, after))
        word = _sign(float(b.mean() - a.mean()), hypot(_error(a), _error(b)))
    return _word(word), numbers


def outcome(
    action: Action, attempt: int, step: int, before: Mapping[str, Points], after: Mapping[str, Points], aside: str = ""
) -> Outcome:
    """The verdict on one action, in a sentence."""
    word, numbers = verdict(before, after)
    pairs = [
        f"{label} {numbers[f'{key}_before']:.3g} -> {numbers[f'{key}_after']:.3g}"
        for key, label in (("gold", "gold"), ("slope", "slope of gold"), ("reward", "reward"), ("kl", "KL"))
        if f"{key}_before" in numbers and f"{key}_after" in numbers
    ]
    blind = "" if "gold_after" in numbers or "slope_after" in numbers else "; without gold nobody can say more"
    told = f"after {action.knob} {action.before:g} -> {action.after:g}: {word} ({', '.join(pairs) or 'no readings'})"
    return Outcome(action.id, attempt, step, word, f"{told}{blind}{aside}", numbers)


def _enough(points: Points) -> bool:
    return len(points) >= FEWEST


def _error(values: NDArray[np.float64]) -> float:
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def _sign(change: float, error: float) -> int:
    if abs(change) <= max(CLEAR * error, 1e-9):
        return 0
    return 1 if change > 0 else -1


def _word(sign: int) -> Verdict:
    return "better" if sign > 0 else "worse" if sign < 0 else "no clear change"
