"""Stop advice where checkpoints were asked the same prompts: each is compared with itself, by the trail's test."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, sqrt

import numpy as np

from tiltmeter.data.records import Alarm
from tiltmeter.stats.checkpoint_falls import ALPHA, LEAST_PROMPTS, find_fall, log_looks
from tiltmeter.stats.gold_curve import LEAST_FALL, SHARE
from tiltmeter.verdict.checkpoint_gold import AskedCheckpoint
from tiltmeter.verdict.gold_standing import Estimate, z_of
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import Advice, Word


def advise_on_checkpoints(run_facts: RunFacts) -> Advice | None:
    """Advice on a run whose checkpoints were asked; None where none was, or its rollouts have gold of their own."""
    points = run_facts.checkpoints.on_lineage(run_facts.spans())
    if not points or not run_facts.steps or run_facts.labels:
        return None
    return advise_by_checkpoints(points, run_facts.open_alarms("alarm"))


def advise_by_checkpoints(points: Sequence[AskedCheckpoint], alarms: Sequence[Alarm] = ()) -> Advice:
    """Stop if the last checkpoint is lower than an earlier one, cannot tell while a large fall is not excluded.

    A fall is named at 1 % over all looks; the bound on what is excluded holds with 95 % at each look.

    >>> rng = np.random.default_rng(0)
    >>> asked = [
    ...     AskedCheckpoint(0, step, "eval.checkpoint_gold", rng.binomial(4, chance, 200) / 4)
    ...     for step, chance in ((10, 0.4), (20, 0.8), (30, 0.5))
    ... ]
    >>> advice = advise_by_checkpoints(asked)
    >>> advice.word, advice.best.step, advice.lower
    ('stop', 20, True)
    >>> advise_by_checkpoints(asked[:2]).word
    'continue'
    """
    source = points[-1].reading
    bound = min((alarm.onset_low for alarm in alarms), default=inf)
    named = [one for one in map(_estimate, points) if one is not None and one.step <= bound]
    best = max(named, key=lambda one: (one.gold, one.step), default=None)
    now = _estimate(points[-1])
    common = int(np.isfinite(np.stack([one.gold for one in points])).all(0).sum())
    if len(points) < 2 or common < LEAST_PROMPTS:
        why = (
            "one checkpoint was asked so far: a fall needs two"
            if len(points) < 2
            else f"gold of every checkpoint is known for {common} prompts, and {LEAST_PROMPTS} are needed"
        )
        return Advice("stop" if alarms else "cannot tell", why, best, now, source)
    test = find_fall([one.gold for one in points])
    looks, excluded = len(points) - 1, False
    is_lower = test.odds * ALPHA >= exp(log_looks(looks))
    word: Word
    if is_lower or alarms:
        rest = sorted(points[at].step for at in test.candidates)
        where = f"the best is at step {rest[0]}" if len(rest) == 1 else f"the best is one of steps {_listed(rest)}"
        word, why = "stop", f"answers of the checkpoint at step {points[-1].step} are worse than earlier ones; {where}"
    elif not (excluded := best is not None and test.worst <= max(SHARE * best.low, LEAST_FALL)):
        word = "cannot tell"
        why = f"{common} prompts cannot exclude a fall of {min(test.worst, 1.0):.2f} of gold; ask more"
    else:
        word, why = "continue", f"no sign that gold is lost: a fall above {test.worst:.2f} is excluded"
    return Advice(word, why, best, now, source, min(test.worst, 1.0), is_lower, excluded)


def _listed(steps: Sequence[int]) -> str:
    return ", ".join(map(str, steps)) if len(steps) <= 6 else f"{steps[0]} to {steps[-1]}"


def _estimate(one: AskedCheckpoint) -> Estimate | None:
    """Mean gold over prompts, with its interval."""
    there = one.gold[np.isfinite(one.gold)]
    if len(there) < 2:
        return None
    mean, error = float(there.mean()), z_of(1) * float(there.std(ddof=1)) / sqrt(len(there))
    return Estimate(one.step, mean, max(mean - error, 0.0), min(mean + error, 1.0), len(there))
