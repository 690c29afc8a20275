"""Check: how many labels a model predicts from length and form alone, without reading the answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_workbench.check_report.report import Check, Example
from tiltmeter_workbench.preferences.checks.decided_pairs import (
    EXAMPLES,
    MATTERS,
    DecidedPairs,
    Floats,
    Ints,
    round_values,
    too_few,
)
from tiltmeter_workbench.preferences.checks.form import FORMS, count_forms
from tiltmeter_workbench.preferences.finding import State
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import fit_logistic, out_of_fold

UNIT = "share of labels predicted"
# Fixed before anything was measured.
FOLDS = 10
RIDGE = 10.0  # prior comparisons' worth for each feature: a dozen features and a few hundred labels must not overfit
# What is shown; chosen after a first look at real data, and no part of the verdict.
CARRIERS = 6  # features whose worth is measured by leaving them out
WORTH = 0.01  # of the labels: a feature that carries less is not named
VALUABLE = 50  # wrongly predicted comparisons that are named, surest mistakes first


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """A logistic reward model on the number of words and the counts of forms alone, cross-validated by prompt.

    Found: the lower end of its share of right predictions is above 55 %. Clear: a 90 % interval ends
    below that, and reaches less than 5 % to either side. What shallow features predict a reward model
    will learn from shallow features, whatever it could have read. Labels that it gets wrong are the valuable ones: only
    reading explains them. They are named in `facts` by row.
    """
    decided = DecidedPairs.of(pairs)
    if why := too_few(decided):
        return Check("shallow", "cannot tell", f"Shallow features: {why}", unit=UNIT, facts=decided.counts)
    table = _features(decided)
    parts = {"length": table[:, :1], "form": table[:, 1:], "length and form": table}
    guesses = {name: _guess(part, decided, seed) for name, part in parts.items()}
    best = _share(_right(guesses["length and form"], decided.won), decided.prompt, alpha)
    near = _share(_right(guesses["length and form"], decided.won), decided.prompt, 0.1)
    # Far below one half is no comfort: with few labels, a model that learnt nothing lands there.
    harmless = near[2] < 0.5 + MATTERS and near[2] - near[0] < MATTERS
    state: State = "found" if best[1] > 0.5 + MATTERS else "clear" if harmless else "cannot tell"
    wrong = _mistakes(guesses["length and form"], decided.won)
    rows = _alone(decided, guesses, alpha) + (_without_each(decided, table, best[0], seed) if state == "found" else [])
    facts = {
        **decided.counts,
        "matters": 0.5 + MATTERS,
        "carried_by": [row["feature"] for row in rows if row["kind"] == "left out" and row["worth"] >= WORTH][:3],
        "valuable_rows": [decided.pairs.row(item) for item in wrong.tolist()],
    }
    share = f"{100.0 * best[0]:.0f} %"
    sentence = {
        "found": f"{share} of the labels are predicted by length and form alone, without reading an answer.",
        "clear": f"Length and form alone predict {share} of the labels, about as many as a coin.",
        "cannot tell": f"Length and form alone predict {share} of {len(decided)} labels; "
        "more than 55 % is not certain.",
    }[state]
    fix = (
        "Balance length and form (`--balanced`), and weigh or collect more comparisons in which the plainer answer "
        "wins: the rows under `valuable_rows` are such."
    )
    is_found = state == "found"
    examples = _examples(decided, guesses["length and form"], wrong) if is_found else []
    return Check("shallow", state, sentence, *best, UNIT, fix if is_found else "", facts, rows, examples)


def _features(decided: DecidedPairs) -> Floats:
    first, second = (np.log1p(count_forms(tuple(side))) for side in (decided.pairs.first, decided.pairs.second))
    return np.column_stack((decided.doublings, first - second))


def _guess(part: Floats, decided: DecidedPairs, seed: int) -> Floats:
    return out_of_fold(part, decided.won, decided.prompt, folds=FOLDS, ridge=RIDGE, seed=seed)


def _right(guess: Floats, won: Floats) -> Floats:
    """1 for a right prediction, 0 for a wrong one, one half where there is none."""
    return np.where(guess == 0.5, 0.5, ((guess > 0.5) == (won == 1.0)).astype(np.float64))


def _share(right: Floats, prompt: Ints, alpha: float) -> tuple[float, float, float]:
    """Mean with an interval by prompts."""
    share, m = float(right.mean()), int(prompt.max()) + 1
    sums = np.bincount(prompt, weights=right - share, minlength=m)
    wide = student_t_quantile(m - 1, 1.0 - alpha) * float(np.sqrt(np.square(sums).sum() * m / (m - 1))) / len(right)
    return share, max(0.0, share - wide), min(1.0, share + wide)


def _alone(decided: DecidedPairs, guesses: dict[str, Floats], alpha: float) -> list[dict[str, Any]]:
    """What sets of features predict by themselves."""
    rows: list[dict[str, Any]] = []
    for name, guess in guesses.items():
        share, low, high = round_values(_share(_right(guess, decided.won), decided.prompt, alpha))
        rows.append({"kind": "alone", "feature": name, "predicted": share, "low": low, "high": high, "worth": None})
    return rows


def _without_each(decided: DecidedPairs, table: Floats, whole: float, seed: int) -> list[dict[str, Any]]:
    """What leaving out one feature costs, for those with the largest weights."""
    varies = np.flatnonzero(table.any(axis=0))
    scale = np.sqrt(np.square(table[:, varies]).mean(axis=0))
    weight = np.abs(fit_logistic(table[:, varies] / scale, decided.won, ridge=RIDGE).coefficients)
    names = ("length", *FORMS)
    rows: list[tuple[float, dict[str, Any]]] = []
    for column in varies[np.argsort(-weight, kind="stable")][:CARRIERS].tolist():
        share = float(_right(_guess(np.delete(table, column, axis=1), decided, seed), decided.won).mean())
        row = {"kind": "left out", "feature": names[column], "predicted": round(share, 4), "low": None, "high": None}
        rows.append((whole - share, {**row, "worth": round(whole - share, 4)}))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _mistakes(guess: Floats, won: Floats) -> Ints:
    """Surest mistakes first."""
    sure = np.where(won == 1.0, 0.5 - guess, guess - 0.5)
    order = np.argsort(-sure, kind="stable")
    return order[sure[order] > 0.0][:VALUABLE]


def _examples(decided: DecidedPairs, guess: Floats, wrong: Ints) -> list[Example]:
    examples = []
    for item in wrong[:EXAMPLES].tolist():
        sure = guess[item] if guess[item] > 0.5 else 1.0 - guess[item]
        examples.append(
            decided.example(item, f"valuable: length and form said {100 * sure:.0f} % for the other answer")
        )
    return examples
