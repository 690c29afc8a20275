"""Renders the comparison report as one HTML file without scripts; all texts are escaped."""

from __future__ import annotations

import math

from tiltmeter.workbench.common.html_report import (
    CHECKS,
    anchor,
    bar,
    html_page,
    list_section,
    rows_table,
    text,
    two_answers,
)
from tiltmeter.workbench.compare.measures.measure import Measure, MeasureExample
from tiltmeter.workbench.compare.render import axis, difference, figure, fixes, missing, notes
from tiltmeter.workbench.compare.report import ComparisonReport

WORDS = {
    "healthy": "Healthy",
    "costs": "It has a cost",
    "drift": "Drift without gain",
    "cannot tell": "Cannot tell",
}
#: States as the style sheet calls them: what is bad, what is good.
KINDS = {"worse": "found", "costs": "found", "drift": "found", "better": "clear", "same": "clear", "healthy": "clear"}
EXAMPLES = 4  # of one measure
SENTENCE = 1000  # characters


def page(report: ComparisonReport) -> str:
    """The whole file."""
    parts = [
        _head(report),
        _measures_table(report),
        list_section("What to do", fixes(report), "ol", SENTENCE),
        *(_details(measure) for measure in report.ordered),
        list_section("Not asked", missing(report), limit=SENTENCE),
        list_section("What was read", report.input_notes, limit=SENTENCE),
        list_section("Before you believe it", notes(report), limit=SENTENCE),
    ]
    body = "\n".join(part for part in parts if part)
    return html_page(f"{WORDS[report.verdict.state]} - {report.checkpoint}", body, CHECKS, "compare/report.css")


def _head(report: ComparisonReport) -> str:
    state = report.verdict.state
    judge = f"Judged by {report.judge}" if report.judge else "Not judged"
    return (
        f'<header><p class="state {_kind(state)}">{WORDS[state]}</p>'
        f"<h1>{text(report.checkpoint)} against {text(report.base)}</h1>"
        f'<p class="lead">{text(report.verdict.line, SENTENCE)}</p><p class="small">{text(judge)}</p></header>'
    )


def _measures_table(report: ComparisonReport) -> str:
    """A row for each measure: both models, the difference drawn and written, its state, and its sentence."""
    rows = "".join(
        f'<tr><th scope="row">{_link(measure)}</th><td class="number">{figure(measure.base)}</td>'
        f'<td class="number">{figure(measure.checkpoint)}</td><td class="picture">{_bar(measure)}</td>'
        f'<td><span class="chip {_kind(measure.state)}">{text(measure.state)}</span></td>'
        f"<td>{text(measure.sentence, SENTENCE)}</td></tr>"
        for measure in report.ordered
    )
    return (
        '<section><h2>The price</h2><p class="small">A bar begins at no difference: to the right the checkpoint has '
        "more. Dark stroke: the interval.</p>"
        '<table class="checks"><thead><tr><th>measure</th><th class="number">base</th><th class="number">checkpoint'
        f"</th><th>difference</th><th>state</th><th>in words</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _bar(measure: Measure) -> str:
    ends = axis(measure)
    unit = f'<span class="unit">{text(measure.unit)}</span>' if measure.unit else ""
    figure_html = f'<span class="figure">{text(difference(measure))}</span>{unit}'
    if ends is None:
        return figure_html if math.isfinite(measure.difference) else ""
    low, high = (end if math.isfinite(end) else measure.difference for end in (measure.low, measure.high))
    svg = bar(
        measure.difference, low, high, ends=ends, zero=0.0, limits=(), kind=_kind(measure.state),
        label=f"{difference(measure)} {measure.unit}",
    )  # fmt: skip
    return f"{svg}{figure_html}"


def _details(measure: Measure) -> str:
    """Table and examples of a measure; empty if it has only a sentence."""
    if not (measure.rows or measure.examples):
        return ""
    first_examples = measure.examples[:EXAMPLES]
    more = len(measure.examples) - len(first_examples)
    more_html = f'<p class="small">More examples in --json: {more}.</p>' if more > 0 else ""
    return (
        f'<section id="{anchor(measure.name)}"><h2>{text(measure.title)} <span class="chip {_kind(measure.state)}">'
        f"{text(measure.state)}</span></h2><p>{text(measure.sentence, SENTENCE)}</p>"
        f"{rows_table(measure.title, measure.rows)}"
        f"{''.join(_example(example) for example in first_examples)}{more_html}</section>"
    )


def _link(measure: Measure) -> str:
    title = text(measure.title)
    return f'<a href="#{anchor(measure.name)}">{title}</a>' if _details(measure) else title


def _example(example: MeasureExample) -> str:
    both = {"base": example.base, "checkpoint": example.checkpoint}
    return two_answers(example.why or "Both answers", example.prompt, both)


def _kind(state: str) -> str:
    return KINDS.get(state, state.replace(" ", "-"))
