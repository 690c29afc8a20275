"""Compact summaries over ranks (ranges, hashes, lost batches), so that events do not grow with the cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tiltmeter.errors import StoreError

MAX_RANKS = 1_000_000  # limit on the ranges in an untrusted file, which could otherwise fill the memory

#: Counters of lost batches, in the order in which they are stored.
LOSSES = ("thinned", "dropped", "unsynced")


class LostBatches:
    """Batches lost so far by each rank of each attempt, to report only new losses.

    >>> losses = LostBatches()
    >>> losses.describe_new(0, {"1": [0, 2, 0, "disk full"]}), losses.describe_new(0, {"1": [0, 2, 0, "disk full"]})
    (['rank 1: 2 dropped (2 in all): disk full'], [])
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[int, str], tuple[int, ...]] = {}

    def describe_new(self, attempt: int, lost: Mapping[str, Sequence[Any]]) -> list[str]:
        """A sentence for every rank with new losses. It includes the total, so that equal losses at one step differ."""
        sentences = []
        for rank, (*counts, why) in lost.items():
            before = self._counts.get((attempt, rank), (0,) * len(LOSSES))
            self._counts[attempt, rank] = tuple(counts)
            pairs = zip(LOSSES, counts, before, strict=True)
            increases = [f"{now - earlier} {name} ({now} in all)" for name, now, earlier in pairs if now > earlier]
            if increases:
                sentences.append(f"rank {rank}: {', '.join(increases)}: {why}")
        return sentences


def rank_ranges(ranks: Iterable[int]) -> list[list[int]]:
    """Ranks as ranges of consecutive numbers, [first, last].

    >>> rank_ranges([0, 1, 2, 7, 9, 8]), expand_ranges([[0, 2], [7, 9]])
    ([[0, 2], [7, 9]], [0, 1, 2, 7, 8, 9])
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return runs


def expand_ranges(runs: Sequence[Sequence[int]]) -> list[int]:
    if sum(max(0, last - first) for first, last in runs) > MAX_RANKS:
        raise StoreError(f"more than {MAX_RANKS:,} ranks in one step: this was not written by tiltmeter")
    return [rank for first, last in runs for rank in range(first, last + 1)]


def combine_hashes(hashes: Mapping[int, str]) -> str:
    """One SHA-256 for the files of a step, by rank."""
    text = "".join(f"{rank}:{hashes[rank]}\n" for rank in sorted(hashes))
    return hashlib.sha256(text.encode()).hexdigest()


def count_losses(counters: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Batches seen by all of these ranks, and the losses of those that have any: [thinned, dropped, unsynced, why].

    >>> count_losses({0: {"seen": 9}, 1: {"seen": 9, "dropped": 2, "why": "disk full"}})
    {'seen': 18, 'lost': {'1': [0, 2, 0, 'disk full']}}
    """
    lost = {
        str(rank): [*(int(counts.get(name, 0)) for name in LOSSES), str(counts.get("why", ""))[:200]]
        for rank, counts in sorted(counters.items())
        if any(counts.get(name, 0) for name in LOSSES)
    }
    return {"seen": sum(int(counts.get("seen", 0)) for counts in counters.values()), "lost": lost}
