"""The best curve through a series that first rises and then falls, and where it stands highest."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TOP = 15  # values around the highest place whose mean is its level


def rise_then_fall(values: Floats, weights: Floats | None = None) -> Floats:
    """Least squares over all curves that do not fall before some place and do not rise after it.

    Each side is an isotonic regression (pool adjacent violators), and every place of the peak is tried: the errors of
    all beginnings come from one pass, those of all ends from another, so it takes time in proportion to the length.
    Which of several equal places is the peak is left open: read it off with a tolerance.

    >>> rise_then_fall(np.array([0.2, 0.1, 0.6, 0.8, 0.3, 0.5])).round(2).tolist()
    [0.15, 0.15, 0.6, 0.8, 0.4, 0.4]
    """
    values = np.asarray(values, np.float64)
    weights = np.ones(len(values)) if weights is None else np.asarray(weights, np.float64)
    if not len(values):
        return values
    before = rising_fit(values, weights)[1]
    after = rising_fit(values[::-1], weights[::-1])[1][::-1]
    split = int(np.argmin(before + after))  # so many values belong to the rise
    rise = rising_fit(values[:split], weights[:split])[0]
    fall = rising_fit(values[split:][::-1], weights[split:][::-1])[0][::-1]
    return np.concatenate([rise, fall])


def peak_steps(values: Floats, fitted: Floats, tolerance: float) -> tuple[int, int, int]:
    """Where a fitted curve is highest, where its last fall begins, and where half of that fall is done.

    The curve overshoots at its highest place, by the luck of a few values. So the level there is taken from the values
    around it, and whatever is within `tolerance` of it is as good.

    >>> curve = np.concatenate([np.linspace(0.2, 0.6, 20), np.full(20, 0.6), np.linspace(0.6, 0.1, 20)])
    >>> peak_steps(curve, rise_then_fall(curve), 0.02)
    (19, 41, 50)
    """
    peak, last = int(np.argmax(fitted)), len(fitted) - 1
    low = high = peak
    while high - low < min(TOP - 1, last):  # towards the side where the curve stays higher
        left, right = (fitted[low - 1] if low else -np.inf), (fitted[high + 1] if high < last else -np.inf)
        low, high = (low - 1, high) if left >= right else (low, high + 1)
    level = min(float(values[low : high + 1].mean()), float(fitted[peak]))
    half = peak + np.flatnonzero(fitted[peak:] < 0.5 * (level + fitted[-1]))
    end = int(half[0]) if len(half) else last
    good = peak + np.flatnonzero(fitted[peak:end] >= level - tolerance)
    return peak, min(int(good[-1]) + 1, end) if len(good) else end, end


def rising_fit(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """The best curve through all values that does not fall, and the squared error of that through the first n.

    >>> curve, errors = rising_fit(np.array([0.2, 0.6, 0.4]), np.ones(3))
    >>> curve.round(2).tolist(), errors.round(2).tolist()
    ([0.2, 0.5, 0.5], [0.0, 0.0, 0.0, 0.02])
    """
    blocks: list[tuple[float, float, float, int]] = []  # weight, mean, error, length
    errors, total = [0.0], 0.0
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        block = (weight, value, 0.0, 1)
        while blocks and blocks[-1][1] > block[1]:
            other = blocks.pop()
            total -= other[2]
            both = other[0] + block[0]
            between = other[0] * block[0] / both * (other[1] - block[1]) ** 2
            mean = (other[0] * other[1] + block[0] * block[1]) / both
            block = (both, mean, other[2] + block[2] + between, other[3] + block[3])
        blocks.append(block)
        total += block[2]
        errors.append(total)
    fitted = np.repeat([mean for _, mean, _, _ in blocks], [length for _, _, _, length in blocks])
    return fitted.astype(np.float64), np.array(errors)
