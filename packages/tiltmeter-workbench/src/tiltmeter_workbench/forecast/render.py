"""Renders a forecast as a sentence and as JSON."""

from __future__ import annotations

import math
from typing import Any

from tiltmeter_workbench.forecast.curves import COVER, Curve, CurvePoint
from tiltmeter_workbench.forecast.estimate import GoldForecast

UNSEEN = "It cannot see what the reference never samples."


def sentence(forecast: GoldForecast) -> str:
    """The forecast in words; what falls comes first."""
    if forecast.refused:
        return f"No forecast: {'; '.join(forecast.refused)}."
    parts = [
        (forecast.tilt.peak is None, _tilt_sentence(forecast.tilt)),
        (forecast.best.peak is None, _best_of_n_sentence(forecast.best)),
    ]
    return " ".join(f"{words[0].upper()}{words[1:]}." for _, words in sorted(parts, key=lambda each: each[0]) if words)


def _tilt_sentence(curve: Curve) -> str:
    if not curve.points:
        return f"no forecast of a tilt: {curve.ended}"
    if curve.peak is None:
        end = "at any beta" if curve.whole else f"up to KL {curve.reach:.2f} (beta {curve.points[-1].at:.3g})"
        return f"gold does not turn for sure {end}" + ("" if curve.whole else "; beyond, nothing is claimed")
    peak, safe = curve.points[curve.peak], curve.points[curve.near].at
    careful = f", and above {safe:.3g} to be on the safe side" if peak.at < safe < math.inf else ""
    return (
        f"gold peaks at beta {peak.at:.3g} (KL {peak.kl.mean:.2f}) and has lost {curve.fall.mean:.3f} "
        f"[{curve.fall.low:.3f}, {curve.fall.high:.3f}] by KL {curve.reach:.2f}: stay above beta {peak.at:.3g}{careful}"
    )


def _best_of_n_sentence(curve: Curve) -> str:
    if not curve.points:
        return ""
    if curve.peak is None:
        return f"picking the best of n, it does not turn for sure up to n = {curve.points[-1].at:.0f}"
    peak, end = curve.points[curve.peak].at, curve.points[-1].at
    fall = f"{curve.fall.mean:.3f} [{curve.fall.low:.3f}, {curve.fall.high:.3f}]"
    return f"picking the best of n, gold peaks at n = {peak:.0f} and has lost {fall} by n = {end:.0f}: take no more"


def as_json(forecast: GoldForecast) -> dict[str, Any]:
    """The forecast for a machine; β of the reference itself is null, as it is infinite."""
    state = "refused" if forecast.refused else "peak" if forecast.exit_code else "no peak in reach"
    return {
        "state": state,
        "exit_code": forecast.exit_code,
        "sentence": sentence(forecast),
        "unseen": UNSEEN,
        "refused": list(forecast.refused),
        "notes": list(forecast.notes),
        "prompts": forecast.prompts,
        "samples": forecast.samples,
        "labels": forecast.labels,
        "cover": COVER,
        "tilt": _curve_json(forecast.tilt, "beta"),
        "best_of_n": _curve_json(forecast.best, "n"),
    }


def _curve_json(curve: Curve, axis: str) -> dict[str, Any]:
    def at(index: int) -> float | None:
        value = curve.points[index].at
        return value if math.isfinite(value) else None

    def point(each: CurvePoint) -> dict[str, Any]:
        intervals = {name: list(getattr(each, name)) for name in ("kl", "proxy", "gold", "gain")}
        return {axis: each.at if math.isfinite(each.at) else None, **intervals, "labels": each.labels}

    peak = None
    if curve.peak is not None:
        beyond = curve.far == len(curve.points) - 1
        peak = {
            axis: at(curve.peak),
            "near": at(curve.near),
            "far": None if beyond else at(curve.far),
            "kl": list(curve.points[curve.peak].kl),
            "fall": list(curve.fall),
        }
    return {
        "reach_kl": curve.reach,
        "ended": curve.ended,
        "whole": curve.whole,
        "peak": peak,
        "peak_refused": ""
        if peak
        else f"no bend beyond doubt up to KL {curve.reach:.2f}"
        if curve.points
        else "refused",
        "points": [point(each) for each in curve.points],
    }
