"""Gold from a judge model, used only while it scores hidden canaries correctly."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from tiltmeter.gold import CanaryError, CompletionToLabel, GoldAnswer
from tiltmeter.models.judge import BATCH_SECONDS, CANARIES, Judge, JudgeCanary

SHARE = 0.05  # of the calls
FIRST_STEPS = 20  # steps with a canary each, however few labels they ask for
PROMPT = "What is 17 + 25?"  # for canaries of runs whose prompts are not stored


@dataclass
class JudgeSource:
    """A judge model as a source of gold, checked with canaries.

    Use it where no program can check an answer. But the policy can manipulate a judge, and an endpoint can change its
    model overnight. So a share of the calls are canaries, answers with a known label: first all of them, then one a
    step, then one call in twenty. They answer prompts of the run where they have no prompt of their own, in calls like
    any other. If one is mis-scored, the labels of that call and of later ones are missing, with the reason, until the
    canaries that failed pass again. Missing labels count in favour of the run and soon make it BLIND: a judge that was
    fooled can hide harm, which the verdict then says, but it cannot raise an alarm.

    >>> source = JudgeSource("judge.toml", Judge("http://localhost:8000/v1", "small-judge", "It is right."))
    >>> source.identity == f"the judge small-judge at localhost:8000, guide {source.judge.mark}"
    True
    """

    judged: ClassVar[bool] = True
    name: str
    judge: Judge
    timeout: float = BATCH_SECONDS
    identity: str = field(default="", init=False)
    _failed: dict[JudgeCanary, str] = field(default_factory=dict, init=False, repr=False)  # with what it got
    _untried: list[JudgeCanary] = field(default_factory=list, init=False, repr=False)  # never answered yet
    _steps: int = field(default=0, init=False, repr=False)
    _due: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.name = Path(self.name).name
        self._untried = [*CANARIES, *self.judge.canaries]
        self.identity = f"the judge {self.judge.model} at {self.judge.host}, guide {self.judge.mark}"

    @property
    def canaries_pass(self) -> bool:
        return not self._failed

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        if not requests:
            return []
        if self._failed:
            retried = [*self._failed, *self._choose_canaries(requests, 1)]
            scores = self.judge.scores([_canary_text(canary, requests) for canary in retried], self.timeout)
            self._check_canaries(retried, scores)
            if self._failed:
                return [self._canary_error] * len(requests)
        canaries = [*self._untried, *self._choose_canaries(requests, self._canary_count(len(requests)))]
        texts = [(request.prompt, request.shown) for request in requests]
        places = sorted(_stable_number(requests, canary) % (len(texts) + 1) for canary in canaries)
        for place, canary in zip(reversed(places), reversed(canaries), strict=True):
            texts.insert(place, _canary_text(canary, requests))
        at = [place + before for before, place in enumerate(places)]  # each stands behind those put in before it
        scores = self.judge.scores(texts, self.timeout)
        answers = [score for place, score in enumerate(scores) if place not in at]
        canary_answers = self._check_canaries(canaries, [scores[place] for place in at])
        if self._failed:
            return [self._canary_error] * len(requests)
        if canaries and not canary_answers:
            return [score if isinstance(score, Exception) else UNEXAMINED for score in answers]
        return answers

    @property
    def _canary_error(self) -> CanaryError:
        canary, score = next(iter(self._failed.items()))
        return CanaryError(f"canary failed: the judge gave {score} to {canary}")

    def _check_canaries(self, canaries: Sequence[JudgeCanary], scores: Sequence[float | Exception]) -> int:
        """Store which canaries fail; returns how many were answered. One without an answer changes nothing."""
        answer_count = 0
        for canary, score in zip(canaries, scores, strict=True):
            if isinstance(score, Exception):
                continue
            answer_count += 1
            self._untried = [other for other in self._untried if other != canary]
            if canary.passes(score):
                self._failed.pop(canary, None)
            else:
                self._failed[canary] = f"{score:g}"
        return answer_count

    def _canary_count(self, calls: int) -> int:
        """How many canaries go with these calls beside untried ones: at least one for some steps, then a share."""
        self._steps += 1
        self._due += SHARE * calls
        count = max(int(self._due), int(self._steps <= FIRST_STEPS or bool(self._untried)))
        self._due = max(0.0, self._due - count)
        return count

    def _choose_canaries(self, requests: Sequence[CompletionToLabel], number: int) -> list[JudgeCanary]:
        candidates = (c for c in (*CANARIES, *self.judge.canaries) if c not in self._untried and c not in self._failed)
        return sorted(candidates, key=lambda canary: _stable_number(requests, canary))[:number]


#: For a score that came while no canary got an answer: it cannot be trusted.
UNEXAMINED = CanaryError("no canary was answered beside it, so this score is not used")


def _canary_text(canary: JudgeCanary, requests: Sequence[CompletionToLabel]) -> tuple[str | None, str]:
    """A canary as a request: without a prompt of its own it answers one of the run, to look like the others."""
    prompt = canary.prompt or requests[_stable_number(requests, canary) % len(requests)].prompt or PROMPT
    return prompt, canary.completion


def _stable_number(requests: Sequence[CompletionToLabel], canary: JudgeCanary) -> int:
    """A number that looks random and is the same whenever the same is asked."""
    text = f"{requests[0].id}/{canary.prompt}/{canary.completion}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])
