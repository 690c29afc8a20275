"""What thousands of ranks did in one step, in few bytes: events must not grow with the size of the cluster."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tiltmeter.errors import StoreError

MOST = 1_000_000  # ranks: two numbers in a file from elsewhere must not fill the memory

#: What a rank may lose, in the order in which an account lists it.
LOSSES = ("thinned", "dropped", "unsynced")


class Losses:
    """What each rank of each attempt has lost so far, so that what is new can be told.

    >>> losses = Losses()
    >>> losses.grown(0, {"1": [0, 2, 0, "disk full"]}), losses.grown(0, {"1": [0, 2, 0, "disk full"]})
    (['rank 1: 2 dropped (2 in all): disk full'], [])
    """

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], tuple[int, ...]] = {}

    def grown(self, attempt: int, lost: Mapping[str, Sequence[Any]]) -> list[str]:
        """A sentence for every rank whose account has grown. Two equal losses at one step differ by their total."""
        told = []
        for rank, (*counts, why) in lost.items():
            before = self._known.get((attempt, rank), (0,) * len(LOSSES))
            self._known[attempt, rank] = tuple(counts)
            pairs = zip(LOSSES, counts, before, strict=True)
            grown = [f"{now - then} {name} ({now} in all)" for name, now, then in pairs if now > then]
            if grown:
                told.append(f"rank {rank}: {', '.join(grown)}: {why}")
        return told


def spans(ranks: Iterable[int]) -> list[list[int]]:
    """Ranks as runs of neighbours, first and last.

    >>> spans([0, 1, 2, 7, 9, 8]), expand([[0, 2], [7, 9]])
    ([[0, 2], [7, 9]], [0, 1, 2, 7, 8, 9])
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return runs


def expand(runs: Sequence[Sequence[int]]) -> list[int]:
    if sum(last - first for first, last in runs) > MOST:
        raise StoreError(f"more than {MOST:,} ranks in one step: this was not written by tiltmeter")
    return [rank for first, last in runs for rank in range(first, last + 1)]


def combined(hashes: Mapping[int, str]) -> str:
    """One SHA-256 for the files of a step, by rank."""
    text = "".join(f"{rank}:{hashes[rank]}\n" for rank in sorted(hashes))
    return hashlib.sha256(text.encode()).hexdigest()


def account(counters: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Batches seen by all of these ranks, and the losses of those that have any: [thinned, dropped, unsynced, why].

    >>> account({0: {"seen": 9}, 1: {"seen": 9, "dropped": 2, "why": "disk full"}})
    {'seen': 18, 'lost': {'1': [0, 2, 0, 'disk full']}}
    """
    lost = {
        str(rank): [*(int(counts.get(name, 0)) for name in LOSSES), str(counts.get("why", ""))[:200]]
        for rank, counts in sorted(counters.items())
        if any(counts.get(name, 0) for name in LOSSES)
    }
    return {"seen": sum(int(counts.get("seen", 0)) for counts in counters.values()), "lost": lost}
