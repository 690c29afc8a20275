"""How many labels a reward model would get right that reads nothing but length and looks: the alarm for the rest."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiltmeter.preferences.decided import EXAMPLES, MATTERS, Decided, Floats, Ints, rounded, too_few
from tiltmeter.preferences.finding import Example, Finding, State
from tiltmeter.preferences.form import FORMS, counted
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.stats.intervals import student
from tiltmeter.stats.logistic import fit_logistic, out_of_fold

UNIT = "share of labels predicted"
# Fixed before anything was measured.
FOLDS = 10
RIDGE = 10.0  # prior comparisons' worth for each feature: a dozen features and a few hundred labels must not overfit
# What is shown; chosen after a first look at real data, and no part of the verdict.
CARRIERS = 6  # features whose worth is measured by leaving them out
WORTH = 0.01  # of the labels: a feature that carries less is not named
VALUABLE = 50  # wrongly predicted comparisons that are named, surest mistakes first


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Finding:
    """A logistic reward model on the number of words and the counts of forms alone, cross-validated by prompt.

    Found: the lower end of its share of right predictions is above 55 %. Clear: a 90 % interval ends
    below that, and reaches less than 5 % to either side. What shallow features predict a reward model
    will learn from shallow features, whatever it could have read. Labels that it gets wrong are the valuable ones: only
    reading explains them. They are named in `facts` by row.
    """
    some = Decided.of(pairs)
    if why := too_few(some):
        return Finding("shallow", "cannot tell", f"Shallow features: {why}", unit=UNIT, facts=some.counts)
    table = _features(some)
    parts = {"length": table[:, :1], "form": table[:, 1:], "length and form": table}
    guesses = {name: _guess(part, some, seed) for name, part in parts.items()}
    best = _share(_right(guesses["length and form"], some.won), some.prompt, alpha)
    near = _share(_right(guesses["length and form"], some.won), some.prompt, 0.1)
    # Far below one half is no comfort: with few labels, a model that learnt nothing lands there.
    harmless = near[2] < 0.5 + MATTERS and near[2] - near[0] < MATTERS
    state: State = "found" if best[1] > 0.5 + MATTERS else "clear" if harmless else "cannot tell"
    wrong = _mistakes(guesses["length and form"], some.won)
    rows = _alone(some, guesses, alpha) + (_left_out(some, table, best[0], seed) if state == "found" else [])
    facts = {
        **some.counts,
        "matters": 0.5 + MATTERS,
        "carried_by": [row["feature"] for row in rows if row["kind"] == "left out" and row["worth"] >= WORTH][:3],
        "valuable_rows": [some.pairs.row(item) for item in wrong.tolist()],
    }
    share = f"{100.0 * best[0]:.0f} %"
    said = {
        "found": f"{share} of the labels are predicted by length and form alone, without reading an answer.",
        "clear": f"Length and form alone predict {share} of the labels, about as many as a coin.",
        "cannot tell": f"Length and form alone predict {share} of {len(some)} labels; more than 55 % is not certain.",
    }[state]
    fix = (
        "Balance length and form (`--balanced`), and weigh or collect more comparisons in which the plainer answer "
        "wins: the rows under `valuable_rows` are such."
    )
    found = state == "found"
    shown = _examples(some, guesses["length and form"], wrong) if found else []
    return Finding("shallow", state, said, *best, UNIT, fix if found else "", facts, rows, shown)


def _features(some: Decided) -> Floats:
    first, second = (np.log1p(counted(tuple(side))) for side in (some.pairs.first, some.pairs.second))
    return np.column_stack((some.doublings, first - second))


def _guess(part: Floats, some: Decided, seed: int) -> Floats:
    return out_of_fold(part, some.won, some.prompt, folds=FOLDS, ridge=RIDGE, seed=seed)


def _right(guess: Floats, won: Floats) -> Floats:
    """1 for a right prediction, 0 for a wrong one, one half where there is none."""
    return np.where(guess == 0.5, 0.5, ((guess > 0.5) == (won == 1.0)).astype(np.float64))


def _share(right: Floats, prompt: Ints, alpha: float) -> tuple[float, float, float]:
    """Mean with an interval by prompts."""
    share, m = float(right.mean()), int(prompt.max()) + 1
    sums = np.bincount(prompt, weights=right - share, minlength=m)
    wide = student(m - 1, 1.0 - alpha) * float(np.sqrt(np.square(sums).sum() * m / (m - 1))) / len(right)
    return share, max(0.0, share - wide), min(1.0, share + wide)


def _alone(some: Decided, guesses: dict[str, Floats], alpha: float) -> list[dict[str, Any]]:
    """What sets of features predict by themselves."""
    rows: list[dict[str, Any]] = []
    for name, guess in guesses.items():
        share, low, high = rounded(_share(_right(guess, some.won), some.prompt, alpha))
        rows.append({"kind": "alone", "feature": name, "predicted": share, "low": low, "high": high, "worth": None})
    return rows


def _left_out(some: Decided, table: Floats, whole: float, seed: int) -> list[dict[str, Any]]:
    """What leaving out one feature costs, for those with the largest weights."""
    varies = np.flatnonzero(table.any(axis=0))
    scale = np.sqrt(np.square(table[:, varies]).mean(axis=0))
    weight = np.abs(fit_logistic(table[:, varies] / scale, some.won, ridge=RIDGE).coefficients)
    names = ("length", *FORMS)
    rows: list[tuple[float, dict[str, Any]]] = []
    for column in varies[np.argsort(-weight, kind="stable")][:CARRIERS].tolist():
        share = float(_right(_guess(np.delete(table, column, axis=1), some, seed), some.won).mean())
        row = {"kind": "left out", "feature": names[column], "predicted": round(share, 4), "low": None, "high": None}
        rows.append((whole - share, {**row, "worth": round(whole - share, 4)}))
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _mistakes(guess: Floats, won: Floats) -> Ints:
    """Surest mistakes first."""
    sure = np.where(won == 1.0, 0.5 - guess, guess - 0.5)
    order = np.argsort(-sure, kind="stable")
    return order[sure[order] > 0.0][:VALUABLE]


def _examples(some: Decided, guess: Floats, wrong: Ints) -> list[Example]:
    found = []
    for item in wrong[:EXAMPLES].tolist():
        sure = guess[item] if guess[item] > 0.5 else 1.0 - guess[item]
        found.append(some.example(item, f"valuable: length and form said {100 * sure:.0f} % for the other answer"))
    return found
