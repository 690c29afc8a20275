"""Selects a balanced subset of comparisons: neither length nor likelihood predicts the winner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter_workbench.preferences.checks.balance import directions, kinds
from tiltmeter_workbench.preferences.checks.copies import find_copies
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 20  # of difference in length, each with as many comparisons
BOTH_STEPS = (5, 10)  # of difference in length, and of that in likelihood, where both are evened out
LEAST = 10  # comparisons of one kind and step; kinds with fewer are evened out together


def balanced_subset(pairs: Comparisons, seed: int, likelier: Floats | None = None) -> tuple[Ints, Mapping[str, Any]]:
    """Items to keep, in order, and figures on length bias and size before and after.

    Dropped are comparisons without a winner, copies, contradictions and comparisons of a text with itself. Of the rest,
    among comparisons of the same kind of prompt and about the same difference in length, as many are kept in which the
    longer answer won as in which the shorter did, drawn by the seed. A model of length alone then does no better than
    chance, on the whole and at every difference. Pairs of equal length all stay.

    With `likelier` (by how many nats the first answer is likelier under a base model, at equal length) that holds
    among comparisons of about the same difference in likelihood too, those in which the longer answer is the likelier
    one apart from the others: then neither predicts the winner, nor do both together. Comparisons whose likelihood is
    not known (NaN) are evened out by length alone.
    """
    repeats = find_copies(pairs)
    decided = np.isfinite(pairs.winner) & (pairs.winner != 0.5)
    usable = decided if not repeats.texts else decided & ~repeats.duplicate & ~repeats.contradiction & ~repeats.same
    longer, _ = directions(pairs)
    wins = longer if likelier is None else np.where(np.isfinite(longer), longer, _likelier_won(pairs, likelier))
    directed = usable & np.isfinite(wins)
    keep = usable & ~directed
    if directed.any():
        rng = np.random.default_rng(seed)
        stratum = _strata(pairs, np.flatnonzero(directed), seed, likelier)
        keep[_draw_even(np.flatnonzero(directed), stratum, wins, rng)] = True
    items = np.flatnonzero(keep).astype(np.int64)
    facts = {
        "pairs": len(pairs),
        "kept": len(items),
        "kept_share": len(items) / len(pairs) if len(pairs) else None,
        "dropped_undecided": int((~decided).sum()),
        "dropped_copies": int((decided & ~usable).sum()),
        "dropped_for_balance": int(usable.sum() - keep.sum()),
        "before": _figures(pairs, np.flatnonzero(decided), longer, likelier),
        "after": _figures(pairs, items, longer, likelier),
    }
    return items, facts


def _likelier_won(pairs: Comparisons, likelier: Floats) -> Floats:
    """1 where the likelier answer won, 0 where it lost; NaN where there is none or no winner."""
    won = np.where(pairs.winner > 0.5, likelier, -likelier)
    return np.where(np.isfinite(won) & np.isfinite(pairs.winner) & (won != 0.0), (won > 0.0).astype(np.float64), np.nan)


def _gap(pairs: Comparisons) -> Floats:
    """Characters by which the first answer is longer."""
    return np.array([len(a) - len(b) for a, b in zip(pairs.first, pairs.second, strict=True)], np.float64)


def _strata(pairs: Comparisons, items: Ints, seed: int, likelier: Floats | None) -> Ints:
    """A number per item, the same for one kind of prompt and one step of difference in length and in likelihood."""
    longer = _gap(pairs)[items]
    if likelier is None:
        step = _quantile_steps(np.abs(longer), STEPS)
    else:
        nats = likelier[items]
        finite, (lengths, likelihoods) = np.isfinite(nats), BOTH_STEPS
        of_nats = np.zeros(len(items), np.int64)
        of_nats[finite] = 1 + _quantile_steps(np.abs(nats[finite]), likelihoods)
        agree = finite & (np.sign(nats) == np.sign(longer))
        step = (_quantile_steps(np.abs(longer), lengths) * (likelihoods + 2) + of_nats) * 2 + agree
        step = 2 * step + (longer == 0.0)  # of these it is the likelier answer that wins or loses
    kind = kinds(pairs, seed).labels[items] + 1
    cell = kind * (step.max() + 1) + step
    _, back, counts = np.unique(cell, return_inverse=True, return_counts=True)
    # Small cells of different kinds go together, or the rarer direction would be lost in each of them.
    return np.where(counts[back] < LEAST, step, (step.max() + 1) + cell)


def _quantile_steps(size: Floats, steps: int) -> Ints:
    edges = np.unique(np.quantile(size, np.linspace(0.0, 1.0, steps + 1)[1:-1])) if len(size) else np.zeros(0)
    return np.searchsorted(edges, size, "right").astype(np.int64)


def _draw_even(items: Ints, stratum: Ints, wins: Floats, rng: np.random.Generator) -> Ints:
    order = rng.permutation(len(items))
    parts: list[Ints] = []
    for each in np.unique(stratum):
        here = items[order[stratum[order] == each]]
        up, down = here[wins[here] == 1.0], here[wins[here] == 0.0]
        few = min(len(up), len(down))
        parts += [up[:few], down[:few]]
    return np.concatenate(parts)


def _figures(pairs: Comparisons, items: Ints, longer: Floats, likelier: Floats | None) -> dict[str, float | int | None]:
    """How far length and likelihood go with winning: shares of winners, and the mean difference in characters."""
    gap = _gap(pairs)[items]
    won = np.where(pairs.winner[items] > 0.5, gap, -gap)
    finite = longer[items][np.isfinite(longer[items])]
    figures: dict[str, float | int | None] = {
        "pairs": len(items),
        "longer_chosen": float(finite.mean()) if len(finite) else None,
        "characters_more": float(won.mean()) if len(finite) else None,
    }
    if likelier is not None:
        chosen = _likelier_won(pairs, likelier)[items]
        there = chosen[np.isfinite(chosen)]
        figures |= {"likelier_chosen": float(there.mean()) if len(there) else None, "likelihoods": len(there)}
    return figures
