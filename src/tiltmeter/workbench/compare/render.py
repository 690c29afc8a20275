"""Renders the comparison report: notes, JSON and Markdown."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tiltmeter.view.check_report.markdown import bullets, escape_line, quote_text, table
from tiltmeter.view.check_report.tables import cell, json_safe, titles
from tiltmeter.workbench.compare.measures.measure import ALPHA, Measure, MeasureExample
from tiltmeter.workbench.compare.report import ComparisonReport

ROWS, EXAMPLES = 12, 3  # of a measure, in Markdown
COLUMNS = ("measure", "base", "checkpoint", "difference", "state", "in words")


class DifferenceAxis(NamedTuple):
    """Where an interval is drawn: the ends of a line with 0, no difference, in its middle."""

    left: float
    right: float


def axis(measure: Measure) -> DifferenceAxis | None:
    """Wide enough for the interval; None where there is nothing to draw."""
    ends = [abs(value) for value in (measure.difference, measure.low, measure.high) if math.isfinite(value)]
    if not math.isfinite(measure.difference) or not max(ends):
        return None
    return DifferenceAxis(-1.1 * max(ends), 1.1 * max(ends))


def figure(value: float) -> str:
    """One number of the table.

    >>> figure(0.5), figure(12345.6), figure(math.nan)
    ('0.5', '1.23e+04', '–')
    """
    return f"{value:.3g}" if math.isfinite(value) else "–"


def difference(measure: Measure, digits: int = 3) -> str:
    """With its interval, both with a sign.

    >>> difference(Measure("kl", "KL", "shown", "", difference=2.0, low=1.5, high=2.5))
    '+2 [+1.5, +2.5]'
    """
    if not math.isfinite(measure.difference):
        return "–"
    low, high = (f"{end:+.{digits}g}" for end in (measure.low, measure.high))
    return f"{measure.difference:+.{digits}g}" + (f" [{low}, {high}]" if math.isfinite(measure.low) else "")


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
        "measures": [json_safe(vars(measure)) for measure in report.measures],
        "fixes": fixes(report),
        "not_asked": missing(report),
        "read": list(report.input_notes),
        "notes": notes(report),
    }


def shows_table(measure: Measure) -> bool:
    """Whether a short form of the report has room for a measure's small table: the others are in the long ones."""
    return measure.state in ("worse", "better") and len(measure.rows) > 1


def as_markdown(report: ComparisonReport) -> str:
    """Short enough to paste into a model card or a pull request."""
    lines = [f"## {escape_line(report.verdict.line)}", ""]
    lines += [f"{escape_line(report.checkpoint)} against {escape_line(report.base)}.", ""]
    measure_rows = [
        (m.title, figure(m.base), figure(m.checkpoint), _with_unit(m), m.state, m.sentence) for m in report.ordered
    ]
    lines += table(COLUMNS, measure_rows)
    lines += bullets("What to do", fixes(report))
    for measure in report.ordered:
        rows = [tuple(cell(row.get(name)) for name in titles(measure.rows)) for row in measure.rows[:ROWS]]
        rows = rows if shows_table(measure) else []
        examples = measure.examples[:EXAMPLES] if measure.is_cost else ()
        if rows or examples:
            lines += [f"### {escape_line(measure.title)}", ""]
            lines += table(titles(measure.rows), rows)
        for example in examples:
            lines += _example(example)
    lines += bullets("Not asked", missing(report))
    lines += bullets("What was read", report.input_notes)
    lines += bullets("Before you believe it", notes(report))
    return "\n".join(lines).rstrip() + "\n"


def _with_unit(measure: Measure) -> str:
    text = difference(measure)
    return f"{text} {measure.unit}" if measure.unit and text != "–" else text


def _example(example: MeasureExample) -> list[str]:
    lines = [escape_line(example.why), ""] if example.why else []
    return lines + [
        part for name in ("prompt", "base", "checkpoint") for part in quote_text(name, getattr(example, name))
    ]
