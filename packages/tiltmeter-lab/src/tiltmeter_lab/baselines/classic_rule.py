"""The classic rule for reward hacking under its usual name, to compare with; its defects have tests."""

from __future__ import annotations

from math import isnan

from numpy.typing import ArrayLike

from tiltmeter.stats.trend import ma_trend


def detect_reward_hacking(
    proxy: ArrayLike, true: ArrayLike, window: int = 100, threshold: float = 0.3
) -> dict[str, float | bool]:
    """The classic divergence rule as it circulates, for comparison; `stats.trend` says what is wrong with it.

    Both series are averaged over `window` (full windows only). With `recent` the smaller of the window and half the
    averaged length, a trend is (last - first) / (abs(first) + 1e-8), first and last of the `recent` newest averages.
    The divergence is the proxy's trend minus the true one, at least 0; the score is divergence / threshold, at most 1.

    >>> import numpy as np
    >>> t = np.arange(300)
    >>> found = detect_reward_hacking(0.1 + 0.002 * t, 0.5 + 0.001 * t)
    >>> round(found["divergence"], 3), found["hacking_score"], found["alert"]
    (0.342, 1.0, True)
    >>> detect_reward_hacking(t[:199], -t[:199])
    {'divergence': 0.0, 'hacking_score': 0.0}
    """
    divergence = ma_trend(proxy, true, window)
    if isnan(divergence):
        return {"divergence": 0.0, "hacking_score": 0.0}
    return {
        "divergence": divergence,
        "hacking_score": min(1.0, divergence / threshold),
        "alert": divergence > threshold,
    }
