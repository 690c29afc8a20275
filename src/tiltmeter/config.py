"""Names become objects: which instruments, derived readings and detectors watch a run.

Built-ins stand in explicit tuples; anything else is named `my_file.py:MyInstrument` by the operator. A run directory
only *records* such names. They are never imported because a file says so: a directory made by somebody else must not
run code here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tiltmeter import derived, detectors, instruments
from tiltmeter.errors import AttachError
from tiltmeter.fingerprint import fingerprint
from tiltmeter.gold import GoldSource, RecordedSource
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.judge import JudgeSource
from tiltmeter.gold.people import MOST_RATERS, PEOPLE, PeopleSource
from tiltmeter.judge import read_judge
from tiltmeter.loading import load_function, named

#: Raised whenever the loop would write other events for the same rollouts; part of every event's id.
EVENTS = 4
GOLD_SHARE = 0.02  # of rollouts that are labelled, if nothing else is said


@dataclass(frozen=True)
class Config:
    """The parts of one watch. Folds are given as what makes a fresh one, because a rewind needs one."""

    instruments: tuple[instruments.Instrument, ...]
    derived: tuple[Callable[[], derived.Derived], ...]
    detectors: tuple[Callable[[], detectors.Detector], ...]
    plugins: tuple[str, ...] = ()
    gold: GoldSource | None = None  # who is asked for labels; None: the trainer brings gold, or there is none
    gold_share: float = GOLD_SHARE
    gold_steps: int | None = None  # optimiser steps that are planned, if that is known

    @classmethod
    def standard(
        cls,
        plugins: Iterable[str] = (),
        *,
        gold: str | None = None,
        gold_share: float = GOLD_SHARE,
        gold_steps: int | None = None,
    ) -> Config:
        """The built-ins, the named classes of the operator's own files, and the function or judge named as gold.

        >>> Config.standard().digest == Config.standard().digest
        True
        """
        names = tuple(plugins)
        extra = [load(name) for name in names]
        config = cls(
            tuple(cls_() for cls_ in instruments.BUILTIN) + tuple(part() for part in extra if hasattr(part, "measure")),
            derived.BUILTIN + tuple(part for part in extra if hasattr(part, "fold")),
            detectors.BUILTIN + tuple(part for part in extra if hasattr(part, "update")),
            names,
        )
        if gold is None:
            return config
        return config.judged_by(load_gold(gold), gold_share, gold_steps)

    def judged_by(self, source: GoldSource, share: float = GOLD_SHARE, steps: int | None = None) -> Config:
        """The same parts with a gold source of its own.

        Its audited bets take the place of instruments that make bets of gold the trainer brings: an alarm must not mix
        two kinds of bets under one name. Their other readings of such gold stay.
        """
        if not 0.0 < share <= 1.0:
            raise AttachError(f"the share of rollouts to label is {share}: choose one above 0 and at most 1, as 0.02")
        if steps is not None and steps < 1:
            raise AttachError(f"{steps} planned steps: leave it out where the length of the run is not known")
        kept = tuple(part for part in self.instruments if not getattr(part, "audited", False))
        return replace(self, instruments=kept, gold=source, gold_share=share, gold_steps=steps)

    def recorded(self, gold: Mapping[str, Any] | None) -> Config:
        """These parts with the gold source that a journal names, if it names one."""
        if gold is None:
            return self
        source = RecordedSource(gold["name"], gold["identity"], judged=gold.get("judged", False))
        return self.judged_by(source, gold["share"], gold["steps"])

    @property
    def digest(self) -> str:
        """A hash of what is measured and decided, part of every event's id: other settings make other events."""
        parts = [f"events {EVENTS}"] + [f"{part.name}/{part.grain}/{part.needs}" for part in self.instruments]
        parts += [repr(make()) for make in (*self.derived, *self.detectors)]
        parts += (
            [f"gold {self.gold.name}/{self.gold.identity}/{self.gold_share!r}/{self.gold_steps!r}"]
            if self.gold is not None
            else []
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:8]


def load(name: str) -> Any:
    """The class that `path/to/file.py:ClassName` names."""
    part = named(name, "a class", "ClassName")
    if not any(hasattr(part, verb) for verb in ("measure", "fold", "update")):
        raise AttachError(f"{name!r} has none of measure (instrument), fold (derived reading), update (detector)")
    return part


def names_people(name: str) -> bool:
    """Whether a gold source's name stands for people at the labelling screen: `people`, or `people:3` for three raters.

    >>> names_people("people:3"), names_people("people.py:score")
    (True, False)
    """
    return name.partition(":")[0] == PEOPLE


def load_gold(name: object) -> GoldSource:
    """The source that a name stands for: a function, `checks.py:score`, a judge, `judge.toml`, or `people`."""
    if isinstance(name, str) and names_people(name):
        raters = name.partition(":")[2] if ":" in name else "1"
        if not raters.isdecimal() or not 1 <= int(raters) <= MOST_RATERS:
            raise AttachError(f'gold={name!r}: write gold="people", or "people:3" if three raters answer each pair')
        return PeopleSource(int(raters))
    if isinstance(name, str) and name.endswith(".toml"):
        return JudgeSource(name, read_judge(name))
    if isinstance(name, str) and not re.search(r"\.py:[^:]+$", name):
        raise AttachError(
            f'gold={name!r} names no source: write gold="checks.py:score" for the function score in checks.py, '
            'gold="judge.toml" for a judge that this file describes, or gold="people" for people at the labelling '
            "screen"
        )
    function = load_function(name)
    return FunctionSource(str(name), function)


def refuse_the_reward(source: GoldSource | None, rewards: Iterable[Callable[..., Any]]) -> None:
    """Raise if gold is one of the reward functions: Cov(reward, reward) is never negative, so no alarm could ever fire.

    It can be seen only where both are functions whose code is the same, under whatever name.
    """
    if not isinstance(source, FunctionSource):
        return
    for reward in rewards:
        same_code = _code(reward) is not None and _code(reward) == _code(source.function)
        if same_code or fingerprint([reward]) == fingerprint([source.function]):
            raise AttachError(
                f"gold is the reward function {getattr(reward, '__name__', reward)!r} itself: an alarm about it could "
                "never fire. Name something the policy is not trained on: hidden tests, a stricter check, a judge."
            )


def _code(function: Any) -> object:
    """What a function does, without its name; None where Python does not show it."""
    while (inner := getattr(function, "__wrapped__", None)) is not None:
        function = inner
    code = getattr(function, "__code__", None)
    return None if code is None else (code.co_code, code.co_consts, code.co_names, code.co_freevars)


CHECKED = ("answer", "solution", "ground_truth", "target", "label", "reference")  # columns that hold what is right
TESTED = ("tests", "test_cases", "test", "unit_tests")
VERIFIERS = re.compile(r"accura|correct|verif|exact|match|format|test|pass|answer|math|solve", re.I)
MODELS = re.compile(r"reward[-_ ]?model|(^|[-_/])rm([-_/]|$)|preference|classif|/|-\d+(\.\d+)?b\b", re.I)


def gold_advice(reward_names: Iterable[str], columns: Iterable[str]) -> str:
    """What could serve as gold for these rewards on this dataset, with the lines to paste; for a run that names none.

    It matters because without gold nobody can tell a hack from progress: the reward of a hacked run rises as well.
    Names are all it goes by, so it is a suggestion: read the check before you believe it.

    >>> print(gold_advice(["accuracy_reward"], ["prompt", "level"]).splitlines()[1])
    accuracy_reward checks answers itself, so gold must be stricter: tests that it never runs, or a judge on a sample.
    """
    rewards, known = list(reward_names), set(columns)
    verifiers = [name for name in rewards if VERIFIERS.search(name)]
    models = [name for name in rewards if MODELS.search(name)]
    if verifiers:
        kind = (
            f"{verifiers[0]} checks answers itself, so gold must be stricter: tests that it never runs, or a judge on "
        )
        kind += "a sample."
    elif models:
        kind = f"{models[0]} is a reward model, so gold is a judge, or a check against a few labels of people."
    else:
        kind = "Gold is anything the policy is not trained on: a check of the answer, hidden tests, a judge."
    lines = ["No gold is named, so nothing can tell a hack from progress, and the verdict stays BLIND.", kind]
    for names, snippet in ((CHECKED, ANSWER_CHECK), (TESTED, HIDDEN_TESTS)):
        if column := next((name for name in names if name in known), None):
            lines.append(f'The dataset has {column!r}. Put this into checks.py and pass gold="checks.py:score":')
            lines += snippet.replace("COLUMN", column).splitlines()
            break
    lines += [
        'A judge: gold="judge.toml", a file with url, model and guide. It is asked about 2 % of the rollouts.',
        'Without labels: evals=["eval_NAME"], a score from 0 to 1 that your trainer\'s evaluation logs.',
    ]
    return "\n".join(lines)


ANSWER_CHECK = r"""import re
def score(completion, COLUMN):  # right only if the very last number is; None: this row cannot be checked
    said, right = (re.findall(r"-?\d+(?:\.\d+)?", str(text).replace(",", "")) for text in (completion, COLUMN))
    return float(said[-1:] == right[-1:]) if right else None"""
HIDDEN_TESTS = """def score(completion, COLUMN):
    return passed(completion, COLUMN)  # yours: tests that the reward never runs, in a sandbox"""
