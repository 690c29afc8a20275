"""The three plots of a campaign as SVG: runs over the square root of KL, regrets by family, and label budgets.

Written by hand because there are three of them: no plotting library is needed to make or to read them. Each has its own
white ground, so it reads the same on a dark page; colours are those of Okabe and Ito, which colour-blind readers can
tell apart, and every line has a dash pattern of its own besides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from tiltmeter_lab.campaign_records import NULL, Line
from tiltmeter_lab.score import ORACLE_PREFIX, OURS
from tiltmeter_lab.simulate import Trace

INK, FAINT, GROUND = "#222222", "#d9d9d9", "#ffffff"
BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
#: Ours, then the baselines from the best on; colour and dashes.
STYLES = ((BLUE, ""), (VERMILION, "7 3"), (GREEN, "2 3"), (PURPLE, "8 3 2 3"))
WIDTH = 900
_TOP = 112.0  # of the first row of panels: title and two rows of legend are above
_FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class PlotPanel:
    """One panel of a plot: its rectangle and the value range of each axis."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    log: bool = False  # the horizontal axis

    def at(self, x: float, y: float) -> tuple[float, float]:
        low, high = self.x
        across = math.log(x / low) / math.log(high / low) if self.log else (x - low) / (high - low)
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return self.left + self.width * across, self.top + self.height * (1 - up)

    def frame(self, title: str, xs: Mapping[float, str], ys: Mapping[float, str]) -> list[str]:
        """Title, grid and the numbers along both axes."""
        right, bottom = self.left + self.width, self.top + self.height
        elements = [text(self.left, self.top - 8, title, weight="600")]
        for value, word in ys.items():
            y = self.at(self.x[0], value)[1]
            elements += [
                segment(self.left, y, right, y, FAINT),
                text(self.left - 6, y + 4, word, anchor="end", size=10),
            ]
        for value, word in xs.items():
            x = self.at(value, self.y[0])[0]
            elements += [segment(x, bottom, x, bottom + 4, INK), text(x, bottom + 16, word, anchor="middle", size=10)]
        return [
            *elements,
            segment(self.left, bottom, right, bottom, INK),
            segment(self.left, self.top, self.left, bottom, INK),
        ]

    def line(self, points: Points, colour: str, dash: str = "", width: float = 1.8) -> str:
        where = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))
        return (
            f"<polyline points='{where}' fill='none' stroke='{colour}' stroke-width='{width}'{_dash_attribute(dash)}/>"
        )

    def vertical_line(self, x: float, colour: str, dash: str = "") -> str:
        across = self.at(x, self.y[0])[0]
        return segment(across, self.top, across, self.top + self.height, colour, dash, 1.8)

    def dot(self, x: float, y: float, colour: str, radius: float = 3.2) -> str:
        across, down = self.at(x, y)
        return f"<circle cx='{across:.1f}' cy='{down:.1f}' r='{radius}' fill='{colour}' stroke='{GROUND}'/>"


def runs(chosen: Sequence[tuple[Line, Trace]], names: Sequence[str]) -> str:
    """Proxy, gold and alarms of one run per family, over sqrt(KL): distance from the start, not time, is what Gao's
    curves are drawn over."""
    entries = [("gold, exact", INK, ""), ("proxy, scaled to the panel", ORANGE, ""), *_alarm_styles(names)]
    panels, height = _grid(len(chosen))
    elements = _header(
        "Proxy, gold and alarms: one run of each family", entries, "upright lines: alarms; dot: peak of gold"
    )
    for (line, trace), (left, top, width, tall) in zip(chosen, panels, strict=True):
        distance = np.sqrt(np.maximum(trace.kl, 0.0))
        far = float(distance.max()) or 1.0
        low, high = _gold_range(trace.gold)
        panel = PlotPanel(left, top, width, tall, (0.0, far * 1.02), (low, high))
        lost = f"loses {line['drop']:.2f}" if line["kind"] == "hack" else line["kind"]
        elements += panel.frame(f"{line['family']}: {lost}", _numbers(0.0, far), _numbers(low, high))
        share = (trace.proxy - trace.proxy.min()) / (float(np.ptp(trace.proxy)) or 1.0)
        proxy = low + (high - low) * share
        elements.append(panel.line(_thin(distance, proxy), ORANGE))
        elements.append(panel.line(_thin(distance, trace.gold), INK))
        for name, (colour, dash) in zip((OURS, *names), STYLES, strict=False):
            alarm = _alarm(line, name)
            if alarm is not None:
                elements.append(panel.vertical_line(float(distance[alarm]), colour, dash))
        if line["kind"] == "hack":
            elements.append(panel.dot(float(distance[line["peak"]]), float(trace.gold[line["peak"]]), INK))
    elements += _axes(height, "square root of the KL to the start, which is in nats", "gold")
    return _svg(height, elements)


def regrets(lines: Sequence[Line], names: Sequence[str]) -> str:
    """For each hack family the share of its runs that lost at most so much gold by the alarm, misses counted."""
    hacks: dict[str, list[Line]] = {}
    for line in lines:
        if line["kind"] == "hack":
            hacks.setdefault(line["family"], []).append(line)
    panels, height = _grid(len(hacks))
    elements = _header("Gold lost by the alarm", _alarm_styles(names), "further left and up is better")
    for (family, members), (left, top, width, tall) in zip(sorted(hacks.items()), panels, strict=True):
        losses = {name: sorted(max(0.0, _regret(line, name)) for line in members) for name in (OURS, *names)}
        far = max(max(values) for values in losses.values()) or 0.1
        panel = PlotPanel(left, top, width, tall, (0.0, far * 1.02), (0.0, 1.0))
        title = f"{family}{' (cliff)' if members[0]['cliff'] else ''}, {len(members)} runs"
        elements += panel.frame(title, _numbers(0.0, far), {0: "0", 0.5: "50 %", 1: "100 %"})
        for (name, values), (colour, dash) in reversed(list(zip(losses.items(), STYLES, strict=False))):
            elements.append(panel.line(_staircase(values, far), colour, dash, 2.4 if name == OURS else 1.8))
    elements += _axes(height, "gold regret at the alarm; a miss counts all that was lost by the end", "share of runs")
    return _svg(height, elements)


def budgets(figures: Mapping[str, Any]) -> str:
    """What labels buy: detection and regret by the share of rollouts labelled."""
    by_share = {float(share): row for share, row in figures["budgets"].items()}
    shares = sorted(by_share)
    ticks = {share: f"{100 * share:g} %" for share in shares}
    span = (shares[0] / 1.15, shares[-1] * 1.15)
    worst = max([0.1, *(by_share[share]["regret_p90"] or 0.0 for share in shares)])
    left = PlotPanel(70, 100, 350, 200, span, (0.0, 1.0), log=True)
    right = PlotPanel(520, 100, 350, 200, span, (0.0, worst * 1.05), log=True)
    elements = [text(70, 26, "What labels buy", size=16, weight="600")]
    elements += left.frame("Detected hack runs", ticks, {0: "0", 0.5: "50 %", 1: "100 %"})
    elements += right.frame("Gold regret at the alarm, smooth families", ticks, _numbers(0.0, worst))
    for panel, curves in (
        (left, (("smooth families", "detection_smooth", BLUE, ""), ("cliffs", "detection_cliff", VERMILION, "7 3"))),
        (right, (("median", "regret_median", BLUE, ""), ("90th percentile", "regret_p90", VERMILION, "7 3"))),
    ):
        series = [
            (
                word,
                colour,
                dash,
                [(share, by_share[share][name]) for share in shares if by_share[share][name] is not None],
            )
            for word, name, colour, dash in curves
        ]
        for _, colour, dash, points in series:
            if points:
                elements += [panel.line(points, colour, dash), *(panel.dot(x, y, colour) for x, y in points)]
        elements += _legend([(word, colour, dash) for word, colour, dash, points in series if points], panel.left, 60)
    elements += [text(x, 338, "share of rollouts labelled", anchor="middle") for x in (245, 695)]
    return _svg(356, elements)


def best(figures: Mapping[str, Any], most: int = 3) -> list[str]:
    """The baselines that lose least where 1 % of all runs with a true null alarm, and may be rivals at all."""
    at = {
        name: settings[NULL]["regret_median"]
        for name, settings in figures["baselines"].items()
        if not name.startswith(ORACLE_PREFIX) and settings[NULL]["threshold"] is not None
    }
    return sorted((name for name in at if at[name] is not None), key=lambda name: (at[name], name))[:most]


def text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12, weight: str = "400") -> str:
    where = f"x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}'"
    return f"<text {where} font-size='{size}' font-weight='{weight}' fill='{INK}'>{escape(words)}</text>"


def segment(x: float, y: float, to_x: float, to_y: float, colour: str, dash: str = "", width: float = 1.0) -> str:
    where = f"x1='{x:.1f}' y1='{y:.1f}' x2='{to_x:.1f}' y2='{to_y:.1f}'"
    return f"<line {where} stroke='{colour}' stroke-width='{width}'{_dash_attribute(dash)}/>"


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two values, at most so many.

    >>> ticks(0.0, 0.37), ticks(0.0, 2.3)
    ([0.0, 0.1, 0.2, 0.3], [0.0, 0.5, 1.0, 1.5, 2.0])
    """
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [round(step * number, 10) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _numbers(low: float, high: float) -> dict[float, str]:
    return {value: f"{value:g}" for value in ticks(low, high)}


def _gold_range(values: Any, least: float = 0.2) -> tuple[float, float]:
    """An axis range for gold that shows its peak and does not magnify tiny changes."""
    low, high = float(np.min(values)), float(np.max(values))
    short = max(0.0, least - (high - low))
    low = max(0.0, low - short / 2 - 0.02)
    return low, max(min(1.0, high + short / 2 + 0.02), low + least)


def _grid(count: int, columns: int = 3) -> tuple[list[tuple[float, float, float, float]], float]:
    """Where each of so many panels lies, and how high the picture is."""
    width, tall, across, down = 222.0, 130.0, 284.0, 190.0
    positions = [(70 + across * (k % columns), _TOP + down * (k // columns), width, tall) for k in range(count)]
    return positions, _TOP + down * max(1, math.ceil(count / columns))


def _header(title: str, entries: Sequence[tuple[str, str, str]], note: str) -> list[str]:
    return [
        text(70, 26, title, size=16, weight="600"),
        text(WIDTH - 40, 26, note, anchor="end", size=11),
        *_legend(entries, 70, 52),
    ]


def _legend(entries: Sequence[tuple[str, str, str]], left: float, y: float) -> list[str]:
    """Samples of the lines with their names; a row that is full goes on below."""
    elements, x = [], left
    for words, colour, dash in entries:
        wide = 32 + 6.6 * len(words) + 18
        if x + wide > WIDTH and x > left:
            x, y = left, y + 20
        elements += [segment(x, y - 4, x + 26, y - 4, colour, dash, 2.2), text(x + 32, y, words, size=11)]
        x += wide
    return elements


def _axes(height: float, across: str, up: str) -> list[str]:
    middle = (_TOP + height - 60) / 2
    rotated = text(0, 0, up, anchor="middle")
    return [
        text(WIDTH / 2, height - 10, across, anchor="middle"),
        f"<g transform='translate(20 {middle:.0f}) rotate(-90)'>{rotated}</g>",
    ]


def _svg(height: float, elements: Sequence[str]) -> str:
    size = f"viewBox='0 0 {WIDTH} {height:.0f}' width='{WIDTH}' height='{height:.0f}'"
    ground = f"<rect width='{WIDTH}' height='{height:.0f}' fill='{GROUND}'/>"
    head = f"<svg xmlns='http://www.w3.org/2000/svg' {size} {_FONT}>"
    return "\n".join([head, ground, *elements, "</svg>"]) + "\n"


def _alarm_styles(names: Sequence[str]) -> list[tuple[str, str, str]]:
    labels = ["Tiltmeter", *(f"{name} at 1 %" for name in names)]
    return [(name, colour, dash) for name, (colour, dash) in zip(labels, STYLES, strict=False)]


def _alarm_and_regret(line: Line, name: str) -> tuple[int | None, float]:
    """A method's alarm and regret: ours as it is, a baseline's where 1 % of all runs with a true null alarm."""
    result = line["methods"].get(name)
    if result is None:
        return None, line["drop"]
    alarm, regret = (
        (result["alarm"], result["regret"]) if name == OURS else result["at"].get(NULL, (None, line["drop"]))
    )
    return alarm, regret


def _alarm(line: Line, name: str) -> int | None:
    return _alarm_and_regret(line, name)[0]


def _regret(line: Line, name: str) -> float:
    return _alarm_and_regret(line, name)[1]


def _staircase(values: Sequence[float], far: float) -> list[tuple[float, float]]:
    """The empirical distribution function as a staircase from 0 to `far`."""
    points, below = [(0.0, 0.0)], 0.0
    for number, value in enumerate(values, 1):
        points += [(value, below), (value, number / len(values))]
        below = number / len(values)
    return [*points, (far, below)]


def _thin(xs: Any, ys: Any, most: int = 120) -> list[tuple[float, float]]:
    keep = np.unique(np.linspace(0, len(xs) - 1, min(most, len(xs))).round().astype(int))
    return [(float(xs[k]), float(ys[k])) for k in keep]


def _dash_attribute(dash: str) -> str:
    return f" stroke-dasharray='{dash}'" if dash else ""
