"""The least that any proved alarm on the level of gold could lose on a run, however it is built.

An alarm that may be raised at any time and is false with a chance of at most α must have seen about log(1/α) nats of
evidence. What a run's labels offer, at most, is the Kullback-Leibler divergence of its path of gold from the nearest
path that never falls. So whoever knows the path beforehand, and bets all on it, is not earlier than this. A test that
has to learn the path, and from where to measure, pays a few nats more.
"""

from __future__ import annotations

from math import log

import numpy as np

from tiltmeter.stats.rise_then_fall import rise_then_fall, rising_fit
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.simulate import Trace
from tiltmeter_lab.worlds.world import Floats

ALPHA = 0.008  # the alarm's own part of 1 %
LEARNING = 3.0  # nats: the price of not knowing path and reference window beforehand
LEAST_VARIANCE = 1e-3  # of a label: steps whose answers are all alike are few, and not free
NATS = log(1.0 / ALPHA) + LEARNING


def floor_step(gold: Floats, variance: Floats, nats: float = NATS) -> int | None:
    """The first step at which a path of gold, seen with these variances, is so many nats from every rising one.

    Gaussian: the divergence is half the squared distance to the isotonic fit of the path so far, over the variance.

    >>> path = np.concatenate([np.linspace(0.4, 0.7, 50), np.linspace(0.7, 0.2, 50)])
    >>> [floor_step(path, np.full(100, 0.2 / labels)) for labels in (640, 64, 6.4, 0.1)]
    [57, 65, 83, None]
    """
    errors = rising_fit(gold, 1.0 / variance)[1][1:]
    above = np.flatnonzero(errors >= 2.0 * nats)
    return int(above[0]) if len(above) else None


def floor_regret(trace: Trace, truth: GroundTruth, share: float) -> float:
    """Gold lost by then, with labels of this share of every step's rollouts and nothing else known of gold.

    The path is the rise-then-fall curve through the step means of all labels, without the corners that noise makes.
    """
    steps = trace.label.reshape(len(trace.label), -1)
    variance = np.maximum(_mean_around(steps.var(1), 21), LEAST_VARIANCE) / (share * steps.shape[1])
    return truth.regret(trace.gold, floor_step(_mean_around(rise_then_fall(steps.mean(1)), 9), variance))


def _mean_around(values: Floats, window: int) -> Floats:
    kernel = np.ones(min(window, len(values)))
    return np.asarray(np.convolve(values, kernel, "same") / np.convolve(np.ones(len(values)), kernel, "same"))
