"""A report on preference data as one HTML file: no script, and whatever people or models wrote shown and inert."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tiltmeter.preferences.finding import Example, Finding
from tiltmeter.preferences.report import Report
from tiltmeter.preferences.telling import axis, counted, fixes, headline, notes
from tiltmeter.sheet import CELL, CHECKS, anchor, bar, framed, listed, rows_table, text, two_answers
from tiltmeter.tables import cell

WORDS = {"found": "Something was found", "clear": "Nothing was found", "cannot tell": "Cannot tell"}
EXAMPLES = 4  # of one finding
SENTENCE = 1000  # characters


def page(report: Report) -> str:
    """The whole file."""
    parts = [
        _head(report),
        _checks(report),
        listed("What to do", fixes(report), "ol", SENTENCE),
        *(_details(finding) for finding in report.ordered),
        listed("What was read", report.told, limit=SENTENCE),
        listed("Before you believe it", notes(report), limit=SENTENCE),
    ]
    body = "\n".join(part for part in parts if part)
    return framed(f"{WORDS[report.state]} - {report.source}", body, CHECKS, "preferences/report.css")


def _head(report: Report) -> str:
    return (
        f'<header><p class="state {_kind(report.state)}">{WORDS[report.state]}</p><h1>{text(report.source)}</h1>'
        f'<p class="lead">{text(headline(report), SENTENCE)}</p><p class="small">{text(counted(report))}</p></header>'
    )


def _checks(report: Report) -> str:
    """A row for each check: its state, its interval drawn and written, and its sentence."""
    rows = "".join(
        f'<tr><th scope="row">{_link(finding)}</th>'
        f'<td><span class="chip {_kind(finding.state)}">{text(finding.state)}</span></td>'
        f'<td class="picture">{_bar(finding)}</td><td>{text(finding.sentence, SENTENCE)}</td></tr>'
        for finding in report.ordered
    )
    return (
        '<section><h2>Checks</h2><p class="small">A bar begins where nothing is to be seen. Dashed: where it would '
        'matter. Dark stroke: the interval.</p><table class="checks"><thead><tr><th>check</th><th>state</th>'
        f"<th>interval</th><th>in words</th></tr></thead><tbody>{rows}</tbody></table></section>"
    )


def _bar(finding: Finding) -> str:
    drawn = axis(finding)
    if drawn is None:
        return ""
    low, high = (end if math.isfinite(end) else finding.estimate for end in (finding.low, finding.high))
    told = f"{finding.interval} {finding.unit}"
    made = bar(
        finding.estimate, low, high, ends=(drawn.left, drawn.right), zero=drawn.zero, limits=drawn.limits,
        kind=_kind(finding.state), told=told,
    )  # fmt: skip
    unit = f'<span class="unit">{text(finding.unit)}</span>' if finding.unit else ""
    return f'{made}<span class="figure">{text(finding.interval)}</span>{unit}'


def _details(finding: Finding) -> str:
    """What a finding has beside its sentence; nothing where that is all."""
    if not (finding.facts or finding.rows or finding.examples):
        return ""
    facts = _facts(finding.facts)
    table = rows_table(finding.name, finding.rows)
    shown = finding.examples[:EXAMPLES]
    examples = "".join(_example(example) for example in shown)
    more = len(finding.examples) - len(shown)
    left = f'<p class="small">More examples in --json: {more}.</p>' if more > 0 else ""
    return (
        f'<section id="{anchor(finding.name)}"><h2>{text(finding.name)} <span class="chip {_kind(finding.state)}">'
        f"{text(finding.state)}</span></h2><p>{text(finding.sentence, SENTENCE)}</p>{facts}{table}"
        f"{examples}{left}</section>"
    )


def _link(finding: Finding) -> str:
    shown = text(finding.name)
    return f'<a href="#{anchor(finding.name)}">{shown}</a>' if _details(finding) else shown


def _facts(facts: Mapping[str, Any]) -> str:
    """Plain figures as pairs; what is a table or a list inside them is for --json."""
    plain = {name: value for name, value in facts.items() if not isinstance(value, Mapping) and not _is_table(value)}
    if not plain:
        return ""
    told = "".join(f"<div><dt>{text(_spaced(name))}</dt><dd>{_cell(value)}</dd></div>" for name, value in plain.items())
    return f'<dl class="facts">{told}</dl>'


def _is_table(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in value)


def _example(example: Example) -> str:
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
