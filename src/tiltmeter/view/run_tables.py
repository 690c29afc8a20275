"""`tiltmeter.read`: a run as Arrow tables, for notebooks and scripts: readings, rollouts, alarms, labels, actions.

The columns are a promise (`docs/read.md`): a later version may add some and changes none. What is missing is null.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tiltmeter.data.batches import OK
from tiltmeter.data.records import FLAGS, RAGGED_COLUMNS, ROW_COLUMNS, Action, Finding, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.gold.label_files import ONSET, LabelRequest, read_labels, read_request
from tiltmeter.rundir.columns import to_table
from tiltmeter.rundir.locate_run import locate_run
from tiltmeter.rundir.rank_summary import rank_ranges
from tiltmeter.rundir.run_path import entries
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import alarm_id
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import MeasuredStep, all_measured_steps, gold_of, rollout_id

if TYPE_CHECKING:
    import pandas
    import polars

_PLACE = [("attempt", pa.int64()), ("step", pa.int64())]
_TIME = pa.timestamp("us", "UTC")
READINGS = pa.schema(
    [
        *_PLACE,
        ("current", pa.bool_()),
        ("name", pa.dictionary(pa.int32(), pa.string())),
        ("value", pa.float64()),
        ("n", pa.int64()),
        ("stderr", pa.float64()),
    ]
)
ALARMS = pa.schema(
    [
        ("id", pa.string()),
        *_PLACE,
        ("tier", pa.string()),
        ("open", pa.bool_()),
        ("name", pa.string()),
        ("detector", pa.string()),
        ("direction", pa.string()),
        ("onset", pa.int64()),
        ("onset_low", pa.int64()),
        ("onset_high", pa.int64()),
        ("evidence", pa.float64()),
        ("threshold", pa.float64()),
        ("resolved", pa.int64()),
        ("summary", pa.string()),
    ]
)
FINDINGS = pa.schema(
    [
        *_PLACE,
        ("time", _TIME),
        ("failure", pa.string()),
        ("open", pa.bool_()),
        ("confidence", pa.float64()),
        ("summary", pa.string()),
        ("cause", pa.string()),
        ("fix", pa.string()),
        ("alarms", pa.list_(pa.string())),
        ("readings", pa.list_(pa.string())),
        ("rollouts", pa.list_(pa.string())),
    ]
)
LABELS = pa.schema(
    [
        ("id", pa.string()),
        *_PLACE,
        ("row", pa.int64()),
        ("value", pa.float64()),
        ("state", pa.string()),
        ("why", pa.string()),
        ("source", pa.string()),
        ("purpose", pa.string()),
        ("asked_attempt", pa.int64()),
        ("asked_step", pa.int64()),
    ]
)
ACTIONS = pa.schema(
    [
        ("id", pa.string()),
        *_PLACE,
        ("time", _TIME),
        ("state", pa.string()),
        ("state_step", pa.int64()),
        ("finding", pa.string()),
        ("knob", pa.string()),
        ("before", pa.float64()),
        ("after", pa.float64()),
        ("reason", pa.string()),
        ("outcome", pa.string()),
    ]
)
#: Of a rollout, unless columns are named: all but those with a value for each token.
ROLLOUT_COLUMNS = ("rewards", *(name for name in ROW_COLUMNS if name not in RAGGED_COLUMNS))


class ArrowTable:
    """An Arrow table that any library of data frames takes as it is.

    >>> table = ArrowTable(pa.table({"step": [1, 2]}))
    >>> len(table), table.columns, table.arrow["step"].to_pylist()
    (2, ['step'], [1, 2])
    """

    def __init__(self, arrow: pa.Table) -> None:
        self.arrow = arrow

    def __len__(self) -> int:
        return int(self.arrow.num_rows)

    def __repr__(self) -> str:
        return f"<ArrowTable of {len(self)} rows: {', '.join(self.columns)}>"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface, by which DuckDB, polars, pandas and others read without a copy."""
        return self.arrow.__arrow_c_stream__(requested_schema)

    @property
    def columns(self) -> list[str]:
        return list(self.arrow.column_names)

    def to_pandas(self) -> pandas.DataFrame:
        """Needs `pandas`, which tiltmeter does not install."""
        frame: pandas.DataFrame = self.arrow.to_pandas()
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Needs `polars`, which tiltmeter does not install."""
        import polars

        frame = polars.from_arrow(self.arrow)
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pylist(self) -> list[dict[str, Any]]:
        """Each row as a dictionary; needs nothing."""
        rows: list[dict[str, Any]] = self.arrow.to_pylist()
        return rows


class RunTables:
    """A run, opened for reading. Tables are of the moment of `read`, or of the last `refresh`.

    Texts in them were written by a model: escape them wherever they are shown.
    """

    def __init__(self, run: RunDirectory) -> None:
        self._reader = RunReader(run)
        self.refresh()

    def __repr__(self) -> str:
        return f"<run {self.name}: {self.state}>"

    def refresh(self) -> None:
        """Read what was added since."""
        self._reader.refresh(force=True)

    @property
    def path(self) -> Path:
        return Path(self._reader.run.path)

    @property
    def name(self) -> str:
        return self._reader.name

    @property
    def state(self) -> str:
        """OK, WATCH, BLIND, STALE, HOLLOW or ACT."""
        return self._reader.verdict.state

    @property
    def sentence(self) -> str:
        """Why the run has its state."""
        return self._reader.verdict.sentence

    def readings(self, names: Iterable[str] | None = None) -> ArrowTable:
        """Every reading, by step and name; `names`: these alone. `current`: the step counts, no later attempt branched
        off before it."""
        columns = self._reader.columns
        wanted = sorted(columns.all_names() if names is None else set(names) & set(columns.all_names()))
        columns.gather(wanted)
        parts = [(code, part) for code, name in enumerate(wanted) for part in columns.stored_series(name)]
        codes = np.concatenate([np.empty(0, np.int32), *(np.full(len(p.steps), c, np.int32) for c, p in parts)])
        attempts, steps, values, n, stderr = (
            np.concatenate([np.empty(0, kind), *(getattr(part, name) for _, part in parts)])
            for name, kind in (
                ("attempts", np.int64),
                ("steps", np.int64),
                ("values", np.float64),
                ("n", np.int64),
                ("stderr", np.float64),
            )
        )
        order = np.lexsort((codes, steps, attempts))
        limits = self._reader.run_facts.spans()
        current = np.zeros(len(steps), bool)
        for attempt, limit in limits.items():
            current |= (attempts == attempt) & (steps < limit)
        named = pa.DictionaryArray.from_arrays(pa.array(codes[order]), pa.array(wanted, pa.string()))
        columns_in_order = [attempts[order], steps[order], current[order], named, values[order], n[order]]
        arrays = [
            *map(pa.array, columns_in_order),
            pa.array(stderr[order], mask=np.isnan(stderr[order])),
        ]
        return ArrowTable(pa.Table.from_arrays(arrays, schema=READINGS))

    def rollouts(
        self,
        *,
        steps: tuple[int, int] | None = None,
        columns: Sequence[str] | None = None,
        skip_unreadable: bool = False,
    ) -> ArrowTable:
        """Every stored rollout, those not measured yet included. `steps`: from the first to the last of a pair.

        Raises `StoreError` for a step that was deleted or is damaged; with `skip_unreadable` it is left out.
        """
        tables = [table.arrow for table in self.rollouts_by_step(steps=steps, columns=columns, skip=skip_unreadable)]
        empty = _rollout_place(RolloutBatch(0, 0, np.empty(0, np.int64)), False, False)
        return ArrowTable(pa.concat_tables(tables or [empty], promote_options="permissive"))

    def rollouts_by_step(
        self, *, steps: tuple[int, int] | None = None, columns: Sequence[str] | None = None, skip: bool = False
    ) -> Iterator[ArrowTable]:
        """The same, a table for each step of each attempt: for runs that do not fit into memory."""
        chosen = ROLLOUT_COLUMNS if columns is None else tuple(columns)
        if unknown := [name for name in chosen if name not in (*ROW_COLUMNS, "rewards", "group")]:
            raise ValueError(f"no column of rollouts: {', '.join(unknown)}")
        low, high = steps if steps is not None else (0, None)
        limits = self._reader.run_facts.spans()
        measured = all_measured_steps(self._reader)
        for at in self._stored_steps():
            if at.step < low or (high is not None and at.step > high):
                continue
            try:
                batch = read_step(self._reader.run, at.attempt, at.step, at.ranks, ("group", *chosen))
            except StoreError as error:
                if skip:
                    continue
                raise StoreError(f"{error}; to leave such steps out: skip_unreadable=True") from error
            if "gold" in chosen:
                batch = self._with_gold(at, batch)
            is_current = at.step < limits.get(at.attempt, -1)
            table = _rollout_place(batch, is_current, (at.attempt, at.step) in measured)
            stored = to_table(batch)[0]
            for name in stored.column_names:
                table = table if name == "group" else table.append_column(name, stored[name])
            yield ArrowTable(table)

    def alarms(self) -> ArrowTable:
        """Every alarm and warning, each in its newest state."""
        state = self._reader.run_facts
        shown = {alarm_id(alarm) for tier in ("alarm", "warning") for alarm in state.open_alarms(tier)}
        rows = []
        for history in state.alarms.values():
            alarm = self._reader.date_alarm(history[-1][2])
            fields = {name: getattr(alarm, name) for name in ALARMS.names if hasattr(alarm, name)}
            rows.append({**fields, "id": alarm_id(alarm), "open": alarm_id(alarm) in shown})
        return _table(rows, ALARMS)

    def findings(self) -> ArrowTable:
        """Every finding, each time it changed; `open` is the newest of a failure that holds now."""
        rows: list[dict[str, Any]] = []
        newest: dict[str, int] = {}
        for event in self._reader.events.rare():
            if isinstance(finding := event.payload if event.kind == "finding" else None, Finding):
                newest[finding.failure] = len(rows)
                fields = {name: getattr(finding, name) for name in FINDINGS.names if hasattr(finding, name)}
                ids = [rollout_id(*place) for place in finding.exemplars]
                rows.append({**fields, "time": _moment(event.time), "open": False, "rollouts": ids})
        for failure in self._reader.run_facts.findings:
            rows[newest[failure]]["open"] = True
        return _table(rows, FINDINGS)

    def labels(self) -> ArrowTable:
        """Every label that was asked for, answered or not. Gold that the trainer handed over is in `rollouts`."""
        rows = [row for request in self._requests() for row in self._label_rows(request)]
        return _table(rows, LABELS)

    def actions(self) -> ArrowTable:
        """Every change that was proposed or made: a row for each of its states."""
        outcomes = {str(one["action"]): str(one["sentence"]) for one in self._reader.run_facts.outcomes}
        rows = []
        for event in self._reader.events.rare():
            if isinstance(action := event.payload if event.kind == "action" else None, Action):
                fields = {name: getattr(action, name) for name in ACTIONS.names if hasattr(action, name)}
                more = {"time": _moment(event.time), "state_step": event.step, "outcome": outcomes.get(action.id)}
                rows.append({**fields, **more})
        return _table(rows, ACTIONS)

    def _stored_steps(self) -> list[MeasuredStep]:
        """Every step with rollouts: as it was measured, or as it is stored. A step that was deleted is among them."""
        steps = dict(all_measured_steps(self._reader))
        run = self._reader.run
        for attempt in run.attempts():
            ranks: dict[int, set[int]] = {}
            for file in run.files(attempt):
                ranks.setdefault(file.step, set()).add(file.rank)
            for step, by_step in ranks.items():
                steps.setdefault((attempt, step), MeasuredStep(attempt, step, rank_ranges(by_step), 0))
        return [steps[key] for key in sorted(steps)]

    def _with_gold(self, at: MeasuredStep, batch: RolloutBatch) -> RolloutBatch:
        """With the labels that were bought in place of what the trainer did not have."""
        gold = gold_of(self._reader, at, batch)
        codes = batch.flags.get("gold", np.zeros(len(batch), np.uint8)).copy()
        codes[np.isfinite(gold)] = OK
        codes[~np.isfinite(gold) & (codes == OK)] = FLAGS.index("missing")
        return replace(batch, gold=gold, flags={**batch.flags, "gold": codes})

    def _requests(self) -> Iterator[LabelRequest]:
        run = self._reader.run
        for entry in sorted(entries(run.path / "gold" / "requests"), key=lambda entry: entry.name):
            name = entry.name.removesuffix(".jsonl")
            attempt, _, step = name.removesuffix(f".{ONSET}").partition("-")
            if attempt.isdecimal() and step.isdecimal() and name != entry.name:
                request = read_request(run, int(attempt), int(step), ONSET if name.endswith(ONSET) else "")
                if request is not None:
                    yield request

    def _label_rows(self, request: LabelRequest) -> Iterator[dict[str, Any]]:
        purposes = {row: bet.purpose for bet in reversed(request.bets) for row in (bet.up, bet.down)}
        for row, label in zip(request.rows, read_labels(self._reader.run, request), strict=True):
            yield {
                "id": rollout_id(*row),
                "attempt": row[0],
                "step": row[1],
                "row": row[2],
                "value": None if label is None else label.value,
                "state": "asked" if label is None else "missing" if label.value is None else "answered",
                "why": None if label is None or not label.why else label.why,
                "source": request.source.get("name"),
                "purpose": "whole step" if request.whole else purposes.get(row),
                "asked_attempt": request.attempt,
                "asked_step": request.step,
            }


def read(path: str | os.PathLike[str]) -> RunTables:
    """A run as Arrow tables: its directory, an attempt in it, the output folder that holds it, or its address.

    Raises `StoreError` if the path means no run, or several.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run = read(RunDirectory.create(f"{folder}/tonight").path)
    ...     run.name, run.state, len(run.readings()), run.alarms().columns[:3]
    ('tonight', 'STALE', 0, ['id', 'attempt', 'step'])
    """
    directory = RunDirectory(locate_run(Path(path)))
    directory.identity()
    return RunTables(directory)


def _rollout_place(batch: RolloutBatch, is_current: bool, is_measured: bool) -> pa.Table:
    """The columns that every rollout has."""
    count = len(batch)
    return pa.table(
        {
            "id": pa.array([rollout_id(batch.attempt, batch.step, row) for row in range(count)], pa.string()),
            "attempt": pa.array(np.full(count, batch.attempt, np.int64)),
            "step": pa.array(np.full(count, batch.step, np.int64)),
            "row": pa.array(np.arange(count, dtype=np.int64)),
            "current": pa.array(np.full(count, is_current)),
            "measured": pa.array(np.full(count, is_measured)),
            "group": pa.array(batch.group, pa.int64()),
        }
    )


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> ArrowTable:
    return ArrowTable(pa.Table.from_pylist(rows, schema=schema))


def _moment(seconds: float) -> int:
    """As Arrow's microseconds."""
    return round(seconds * 1e6)
