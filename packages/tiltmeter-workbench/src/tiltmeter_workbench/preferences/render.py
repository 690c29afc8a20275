"""The preference report in words, as JSON, and as the report that every screen shows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tiltmeter_workbench.check_report.report import Axis, Check, CheckGroup, Report
from tiltmeter_workbench.preferences.checks import agreement, copies, rater_groups, raters, shallow
from tiltmeter_workbench.preferences.checks.position import BOTH_ORDERS, ONE_ORDER
from tiltmeter_workbench.preferences.finding import ALPHA
from tiltmeter_workbench.preferences.report import PreferenceReport

LABELS = {"found": "Something was found", "clear": "Nothing was found", "cannot tell": "Cannot tell"}
NARROWEST, WIDEST = 4.0, 5.0  # an axis reaches so many times what matters, and so many times that at most


def axis(finding: Check) -> Axis | None:
    """Shares are drawn around one half, everything else around 0; None where there is nothing to draw."""
    if not math.isfinite(finding.estimate):
        return None
    ends = [value for value in (finding.estimate, finding.low, finding.high) if math.isfinite(value)]
    matters = finding.facts.get("matters")
    if finding.unit == BOTH_ORDERS:  # here no effect is a share of 1
        return Axis(0.0, 1.0, 1.0)
    if finding.name == agreement.NAME:
        return Axis(min(0.0, *ends), 0.0, 1.0, (agreement.TENTATIVE, agreement.RELIABLE))
    if finding.name in (copies.NAME, rater_groups.NAME):
        return Axis(0.0, 0.0, 1.0)
    if finding.unit in (shallow.UNIT, ONE_ORDER):
        limits = () if matters is None else (matters,) if matters >= 0.5 else (0.5 - matters, 0.5 + matters)
        return Axis(0.0, 0.5, 1.0, limits)
    unit = NARROWEST * (0.25 if matters is None else matters)
    right = min(max(unit, *map(abs, ends)), WIDEST * unit)
    return Axis(-right, 0.0, right, () if matters is None else (-matters, matters))


def headline(report: PreferenceReport) -> str:
    """One sentence, the worst first."""
    if report.problems:
        first, *others = report.problems
        more = f" Also found: {', '.join(finding.name for finding in others)}." if others else ""
        return f"{_with_period(first.sentence)}{more}"
    if not report.biases:
        return " ".join(_with_period(finding.sentence) for finding in report.findings)
    if report.state == "cannot tell":
        why = next((finding.sentence for finding in report.biases if finding.state == "cannot tell"), "")
        return f"Nothing could be judged in {report.items:,} comparisons. {why}".rstrip()
    clear = [finding.name for finding in report.biases if finding.state == "clear"]
    open_ = [finding.name for finding in report.biases if finding.state == "cannot tell"]
    rest = f" Cannot tell: {', '.join(open_)}." if open_ else ""
    return f"No bias by {', '.join(clear)} in {report.items:,} comparisons.{rest}"


def size_line(report: PreferenceReport) -> str:
    """The number of comparisons and raters."""
    what = "comparisons" if report.biases else "items"
    who = {0: "nobody's vote", 1: "one label each"}.get(report.raters, f"{report.raters:,} raters")
    return f"{report.items:,} {what}, {who}"


def fixes(report: PreferenceReport) -> list[str]:
    """What to do, each once, for what was found first."""
    return list(dict.fromkeys(f"{finding.name}: {finding.fix}" for finding in report.ordered if finding.fix))


def notes(report: PreferenceReport) -> list[str]:
    """Caveats of the report."""
    lines = [
        f"Found: beyond doubt and large enough to matter. Clear: too small to matter. All checks together call a bias "
        f"that is not there in at most {100 * ALPHA:g} % of data sets.",
        "A bias is what predicts the labels, not why: better answers may be longer. Where ratings of single answers "
        "are in the file, length is also judged among answers rated alike.",
    ]
    if report.raters == 1:
        lines.append("One label for each comparison: nobody's error can be told from a hard question.")
    return lines


def as_json(report: PreferenceReport) -> dict[str, Any]:
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
        "read": list(report.input_notes),
        "findings": [finding.as_json() for finding in report.findings],
        "fixes": fixes(report),
        "notes": notes(report),
    }


def shows_table(report: PreferenceReport, finding: Check) -> bool:
    """Whether a short form of the report has room for a finding's table: the other tables are in the long forms."""
    several = finding.name == raters.NAME and report.raters > 1
    return bool(finding.rows) and (several or finding.state in ("found", "known"))


def as_report(report: PreferenceReport) -> Report:
    """The report as every screen shows it."""
    checks = [
        replace(finding, axis=axis(finding), rows_in_short=shows_table(report, finding)) for finding in report.ordered
    ]
    note = "A bar begins at no effect. Dashed: where an effect would matter. Dark stroke: the interval."
    return Report(
        report.source,
        report.state,
        LABELS[report.state],
        headline(report),
        [CheckGroup("Checks", checks, note)],
        size_line(report),
        fixes(report),
        lists={"What was read": report.input_notes, "Before you believe it": notes(report)},
    )


def _with_period(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
