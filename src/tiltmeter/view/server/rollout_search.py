"""Text search over a whole run: a search goes on in the background until it has covered everything, newest steps first.

The first search reads every text and fills the filter of the run's texts; later ones read only files that may match.
Each answer says how many rows were covered so far, of how many.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tiltmeter.errors import StoreError
from tiltmeter.view.server.rollout_files import StepFileReader, find_step_file
from tiltmeter.view.server.rollout_filters import RolloutFilter
from tiltmeter.view.server.rollout_index import RolloutIndex
from tiltmeter.view.server.text_filter import FileKey
from tiltmeter.view.server.text_match import TextMatch

WAIT_SECONDS = 1.5  # for a search before what it has is the answer
IDLE_SECONDS = 20.0  # after which a search that nobody asks about rests
CACHED_SEARCHES = 8
TEXTS = ("prompt", "completion")


@dataclass
class TextSearch:
    """One search: the rows that match, and the files that were covered."""

    matches: tuple[TextMatch, ...]
    hits: dict[FileKey, NDArray[np.int32]] = field(default_factory=dict)  # places in the file; files without are not in
    covered: set[FileKey] = field(default_factory=set)
    pending: list[FileKey] = field(default_factory=list)
    asked_at: float = 0.0
    unsearchable: set[FileKey] = field(default_factory=set)
    thread: threading.Thread | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)
    idle: threading.Event = field(default_factory=threading.Event)

    def table(self) -> pa.Table:
        """The matches by attempt, step, rank and place in the file."""
        with self.lock:
            hits = list(self.hits.items())
        keys = np.array([key for key, _ in hits], np.int64).reshape(-1, 3)
        sizes = [len(places) for _, places in hits]
        columns = [np.repeat(keys[:, at], sizes) for at in range(3)]
        places = np.concatenate([places for _, places in hits]) if hits else np.empty(0, np.int32)
        return pa.table([*columns, places], names=["attempt", "step", "rank", "place"])


@dataclass(frozen=True)
class TextSearchResult:
    """The matches so far, among `searched` of the `of` rows that pass the other filters; others are `unsearchable`."""

    rows: pa.Table
    searched: int
    unsearchable: int
    of: int


def search(index: RolloutIndex, filters: RolloutFilter, *, cancel: threading.Event | None = None) -> TextSearchResult:
    """The rows whose texts match, as far as the search has come; it goes on for those who ask again."""
    files = _files(index, filters)
    one = _start(index, filters.texts, [key for key, _ in files])
    deadline = time.monotonic() + WAIT_SECONDS
    while not one.idle.wait(0.02) and time.monotonic() < deadline and not (cancel is not None and cancel.is_set()):
        pass
    searched, unsearchable = (
        sum(rows for key, rows in files if key in done) for done in (one.covered, one.unsearchable)
    )
    return TextSearchResult(one.table(), searched, unsearchable, sum(rows for _, rows in files))


def _files(index: RolloutIndex, filters: RolloutFilter) -> list[tuple[FileKey, int]]:
    """The files with rows that pass the other filters, newest steps first, and how many such rows each has."""
    with index.cursor() as cursor:
        rows = cursor.execute(
            f"SELECT attempt, step, rank, count(*) FROM rollouts WHERE {filters.where} "
            "GROUP BY attempt, step, rank ORDER BY step DESC, attempt DESC, rank",
            filters.values,
        ).fetchall()
    return [((attempt, step, rank), count) for attempt, step, rank, count in rows]


def _start(index: RolloutIndex, matches: tuple[TextMatch, ...], files: Sequence[FileKey]) -> TextSearch:
    """The search for these texts, at work on what it has not covered."""
    with index.search_lock:
        searches: dict[tuple[TextMatch, ...], TextSearch] = index.searches
        one = searches.pop(matches, None) or TextSearch(matches)
        searches[matches] = one
        for old in list(searches)[:-CACHED_SEARCHES]:
            del searches[old]
    with one.lock:
        one.asked_at = time.monotonic()
        one.pending = [key for key in reversed(files) if key not in one.covered and key not in one.unsearchable]
        busy = one.thread is not None and one.thread.is_alive() and not one.idle.is_set()
        if not one.pending or busy:
            if not one.pending:
                one.idle.set()
            return one
        one.idle.clear()
        one.thread = threading.Thread(target=_work, args=(index, one), name="tiltmeter-search", daemon=True)
        one.thread.start()
    return one


def _work(index: RolloutIndex, one: TextSearch) -> None:
    """Cover the pending files, as long as somebody asks and no later search has begun."""
    trigrams, reader = set().union(*(match.trigrams() for match in one.matches)), StepFileReader()
    try:
        while not index.stopped and time.monotonic() - one.asked_at < IDLE_SECONDS:
            with one.lock:
                if not one.pending:
                    return
                key = one.pending.pop()
            if trigrams and index.texts.may_hold(key, trigrams) is False:
                one.covered.add(key)
                continue
            try:
                places = _matching_places(index, reader, key, one.matches)
            except (StoreError, IndexError, pa.ArrowException):
                one.unsearchable.add(key)  # deleted, damaged, or without texts: nobody knows what stood there
                continue
            with one.lock:
                if len(places):
                    one.hits[key] = places
                one.covered.add(key)
    finally:
        one.idle.set()


def _matching_places(
    index: RolloutIndex, reader: StepFileReader, key: FileKey, matches: Sequence[TextMatch]
) -> NDArray[np.int32]:
    """The rows of a file in which all the texts are found; the file joins the filter if it is not there yet."""
    fresh = key not in index.texts
    names = TEXTS if fresh else tuple(dict.fromkeys(name for match in matches for name in match.columns))
    table, facts = reader.read_texts(find_step_file(index.run, *key), names)
    stored = [column for name in names for column in (name, f"{name}_raw") if column in table.column_names]
    if not any(column.removesuffix("_raw") in match.columns for match in matches for column in stored):
        raise StoreError("no text is stored")
    columns = {name: _column(table, name) for name in stored}
    if fresh:
        index.texts.add(key, columns.values())
    hits = np.ones(facts["rows"], bool)
    for match in matches:
        found_here = np.zeros(facts["rows"], bool)
        for name in match.columns:
            for column in (name, f"{name}_raw"):
                if column in columns:
                    found_here |= match.rows(columns[column])
        hits &= found_here
    return np.flatnonzero(hits).astype(np.int32)


def _column(table: pa.Table, name: str) -> pa.Array:
    """A column in one piece, its texts as such: prompts are often stored as numbers of distinct ones."""
    column = table[name]
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    whole = column.combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole
