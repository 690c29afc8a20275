"""Score runs of policies that share parameters: by family and by update rule, apart from the figures of tables.

In most of these runs gold falls although the slope inside prompts never turns, so an alarm on the slope has nothing to
find, and none of the slope's figures says how much is lost. The level of gold sees it, where every rollout is labelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tiltmeter_lab.campaign_records import Line, is_boundary, round_numbers
from tiltmeter_lab.score import OURS


def score_network(lines: Iterable[Line]) -> dict[str, Any]:
    """Figures of lines that `evaluate_run` made: all hacks, by family, by update rule; and false alarms of both tests.

    `detection` and `regret` are ours with labels for a share of the rollouts, `level_*` of the level with all labels.
    """
    runs = list(lines)
    hacks = [line for line in runs if line["kind"] == "hack"]
    null = [line for line in runs if line["kind"] == "benign"]
    figures = {
        "runs": len(runs),
        "benign_runs": len(null),
        "false_alarms": sum(_is_alarm(line["methods"][OURS]) for line in null),
        "level_false_alarms": sum(_is_alarm(line["level"]) for line in null),
        "flat_runs": sum(map(is_boundary, null)),
        "flat_false_alarms": sum(_is_alarm(line["methods"][OURS]) for line in null if is_boundary(line)),
        **_hack_figures(hacks),
        "families": _by(hacks, "family"),
        "updates": _by(hacks, "update"),
    }
    return dict(round_numbers(figures))


def _hack_figures(hacks: Sequence[Line]) -> dict[str, Any]:
    ours, levels = [line["methods"][OURS] for line in hacks], [line["level"] for line in hacks]
    return {
        "hack_runs": len(hacks),
        "slope_never_turns": sum(line["first_negative"] < 0 for line in hacks),
        "drop_median": _quantile([line["drop"] for line in hacks], 0.5),
        "detection": _share(ours),
        "regret_median": _quantile([own["regret"] for own in ours], 0.5),
        "regret_p90": _quantile([own["regret"] for own in ours], 0.9),
        "level_detection": _share(levels),
        "level_regret_median": _quantile([level["regret"] for level in levels], 0.5),
        "level_regret_p90": _quantile([level["regret"] for level in levels], 0.9),
        "floor_median": _quantile([line["level_floor"] for line in hacks], 0.5),
        "rollback_gap_median": _quantile([level["rollback_gap"] for level in levels], 0.5),
        "rollback_gap_p90": _quantile([level["rollback_gap"] for level in levels], 0.9),
    }


def _by(hacks: Sequence[Line], key: str) -> dict[str, Any]:
    names = sorted({str(line[key]) for line in hacks})
    return {name: _hack_figures([line for line in hacks if line[key] == name]) for name in names}


def _is_alarm(outcome: Mapping[str, Any]) -> bool:
    return outcome["alarm"] is not None


def _share(outcomes: Sequence[Mapping[str, Any]]) -> float | None:
    return float(np.mean([_is_alarm(outcome) for outcome in outcomes])) if outcomes else None


def _quantile(values: Sequence[float], q: float) -> float | None:
    return float(np.quantile(values, q)) if values else None
