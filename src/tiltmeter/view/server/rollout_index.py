"""An in-memory table of a run's rollouts, numbers only, built in the background and kept up to date.

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

from tiltmeter.data.lineage import lineage
from tiltmeter.errors import StoreError
from tiltmeter.rundir.rank_summary import expand_ranges
from tiltmeter.rundir.store import StepFile
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server.read_marks import ReadMarks
from tiltmeter.view.server.rollout_files import SCHEMA, StepFileReader
from tiltmeter.view.server.rollout_labels import BoughtLabels
from tiltmeter.view.server.text_filter import TextFilter

CHUNK_ROWS = 50_000  # inserted at once
CHUNK_SECONDS = 1.0  # or sooner, so that a slow disk shows progress
KEEP_UP_SECONDS = 1.0  # between two updates, at least
KEEP_UP_SHARE = 0.05  # of the time, at most, spent on listing files: a long run has many
PATIENCE = 3  # later steps after which a step with missing ranks is inserted, if no monitor has measured it
NUMBER_LIMIT = 2**53  # larger steps and attempts are not valid, and JavaScript cannot represent them

StepKey = tuple[int, int]  # attempt and step

_TYPES = {pa.int64(): "BIGINT", pa.int32(): "INTEGER", pa.float64(): "DOUBLE", pa.uint8(): "UTINYINT"}
_TYPES |= {pa.uint64(): "UBIGINT", pa.bool_(): "BOOLEAN"}
_SAME = " AND ".join(f"rollouts.{name} = fresh.{name}" for name in ("attempt", "step", "row"))
_DUCKDB_SETTINGS = (
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
    >>> from tiltmeter.data.batches import from_columns
    >>> from tiltmeter.rundir.store import RunDirectory
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = RunDirectory.create(folder)
    ...     attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    ...     written = run.write(from_columns(0, [0, 0], reward=[1, 2]), 0, {})
    ...     index = RolloutIndex(RunReader(run))
    ...     index.update()
    ...     index.rollouts, index.ready
    (2, 1.0)
    """

    def __init__(self, reader: RunReader, marks: ReadMarks | None = None) -> None:
        self.reader, self.run = reader, reader.run
        self._marks = marks or ReadMarks()
        self.rollouts = 0
        self.damaged: dict[StepKey, str] = {}  # steps that cannot be read, and why
        self._failed_files: dict[StepKey, list[StepFile]] = {}  # the files of those
        self._ranks_in_table: dict[StepKey, tuple[int, ...]] = {}  # ranks of the steps that are in the table
        self._measured_ranks: dict[StepKey, tuple[int, ...]] = {}  # ranks that the monitor measured
        self._events_read = 0
        self._attempts: dict[int, dict[str, Any]] = {}
        self._complete_attempts: set[int] = set()  # attempts that have ended and are fully measured
        self._first_steps: dict[int, int] = {}
        self._spans: dict[int, float] | None = None
        self._steps_left: int | None = None
        self._next_update = float("-inf")  # when to update again
        self._stop = threading.Event()
        self._updating = threading.Lock()  # held during a whole update
        self._lock = threading.RLock()  # held for each change of the table and of the fields above
        self._thread: threading.Thread | None = None
        self._connection = _open_database()
        self.labels = BoughtLabels(self.run)
        self.texts = TextFilter()
        self.searches: dict[Any, Any] = {}  # searches of texts, the newest last
        self.search_lock = threading.Lock()

    # -- keeping up ---------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> float:
        """The share of the run's steps that are in the table; 1: all steps of the last listing."""
        in_table, steps_left = len(self._ranks_in_table) + len(self.damaged), self._steps_left
        return 0.0 if steps_left is None else 1.0 if steps_left == 0 else in_table / (in_table + steps_left)

    def keep_up(self) -> None:
        """Start an update in the background, unless one is running or was done a moment ago."""
        with self._lock:
            busy = self._thread is not None and self._thread.is_alive()
            if busy or self._stop.is_set() or time.monotonic() < self._next_update:
                return
            self._thread = threading.Thread(target=self._update_in_thread, name="tiltmeter-rollouts", daemon=True)
            self._thread.start()

    def update(self) -> None:
        """Add what is new in the run: labels, steps, and abandoned branches."""
        with self._updating:
            began = time.monotonic()
            self._read_measured_ranks()
            self._insert_labels(self.labels.poll())
            steps = self._missing_steps()
            self._mark_abandoned()
            self._steps_left = len(steps)
            looked = time.monotonic()
            self._insert_steps(steps)
            self._next_update = time.monotonic() + max(KEEP_UP_SECONDS, (looked - began) / KEEP_UP_SHARE)

    def fetch(self, attempt: int, step: int) -> None:
        """Insert one step at once if it is not in the table yet, ahead of the background update.

        Raises `KeyError` if it is not stored and `StoreError` if it cannot be read.
        """
        if (attempt, step) in self._ranks_in_table:
            return
        self._read_measured_ranks()
        ranks = self._measured_ranks.get((attempt, step))
        exists = attempt in self.run.attempts()  # checked against the list, because the id comes from a client
        files = [f for f in self.run.find(attempt, step) if ranks is None or f.rank in ranks] if exists else []
        if not files:
            raise KeyError(f"step {step} of attempt {attempt} is not stored")
        self._insert_labels(self.labels.labels_of_step(attempt, step))
        self._insert([((attempt, step), tuple(f.rank for f in files), StepFileReader().read_step(files))])

    @property
    def stopped(self) -> bool:
        return self._stop.is_set()

    def stop(self) -> None:
        """Stop updating. Running queries finish; the table is freed after the last one."""
        self._stop.set()

    def close(self) -> None:
        """Stop updating and close the table."""
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

    def _update_in_thread(self) -> None:
        try:
            with self._marks.reading(self.reader.id, patient=True):
                self.update()
        except Exception as error:  # noqa: BLE001  # a thread cannot raise to a caller; the page shows the progress
            self._next_update = time.monotonic() + KEEP_UP_SECONDS
            log.warning("the index of rollouts could not be updated: %s: %s", type(error).__name__, error)

    # -- listing ------------------------------------------------------------------------------------------------

    def _read_measured_ranks(self) -> None:
        """Read from the journal which ranks were measured at each step."""
        self.reader.refresh()
        with self.reader.lock:  # without our own lock: a holder of the reader's lock may call the index
            events, self._events_read = self.reader.events[self._events_read :], len(self.reader.events)
            for event in events:
                if event.kind == "step_done":
                    self._measured_ranks[event.attempt, event.step] = tuple(expand_ranges(event.data["ranks"]))

    def _missing_steps(self) -> list[tuple[StepKey, list[StepFile]]]:
        """The stored steps that are missing in the table or incomplete, oldest attempt first."""
        missing: list[tuple[StepKey, list[StepFile]]] = []
        attempts = [attempt for attempt in self.run.attempts() if attempt < NUMBER_LIMIT]
        for attempt in attempts:
            if not self._attempts.get(attempt):
                self._attempts[attempt] = self.run.attempt(attempt)
            if attempt in self._complete_attempts:
                continue
            # Checked before listing, so that the list has everything that a closed rank wrote.
            ended = self.run.ended(attempt)
            steps: dict[int, list[StepFile]] = {}
            for file in self.run.files(attempt, []):
                if file.step < NUMBER_LIMIT:
                    steps.setdefault(file.step, []).append(file)
            if steps:
                self._first_steps[attempt] = min(steps)
            newest, over = max(steps, default=0), ended or attempt != attempts[-1]
            ranks = int(self._attempts[attempt].get("ranks", 1))
            chosen_files = [
                (step, self._files_to_insert(attempt, step, files, ranks, over or step <= newest - PATIENCE))
                for step, files in steps.items()
            ]
            missing += [((attempt, step), files) for step, files in chosen_files if files]
            if ended and all((attempt, step) in self._measured_ranks for step in steps):
                self._complete_attempts.add(attempt)
        return missing

    def _files_to_insert(
        self, attempt: int, step: int, files: list[StepFile], ranks: int, late: bool
    ) -> list[StepFile]:
        """The files of a step to insert; none if they are in the table, or if ranks may still arrive."""
        measured = self._measured_ranks.get((attempt, step))
        if measured is not None:
            files = [file for file in files if file.rank in measured]
        elif len(files) < ranks and not late:
            return []
        present = self._ranks_in_table.get((attempt, step)) == tuple(file.rank for file in files)
        return [] if present or self._failed_files.get((attempt, step)) == files else files

    def _mark_abandoned(self) -> None:
        """Mark abandoned steps, when a new attempt has begun."""
        last = max(self._attempts, default=None)
        spans = {} if last is None else lineage(last, self._attempts, self._first_steps)
        with self._lock:
            if spans == self._spans:
                return
            self._spans = spans
            on_lineage = " OR ".join("(attempt = ? AND step < ?)" for _ in spans) or "FALSE"
            values = [number for pair in spans.items() for number in pair]
            with self.cursor() as cursor:
                cursor.execute(f"UPDATE rollouts SET abandoned = NOT ({on_lineage})", values)

    # -- changing the table -------------------------------------------------------------------------------------------

    def _insert_steps(self, steps: Sequence[tuple[StepKey, list[StepFile]]]) -> None:
        reader = StepFileReader()
        pending: list[tuple[StepKey, tuple[int, ...], pa.Table]] = []
        rows, since = 0, time.monotonic()
        for key, files in steps:
            if self._stop.is_set():
                return
            if (table := self._read_step(reader, key, files)) is None:
                self._steps_left = (self._steps_left or 1) - 1
                continue
            pending.append((key, tuple(file.rank for file in files), table))
            rows += table.num_rows
            if rows >= CHUNK_ROWS or time.monotonic() - since > CHUNK_SECONDS:
                self._insert(pending)
                self._steps_left = (self._steps_left or len(pending)) - len(pending)
                pending, rows, since = [], 0, time.monotonic()
        self._insert(pending)
        self._steps_left = 0

    def _read_step(self, reader: StepFileReader, key: StepKey, files: list[StepFile]) -> pa.Table | None:
        """The numbers of a step; None if it cannot be read, which is recorded. A step packed meanwhile is retried."""
        try:
            try:
                table = reader.read_step(files)
            except StoreError:
                again = [file for file in self.run.find(*key) if file.rank in {one.rank for one in files}]
                if [file.path for file in again] == [file.path for file in files]:
                    raise
                table = StepFileReader().read_step(again)
        except StoreError as error:
            self.damaged[key], self._failed_files[key] = str(error), files
            return None
        self.damaged.pop(key, None)
        self._failed_files.pop(key, None)
        return table

    def _insert(self, steps: Sequence[tuple[StepKey, tuple[int, ...], pa.Table]]) -> None:
        """Insert steps into the table; a step that has other ranks there is replaced."""
        with self._lock, self.cursor() as cursor:
            fresh = [(key, ranks, table) for key, ranks, table in steps if self._ranks_in_table.get(key) != ranks]
            if not fresh:
                return
            cursor.execute("BEGIN")
            for attempt, step in (key for key, _, _ in fresh if key in self._ranks_in_table):
                cursor.execute("DELETE FROM rollouts WHERE attempt = ? AND step = ?", [attempt, step])
            tables = [self._with_abandoned(key, table) for key, _, table in fresh]
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
            self._ranks_in_table |= {key: ranks for key, ranks, _ in fresh}
            (self.rollouts,) = cursor.execute("SELECT count(*) FROM rollouts").fetchone() or (0,)

    def _with_abandoned(self, key: StepKey, table: pa.Table) -> pa.Table:
        attempt, step = key
        abandoned = self._spans is not None and step >= self._spans.get(attempt, -1)
        return table.append_column("abandoned", pa.array([abandoned] * table.num_rows, pa.bool_()))

    def _insert_labels(self, label_table: pa.Table) -> None:
        """Insert labels of the gold source; the first label of a row counts, and gold of the trainer before it."""
        if not label_table.num_rows:
            return
        with self._lock, self.cursor() as cursor:
            cursor.register("fresh", label_table)
            cursor.execute("INSERT OR IGNORE INTO labels SELECT * FROM fresh")
            cursor.execute(f"UPDATE rollouts SET gold = fresh.value FROM fresh WHERE gold IS NULL AND {_SAME}")
            cursor.unregister("fresh")


def _open_database() -> duckdb.DuckDBPyConnection:
    """An in-memory database without access to files, extensions or settings."""
    connection = duckdb.connect(":memory:")
    columns = ", ".join(f"{field.name} {_TYPES[field.type]}" for field in SCHEMA)
    connection.execute(f"CREATE TABLE rollouts ({columns}, abandoned BOOLEAN)")
    connection.execute(
        "CREATE TABLE labels (attempt BIGINT, step BIGINT, row INTEGER, value DOUBLE, PRIMARY KEY (attempt, step, row))"
    )
    for lock in _DUCKDB_SETTINGS:
        connection.execute(f"SET {lock}")
    return connection
