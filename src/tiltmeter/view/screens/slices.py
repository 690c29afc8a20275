"""Slices side by side, the most suspicious first, and the tasks that became solvable overnight; both bounded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, log

from tiltmeter.data.slices import slice_of
from tiltmeter.rundir.journal import Event
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.slices import SliceNumbers, recent_mean
from tiltmeter.view.payloads.overview import SliceRow, SliceTables, SolvedRow
from tiltmeter.view.screens.alarms import EvidenceCurves
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.wording import finite_or_none, format_number, truncate

MOST = 12  # rows of either list
NAME = 120  # characters


def slice_tables(run_facts: RunFacts, evidence: Mapping[str, float]) -> SliceTables:
    """At most twelve slices and twelve tasks, and how many others there are; no slices where there are fewer than two.

    `evidence`: log odds against each slice.
    """
    numbers = run_facts.slices.slices
    names = list(dict.fromkeys([*numbers, *evidence]))
    since = {slice_of(alarm.name): alarm.onset for alarm in run_facts.open_alarms("alarm") if slice_of(alarm.name)}
    names.sort(key=lambda name: (name not in since, -evidence.get(name, 0.0), name))
    names = names if len(names) > 1 else []
    solved = sorted(run_facts.slices.solved.values(), key=lambda task: (-task.step, task.name))
    return SliceTables(
        slices=[_row(name, numbers.get(name), evidence.get(name), since.get(name)) for name in names[:MOST]],
        slices_left_out=max(len(names) - MOST, 0),
        solved=[
            SolvedRow(
                task=truncate(task.name, NAME),
                step=task.step,
                before=task.before,
                share=task.since,
                rollouts=task.rollouts,
            )
            for task in solved[:MOST]
        ],
        solved_left_out=max(len(solved) - MOST, 0),
    )


def _row(name: str, numbers: SliceNumbers | None, log_odds: float | None, since: int | None) -> SliceRow:
    numbers = numbers or SliceNumbers()
    return SliceRow(
        name=truncate(name, NAME),
        rollouts=numbers.rollouts,
        last=numbers.last,
        reward=finite_or_none(recent_mean(numbers.reward)),
        gold=finite_or_none(recent_mean(numbers.gold)),
        evidence=finite_or_none(log_odds),
        since=since,
    )


def slices_of(reader: RunReader) -> SliceTables:
    """The tables of a run that is open; where it has slices this reads the whole journal once."""
    if len(reader.run_facts.slices.slices) < 2:
        return slice_tables(reader.run_facts, {})
    return slice_tables(reader.run_facts, _evidence(reader.get_fold("evidence", EvidenceCurves)))


def slices_of_events(run_facts: RunFacts, events: Iterable[Event]) -> SliceTables:
    """The same from events that were read."""
    fold = EvidenceCurves()
    if len(run_facts.slices.slices) > 1:
        for event in events:
            fold.add(event)
    return slice_tables(run_facts, _evidence(fold))


def _evidence(fold: EvidenceCurves) -> dict[str, float]:
    return {} if fold.gold_test is None else fold.gold_test.slice_evidence()


def describe_tasks(tables: SliceTables) -> list[str]:
    """The tasks in a line each, without marking them as anything but a list."""
    lines = [
        f"{row.task}: paid {row.before:.0%} of the time, and {row.share:.0%} of {row.rollouts} rollouts "
        f"since step {row.step}"
        for row in tables.solved
    ]
    return lines + ([f"and {tables.solved_left_out} others"] if tables.solved_left_out else [])


def slice_cells(tables: SliceTables) -> list[Sequence[str]]:
    """The table of slices as text: slice, rollouts, reward, gold, odds, and since when it has an alarm."""
    rows: list[Sequence[str]] = []
    for row in tables.slices:
        reward, gold = (format_number(float("nan") if one is None else one) for one in (row.reward, row.gold))
        since = "" if row.since is None else f"alarm since about step {row.since}"
        rows.append((row.name, f"{row.rollouts:,}", reward, gold, _odds(row.evidence), since))
    if tables.slices_left_out:
        rows.append((f"and {tables.slices_left_out} others", "", "", "", "", ""))
    return rows


def _odds(evidence: float | None) -> str:
    """Odds against a slice, from its log odds; a dash where nothing was bet on it."""
    if evidence is None:
        return "–"
    if evidence > log(1e6):
        return f"10^{evidence / log(10.0):.0f}"
    return f"{exp(evidence):,.0f}" if evidence > log(10.0) else f"{exp(evidence):.1f}"
