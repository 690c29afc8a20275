"""Whether the conditions of a set of rules hold now, and in what words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache

from tiltmeter.diagnosis.memory import Course, Track
from tiltmeter.diagnosis.rules import MOVES, Condition, Rules
from tiltmeter.records import Alarm, Reading

STALE = 20  # steps, or twice the usual distance of a reading, after which its last values are not the run as it is
_FIELD = re.compile(r"\{(\w+)(%?)\}")
#: Readings whose values mean another thing once another reward pays.
_REWARDED = ("reward.", "gold.", "length.slope", "length.residual_gain", "length.gain_share")


@dataclass(frozen=True, slots=True)
class Holding:
    """A condition that holds: the reading or alarm that shows it, since when, and how that reading has moved."""

    condition: Condition
    about: str
    since: int  # of an alarm its onset
    course: Course | None = None

    @property
    def size(self) -> float:
        """How much there is of it: how far the reading has moved, or where it stands."""
        if self.course is None:
            return 0.0
        return abs(self.course.change if self.condition.form in MOVES else self.course.level)

    @property
    def says(self) -> str:
        """The condition's words with the numbers in them; empty for one that has none."""
        condition, course = self.condition, self.course
        if course is None:
            told = condition.says or f"{condition.tier} on {{name}} since about step {{since}}"
            return _filled(told, {"name": self.about, "since": str(self.since)})
        return _filled(
            condition.says,
            {
                "name": self.about,
                "since": str(self.since),
                "before": course.before,
                "now": course.level if condition.form in ("above", "below") else course.now,
                "level": course.level,
                "change": course.change,
                "ratio": course.ratio,
            },
        )


@dataclass
class Evidence:
    """Folds readings; after each step `holds` has what is true of it. Only readings that a rule names are kept."""

    rules: Rules
    holds: dict[Condition, Holding] = field(default_factory=dict)
    began: int | None = None
    golden: int | None = None  # step of the newest gold or evaluation
    _tracks: dict[str, Track] = field(default_factory=dict)
    _since: dict[Condition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._conditions = self.rules.conditions
        self._patterns = tuple({condition.reading for condition in self._conditions if condition.reading})
        self._plain = frozenset(name for name in self._patterns if "*" not in name)
        self._unwatched: set[str] = set()
        self._named: dict[str, tuple[str, ...]] = {}  # by pattern, the readings seen that it names

    def fold(self, step: int, readings: Sequence[Reading], alarms: Sequence[Alarm]) -> None:
        if self.began is None:
            self.began = step
        for reading in readings:
            self._add(reading)
        before, self.holds = self._since, {}
        self._since = {}
        for condition in self._conditions:
            if condition.alarm:
                self._alarmed(condition, alarms)
            elif (found := self._read(condition, step)) is not None:
                since = self._since[condition] = before.get(condition, step)
                if not condition.early or since - self.began <= self.rules.settings.early:
                    self.holds[condition] = Holding(condition, found[0], since, found[1])

    def forget_reward(self) -> None:
        """Another reward pays from now on: what was measured with the one before has no beginning to compare with."""
        for name in [name for name in self._tracks if name.startswith(_REWARDED)]:
            del self._tracks[name]

    def _add(self, reading: Reading) -> None:
        name = reading.name
        if name.startswith(("gold.", "eval.")) and name != "gold.ma_trend":
            self.golden = max(reading.step, self.golden if self.golden is not None else reading.step)
        track = self._tracks.get(name)
        if track is None:
            if name in self._unwatched:
                return
            patterns = [one for one in self._patterns if "*" in one and fnmatchcase(name, one)]
            if name not in self._plain and not patterns:
                self._unwatched.add(name)
                return
            settings = self.rules.settings
            golden = name.startswith(("gold.", "eval."))
            track = self._tracks[name] = Track(settings.gold_window if golden else settings.window)
            for pattern in patterns:
                self._named[pattern] = tuple(sorted({*self._named.get(pattern, ()), name}))
        track.add(reading)

    def _alarmed(self, condition: Condition, alarms: Sequence[Alarm]) -> None:
        for alarm in alarms:
            if alarm.tier == condition.tier and fnmatchcase(alarm.name, condition.alarm):
                self.holds[condition] = Holding(condition, alarm.name, alarm.onset)
                return

    def _read(self, condition: Condition, step: int) -> tuple[str, Course] | None:
        names = self._named.get(condition.reading, ()) if "*" in condition.reading else (condition.reading,)
        assert self.began is not None
        if step - self.began < condition.after:
            return None
        for name in names:
            track = self._tracks.get(name)
            if track is None or track.count < condition.least:
                continue
            course = track.course()
            if step - course.last <= max(STALE, 2.0 * course.gap) and _true(condition, course):
                return name, course
        return None


def _true(condition: Condition, course: Course) -> bool:
    match condition.form:
        case "above":
            return course.level > condition.than and _beyond(course.level - condition.than, condition, course)
        case "below":
            return course.level < condition.than and _beyond(condition.than - course.level, condition, course)
        case "rising" | "falling":
            moved = course.change if condition.form == "rising" else -course.change
            if not moved > condition.noise * course.stderr + 1e-9 * abs(course.before) or moved < condition.by:
                return False
            if not condition.factor:
                return True
            ratio = course.ratio
            return ratio is not None and (ratio - condition.factor) * (condition.factor - 1.0) >= 0.0
        case _:
            return abs(course.change) <= condition.noise * course.stderr < float("inf")


def _beyond(distance: float, condition: Condition, course: Course) -> bool:
    return not condition.noise or distance > condition.noise * course.level_stderr


def _filled(template: str, fields: Mapping[str, float | str | None]) -> str:
    for name, percent in _parts(template):
        value = fields.get(name)
        if isinstance(value, float):
            value = f"{100.0 * value:.0f} %" if percent else figure(value)
        template = template.replace(f"{{{name}{percent}}}", "?" if value is None else value)
    return template


@lru_cache(maxsize=1024)
def _parts(template: str) -> tuple[tuple[str, str], ...]:
    return tuple((match[1], match[2]) for match in _FIELD.finditer(template))


def figure(value: float) -> str:
    """A number as it stands in a sentence.

    >>> figure(11.04), figure(0.0213), figure(1234.5), figure(-0.5)
    ('11', '0.021', '1,234', '-0.5')
    """
    if abs(value) >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 10.0 else f"{value:.3g}".removesuffix(".0")
