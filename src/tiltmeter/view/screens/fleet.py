"""The fleet screen: all runs, one row each, the worst state first."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
from msgspec.structs import asdict, replace

from tiltmeter.data.records import Floats
from tiltmeter.rundir.journal_chain.check import JournalState
from tiltmeter.verdict.checks import duration_text
from tiltmeter.verdict.list_entry import ListEntry, Spark, Trust, captured_settings, make_spark
from tiltmeter.verdict.message import likelihood_word
from tiltmeter.verdict.run_facts import alarm_id
from tiltmeter.verdict.states import State
from tiltmeter.version import __version__
from tiltmeter.view.payloads.overview import Fleet, FleetGroup, FleetRow, Headline
from tiltmeter.view.payloads.picture import RunPicture
from tiltmeter.view.screens.gold import last_good
from tiltmeter.view.screens.history import RunHistory
from tiltmeter.view.screens.picture.curves import NO_GOLD, CurvePoints, PictureCurves, read_curves
from tiltmeter.view.screens.picture.layout import THUMBNAIL, draw_run
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import headline
from tiltmeter.view.screens.wording import describe_change, ranked_findings, truncate

TEXT = 120
MOST_TAGS = 100
LIMIT = 60  # rows in one answer, if no other number is asked for
URGENT: tuple[State, ...] = ("ACT", "HOLLOW")  # said though the file that says it may be old: a person is needed
TRUST_WORDS: dict[Trust, str] = {
    "ended": "not read yet: its monitor ended before the run did,",
    "late": "not read yet: its monitor was last heard of",
    "behind": "not read yet: there is more in it than its monitor wrote down",
}
SEVERITY = {state: place for place, state in enumerate(get_args(State))}


def fleet(rows: Sequence[FleetRow], unread: int = 0, unreadable: int = 0, *, shown: FleetPage | None = None) -> Fleet:
    """All rows, counted, and of them those that are shown; without `shown` the worst. What is archived is counted
    apart, unless it is asked for."""
    hidden = Counter(row.state for row in rows if row.archived) if shown is None or not shown.archived else {}
    tags = sorted({tag for row in rows for tag in row.tags})[:MOST_TAGS]
    rows = [row for row in rows if not (hidden and row.archived)]
    ages = [row.age_s for row in rows if row.live and row.age_s is not None]
    page = FleetPage(rows[:LIMIT], len(rows)) if shown is None else shown
    return Fleet(
        version=__version__,
        runs=list(page.rows),
        total=len(rows) + unreadable + unread - sum(row.unread for row in rows),
        live=sum(row.live for row in rows),
        states=dict(Counter(row.state for row in rows)),
        age_s=min(ages, default=None),
        unread=unread,
        unreadable=unreadable,
        left_out=page.matches - len(page.rows),
        matches=page.matches,
        groups=list(page.groups),
        setting_names=list(page.setting_names),
        hidden=dict(hidden),
        tags=tags,
    )


class FleetPage(NamedTuple):
    """The rows that are shown of those that a query finds."""

    rows: Sequence[FleetRow]
    matches: int
    groups: Sequence[FleetGroup] = ()
    setting_names: Sequence[str] = ()
    archived: bool = False  # archived runs are asked for


def row_from_file(run: str, name: str, content: ListEntry, trust: Trust, now: float) -> FleetRow:
    """The row of a run by its monitor's list entry. What the file does not settle is never shown as calm."""
    age = None if content.data_time is None else max(0.0, now - content.data_time)
    head = Headline(
        run=run,
        name=name,
        state=content.state,
        sentence=content.sentence,
        live=content.live,
        attempt=content.attempt,
        step=content.step,
        age_s=None if age is None else round(age, 1),
        agreement=content.agreement,
        level=content.level,
    )
    what = problem_text(content.state, content.sentence, content.failure, content.confidence, content.onset)
    if trust != "whole" or (content.live and (age is None or age > content.patience)):
        if trust == "whole":
            word = (
                f"the trainer was last heard of {duration_text(age)} ago" if age is not None else "no step is measured"
            )
        else:
            word = f"{TRUST_WORDS[trust]} {duration_text(now - content.heartbeat)} ago, at step {content.step}"
        if content.state in URGENT:
            what = truncate(f"{what} ({word})", 2 * TEXT)
        else:
            head = replace(head, state="STALE", sentence=word)
            what = word
    change = content.change
    return FleetRow(
        **{field: getattr(head, field) for field in head.__struct_fields__},
        last_good=content.last_good,
        what=what,
        picture=None,
        settings=content.settings,
        kl=content.kl,
        reward=_last(content.proxy.values()),
        did="" if change is None else truncate(f"{describe_change(asdict(change))} ({change.state})", TEXT),
        labels=content.labels,
        unread=trust != "whole",
    )


def with_journal(row: FleetRow, journal: JournalState) -> FleetRow:
    """A row with what is known of its run's journal: one that was changed is never shown as calm."""
    if journal.level == "unchecked":
        return replace(row, what=f"{row.what} (its journal is not checked yet)")
    if not journal.fault:
        return row
    if row.state in ("OK", "WATCH", "BLIND"):
        return replace(row, state="BLIND", sentence=journal.fault, what=truncate(journal.fault, 2 * TEXT))
    return replace(row, what=truncate(f"{journal.fault}; {row.what}", 3 * TEXT))


def picture_from_file(name: str, content: ListEntry) -> RunPicture:
    """The thumbnail of a run by its list entry: its curves, the gap since the onset, no marks."""
    proxy, gold = (_points(line, content.first, content.step) for line in (content.proxy, content.gold))
    ends = [_ends(line.values) for line in (proxy, gold)]
    texts = [f"{word} from {a:.3g} to {b:.3g}" for word, (a, b) in zip(("proxy", "gold"), ends, strict=True) if a == a]
    curves = PictureCurves(
        name=name,
        state=content.state,
        verdict=content.sentence,
        sentence=", ".join(texts) or "no step is measured yet",
        first=content.first,
        last=content.step,
        proxy=proxy,
        gold=gold,
        abandoned=(),
        proxy_ends=ends[0],
        gold_ends=ends[1],
        shaded_from=content.onset,
        flags=(),
        keep=None,
        actions=(),
        missing="" if gold else NO_GOLD,
        why_missing="",
        notes=(),
    )
    return draw_run(curves, THUMBNAIL)


def _points(line: Spark, first: int, last: int) -> CurvePoints:
    values = np.array([math.nan if one is None else one for one in line.values()], np.float64)
    steps = np.linspace(first, last, len(values)) if len(values) > 1 else np.full(len(values), float(last))
    return CurvePoints(steps, values, values, values)


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _ends(values: Floats) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    return (float(finite[0]), float(finite[-1])) if len(finite) else (math.nan, math.nan)


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
    curves = read_curves(reader)
    return FleetRow(
        **asdict(head),
        last_good=None if last_good_checkpoint is None else last_good_checkpoint.step,
        what="",
        picture=draw_run(curves, THUMBNAIL),
        settings=captured_settings(reader.run_facts),
        kl=float(kl[-1]) if len(kl) and math.isfinite(kl[-1]) else None,
        reward=_last(make_spark(reader.columns.lineage_series("reward.mean").values).values()),  # as in a list entry
        did=latest_change(reader.get_fold("history", RunHistory)),
        labels=reader.run_facts.labels,
        unread=False,
    )


def problem_since(reader: RunReader) -> float:
    """When the problem began: the time of the oldest open alarm or warning, else of the last event."""
    history = reader.get_fold("history", RunHistory)
    open_alarms = reader.verdict.alarms or (reader.verdict.warnings if reader.verdict.state == "WATCH" else ())
    raised_times = [history.alarm_times.get(alarm_id(alarm), math.inf) for alarm in open_alarms]
    start_time = min(raised_times, default=max(reader.run_facts.last_times.values(), default=0.0))
    return float(start_time)


def describe_problem(reader: RunReader) -> str:
    """The most likely finding with its onset, else the verdict's sentence, shortened."""
    verdict, ranked = reader.verdict, ranked_findings(reader.run_facts)
    failure, confidence = (ranked[0].failure, ranked[0].confidence) if ranked else ("", 0.0)
    onset = verdict.alarms[0].onset if verdict.alarms else None
    return problem_text(verdict.state, verdict.sentence, failure, confidence, onset)


def problem_text(state: State, sentence: str, failure: str, confidence: float, onset: int | None) -> str:
    if not failure or state not in ("ACT", "WATCH"):
        return truncate(sentence, TEXT)
    when = f" since ~{onset}" if onset is not None else ""
    return truncate(f"{likelihood_word(confidence)} {failure.replace('_', ' ')}{when}", TEXT)


def latest_change(history: RunHistory) -> str:
    """The newest proposed change, else the newest one that was applied."""
    rows = list(history.actions.values())
    applied = [row for row in rows if row["state"] in ("applied", "reverted")]
    proposed = [row for row in rows if row["state"] in ("proposed", "approved")]
    for row in (max(proposed, key=lambda row: row["time"], default=None), applied[-1] if applied else None):
        if row is not None:
            return truncate(f"{describe_change(row)} ({row['state']})", TEXT)
    return ""
