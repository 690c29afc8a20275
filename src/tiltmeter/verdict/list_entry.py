"""A run's entry for lists of runs: what its monitor last concluded, in one small file, so that they read no journals.

The journal stays the truth. The file names the place in the journal that it was made of and the time until which a
newer one is promised, so that a reader can see whether it still says what the run says: `Trust`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import numpy as np
from msgspec import Meta, MsgspecError, Struct, to_builtins
from msgspec.json import Decoder

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Floats
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.run_path import OpenRun, make_folder
from tiltmeter.rundir.sidecar import HOSTILE, Count, Text300
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.agreement_and_gain import Agreement
from tiltmeter.verdict.gold_standing import GoldLevel
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.states import State

NAME = "list_entry.json"  # in cache/
LIMIT = 16_384  # bytes
SCHEMA = 1
SPARK = 24  # points of a small chart
SETTINGS = 40  # of a run, at most
SENTENCE = 600  # characters
AHEAD_SECONDS = 5.0  # by which the journal of a live run may be ahead of the file
CLOCK_SECONDS = 60.0  # by which two machines' clocks may differ
TAIL = 18  # bytes at the end of a journal line that hold its checksum

Step: TypeAlias = Annotated[int, Meta(ge=-1, le=(1 << 63) - 1)]
Height: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]
#: How far a file speaks for its run. "whole": it says what the journal says; "ended": its monitor is gone while the
#: run is not over; "late": its monitor has not written for longer than it promised; "behind": the run has more,
#: or something else, than the file was made of.
Trust = Literal["whole", "ended", "late", "behind"]


class KnobChange(Struct, frozen=True, kw_only=True):
    """The newest change that was proposed, else the newest that was made."""

    knob: Text300
    before: float
    after: float
    state: Text300


class Spark(Struct, frozen=True, kw_only=True):
    """A small chart: heights in thousandths between two values, which are quicker to parse than numbers."""

    low: float
    high: float
    points: Annotated[list[Height | None], Meta(max_length=SPARK)]

    def values(self) -> list[float | None]:
        """The chart's values, with four digits.

        >>> Spark(low=1.0, high=3.0, points=[0, None, 500]).values()
        [1.0, None, 2.0]
        """
        scale = (self.high - self.low) / 1000
        return [None if one is None else float(f"{self.low + scale * one:.4g}") for one in self.points]


class ListEntry(Struct, frozen=True, kw_only=True):
    """What a monitor left of a run. Texts may hold what a model or a dataset wrote."""

    schema: Annotated[int, Meta(ge=SCHEMA)]
    heartbeat: float  # when the monitor wrote this, seconds since 1970
    due: float  # when it writes again at the latest
    over: bool  # the monitor has ended: nothing newer is to come
    journal: Annotated[str, Meta(pattern=r"^[0-9]{1,18}\.jsonl$")]  # the file that was written last
    journal_bytes: Count
    journal_tail: Annotated[str, Meta(max_length=TAIL)]  # its last bytes: a checksum
    state: State
    sentence: Annotated[str, Meta(max_length=SENTENCE)]
    live: bool
    attempt: Count
    step: Step
    first: Step  # of the curves
    data_time: float | None  # of the newest rollouts; null: there are none
    patience: float  # seconds without rollouts after which a live run is STALE
    since: float  # when the problem began
    failure: Text300  # the likeliest finding; empty: none
    confidence: float
    onset: Step | None
    last_good: Step | None
    proxy: Spark
    gold: Spark
    kl: float | None
    labels: Count
    people: bool
    change: KnobChange | None
    settings: Annotated[dict[Text300, Text300], Meta(max_length=SETTINGS)]
    agreement: Agreement | None
    level: GoldLevel | None


#: Not by `read_sidecar`, which takes four times as long: of a key that stands twice the last counts, and a text with
#: half of a character makes the file one that cannot be used. The journal is the truth in either case.
_DECODER = Decoder(ListEntry)


def read_list_entry(run: str, now: float) -> tuple[ListEntry, Trust] | None:
    """The list entry of a run directory and how far it speaks for it; None if there is none that can be used."""
    try:
        with OpenRun(run) as opened:
            with opened.file("cache", NAME) as (handle, info):
                if info.st_size > LIMIT:
                    return None
                content = _DECODER.decode(os.pread(handle, LIMIT, 0))
            return content, trust_entry(opened, content, info.st_mtime, now)
    except (*HOSTILE, MsgspecError):
        return None


def write_list_entry(run: RunDirectory, content: ListEntry) -> None:
    """Put it in place of the one before. Raises `OSError`."""
    text = json.dumps(to_builtins(content), allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > LIMIT:
        raise OSError(f"a list entry of {len(text)} bytes")
    replace_file(make_folder(run.path, "cache") / NAME, text)


def trust_entry(run: OpenRun, content: ListEntry, written: float, now: float) -> Trust:
    """How far a list entry speaks for its run, by its own words and by looking at four other files."""
    size, tail = journal_end(run, content.journal, content.journal_bytes) or (-1, "")
    if size < content.journal_bytes or tail != content.journal_tail:
        return "behind"
    if size > content.journal_bytes and not (content.live and now - content.heartbeat < AHEAD_SECONDS):
        return "behind"
    if run.modified("rollouts") > written or run.modified("events") > written:
        return "behind"  # an attempt or a journal began since
    if content.over and content.live:
        return "ended"
    if not content.live:
        # Something was stored, packed or deleted since: what it was is not in the file.
        return "behind" if run.modified(f"rollouts/{content.attempt}") > written else "whole"
    if now > content.due or content.heartbeat > now + CLOCK_SECONDS:
        return "late"
    return "whole"


def journal_end(run: OpenRun, name: str, end: int | None = None) -> tuple[int, str] | None:
    """The size of a file of the journal, and its last bytes or those before `end`, which say which line stands there;
    None without a file."""
    try:
        with run.file("events", name) as (handle, info):
            end = info.st_size if end is None else end
            return info.st_size, os.pread(handle, min(TAIL, end), max(0, end - TAIL)).decode("ascii", "replace")
    except OSError:
        return None


def captured_settings(run_facts: RunFacts) -> dict[str, str]:
    """What was captured of the newest attempt's settings when it was opened; empty if nothing was."""
    facts = run_facts.attempts.get(run_facts.attempt, {}) if run_facts.attempt is not None else {}
    settings = facts.get("settings")
    if not isinstance(settings, dict):
        return {}
    return {str(name)[:100]: str(value)[:200] for name, value in list(settings.items())[:SETTINGS]}


def newest_change(run_facts: RunFacts) -> KnobChange | None:
    actions = list(run_facts.actions.values())
    for states in (("proposed", "approved"), ("applied", "reverted")):
        if newest := max((one for one in actions if one.state in states), key=lambda one: one.step, default=None):
            return KnobChange(knob=newest.knob[:300], before=newest.before, after=newest.after, state=newest.state)
    return None


def lineage_values(run_facts: RunFacts, name: str) -> Floats:
    """The values of one reading along the current lineage, in step order."""
    return series_values(run_facts, run_facts.history.get(name, ReadingTable(name)))


def series_values(run_facts: RunFacts, series: ReadingTable) -> Floats:
    """The values of a series along the current lineage, in step order."""
    series = series.on_lineage(run_facts.spans())
    return series.values[np.argsort(series.steps, kind="stable")]


def gold_values(run_facts: RunFacts, source: str) -> Floats:
    """Gold over the run, by the source that its standing is of."""
    return lineage_values(run_facts, source) if source else np.empty(0)


def sparkline_values(values: Floats, points: int = SPARK) -> Floats:
    """Means over so many equal stretches of the series."""
    if len(values) <= points:
        return values
    edges = np.linspace(0, len(values), points + 1).astype(np.int64)
    return np.asarray(np.add.reduceat(values, edges[:-1]) / np.diff(edges), np.float64)


def make_spark(values: Floats) -> Spark:
    """A small chart of a series; what is not finite is a gap."""
    points = sparkline_values(values)
    finite = points[np.isfinite(points)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
    if not np.isfinite(high - low):
        return Spark(low=0.0, high=0.0, points=[])
    scale = 1000.0 / (high - low) if high > low else 0.0
    return Spark(low=low, high=high, points=[round((x - low) * scale) if np.isfinite(x) else None for x in points])


def names_in_order(files: Sequence[Path]) -> list[str]:
    """The journal's files by the number of their attempt; others are not ours."""
    names = [path.name for path in files if path.name.removesuffix(".jsonl").isdecimal()]
    return sorted(names, key=lambda name: int(name.removesuffix(".jsonl")))
