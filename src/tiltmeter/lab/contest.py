"""One run and everybody who watched it: the product's own alarm, at several budgets, and every rule of `baselines`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiltmeter.lab.baselines import BASELINES, Seen, first
from tiltmeter.lab.play import Played, play
from tiltmeter.lab.simulate import Trace, simulate
from tiltmeter.lab.truth import Truth
from tiltmeter.lab.world import Floats, World
from tiltmeter.stats.overoptimisation import predict

SHARE = 0.02
SHARES = (0.005, 0.01, 0.04, 0.08)
AHEAD = 0.75  # of the way to the peak: when its forecast is asked for
GRACE = 10  # steps after the exact slope turned: nobody who buys labels is faster
RECORDS = 60  # points kept of a score's running maximum


def contest(world: World, seed: int) -> dict[str, Any]:
    """The result line of a run: what really happened, and when each watcher spoke. JSON-able, finite numbers only."""
    trace = simulate(world, seed)
    truth = Truth.of(trace.gold, trace.slope)
    ours = play(trace, seed, SHARE)
    seen = Seen.of(trace, seed, SHARE)
    methods = {"tiltmeter": outcome(truth, trace, ours)}
    for rule in BASELINES:
        score = rule.score(seen)
        alarm = first(score, rule.published)
        methods[rule.name] = {
            "alarm": alarm,
            "regret": round(truth.regret(trace.gold, alarm), 5),
            "records": running_maximum(score),
        }
    turned = truth.onset if truth.onset >= 0 else truth.first_negative
    floor = min(turned + GRACE, world.steps - 1) if turned >= 0 else None
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
        "methods": methods,
        "budgets": {
            str(share): methods["tiltmeter"] if share == SHARE else outcome(truth, trace, play(trace, seed, share))
            for share in sorted((*SHARES, SHARE))
        },
        "forecast": _forecast(trace, truth, seed),
    }


def outcome(truth: Truth, trace: Trace, played: Played) -> dict[str, Any]:
    """When the product's own alarm spoke, and what had been spent and lost by then."""
    alarm = None if played.alarm is None else played.alarm.step
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


def running_maximum(score: Floats) -> list[list[float]]:
    """The points at which the running maximum of a score rises, thinned: enough for any threshold to be tried later."""
    usable = np.where(np.isnan(score), -np.inf, score)
    top = np.maximum.accumulate(usable)
    rises = np.flatnonzero(np.isfinite(top) & (top > np.concatenate(([-np.inf], top[:-1]))))
    if len(rises) > RECORDS:
        rises = np.unique(np.append(rises[np.linspace(0, len(rises) - 1, RECORDS - 1).astype(int)], rises[-1]))
    return [[int(step), float(f"{top[step]:.5g}")] for step in rises]


def _forecast(trace: Trace, truth: Truth, seed: int) -> dict[str, Any] | None:
    """What labels spread evenly until three quarters of the way say of the peak; None where there is none to forecast.

    The same budget, spent otherwise: who saves labels for the turn knows little of the way there.
    """
    at = int(AHEAD * truth.peak)
    if truth.kind != "hack" or at < 10:
        return None
    played = play(trace, seed, SHARE, floor=1.0, until=at + 1)
    said = predict(
        np.arange(at + 1),
        np.sqrt(np.maximum(trace.kl[: at + 1], 0.0)),
        played.steps,
        played.us,
        played.gold_steps,
        played.gold,
        np.full(len(played.gold), 2.0),
    )
    known = not said.refused
    return {
        "at": at,
        "peak": truth.peak,
        "predicted": round(float(said.peak), 1) if known else None,
        "low": round(float(said.low), 1) if known else None,
        "high": round(min(float(said.high), 1e9), 1) if known else None,
        "refused": said.refused,
    }
