"""Measure: win rate of the checkpoint against its base, raw and length-controlled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter_workbench.check_report.report import Example
from tiltmeter_workbench.compare.judge_prompt import AnswerPair
from tiltmeter_workbench.compare.measures.difference import percent
from tiltmeter_workbench.compare.measures.measure import Measure, State, example_answers
from tiltmeter_workbench.compare.referees import Referee
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts
from tiltmeter_workbench.stats.confidence_sequence import mean_interval
from tiltmeter_workbench.stats.logistic import fit_logistic, sigmoid

Floats = NDArray[np.float64]

MATTERS = 0.05  # a win rate this close to one half says nothing of use
FEWEST = 20  # duels that were decided; with fewer nothing is said
SHOWN = 2  # examples of each kind
FIX = "Read the lost answers first. Then go back to an earlier checkpoint, or raise beta and train again."


class AtEqualLength(NamedTuple):
    """The chance of winning when both answers are of one length, with its interval, and what length itself does.

    `slope` is the log-odds that one more unit of tanh(difference / its root mean square) adds. NaN where lengths never
    differ enough to tell.
    """

    rate: float
    low: float
    high: float
    slope: float


def at_equal_length(outcomes: Floats, longer: Floats, alpha: float) -> AtEqualLength:
    """Logistic regression of the outcome on how much longer the checkpoint's answer is; the intercept is the rest.

    As in length-controlled AlpacaEval (Dubois et al. 2024, arXiv 2404.04475): the difference is divided by its root
    mean square, and tanh keeps a few very long answers from deciding. A tie counts as half a win. Errors are those of
    independent prompts, whatever the law of the outcome.

    >>> rng = np.random.default_rng(0)
    >>> longer = rng.normal(50.0, 40.0, 2000)
    >>> odds = 1.5 * np.tanh(longer / np.sqrt(np.mean(longer**2)))
    >>> found = at_equal_length((rng.random(2000) < sigmoid(odds)).astype(float), longer, 0.05)
    >>> found.low < 0.5 < found.high, abs(found.slope - 1.5) < 0.3
    (True, True)
    """
    size = float(np.sqrt(np.mean(np.square(longer)))) if len(longer) else 0.0
    columns = [np.ones(len(longer))] + ([np.tanh(longer / size)] if size > 0.0 else [])
    nothing = AtEqualLength(math.nan, math.nan, math.nan, math.nan)
    if len(outcomes) < FEWEST:
        return nothing
    fit = fit_logistic(np.stack(columns, axis=1), outcomes)
    if not np.isfinite(fit.coefficients).all() or fit.separated:
        return nothing
    centre, reach = fit.coefficients[0], NormalDist().inv_cdf(1.0 - alpha / 2.0) * fit.stderr[0]
    rate, low, high = sigmoid(np.array([centre, centre - reach, centre + reach])).tolist()
    return AtEqualLength(rate, low, high, float(fit.coefficients[1]) if size > 0.0 else 0.0)


@dataclass(frozen=True)
class PromptSource:
    """Names of the win-rate measure for one set of prompts (training prompts or out of distribution)."""

    name: str
    title: str
    cost: str


PROMPTS = PromptSource("win_rate", "Wins", "quality")
OOD = PromptSource("win_rate_ood", "Wins on other prompts", "generality")


def measure(
    sampler: AnswerSampler, prompts: Prompts, referee: Referee, *, alpha: float, where: PromptSource = PROMPTS
) -> list[Measure]:
    """Two measures: the win rate, which can be worse, and the same at equal length, which is shown beside it."""
    base, checkpoint = (
        [answers[0].text for answers in sampler.answers(which, prompts.name, prompts.turns, sampler.samples)]
        for which in ("base", "checkpoint")
    )
    pairs = [
        AnswerPair(prompt, new, old, columns)
        for prompt, new, old, columns in zip(prompts.texts, checkpoint, base, prompts.columns, strict=True)
    ]
    outcomes = referee.outcomes(pairs, sampler.progress)
    return [win_rate(pairs, outcomes, referee, alpha, where), length_controlled(pairs, outcomes, referee, alpha, where)]


def win_rate(
    pairs: Sequence[AnswerPair], outcomes: Floats, referee: Referee, alpha: float, where: PromptSource
) -> Measure:
    """The share of wins, ties as half, with an interval that may be looked at after every batch."""
    finite = outcomes[np.isfinite(outcomes)]
    order_ties = referee.by_order(pairs)
    if len(finite) - order_ties < FEWEST:
        why = "".join(f" {times} times: {reason}." for reason, times in list(referee.faults.items())[:1])
        order = f", {order_ties} of them by their order alone" if order_ties else ""
        sentence = f"{len(finite)} of {len(pairs)} pairs were judged{order}; {FEWEST} must be, by what they say.{why}"
        return Measure(where.name, where.title, "cannot tell", sentence, where.cost, n=len(finite) - order_ties)
    mean, low, high = mean_interval(finite, alpha)
    wins, ties, losses = (int((finite == value).sum()) for value in (1.0, 0.5, 0.0))
    state = _state(low, high)
    row = {
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "decided by order": order_ties,
        "not judged": len(pairs) - len(finite),
    }
    return Measure(
        where.name, where.title, state,
        f"It wins {_rate(mean, low, high)} of {len(finite)} pairs, ties as half{_about(referee)}.",
        where.cost, "share of wins", 0.5, mean, mean - 0.5, low - 0.5, high - 0.5, len(finite), (row,),
        _examples(pairs, outcomes, state), FIX if state == "worse" else "",
    )  # fmt: skip


def length_controlled(
    pairs: Sequence[AnswerPair], outcomes: Floats, referee: Referee, alpha: float, where: PromptSource
) -> Measure:
    """The same at equal length: shown, and read by the verdict before wins are believed."""
    name, title = f"{where.name}_length_controlled", f"{where.title} at equal length"
    finite = np.isfinite(outcomes)
    longer = np.array([len(pair.first) - len(pair.second) for pair in pairs], np.float64)
    result = at_equal_length(outcomes[finite], longer[finite], alpha)
    if not math.isfinite(result.rate):
        sentence = "Length and winning cannot be told apart: too few pairs, or one of them decides the other."
        return Measure(name, title, "cannot tell", sentence, n=int(finite.sum()))
    return Measure(
        name, title, "shown",
        f"At equal length it wins {_rate(*result[:3])}{_about(referee)}.",
        "", "share of wins", 0.5, result.rate, result.rate - 0.5, result.low - 0.5, result.high - 0.5,
        int(finite.sum()),
        ({"longer by characters": float(np.mean(longer[finite])), "log-odds by length": result.slope},),
    )  # fmt: skip


def _state(low: float, high: float) -> State:
    if high < 0.5:
        return "worse"
    if low > 0.5:
        return "better"
    return "same" if low >= 0.5 - MATTERS and high <= 0.5 + MATTERS else "cannot tell"


def _rate(rate: float, low: float, high: float) -> str:
    return f"{percent(rate)} [{percent(low)}, {percent(high)}]"


def _about(referee: Referee) -> str:
    return " (about this judge)" if referee.judged else ""


def _examples(pairs: Sequence[AnswerPair], outcomes: Floats, state: State) -> tuple[Example, ...]:
    """Lost answers, and won ones unless it got worse; the shortest, which are read."""
    examples: list[Example] = []
    for value, why in ((0.0, "the base's answer won"), (1.0, "the checkpoint's answer won")):
        chosen = [pair for pair, outcome in zip(pairs, outcomes.tolist(), strict=True) if outcome == value]
        chosen.sort(key=lambda pair: len(pair.first) + len(pair.second))
        if value == 0.0 or state != "worse":
            examples += [example_answers(pair.prompt, pair.second, pair.first, why) for pair in chosen[:SHOWN]]
    return tuple(examples)
