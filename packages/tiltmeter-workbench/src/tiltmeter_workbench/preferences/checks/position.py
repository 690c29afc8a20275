"""Check: position bias, whether an answer wins for being shown first; from one order or from both orders."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltmeter_workbench.check_report.report import Check, Example
from tiltmeter_workbench.preferences.checks.decided_pairs import (
    EXAMPLES,
    FEWEST,
    LOG_ODDS,
    MATTERS,
    DecidedPairs,
    Floats,
    coefficient_interval,
    interval_state,
    round_values,
    too_few,
)
from tiltmeter_workbench.preferences.finding import State, example_pair
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import fit_logistic, sigmoid
from tiltmeter_workbench.stats.paired_wins import p_value, shift

ONE_ORDER = "share of choices for the answer shown first"
BOTH_ORDERS = "share of comparisons with the same verdict in both orders"
FIX = (
    "Ask for every comparison in both orders and keep only those with the same verdict, or show answers in random "
    "order; for a judge, average its two verdicts."
)


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """With verdicts on both orders: how often turning the answers round changes the verdict, and to whose gain. With
    one known order: how often the first answer is chosen, against one half; where answers are rated, of two equals.

    Found in both orders: of the verdicts that change, more go to one place than chance allows (an exact sign test, over
    raters at alpha / raters), and at least one comparison in twenty changes. The quality of the answers plays no part
    in that, since the same two are compared. Found in one order: the interval leaves out one half and the share is 55 %
    or more, or 45 % or less; without ratings, it is assumed that better answers were not shown first more often.
    """
    if pairs.swapped is not None and (np.isfinite(pairs.swapped) & np.isfinite(pairs.votes)).any():
        return _both_orders(pairs, pairs.swapped, alpha)
    if not pairs.order_known:
        sentence = "The data does not say which answer was shown first, so a preference for a place cannot be seen."
        return Check("position", "cannot tell", sentence, unit=ONE_ORDER)
    return _one_order(pairs, alpha)


def _one_order(pairs: Comparisons, alpha: float) -> Check:
    decided = DecidedPairs.of(pairs)
    if why := too_few(decided):
        return Check("position", "cannot tell", f"Position: {why}", unit=ONE_ORDER, facts=decided.counts)
    rated = decided.better is not None and bool(decided.better.any())
    plain = fit_logistic(np.ones((len(decided), 1)), decided.won, clusters=decided.prompt)
    best = plain
    if decided.better is not None and rated:
        best = fit_logistic(
            np.column_stack((np.ones(len(decided)), decided.better)), decided.won, clusters=decided.prompt
        )
    odds, near = coefficient_interval(best, 0, alpha), coefficient_interval(best, 0, 0.1)
    state = interval_state(*odds, (near[1], near[2]), 0.0, LOG_ODDS)
    share, low, high = sigmoid(np.array(odds)).tolist()
    facts = {
        **decided.counts,
        "matters": MATTERS,
        "log_odds": round_values(odds),
        "separated": best.separated,
        "first_chosen": round_values(sigmoid(np.array(coefficient_interval(plain, 0, alpha)))),
    }
    of = "Of two equally rated answers the one shown first" if rated else "The answer shown first"
    words = {
        "found": f"{of} is chosen {100 * share:.0f} times in 100.",
        "clear": f"Order hardly decides: {of[0].lower()}{of[1:]} is chosen {100 * share:.0f} times in 100.",
        "cannot tell": f"Whether order decides cannot be told from {len(decided)} comparisons: {of[0].lower()}{of[1:]} "
        f"is chosen in {100 * share:.0f} %.",
    }[state]
    fix = FIX if state == "found" else ""
    rows = _by_rater(pairs, alpha) if len(pairs.raters) > 1 else []
    return Check("position", state, words, share, low, high, ONE_ORDER, fix, facts, rows)


def _by_rater(pairs: Comparisons, alpha: float) -> list[dict[str, Any]]:
    rows = []
    for number, rater in enumerate(pairs.raters):
        votes = pairs.votes[:, number]
        sure = votes[(votes == 0.0) | (votes == 1.0)]
        interval = sigmoid(np.array(shift(np.zeros(len(sure)), int(sure.sum()), alpha))) if len(sure) else [np.nan] * 3
        share, low, high = round_values(list(interval))
        rows.append({"rater": rater, "votes": len(sure), "first_chosen": share, "low": low, "high": high})
    return rows


@dataclass(frozen=True)
class OrderFlips:
    """One rater's verdicts on comparisons that were shown in both orders."""

    rater: str
    comparisons: int
    same: int
    first: int  # went to whatever was shown first, both times
    second: int
    state: State
    p: float
    share: tuple[float, float, float]  # with the same verdict, and its interval
    pull: tuple[float, float, float]  # log-odds that being shown first adds

    @property
    def row(self) -> dict[str, Any]:
        share, low, high = round_values(self.share)
        pull, pull_low, pull_high = round_values(self.pull)
        return {
            "rater": self.rater,
            "comparisons": self.comparisons,
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


def _both_orders(pairs: Comparisons, swapped: Floats, alpha: float) -> Check:
    """Per rater; the finding tells of the one whose verdicts change most among those found, else of all together."""
    raters = [
        _order_flips(str(rater), pairs.votes[:, number], swapped[:, number], alpha / len(pairs.raters))
        for number, rater in enumerate(pairs.raters)
    ]
    everyone = _order_flips("all", pairs.votes.ravel(), swapped.ravel(), alpha)
    biased = sorted((one for one in raters if one.state == "found"), key=lambda one: one.share[0])
    summary = biased[0] if biased else raters[0] if len(raters) == 1 else everyone
    state: State = "found" if biased else everyone.state if everyone.state != "found" else "cannot tell"
    if not biased and any(one.state == "cannot tell" for one in raters):
        state = "cannot tell"
    name = f"{summary.rater}: " if len(raters) > 1 else ""
    place, gain = ("first", summary.first) if summary.first >= summary.second else ("second", summary.second)
    changed = summary.comparisons - summary.same
    sentence = f"{name}{100 * summary.share[0]:.0f} % of verdicts are the same in both orders"
    if state == "found":
        sentence += f"; of the {changed} that change, {gain} go to the answer shown {place}."
    elif state == "clear":
        sentence += f" ({summary.comparisons} comparisons): order hardly decides."
    else:
        sentence += (
            f"; of the {changed} that change, {gain} go to the answer shown {place}, which may be chance: ask again "
        )
        sentence += "in the same order to see how many change by themselves."
    facts = {
        "comparisons": everyone.comparisons,
        "consistency": round(everyone.share[0], 4) if everyone.comparisons else None,
        "log_odds": round_values(summary.pull),
        "matters": MATTERS,
        "raters_found": [one.rater for one in biased],
    }
    rows = [one.row for one in sorted(raters, key=lambda one: (one.state != "found", one.share[0]))]
    examples = _examples(pairs, swapped) if biased else []
    return Check("position", state, sentence, *summary.share, BOTH_ORDERS, FIX if biased else "", facts, rows, examples)


def _order_flips(rater: str, votes: Floats, swapped: Floats, alpha: float) -> OrderFlips:
    """A verdict that changes with the order follows the position: of the same two answers P(first both times) over
    P(second both times) is e^(2 d), where being shown first adds d to the log-odds, whatever the answers are."""
    both = np.isfinite(votes) & np.isfinite(swapped)
    votes, swapped = votes[both], swapped[both]
    same = int((votes == swapped).sum())
    first, second = int((votes > swapped).sum()), int((votes < swapped).sum())
    changed, count = first + second, len(votes)
    share = sigmoid(np.array(shift(np.zeros(count), same, alpha))) if count else np.full(3, np.nan)
    pull = np.array(shift(np.zeros(changed), first, alpha)) / 2.0 if changed else np.full(3, np.nan)
    p = p_value(np.full(changed, 0.5), first) if changed else 1.0
    state: State = "cannot tell"
    if p <= alpha and changed >= MATTERS * count:
        state = "found"
    elif count >= FEWEST and _hardly_flips(changed, count):
        state = "clear"
    ends = (float(share[0]), float(share[1]), float(share[2]))
    pulls = (float(pull[0]), float(pull[1]), float(pull[2]))
    return OrderFlips(rater, count, same, first, second, state, p, ends, pulls)


def _hardly_flips(changed: int, of: int) -> bool:
    """Whether the changes are surely few; by a 90 % interval, as in `interval_state`."""
    return bool(sigmoid(np.array(shift(np.zeros(of), changed, 0.1)))[2] < MATTERS)


def _examples(pairs: Comparisons, swapped: Floats) -> list[Example]:
    """Comparisons in which most raters' verdict turned with the order."""
    flips = np.nansum(np.abs(pairs.votes - swapped), axis=1)
    examples = []
    for item in np.argsort(-flips, kind="stable")[:EXAMPLES].tolist():
        if flips[item] > 0.0:
            why = f"{flips[item]:g} of {len(pairs.raters)} verdicts changed when the answers were turned round"
            examples.append(
                example_pair(pairs.row(item), pairs.prompts[item], pairs.first[item], pairs.second[item], why)
            )
    return examples
