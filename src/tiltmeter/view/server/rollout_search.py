"""Phrase search: completions that contain a text literally, read from the files, newest steps first, within limits."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tiltmeter.errors import StoreError
from tiltmeter.rundir.store import StepFile
from tiltmeter.view.server.rollout_files import StepFileReader, find_step_file
from tiltmeter.view.server.rollout_filters import RolloutFilter
from tiltmeter.view.server.rollout_index import RolloutIndex

SEARCH_ROWS = 200_000
SEARCH_SECONDS = 5.0
CACHED_SEARCHES = 8  # cached searches, for their further pages
CACHED_SECONDS = 600.0


@dataclass(frozen=True)
class RolloutSearchResult:
    """Attempt, step and row of the matches, among `searched` of the `of` rows that pass the other filters."""

    rows: pa.Table
    searched: int
    of: int
    time: float


def search(
    index: RolloutIndex, filters: RolloutFilter, *, fresh: bool, cancel: threading.Event | None
) -> RolloutSearchResult:
    """The rows that pass the filters and whose completion contains the phrase; with `fresh=False` from the cache."""
    key = (filters.where, filters.values, filters.phrase)
    cached: RolloutSearchResult | None = index.searches.get(key)
    if cached is not None and not fresh and time.monotonic() - cached.time < CACHED_SECONDS:
        return cached
    result = _search_files(index, filters, cancel or threading.Event())
    newest_cached = sorted(index.searches.items(), key=lambda item: item[1].time)[1 - CACHED_SEARCHES :]
    index.searches = {**dict(newest_cached), key: result}
    return result


def _search_files(index: RolloutIndex, filters: RolloutFilter, cancel: threading.Event) -> RolloutSearchResult:
    until = time.monotonic() + SEARCH_SECONDS
    with index.cursor() as cursor:
        (of,) = cursor.execute(f"SELECT count(*) FROM rollouts WHERE {filters.where}", filters.values).fetchone() or (
            0,
        )
        rows = cursor.execute(
            f"SELECT attempt, step, rank, place, row FROM rollouts WHERE {filters.where} "
            "ORDER BY step DESC, attempt DESC, rank, place LIMIT ?",
            [*filters.values, SEARCH_ROWS],
        ).fetchnumpy()
    attempt, step, rank, place, row = (np.asarray(rows[n]) for n in ("attempt", "step", "rank", "place", "row"))
    cuts = np.flatnonzero((np.diff(attempt) != 0) | (np.diff(step) != 0) | (np.diff(rank) != 0)) + 1
    edges = [0, *cuts.tolist(), len(row)] if len(row) else [0]
    reader, hits, searched = StepFileReader(), np.zeros(len(row), bool), 0
    for start, stop in pairwise(edges):
        if cancel.is_set() or time.monotonic() > until:
            break
        searched = stop
        try:
            file = find_step_file(index.run, int(attempt[start]), int(step[start]), int(rank[start]))
            hits[start:stop] = _rows_with_phrase(reader, file, filters.phrase)[place[start:stop]]
        except (StoreError, IndexError):
            continue  # deleted since: there is no text to search
    columns = [attempt[hits], step[hits], row[hits]]
    return RolloutSearchResult(pa.table(columns, names=["attempt", "step", "row"]), searched, of, time.monotonic())


def _rows_with_phrase(reader: StepFileReader, file: StepFile, phrase: str) -> NDArray[np.bool_]:
    table, facts = reader.read_texts(file, ("completion",))
    if "completion" not in table.column_names:
        return np.zeros(facts["rows"], bool)
    hits: NDArray[np.bool_] = pc.fill_null(pc.match_substring(table["completion"], phrase), False).to_numpy()
    if "completion_raw" in table.column_names:
        hits = hits | pc.fill_null(pc.match_substring(table["completion_raw"], phrase.encode()), False).to_numpy()
    return hits
