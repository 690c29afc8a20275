"""Gold from a judge model, used only while it scores hidden canaries correctly."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from tiltmeter.gold import CanaryError, CompletionToLabel, GoldAnswer
from tiltmeter.models.judge import BATCH_SECONDS, CANARIES, Judge, JudgeCanary
from tiltmeter.models.judge_prompts import JudgeError

SHARE = 0.05  # of the calls
FIRST_STEPS = 20  # steps with a canary each, however few labels they ask for
#: In the identity of a judge that gives no scores.
BETTER_OF_TWO = "asked which of two answers is better"
HALF = 0.5  # of a win
CANARY = "canary"  # purpose of a request that is one
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

    A judge that compares `pairs` says which of two answers to one prompt is better, in both orders. As with people the
    better one's label is 1 and the other's 0, both 1/2 where the order decides, and there is no level of gold.

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
        self.identity += f", {BETTER_OF_TWO}" if self.judge.pairs else ""
        self.identity += f", {self.judge.way}" if self.judge.way else ""

    @property
    def canaries_pass(self) -> bool:
        return not self._failed

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        if not requests:
            return []
        if self._failed:
            retried = [*self._failed, *self._choose_canaries(requests, 1)]
            self._check_canaries(
                retried, self._ask([_canary_request(canary, requests) for canary in retried], requests)
            )
            if self._failed:
                return [self._canary_error] * len(requests)
        canaries = [*self._untried, *self._choose_canaries(requests, self._canary_count(len(requests)))]
        to_ask = list(requests)
        places = sorted(_stable_number(requests, canary) % (len(to_ask) + 1) for canary in canaries)
        for place, canary in zip(reversed(places), reversed(canaries), strict=True):
            to_ask.insert(place, _canary_request(canary, requests))
        at = [place + before for before, place in enumerate(places)]  # each stands behind those put in before it
        scores = self._ask(to_ask, requests)
        answers = [score for place, score in enumerate(scores) if place not in at]
        canary_answers = self._check_canaries(canaries, [scores[place] for place in at])
        if self._failed:
            return [self._canary_error] * len(requests)
        if canaries and not canary_answers:
            return [score if isinstance(score, Exception) else UNEXAMINED for score in answers]
        return answers

    def _ask(
        self, to_ask: Sequence[CompletionToLabel], requests: Sequence[CompletionToLabel]
    ) -> Sequence[float | Exception]:
        """The judge's scores. `requests`: those of the call without its canaries."""
        if self.judge.pairs:
            return self._compare(to_ask, requests)
        texts, column = [(one.prompt, one.shown) for one in to_ask], self.judge.reference
        if not column:
            return self.judge.scores(texts, self.timeout)
        lacking = [one for one in to_ask if column not in one.columns]
        if lacking:
            columns = ", ".join(sorted(lacking[0].columns)) or "nothing"
            return [JudgeError(f"the judge grades by the column {column!r}, and a row has {columns}")] * len(to_ask)
        return self.judge.scores(texts, self.timeout, [str(one.columns[column]) for one in to_ask])

    def _compare(
        self, to_ask: Sequence[CompletionToLabel], requests: Sequence[CompletionToLabel]
    ) -> Sequence[float | Exception]:
        """1 for the better of two answers to one prompt and 0 for the other, or 1/2 each. A canary is compared with an
        answer of the run. Labels of the past, which have no other side, are scores by the same guide."""
        answers: dict[int, float | Exception] = {}
        sides, alone = _pair_sides(to_ask)
        canaries = [at for at, one in enumerate(to_ask) if one.purpose == CANARY]
        pairs = [(to_ask[one].prompt, to_ask[one].shown, to_ask[two].shown) for one, two in sides]
        # A canary has the id of the request whose prompt it was given: it is compared with that answer.
        shown = {request.id: request.shown for request in requests}
        pairs += [(to_ask[at].prompt, to_ask[at].shown, shown[to_ask[at].id]) for at in canaries]
        shares = self.judge.compare(pairs, self.timeout)
        for (one, two), share in zip(sides, shares, strict=False):
            answers |= {one: share, two: share if isinstance(share, Exception) else 1.0 - share}
        answers |= dict(zip(canaries, shares[len(sides) :], strict=True))
        if alone:
            scores = self.judge.scores([(to_ask[at].prompt, to_ask[at].shown) for at in alone], self.timeout)
            answers |= dict(zip(alone, scores, strict=True))
        missing = JudgeError("there is no other answer to the same prompt to compare it with")
        return [answers.get(at, missing) for at in range(len(to_ask))]

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
            # Of two answers a tie is no fault: the other may be as bad, or as good.
            if canary.passes(score) or (self.judge.pairs and score == HALF):
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


def _canary_request(canary: JudgeCanary, requests: Sequence[CompletionToLabel]) -> CompletionToLabel:
    """A canary as a request: without a prompt of its own it answers one of the run, to look like the others."""
    like = requests[_stable_number(requests, canary) % len(requests)]
    prompt = canary.prompt or like.prompt or PROMPT
    return replace(like, purpose=CANARY, prompt=prompt, completion=canary.completion, conversation="")


def _stable_number(requests: Sequence[CompletionToLabel], canary: JudgeCanary) -> int:
    """A number that looks random and is the same whenever the same is asked."""
    text = f"{requests[0].id}/{canary.prompt}/{canary.completion}"
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:8])


def _pair_sides(to_ask: Sequence[CompletionToLabel]) -> tuple[list[tuple[int, int]], list[int]]:
    """The places of two answers to one prompt that stand behind each other, as a bet asks for them; and of others."""
    sides: list[tuple[int, int]] = []
    alone: list[int] = []
    waiting: dict[tuple[str, str | None], int] = {}
    for at, one in enumerate(to_ask):
        if one.purpose not in ("slope", "duel"):
            alone += [at] if one.purpose != CANARY else []
        elif (first := waiting.pop((one.purpose, one.prompt), None)) is None:
            waiting[one.purpose, one.prompt] = at
        else:
            sides.append((first, at))
    return sides, alone
