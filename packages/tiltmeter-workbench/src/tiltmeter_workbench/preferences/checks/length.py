"""Check: length bias, whether the longer answer wins for being longer."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks.decided_pairs import (
    EXAMPLES,
    LOG_ODDS,
    DecidedPairs,
    Floats,
    coefficient_interval,
    interval_state,
    round_values,
    too_few,
    word_counts,
)
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import fit_logistic, sigmoid

UNIT = "log-odds of winning for twice as many words"
CARRIED = 0.25  # share of the sum of squares; if one prompt has more, a single label decides the estimate
#: Bins of the table: how many times as long the longer answer is.
EDGES = (1.0, 1.25, 1.5, 2.0, 3.0, math.inf)


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Log-odds of winning for each doubling of the number of words; with rated quality held equal where it is known.

    Found: the interval at `alpha` leaves out 0, and an answer twice as long wins at least 55 times in 100. A long
    answer may be the better one: without ratings that cannot be told apart, and the sentence says so.
    """
    decided = DecidedPairs.of(pairs)
    if why := too_few(decided):
        return Check("length", "cannot tell", f"Length: {why}", unit=UNIT, facts=decided.counts)
    if not decided.doublings.any():
        return Check("length", "clear", "Both answers always have as many words.", unit=UNIT, facts=decided.counts)
    rated = _rated(decided)
    plain, near, facts = _effect(decided, quality=False, alpha=alpha)
    facts = {**decided.counts, **facts, "matters": round(LOG_ODDS, 4), "raw": round_values(plain)}
    if rated is not None:
        best, near, further = _effect(rated, quality=True, alpha=alpha)
        facts |= {"with_quality": round_values(best), "rated": len(rated), "separated": further["separated"]}
    else:
        best = plain
    state = interval_state(*best, near, 0.0, LOG_ODDS)
    if state == "clear" and _largest_prompt_share(decided if rated is None else rated) > CARRIED:
        state = "cannot tell"
    return Check(
        "length",
        state,
        _sentence(state, best, facts, rated is not None),
        *best,
        UNIT,
        _fix(best[0]) if state == "found" else "",
        facts,
        _bins(decided),
        _examples(decided, best[0]) if state == "found" else (),
    )


def _rated(decided: DecidedPairs) -> DecidedPairs | None:
    """Those with a rating of both answers; None where they are too few or never differ."""
    if decided.pairs.quality is None:
        return None
    finite = np.flatnonzero(np.isfinite(decided.pairs.quality).all(axis=1))
    rated = decided if len(finite) == len(decided) else DecidedPairs.of(decided.pairs.at(finite))
    if too_few(rated) or rated.better is None or not rated.better.any() or not rated.doublings.any():
        return None
    return rated


def _largest_prompt_share(decided: DecidedPairs) -> float:
    """The largest share that one prompt has of the sum of squared length differences."""
    weight = np.bincount(decided.prompt, np.square(decided.doublings))
    return float(weight.max() / weight.sum())


def _effect(
    decided: DecidedPairs, *, quality: bool, alpha: float
) -> tuple[tuple[float, float, float], tuple[float, float], dict[str, Any]]:
    fit = fit_logistic(decided.table(quality=quality), decided.won, clusters=decided.prompt)
    longer = decided.doublings != 0.0
    wins = ((decided.doublings > 0.0) == (decided.won == 1.0))[longer]
    share = fit_logistic(np.ones((len(wins), 1)), wins.astype(np.float64), clusters=decided.prompt[longer])
    facts = {
        "longer_preferred": round_values(sigmoid(np.array(coefficient_interval(share, 0, alpha)))),
        "same_length": int((~longer).sum()),
        "separated": fit.separated,
    }
    _, *near = coefficient_interval(fit, 0, 0.1)
    return coefficient_interval(fit, 0, alpha), (near[0], near[1]), facts


def _sentence(state: str, best: tuple[float, float, float], facts: dict[str, Any], rated: bool) -> str:
    twice = 100.0 * float(sigmoid(np.array([best[0]]))[0])
    share = facts["longer_preferred"][0]
    often = f"the longer answer is preferred in {100.0 * share:.0f} % of comparisons" if share is not None else ""
    caveat = "at equal rated quality" if rated else "quality is not rated, so better and longer cannot be told apart"
    if state == "found":
        return f"An answer twice as long wins {twice:.0f} times in 100 ({often}; {caveat})."
    if state == "clear":
        return f"Length hardly decides: an answer twice as long wins {twice:.0f} times in 100 ({often})."
    return f"Whether length decides cannot be told from {facts['decided']} comparisons ({often})."


def _fix(estimate: float) -> str:
    side = "longer" if estimate > 0 else "shorter"
    return (
        f"Train on a subset in which the {side} answer wins half of the time (`--balanced`), or report and train on "
        "length-controlled win rates: give the reward model the length as an input and take its part off."
    )


def _bins(decided: DecidedPairs) -> list[dict[str, Any]]:
    """How often the longer one wins, by how much longer it is."""
    times = np.exp2(np.abs(decided.doublings))
    wins = (decided.doublings > 0.0) == (decided.won == 1.0)
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


def _examples(decided: DecidedPairs, estimate: float) -> list[Any]:
    """The largest differences that went the way of the bias."""
    gain: Floats = decided.doublings * np.where(decided.won == 1.0, 1.0, -1.0) * np.sign(estimate)
    first, second = word_counts(tuple(decided.pairs.first)), word_counts(tuple(decided.pairs.second))
    examples = []
    for item in np.argsort(-gain, kind="stable")[:EXAMPLES].tolist():
        words = (int(first[item]), int(second[item]))
        won, lost = words if decided.won[item] else words[::-1]
        examples.append(decided.example(item, f"{won} words were preferred to {lost}"))
    return examples
