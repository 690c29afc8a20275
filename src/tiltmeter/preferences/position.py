"""Whether an answer wins for being shown first: from one order, or from verdicts on both orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltmeter.preferences.decided import (
    EXAMPLES,
    FEWEST,
    LOG_ODDS,
    MATTERS,
    Decided,
    Floats,
    judged,
    reach,
    rounded,
    too_few,
)
from tiltmeter.preferences.finding import Example, Finding, State
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.stats.logistic import chances, fit_logistic
from tiltmeter.stats.paired import p_value, shift

ONE_ORDER = "share of choices for the answer shown first"
BOTH_ORDERS = "share of comparisons with the same verdict in both orders"
FIX = (
    "Ask for every comparison in both orders and keep only those with the same verdict, or show answers in random "
    "order; for a judge, average its two verdicts."
)


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Finding:
    """With verdicts on both orders: how often turning the answers round changes the verdict, and to whose gain. With
    one known order: how often the first answer is chosen, against one half; where answers are rated, of two equals.

    Found in both orders: of the verdicts that change, more go to one place than chance allows (an exact sign test, over
    raters at alpha / raters), and at least one comparison in twenty changes. The quality of the answers plays no part
    in that, since the same two are compared. Found in one order: the interval leaves out one half and the share is 55 %
    or more, or 45 % or less; without ratings, that better answers were not put first more often is taken on trust.
    """
    if pairs.swapped is not None and (np.isfinite(pairs.swapped) & np.isfinite(pairs.votes)).any():
        return _both_orders(pairs, pairs.swapped, alpha)
    if not pairs.order_known:
        said = "The data does not say which answer was shown first, so a preference for a place cannot be seen."
        return Finding("position", "cannot tell", said, unit=ONE_ORDER)
    return _one_order(pairs, alpha)


def _one_order(pairs: Comparisons, alpha: float) -> Finding:
    some = Decided.of(pairs)
    if why := too_few(some):
        return Finding("position", "cannot tell", f"Position: {why}", unit=ONE_ORDER, facts=some.counts)
    rated = some.better is not None and bool(some.better.any())
    plain = fit_logistic(np.ones((len(some), 1)), some.won, clusters=some.prompt)
    best = plain
    if some.better is not None and rated:
        best = fit_logistic(np.column_stack((np.ones(len(some)), some.better)), some.won, clusters=some.prompt)
    odds, near = reach(best, 0, alpha), reach(best, 0, 0.1)
    state = judged(*odds, (near[1], near[2]), 0.0, LOG_ODDS)
    share, low, high = chances(np.array(odds)).tolist()
    facts = {
        **some.counts,
        "matters": MATTERS,
        "log_odds": rounded(odds),
        "separated": best.separated,
        "first_chosen": rounded(chances(np.array(reach(plain, 0, alpha)))),
    }
    of = "Of two equally rated answers the one shown first" if rated else "The answer shown first"
    words = {
        "found": f"{of} is chosen {100 * share:.0f} times in 100.",
        "clear": f"Order hardly decides: {of[0].lower()}{of[1:]} is chosen {100 * share:.0f} times in 100.",
        "cannot tell": f"Whether order decides cannot be told from {len(some)} comparisons: {of[0].lower()}{of[1:]} is "
        f"chosen in {100 * share:.0f} %.",
    }[state]
    fix = FIX if state == "found" else ""
    rows = _by_rater(pairs, alpha) if len(pairs.raters) > 1 else []
    return Finding("position", state, words, share, low, high, ONE_ORDER, fix, facts, rows)


def _by_rater(pairs: Comparisons, alpha: float) -> list[dict[str, Any]]:
    rows = []
    for number, rater in enumerate(pairs.raters):
        votes = pairs.votes[:, number]
        sure = votes[(votes == 0.0) | (votes == 1.0)]
        found = chances(np.array(shift(np.zeros(len(sure)), int(sure.sum()), alpha))) if len(sure) else [np.nan] * 3
        share, low, high = rounded(list(found))
        rows.append({"rater": rater, "votes": len(sure), "first_chosen": share, "low": low, "high": high})
    return rows


@dataclass(frozen=True)
class Turned:
    """One rater's verdicts on comparisons that were shown in both orders."""

    rater: str
    judged: int
    same: int
    first: int  # went to whatever was shown first, both times
    second: int
    state: State
    p: float
    share: tuple[float, float, float]  # with the same verdict, and its interval
    pull: tuple[float, float, float]  # log-odds that being shown first adds

    @property
    def row(self) -> dict[str, Any]:
        share, low, high = rounded(self.share)
        pull, pull_low, pull_high = rounded(self.pull)
        return {
            "rater": self.rater,
            "comparisons": self.judged,
            "same_in_both_orders": share,
            "low": low,
            "high": high,
            "to_first_shown": self.first,
            "to_second_shown": self.second,
            "log_odds_of_first": pull,
            "log_odds_low": pull_low,
            "log_odds_high": pull_high,
            "p": float(f"{self.p:.3g}"),
            "state": self.state,
        }


def _both_orders(pairs: Comparisons, swapped: Floats, alpha: float) -> Finding:
    """Per rater; the finding tells of the one whose verdicts change most among those found, else of all together."""
    raters = [
        _turned(str(rater), pairs.votes[:, number], swapped[:, number], alpha / len(pairs.raters))
        for number, rater in enumerate(pairs.raters)
    ]
    everyone = _turned("all", pairs.votes.ravel(), swapped.ravel(), alpha)
    found = sorted((one for one in raters if one.state == "found"), key=lambda one: one.share[0])
    shown = found[0] if found else raters[0] if len(raters) == 1 else everyone
    state: State = "found" if found else everyone.state if everyone.state != "found" else "cannot tell"
    if not found and any(one.state == "cannot tell" for one in raters):
        state = "cannot tell"
    name = f"{shown.rater}: " if len(raters) > 1 else ""
    place, gain = ("first", shown.first) if shown.first >= shown.second else ("second", shown.second)
    changed = shown.judged - shown.same
    said = f"{name}{100 * shown.share[0]:.0f} % of verdicts are the same in both orders"
    if state == "found":
        said += f"; of the {changed} that change, {gain} go to the answer shown {place}."
    elif state == "clear":
        said += f" ({shown.judged} comparisons): order hardly decides."
    else:
        said += (
            f"; of the {changed} that change, {gain} go to the answer shown {place}, which may be chance: ask again "
        )
        said += "in the same order to see how many change by themselves."
    facts = {
        "comparisons": everyone.judged,
        "consistency": round(everyone.share[0], 4) if everyone.judged else None,
        "log_odds": rounded(shown.pull),
        "matters": MATTERS,
        "raters_found": [one.rater for one in found],
    }
    rows = [one.row for one in sorted(raters, key=lambda one: (one.state != "found", one.share[0]))]
    shown_items = _examples(pairs, swapped) if found else []
    return Finding("position", state, said, *shown.share, BOTH_ORDERS, FIX if found else "", facts, rows, shown_items)


def _turned(rater: str, votes: Floats, swapped: Floats, alpha: float) -> Turned:
    """A verdict that turns with the order pays the place: of the same two answers P(first both times) over P(second
    both times) is e^(2 d), where being shown first adds d to the log-odds, whatever the answers are."""
    known = np.isfinite(votes) & np.isfinite(swapped)
    votes, swapped = votes[known], swapped[known]
    same = int((votes == swapped).sum())
    first, second = int((votes > swapped).sum()), int((votes < swapped).sum())
    changed, judged_ = first + second, len(votes)
    share = chances(np.array(shift(np.zeros(judged_), same, alpha))) if judged_ else np.full(3, np.nan)
    pull = np.array(shift(np.zeros(changed), first, alpha)) / 2.0 if changed else np.full(3, np.nan)
    p = p_value(np.full(changed, 0.5), first) if changed else 1.0
    state: State = "cannot tell"
    if p <= alpha and changed >= MATTERS * judged_:
        state = "found"
    elif judged_ >= FEWEST and _harmless(changed, judged_):
        state = "clear"
    ends = (float(share[0]), float(share[1]), float(share[2]))
    pulls = (float(pull[0]), float(pull[1]), float(pull[2]))
    return Turned(rater, judged_, same, first, second, state, p, ends, pulls)


def _harmless(changed: int, of: int) -> bool:
    """Whether the changes are surely few; by a 90 % interval, as in `judged`."""
    return bool(chances(np.array(shift(np.zeros(of), changed, 0.1)))[2] < MATTERS)


def _examples(pairs: Comparisons, swapped: Floats) -> list[Example]:
    """Comparisons in which most raters' verdict turned with the order."""
    turned = np.nansum(np.abs(pairs.votes - swapped), axis=1)
    found = []
    for item in np.argsort(-turned, kind="stable")[:EXAMPLES].tolist():
        if turned[item] > 0.0:
            why = f"{turned[item]:g} of {len(pairs.raters)} verdicts changed when the answers were turned round"
            found.append(Example(pairs.row(item), pairs.prompts[item], pairs.first[item], pairs.second[item], why))
    return found
