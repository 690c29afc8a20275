"""The review queue: comparisons that a person should look at again, worst first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks.copies import find_copies
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.ratings import Ratings
from tiltmeter_workbench.stats.dawid_skene import DawidSkeneFit

Bools = NDArray[np.bool_]

DOUBT = 0.8  # chance of the likeliest answer below which somebody should look
CONFIDENT = 20  # ratings that somebody must have given before their reliability says anything

#: What each reason weighs; several add up, so that what is doubtful in two ways comes first.
WEIGHTS = {"contradiction": 3.0, "doubt": 2.0, "ring": 1.5, "overruled": 1.0, "same": 1.0, "finding": 0.5}


def review_queue(pairs: Comparisons, findings: Sequence[Check]) -> list[dict[str, object]]:
    """Rows for people to look at, each with its reasons, in an order that does not change from one call to the next.

    Doubt is what raters leave open after each is weighed by reliability (Dawid and Skene), so that two careless votes
    against one careful one are looked at, and a comparison that all who can be trusted agree on is not.
    """
    reasons: list[list[tuple[float, str]]] = [[] for _ in range(len(pairs))]
    ratings = Ratings.of(pairs)
    truth = ratings.truth
    _add_doubts(reasons, ratings, truth)
    _add_copies(reasons, pairs)
    _add_examples(reasons, pairs, findings)
    rows = []
    for at, row_reasons in enumerate(reasons):
        if row_reasons:
            rows.append((-sum(weight for weight, _ in row_reasons), pairs.row(at), _row(pairs, truth, at, row_reasons)))
    return [row for _, _, row in sorted(rows, key=lambda entry: entry[:2])]


def _add_doubts(reasons: list[list[tuple[float, str]]], ratings: Ratings, truth: DawidSkeneFit) -> None:
    several = np.flatnonzero(ratings.several)
    if not len(several):
        return
    sure = truth.posterior.max(axis=1)
    rated = np.isfinite(ratings.codes)
    # Reliability is only told apart among three; those who have rated little have no say.
    enough = (rated.sum(axis=0) >= CONFIDENT) & (len(ratings.raters) > 2)
    reliable = np.where(enough, truth.reliability, -1.0)
    divided = (ratings.counts > 0).sum(axis=1) > 1
    for at in several.tolist():
        votes = [
            f"{ratings.counts[at, k]} {name}" for k, name in enumerate(ratings.categories) if ratings.counts[at, k]
        ]
        if divided[at] and (sure[at] < DOUBT or not np.isfinite(ratings.winner[at])):
            # Nearer to even is worse, but never as much as another reason.
            weight = WEIGHTS["doubt"] + 0.4 * (1.0 - float(sure[at]))
            reasons[at].append((weight, f"raters are divided ({', '.join(votes)})"))
        elif divided[at]:
            won = rated[at] & (ratings.codes[at] == ratings.winner[at])
            best = int(np.where(rated[at] & ~won, reliable, -np.inf).argmax())
            if reliable[best] > max(0.0, float(reliable[won].max(initial=-1.0))):
                why = f"the most reliable rater of this one was overruled ({str(ratings.raters[best])[:40]})"
                reasons[at].append((WEIGHTS["overruled"], why))


def _add_copies(reasons: list[list[tuple[float, str]]], pairs: Comparisons) -> None:
    repeats = find_copies(pairs)
    if not repeats.texts:
        return
    kinds: tuple[tuple[Bools, str, str], ...] = (
        (repeats.contradiction, "contradiction", "the same two answers have another winner elsewhere"),
        (repeats.cycle, "ring", "part of a ring: its loser beats its winner by way of others"),
        (repeats.same, "same", "both answers are the same text"),
    )
    for here, kind, why in kinds:
        for at in np.flatnonzero(here).tolist():
            twin = (
                f" (row {pairs.row(int(repeats.twin[at]))})"
                if kind == "contradiction" and repeats.duplicate[at]
                else ""
            )
            reasons[at].append((WEIGHTS[kind], why + twin))


def _add_examples(reasons: list[list[tuple[float, str]]], pairs: Comparisons, findings: Sequence[Check]) -> None:
    # Two files read together number their rows each from 1.
    place: dict[tuple[int | None, str], int] = {(pairs.row(at), pairs.prompts[at]): at for at in range(len(pairs))}
    for finding in findings:
        # Agreement and copies are looked at above, whole and not by example.
        if finding.state != "found" or finding.name in ("agreement", "copies"):
            continue
        for example in finding.examples:
            at = place.get((example.row, example.prompt))
            if at is not None:
                why = f"{finding.name}: {example.why}" if example.why else f"an example of {finding.name}"
                reasons[at].append((WEIGHTS["finding"], why))


def _row(
    pairs: Comparisons, truth: DawidSkeneFit, at: int, row_reasons: Sequence[tuple[float, str]]
) -> dict[str, object]:
    turned = pairs.winner[at] < 0.5
    votes = pairs.votes[at]
    by_weight = sorted(row_reasons, key=lambda reason: -reason[0])
    chance = float(truth.posterior[at].max()) if truth.posterior.shape[1] else float("nan")
    return {
        "row": pairs.row(at),
        "prompt": pairs.prompts[at],
        "chosen": pairs.second[at] if turned else pairs.first[at],
        "rejected": pairs.first[at] if turned else pairs.second[at],
        "reason": "; ".join(why for _, why in by_weight),
        "worry": round(sum(weight for weight, _ in row_reasons), 3),
        "sure": round(chance, 3) if np.isfinite(chance) and np.isfinite(votes).sum() > 1 else None,
        "votes": int(np.isfinite(votes).sum()),
        **({"split": pairs.splits[at]} if len(pairs.splits) else {}),
    }
