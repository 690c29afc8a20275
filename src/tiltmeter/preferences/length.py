"""Whether the longer answer wins for being longer."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from tiltmeter.preferences.decided import (
    EXAMPLES,
    LOG_ODDS,
    Decided,
    Floats,
    judged,
    lengths,
    reach,
    rounded,
    too_few,
)
from tiltmeter.preferences.finding import Finding
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.stats.logistic import chances, fit_logistic

UNIT = "log-odds of winning for twice as many words"
CARRIED = 0.25  # of the sum of squares: where one prompt has more, a single label decides how small the effect is
#: Bins of the table: how many times as long the longer answer is.
EDGES = (1.0, 1.25, 1.5, 2.0, 3.0, math.inf)


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Finding:
    """Log-odds of winning for each doubling of the number of words; with rated quality held equal where it is known.

    Found: the interval at `alpha` leaves out 0, and an answer twice as long wins at least 55 times in 100. A long
    answer may be the better one: without ratings that cannot be told apart, and the sentence says so.
    """
    some = Decided.of(pairs)
    if why := too_few(some):
        return Finding("length", "cannot tell", f"Length: {why}", unit=UNIT, facts=some.counts)
    if not some.doublings.any():
        return Finding("length", "clear", "Both answers always have as many words.", unit=UNIT, facts=some.counts)
    rated = _rated(some)
    plain, near, facts = _effect(some, quality=False, alpha=alpha)
    facts = {**some.counts, **facts, "matters": round(LOG_ODDS, 4), "raw": rounded(plain)}
    if rated is not None:
        best, near, further = _effect(rated, quality=True, alpha=alpha)
        facts |= {"with_quality": rounded(best), "rated": len(rated), "separated": further["separated"]}
    else:
        best = plain
    state = judged(*best, near, 0.0, LOG_ODDS)
    if state == "clear" and _carried(some if rated is None else rated) > CARRIED:
        state = "cannot tell"
    return Finding(
        "length",
        state,
        _sentence(state, best, facts, rated is not None),
        *best,
        UNIT,
        _fix(best[0]) if state == "found" else "",
        facts,
        _bins(some),
        _examples(some, best[0]) if state == "found" else (),
    )


def _rated(some: Decided) -> Decided | None:
    """Those with a rating of both answers; None where they are too few or never differ."""
    if some.pairs.quality is None:
        return None
    known = np.flatnonzero(np.isfinite(some.pairs.quality).all(axis=1))
    rated = some if len(known) == len(some) else Decided.of(some.pairs.at(known))
    if too_few(rated) or rated.better is None or not rated.better.any() or not rated.doublings.any():
        return None
    return rated


def _carried(some: Decided) -> float:
    """The part of what is known about length that the most unequal prompt has."""
    weight = np.bincount(some.prompt, np.square(some.doublings))
    return float(weight.max() / weight.sum())


def _effect(
    some: Decided, *, quality: bool, alpha: float
) -> tuple[tuple[float, float, float], tuple[float, float], dict[str, Any]]:
    fit = fit_logistic(some.table(quality=quality), some.won, clusters=some.prompt)
    longer = some.doublings != 0.0
    wins = ((some.doublings > 0.0) == (some.won == 1.0))[longer]
    share = fit_logistic(np.ones((len(wins), 1)), wins.astype(np.float64), clusters=some.prompt[longer])
    facts = {
        "longer_preferred": rounded(chances(np.array(reach(share, 0, alpha)))),
        "same_length": int((~longer).sum()),
        "separated": fit.separated,
    }
    _, *near = reach(fit, 0, 0.1)
    return reach(fit, 0, alpha), (near[0], near[1]), facts


def _sentence(state: str, best: tuple[float, float, float], facts: dict[str, Any], rated: bool) -> str:
    twice = 100.0 * float(chances(np.array([best[0]]))[0])
    share = facts["longer_preferred"][0]
    often = f"the longer answer is preferred in {100.0 * share:.0f} % of comparisons" if share is not None else ""
    given = "at equal rated quality" if rated else "quality is not rated, so better and longer cannot be told apart"
    if state == "found":
        return f"An answer twice as long wins {twice:.0f} times in 100 ({often}; {given})."
    if state == "clear":
        return f"Length hardly decides: an answer twice as long wins {twice:.0f} times in 100 ({often})."
    return f"Whether length decides cannot be told from {facts['decided']} comparisons ({often})."


def _fix(estimate: float) -> str:
    side = "longer" if estimate > 0 else "shorter"
    return (
        f"Train on a subset in which the {side} answer wins half of the time (`--balanced`), or report and train on "
        "length-controlled win rates: give the reward model the length as an input and take its part off."
    )


def _bins(some: Decided) -> list[dict[str, Any]]:
    """How often the longer one wins, by how much longer it is."""
    times = np.exp2(np.abs(some.doublings))
    wins = (some.doublings > 0.0) == (some.won == 1.0)
    rows = []
    for low, high in pairwise(EDGES):
        here = (times > low) & (times <= high)
        rows.append(
            {
                "times_as_long": f"{low:g} to {high:g}" if math.isfinite(high) else f"more than {low:g}",
                "comparisons": int(here.sum()),
                "longer_preferred": round(float(wins[here].mean()), 4) if here.any() else None,
            }
        )
    return rows


def _examples(some: Decided, estimate: float) -> list[Any]:
    """The largest differences that went the way of the bias."""
    gain: Floats = some.doublings * np.where(some.won == 1.0, 1.0, -1.0) * np.sign(estimate)
    first, second = lengths(tuple(some.pairs.first)), lengths(tuple(some.pairs.second))
    found = []
    for item in np.argsort(-gain, kind="stable")[:EXAMPLES].tolist():
        words = (int(first[item]), int(second[item]))
        won, lost = words if some.won[item] else words[::-1]
        found.append(some.example(item, f"{won} words were preferred to {lost}"))
    return found
