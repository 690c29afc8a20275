"""Completions that contain a text literally: read from the files, newest steps first, within limits."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tiltmeter.dashboard.rollout_files import Reader, locate
from tiltmeter.dashboard.rollout_filters import Chosen
from tiltmeter.dashboard.rollout_index import RolloutIndex
from tiltmeter.errors import StoreError
from tiltmeter.store import StepFile

SEARCH_ROWS = 200_000
SEARCH_SECONDS = 5.0
REMEMBERED = 8  # searches whose further pages need no second one
REMEMBERED_SECONDS = 600.0


@dataclass(frozen=True)
class Found:
    """Attempt, step and row of what was found, among `searched` of the `of` rows that the other filters leave."""

    rows: pa.Table
    searched: int
    of: int
    time: float


def search(index: RolloutIndex, chosen: Chosen, *, fresh: bool, cancel: threading.Event | None) -> Found:
    """The rows of `chosen` whose completion contains its phrase. `fresh=False`: as found before, if they were."""
    key = (chosen.where, chosen.values, chosen.phrase)
    known: Found | None = index.searches.get(key)
    if known is not None and not fresh and time.monotonic() - known.time < REMEMBERED_SECONDS:
        return known
    found = _search(index, chosen, cancel or threading.Event())
    kept = sorted(index.searches.items(), key=lambda item: item[1].time)[1 - REMEMBERED :]
    index.searches = {**dict(kept), key: found}
    return found


def _search(index: RolloutIndex, chosen: Chosen, cancel: threading.Event) -> Found:
    until = time.monotonic() + SEARCH_SECONDS
    with index.cursor() as cursor:
        (of,) = cursor.execute(f"SELECT count(*) FROM rollouts WHERE {chosen.where}", chosen.values).fetchone() or (0,)
        rows = cursor.execute(
            f"SELECT attempt, step, rank, place, row FROM rollouts WHERE {chosen.where} "
            "ORDER BY step DESC, attempt DESC, rank, place LIMIT ?",
            [*chosen.values, SEARCH_ROWS],
        ).fetchnumpy()
    attempt, step, rank, place, row = (np.asarray(rows[n]) for n in ("attempt", "step", "rank", "place", "row"))
    cuts = np.flatnonzero((np.diff(attempt) != 0) | (np.diff(step) != 0) | (np.diff(rank) != 0)) + 1
    edges = [0, *cuts.tolist(), len(row)] if len(row) else [0]
    reader, hits, searched = Reader(), np.zeros(len(row), bool), 0
    for start, stop in pairwise(edges):
        if cancel.is_set() or time.monotonic() > until:
            break
        searched = stop
        try:
            file = locate(index.run, int(attempt[start]), int(step[start]), int(rank[start]))
            hits[start:stop] = _contains(reader, file, chosen.phrase)[place[start:stop]]
        except (StoreError, IndexError):
            continue  # deleted since: there is no text to search
    columns = [attempt[hits], step[hits], row[hits]]
    return Found(pa.table(columns, names=["attempt", "step", "row"]), searched, of, time.monotonic())


def _contains(reader: Reader, file: StepFile, phrase: str) -> NDArray[np.bool_]:
    table, facts = reader.texts(file, ("completion",))
    if "completion" not in table.column_names:
        return np.zeros(facts["rows"], bool)
    found: NDArray[np.bool_] = pc.fill_null(pc.match_substring(table["completion"], phrase), False).to_numpy()
    if "completion_raw" in table.column_names:
        found = found | pc.fill_null(pc.match_substring(table["completion_raw"], phrase.encode()), False).to_numpy()
    return found
