"""Select the instruments, derived readings, detectors and gold source that monitor a run.

Built-ins are listed in explicit tuples; plug-ins are named by the user as `my_file.py:MyInstrument`. A run directory
only *records* such names and they are never imported from it: a directory from somebody else must not run code here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tiltmeter import detectors, instruments
from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.detectors.derived_readings import DERIVED, Derived
from tiltmeter.errors import AttachError
from tiltmeter.gold import GoldSource, RecordedSource
from tiltmeter.gold.corrected_judge import CorrectedJudge
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.function_process import FunctionProcess
from tiltmeter.gold.judge import JudgeSource
from tiltmeter.gold.label_cost import GRADED_A_STEP, needed_share
from tiltmeter.gold.label_files import PEOPLE
from tiltmeter.gold.people import PeopleSource
from tiltmeter.gold.rater_groups import read_groups
from tiltmeter.gold.regrade.settings import SUFFIX, Regrade
from tiltmeter.gold.regrade.source import load_regrade
from tiltmeter.gold.task_checks import TaskChecks, names_task_checks
from tiltmeter.instruments import Instrument
from tiltmeter.models.judge import MOST_RATERS, read_judge
from tiltmeter.safety.loading import load_function, load_named

#: `gold="reward:NAME"`: a reward that is measured on every row and not paid, which the adapter hands over as gold.
REWARD_AS_GOLD = "reward:"
#: Increased whenever the loop would write different events for the same rollouts; part of every event's id.
EVENTS_VERSION = 5


@dataclass(frozen=True)
class Config:
    """The parts that monitor a run. Derived readings and detectors are factories, because a rewind needs fresh ones."""

    instruments: tuple[Instrument, ...]
    derived: tuple[Callable[[], Derived], ...]
    detectors: tuple[Callable[[], detectors.Detector], ...]
    plugins: tuple[str, ...] = ()
    gold: GoldSource | None = None  # source of labels; None: the trainer passes gold, or there is none
    gold_share: float | None = None  # of rollouts to label; None: by what a label costs
    gold_steps: int | None = None  # planned optimiser steps, if known
    gold_instruments: tuple[Instrument, ...] = ()  # for steps of which the source has labelled all

    @classmethod
    def standard(
        cls,
        plugins: Iterable[str] = (),
        *,
        gold: str | None = None,
        gold_share: float | None = None,
        gold_steps: int | None = None,
    ) -> Config:
        """The built-ins, the named classes of the operator's own files, and the function or judge named as gold.

        >>> Config.standard().digest == Config.standard().digest
        True
        """
        names = tuple(plugins)
        extra = [load_part(name) for name in names]
        config = cls(
            tuple(cls_() for cls_ in instruments.BUILTIN) + tuple(part() for part in extra if hasattr(part, "measure")),
            DERIVED + tuple(part for part in extra if hasattr(part, "fold")),
            detectors.BUILTIN + tuple(part for part in extra if hasattr(part, "update")),
            names,
        )
        if gold is None:
            return config
        return config.with_gold(load_gold(gold), gold_share, gold_steps)

    def with_gold(self, source: GoldSource, share: float | None = None, steps: int | None = None) -> Config:
        """The same parts with this gold source.

        Its labels replace gold that the trainer passes: an alarm must not mix two kinds of bets under one name. Where
        only some rollouts are labelled, other readings of the trainer's gold stay.
        """
        if share is not None and not 0.0 < share <= 1.0:
            raise AttachError(f"the share of rollouts to label is {share}: choose one above 0 and at most 1, as 0.02")
        if steps is not None and steps < 1:
            raise AttachError(f"{steps} planned steps: leave it out where the length of the run is not known")
        about_gold = tuple(part for part in self.instruments if "gold" in part.needs)
        bets = tuple(part for part in about_gold if getattr(part, "audited", False))
        replaced = about_gold if share is None or share >= 1.0 else bets
        parts = tuple(part for part in self.instruments if part not in replaced)
        return replace(
            self, instruments=parts, gold=source, gold_share=share, gold_steps=steps, gold_instruments=replaced
        )

    def with_recorded_gold(self, gold: Mapping[str, Any] | None) -> Config:
        """The same parts with the gold source that a journal recorded, if any."""
        if gold is None:
            return self
        source = RecordedSource(gold["name"], gold["identity"], judged=gold.get("judged", False))
        return self.with_gold(source, gold["share"], gold["steps"])

    @property
    def digest(self) -> str:
        """A hash of the instruments, detectors and gold settings; part of every event's id."""
        parts = [f"events {EVENTS_VERSION}"] + [f"{part.name}/{part.grain}/{part.needs}" for part in self.instruments]
        parts += [repr(make()) for make in (*self.derived, *self.detectors)]
        parts += (
            [f"gold {self.gold.name}/{self.gold.identity}/{self.gold_share!r}/{self.gold_steps!r}"]
            if self.gold is not None
            else []
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def load_part(name: str) -> Any:
    """The class that `path/to/file.py:ClassName` names."""
    part = load_named(name, "a class", "ClassName")
    if not any(hasattr(part, verb) for verb in ("measure", "fold", "update")):
        raise AttachError(f"{name!r} has none of measure (instrument), fold (derived reading), update (detector)")
    return part


def names_people(name: str) -> bool:
    """Whether a gold source's name means people at the labelling screen: `people`, or `people:3` for three raters.

    >>> names_people("people:3"), names_people("people.py:score")
    (True, False)
    """
    return name.partition(":")[0] == PEOPLE


def default_share(name: object, rows: int) -> float | None:
    """The share of so many rollouts a step that a gold source is asked about where nothing is said; None: none, or by
    cost.

    >>> default_share("judge.toml", 64), default_share("checks.py:score", 64)
    (0.094, None)
    """
    if isinstance(name, Regrade) or (isinstance(name, str) and name.endswith(SUFFIX)):
        return needed_share(rows, GRADED_A_STEP)
    named = isinstance(name, str) and (name.endswith(".toml") or names_people(name))
    return needed_share(rows) if named else None


def load_gold(name: object) -> GoldSource:
    """The gold source for a name: a function, `checks.py:score`; a judge, `judge.toml`; `people`; or what the dataset
    holds: `tests`, `answers`, `auto`; or settings of `Regrade`."""
    if isinstance(name, str) and names_people(name):
        _, raters, groups = [*name.split(":", 2), "", ""][:3]
        raters = raters or "1"
        if not raters.isdecimal() or not 1 <= int(raters) <= MOST_RATERS or name.endswith(":"):
            raise AttachError(
                f'gold={name!r}: write gold="people", "people:3" if three raters answer each pair, or '
                '"people:3:groups.json" if that file says which raters belong together'
            )
        return PeopleSource(int(raters), groups=read_groups(groups) if groups else {})
    if isinstance(name, str) and name.endswith(".toml"):
        judge = read_judge(name)
        return CorrectedJudge(name, judge) if judge.people_share else JudgeSource(name, judge)
    if isinstance(name, str) and name.endswith(SUFFIX):
        return load_regrade(name)
    if isinstance(name, str) and names_task_checks(name):
        return TaskChecks(name)
    if not isinstance(name, str) or not re.search(r"\.py:[^:]+$", name):
        raise AttachError(
            f'gold={name!r} names no source: pass a function, or gold="checks.py:score" for the one in checks.py, '
            'gold="judge.toml" for a judge that this file describes, gold="people" for people at the labelling screen, '
            'or gold="tests" or "answers" for what the dataset holds'
        )
    return FunctionProcess(name, load_function(name))


def reject_reward_as_gold(source: GoldSource | None, rewards: Iterable[Callable[..., Any]]) -> None:
    """Raise if gold is one of the reward functions: Cov(reward, reward) is never negative, so no alarm could ever fire.

    Detected only if both are functions with the same code, under any name, or the same check of ours.
    """
    if not isinstance(source, FunctionSource):
        return
    if isinstance(source, TaskChecks):
        if (paid := source.paid_by(rewards)) is not None:
            raise AttachError(
                f"gold={source.spec!r} is what rewards.{paid} pays by: an alarm about it could never fire. For code, "
                "rewards.code(keep_back=0.3) keeps tests back, and attach() finds them"
            )
        return
    for reward in rewards:
        same_code = _code(reward) is not None and _code(reward) == _code(source.function)
        if same_code or fingerprint([reward]) == fingerprint([source.function]):
            raise AttachError(
                f"gold is the reward function {getattr(reward, '__name__', reward)!r} itself: an alarm about it could "
                "never fire. Name something the policy is not trained on: hidden tests, a stricter check, a judge."
            )


def _code(function: Any) -> object:
    """A function's bytecode and constants, without its name; None if Python does not expose them."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    code = getattr(function, "__code__", None)
    return None if code is None else (code.co_code, code.co_consts, code.co_names, code.co_freevars)
