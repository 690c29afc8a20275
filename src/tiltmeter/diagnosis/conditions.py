"""Evaluates the conditions of the rules at each step, and words those that hold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.data.slices import reading_of
from tiltmeter.diagnosis.reading_track import Movement, Track
from tiltmeter.diagnosis.rules import MOVES, Condition, RuleSet

STALE = 20  # steps, or twice the usual distance of a reading, after which its last values are not the run as it is
_FIELD = re.compile(r"\{(\w+)(%?)\}")
#: Readings that cannot be compared across a change of the reward.
_REWARD_DEPENDENT = (
    "reward.",
    "training.reward",
    "gold.",
    "length.slope",
    "length.residual_gain",
    "length.gain_share",
    "acts.gain",
    "acts.paid",
)
#: What the trainer logged of the same quantity: a run that is known by its curves alone has nothing else.
LOGGED = {
    "reward.mean": "training.reward",
    "reward.spread": "training.reward_std",
    "reward.dead_share": "training.dead_group_share",
    "length.mean": "training.length_mean",
    "length.truncated_share": "training.truncated_share",
    "policy.entropy": "training.entropy",
}


@dataclass(frozen=True, slots=True)
class ConditionMatch:
    """A condition that holds: the reading or alarm that shows it, since when, and how that reading has moved."""

    condition: Condition
    about: str
    since: int  # of an alarm its onset
    movement: Movement | None = None

    @property
    def size(self) -> float:
        """How much there is of it: how far the reading has moved, or where it stands."""
        if self.movement is None:
            return 0.0
        return abs(self.movement.change if self.condition.form in MOVES else self.movement.level)

    @property
    def says(self) -> str:
        """The condition's words with the numbers in them; empty for one that has none."""
        condition, movement = self.condition, self.movement
        if movement is None:
            template = condition.says or f"{condition.tier} on {{name}}"
            return _fill_template(template, {"name": self.about, "since": str(self.since)})
        return _fill_template(
            condition.says,
            {
                "name": self.about,
                "since": str(self.since),
                "before": movement.before,
                "now": movement.level if condition.form in ("above", "below") else movement.now,
                "level": movement.level,
                "change": movement.change,
                "ratio": movement.ratio,
                "share": _share_text(movement.level),
                "part": self.about.rpartition(".")[2],
            },
        )


@dataclass
class ConditionTracker:
    """Folds readings; after each step `holds` has the conditions that hold. Keeps only readings that a rule names."""

    rules: RuleSet
    holds: dict[Condition, ConditionMatch] = field(default_factory=dict)
    first_step: int | None = None
    last_gold_step: int | None = None  # step of the newest gold or evaluation
    _tracks: dict[str, Track] = field(default_factory=dict)
    _since: dict[Condition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._conditions = self.rules.conditions
        self._patterns = tuple({condition.reading for condition in self._conditions if condition.reading})
        plain = {name for name in self._patterns if "*" not in name}
        self._plain = frozenset(plain | {LOGGED[name] for name in plain & LOGGED.keys()})
        self._unwatched: set[str] = set()
        self._named: dict[str, tuple[str, ...]] = {}  # by pattern, the readings seen that it names

    def fold(self, step: int, readings: Sequence[Reading], alarms: Sequence[Alarm]) -> None:
        if self.first_step is None:
            self.first_step = step
        for reading in readings:
            self._add(reading)
        before, self.holds = self._since, {}
        self._since = {}
        for condition in self._conditions:
            if condition.alarm:
                self._match_alarm(condition, alarms)
            elif (hit := self._match_reading(condition, step)) is not None:
                since = self._since[condition] = before.get(condition, step)
                if not condition.early or since - self.first_step <= self.rules.settings.early:
                    self.holds[condition] = ConditionMatch(condition, hit[0], since, hit[1])

    def forget_reward(self) -> None:
        """The reward has changed: drop readings that were measured with the old one."""
        for name in [name for name in self._tracks if name.startswith(_REWARD_DEPENDENT)]:
            del self._tracks[name]

    def _add(self, reading: Reading) -> None:
        name = reading.name
        if name.startswith(("gold.", "eval.")) and name != "gold.ma_trend":
            self.last_gold_step = max(
                reading.step, self.last_gold_step if self.last_gold_step is not None else reading.step
            )
        track = self._tracks.get(name)
        if track is None:
            if name in self._unwatched:
                return
            patterns = [one for one in self._patterns if "*" in one and fnmatchcase(name, one)]
            if name not in self._plain and not patterns:
                self._unwatched.add(name)
                return
            settings = self.rules.settings
            is_gold = name.startswith(("gold.", "eval."))
            track = self._tracks[name] = Track(settings.gold_window if is_gold else settings.window)
            for pattern in patterns:
                self._named[pattern] = tuple(sorted({*self._named.get(pattern, ()), name}))
        track.add(reading)

    def _match_alarm(self, condition: Condition, alarms: Sequence[Alarm]) -> None:
        for alarm in alarms:
            if alarm.tier == condition.tier and fnmatchcase(reading_of(alarm.name), condition.alarm):
                self.holds[condition] = ConditionMatch(condition, alarm.name, alarm.onset)
                return

    def _match_reading(self, condition: Condition, step: int) -> tuple[str, Movement] | None:
        names = self._named.get(condition.reading, ()) if "*" in condition.reading else (condition.reading,)
        assert self.first_step is not None
        if step - self.first_step < condition.after:
            return None
        for name in names:
            track = self._tracks.get(name)
            if track is None and name in LOGGED:
                name = LOGGED[name]
                track = self._tracks.get(name)
            if track is None or track.count < condition.least:
                continue
            movement = track.movement()
            if step - movement.last <= max(STALE, 2.0 * movement.gap) and _is_met(condition, movement):
                return name, movement
        return None


def _is_met(condition: Condition, movement: Movement) -> bool:
    match condition.form:
        case "above":
            return movement.level > condition.than and _beyond(movement.level - condition.than, condition, movement)
        case "below":
            return movement.level < condition.than and _beyond(condition.than - movement.level, condition, movement)
        case "rising" | "falling":
            moved = movement.change if condition.form == "rising" else -movement.change
            if not moved > condition.noise * movement.stderr + 1e-9 * abs(movement.before) or moved < condition.by:
                return False
            if not condition.factor:
                return True
            if movement.before == 0.0 and condition.form == "rising":
                return condition.by > 0.0  # from nothing it is any multiple; only a size says whether it is much
            ratio = movement.ratio
            return ratio is not None and (ratio - condition.factor) * (condition.factor - 1.0) >= 0.0
        case _:
            return abs(movement.change) <= condition.noise * movement.stderr < float("inf")


def _beyond(distance: float, condition: Condition, movement: Movement) -> bool:
    return not condition.noise or distance > condition.noise * movement.level_stderr


def _fill_template(template: str, fields: Mapping[str, float | str | None]) -> str:
    for name, percent in _template_fields(template):
        value = fields.get(name)
        if isinstance(value, float):
            value = f"{100.0 * value:.0f} %" if percent else format_number(value)
        template = template.replace(f"{{{name}{percent}}}", "?" if value is None else value)
    return template


def _share_text(share: float) -> str:
    """A share of a gain in words. Where other parts fell, one part's share is above 1: it is all of it.

    >>> _share_text(0.62), _share_text(2.74)
    ('62 %', 'all')
    """
    return f"{100.0 * share:.0f} %" if share < 0.995 else "all"


@lru_cache(maxsize=1024)
def _template_fields(template: str) -> tuple[tuple[str, str], ...]:
    return tuple((match[1], match[2]) for match in _FIELD.finditer(template))


def format_number(value: float) -> str:
    """A number as it stands in a sentence.

    >>> format_number(11.04), format_number(0.0213), format_number(1234.5), format_number(-0.5)
    ('11', '0.021', '1,234', '-0.5')
    """
    if abs(value) >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.2g}" if abs(value) < 10.0 else f"{value:.3g}".removesuffix(".0")
