"""A sweep in words, as JSON, and as the report that every screen shows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tiltmeter.stats.checkpoint_falls import LEAST_PROMPTS
from tiltmeter_workbench.check_report.report import Axis, Check, CheckGroup, Report
from tiltmeter_workbench.check_report.tables import json_safe
from tiltmeter_workbench.diversity.sweep import SamplingPoint, SweepReport

LABELS = {"better": "More diversity at equal gold", "same": "Temperature 1 stands", "cannot tell": "Cannot tell"}


def sentence(report: SweepReport) -> str:
    """What is so, in one line."""
    best = report.best
    if report.prompts < LEAST_PROMPTS:
        return f"{report.prompts} prompts were asked, and {LEAST_PROMPTS} are needed"
    if best is not None:
        more, gold = report.diversity_difference(best), report.gold_difference(best)
        return (
            f"with {best.name} answers differ more ({more.mean:+.2f} of 1 - self-BLEU), and a loss of more than "
            f"{max(-gold.low, 0.0):.2f} of gold is excluded"
        )
    if report.state == "same":
        return "every other way of sampling loses gold or differs no more than temperature 1"
    return (
        f"no way of sampling differs more at a loss of gold below {report.margin:g}, as far as these prompts can tell"
    )


def advice(report: SweepReport) -> list[str]:
    """What to do."""
    if report.best is not None:
        return [f"Sample with {report.best.name}, in training too if its groups lack spread."]
    if report.state == "same":
        return ["Diversity has to come from training: soft preferences, typicality_debiased, balanced pairs."]
    return ["Ask more prompts, or more answers to each: --prompts, --most, --answers."]


def as_report(report: SweepReport) -> Report:
    """The report as every screen shows it."""
    checks = [_check(report, point) for point in report.points]
    note = (
        "Gold less than at temperature 1, with intervals that hold for all rows together (95 %). Diversity is 1 - "
        "self-BLEU of the answers to a prompt, by words."
    )
    return Report(
        "ways of sampling one model",
        report.state,
        LABELS[report.state],
        sentence(report),
        [CheckGroup("Gold and diversity by setting", checks, note, "setting", "gold, difference")],
        f"{report.prompts} prompts, {report.samples} answers to each in every way; judged by {report.judge}",
        advice(report),
        lists={"Before you believe it": notes(report)},
    )


def _check(report: SweepReport, point: SamplingPoint) -> Check:
    first = point is report.points[0]
    gold, more = report.gold_difference(point), report.diversity_difference(point)
    state = "better" if point is report.best else "worse" if not first and report.loses_gold(point) else "shown"
    columns: dict[str, Any] = {"gold": round(_mean(point.gold), 2), "diversity": round(_mean(point.diversity), 2)}
    if any(one.lacking for one in report.points):
        columns["lacking"] = point.lacking
    facts = {} if first else {"diversity_difference": [round(end, 3) for end in more]}
    mean, low, high = (math.nan,) * 3 if first else gold
    return Check(
        point.name, state, "", mean, low, high, "gold", facts=facts, columns=columns, axis=Axis(-1.0, 0.0, 1.0),
        signed=True,
    )  # fmt: skip


def notes(report: SweepReport) -> list[str]:
    """Caveats."""
    lines = [
        "The claim is about prompts like these, drawn at random, and about gold: what it does not see may be lost."
    ]
    if report.judged:
        lines.append("Gold is a model's opinion: claims are about this judge, not about people.")
    if unjudged := [f"{count} ({point.name})" for point in report.points if (count := _unjudged(point))]:
        lines.append(f"Prompts without gold count against each claim: {', '.join(unjudged)}.")
    if lacking := [f"{point.lacking} ({point.name})" for point in report.points if point.lacking]:
        lines.append(f"Prompts that lack an answer count as 0 in gold and diversity: {', '.join(lacking)}.")
    return lines


def _unjudged(point: SamplingPoint) -> int:
    """Prompts that have all answers, and no gold."""
    return int(np.isnan(point.gold).sum()) - point.lacking


def _mean(values: Any) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else float("nan")


def as_json(report: SweepReport) -> dict[str, Any]:
    """Everything, for machines."""
    rows = [
        {
            "name": point.name, "gold": _mean(point.gold), "diversity": _mean(point.diversity),
            "lacking": point.lacking,
            "gold_difference": report.gold_difference(point)._asdict(),
            "diversity_difference": report.diversity_difference(point)._asdict(),
            "as_good": report.is_as_good(point),
        }
        for point in report.points
    ]  # fmt: skip
    whole: dict[str, Any] = json_safe({
        "state": report.state, "exit_code": report.exit_code, "sentence": sentence(report), "advice": advice(report),
        "best": None if report.best is None else report.best.name, "margin": report.margin, "settings": rows,
        "prompts": report.prompts, "samples": report.samples, "judge": report.judge, "notes": notes(report),
    })  # fmt: skip
    return whole
