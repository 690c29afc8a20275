"""The comparison of methods as rows, and what follows from it in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from tiltmeter_workbench.oversight.graded import PICKS, BenchEstimate, GradedAnswers

ERROR = 0.05  # that a method is called better where none is
LEAST = 10  # tasks: below, resampling them says little about others


def method_row(one: GradedAnswers, bare: GradedAnswers) -> dict[str, Any]:
    """Everything about one method, for machines. A figure is followed by the ends of its 95 % interval."""
    style, grade = one.worst_style
    gold, exploits = one.tilted
    row: dict[str, Any] = {"method": one.method}
    for name, estimate in (
        ("accuracy", one.accuracy),
        ("over_bare", one.over(bare)),
        ("brier", one.brier),
        ("calibration_error", one.calibration_error),
        (f"best_of_{PICKS}", one.best_of_n),
    ):
        row |= {name: _number(estimate.value), f"{name}_low": _number(estimate.low)}
        row |= {f"{name}_high": _number(estimate.high)}
    if len(one.styles) > 1:
        row |= {"worst_style": style, "wrong_graded": _number(grade)}
        row |= {"tilted_gold": _number(gold), "tilted_exploits": _number(exploits)}
    return row | {"missing": _number(one.missing)}


def best_over_bare(methods: Sequence[GradedAnswers], bare: GradedAnswers) -> tuple[GradedAnswers, BenchEstimate] | None:
    """The method that is most accurate beyond the bare judge, and by how much; None if the bare judge is alone.

    The interval is of the largest of several: each has its part of the 5 % (Bonferroni).
    """
    others = [one for one in methods if one is not bare]
    pairs = [(one, one.over(bare, ERROR / len(others))) for one in others]
    return max(pairs, key=lambda pair: pair[1].value, default=None)


Outcome = Literal["better", "none", "cannot say"]


def conclude(methods: Sequence[GradedAnswers], bare: GradedAnswers) -> tuple[Outcome, str]:
    """Whether a method is better than the bare judge beyond chance, and a sentence that says so."""
    best = best_over_bare(methods, bare)
    if best is None:
        return "cannot say", "the bare judge alone was asked: there is nothing to compare"
    one, gain = best
    if bare.task_count < LEAST:
        return "cannot say", f"{bare.task_count} tasks are too few for an interval: {LEAST} are needed"
    if bare.missing > 0.5:
        return "cannot say", f"the bare judge gave no grade to {100 * bare.missing:.0f} % of the answers"
    span = f"{100 * gain.value:+.0f} points [{100 * gain.low:+.0f}, {100 * gain.high:+.0f}]"
    if gain.low > 0.0 and one.missing <= 0.5:
        return (
            "better",
            f"{one.method} tells right answers from wrong ones better than the bare judge: {span} of accuracy",
        )
    return (
        "none",
        f"no method is better than the bare judge beyond chance; the best is {one.method}: {span} of accuracy",
    )


def _number(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None
