"""Selects a balanced subset of comparisons in which length does not predict the winner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.workbench.preferences.checks.balance import directions, kinds
from tiltmeter.workbench.preferences.checks.copies import find_copies
from tiltmeter.workbench.preferences.reading.comparisons import Comparisons

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS = 20  # of difference in length, each with as many comparisons
LEAST = 10  # comparisons of one kind and step; kinds with fewer are evened out together


def balanced_subset(pairs: Comparisons, seed: int) -> tuple[Ints, Mapping[str, Any]]:
    """Items to keep, in order, and figures on length bias and size before and after.

    Dropped are comparisons without a winner, copies, contradictions and comparisons of a text with itself. Of the rest,
    among comparisons of the same kind of prompt and about the same difference in length, as many are kept in which the
    longer answer won as in which the shorter did, drawn by the seed. A model of length alone then does no better than
    chance, on the whole and at every difference. Pairs of equal length all stay.
    """
    repeats = find_copies(pairs)
    decided = np.isfinite(pairs.winner) & (pairs.winner != 0.5)
    usable = decided if not repeats.texts else decided & ~repeats.duplicate & ~repeats.contradiction & ~repeats.same
    longer, _ = directions(pairs)
    directed = usable & np.isfinite(longer)
    keep = usable & ~directed
    if directed.any():
        rng = np.random.default_rng(seed)
        stratum = _strata(pairs, np.flatnonzero(directed), seed)
        keep[_draw_even(np.flatnonzero(directed), stratum, longer, rng)] = True
    items = np.flatnonzero(keep).astype(np.int64)
    facts = {
        "pairs": len(pairs),
        "kept": len(items),
        "kept_share": len(items) / len(pairs) if len(pairs) else None,
        "dropped_undecided": int((~decided).sum()),
        "dropped_copies": int((decided & ~usable).sum()),
        "dropped_for_length": int(usable.sum() - keep.sum()),
        "before": _figures(pairs, np.flatnonzero(decided), longer),
        "after": _figures(pairs, items, longer),
    }
    return items, facts


def _gap(pairs: Comparisons) -> Floats:
    """Characters by which the first answer is longer."""
    return np.array([len(a) - len(b) for a, b in zip(pairs.first, pairs.second, strict=True)], np.float64)


def _strata(pairs: Comparisons, items: Ints, seed: int) -> Ints:
    """A number per item, the same for one kind of prompt and one step of difference in length."""
    size = np.abs(_gap(pairs)[items])
    edges = np.unique(np.quantile(size, np.linspace(0.0, 1.0, STEPS + 1)[1:-1]))
    step = np.searchsorted(edges, size, "right")
    kind = kinds(pairs, seed).labels[items] + 1
    cell = kind * (STEPS + 1) + step
    _, back, counts = np.unique(cell, return_inverse=True, return_counts=True)
    # Small cells of different kinds go together, or the rarer direction would be lost in each of them.
    return np.where(counts[back] < LEAST, step, (STEPS + 1) + cell)


def _draw_even(items: Ints, stratum: Ints, longer: Floats, rng: np.random.Generator) -> Ints:
    order = rng.permutation(len(items))
    parts: list[Ints] = []
    for each in np.unique(stratum):
        here = items[order[stratum[order] == each]]
        up, down = here[longer[here] == 1.0], here[longer[here] == 0.0]
        few = min(len(up), len(down))
        parts += [up[:few], down[:few]]
    return np.concatenate(parts)


def _figures(pairs: Comparisons, items: Ints, longer: Floats) -> dict[str, float | int | None]:
    """How far length goes with winning: the share of longer winners, and the mean difference in characters."""
    gap = _gap(pairs)[items]
    won = np.where(pairs.winner[items] > 0.5, gap, -gap)
    finite = longer[items][np.isfinite(longer[items])]
    return {
        "pairs": len(items),
        "longer_chosen": float(finite.mean()) if len(finite) else None,
        "characters_more": float(won.mean()) if len(finite) else None,
    }
