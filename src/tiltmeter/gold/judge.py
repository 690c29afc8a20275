"""Gold from a judge model, believed only while it passes canaries that are mixed in blind."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tiltmeter.gold import Answer, CanaryError, Request
from tiltmeter.judge import BATCH_SECONDS, CANARIES, Canary, Judge

SHARE = 0.05  # of the calls
BEGINNING = 20  # steps with a canary each, however few labels they ask for
PROMPT = "What is 17 + 25?"  # for canaries of runs whose prompts are not stored


@dataclass
class JudgeSource:
    """A judge that answers at once, and whether it can be believed.

    Worth having where no program can check an answer. But a judge can be talked to by the very policy it judges, and an
    endpoint can change its model overnight. So a share of the calls are canaries: first all of them, then one a step,
    then one call in twenty, as answers to prompts of the run where they have none of their own, in calls like any
    other. If one gets another score than it is worth, the labels of that call and of later ones are missing, with the
    reason, until the canaries that failed pass again. Missing labels count in favour of the run and soon make it BLIND:
    a judge that was fooled can hide harm, and that is then said, but it cannot raise an alarm.

    >>> source = JudgeSource("judge.toml", Judge("http://localhost:8000/v1", "small-judge", "It is right."))
    >>> source.identity == f"the judge small-judge at localhost:8000, guide {source.judge.mark}"
    True
    """

    judged: ClassVar[bool] = True
    name: str
    judge: Judge
    timeout: float = BATCH_SECONDS
    identity: str = field(default="", init=False)
    _failed: dict[Canary, str] = field(default_factory=dict, init=False, repr=False)  # with what it got
    _untried: list[Canary] = field(default_factory=list, init=False, repr=False)  # never answered yet
    _steps: int = field(default=0, init=False, repr=False)
    _due: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = Path(self.name).name
        self._untried = [*CANARIES, *self.judge.canaries]
        self.identity = f"the judge {self.judge.model} at {self.judge.host}, guide {self.judge.mark}"

    @property
    def canaries_pass(self) -> bool:
        return not self._failed

    def label(self, requests: Sequence[Request]) -> Sequence[Answer]:
        if not requests:
            return []
        if self._failed:
            again = [*self._failed, *self._chosen(requests, 1)]
            scores = self.judge.scores([_asked(canary, requests) for canary in again], self.timeout)
            self._examine(again, scores)
            if self._failed:
                return [self._doubt] * len(requests)
        canaries = [*self._untried, *self._chosen(requests, self._count(len(requests)))]
        texts = [(request.prompt, request.completion) for request in requests]
        places = sorted(_draw(requests, canary) % (len(texts) + 1) for canary in canaries)
        for place, canary in zip(reversed(places), reversed(canaries), strict=True):
            texts.insert(place, _asked(canary, requests))
        at = [place + before for before, place in enumerate(places)]  # each stands behind those put in before it
        scores = self.judge.scores(texts, self.timeout)
        told = [score for place, score in enumerate(scores) if place not in at]
        answered = self._examine(canaries, [scores[place] for place in at])
        if self._failed:
            return [self._doubt] * len(requests)
        if canaries and not answered:
            return [score if isinstance(score, Exception) else UNEXAMINED for score in told]
        return told

    @property
    def _doubt(self) -> CanaryError:
        canary, got = next(iter(self._failed.items()))
        return CanaryError(f"canary failed: the judge gave {got} to {canary}")

    def _examine(self, canaries: Sequence[Canary], scores: Sequence[float | Exception]) -> int:
        """Remember which canaries fail; how many of these were answered. One that was not says nothing new."""
        answered = 0
        for canary, score in zip(canaries, scores, strict=True):
            if isinstance(score, Exception):
                continue
            answered += 1
            self._untried = [other for other in self._untried if other != canary]
            if canary.kept(score):
                self._failed.pop(canary, None)
            else:
                self._failed[canary] = f"{score:g}"
        return answered

    def _count(self, calls: int) -> int:
        """How many canaries go with these calls beside untried ones: at least one for some steps, then a share."""
        self._steps += 1
        self._due += SHARE * calls
        wanted = max(int(self._due), int(self._steps <= BEGINNING or bool(self._untried)))
        self._due = max(0.0, self._due - wanted)
        return wanted

    def _chosen(self, requests: Sequence[Request], number: int) -> list[Canary]:
        known = (c for c in (*CANARIES, *self.judge.canaries) if c not in self._untried and c not in self._failed)
        return sorted(known, key=lambda canary: _draw(requests, canary))[:number]


#: A score that came while no canary got an answer: nobody knows what it is worth.
UNEXAMINED = CanaryError("no canary was answered beside it, so this score is not used")


def _asked(canary: Canary, requests: Sequence[Request]) -> tuple[str | None, str]:
    """A canary as a request: without a prompt of its own it answers one of the run, to look like the others."""
    prompt = canary.prompt or requests[_draw(requests, canary) % len(requests)].prompt or PROMPT
    return prompt, canary.completion


def _draw(requests: Sequence[Request], canary: Canary) -> int:
    """A number that looks random and is the same whenever the same is asked."""
    text = f"{requests[0].id}/{canary.prompt}/{canary.completion}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
