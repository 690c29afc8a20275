"""Referees that decide which of two answers is better: gold scores, or pairwise judges asked in both orders, blind."""

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

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldSource
from tiltmeter.gold.people import PeopleSource
from tiltmeter.models.judge import read_judge
from tiltmeter.models.judge_prompts import PAIRS
from tiltmeter.monitor.parts import load_gold, names_people
from tiltmeter.safety.loading import load_function
from tiltmeter.safety.safe_text import log_line
from tiltmeter_workbench.common.chat_endpoint import ChatEndpoint
from tiltmeter_workbench.common.chat_model import Progress
from tiltmeter_workbench.compare.judge_prompt import AnswerPair, Ask, ask_with
from tiltmeter_workbench.compare.people import PeopleGrades, PeopleLabels, PeopleReferee
from tiltmeter_workbench.compare.sampling import JsonlCache

Floats = NDArray[np.float64]
ScoredAnswer = tuple[str, str, Mapping[str, Any]]  # prompt, answer, and the other columns of its row
BATCH = 32  # pairs that are judged and stored at once
MARGIN = 1e-9  # scores that differ by no more are alike


class Referee(Protocol):
    """Decides pairs of answers. `judged`: it is a model's opinion. `faults`: how often it gave no answer, by reason."""

    @property
    def identity(self) -> str: ...
    @property
    def judged(self) -> bool: ...
    @property
    def costly(self) -> bool:
        """Whether each pair costs calls of its own, so that only as many as needed are asked."""
        ...

    @property
    def faults(self) -> Mapping[str, int]: ...

    def outcomes(self, pairs: Sequence[AnswerPair], progress: Progress | None = None) -> Floats:
        """1 where the first won, 0 where the second did, 0.5 for a tie, NaN where nobody could say."""
        ...

    def by_order(self, pairs: Sequence[AnswerPair]) -> int:
        """How many pairs got the opposite verdict in the other order: ties by position alone."""
        ...


@dataclass
class ScoringReferee:
    """A source of gold as a referee: it scores each answer alone, so there is no order, and the higher score wins."""

    source: GoldSource
    cache: JsonlCache
    margin: float = MARGIN
    costly: bool = field(default=False, init=False)
    faults: dict[str, int] = field(default_factory=dict, init=False)

    @property
    def identity(self) -> str:
        return self.source.identity

    @property
    def judged(self) -> bool:
        return self.source.judged

    def by_order(self, pairs: Sequence[AnswerPair]) -> int:
        return 0

    def outcomes(self, pairs: Sequence[AnswerPair], progress: Progress | None = None) -> Floats:
        self.scores(
            [(pair.prompt, text, pair.columns) for pair in pairs for text in (pair.first, pair.second)], progress
        )
        return np.array([self._outcome(pair) for pair in pairs], np.float64)

    def scores(self, answers: Sequence[ScoredAnswer], progress: Progress | None = None) -> Floats:
        """Gold of each answer, NaN where there is none; the same answer is asked about once."""
        keys = [self._key(*answer) for answer in answers]
        questions = dict(zip(keys, answers, strict=True))
        new = [key for key in questions if key not in self.cache]
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            labels = self.source.label([_request(at, *questions[key]) for at, key in enumerate(part, start)])
            scores = {key: self._number(answer) for key, answer in zip(part, labels, strict=True)}
            self.cache.put({key: value for key, value in scores.items() if math.isfinite(value)})
            if progress is not None:
                progress("judging", start + len(part), len(new))
        stored = (self.cache.get(key) for key in keys)
        return np.array([math.nan if score is None else score for score in stored], np.float64)

    def shares(self, answers: Sequence[ScoredAnswer], progress: Progress | None = None) -> Floats:
        """The same, for who needs differences with a size. Raises `AttachError` for a score that is not from 0 to 1."""
        scores = self.scores(answers, progress)
        if (wrong := scores[(scores < 0.0) | (scores > 1.0)]).size:
            raise AttachError(
                f"gold of an answer is {wrong[0]:g}: a score from 0 to 1 is needed, so that differences have a size"
            )
        return scores

    def _outcome(self, pair: AnswerPair) -> float:
        scores = [self.cache.get(self._key(pair.prompt, text, pair.columns)) for text in (pair.first, pair.second)]
        if any(score is None for score in scores):
            return math.nan
        lead = scores[0] - scores[1]
        return 0.5 if abs(lead) <= self.margin else float(lead > 0.0)

    def _key(self, prompt: str, text: str, columns: Mapping[str, Any]) -> str:
        return _hash(self.identity, prompt, text, columns)

    def _number(self, answer: object) -> float:
        if isinstance(answer, (int, float)) and math.isfinite(answer):
            return float(answer)
        why = f"{type(answer).__name__}: {answer}" if isinstance(answer, BaseException) else f"it answered {answer!r}"
        return _fault(self.faults, why)


@dataclass
class PairwiseReferee:
    """A referee that is shown both answers, in both orders. Where the order decides, it is a tie.

    >>> import tempfile
    >>> kept = JsonlCache(Path(tempfile.mkdtemp()) / "judged.jsonl")
    >>> first_is_best = PairwiseReferee("whoever likes the first", lambda duels: [1.0] * len(duels), kept)
    >>> duels = [AnswerPair("2 + 2?", "4", "5")]
    >>> first_is_best.outcomes(duels).tolist(), first_is_best.by_order(duels)
    ([0.5], 1)
    """

    identity: str
    ask: Ask
    cache: JsonlCache
    judged: bool = True
    costly: bool = field(default=True, init=False)
    faults: dict[str, int] = field(default_factory=dict, init=False)

    def outcomes(self, pairs: Sequence[AnswerPair], progress: Progress | None = None) -> Floats:
        both = {self._key(each): each for pair in pairs if pair.first != pair.second for each in (pair, pair.swapped)}
        new = [key for key in both if key not in self.cache]
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            answers = self.ask([both[key] for key in part])
            shares = {key: self._share(answer) for key, answer in zip(part, answers, strict=True)}
            self.cache.put({key: value for key, value in shares.items() if math.isfinite(value)})
            if progress is not None:
                progress("judging in both orders", start + len(part), len(new))
        return np.array([self._outcome(pair) for pair in pairs], np.float64)

    def by_order(self, pairs: Sequence[AnswerPair]) -> int:
        orders = [self._orders(pair) for pair in pairs if pair.first != pair.second]
        return sum(abs(one - other) > MARGIN for one, other in orders)  # no number differs from none

    def _orders(self, pair: AnswerPair) -> tuple[float, float]:
        """The first answer's share of the win when shown first, and when shown second."""
        one, other = self.cache.get(self._key(pair)), self.cache.get(self._key(pair.swapped))
        return (math.nan if one is None else one, math.nan if other is None else 1.0 - other)

    def _outcome(self, pair: AnswerPair) -> float:
        if pair.first == pair.second:
            return 0.5
        one, other = self._orders(pair)
        if not (math.isfinite(one) and math.isfinite(other)):
            return math.nan
        return one if abs(one - other) < MARGIN else 0.5

    def _key(self, pair: AnswerPair) -> str:
        return _hash(self.identity, pair.prompt, pair.first, pair.second, pair.columns)

    def _share(self, answer: object) -> float:
        if isinstance(answer, (int, float)) and float(answer) in (0.0, 0.5, 1.0):
            return float(answer)
        why = f"{type(answer).__name__}: {answer}" if isinstance(answer, BaseException) else f"it answered {answer!r}"
        return _fault(self.faults, why)


def open_scoring_referee(name: str, work: Path, what: str) -> ScoringReferee:
    """The referee of that name, if it scores each answer alone. Raises `AttachError` with the fix."""
    referee = open_referee(name, work, scored=True)
    if not isinstance(referee, ScoringReferee):
        raise AttachError(f"{name} compares pairs, and {what} needs a score of each answer: a function of completion")
    return referee


def open_referee(name: str, work: Path, *, scored: bool = False) -> Referee:
    """The referee that a name stands for. Raises `AttachError` with the fix.

    `judge.toml` is asked about pairs in both orders, or, if `scored`, about each answer alone; `file.py:function` with
    parameters `first` and `second` about pairs in both orders, and with `completion` or `completions` as gold is.
    `people`, or `people:3`, is whoever labels the page that is left in `work`.
    """
    cache = JsonlCache(work / "judged.jsonl")
    # A judge with a method grades answers one by one, as gold is.
    if name.endswith(".toml") and not scored and (judge := read_judge(name)).method == "bare":
        server = ChatEndpoint(judge.url, judge.model, judge.key_env, judge.timeout, judge.retries)
        mark = hashlib.sha256(PAIRS.format(guide=judge.guide, mark="").encode()).hexdigest()[:12]
        identity = f"the judge {judge.model} at {judge.host}, asked in both orders, guide {mark}"
        return PairwiseReferee(identity, ask_with(server, judge.guide), cache)
    if ".py:" in name:
        function = load_function(name)
        takes = inspect.signature(function).parameters
        if {"first", "second"} <= set(takes):
            path, _, attribute = name.rpartition(":")
            identity = f"the function {attribute} in {Path(path).name}, code {fingerprint([function])}, in both orders"
            return PairwiseReferee(identity, _ask_function(function, list(takes)), cache, judged=False)
    elif not name.endswith(".toml") and not names_people(name):
        raise AttachError(
            f"{name!r} is no judge: give judge.toml, or the function score of checks.py as checks.py:score"
        )
    source = load_gold(name)
    if isinstance(source, PeopleSource):
        if source.groups:
            raise AttachError(f"{name}: groups of raters are for runs; write people or people:{source.raters}")
        labels = PeopleLabels(work, source.raters)
        return ScoringReferee(PeopleGrades(labels), cache) if scored else PeopleReferee(labels)
    return ScoringReferee(source, cache)


def people_of(referee: Referee | None) -> PeopleLabels | None:
    """The labels that a referee rests on, where people are the judge."""
    if isinstance(referee, PeopleReferee):
        return referee.labels
    is_graded = isinstance(referee, ScoringReferee) and isinstance(referee.source, PeopleGrades)
    return referee.source.labels if is_graded else None  # type: ignore[union-attr]


def _ask_function(function: Callable[..., Any], takes: Sequence[str]) -> Ask:
    def one(pair: AnswerPair) -> Any:
        arguments = {**pair.columns, "prompt": pair.prompt, "first": pair.first, "second": pair.second}
        try:
            return function(**{name: arguments[name] for name in takes if name in arguments})
        except Exception as error:  # noqa: BLE001  # whatever it was, it is a missing outcome, with a reason
            return error

    return lambda pairs: [one(pair) for pair in pairs]


def _request(at: int, prompt: str, completion: str, columns: Mapping[str, Any]) -> CompletionToLabel:
    return CompletionToLabel(f"compare-{at}", 0, 0, at, "duel", prompt, completion, columns)


def _fault(faults: dict[str, int], why: str) -> float:
    reason = log_line(why, 160)
    faults[reason] = faults.get(reason, 0) + 1
    return math.nan


def _hash(*parts: object) -> str:
    # A function may look at any column: the same answer with another column is another question.
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:24]
