"""The comparison report in words, as JSON, and as the report that every screen shows."""

from __future__ import annotations

import math
from typing import Any

from tiltmeter_workbench.check_report.report import Axis, Check, CheckGroup, Report
from tiltmeter_workbench.check_report.tables import json_safe
from tiltmeter_workbench.compare.measures.measure import ALPHA, Measure
from tiltmeter_workbench.compare.report import ComparisonReport

LABELS = {
    "healthy": "Healthy",
    "costs": "It has a cost",
    "drift": "Drift without gain",
    "cannot tell": "Cannot tell",
}


def as_check(measure: Measure) -> Check:
    """The measure as every screen shows it: the difference is drawn around 0, on a line wide enough for its interval.

    >>> as_check(Measure("kl", "KL", "shown", "", difference=2.0, low=1.5, high=2.5)).figure()
    '+2 [+1.5, +2.5]'
    """
    ends = [abs(value) for value in (measure.difference, measure.low, measure.high) if math.isfinite(value)]
    reach = 1.1 * max(ends, default=0.0) if math.isfinite(measure.difference) else 0.0
    return Check(
        measure.name,
        measure.state,
        measure.sentence,
        measure.difference,
        measure.low,
        measure.high,
        measure.unit,
        measure.fix,
        rows=measure.rows,
        examples=measure.examples,
        title=measure.title,
        columns={"base": measure.base, "checkpoint": measure.checkpoint},
        axis=Axis(-reach, 0.0, reach) if reach else None,
        signed=True,
        rows_in_short=measure.state in ("worse", "better") and len(measure.rows) > 1,
    )


def as_report(report: ComparisonReport) -> Report:
    """The report as every screen shows it."""
    note = "A bar begins at no difference: to the right the checkpoint has more. Dark stroke: the interval."
    measures = [as_check(measure) for measure in report.ordered]
    lists = {
        "Not asked": missing(report),
        "What was read": report.input_notes,
        "Before you believe it": notes(report),
    }
    return Report(
        f"{report.checkpoint} against {report.base}",
        report.verdict.state,
        LABELS[report.verdict.state],
        report.verdict.sentence,
        [CheckGroup("The price", measures, note, "measure", "difference")],
        f"Judged by {report.judge}" if report.judge else "Not judged",
        fixes(report),
        lists=lists,
    )


def fixes(report: ComparisonReport) -> list[str]:
    """What to do about each cost."""
    return list(dict.fromkeys(f"{measure.title}: {measure.fix}" for measure in report.costs if measure.fix))


def missing(report: ComparisonReport) -> list[str]:
    """Measures that were not requested, each with its option."""
    return [f"{measure.title}: {measure.sentence}" for measure in report.not_asked]


def notes(report: ComparisonReport) -> list[str]:
    """Caveats of the report."""
    lines = [
        f"Worse and better: the interval leaves out no difference, and the difference is large enough to matter. All "
        f"measures together call something worse in at most {100 * ALPHA:g} % of checkpoints that are their base.",
        "A win rate is worse or better as soon as its interval leaves out one half, and may be looked at "
        "after every batch. The others are about the prompts that were asked, once.",
    ]
    if report.judge:
        what = "A model's opinion: claims are about this judge, not about people." if report.judged else ""
        lines.append(f"Judged by {report.judge}. {what}".rstrip())
    return lines


def as_json(report: ComparisonReport) -> dict[str, Any]:
    """Everything, for machines. Texts are as they were written: encode them before showing."""
    return {
        "base": report.base,
        "checkpoint": report.checkpoint,
        "verdict": report.verdict.state,
        "costs": list(report.verdict.costs),
        "sentence": report.verdict.line,
        "exit_code": report.exit_code,
        "judge": report.judge,
        "judged_by_a_model": report.judged,
        "alpha": ALPHA,
        "seed": report.seed,
        "measures": [_measure_json(measure) for measure in report.measures],
        "fixes": fixes(report),
        "not_asked": missing(report),
        "read": list(report.input_notes),
        "notes": notes(report),
    }


def _measure_json(measure: Measure) -> dict[str, Any]:
    return {**json_safe(vars(measure)), "examples": [example.as_json() for example in measure.examples]}
