"""`tiltmeter onset`: when gold was highest, and the checkpoint that is worth going back to."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console

from tiltmeter.cli.options import Json, Run, open_run
from tiltmeter.cli.terminal.progress import progress
from tiltmeter.cli.terminal.run_screen import sparkline
from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold import LATER, CompletionToLabel, GoldAnswer, GoldSource
from tiltmeter.gold.label_files import Label, to_label
from tiltmeter.gold.onset_labels import LABELS, LEAST, draw_rows, estimate_onset, request_texts, steps_of
from tiltmeter.gold.people import PeopleSource
from tiltmeter.gold.row_request import row_request
from tiltmeter.monitor.parts import load_gold
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.payloads import OnsetEstimated
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import terminal
from tiltmeter.stats.backfilled_onset import backfilled_onset
from tiltmeter.stats.turn import BAND
from tiltmeter.verdict.gold_standing import DATED, PAST
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import CHECKPOINT
from tiltmeter.verdict.verdict import Verdict, judge_run

Gold = Annotated[
    str | None, typer.Option("--gold", help="Who labels the past: file.py:function or judge.toml.", metavar="GOLD")
]
Labels = Annotated[int, typer.Option("--labels", help="How many answers of the past to label.", min=LEAST, metavar="N")]

PART = 20  # labels between two steps of the progress bar


@dataclass(frozen=True, slots=True)
class OnsetReport:
    """When gold was highest, what it rests on, and the checkpoint to go back to."""

    basis: str
    onset: OnsetEstimated
    checkpoint: int | None

    @property
    def best(self) -> float:
        return float(np.interp(self.onset.peak, self.onset.steps, self.onset.gold))

    @property
    def now(self) -> float:
        return self.onset.gold[-1]


def onset(run: Run, gold: Gold = None, labels: Labels = LABELS, json: Json = False) -> None:
    """Say when gold was highest, with an interval, and which checkpoint to go back to.

    Example: tiltmeter onset runs/tonight --gold checks.py:score --labels 200

    With --gold, answers drawn at random over the whole stored past are labelled, and a curve that rises and then falls
    is fitted. Without it the turn that the verdict names is said; where it names none, that of the labels bought after
    an alarm, or of gold of every step. Nothing in the run changes.

    Exit code: 0 gold has not fallen, 1 it has, 2 cannot say.
    """
    directory = open_run(run)
    verdict, run_facts, events = judge_run(directory)
    from_verdict = _verdict_onset(verdict, run_facts) if gold is None else None
    if gold is not None:
        source = load_gold(gold)
        if isinstance(source, PeopleSource):
            raise AttachError(
                "people label at the page of a run: `tiltmeter watch RUN --gold people` asks them about the past "
                "after an alarm, and `tiltmeter view` shows it to them"
            )
        estimate, basis = _label_past(directory, run_facts, events, source, labels), f"by {source.identity}"
    elif from_verdict is not None:
        estimate, basis = from_verdict, "that the run has"
    elif run_facts.onset is not None and not run_facts.onset.why:
        estimate, basis = run_facts.onset, "bought after the alarm"
    else:
        estimate, basis = _known_gold(run_facts), "of every step"
    if estimate.why:
        raise StoreError(f"{run}: {estimate.why}")
    checkpoint = _checkpoint(run_facts, estimate) if from_verdict is None else _advised(verdict)
    report = OnsetReport(basis, estimate, checkpoint)
    if json:
        typer.echo(json_module.dumps(_facts(report), indent=1))
    else:
        _print(report)
    raise typer.Exit(1 if report.onset.has_fallen else 0)


def _verdict_onset(verdict: Verdict, run_facts: RunFacts) -> OnsetEstimated | None:
    """The turn of gold as the verdict dates it, so that no two surfaces name two; None: it names none."""
    gold, dated = verdict.gold, [alarm for alarm in verdict.alarms if alarm.name in DATED]
    if gold is None or gold.turn is None or not dated:
        return None
    first, curve = min(dated, key=lambda alarm: alarm.onset), gold.turn.curve
    past = 0 if run_facts.onset is None or gold.source == PAST else run_facts.onset.answered
    count = gold.curve.labels + past
    return OnsetEstimated(
        requested=count, answered=count, requests="",
        peak=first.onset, low=first.onset_low, high=first.onset_high,
        steps=curve.steps.astype(int).tolist(), gold=curve.level.round(4).tolist(),
        stderr=round(float(curve.high[-1] - curve.low[-1]) / (2.0 * BAND), 4),
    )  # fmt: skip


def _advised(verdict: Verdict) -> int | None:
    best = None if verdict.advice is None else verdict.advice.best
    return None if best is None else best.step


def _label_past(
    run: RunDirectory, run_facts: RunFacts, events: Sequence[Event], source: GoldSource, labels: int
) -> OnsetEstimated:
    """Draw rows over the current lineage's stored past and ask the source about them."""
    last, identity = run_facts.last_step, str(run.identity().get("id", ""))
    stored = steps_of(events, run_facts.spans(), last)
    request = draw_rows(identity, run_facts.attempt or 0, last, stored, source, labels)
    if request is None:
        return OnsetEstimated(
            requested=0, answered=0, requests="", why="no measured step has rollouts: tiltmeter watch RUN"
        )
    batches = request_texts(run, request)
    answers: list[Label] = []
    with progress() as update:
        for first in range(0, len(request.rows), PART):
            part: list[CompletionToLabel | Label] = []
            for number, row in enumerate(request.rows[first : first + PART], start=first):
                batch = batches[row]
                to_ask = (
                    None if isinstance(batch, str) else row_request(batch, row[2], request.label_id(number), "onset")
                )
                part.append(to_ask or Label(None, batch if isinstance(batch, str) else "the text was not stored"))
            replies = iter(_ask(source, [one for one in part if isinstance(one, CompletionToLabel)]))
            answers += [one if isinstance(one, Label) else _label(next(replies)) for one in part]
            update("labels of the past", len(answers), len(request.rows))
    return estimate_onset(run, request, answers)


def _ask(source: GoldSource, requests: list[CompletionToLabel]) -> Sequence[GoldAnswer]:
    try:
        return list(source.label(requests)) if requests else []
    except Exception as error:  # noqa: BLE001  # whatever the source does, it is a missing label, with the reason
        return [error] * len(requests)


def _label(answer: GoldAnswer) -> Label:
    return Label(None, "no answer yet") if answer is LATER else to_label(answer)


def _known_gold(run_facts: RunFacts) -> OnsetEstimated:
    """From gold of every step, where the run has it."""
    readings = run_facts.history.get("gold.mean", ReadingTable("gold.mean")).on_lineage(run_facts.spans())
    if len(readings) < LEAST:
        why = f"gold of {len(readings)} steps is too little; name who labels the past: --gold checks.py:score"
        return OnsetEstimated(requested=0, answered=0, requests="", why=why)
    values, steps = readings.values, readings.steps
    curve = backfilled_onset(steps, np.zeros((len(readings), 0)), np.arange(len(readings)), values)
    near = max(len(readings) / 6.0, 1.0)
    count = int(readings.counts.sum())
    return OnsetEstimated(
        requested=count, answered=count, requests="", peak=curve.peak, low=curve.low, high=curve.high,
        steps=curve.steps.tolist(), gold=curve.fit.round(4).tolist(),
        stderr=round(float(np.std(np.diff(values)) / np.sqrt(2.0 * near)), 4),
    )  # fmt: skip


def _checkpoint(run_facts: RunFacts, estimate: OnsetEstimated) -> int | None:
    """The saved checkpoint with the most gold, the later of equal ones, not after the interval's end."""
    checkpoints = run_facts.history.get(CHECKPOINT, ReadingTable(CHECKPOINT)).on_lineage(run_facts.spans())
    saved = {int(at) for at in checkpoints.values}
    levels = {at: float(np.interp(at, estimate.steps, estimate.gold)) for at in sorted(saved) if at <= estimate.high}
    return max(levels, key=lambda at: (round(levels[at], 2), at), default=None)


def _facts(report: OnsetReport) -> dict[str, Any]:
    one = report.onset
    return {
        "peak": one.peak, "low": one.low, "high": one.high, "gold_best": round(report.best, 4),
        "gold_now": report.now, "has_fallen": report.onset.has_fallen, "checkpoint": report.checkpoint,
        "labels": one.answered, "basis": report.basis, "r2": one.r2, "stderr": one.stderr,
        "curve": [list(point) for point in zip(one.steps, one.gold, strict=True)],
    }  # fmt: skip


def _print(report: OnsetReport) -> None:
    console, one = Console(highlight=False, markup=False), report.onset
    fallen = (
        f"and has fallen to {report.now:.2f}"
        if report.onset.has_fallen
        else f"and is {report.now:.2f} now: no fall beyond chance"
    )
    console.print(
        f"Gold was highest around step {one.peak} (between {one.low} and {one.high}), at {report.best:.2f}, {fallen}."
    )
    line = sparkline(list(zip(one.steps, one.gold, strict=True)), one.peak if report.onset.has_fallen else None)
    console.print(line.append(f"  steps {one.steps[0]} to {one.steps[-1]}", "dim"))
    console.print(f"From {one.answered:,} labels {terminal(report.basis, 200)}.")
    if report.onset.has_fallen:
        console.print(
            f"Go back to the checkpoint of step {report.checkpoint}."
            if report.checkpoint is not None
            else f"No checkpoint is known from step {one.high} or before."
        )
