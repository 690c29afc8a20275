"""The overview screen without its plots: verdict, onset, findings, actions, advice and history."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import asdict

from tiltmeter.data.records import Finding
from tiltmeter.gold.label_files import asks_people
from tiltmeter.interventions.action_log import OPEN
from tiltmeter.verdict.gold_standing import Estimate
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import Verdict
from tiltmeter.view.payloads.overview import (
    FindingRow,
    GoldCounts,
    Headline,
    HealthLine,
    Lane,
    Mark,
    StopAdvice,
    Summary,
    VerdictCheck,
)
from tiltmeter.view.payloads.picture import RunPicture
from tiltmeter.view.screens.actions import action_rows, current_offer
from tiltmeter.view.screens.alarms import alarm_rows
from tiltmeter.view.screens.claims.run_claims import reader_claims
from tiltmeter.view.screens.exemplars import example_completions
from tiltmeter.view.screens.gold import NAMES, checkpoints, gold_name, last_good
from tiltmeter.view.screens.history import RunHistory, newest_entries
from tiltmeter.view.screens.picture.curves import read_curves
from tiltmeter.view.screens.picture.layout import PAGE_SIZES, draw_run
from tiltmeter.view.screens.run_reader import ReadingSeries, RunReader
from tiltmeter.view.screens.samples import rollout_id
from tiltmeter.view.screens.slices import slices_of
from tiltmeter.view.screens.wording import describe_agreement_and_level, ranked_findings, remarks, truncate

FINDINGS = 4
ENTRIES = 40
WARNINGS = 8
PROPOSALS = 5
ASIDES = 12
MARKS = 60
CHECKPOINTS = 20  # marks: the plot of gold shows them all
TEXT = 300
POINTS = 20  # readings on either side of an onset that are pooled
#: The checks of a verdict that are about the monitor, not about the policy.
MONITOR_CHECKS = ("monitor", "fresh", "detectors", "ranks", "kept", "scored")


def summary(reader: RunReader, since: float | None = None) -> Summary:
    """Everything above the plots, as of the last refresh. `since`: entries from that time on."""
    with reader.lock:
        verdict, run_facts, history = reader.verdict, reader.run_facts, reader.get_fold("history", RunHistory)
        first = verdict.alarms[0] if verdict.alarms else None
        stop_advice, offer = verdict.advice, current_offer(reader, history)
        best_checkpoint = last_good(reader)
        entries = [entry for entry in history.entries if since is None or entry.time >= since]
        open_actions = [
            row for row in history.actions.values() if row["state"] in OPEN and row["attempt"] == run_facts.attempt
        ]
        head = headline(reader, verdict)
        return Summary(
            **asdict(head),
            behind=0 if reader.watcher.ages is None else reader.watcher.ages.behind,
            now=time.time(),
            onset=None if first is None else first.onset,
            onset_low=None if first is None else first.onset_low,
            onset_high=None if first is None else first.onset_high,
            last_good=best_checkpoint,
            advice=None
            if stop_advice is None
            else StopAdvice(word=stop_advice.word, why=truncate(stop_advice.why, TEXT), now=stop_advice.now),
            symptom=symptom(reader),
            agreement_and_level=describe_agreement_and_level(verdict),
            checks=check_rows(verdict),
            findings=[_finding_row(finding, run_facts) for finding in ranked_findings(run_facts)[:FINDINGS]],
            alarms=alarm_rows(reader, list(verdict.alarms)),
            warnings=alarm_rows(reader, list(verdict.warnings[:WARNINGS])),
            proposals=action_rows(reader, open_actions[-PROPOSALS:]),
            entries=newest_entries(entries, ENTRIES),
            entries_left_out=max(0, len(entries) - ENTRIES),
            asides=_asides(reader, verdict),
            gold=_gold_counts(run_facts, history),
            pictures=page_pictures(reader),
            rows=run_facts.rows,
            steps=run_facts.steps,
            mode="" if offer is None else offer.mode,
            lanes=attempt_lanes(run_facts),
            marks=plot_marks(reader, best_checkpoint),
            proves=example_completions(reader),
            claims=reader_claims(reader),
            slices=slices_of(reader),
            health=health_line(verdict, run_facts),
        )


def page_pictures(reader: RunReader) -> list[RunPicture]:
    """The picture in the sizes that the page chooses from."""
    curves = read_curves(reader)
    return reader.cache_until_event("pictures", lambda: [draw_run(curves, size) for size in PAGE_SIZES])


def headline(reader: RunReader, verdict: Verdict) -> Headline:
    """The fields that every list of runs shows first."""
    run_facts, age = reader.run_facts, reader.age
    return Headline(
        run=reader.id,
        name=reader.name,
        state=verdict.state,
        sentence=verdict.sentence,
        live=run_facts.attempt is None or run_facts.attempt not in run_facts.ended,
        attempt=run_facts.attempt if run_facts.attempt is not None else 0,
        step=run_facts.last_step,
        age_s=None if age is None else round(age, 1),
        agreement=verdict.agreement,
        level=verdict.level,
    )


def check_rows(verdict: Verdict) -> list[VerdictCheck]:
    return [VerdictCheck(name=name, ok=check.ok, why=check.why) for name, check in verdict.checks.items()]


def symptom(reader: RunReader) -> str:
    """The change of reward and gold since the onset, or since the start: "proxy +0.21, gold -0.31 since step 612". If
    gold is known only for audited pairs, the slope that the alarm tests is added."""
    alarms, standing = reader.verdict.alarms, reader.verdict.gold
    onset = alarms[0].onset if alarms else None
    gold = gold_name(reader)
    changes = []
    if (paid := _before_after(reader.columns.lineage_series("reward.mean"), onset)) is not None:
        changes.append(f"proxy {_signed(paid[1] - paid[0])}")
    if standing is not None:
        change = standing.level.change if alarms else standing.now.mean - standing.first.mean
        changes.append(f"{NAMES.get(gold, gold)} {_signed(change)}")
    if alarms and alarms[0].name == "gold.slope" and gold == "gold.level":
        before_after = _before_after(reader.columns.lineage_series("gold.slope"), onset)
        changes += (
            [f"slope of gold {_signed(before_after[0])} → {_signed(before_after[1])}"]
            if before_after is not None
            else []
        )
    if not changes:
        return ""
    return f"{', '.join(changes)} since {'the start' if onset is None else f'step {onset}'}"


def _signed(value: float) -> str:
    return f"{value:+.2f}" if abs(value) < 10 else f"{value:+.3g}"


def _before_after(series: ReadingSeries, onset: int | None) -> tuple[float, float] | None:
    """Means before the onset (without one: of the first half) and of the newest values; None: one side is empty."""
    cut = len(series.steps) // 2 if onset is None else int(np.searchsorted(series.steps, onset))
    before = slice(0, min(cut, POINTS)) if onset is None else slice(max(0, cut - POINTS), cut)
    after = slice(max(cut, len(series.steps) - POINTS), None)
    if not len(series.steps[before]) or not len(series.steps[after]):
        return None
    was, now = (
        float(np.average(series.values[part], weights=np.maximum(series.n[part], 1))) for part in (before, after)
    )
    return was, now


def _finding_row(finding: Finding, run_facts: RunFacts) -> FindingRow:
    experiment = run_facts.experiments.get(finding.failure, {}).get("sentence", "")
    return FindingRow(
        failure=finding.failure,
        confidence=finding.confidence,
        attempt=finding.attempt,
        step=finding.step,
        summary=truncate(finding.summary, TEXT),
        cause=truncate(finding.cause, TEXT),
        fix=truncate(finding.fix, TEXT),
        tried=truncate(str(experiment), TEXT),
        readings=list(finding.readings)[:8],
        exemplars=[rollout_id(*row) for row in finding.exemplars[:12]],
    )


def _asides(reader: RunReader, verdict: Verdict) -> list[str]:
    def lookup(name: str) -> tuple[Any, Any]:
        series = reader.columns.lineage_series(name)
        return series.steps, series.values

    return [truncate(text, TEXT) for text in remarks(verdict, reader.run_facts, lookup)][:ASIDES]


def _gold_counts(run_facts: RunFacts, history: RunHistory) -> GoldCounts:
    pending = sum(run_facts.unlabelled.values())
    source = "" if run_facts.gold is None else str(run_facts.gold["name"])
    return GoldCounts(
        source=source or ("given with the rollouts" if run_facts.labels else ""),
        labels=run_facts.labels,
        label_requests=run_facts.labels_requested + pending,
        waiting=pending,
        rollouts=run_facts.audited,
        people=run_facts.gold is not None and asks_people(run_facts.gold),
    )


def attempt_lanes(run_facts: RunFacts) -> list[Lane]:
    """One lane per attempt that has steps, with the step from which a later attempt replaced it."""
    spans, rows = run_facts.spans(), []
    for attempt in sorted(run_facts.first):
        first, last = run_facts.first[attempt], run_facts.last_measured[attempt]
        limit = spans.get(attempt, float(first))
        parent = run_facts.attempts.get(attempt, {}).get("parent")
        abandoned_from = int(max(limit, first)) if limit <= last else None
        rows.append(Lane(attempt=attempt, parent=parent, first=first, last=last, left=abandoned_from))
    return rows


def plot_marks(reader: RunReader, best_checkpoint: Estimate | None = None) -> list[Mark]:
    """The marks on every plot over steps: alarms, changes, segments, and some checkpoints including the best."""
    event_marks = _limit_marks(reader.get_fold("history", RunHistory).marks, MARKS)
    saved_steps = checkpoints(reader)
    shown_steps = {
        saved_steps[at] for at in np.linspace(0, len(saved_steps) - 1, min(CHECKPOINTS, len(saved_steps))).astype(int)
    }
    shown_steps |= {best_checkpoint.step} if best_checkpoint is not None else set()
    attempts = sorted(reader.run_facts.spans().items())
    return [
        *event_marks,
        *(
            Mark(
                attempt=next((attempt for attempt, limit in attempts if step < limit), 0),
                step=step,
                kind="checkpoint",
                text=f"checkpoint {step}",
                id="",
            )
            for step in sorted(shown_steps)
        ),
    ]


def _limit_marks(marks: Sequence[Mark], most: int) -> list[Mark]:
    """At most so many marks: warnings are dropped first, the oldest before the newer ones."""
    if len(marks) <= most:
        return list(marks)
    ranked = sorted(range(len(marks)), key=lambda at: (marks[at].kind == "warning", -at))
    return [marks[at] for at in sorted(ranked[:most])]


def health_line(verdict: Verdict, run_facts: RunFacts) -> HealthLine:
    """The state of the monitor itself in one line."""
    failed = [
        verdict.checks[name].why for name in MONITOR_CHECKS if name in verdict.checks and not verdict.checks[name].ok
    ]
    if failed:
        return HealthLine(text=truncate("; ".join(failed), TEXT), ok=False)
    lost, total = run_facts.lost
    parts = ["every stored step is measured", "all ranks are there", f"{lost} of {total} batches lost"]
    parts += [f"{len(run_facts.off)} parts are off"] if run_facts.off else []
    parts += [f"{len(run_facts.faults)} faults on record"] if run_facts.faults else []
    return HealthLine(text=" · ".join(parts), ok=not run_facts.off)
