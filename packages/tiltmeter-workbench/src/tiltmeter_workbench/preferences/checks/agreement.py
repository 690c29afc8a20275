"""Check: agreement between raters (Krippendorff's alpha, Fleiss' kappa), which limits what can be learnt from them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.finding import example_pair
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.ratings import Ratings
from tiltmeter_workbench.stats.rater_agreement import fleiss_kappa, krippendorff_alpha

Ints = NDArray[np.int64]

NAME = "agreement"
#: Krippendorff's own limits: below the first draw no conclusions, from the second on rely on the labels.
TENTATIVE, RELIABLE = 0.667, 0.8
DRAWS = 1000
FEWEST = 10  # items that several people rated; fewer give no interval worth showing


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Agreement on which answer is better; `alpha` is not used: this check has no significance test."""
    result = check_ratings(Ratings.of(pairs), seed=seed)
    return result if result.state != "known" else _with_examples(result, pairs)


def check_ratings(ratings: Ratings, *, seed: int) -> Check:
    """The same for labels in any categories (`PreferenceData.labels`)."""
    several = ratings.several
    counts = ratings.counts[several]
    if len(counts) < FEWEST:
        reason = (
            "Nobody rated what somebody else rated" if not len(counts) else f"Only {len(counts)} items were rated twice"
        )
        return Check(
            NAME,
            "cannot tell",
            f"{reason}: whether the labels can be trusted is not known.",
            fix="Have three people rate at least 100 of the comparisons, independently.",
            facts={"items": len(ratings.codes), "items_rated_twice": len(counts)},
        )
    value = krippendorff_alpha(ratings.codes)
    low, high = _interval(counts, seed)
    kappa, items = _fleiss(counts)
    n = counts.sum(axis=1)
    pairs = float((n * (n - 1)).sum())
    raw = float((counts * (counts - 1)).sum()) / pairs
    facts = {
        "krippendorff_alpha": _finite_or_none(value),
        "fleiss_kappa": _finite_or_none(kappa),
        "fleiss_items": items,
        "pair_agreement": raw,
        "items": len(ratings.codes),
        "items_rated_twice": len(counts),
        "raters": len(ratings.raters),
        "ties": _ties(ratings),
        **_majority(ratings),
    }
    return Check(
        NAME,
        "known",
        _sentence(value, raw, int(np.median(n))),
        estimate=value,
        low=low,
        high=high,
        unit="Krippendorff's alpha",
        fix=_fix(value, high),
        facts=facts,
        rows=_table(ratings),
    )


def _interval(counts: Ints, seed: int) -> tuple[float, float]:
    """95 % of alphas over resampled items, all at once: alpha is a ratio of sums over items."""
    n = counts.sum(axis=1)
    within = (counts * (n[:, None] - counts)).sum(axis=1) / (n - 1)
    parts = np.column_stack((within, counts)).astype(np.float64)
    rng = np.random.default_rng(seed)
    alphas = []
    for _ in range(DRAWS):
        weight = np.bincount(rng.integers(0, len(parts), len(parts)), minlength=len(parts))
        apart, *totals = weight @ parts
        whole = float(np.sum(totals))
        between = float((np.array(totals) * (whole - np.array(totals))).sum())
        alphas.append(1.0 - apart * (whole - 1.0) / between if between > 0.0 else math.nan)
    finite = np.array(alphas)[np.isfinite(alphas)]
    if len(finite) < 0.9 * DRAWS:
        return math.nan, math.nan
    low, high = np.quantile(finite, (0.025, 0.975))
    return float(low), float(high)


def _fleiss(counts: Ints) -> tuple[float, int]:
    """Kappa on the items with the commonest number of ratings, and how many those are."""
    n = counts.sum(axis=1)
    common = int(np.bincount(n).argmax())
    equal = counts[n == common]
    return fleiss_kappa(equal), len(equal)


def _ties(ratings: Ratings) -> float | None:
    if ratings.tie is None:
        return None
    return float(ratings.counts[:, ratings.tie].sum() / max(int(ratings.counts.sum()), 1))


def _majority(ratings: Ratings) -> dict[str, float | int]:
    """What a majority vote loses: items without a majority, and votes that it overrules."""
    several = ratings.several
    winner, counts = ratings.winner[several], ratings.counts[several]
    won = np.isfinite(winner)
    votes = counts[won].sum()
    agreeing = counts[won, winner[won].astype(np.int64)].sum()
    return {
        "without_majority": int((~won).sum()),
        "without_majority_share": float((~won).mean()),
        "overruled_share": float(1.0 - agreeing / votes) if votes else 0.0,
        "unanimous_share": float((counts.max(axis=1) == counts.sum(axis=1)).mean()),
    }


def _table(ratings: Ratings) -> list[dict[str, object]]:
    """Per category how often it was given, and how often a second rater of the item says the same."""
    counts = ratings.counts[ratings.several]
    n = counts.sum(axis=1)
    rows: list[dict[str, object]] = []
    for k, name in enumerate(ratings.categories):
        count = int(counts[:, k].sum())
        again = float((counts[:, k] * (counts[:, k] - 1) / (n - 1)).sum())
        if count:
            rows.append({"category": name[:60], "votes": count, "same_again": again / count})
    return rows


def _sentence(value: float, raw: float, raters: int) -> str:
    if not math.isfinite(value):
        return "Everybody always gave the same answer, which says nothing about agreement."
    enough = "enough to rely on" if value >= RELIABLE else "enough for a first look"
    word = enough if value >= TENTATIVE else "too little to rely on"
    return (
        f"Two raters of the same item agree in {100 * raw:.0f} % of cases (alpha {value:z.2f}, {raters} raters each): "
        f"{word}."
    )


def _fix(value: float, high: float) -> str:
    if not math.isfinite(value) or value >= RELIABLE:
        return ""
    if high < TENTATIVE:
        return "Sharpen the guidelines (--guide), have the review queue rated again, and train on what is agreed."
    return "Have the items without a majority looked at by an expert before training on them."


def _with_examples(result: Check, pairs: Comparisons) -> Check:
    """With the most divided comparisons as examples."""
    counts = Ratings.of(pairs).counts
    sides = np.minimum(counts[:, 0], counts[:, 2])
    worst = [int(at) for at in np.argsort(-sides, kind="stable")[:3] if sides[at]]
    examples = [
        example_pair(
            pairs.row(at),
            pairs.prompts[at],
            pairs.first[at],
            pairs.second[at],
            f"{counts[at, 2]} for one answer, {counts[at, 0]} for the other",
        )
        for at in worst
        if pairs.first[at] or pairs.second[at]
    ]
    return replace(result, examples=examples)


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None
