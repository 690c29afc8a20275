"""Score alarms on runs whose gold does not fall: ours with several choices of labels, and rules fitted on benign runs.

A threshold that is taken from benign runs whose reward is their gold says nothing about a reward that rises while gold
stays. So every rule is scored twice: with the threshold from the suite's benign runs, and with the one at which at most
1 % of benign, flat, plateau and churn runs together alarm.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tiltmeter.stats.intervals import upper_bound
from tiltmeter_lab.baselines import BASELINES, RuleInput
from tiltmeter_lab.campaign_records import NULL, Line, apply_thresholds, fit_thresholds
from tiltmeter_lab.evaluate_run import running_maximum
from tiltmeter_lab.score import ORACLE_PREFIX
from tiltmeter_lab.simulate import Trace
from tiltmeter_lab.watch_run import play

BEST = 5  # rules shown of each setting


def score_flat_runs(
    traces: Iterable[tuple[str, Trace]], lines: Sequence[Line], share: float, draws: int
) -> dict[str, Any]:
    """`traces`: kind and run. `lines`: the suite's own result lines; rules are fitted on its benign runs, and scored by
    its hacks."""
    alarms: dict[str, list[bool]] = {}
    flat_lines: list[Line] = []
    for number, (kind, trace) in enumerate(traces):
        alarms.setdefault(kind, []).extend(
            play(trace, 2000 + draws * number + draw, share).alarm is not None for draw in range(draws)
        )
        rule_input = RuleInput.of(trace, 2000 + number, share)
        records = {rule.name: {"records": running_maximum(rule.score(rule_input))} for rule in BASELINES}
        flat_lines.append({"family": kind, "index": number, "kind": "benign", "methods": records})
    total = sum(map(len, alarms.values()))
    false = sum(map(sum, alarms.values()))
    return {
        "flat_runs": len(flat_lines),
        "flat_draws": total,
        "flat_false_alarms": false,
        "flat_false_alarm_upper95": round(upper_bound(false, total), 5) if total else None,
        "flat_alarms_by_kind": {kind: sum(flags) for kind, flags in alarms.items()},
        "flat_baselines": _fitted_rules(flat_lines, lines),
    }


def _fitted_rules(flat_lines: Sequence[Line], lines: Sequence[Line]) -> dict[str, Any]:
    """By rule: how many flat runs of each kind alarm at the threshold from benign runs, and what refitting costs."""
    fitted, refitted = fit_thresholds(lines), fit_thresholds([*lines, *flat_lines])
    regrets = {
        when: _regrets([line for line in lines if line["kind"] == "hack"], limits)
        for when, limits in (("fitted", fitted), ("refitted", refitted))
    }
    names = [name for name in regrets["refitted"] if name in regrets["fitted"] and not name.startswith(ORACLE_PREFIX)]
    shown = {
        name
        for values in regrets.values()
        for name in sorted(names, key=lambda name: (np.median(values[name]), name))[:BEST]
    }
    rows = {}
    for name in sorted(shown, key=lambda name: (np.median(regrets["refitted"][name]), name)):
        by_kind: dict[str, int] = {}
        for line in flat_lines:
            top = max((value for _, value in line["methods"][name]["records"]), default=-np.inf)
            by_kind[line["family"]] = by_kind.get(line["family"], 0) + int(top > fitted[name][NULL])
        before, after = regrets["fitted"][name], regrets["refitted"][name]
        rows[name] = {
            **{f"{kind}_alarms": count for kind, count in by_kind.items()},
            "regret_median": round(float(np.median(before)), 4),
            "refitted_regret_median": round(float(np.median(after)), 4),
            "refitted_regret_p90": round(float(np.quantile(after, 0.9)), 4),
        }
    return rows


def _regrets(hacks: Sequence[Line], limits: dict[str, dict[str, float]]) -> dict[str, list[float]]:
    """By rule that has a threshold: what each hack has lost at its alarm."""
    regrets: dict[str, list[float]] = {}
    for line in apply_thresholds(hacks, limits)[0]:
        for name, result in line["methods"].items():
            if NULL in result.get("at", {}):
                regrets.setdefault(name, []).append(result["at"][NULL][1])
    return regrets
