"""The list of runs as asked for: which runs, in which order and groups. It happens here, so that of thousands of runs
a short answer is sent.

    act beta=0.1 live:yes tag:keep /lr-1e-[56]/

A word stands in the run's name, its problem, its settings or its tags; `NAME=VALUE` is a setting, `state:act` a state,
`tag:keep` a tag. Runs that are archived are found by `archived:yes` (only these) and `archived:any`.
"""

from __future__ import annotations

import math
import shlex
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

import pyarrow as pa

from tiltmeter.verdict.states import State
from tiltmeter.view.payloads.overview import FleetGroup, FleetRow, FleetSort, GroupSpread
from tiltmeter.view.screens.fleet import worst_first
from tiltmeter.view.server.run_list import ListedRun
from tiltmeter.view.server.text_match import TextMatch

MOST_TERMS = 8
MOST_NAMES = 40  # settings by which runs can be grouped
MOST_VALUES = 200  # of a number in a group
MISSING = "not known"

#: Numbers by which rows are sorted; what is missing comes last.
_KEYS: dict[FleetSort, Callable[[FleetRow], float | str | None]] = {
    "name": lambda row: row.name.lower(),
    "step": lambda row: row.step,
    "age": lambda row: row.age_s,
    "gold": lambda row: None if row.level is None else row.level.now,
    "lost": lambda row: None if row.level is None else row.level.change,
    "kl": lambda row: row.kl,
    "labels": lambda row: row.labels,
}


def choose_rows(runs: Sequence[ListedRun], find: str) -> list[ListedRun]:
    """The runs that a query finds. Raises `ValueError` for one that is not understood."""
    terms = _terms(find)
    if not asks_archived(find):
        runs = [run for run in runs if not run.row.archived]
    for term in terms:
        test = _test(term, runs)
        runs = [run for run, fits in zip(runs, test, strict=True) if fits]
    return list(runs)


def asks_archived(find: str) -> bool:
    """Whether runs that are archived are asked for."""
    return any(term.lower() in ("archived:yes", "archived:any") for term in _terms(find))


def _terms(find: str) -> list[str]:
    try:
        terms = shlex.split(find) if '"' in find else find.split()
    except ValueError:
        raise ValueError("a quotation mark is not closed") from None
    if len(terms) > MOST_TERMS:
        raise ValueError(f"a query has at most {MOST_TERMS} terms")
    return terms


def _test(term: str, runs: Sequence[ListedRun]) -> list[bool]:
    rows = [run.row for run in runs]
    if len(term) > 2 and term[0] == term[-1] == "/":
        match = TextMatch.of(term[1:-1], regex=True, ignore_case=True)
        names = pa.array([row.name.encode("utf-8", "replace").decode() for row in rows], pa.string())
        return [bool(hit) for hit in match.rows(names)]
    word = term.lower()
    if word.startswith("state:"):
        if word[6:].upper() not in get_args(State):
            raise ValueError(f"a state is one of {', '.join(get_args(State)).lower()}")
        return [row.state == word[6:].upper() for row in rows]
    if word in ("live:yes", "live:no"):
        return [row.live == (word == "live:yes") for row in rows]
    if word.startswith("tag:"):
        return [any(word[4:] == tag.lower() for tag in row.tags) for row in rows]
    if word.startswith("archived:"):
        if word[9:] not in ("yes", "no", "any"):
            raise ValueError("archived:yes, archived:no or archived:any")
        return [word[9:] == "any" or row.archived == (word[9:] == "yes") for row in rows]
    if "=" in term:
        name, _, value = term.partition("=")
        return [row.settings.get(name, MISSING) == value for row in rows]
    return [
        word in row.name.lower()
        or word in row.what.lower()
        or any(word in one.lower() for one in (*row.settings.values(), *row.tags))
        for row in rows
    ]


def sort_rows(runs: Sequence[ListedRun], sort: FleetSort, *, up: bool) -> list[ListedRun]:
    """In order; by state the worst first, whichever way, because nothing may be buried."""
    worst = sorted(runs, key=lambda run: worst_first(run.row, run.since))
    if sort == "state":
        return worst
    key = _KEYS[sort]
    present = [(value, run) for run in worst if (value := key(run.row)) is not None]
    missing = [run for run in worst if key(run.row) is None]
    return [run for _, run in sorted(present, key=lambda item: item[0], reverse=not up)] + missing


def group_rows(runs: Sequence[ListedRun], name: str) -> tuple[list[ListedRun], list[FleetGroup]]:
    """The runs by the value of a setting, each group in the order given; those with most trouble first."""
    values: dict[str, list[ListedRun]] = {}
    for run in runs:
        values.setdefault(run.row.settings.get(name, MISSING), []).append(run)
    groups = [_group(value, [run.row for run in members]) for value, members in values.items()]
    groups.sort(key=lambda one: (-one.states.get("ACT", 0) / one.runs, -one.runs, one.value))
    return [run for one in groups for run in values[one.value]], groups


def _group(value: str, rows: Sequence[FleetRow]) -> FleetGroup:
    levels = [row.level for row in rows if row.level is not None]
    return FleetGroup(
        value=value,
        runs=len(rows),
        states=dict(Counter(row.state for row in rows)),
        reward=spread([row.reward for row in rows if row.reward is not None]),
        gold=spread([level.now for level in levels]),
        lost=spread([level.change for level in levels]),
        first=min(row.step for row in rows),
        last=max(row.step for row in rows),
    )


def spread(numbers: Sequence[float]) -> GroupSpread:
    """Mean and standard deviation between runs.

    >>> spread([1.0, 3.0]).mean, round(spread([1.0, 3.0]).sd, 3), spread([]).mean, spread([2.0]).sd
    (2.0, 1.414, None, None)
    """
    values = sorted(one for one in numbers if math.isfinite(one))
    mean = math.fsum(values) / len(values) if values else None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return GroupSpread(values=values[:: max(1, -(-len(values) // MOST_VALUES))], n=len(values), mean=mean, sd=sd)


def setting_names(runs: Sequence[ListedRun]) -> list[str]:
    """The settings that differ between the runs, those with fewest values first."""
    values: dict[str, set[str]] = {}
    for run in runs:
        for name, value in run.row.settings.items():
            values.setdefault(name, set()).add(value)
    differ = [name for name, seen in values.items() if len(seen) > 1]
    return sorted(differ, key=lambda name: (len(values[name]), name))[:MOST_NAMES]
