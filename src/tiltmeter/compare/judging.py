"""Who says which of two answers is better: told neither which model wrote them nor in which order they count."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tiltmeter.chat import Progress
from tiltmeter.compare.asking import SYSTEM, Ask, Duel, speaking
from tiltmeter.compare.samples import Kept
from tiltmeter.config import load_gold, names_people
from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError
from tiltmeter.fingerprint import fingerprint
from tiltmeter.gold import GoldSource, Request
from tiltmeter.gold.people import PeopleSource
from tiltmeter.judge import read_judge
from tiltmeter.loading import load_function

Floats = NDArray[np.float64]
BATCH = 32  # duels that are asked about, and kept, at once
MARGIN = 1e-9  # scores that differ by no more are alike


class Referee(Protocol):
    """Decides duels. `judged`: it is a model's opinion. `faults`: by reason, how often there was no answer."""

    @property
    def identity(self) -> str: ...
    @property
    def judged(self) -> bool: ...
    @property
    def dear(self) -> bool:
        """Whether each duel costs calls of its own, so that one asks no more than are needed."""
        ...

    @property
    def faults(self) -> Mapping[str, int]: ...

    def outcomes(self, duels: Sequence[Duel], progress: Progress | None = None) -> Floats:
        """1 where the first won, 0 where the second did, 0.5 for a tie, NaN where nobody could say."""
        ...

    def by_order(self, duels: Sequence[Duel]) -> int:
        """How many duels went to another answer in the other order: ties that say nothing of the answers."""
        ...


@dataclass
class Scores:
    """A source of gold as a referee: it scores each answer alone, so there is no order, and the higher score wins."""

    source: GoldSource
    kept: Kept
    margin: float = MARGIN
    dear: bool = field(default=False, init=False)
    faults: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def identity(self) -> str:
        return self.source.identity

    @property
    def judged(self) -> bool:
        return self.source.judged

    def by_order(self, duels: Sequence[Duel]) -> int:
        return 0

    def outcomes(self, duels: Sequence[Duel], progress: Progress | None = None) -> Floats:
        asked = {
            self._key(duel, text): (duel.prompt, text, duel.columns)
            for duel in duels
            for text in (duel.first, duel.second)
        }
        new = [key for key in asked if key not in self.kept]
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            told = self.source.label([_request(at, *asked[key]) for at, key in enumerate(part, start)])
            found = {key: self._number(answer) for key, answer in zip(part, told, strict=True)}
            self.kept.put({key: value for key, value in found.items() if math.isfinite(value)})
            if progress is not None:
                progress("judging", start + len(part), len(new))
        return np.array([self._outcome(duel) for duel in duels], np.float64)

    def _outcome(self, duel: Duel) -> float:
        scores = [self.kept.get(self._key(duel, text)) for text in (duel.first, duel.second)]
        if any(score is None for score in scores):
            return math.nan
        lead = scores[0] - scores[1]
        return 0.5 if abs(lead) <= self.margin else float(lead > 0.0)

    def _key(self, duel: Duel, text: str) -> str:
        return _hash(self.identity, duel.prompt, text, duel.columns)

    def _number(self, answer: object) -> float:
        if isinstance(answer, (int, float)) and math.isfinite(answer):
            return float(answer)
        why = f"{type(answer).__name__}: {answer}" if isinstance(answer, BaseException) else f"it answered {answer!r}"
        return _fault(self.faults, why)


@dataclass
class Pairs:
    """A referee that is shown both answers, in both orders. Where the order decides, it is a tie.

    >>> import tempfile
    >>> kept = Kept(Path(tempfile.mkdtemp()) / "judged.jsonl")
    >>> first_is_best = Pairs("whoever likes the first", lambda duels: [1.0] * len(duels), kept)
    >>> duels = [Duel("2 + 2?", "4", "5")]
    >>> first_is_best.outcomes(duels).tolist(), first_is_best.by_order(duels)
    ([0.5], 1)
    """

    identity: str
    ask: Ask
    kept: Kept
    judged: bool = True
    dear: bool = field(default=True, init=False)
    faults: dict[str, int] = field(default_factory=dict, init=False)

    def outcomes(self, duels: Sequence[Duel], progress: Progress | None = None) -> Floats:
        both = {self._key(each): each for duel in duels if duel.first != duel.second for each in (duel, duel.swapped)}
        new = [key for key in both if key not in self.kept]
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            told = self.ask([both[key] for key in part])
            found = {key: self._share(answer) for key, answer in zip(part, told, strict=True)}
            self.kept.put({key: value for key, value in found.items() if math.isfinite(value)})
            if progress is not None:
                progress("judging in both orders", start + len(part), len(new))
        return np.array([self._outcome(duel) for duel in duels], np.float64)

    def by_order(self, duels: Sequence[Duel]) -> int:
        orders = [self._orders(duel) for duel in duels if duel.first != duel.second]
        return sum(abs(one - other) > MARGIN for one, other in orders)  # no number differs from none

    def _orders(self, duel: Duel) -> tuple[float, float]:
        """What the first got when it stood first, and when it stood second."""
        one, other = self.kept.get(self._key(duel)), self.kept.get(self._key(duel.swapped))
        return (math.nan if one is None else one, math.nan if other is None else 1.0 - other)

    def _outcome(self, duel: Duel) -> float:
        if duel.first == duel.second:
            return 0.5
        one, other = self._orders(duel)
        if not (math.isfinite(one) and math.isfinite(other)):
            return math.nan
        return one if abs(one - other) < MARGIN else 0.5

    def _key(self, duel: Duel) -> str:
        return _hash(self.identity, duel.prompt, duel.first, duel.second, duel.columns)

    def _share(self, answer: object) -> float:
        if isinstance(answer, (int, float)) and float(answer) in (0.0, 0.5, 1.0):
            return float(answer)
        why = f"{type(answer).__name__}: {answer}" if isinstance(answer, BaseException) else f"it answered {answer!r}"
        return _fault(self.faults, why)


def open_referee(name: str, work: Path, *, scored: bool = False) -> Referee:
    """The referee that a name stands for. Raises `AttachError` with the fix.

    `judge.toml` is asked about pairs in both orders, or, if `scored`, about each answer alone; `file.py:function` with
    parameters `first` and `second` about pairs in both orders, and with `completion` or `completions` as gold is.
    """
    kept = Kept(work / "judged.jsonl")
    if name.endswith(".toml") and not scored:
        from tiltmeter.chat.endpoint import Endpoint

        judge = read_judge(name)
        server = Endpoint(judge.url, judge.model, judge.key_env, judge.timeout, judge.retries)
        mark = hashlib.sha256(SYSTEM.format(guide=judge.guide, mark="").encode()).hexdigest()[:12]
        identity = f"the judge {judge.model} at {judge.host}, asked in both orders, guide {mark}"
        return Pairs(identity, speaking(server, judge.guide), kept)
    if ".py:" in name:
        function = load_function(name)
        takes = inspect.signature(function).parameters
        if {"first", "second"} <= set(takes):
            path, _, attribute = name.rpartition(":")
            identity = f"the function {attribute} in {Path(path).name}, code {fingerprint([function])}, in both orders"
            return Pairs(identity, _calling(function, list(takes)), kept, judged=False)
    elif not name.endswith(".toml") and not names_people(name):
        raise AttachError(
            f"{name!r} is no judge: give judge.toml, or the function score of checks.py as checks.py:score"
        )
    source = load_gold(name)
    if isinstance(source, PeopleSource):
        raise AttachError("compare cannot wait for people: give a function as checks.py:score or a judge as judge.toml")
    return Scores(source, kept)


def _calling(function: Callable[..., Any], takes: Sequence[str]) -> Ask:
    def one(duel: Duel) -> Any:
        given = {**duel.columns, "prompt": duel.prompt, "first": duel.first, "second": duel.second}
        try:
            return function(**{name: given[name] for name in takes if name in given})
        except Exception as error:  # noqa: BLE001  # whatever it was, it is a missing outcome, with a reason
            return error

    return lambda duels: [one(duel) for duel in duels]


def _request(at: int, prompt: str, completion: str, columns: Mapping[str, Any]) -> Request:
    return Request(f"compare-{at}", 0, 0, at, "duel", prompt, completion, columns)


def _fault(faults: dict[str, int], why: str) -> float:
    reason = log_line(why, 160)
    faults[reason] = faults.get(reason, 0) + 1
    return math.nan


def _hash(*told: object) -> str:
    # A function may look at any column: the same answer with another column is another question.
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:24]
