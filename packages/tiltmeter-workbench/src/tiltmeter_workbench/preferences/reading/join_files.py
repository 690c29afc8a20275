"""Joins several files of comparisons into one data set, each file a split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tiltmeter_workbench.preferences.reading.comparisons import Comparisons, Floats


def join_files(parts: Mapping[str, Comparisons]) -> Comparisons:
    """All comparisons one after the other; a rater of the same name is the same person.

    What only some parts know (votes with sides swapped, ratings) is missing in the others. The order shown is known
    only if it is in all of them. A part that has splits of its own keeps them after its name. Rows are counted on from
    part to part, so that a number names one of them.

    >>> one = Comparisons(["a?"], ["b"], ["c"], np.array([[1.0]]), ["ann"])
    >>> two = Comparisons(["d?"], ["e"], ["f"], np.array([[0.0]]), ["bob"])
    >>> both = join_files({"train": one, "test": two})
    >>> both.splits, both.raters, both.votes.tolist()
    (['train', 'test'], ['ann', 'bob'], [[1.0, nan], [nan, 0.0]])
    """
    raters = list(dict.fromkeys(name for pairs in parts.values() for name in pairs.raters))
    every = list(parts.values())
    return Comparisons(
        prompts=[prompt for pairs in every for prompt in pairs.prompts],
        first=[text for pairs in every for text in pairs.first],
        second=[text for pairs in every for text in pairs.second],
        votes=np.concatenate([_widen(pairs.votes, pairs.raters, raters) for pairs in every]),
        raters=raters,
        swapped=_swapped(every, raters),
        order_known=all(pairs.order_known for pairs in every),
        quality=_quality(every),
        splits=[_split(name, pairs, item) for name, pairs in parts.items() for item in range(len(pairs))],
        rows=[row for name, start in first_rows(parts).items() for row in _rows(parts[name], start)],
    )


def _rows(pairs: Comparisons, start: int) -> list[int]:
    return [start - 1 + pairs.row(item) for item in range(len(pairs))]


def first_rows(parts: Mapping[str, Comparisons]) -> dict[str, int]:
    """The number that the first row of each part has when they are joined."""
    starts, start = {}, 1
    for name, pairs in parts.items():
        starts[name] = start
        start = max(_rows(pairs, start), default=start - 1) + 1
    return starts


def _widen(votes: Floats, raters: Sequence[str], everybody: list[str]) -> Floats:
    wide = np.full((len(votes), len(everybody)), np.nan)
    wide[:, [everybody.index(name) for name in raters]] = votes
    return wide


def _swapped(every: Sequence[Comparisons], raters: list[str]) -> Floats | None:
    if all(pairs.swapped is None for pairs in every):
        return None
    parts = [np.full(pairs.votes.shape, np.nan) if pairs.swapped is None else pairs.swapped for pairs in every]
    return np.concatenate([_widen(votes, pairs.raters, raters) for votes, pairs in zip(parts, every, strict=True)])


def _quality(every: Sequence[Comparisons]) -> Floats | None:
    if all(pairs.quality is None for pairs in every):
        return None
    return np.concatenate(
        [np.full((len(pairs), 2), np.nan) if pairs.quality is None else pairs.quality for pairs in every]
    )


def _split(name: str, pairs: Comparisons, item: int) -> str:
    own = pairs.splits[item] if len(pairs.splits) else ""
    return f"{name} {own}".strip()
