"""A front in words, as JSON, and as the report that every screen shows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tiltmeter_workbench.check_report.report import Axis, Check, CheckGroup, Report
from tiltmeter_workbench.check_report.tables import json_safe
from tiltmeter_workbench.compare.measures.difference import Difference
from tiltmeter_workbench.repay.front import Front, Share

TONES = {"nothing lost": "healthy", "kept": "better", "lost": "costs", "cannot tell": "cannot tell"}
LABELS = {
    "nothing lost": "Nothing lost",
    "kept": "A point keeps both",
    "lost": "No point keeps both",
    "cannot tell": "Cannot tell",
}


@dataclass(frozen=True)
class FrontFacts:
    """What was asked of whom, for the foot of a report."""

    judge: str
    judged: bool  # by a model's opinion
    prompts: int
    samples: int
    tasks: str


def sentence(front: Front) -> str:
    """What is so, in one line."""
    own, last = front.points[front.chosen], front.checkpoint
    margin = f"{100 * front.margin:g} points"
    if front.state == "nothing lost":
        return f"{last.name} has {_gain(front.gains[-1])} more gold than the base, and capability is within {margin}"
    if front.state == "kept":
        return (
            f"{own.name} keeps capability within {margin} of the base ({_pair(front.changes[front.chosen])}) and has "
            f"{_gain(front.gains[front.chosen])} more gold; {last.name} has {_gain(front.gains[-1])} more and "
            f"{_pair(front.changes[-1])} of capability"
        )
    if front.state == "lost":
        return f"every point with more gold than the base has lost more than {margin} of capability"
    if front.gains[-1].low <= 0.0:
        return f"no gain of gold is shown: {last.name} has {_pair(front.gains[-1])} against the base"
    return f"no point with more gold is shown to keep capability within {margin}, and losing more is not shown of all"


def advice(front: Front) -> list[str]:
    """What to do."""
    if front.state == "kept":
        return [f"Ship {front.points[front.chosen].name}: --out FOLDER writes it."]
    if front.state == "lost":
        return [
            "Train anew with some of the base's data mixed in, a higher beta or fewer steps, and name the result as "
            "another point: --also FOLDER."
        ]
    if front.state == "cannot tell":
        return [f"Ask more: {front.gains[-1].n} prompts and {front.changes[-1].n} items were compared."]
    return []


def as_report(front: Front, facts: FrontFacts) -> Report:
    """The report as every screen shows it."""
    gold = [_check(front, at, f"gold of {point.name}", front.gains[at]) for at, point in enumerate(front.points) if at]
    capability = [
        _check(front, at, f"capability of {point.name}", front.changes[at], front.margin)
        for at, point in enumerate(front.points)
        if at
    ]
    note = "Against the base; intervals that hold all at once with chance 95 %."
    state = front.state
    return Report(
        f"{front.checkpoint.name} and its base: what was gained, what was lost, and what lies between",
        TONES[state],
        LABELS[state],
        sentence(front),
        [
            CheckGroup("Capability", capability, note, "point", "change"),
            CheckGroup("Gold", gold, note, "point", "gain"),
        ],
        f"{facts.prompts} prompts, {facts.samples} answers to each, judged by {facts.judge}; {facts.tasks}",
        advice(front),
        lists={"The front": _front_lines(front), "Before you believe it": _notes(front, facts)},
    )


def _check(front: Front, at: int, name: str, change: Difference, margin: float = math.nan) -> Check:
    point = front.points[at]
    state = "shown"
    if change.low > 0.0:
        state = "better"
    elif change.low >= -margin:
        state = "same"
    elif change.high < 0.0:
        state = "worse"
    limits = (-margin,) if math.isfinite(margin) else ()
    columns = {"base": _rounded(change.base), "point": _rounded(change.checkpoint), "KL": _rounded(point.kl)}
    return Check(
        name, state, "", change.value, change.low, change.high, "", title=point.name, columns=columns,
        axis=Axis(-1.0, 0.0, 1.0, limits), signed=True,
    )  # fmt: skip


def _front_lines(front: Front) -> list[str]:
    on_it = ", ".join(front.points[at].name for at in front.undominated)
    lines = [f"No other point has more of both than these: {on_it}."]
    for at in range(1, len(front.points) - 1):
        regained, paid = front.regained(at), front.paid(at)
        if math.isfinite(regained.value) and math.isfinite(paid.value):
            lines.append(
                f"{front.points[at].name}: {_share(regained)} of the lost capability is regained, for {_share(paid)} "
                "of the gained gold."
            )
    return lines


def _notes(front: Front, facts: FrontFacts) -> list[str]:
    lines = ["The claims are about prompts and items like these, drawn at random."]
    if facts.judged:
        lines.append("Gold is a model's opinion: claims are about this judge, not about people.")
    if lost := facts.prompts - front.gains[-1].n:
        lines.append(f"{lost} prompts lack gold for the base or {front.checkpoint.name} and are left out.")
    return lines


def as_json(front: Front, facts: FrontFacts) -> dict[str, Any]:
    """Everything, for machines."""
    points = [
        {
            "name": point.name,
            "gold": point.mean_gold,
            "capability": point.mean_capability,
            "kl": point.kl,
            "tokens": point.tokens,
            "gold_gain": front.gains[at]._asdict(),
            "capability_change": front.changes[at]._asdict(),
            "capability_regained": front.regained(at)._asdict(),
            "gold_paid": front.paid(at)._asdict(),
            "on_front": at in front.undominated,
        }
        for at, point in enumerate(front.points)
    ]
    whole: dict[str, Any] = json_safe(
        {
            "state": front.state,
            "exit_code": front.exit_code,
            "sentence": sentence(front),
            "advice": advice(front),
            "chosen": front.points[front.chosen].name,
            "margin": front.margin,
            "points": points,
            "prompts": facts.prompts,
            "samples": facts.samples,
            "judge": facts.judge,
            "tasks": facts.tasks,
            "notes": _notes(front, facts),
        }
    )
    return whole


def _gain(gain: Difference) -> str:
    return f"{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]"


def _pair(change: Difference) -> str:
    return f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}]"


def _share(share: Share) -> str:
    return f"{100 * share.value:.0f} % [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def _rounded(value: float) -> float | None:
    return float(f"{value:.3g}") if math.isfinite(value) else None
