"""A forecast in words and for a machine."""

from __future__ import annotations

import math
from typing import Any

from tiltmeter.forecast.curves import COVER, Curve, Point
from tiltmeter.forecast.outlook import Outlook

UNSEEN = "It cannot see what the reference never samples."


def sentence(found: Outlook) -> str:
    """What it comes to, in words; what falls comes first."""
    if found.refused:
        return f"No forecast: {'; '.join(found.refused)}."
    told = [(found.tilt.peak is None, _tilt_told(found.tilt)), (found.best.peak is None, _best_told(found.best))]
    return " ".join(f"{words[0].upper()}{words[1:]}." for _, words in sorted(told, key=lambda each: each[0]) if words)


def _tilt_told(curve: Curve) -> str:
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


def _best_told(curve: Curve) -> str:
    if not curve.points:
        return ""
    if curve.peak is None:
        return f"picking the best of n, it does not turn for sure up to n = {curve.points[-1].at:.0f}"
    peak, end = curve.points[curve.peak].at, curve.points[-1].at
    fall = f"{curve.fall.mean:.3f} [{curve.fall.low:.3f}, {curve.fall.high:.3f}]"
    return f"picking the best of n, gold peaks at n = {peak:.0f} and has lost {fall} by n = {end:.0f}: take no more"


def as_json(found: Outlook) -> dict[str, Any]:
    """The forecast for a machine; β of the reference itself is null, as it is infinite."""
    state = "refused" if found.refused else "peak" if found.exit_code else "no peak in reach"
    return {
        "state": state,
        "exit_code": found.exit_code,
        "sentence": sentence(found),
        "unseen": UNSEEN,
        "refused": list(found.refused),
        "notes": list(found.notes),
        "prompts": found.prompts,
        "samples": found.samples,
        "labels": found.labels,
        "cover": COVER,
        "tilt": _curve_json(found.tilt, "beta"),
        "best_of_n": _curve_json(found.best, "n"),
    }


def _curve_json(curve: Curve, axis: str) -> dict[str, Any]:
    def at(index: int) -> float | None:
        value = curve.points[index].at
        return value if math.isfinite(value) else None

    def point(each: Point) -> dict[str, Any]:
        told = {name: list(getattr(each, name)) for name in ("kl", "proxy", "gold", "gain")}
        return {axis: each.at if math.isfinite(each.at) else None, **told, "labels": each.labels}

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
