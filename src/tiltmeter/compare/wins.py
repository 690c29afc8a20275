"""How often the checkpoint's answer is better than its base's: as it is, and at equal length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.compare.asking import Duel
from tiltmeter.compare.difference import percent
from tiltmeter.compare.judging import Referee
from tiltmeter.compare.measure import Example, Measure, State
from tiltmeter.compare.samples import Material, Prompts
from tiltmeter.stats.confidence import mean_interval
from tiltmeter.stats.logistic import chances, fit_logistic

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
    >>> found = at_equal_length((rng.random(2000) < chances(odds)).astype(float), longer, 0.05)
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
    rate, low, high = chances(np.array([centre, centre - reach, centre + reach])).tolist()
    return AtEqualLength(rate, low, high, float(fit.coefficients[1]) if size > 0.0 else 0.0)


@dataclass(frozen=True)
class Where:
    """Which prompts are meant, in names and in words."""

    name: str
    title: str
    cost: str


PROMPTS = Where("win_rate", "Wins", "quality")
OOD = Where("win_rate_ood", "Wins on other prompts", "generality")


def measured(
    material: Material, prompts: Prompts, referee: Referee, *, alpha: float, where: Where = PROMPTS
) -> list[Measure]:
    """Two measures: the win rate, which can be worse, and the same at equal length, which is shown beside it."""
    base, checkpoint = (
        [answers[0].text for answers in material.answers(which, prompts.name, prompts.turns, material.samples)]
        for which in ("base", "checkpoint")
    )
    duels = [
        Duel(prompt, new, old, columns)
        for prompt, new, old, columns in zip(prompts.texts, checkpoint, base, prompts.columns, strict=True)
    ]
    outcomes = referee.outcomes(duels, material.progress)
    return [raw(duels, outcomes, referee, alpha, where), controlled(duels, outcomes, referee, alpha, where)]


def raw(duels: Sequence[Duel], outcomes: Floats, referee: Referee, alpha: float, where: Where) -> Measure:
    """The share of wins, ties as half, with an interval that may be looked at after every batch."""
    known = outcomes[np.isfinite(outcomes)]
    turned = referee.by_order(duels)
    if len(known) - turned < FEWEST:
        why = "".join(f" {times} times: {reason}." for reason, times in list(referee.faults.items())[:1])
        order = f", {turned} of them by their order alone" if turned else ""
        told = f"{len(known)} of {len(duels)} pairs were judged{order}; {FEWEST} must be, by what they say.{why}"
        return Measure(where.name, where.title, "cannot tell", told, where.cost, n=len(known) - turned)
    mean, low, high = mean_interval(known, alpha)
    wins, ties, losses = (int((known == value).sum()) for value in (1.0, 0.5, 0.0))
    state = _state(low, high)
    row = {
        "wins": wins,
        "ties": ties,
        "losses": losses,
        "decided by order": turned,
        "not judged": len(duels) - len(known),
    }
    return Measure(
        where.name, where.title, state,
        f"It wins {_rate(mean, low, high)} of {len(known)} pairs, ties as half{_about(referee)}.",
        where.cost, "share of wins", 0.5, mean, mean - 0.5, low - 0.5, high - 0.5, len(known), (row,),
        _examples(duels, outcomes, state), FIX if state == "worse" else "",
    )  # fmt: skip


def controlled(duels: Sequence[Duel], outcomes: Floats, referee: Referee, alpha: float, where: Where) -> Measure:
    """The same at equal length: shown, and read by the verdict before wins are believed."""
    name, title = f"{where.name}_length_controlled", f"{where.title} at equal length"
    known = np.isfinite(outcomes)
    longer = np.array([len(duel.first) - len(duel.second) for duel in duels], np.float64)
    found = at_equal_length(outcomes[known], longer[known], alpha)
    if not math.isfinite(found.rate):
        told = "Length and winning cannot be told apart: too few pairs, or one of them decides the other."
        return Measure(name, title, "cannot tell", told, n=int(known.sum()))
    return Measure(
        name, title, "shown",
        f"At equal length it wins {_rate(*found[:3])}{_about(referee)}.",
        "", "share of wins", 0.5, found.rate, found.rate - 0.5, found.low - 0.5, found.high - 0.5, int(known.sum()),
        ({"longer by characters": float(np.mean(longer[known])), "log-odds by length": found.slope},),
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


def _examples(duels: Sequence[Duel], outcomes: Floats, state: State) -> tuple[Example, ...]:
    """Lost answers, and won ones unless it got worse; the shortest, which are read."""
    found: list[Example] = []
    for value, why in ((0.0, "the base's answer won"), (1.0, "the checkpoint's answer won")):
        chosen = [duel for duel, outcome in zip(duels, outcomes.tolist(), strict=True) if outcome == value]
        chosen.sort(key=lambda duel: len(duel.first) + len(duel.second))
        if value == 0.0 or state != "worse":
            found += [Example(duel.prompt, duel.second, duel.first, why) for duel in chosen[:SHOWN]]
    return tuple(found)
