"""Check: raters who disagree with the others more than chance allows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.intervals import wilson_interval
from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.ratings import Ratings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NAME = "raters"
FEWEST = 30  # items with three ratings, below which nobody is called like the others
MATTERS = 0.05  # agreement with others below that of others with each other, from which a rater is named


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Raters of comparisons. `seed` is not used: nothing is random here."""
    return check_ratings(Ratings.of(pairs), alpha=alpha)


def check_ratings(ratings: Ratings, *, alpha: float) -> Check:
    """The same for labels in any categories (`PreferenceData.labels`).

    A rater's agreement with the others is set beside that of the others among themselves, on the same items, so that
    a rater of hard items is not blamed. If raters were alike, any of an item's ratings could be this rater's;
    that gives the chance of so low an agreement without any assumption about raters or items.
    """
    many = int((ratings.counts.sum(axis=1) > 2).sum())
    if not many:
        alone = "there is one rater" if len(ratings.raters) < 2 else "no item has three ratings"
        sentence = f"Which rater is off cannot be told: {alone}."
        return Check(
            NAME,
            "cannot tell",
            sentence,
            fix="Have three people rate the same items.",
            rows=_rows(ratings),
            facts={"items": 0},
        )
    lower, chance, off = _find_outliers(ratings, alpha)
    tested = np.isfinite(chance)
    rows = _rows(ratings, lower, chance, off)
    facts = {"raters": len(ratings.raters), "tested": int(tested.sum()), "items": many, "off": int(off.sum())}
    if not off.any() and many < FEWEST:
        sentence = f"Only {many} items have three ratings or more: whether a rater is off cannot be told."
        return Check(NAME, "cannot tell", sentence, fix="Have three people rate more items.", facts=facts, rows=rows)
    if not off.any():
        return Check(NAME, "clear", "No rater disagrees with the others beyond doubt.", facts=facts, rows=rows, fix="")
    worst = int(np.where(off, lower, np.inf).argmin())
    names = ", ".join(
        str(ratings.raters[r])[:40] for r in np.argsort(np.where(off, lower, np.inf))[: min(off.sum(), 3)]
    )
    return Check(
        NAME,
        "found",
        f"{off.sum()} of {tested.sum()} raters agree far less with the others than those do among themselves: "
        f"{names}{' and more' if off.sum() > 3 else ''}.",
        estimate=float(lower[worst]),
        unit="agreement with the others, minus that among them",
        fix="Look at what they rated; leave their votes out, or weigh votes by reliability (Dawid-Skene).",
        facts=facts,
        rows=rows,
    )


def _find_outliers(ratings: Ratings, alpha: float) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Differences and chances, and who is off. Whoever is found is left out before the others are looked at again:
    somebody who answers the other way round makes everybody seem to agree little, and hides those who guess."""
    lower, chance = _agreement_gaps(ratings)
    level = alpha / max(int(np.isfinite(chance).sum()), 1)
    off = np.zeros(len(lower), bool)
    more = (chance < level) & (lower < -MATTERS)
    # Where raters are of many kinds there is no end to this: the others have to stay the many.
    while more.any() and (not off.any() or (off | more).sum() <= len(off) / 3):
        off |= more
        again, less_likely = _agreement_gaps(replace(ratings, codes=np.where(off, np.nan, ratings.codes)))
        tested = ~off & np.isfinite(less_likely)
        lower[tested], chance[tested] = again[tested], less_likely[tested]
        more = tested & (chance < level) & (lower < -MATTERS)
    return lower, chance, off


def _agreement_gaps(ratings: Ratings) -> tuple[Floats, Floats]:
    """Per rater: agreement with the others minus that among the others, and the chance of one as low; NaN: no items."""
    counts = ratings.counts.astype(np.float64)
    n = counts.sum(axis=1)
    use = n > 2
    size = np.where(use, n, 3.0)
    agreeing = (counts * (counts - 1.0)).sum(axis=1)
    # By item and category, what the difference is for a rater who gave that category.
    own = (counts - 1.0) / (size - 1.0)[:, None]
    rest = (agreeing[:, None] - 2.0 * (counts - 1.0)) / ((size - 1.0) * (size - 2.0))[:, None]
    gap, weight = np.where(counts > 0.0, own - rest, 0.0), counts / size[:, None]
    lower = np.full(len(ratings.raters), np.nan)
    chance = np.full(len(ratings.raters), np.nan)
    for r in range(len(ratings.raters)):
        mine = np.flatnonzero(use & np.isfinite(ratings.codes[:, r]))
        # Items on which all agree add nothing either way.
        split = mine[np.abs(gap[mine]).max(axis=1, initial=0.0) > 1e-12]
        if len(mine):
            total = float(gap[split, ratings.codes[split, r].astype(np.int64)].sum())
            lower[r] = total / len(mine)
            chance[r] = _chernoff(gap[split], weight[split], total)
    return lower, chance


def _chernoff(gap: Floats, weight: Floats, total: float) -> float:
    """A bound on the chance that independent draws (one value of each row, with its weights) sum to `total` or less.

    min over t > 0 of exp(t·total) ∏ E exp(-t·value) (Chernoff 1952): never too small, whatever the number of rows.
    """
    if total >= 0.0 or not len(gap):
        return 1.0
    low, high = 0.0, 64.0
    logs = np.log(np.where(weight > 0.0, weight, 1.0)) + np.where(weight > 0.0, 0.0, -np.inf)

    def bound(t: float) -> tuple[float, float]:
        powers = logs - t * gap
        top = powers.max(axis=1, keepdims=True)
        mass = np.exp(powers - top)
        whole = mass.sum(axis=1)
        value = t * total + float((top[:, 0] + np.log(whole)).sum())
        return value, total - float(((mass * gap).sum(axis=1) / whole).sum())

    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if bound(middle)[1] > 0.0 else (middle, high)
    return math.exp(min(bound(0.5 * (low + high))[0], 0.0))


def _rows(
    ratings: Ratings, lower: Floats | None = None, chance: Floats | None = None, off: NDArray[np.bool_] | None = None
) -> list[dict[str, object]]:
    """Per rater the figures, those most at odds with the others first."""
    reliable = ratings.truth.reliability
    same, of = _with_majority(ratings)
    rows: list[tuple[float, dict[str, object]]] = []
    for r, name in enumerate(ratings.raters):
        mine = ratings.codes[np.isfinite(ratings.codes[:, r]), r]
        row: dict[str, object] = {"rater": str(name), "votes": len(mine)}
        if not len(mine):
            rows.append((math.inf, row))
            continue
        share = float(same[r] / of[r]) if of[r] else math.nan
        low, high = wilson_interval(share, int(of[r])) if of[r] else (math.nan, math.nan)
        row |= {"with_majority": share, "low": low, "high": high, "compared": int(of[r])}
        row["reliability"] = float(reliable[r]) if len(ratings.raters) > 2 and of[r] else math.nan
        row["ties"] = float((mine == ratings.tie).mean()) if ratings.tie is not None else math.nan
        sided = mine[mine != ratings.tie] if ratings.first is not None else mine[:0]
        row["first"] = float((sided == ratings.first).mean()) if len(sided) else math.nan
        if lower is not None and chance is not None and off is not None:
            row |= {"difference": float(lower[r]), "chance": float(chance[r]), "off": bool(off[r])}
        rows.append((share if math.isfinite(share) else math.inf, {k: _finite_or_none(v) for k, v in row.items()}))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


def _with_majority(ratings: Ratings) -> tuple[Ints, Ints]:
    """Per rater: ratings equal to what most others gave, and ratings for which most others gave something."""
    same, of = np.zeros(len(ratings.raters), np.int64), np.zeros(len(ratings.raters), np.int64)
    for r in range(len(ratings.raters)):
        mine = np.flatnonzero(np.isfinite(ratings.codes[:, r]))
        code = ratings.codes[mine, r].astype(np.int64)
        others = ratings.counts[mine].copy()
        others[np.arange(len(mine)), code] -= 1
        top = others.max(axis=1, initial=0)
        won = (top > 0) & ((others == top[:, None]).sum(axis=1) == 1)
        of[r] = won.sum()
        same[r] = (won & (others[np.arange(len(mine)), code] == top)).sum()
    return same, of


def _finite_or_none(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
