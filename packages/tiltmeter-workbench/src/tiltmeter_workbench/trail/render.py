"""A trail in words, as JSON, and as the report that every screen shows."""

from __future__ import annotations

import math
from typing import Any

from tiltmeter.stats.checkpoint_falls import ALPHA, LEAST_PROMPTS, TOLERANCE
from tiltmeter_workbench.check_report.report import Axis, Check, CheckGroup, Report
from tiltmeter_workbench.check_report.tables import json_safe
from tiltmeter_workbench.trail.checkpoints import TrailPoint
from tiltmeter_workbench.trail.trail import CALM, TrailReport

LABELS = {"worse": "Gold has fallen", "healthy": "Healthy", "cannot tell": "Cannot tell"}
REACH = 1.96  # standard errors of the interval that is drawn beside each mean


def sentence(report: TrailReport) -> str:
    """What is so, in one line."""
    fall, best, last = report.fall, report.best, report.points[-1]
    if fall is None or best is None:
        return f"gold of every checkpoint is known for {report.common} prompts, and {LEAST_PROMPTS} are needed"
    if fall.has_fallen:
        odds = "more than a million" if fall.odds > 1e6 else f"{fall.odds:,.0f}"
        return (
            f"gold is {last.mean:.2f} at {last.name} and was {best.mean:.2f} at {best.name}: answers have got worse "
            f"(odds {odds} to 1 against chance)"
        )
    if fall.worst <= CALM:
        return f"gold is {last.mean:.2f} at {last.name}; a fall of {fall.worst:.2f} or more is excluded"
    size = "no fall is excluded" if fall.worst > 1.0 else f"a fall of {fall.worst:.2f} is not excluded"
    return f"gold is {last.mean:.2f} at {last.name}, and {size} with {report.common} prompts"


def advice(report: TrailReport) -> list[str]:
    """What to do."""
    best, last = report.best, report.points[-1]
    if report.state == "worse" and best is not None:
        others = [name for name in report.candidates if name != best.name]
        near = f"; as good, as far as can be told: {', '.join(others)}" if others else ""
        return [f"Keep {best.name}, not {last.name}{near}."]
    if report.state == "cannot tell":
        return ["Ask more prompts, or more answers to each: --prompts, --most, --answers."]
    return []


def peak_line(report: TrailReport) -> str:
    """Where gold peaks along KL by the fitted form, or why that is not said."""
    peak = report.peak
    if peak.refused:
        return f"No curve is fitted over the root of KL: {peak.refused}."
    return (
        f"By Gao's form gold peaks at a KL of {peak.peak**2:.3g} nats [{peak.low**2:.3g}, {peak.high**2:.3g}] from the "
        "base: an extrapolation, and no proof."
    )


def as_report(report: TrailReport) -> Report:
    """The report as every screen shows it."""
    checks = [_check(report, point) for point in report.points]
    note = "Gold with its 95 % interval over prompts. KL in nats of an answer, from the base."
    return Report(
        f"{report.points[-1].name} after {len(report.points) - 2} earlier checkpoints and the base",
        report.state,
        LABELS[report.state],
        sentence(report),
        [CheckGroup("Gold by checkpoint", checks, note, "checkpoint", "gold")],
        f"{report.prompts} prompts, {report.samples} answers of each checkpoint to each; judged by {report.judge}",
        advice(report),
        lists={"The best": _best_lines(report), "Before you believe it": notes(report)},
    )


def _check(report: TrailReport, point: TrailPoint) -> Check:
    last, best = report.points[-1], report.best
    state = "shown"
    if report.state == "worse":
        state = "worse" if point is last else "better" if point is best else "shown"
    reach = REACH * point.stderr
    columns = {
        "KL": _rounded(point.kl, 3), "reward": _rounded(point.reward, 3), "tokens": _rounded(point.tokens, 3),
        "diversity": _rounded(point.diversity, 2), "refusals": _rounded(point.refusals, 2),
    }  # fmt: skip
    used = {name: value for name, value in columns.items() if name != "reward" or math.isfinite(last.reward)}
    return Check(
        point.name, state, "", point.mean, max(point.mean - reach, 0.0), min(point.mean + reach, 1.0), "gold",
        columns=used, axis=Axis(0.0, 0.0, 1.0),
    )  # fmt: skip


def _rounded(value: float, digits: int) -> float | None:
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def _best_lines(report: TrailReport) -> list[str]:
    if report.best is None:
        return [peak_line(report)]
    return [
        f"Most gold: {report.best.name}. The best is one of these with chance 95 %: {', '.join(report.candidates)}.",
        peak_line(report),
    ]


def notes(report: TrailReport) -> list[str]:
    """Caveats."""
    lines = [
        f"Where the last checkpoint is lower than none before by more than {TOLERANCE:g} of gold, it is called fallen "
        f"with a chance of at most {100 * ALPHA:g} %. The claim is about prompts like these, drawn at random.",
    ]
    if report.judged:
        lines.append("Gold is a model's opinion: claims are about this judge, not about people.")
    if report.common < report.prompts:
        lines.append(
            f"{report.prompts - report.common} prompts lack gold for some checkpoint: it counts against each claim."
        )
    if (cut := max(point.cut for point in report.points)) > 0.1:
        lines.append(f"Up to {100 * cut:.0f} % of a checkpoint's answers were cut at the limit: raise --tokens.")
    return lines


def as_json(report: TrailReport) -> dict[str, Any]:
    """Everything, for machines."""
    fall = report.fall
    numbers = ("kl", "kl_low", "kl_high", "reward", "tokens", "diversity", "refusals", "cut", "mean", "stderr")
    points = [{"name": point.name, **{name: getattr(point, name) for name in numbers}} for point in report.points]
    verdict = {
        "state": report.state,
        "exit_code": report.exit_code,
        "sentence": sentence(report),
        "advice": advice(report),
        "best": None if report.best is None else report.best.name,
        "best_among": report.candidates,
        "fall_not_excluded": None if fall is None else fall.worst,
        "odds": None if fall is None else fall.odds,
        "peak_kl": None if report.peak.refused else report.peak.peak**2,
        "peak_refused": report.peak.refused,
    }
    facts = {"prompts": report.prompts, "samples": report.samples, "judge": report.judge, "notes": notes(report)}
    whole: dict[str, Any] = json_safe({**verdict, "checkpoints": points, **facts})
    return whole
