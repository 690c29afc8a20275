"""Check: groups of raters who want different things, which a majority vote would hide."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared
from tiltmeter.stats.intervals import wilson_interval
from tiltmeter_workbench.check_report.report import Check, Example
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.ratings import Ratings
from tiltmeter_workbench.stats.rater_groups import FEWEST, GroupChoice, choose_groups

Floats = NDArray[np.float64]

NAME = "groups"
FEWEST_RATERS = 4  # two groups of two: a single rater is no group
BELONGS = 0.9  # chance from which a rater is named as one of a group
DIFFER = 0.5  # chance from which groups are said to differ on an item
DRAWS = 1000
EXAMPLES = 5


def check(pairs: Comparisons, *, alpha: float, seed: int) -> Check:
    """Groups among those who compared; `alpha` is not used: the number of groups is an estimate without a verdict."""
    ratings = Ratings.of(pairs)
    return _check(ratings, seed, pairs)


def check_ratings(ratings: Ratings, *, seed: int) -> Check:
    """The same for labels in any categories (`PreferenceData.labels`)."""
    return _check(ratings, seed, None)


def members(ratings: Ratings, seed: int) -> dict[str, list[str]]:
    """The raters of each group, by its number, as far as it is beyond doubt whose they are; empty: there is one group.

    What `--groups` writes, for a run that asks the same people.
    """
    choice = _choose(ratings, seed)
    if choice.count == 1:
        return {}
    voted = np.isfinite(ratings.codes).any(axis=0)
    sure = voted & (choice.fit.member.max(axis=1) >= BELONGS)
    return {
        str(g + 1): [str(ratings.raters[r]) for r in np.flatnonzero(sure & (choice.fit.group == g)).tolist()]
        for g in range(choice.count)
    }


@shared()
def _choose(ratings: Ratings, seed: int) -> GroupChoice:
    return choose_groups(ratings.codes, seed=seed)


def _check(ratings: Ratings, seed: int, pairs: Comparisons | None) -> Check:
    voted = np.asarray(np.isfinite(ratings.codes).any(axis=0))
    several = int(ratings.several.sum())
    facts: dict[str, object] = {"raters": int(voted.sum()), "items_rated_twice": several}
    if voted.sum() < FEWEST_RATERS or several < FEWEST:
        few = f"{several} item{'s' * (several != 1)} that two people rated"
        if voted.sum() < FEWEST_RATERS:
            few = f"{voted.sum()} rater{'s' * bool(voted.sum() != 1)}"
        are = "is" if few.startswith("1 ") else "are"
        sentence = f"Whether groups of raters want different things cannot be told: there {are} {few}."
        fix = f"Have {FEWEST_RATERS} people or more rate the same items, the same people over many items."
        return Check(NAME, "cannot tell", sentence, fix=fix, facts=facts)
    choice = _choose(ratings, seed)
    facts |= {"groups": choice.count, "gains": [{"gain": gain, "error": error} for gain, error in choice.gains]}
    if choice.count == 1:
        gain, error = choice.gains[0] if choice.gains else (math.nan, math.nan)
        sentence = (
            "One group of raters is all that the data support: a second one makes items that it has not seen likelier "
            f"by {gain:.3g} nats each, with a standard error of {error:.2g}."
        )
        return Check(NAME, "known", sentence, facts=facts)
    fit = choice.fit
    differ = fit.differ[np.isfinite(fit.differ)]
    low, high = _interval(differ, seed)
    share = float(differ.mean())
    sizes = np.bincount(fit.group[voted], minlength=choice.count)
    facts |= {"differ": share, "items_that_differ": int((differ >= DIFFER).sum()), "members": members(ratings, seed)}
    text = " and ".join((", ".join(map(str, sizes[:-1])), str(sizes[-1])))
    return Check(
        NAME,
        "known",
        f"There are {choice.count} groups of raters, of {text}, who want different answers to {share:.0%} of the "
        "items: a majority vote is the larger group's.",
        estimate=share,
        low=low,
        high=high,
        unit="share of items on which groups differ",
        fix="Look at what they differ in; train and watch for each group (--groups FILE, rewards.worst_group).",
        facts=facts,
        rows=[_row(ratings, pairs, fit.member, g, voted) for g in range(choice.count)],
        examples=[] if pairs is None else _examples(pairs, ratings, choice),
    )


def _interval(differ: Floats, seed: int) -> tuple[float, float]:
    """95 % of the mean over resampled items, for these groups."""
    rng = np.random.default_rng(seed)
    means = [float(differ[rng.integers(0, len(differ), len(differ))].mean()) for _ in range(DRAWS)]
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def _row(
    ratings: Ratings, pairs: Comparisons | None, member: Floats, g: int, voted: NDArray[np.bool_]
) -> Mapping[str, object]:
    """Size of a group, how far its raters agree among themselves and with the others, and how they take to length."""
    inside = voted & (member.argmax(axis=1) == g)
    size, of = int(inside.sum()), int(voted.sum())
    low, high = wilson_interval(size / of, of)
    row: dict[str, object] = {"group": str(g + 1), "raters": size, "share": size / of, "low": low, "high": high}
    row["votes"] = int(np.isfinite(ratings.codes[:, inside]).sum())
    row["agree_inside"] = _agreement(ratings, inside, inside)
    row["agree_outside"] = _agreement(ratings, inside, voted & ~inside)
    if pairs is not None and any(pairs.first):
        longer, many = _longer_wins(pairs, inside)
        ends = wilson_interval(longer, many) if many else (math.nan, math.nan)
        row |= {"longer_wins": longer, "longer_low": ends[0], "longer_high": ends[1]}
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }


def _agreement(ratings: Ratings, one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    """How often a rater of the one and another of the other say the same of an item; NaN if they never meet."""
    same = met = 0.0
    counts = [_counts(ratings, who) for who in (one, other)]
    both = bool((one & other).any())
    for k in range(len(ratings.categories)):
        same += float((counts[0][:, k] * (counts[1][:, k] - both)).sum())
    sizes = [count.sum(axis=1) for count in counts]
    met = float((sizes[0] * (sizes[1] - both)).sum())
    return same / met if met else math.nan


def _counts(ratings: Ratings, who: NDArray[np.bool_]) -> Floats:
    codes = ratings.codes[:, who]
    return np.stack([(codes == k).sum(axis=1) for k in range(len(ratings.categories))], axis=1).astype(np.float64)


def _longer_wins(pairs: Comparisons, inside: NDArray[np.bool_]) -> tuple[float, int]:
    """The share of these raters' decided votes that are for the answer with more words, and how many there are."""
    words = np.array([len(a.split()) - len(b.split()) for a, b in zip(pairs.first, pairs.second, strict=True)])
    votes = pairs.votes[:, inside]
    counted = np.isfinite(votes) & (votes != 0.5) & (words != 0)[:, None]
    longer = counted & ((votes > 0.5) == (words > 0)[:, None])
    many = int(counted.sum())
    return (float(longer.sum()) / many if many else math.nan), many


def _examples(pairs: Comparisons, ratings: Ratings, choice: GroupChoice) -> Sequence[Example]:
    """The comparisons on which groups differ most surely, each with votes of all groups."""
    voted = np.stack([_counts(ratings, choice.fit.group == g).sum(axis=1) > 0 for g in range(choice.count)])
    sure = np.where(voted.all(axis=0), np.nan_to_num(choice.fit.differ), 0.0)
    examples = []
    for item in np.argsort(-sure, kind="stable")[:EXAMPLES].tolist():
        if sure[item] < DIFFER:
            break
        texts = {"prompt": pairs.prompts[item], "first": pairs.first[item], "second": pairs.second[item]}
        codes = choice.fit.categories[choice.fit.truth[:, item].argmax(axis=1)]
        wants = [ratings.categories[int(code)] for code in codes]
        why = "; ".join(f"group {g + 1}: {want}" for g, want in enumerate(wants))
        examples.append(Example(texts, why, pairs.row(item)))
    return examples
