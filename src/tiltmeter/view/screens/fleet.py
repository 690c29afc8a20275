"""The fleet screen: all runs, one row each, the worst state first."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import get_args

from msgspec.structs import asdict, replace

from tiltmeter.verdict.message import describe_likelihood
from tiltmeter.verdict.run_state import alarm_id
from tiltmeter.verdict.verdict import State
from tiltmeter.version import __version__
from tiltmeter.view.payloads.overview import Fleet, FleetRow, Headline
from tiltmeter.view.screens.gold import last_good
from tiltmeter.view.screens.history import RunHistory
from tiltmeter.view.screens.picture.curves import read_curves
from tiltmeter.view.screens.picture.layout import THUMBNAIL, draw_run
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import headline
from tiltmeter.view.screens.wording import describe_change, ranked_findings, truncate

TEXT = 120
SEVERITY = {state: place for place, state in enumerate(get_args(State))}


def fleet(readers: Iterable[RunReader], limit: int = 1000) -> Fleet:
    """Rows as of each run's last refresh: worst state first, then the oldest problem."""
    rows = []
    for reader in readers:
        with reader.lock:
            rows.append((fleet_row(reader), problem_since(reader)))
    rows.sort(key=lambda item: worst_first(*item))
    shown_rows = [row for row, _ in rows[: max(0, limit)]]
    return Fleet(version=__version__, runs=shown_rows, left_out=len(rows) - len(shown_rows))


def worst_first(row: FleetRow, since: float) -> tuple[object, ...]:
    """Sort key of a row: worst state first, live runs before ended ones."""
    return SEVERITY[row.state], not row.live, since, row.name


def fleet_row(reader: RunReader) -> FleetRow:
    """One run; the fields that change only when the journal does are computed then."""
    head = headline(reader, reader.verdict)
    row = reader.cache_until_event("fleet", lambda: _row(reader, head))
    return replace(row, **asdict(head), what=describe_problem(reader))


def _row(reader: RunReader, head: Headline) -> FleetRow:
    last_good_checkpoint = last_good(reader)
    kl = reader.columns.lineage_series("policy.kl.k3").values
    return FleetRow(
        **asdict(head),
        last_good=None if last_good_checkpoint is None else last_good_checkpoint.step,
        what="",
        picture=draw_run(read_curves(reader), THUMBNAIL),
        kl=float(kl[-1]) if len(kl) and math.isfinite(kl[-1]) else None,
        did=latest_change(reader.get_fold("history", RunHistory)),
        labels=reader.run_state.labels,
    )


def problem_since(reader: RunReader) -> float:
    """When the problem began: the time of the oldest open alarm or warning, else of the last event."""
    history = reader.get_fold("history", RunHistory)
    open_alarms = reader.verdict.alarms or (reader.verdict.warnings if reader.verdict.state == "WATCH" else ())
    raised_times = [history.alarm_times.get(alarm_id(alarm), math.inf) for alarm in open_alarms]
    start_time = min(raised_times, default=max(history.last_times.values(), default=0.0))
    return float(start_time)


def describe_problem(reader: RunReader) -> str:
    """The most likely finding with its onset, else the verdict's sentence, shortened."""
    verdict, ranked = reader.verdict, ranked_findings(reader.run_state)
    if not ranked or verdict.state not in ("ACT", "WATCH"):
        return truncate(verdict.sentence, TEXT)
    when = f" since ~{verdict.alarms[0].onset}" if verdict.alarms else ""
    return truncate(f"{describe_likelihood(ranked[0])} {ranked[0].failure.replace('_', ' ')}{when}", TEXT)


def latest_change(history: RunHistory) -> str:
    """The newest proposed change, else the newest one that was applied."""
    rows = list(history.actions.values())
    applied = [row for row in rows if row["state"] in ("applied", "reverted")]
    proposed = [row for row in rows if row["state"] in ("proposed", "approved")]
    for row in (max(proposed, key=lambda row: row["time"], default=None), applied[-1] if applied else None):
        if row is not None:
            return truncate(f"{describe_change(row)} ({row['state']})", TEXT)
    return ""
