"""Evaluate one simulated run: our alarm at several label budgets, and every baseline rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiltmeter_lab.baselines import BASELINES, RuleInput, first_alarm
from tiltmeter_lab.floor import floor_regret
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.peak_step import predict
from tiltmeter_lab.rollback import rollback_step
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.watch_run import WatchResult, level_alarm, play
from tiltmeter_lab.worlds.world import Floats, World

SHARE = 0.02
SHARES = (0.005, 0.01, 0.04, 0.08)
FORECAST_AT = 0.75  # share of the steps to the peak after which the peak is forecast
GRACE = 10  # steps after the exact slope turned negative: the fastest that sampled labels allow
MAX_RECORDS = 60  # points kept of a score's running maximum


def evaluate_run(world: World, seed: int) -> dict[str, Any]:
    """The result line of a run: its ground truth, and the alarm of each method. JSON-able, finite numbers only."""
    trace = simulate(world, seed)
    truth = GroundTruth.of(trace.gold, trace.slope)
    ours = play(trace, seed, SHARE)
    rule_input = RuleInput.of(trace, seed, SHARE)
    methods = {"tiltmeter": outcome(truth, trace, ours)}
    for rule in BASELINES:
        score = rule.score(rule_input)
        alarm = first_alarm(score, rule.published)
        methods[rule.name] = {
            "alarm": alarm,
            "regret": round(truth.regret(trace.gold, alarm), 5),
            "records": running_maximum(score),
        }
    turn_step = truth.onset if truth.onset >= 0 else truth.first_negative
    floor = min(turn_step + GRACE, world.steps - 1) if turn_step >= 0 else None
    return {
        "family": world.family,
        "update": world.update,
        "seed": seed,
        "cliff": world.cliff,
        "kind": truth.kind,
        "peak": truth.peak,
        "onset": truth.onset,
        "first_negative": truth.first_negative,
        "drop": round(truth.drop, 5),
        "steps": world.steps,
        "rollouts": trace.reward.size,
        "gold": [round(float(value), 5) for value in trace.gold],
        "floor": round(truth.regret(trace.gold, floor), 5),
        **_level_outcome(trace, truth, ours, seed),
        "methods": methods,
        "budgets": {
            str(share): methods["tiltmeter"] if share == SHARE else outcome(truth, trace, play(trace, seed, share))
            for share in sorted((*SHARES, SHARE))
        },
        "forecast": _forecast_peak(trace, truth, seed),
    }


def outcome(truth: GroundTruth, trace: Trace, played: WatchResult) -> dict[str, Any]:
    """Our alarm's step, with the labels spent and the gold lost by then."""
    alarm = played.alarm_step
    return {
        "alarm": alarm,
        "regret": round(truth.regret(trace.gold, alarm), 5),
        "labels": played.labels,
        "share": round(played.labels / trace.reward.size, 5),
        "onset": None if played.alarm is None else played.alarm.onset,
        "early": alarm is not None and (truth.first_negative < 0 or alarm < truth.first_negative),
        "score": round(played.evidence, 3),
        "table": "" if played.alarm is None else played.alarm.name,
    }


def _level_outcome(trace: Trace, truth: GroundTruth, ours: WatchResult, seed: int) -> dict[str, Any]:
    """The level of gold with every rollout labelled, the least it can lose, and what is lost at a rollback's step."""
    alarm = level_alarm(trace)
    facts: dict[str, Any] = {"level": {"alarm": alarm, "regret": round(truth.regret(trace.gold, alarm), 5)}}
    if truth.kind == "hack":
        facts["level_floor"] = round(floor_regret(trace, truth, 1.0), 5)
        facts["level"]["rollback_gap"] = round(rollback_gap(trace, truth, alarm, seed), 5)
        facts["rollback_gap"] = round(rollback_gap(trace, truth, ours.alarm_step, seed), 5)
    return facts


def rollback_gap(trace: Trace, truth: GroundTruth, alarm: int | None, seed: int) -> float:
    """Gold below the best at the checkpoint that is advised after the alarm; without an alarm nobody goes back."""
    return truth.regret(trace.gold, None if alarm is None else rollback_step(trace, alarm, seed))


def running_maximum(score: Floats) -> list[list[float]]:
    """The points where a score's running maximum rises, thinned, so that any threshold can be applied later."""
    usable = np.where(np.isnan(score), -np.inf, score)
    top = np.maximum.accumulate(usable)
    rises = np.flatnonzero(np.isfinite(top) & (top > np.concatenate(([-np.inf], top[:-1]))))
    if len(rises) > MAX_RECORDS:
        rises = np.unique(np.append(rises[np.linspace(0, len(rises) - 1, MAX_RECORDS - 1).astype(int)], rises[-1]))
    return [[int(step), float(f"{top[step]:.5g}")] for step in rises]


def _forecast_peak(trace: Trace, truth: GroundTruth, seed: int) -> dict[str, Any] | None:
    """Forecast of the peak at three quarters of the way, with evenly spread labels; None where there is no peak.

    The same budget, spent evenly: saving labels for the turn leaves few for the curve before it.
    """
    at = int(FORECAST_AT * truth.peak)
    if truth.kind != "hack" or at < 10:
        return None
    played = play(trace, seed, SHARE, floor=1.0, until=at + 1)
    prediction = predict(
        np.arange(at + 1),
        np.sqrt(np.maximum(trace.kl[: at + 1], 0.0)),
        played.steps,
        played.us,
        played.gold_steps,
        played.gold,
        np.full(len(played.gold), 2.0),
    )
    is_predicted = not prediction.refused
    return {
        "at": at,
        "peak": truth.peak,
        "predicted": round(float(prediction.peak), 1) if is_predicted else None,
        "low": round(float(prediction.low), 1) if is_predicted else None,
        "high": round(min(float(prediction.high), 1e9), 1) if is_predicted else None,
        "refused": prediction.refused,
    }
