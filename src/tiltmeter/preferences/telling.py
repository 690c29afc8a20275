"""A report on preference data in words, as JSON and as Markdown."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tiltmeter.preferences import agreement, copies, raters, shallow
from tiltmeter.preferences.finding import ALPHA, Example, Finding
from tiltmeter.preferences.position import BOTH_ORDERS, ONE_ORDER
from tiltmeter.preferences.report import Report
from tiltmeter.report.markdown import bullets, line, quoted, table
from tiltmeter.tables import cell, plain, titles

ROWS, EXAMPLES = 10, 3  # of a table, and of a finding, in Markdown
NARROWEST, WIDEST = 4.0, 5.0  # an axis reaches so many times what matters, and so many times that at most


@dataclass(frozen=True)
class Axis:
    """Where a finding's interval is drawn: the ends of the line, the point that means nothing at all, and the limits
    beyond which it matters."""

    left: float
    zero: float
    right: float
    limits: tuple[float, ...] = ()


def axis(finding: Finding) -> Axis | None:
    """What a coin would do stands at one half, everything else around 0; None where there is nothing to draw."""
    if not math.isfinite(finding.estimate):
        return None
    ends = [value for value in (finding.estimate, finding.low, finding.high) if math.isfinite(value)]
    matters = finding.facts.get("matters")
    if finding.unit == BOTH_ORDERS:  # here nothing at all is all of them
        return Axis(0.0, 1.0, 1.0)
    if finding.name == agreement.NAME:
        return Axis(min(0.0, *ends), 0.0, 1.0, (agreement.TENTATIVE, agreement.RELIABLE))
    if finding.name == copies.NAME:
        return Axis(0.0, 0.0, 1.0)
    if finding.unit in (shallow.UNIT, ONE_ORDER):
        limits = () if matters is None else (matters,) if matters >= 0.5 else (0.5 - matters, 0.5 + matters)
        return Axis(0.0, 0.5, 1.0, limits)
    unit = NARROWEST * (0.25 if matters is None else matters)
    right = min(max(unit, *map(abs, ends)), WIDEST * unit)
    return Axis(-right, 0.0, right, () if matters is None else (-matters, matters))


def headline(report: Report) -> str:
    """One sentence, the worst first."""
    if report.found:
        first, *others = report.found
        more = f" Also found: {', '.join(finding.name for finding in others)}." if others else ""
        return f"{_ended(first.sentence)}{more}"
    if not report.biases:
        return " ".join(_ended(finding.sentence) for finding in report.findings)
    if report.state == "cannot tell":
        why = next((finding.sentence for finding in report.biases if finding.state == "cannot tell"), "")
        return f"Nothing could be judged in {report.items:,} comparisons. {why}".rstrip()
    told = [finding.name for finding in report.biases if finding.state == "clear"]
    open_ = [finding.name for finding in report.biases if finding.state == "cannot tell"]
    rest = f" Cannot tell: {', '.join(open_)}." if open_ else ""
    return f"No bias by {', '.join(told)} in {report.items:,} comparisons.{rest}"


def counted(report: Report) -> str:
    """How much was looked at, and by how many it was judged."""
    what = "comparisons" if report.biases else "items"
    who = {0: "nobody's vote", 1: "one label each"}.get(report.raters, f"{report.raters:,} raters")
    return f"{report.items:,} {what}, {who}"


def fixes(report: Report) -> list[str]:
    """What to do, each once, for what was found first."""
    return list(dict.fromkeys(f"{finding.name}: {finding.fix}" for finding in report.ordered if finding.fix))


def notes(report: Report) -> list[str]:
    """What to know before believing the rest."""
    told = [
        f"Found: beyond doubt and large enough to matter. Clear: too small to matter. All checks together call a bias "
        f"that is not there in at most {100 * ALPHA:g} % of data sets.",
        "A bias is what predicts the labels, not why: better answers may be longer. Where ratings of single answers "
        "are in the file, length is also judged among answers rated alike.",
    ]
    if report.raters == 1:
        told.append("One label for each comparison: nobody's error can be told from a hard question.")
    return told


def as_json(report: Report) -> dict[str, Any]:
    """Everything, for machines. Texts are as they were written: encode them before showing."""
    return {
        "source": report.source,
        "state": report.state,
        "exit_code": report.exit_code,
        "headline": headline(report),
        "items": report.items,
        "raters": report.raters,
        "left_out": report.left_out,
        "seed": report.seed,
        "read": list(report.told),
        "findings": [_finding(finding) for finding in report.findings],
        "fixes": fixes(report),
        "notes": notes(report),
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "state": finding.state,
        "sentence": finding.sentence,
        "estimate": plain(finding.estimate),
        "low": plain(finding.low),
        "high": plain(finding.high),
        "unit": finding.unit,
        "fix": finding.fix,
        "facts": plain(finding.facts),
        "rows": plain(finding.rows),
        "examples": [vars(example) for example in finding.examples],
    }


def tabled(report: Report, finding: Finding) -> bool:
    """Whether a short form of the report has room for a finding's table: what was not found is in the long ones."""
    several = finding.name == raters.NAME and report.raters > 1
    return bool(finding.rows) and (several or finding.state in ("found", "known"))


def as_markdown(report: Report) -> str:
    """Short enough to paste into an issue or a data card."""
    lines = [f"## {report.state}: {line(headline(report))}", ""]
    lines += [f"{line(report.source)}: {counted(report)}.", ""]
    seen = [
        (finding.name, finding.state, finding.interval, finding.unit, finding.sentence) for finding in report.ordered
    ]
    lines += table(("check", "state", "figure", "unit", "in words"), seen)
    lines += bullets("What to do", fixes(report))
    for finding in report.ordered:
        rows = finding.rows[:ROWS] if tabled(report, finding) else ()
        shown = [tuple(cell(row.get(name)) for name in titles(finding.rows)) for row in rows]
        examples = finding.examples[:EXAMPLES] if finding.state == "found" else ()
        if shown or examples:
            lines += [f"### {line(finding.name)}", ""]
            lines += table(titles(finding.rows), shown)
        for example in examples:
            lines += _example(example)
    lines += bullets("What was read", report.told)
    lines += bullets("Before you believe it", notes(report))
    return "\n".join(lines).rstrip() + "\n"


def _example(example: Example) -> list[str]:
    told = [f"Row {example.row}{': ' if example.why else ''}{line(example.why)}", ""]
    return told + [part for name in ("prompt", "chosen", "rejected") for part in quoted(name, getattr(example, name))]


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
