"""The checkpoint to go back to after an alarm: labels bought over the stored past, and what is still lost there."""

from __future__ import annotations

import numpy as np

from tiltmeter.gold.onset_labels import LABELS
from tiltmeter.stats.backfilled_onset import backfilled_onset
from tiltmeter_lab.simulate import Trace


def rollback_step(trace: Trace, alarm: int, seed: int, labels: int = LABELS) -> int:
    """The step that the back-filled onset advises, from answers drawn uniformly over all up to the alarm.

    It sees what a user has stored: reward, length and prompt of every answer, and the gold of those few.

    >>> from tiltmeter_lab.simulate import simulate
    >>> from tiltmeter_lab.worlds.world import World
    >>> tables = {"reference": [[0.6, 0.3, 0.09, 0.01]], "proxy": [[0, 1, 2, 3]], "gold": [[0.1, 0.5, 0.9, 0]]}
    >>> trace = simulate(World("toy", **tables, steps=100, rate=0.05), seed=1)
    >>> step = rollback_step(trace, alarm=90, seed=1)
    >>> bool(trace.gold[90] < trace.gold[step]), bool(trace.gold.max() - trace.gold[step] < 0.03)
    (True, True)
    """
    past = slice(0, alarm + 1)
    _, groups, size = trace.reward.shape
    reward = trace.reward[past].ravel()
    features = [reward] if trace.tokens is None else [reward, trace.tokens[past].ravel()]
    rng = np.random.Generator(np.random.Philox(key=[seed, 3]))
    rows = rng.choice(len(reward), min(labels, len(reward)), replace=False)
    step = np.arange(alarm + 1).repeat(groups * size)
    gold = trace.label[past].ravel()[rows]
    prompt = trace.prompt[past].repeat(size, 1).ravel()
    return backfilled_onset(step, np.column_stack(features), rows, gold, prompt, repeats=0).peak
