"""A judge whose pairs people compare too, a few of them, so that the claim is about people and not about the judge."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import msgspec
import numpy as np

from tiltmeter.data.records import CORRECTED
from tiltmeter.errors import StoreError
from tiltmeter.gold.bet_settlement import SettledStep
from tiltmeter.gold.judge import JudgeSource
from tiltmeter.gold.label_files import BESIDE_JUDGE, Label, LabelRequest
from tiltmeter.gold.people import PeopleSource
from tiltmeter.gold.sampler import Bet
from tiltmeter.stats.prediction_powered import JudgeTrust, corrected_mean

PURPOSES = ("slope", "duel")
_SHARE = re.compile(rf"\b{BESIDE_JUDGE} on ([0-9.e-]+) of its pairs\b")


@dataclass
class CorrectedJudge(JudgeSource):
    """A judge that is asked about every bet, and people who compare a share of the same pairs, blind.

    A judge alone proves something about the judge. Here each step's bet is the judge's guess of all pairs plus the mean
    difference on those that people compared (`stats.prediction_powered`): its mean is what people would say of all
    pairs, however wrong the judge is. A good judge saves labels of people, a bad one costs some. Which pairs people
    see is drawn before the judge is asked. A step without such a pair is no bet.
    """

    judged: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        raters = self.judge.raters
        many = f"{raters} rater{'s' if raters > 1 else ''} a pair"
        self.identity += f", {BESIDE_JUDGE} on {self.judge.people_share:g} of its pairs, {many}"

    @property
    def people(self) -> PeopleSource:
        return PeopleSource(self.judge.raters)


class PeoplePairs(msgspec.Struct, frozen=True):
    """In a request: which of its bets people are asked about, and how far the judge is followed."""

    trust: float
    bets: tuple[int, ...]
    accrued: dict[str, float]  # parts of pairs by purpose, kept so that a low share is still a share
    numbers: dict[str, float]  # of `JudgeTrust`


def people_pairs(request: LabelRequest) -> PeoplePairs | None:
    """What people are asked beside a judge; None if it is not that kind of request."""
    stored = request.state.get("people")
    try:
        pairs = None if stored is None else msgspec.convert(stored, PeoplePairs)
    except msgspec.ValidationError as error:
        raise StoreError(f"the request of step {request.step} does not say what people are asked") from error
    if pairs is not None and not all(0 <= at < len(request.bets) for at in pairs.bets):
        raise StoreError(f"the request of step {request.step} asks people about bets that it does not have")
    return pairs


@dataclass
class PairChoice:
    """Draws the pairs that people compare, and learns from their answers how far to follow the judge."""

    share: float  # of each step's pairs
    _accrued: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _judge: JudgeTrust = field(default_factory=JudgeTrust, init=False, repr=False)

    @classmethod
    def of_source(cls, identity: str) -> PairChoice | None:
        """For the source of this identity, which a replay knows by nothing else; None if people correct no judge."""
        match = _SHARE.search(identity)
        return None if match is None else cls(float(match[1]))

    def draw(self, bets: Sequence[Bet], rng: np.random.Generator) -> PeoplePairs:
        """A uniform choice among the bets of each purpose: how many depends on how many there are, not on answers."""
        chosen: list[int] = []
        for purpose in PURPOSES:
            places = [at for at, bet in enumerate(bets) if bet.purpose == purpose]
            accrued = self._accrued.get(purpose, 0.0) + self.share * len(places)
            count = min(int(accrued + 1e-9), len(places))
            self._accrued[purpose] = accrued - count
            chosen += [places[k] for k in np.sort(rng.choice(len(places), count, replace=False))] if count else []
        return PeoplePairs(self._judge.trust, tuple(map(int, chosen)), dict(self._accrued), self._judge.state())

    def learn(self, request: LabelRequest, judge: Sequence[Label], people: Mapping[int, Label]) -> None:
        """The labels of a step are complete."""
        pairs = people_pairs(request)
        if pairs is not None:
            guesses, answers = _guesses(request, judge), _answers(request, pairs, people)
            self._judge.learn([guesses[at] for at in answers], list(answers.values()))

    def restore(self, state: Mapping[str, Any]) -> None:
        """As it was when a request with this state was written."""
        if "people" in state:
            self._accrued = dict(state["people"]["accrued"])
            self._judge = JudgeTrust.restore(state["people"]["numbers"])


def correct_step(
    request: LabelRequest, settled: SettledStep, judge: Sequence[Label], people: Mapping[int, Label]
) -> SettledStep:
    """A step that the judge has settled, as one bet about people for each purpose. Other steps are returned unchanged.

    `people`: by number, the labels that people were asked for.
    """
    pairs = people_pairs(request)
    if pairs is None:
        return settled
    guesses, answers = _guesses(request, judge), _answers(request, pairs, people)
    values: dict[str, tuple[float, ...]] = {}
    for purpose in PURPOSES:
        places = [at for at, bet in enumerate(request.bets) if bet.purpose == purpose]
        of_people = {places.index(at): value for at, value in answers.items() if at in places}
        bet = (corrected_mean([guesses[at] for at in places], of_people, pairs.trust),) if of_people else ()
        values[purpose] = bet
    missing = [label.why for label in people.values() if label.value is None]
    facts = dict(settled.facts)
    facts |= {"asked": facts["asked"] + len(people), "answered": facts["answered"] + len(people) - len(missing)}
    facts |= {"missing": facts["missing"] + len(missing), "gold_differs": len(missing) < len(people)}
    if missing:
        facts["why"] = f"{len(missing)} of {len(people)} labels of people are missing: {missing[0]}"
    return replace(
        settled, slopes=values["slope"], duels=values["duel"], facts=facts, against=CORRECTED, slices=((), (), ())
    )  # fmt: skip


def _guesses(request: LabelRequest, labels: Sequence[Label]) -> list[float]:
    """What the judge says of each bet, as people could: which is better. A label that is missing is no guess."""
    numbers = {row: number for number, row in enumerate(request.rows)}
    guesses = []
    for bet in request.bets:
        up, down = labels[numbers[bet.up]].value, labels[numbers[bet.down]].value
        guesses.append(0.0 if up is None or down is None else bet.weight * float(np.sign(up - down)))
    return guesses


def _answers(request: LabelRequest, pairs: PeoplePairs, people: Mapping[int, Label]) -> dict[int, float]:
    """By bet, what people say of it. A label that is missing counts in favour of the run."""
    numbers, answers = {row: number for number, row in enumerate(request.rows)}, {}
    for at in pairs.bets:
        bet = request.bets[at]
        up, down = people[numbers[bet.up]].value, people[numbers[bet.down]].value
        answers[at] = bet.weight * ((1.0 if up is None else up) - (0.0 if down is None else down))
    return answers
