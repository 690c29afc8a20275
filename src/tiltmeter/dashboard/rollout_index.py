"""One table of a run's rollouts, numbers only, built in the background and kept up to date while people look at it.

DuckDB holds it in memory and is locked: no files, no extensions, no settings. Text stays in the run's files. A row's
number is the one it has in the batch joined from the ranks that were measured, which is what exemplars and requests
for gold count by.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from tiltmeter.dashboard.rollout_files import SCHEMA, Reader
from tiltmeter.dashboard.rollout_labels import Labels
from tiltmeter.errors import StoreError
from tiltmeter.lineage import lineage
from tiltmeter.page.book import Book
from tiltmeter.ranks import expand
from tiltmeter.store import StepFile

CHUNK_ROWS = 50_000  # inserted at once
CHUNK_SECONDS = 1.0  # or sooner, so that a slow disk shows progress
KEEP_UP_SECONDS = 1.0  # between two looks for new steps, at least
KEEP_UP_SHARE = 0.05  # of the time, at most, spent looking: a long run of many files takes a while to list
PATIENCE = 3  # later steps before one without all its ranks is taken as it is, where no monitor has decided
NUMBER_LIMIT = 2**53  # steps and attempts beyond are no run of ours, and no browser could name them

Key = tuple[int, int]  # attempt and step

_TYPES = {pa.int64(): "BIGINT", pa.int32(): "INTEGER", pa.float64(): "DOUBLE", pa.uint8(): "UTINYINT"}
_TYPES |= {pa.uint64(): "UBIGINT", pa.bool_(): "BOOLEAN"}
_SAME = " AND ".join(f"rollouts.{name} = fresh.{name}" for name in ("attempt", "step", "row"))
_LOCKS = (
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "allow_community_extensions = false",
    "python_enable_replacements = false",
    "temp_directory = ''",
    "enable_external_access = false",
    "lock_configuration = true",
)

log = logging.getLogger("tiltmeter")


class RolloutIndex:
    """The rollouts of one run as a table. Every method may be called from any thread.

    >>> import tempfile
    >>> from tiltmeter.batches import from_columns
    >>> from tiltmeter.store import RunDirectory
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = RunDirectory.create(folder)
    ...     attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    ...     written = run.write(from_columns(0, [0, 0], reward=[1, 2]), 0, {})
    ...     index = RolloutIndex(Book(run))
    ...     index.update()
    ...     index.rollouts, index.ready
    (2, 1.0)
    """

    def __init__(self, book: Book) -> None:
        self.book, self.run = book, book.run
        self.rollouts = 0
        self.damaged: dict[Key, str] = {}  # steps that cannot be read, and why
        self._failed: dict[Key, list[StepFile]] = {}  # the files of those
        self._have: dict[Key, tuple[int, ...]] = {}  # ranks of the steps that are in the table
        self._measured: dict[Key, tuple[int, ...]] = {}  # ranks that the monitor measured
        self._told = 0
        self._attempts: dict[int, dict[str, Any]] = {}
        self._over: set[int] = set()  # attempts that have ended and are measured: nothing comes to them any more
        self._first: dict[int, int] = {}
        self._spans: dict[int, float] | None = None
        self._waiting: int | None = None
        self._next = float("-inf")  # when to look again
        self._stop = threading.Event()
        self._updating = threading.Lock()  # held by whoever brings the table up to date, for as long as that takes
        self._lock = threading.RLock()  # held for each change of the table and of the accounts above
        self._thread: threading.Thread | None = None
        self._connection = _connect()
        self.labels = Labels(self.run)
        self.searches: dict[Any, Any] = {}  # for phrases, with what was found

    # -- keeping up ---------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> float:
        """The share of the run's steps that are in the table; 1: all that were there at the last look."""
        have, waiting = len(self._have) + len(self.damaged), self._waiting
        return 0.0 if waiting is None else 1.0 if waiting == 0 else have / (have + waiting)

    def keep_up(self) -> None:
        """Look for what is new in the background, unless that was done a moment ago or is being done."""
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if busy or self._stop.is_set() or time.monotonic() < self._next:
                return
            self._thread = threading.Thread(target=self._work, name="tiltmeter-rollouts", daemon=True)
            self._thread.start()

    def update(self) -> None:
        """Take in what was added to the run since the last time: labels, steps, a rewind."""
        with self._updating:
            began = time.monotonic()
            self._listen()
            self._label(self.labels.poll())
            steps = self._listed()
            self._rewind()
            self._waiting = len(steps)
            looked = time.monotonic()
            self._take(steps)
            self._next = time.monotonic() + max(KEEP_UP_SECONDS, (looked - began) / KEEP_UP_SHARE)

    def fetch(self, attempt: int, step: int) -> None:
        """See to it that one step is in the table, at once, wherever the building of it is.

        Raises `KeyError` if it is not stored and `StoreError` if it cannot be read.
        """
        if (attempt, step) in self._have:
            return
        self._listen()
        wanted = self._measured.get((attempt, step))
        known = attempt in self.run.attempts()  # looked up, never simply opened: an id comes from a client
        files = [f for f in self.run.find(attempt, step) if wanted is None or f.rank in wanted] if known else []
        if not files:
            raise KeyError(f"step {step} of attempt {attempt} is not stored")
        self._label(self.labels.of(attempt, step))
        self._insert([((attempt, step), tuple(f.rank for f in files), Reader().step(files))])

    def stop(self) -> None:
        """Build no further. Whoever is asking something gets an answer; the table goes with the last of them."""
        self._stop.set()

    def close(self) -> None:
        """Stop building and let the table go."""
        self.stop()
        with self._lock:
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._connection.close()

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one query; queries of several threads run side by side."""
        cursor = self._connection.cursor()
        try:
            yield cursor
        finally:
            cursor.close()

    def _work(self) -> None:
        try:
            self.update()
        except Exception as error:  # noqa: BLE001  # a thread has nobody to raise to; the page shows how far it came
            self._next = time.monotonic() + KEEP_UP_SECONDS
            log.warning("the index of rollouts could not be updated: %s: %s", type(error).__name__, error)

    # -- what is there ------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Which ranks were measured at each step, as far as the monitor has come."""
        self.book.refresh()
        with self.book.lock:  # and no lock of ours: whoever holds the book may ask the index something
            events, self._told = self.book.events[self._told :], len(self.book.events)
            for event in events:
                if event.kind == "step_done":
                    self._measured[event.attempt, event.step] = tuple(expand(event.data["ranks"]))

    def _listed(self) -> list[tuple[Key, list[StepFile]]]:
        """The steps that are stored and not in the table as they should be, oldest attempt first."""
        found: list[tuple[Key, list[StepFile]]] = []
        attempts = [attempt for attempt in self.run.attempts() if attempt < NUMBER_LIMIT]
        for attempt in attempts:
            if not self._attempts.get(attempt):
                self._attempts[attempt] = self.run.attempt(attempt)
            if attempt in self._over:
                continue
            # Asked before listing: whatever a rank wrote before it closed is then in the list.
            ended = self.run.ended(attempt)
            steps: dict[int, list[StepFile]] = {}
            for file in self.run.files(attempt, []):
                if file.step < NUMBER_LIMIT:
                    steps.setdefault(file.step, []).append(file)
            if steps:
                self._first[attempt] = min(steps)
            newest, over = max(steps, default=0), ended or attempt != attempts[-1]
            ranks = int(self._attempts[attempt].get("ranks", 1))
            wanted = [(step, self._chosen(attempt, step, files, ranks, over or step <= newest - PATIENCE))
                      for step, files in steps.items()]  # fmt: skip
            found += [((attempt, step), files) for step, files in wanted if files]
            if ended and all((attempt, step) in self._measured for step in steps):
                self._over.add(attempt)
        return found

    def _chosen(self, attempt: int, step: int, files: list[StepFile], ranks: int, late: bool) -> list[StepFile]:
        """The files that make up a step; none if they are in the table, or if it is too early to tell."""
        measured = self._measured.get((attempt, step))
        if measured is not None:
            files = [file for file in files if file.rank in measured]
        elif len(files) < ranks and not late:
            return []
        known = self._have.get((attempt, step)) == tuple(file.rank for file in files)
        return [] if known or self._failed.get((attempt, step)) == files else files

    def _rewind(self) -> None:
        """Mark what a later attempt has left, when an attempt begins."""
        last = max(self._attempts, default=None)
        spans = {} if last is None else lineage(last, self._attempts, self._first)
        with self._lock:
            if spans == self._spans:
                return
            self._spans = spans
            on = " OR ".join("(attempt = ? AND step < ?)" for _ in spans) or "FALSE"
            values = [number for pair in spans.items() for number in pair]
            with self.cursor() as cursor:
                cursor.execute(f"UPDATE rollouts SET abandoned = NOT ({on})", values)

    # -- changing the table -------------------------------------------------------------------------------------------

    def _take(self, steps: Sequence[tuple[Key, list[StepFile]]]) -> None:
        reader = Reader()
        pending: list[tuple[Key, tuple[int, ...], pa.Table]] = []
        rows, since = 0, time.monotonic()
        for key, files in steps:
            if self._stop.is_set():
                return
            if (table := self._read(reader, key, files)) is None:
                self._waiting = (self._waiting or 1) - 1
                continue
            pending.append((key, tuple(file.rank for file in files), table))
            rows += table.num_rows
            if rows >= CHUNK_ROWS or time.monotonic() - since > CHUNK_SECONDS:
                self._insert(pending)
                self._waiting = (self._waiting or len(pending)) - len(pending)
                pending, rows, since = [], 0, time.monotonic()
        self._insert(pending)
        self._waiting = 0

    def _read(self, reader: Reader, key: Key, files: list[StepFile]) -> pa.Table | None:
        """The numbers of a step; None, and a note, if they cannot be read. What was packed meanwhile is found again."""
        try:
            try:
                table = reader.step(files)
            except StoreError:
                again = [file for file in self.run.find(*key) if file.rank in {one.rank for one in files}]
                if [file.path for file in again] == [file.path for file in files]:
                    raise
                table = Reader().step(again)
        except StoreError as error:
            self.damaged[key], self._failed[key] = str(error), files
            return None
        self.damaged.pop(key, None)
        self._failed.pop(key, None)
        return table

    def _insert(self, steps: Sequence[tuple[Key, tuple[int, ...], pa.Table]]) -> None:
        """Put steps into the table; one that is there with other ranks is replaced."""
        with self._lock, self.cursor() as cursor:
            fresh = [(key, ranks, table) for key, ranks, table in steps if self._have.get(key) != ranks]
            if not fresh:
                return
            cursor.execute("BEGIN")
            for attempt, step in (key for key, _, _ in fresh if key in self._have):
                cursor.execute("DELETE FROM rollouts WHERE attempt = ? AND step = ?", [attempt, step])
            tables = [self._with_branch(key, table) for key, _, table in fresh]
            cursor.register("fresh", pa.concat_tables(tables))
            names = ", ".join(
                "coalesce(fresh.gold, labels.value)" if n == "gold" else f"fresh.{n}" for n in SCHEMA.names
            )
            cursor.execute(
                f"INSERT INTO rollouts SELECT {names}, fresh.abandoned FROM fresh "
                "LEFT JOIN labels ON labels.attempt = fresh.attempt AND labels.step = fresh.step "
                "AND labels.row = fresh.row"
            )
            cursor.execute("COMMIT")
            cursor.unregister("fresh")
            self._have |= {key: ranks for key, ranks, _ in fresh}
            (self.rollouts,) = cursor.execute("SELECT count(*) FROM rollouts").fetchone() or (0,)

    def _with_branch(self, key: Key, table: pa.Table) -> pa.Table:
        attempt, step = key
        abandoned = self._spans is not None and step >= self._spans.get(attempt, -1)
        return table.append_column("abandoned", pa.array([abandoned] * table.num_rows, pa.bool_()))

    def _label(self, found: pa.Table) -> None:
        """Take labels that were bought; the first of a row stands, and the trainer's own before any."""
        if not found.num_rows:
            return
        with self._lock, self.cursor() as cursor:
            cursor.register("fresh", found)
            cursor.execute("INSERT OR IGNORE INTO labels SELECT * FROM fresh")
            cursor.execute(f"UPDATE rollouts SET gold = fresh.value FROM fresh WHERE gold IS NULL AND {_SAME}")
            cursor.unregister("fresh")


def _connect() -> duckdb.DuckDBPyConnection:
    """A database in memory that can reach nothing else, whatever it is asked."""
    connection = duckdb.connect(":memory:")
    columns = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in SCHEMA)
    connection.execute(f"CREATE TABLE rollouts ({columns}, abandoned BOOLEAN)")
    connection.execute(
        "CREATE TABLE labels (attempt BIGINT, step BIGINT, row INTEGER, value DOUBLE, PRIMARY KEY (attempt, step, row))"
    )
    for lock in _LOCKS:
        connection.execute(f"SET {lock}")
    return connection
