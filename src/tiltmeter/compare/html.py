"""A comparison as one HTML file: no script, and whatever the models wrote shown and inert."""

from __future__ import annotations

import math

from tiltmeter.compare.measure import Example, Measure
from tiltmeter.compare.report import Report
from tiltmeter.compare.telling import axis, difference, figure, fixes, missing, notes
from tiltmeter.sheet import CHECKS, anchor, bar, framed, listed, rows_table, text, two_answers

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


def page(report: Report) -> str:
    """The whole file."""
    parts = [
        _head(report),
        _priced(report),
        listed("What to do", fixes(report), "ol", SENTENCE),
        *(_details(measure) for measure in report.priced),
        listed("Not asked", missing(report), limit=SENTENCE),
        listed("What was read", report.told, limit=SENTENCE),
        listed("Before you believe it", notes(report), limit=SENTENCE),
    ]
    body = "\n".join(part for part in parts if part)
    return framed(f"{WORDS[report.verdict.state]} - {report.checkpoint}", body, CHECKS, "compare/report.css")


def _head(report: Report) -> str:
    state = report.verdict.state
    judge = f"Judged by {report.judge}" if report.judge else "Not judged"
    return (
        f'<header><p class="state {_kind(state)}">{WORDS[state]}</p>'
        f"<h1>{text(report.checkpoint)} against {text(report.base)}</h1>"
        f'<p class="lead">{text(report.verdict.line, SENTENCE)}</p><p class="small">{text(judge)}</p></header>'
    )


def _priced(report: Report) -> str:
    """A row for each measure: both models, the difference drawn and written, its state, and its sentence."""
    rows = "".join(
        f'<tr><th scope="row">{_link(measure)}</th><td class="number">{figure(measure.base)}</td>'
        f'<td class="number">{figure(measure.checkpoint)}</td><td class="picture">{_bar(measure)}</td>'
        f'<td><span class="chip {_kind(measure.state)}">{text(measure.state)}</span></td>'
        f"<td>{text(measure.sentence, SENTENCE)}</td></tr>"
        for measure in report.priced
    )
    return (
        '<section><h2>The price</h2><p class="small">A bar begins at no difference: to the right the checkpoint has '
        "more. Dark stroke: the interval.</p>"
        '<table class="checks"><thead><tr><th>measure</th><th class="number">base</th><th class="number">checkpoint'
        f"</th><th>difference</th><th>state</th><th>in words</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _bar(measure: Measure) -> str:
    drawn = axis(measure)
    unit = f'<span class="unit">{text(measure.unit)}</span>' if measure.unit else ""
    written = f'<span class="figure">{text(difference(measure))}</span>{unit}'
    if drawn is None:
        return written if math.isfinite(measure.difference) else ""
    low, high = (end if math.isfinite(end) else measure.difference for end in (measure.low, measure.high))
    made = bar(
        measure.difference, low, high, ends=drawn, zero=0.0, limits=(), kind=_kind(measure.state),
        told=f"{difference(measure)} {measure.unit}",
    )  # fmt: skip
    return f"{made}{written}"


def _details(measure: Measure) -> str:
    """What a measure has beside its sentence; nothing where that is all."""
    if not (measure.rows or measure.examples):
        return ""
    shown = measure.examples[:EXAMPLES]
    more = len(measure.examples) - len(shown)
    left = f'<p class="small">More examples in --json: {more}.</p>' if more > 0 else ""
    return (
        f'<section id="{anchor(measure.name)}"><h2>{text(measure.title)} <span class="chip {_kind(measure.state)}">'
        f"{text(measure.state)}</span></h2><p>{text(measure.sentence, SENTENCE)}</p>"
        f"{rows_table(measure.title, measure.rows)}{''.join(_example(example) for example in shown)}{left}</section>"
    )


def _link(measure: Measure) -> str:
    shown = text(measure.title)
    return f'<a href="#{anchor(measure.name)}">{shown}</a>' if _details(measure) else shown


def _example(example: Example) -> str:
    both = {"base": example.base, "checkpoint": example.checkpoint}
    return two_answers(example.why or "Both answers", example.prompt, both)


def _kind(state: str) -> str:
    return KINDS.get(state, state.replace(" ", "-"))
