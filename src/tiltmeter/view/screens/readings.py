"""The readings screen: every reading with its change, and absent readings with the setting that would add them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tiltmeter.data.records import Floats
from tiltmeter.verdict.list_entry import sparkline_values
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.view.payloads.plots import AbsentReading, ReadingRow, Readings
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.series import json_number, json_numbers
from tiltmeter.view.screens.wording import absent_by_column, column_fix

WINDOW = 5  # steps at either end whose means are compared


def readings(reader: RunReader) -> Readings:
    """Every reading that has a value on the current branch, and every one that has none."""
    with reader.lock:
        rows = []
        reader.columns.gather(reader.columns.names())
        for name in reader.columns.names():
            values = reader.columns.lineage_series(name).values
            values = values[np.isfinite(values)]
            if len(values):
                rows.append(
                    ReadingRow(
                        name=name,
                        first=json_number(float(values[0])),
                        last=json_number(float(values[-1])),
                        moved=json_number(change_in_noise(values), 4),
                        spark=json_numbers(sparkline_values(values), 4),
                    )
                )
        return Readings(readings=rows, absent=absent_rows(reader.run_facts))


def absent_rows(run_facts: RunFacts) -> list[AbsentReading]:
    """Absent readings, the columns they lack and how to provide them, the most useful columns first."""
    fixes = {lack: column_fix(lack, imported=run_facts.imported) for lack, _ in absent_by_column(run_facts)}
    return [
        AbsentReading(name=name, lacks=lack, fix=fixes[lack])
        for lack, names in absent_by_column(run_facts)
        for name in names
    ]


def explain_missing(reader: RunReader, name: str, column: str) -> str:
    """Why a reading is absent: the columns it lacks, as the monitor recorded them if it did, and the fix."""
    if not reader.run_facts.steps:
        return "No step has been measured yet; to measure stored steps: tiltmeter watch RUN"
    absent_reasons: Mapping[str, str] = reader.run_facts.absent
    lacks = absent_reasons.get(name) or absent_reasons.get(name.rpartition(".")[0]) or column
    how = column_fix(lacks, imported=reader.run_facts.imported) or f"pass {lacks.split(', ')[0]}= to observe()"
    return f"No {name}: the column {lacks} is missing. To see it: {how}"


def change_in_noise(values: Floats, window: int = WINDOW) -> float:
    """The change of a series from its first to its last steps, in units of its step-to-step noise."""
    if len(values) < 2 * window:
        return 0.0
    change = abs(float(values[-window:].mean() - values[:window].mean()))
    # A lower bound on the noise, for smooth curves.
    noise = max(float(np.abs(np.diff(values)).mean()), float(np.ptp(values)) / 50)
    return change / noise if noise > 1e-12 else 0.0
