"""Renders the preference report as one HTML file without scripts; all texts are escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tiltmeter.workbench.common.html_report import (
    CELL,
    CHECKS,
    anchor,
    bar,
    html_page,
    list_section,
    rows_table,
    text,
    two_answers,
)
from tiltmeter.workbench.common.tables import cell
from tiltmeter.workbench.preferences.finding import PreferenceExample, PreferenceFinding
from tiltmeter.workbench.preferences.render import axis, fixes, headline, notes, size_line
from tiltmeter.workbench.preferences.report import PreferenceReport

WORDS = {"found": "Something was found", "clear": "Nothing was found", "cannot tell": "Cannot tell"}
EXAMPLES = 4  # of one finding
SENTENCE = 1000  # characters


def page(report: PreferenceReport) -> str:
    """The whole file."""
    parts = [
        _head(report),
        _checks(report),
        list_section("What to do", fixes(report), "ol", SENTENCE),
        *(_details(finding) for finding in report.ordered),
        list_section("What was read", report.input_notes, limit=SENTENCE),
        list_section("Before you believe it", notes(report), limit=SENTENCE),
    ]
    body = "\n".join(part for part in parts if part)
    return html_page(f"{WORDS[report.state]} - {report.source}", body, CHECKS, "preferences/report.css")


def _head(report: PreferenceReport) -> str:
    return (
        f'<header><p class="state {_kind(report.state)}">{WORDS[report.state]}</p><h1>{text(report.source)}</h1>'
        f'<p class="lead">{text(headline(report), SENTENCE)}</p><p class="small">{text(size_line(report))}</p></header>'
    )


def _checks(report: PreferenceReport) -> str:
    """A row for each check: its state, its interval drawn and written, and its sentence."""
    rows = "".join(
        f'<tr><th scope="row">{_link(finding)}</th>'
        f'<td><span class="chip {_kind(finding.state)}">{text(finding.state)}</span></td>'
        f'<td class="picture">{_bar(finding)}</td><td>{text(finding.sentence, SENTENCE)}</td></tr>'
        for finding in report.ordered
    )
    return (
        '<section><h2>Checks</h2><p class="small">A bar begins at no effect. Dashed: where an effect would '
        'matter. Dark stroke: the interval.</p><table class="checks"><thead><tr><th>check</th><th>state</th>'
        f"<th>interval</th><th>in words</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _bar(finding: PreferenceFinding) -> str:
    scale = axis(finding)
    if scale is None:
        return ""
    low, high = (end if math.isfinite(end) else finding.estimate for end in (finding.low, finding.high))
    label = f"{finding.interval} {finding.unit}"
    svg = bar(
        finding.estimate, low, high, ends=(scale.left, scale.right), zero=scale.zero, limits=scale.limits,
        kind=_kind(finding.state), label=label,
    )  # fmt: skip
    unit = f'<span class="unit">{text(finding.unit)}</span>' if finding.unit else ""
    return f'{svg}<span class="figure">{text(finding.interval)}</span>{unit}'


def _details(finding: PreferenceFinding) -> str:
    """Figures, table and examples of a finding; empty if it has only a sentence."""
    if not (finding.facts or finding.rows or finding.examples):
        return ""
    facts = _facts(finding.facts)
    table = rows_table(finding.name, finding.rows)
    first_examples = finding.examples[:EXAMPLES]
    examples = "".join(_example(example) for example in first_examples)
    more = len(finding.examples) - len(first_examples)
    more_html = f'<p class="small">More examples in --json: {more}.</p>' if more > 0 else ""
    return (
        f'<section id="{anchor(finding.name)}"><h2>{text(finding.name)} <span class="chip {_kind(finding.state)}">'
        f"{text(finding.state)}</span></h2><p>{text(finding.sentence, SENTENCE)}</p>{facts}{table}"
        f"{examples}{more_html}</section>"
    )


def _link(finding: PreferenceFinding) -> str:
    name = text(finding.name)
    return f'<a href="#{anchor(finding.name)}">{name}</a>' if _details(finding) else name


def _facts(facts: Mapping[str, Any]) -> str:
    """Plain figures as pairs; what is a table or a list inside them is for --json."""
    plain = {name: value for name, value in facts.items() if not isinstance(value, Mapping) and not _is_table(value)}
    if not plain:
        return ""
    items = "".join(
        f"<div><dt>{text(_spaced(name))}</dt><dd>{_cell(value)}</dd></div>" for name, value in plain.items()
    )
    return f'<dl class="facts">{items}</dl>'


def _is_table(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in value)


def _example(example: PreferenceExample) -> str:
    why = f": {example.why}" if example.why else ""
    return two_answers(
        f"Row {example.row}{why}", example.prompt, {"chosen": example.chosen, "rejected": example.rejected}
    )


def _cell(value: object) -> str:
    return text(cell(value), CELL)


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _kind(state: str) -> str:
    return state.replace(" ", "-")
