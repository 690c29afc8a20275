"""Where everything of a run's picture lies, at one size: `draw_run` is the only function that draws it.

What it returns is written as SVG, as PNG and by the page, which only know lines, areas and words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import UNSET

from tiltmeter.data.records import Floats
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.states import STATES
from tiltmeter.view.payloads.picture import PictureColour, PicturePath, PictureText, RunPicture, TextAnchor
from tiltmeter.view.screens.picture.curves import CurvePoints, PictureCurves, PictureFlag, caption
from tiltmeter.view.screens.wording import truncate

WORD = 0.56  # width of a letter, in sizes of the font
BOLD = 0.62
FEW = 36  # points of a thumbnail's curve
LABELLED = 3  # actions that have words


@dataclass(frozen=True, slots=True)
class PictureSize:
    """Pixels; `font` 0: a thumbnail without words; `title`: the verdict stands in the picture itself."""

    width: int
    height: int
    font: float
    title: bool = False

    @property
    def narrow(self) -> bool:
        return self.width < 500


#: What the page chooses from by its width.
PAGE_SIZES = (PictureSize(362, 226, 11.5), PictureSize(860, 270, 12.5), PictureSize(1372, 290, 13.5))
THUMBNAIL = PictureSize(176, 48, 0.0)
ALONE = PictureSize(1000, 420, 14.0, title=True)


def draw_run(curves: PictureCurves, size: PictureSize = ALONE) -> RunPicture:
    """The picture of a run at a size."""
    if not size.font:
        curves = replace(curves, proxy=curves.proxy.thin(FEW), abandoned=(), actions=(), notes=())
    canvas = _Canvas(curves, size)
    canvas.draw()
    return RunPicture(
        width=size.width,
        height=size.height,
        left=canvas.left,
        right=canvas.right,
        first=curves.first,
        last=curves.last,
        sentence=log_line(curves.sentence if size.font else "; ".join(caption(curves)), 1000 if size.font else 200),
        paths=canvas.paths,
        words=canvas.words,
    )


@dataclass
class _Canvas:
    """One picture while it is drawn: its plot's edges, and what lies on it."""

    curves: PictureCurves
    size: PictureSize
    paths: list[PicturePath] = field(default_factory=list)
    words: list[PictureText] = field(default_factory=list)

    def __post_init__(self) -> None:
        font, curves = self.size.font, self.curves
        self.note_lines: list[str] = []
        self.left, self.right = (2.0, self.size.width - 2.0)
        self.top, self.bottom = (3.0, self.size.height - 3.0)
        if font:
            self.left = 2.9 * font
            self.right = self.size.width - (8.7 if self.size.narrow else 9.6) * font
            self.top = (3.6 * font if self.size.title else 0.0) + (3.2 * font if curves.flags or curves.keep else font)
            self.note_lines = (
                list(curves.notes) if self.size.narrow else ["; ".join(curves.notes)] if curves.notes else []
            )
            self.bottom = self.size.height - (1.8 + 1.3 * len(self.note_lines)) * font
        self.gold_low, self.gold_high = _limits([curves.gold.low, curves.gold.high, curves.gold.values], unit=True)
        bounds = [curves.proxy.low, curves.proxy.high, *(branch.values for branch in curves.abandoned)]
        shared = bool(curves.gold) and (self.gold_low, self.gold_high) == (0.0, 1.0) and _in_unit(bounds)
        self.one_axis = shared or not curves.gold
        self.proxy_low, self.proxy_high = (0.0, 1.0) if shared else _limits(bounds, unit=not curves.gold)

    def draw(self) -> None:
        curves = self.curves
        self._path("ground", _box(0, 0, self.size.width, self.size.height), fill=True)
        if self.size.title:
            self._title()
        if not (curves.proxy or curves.gold):
            self._absence()
            return
        self._axes()
        self._shading()
        for branch in curves.abandoned:
            self._curve(branch, self._proxy_y, "grey", 1.0, 0.7)
        self._band(curves.gold, self._gold_y, "gold", 0.2)
        if curves.proxy.of > 1 and self.size.font:
            self._band(curves.proxy, self._proxy_y, "proxy", 0.16)
        pale = 0.45 if curves.missing else 1.0
        self._curve(curves.proxy, self._proxy_y, "proxy", 2.2 if self.size.font else 1.5, pale)
        self._curve(curves.gold, self._gold_y, "gold", 2.8 if self.size.font else 1.8)
        self._flags()
        self._actions()
        if self.size.font:
            self._ends()
            self._notes()
        self._absence()

    # -- places ----------------------------------------------------------------------------------------------------

    def _x(self, step: float | Floats) -> Floats:
        span = max(self.curves.last - self.curves.first, 1)
        place = (np.asarray(step, np.float64) - self.curves.first) / span
        return np.asarray(self.left + (self.right - self.left) * place)

    def _gold_y(self, value: float | Floats) -> Floats:
        return self._y(value, self.gold_low, self.gold_high)

    def _proxy_y(self, value: float | Floats) -> Floats:
        return self._y(value, self.proxy_low, self.proxy_high)

    def _y(self, value: float | Floats, low: float, high: float) -> Floats:
        place = (np.asarray(value, np.float64) - low) / (high - low)
        return np.asarray(self.bottom - (self.bottom - self.top) * place)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _title(self) -> None:
        font, curves = self.size.font, self.curves
        colour = STATES[curves.state].tone
        self._text(font, 1.5 * font, curves.state, colour, 1.2, bold=True)
        after = font + 1.2 * BOLD * font * (len(curves.state) + 1.5)
        self._text(after, 1.5 * font, f"{curves.name}, step {curves.last}", "faint", room=self.size.width - after)
        self._text(font, 3.0 * font, curves.verdict, "text", 1.05, bold=True, room=self.size.width - 2 * font)

    def _axes(self) -> None:
        font, curves = self.size.font, self.curves
        if not font:
            return
        low, high = (self.gold_low, self.gold_high) if curves.gold else (self.proxy_low, self.proxy_high)
        place = self._gold_y if curves.gold else self._proxy_y
        for value in _ticks(low, high, 3 if self.size.narrow else 5):
            y = float(place(value))
            self._path("line", _line([self.left, self.right], [y, y]), width=1.0)
            colour: PictureColour = "gold" if curves.gold and not self.one_axis else "faint"
            self._text(self.left - 6, y + 0.35 * font, f"{value:.4g}", colour, 0.85, anchor="end")
        for step in _ticks(curves.first, curves.last, 4 if self.size.narrow else 7, whole=True):
            self._text(float(self._x(step)), self.bottom + 1.3 * font, f"{step:.0f}", "faint", 0.85, anchor="middle")
        self._text(self.right + 8, self.bottom + 1.3 * font, "step", "faint", 0.85)

    def _shading(self) -> None:
        """From the turn on: the whole time pale, and where the reward lies above gold the gap between the two."""
        curves = self.curves
        if curves.shaded_from is None:
            return
        start, end = (float(self._x(step)) for step in (curves.shaded_from, curves.last))
        self._path("act", _box(start, self.top, end, self.bottom), fill=True, opacity=0.05)
        if not (curves.proxy and curves.gold):
            return
        finite = np.isfinite(curves.proxy.values)
        limit = (max(curves.shaded_from, curves.gold.steps[0]), min(curves.last, curves.gold.steps[-1]))
        steps = np.unique(np.concatenate([curves.proxy.steps[finite], curves.gold.steps, limit]))
        steps = steps[(steps >= limit[0]) & (steps <= limit[1])]
        if len(steps) < 2:
            return
        proxy = self._proxy_y(np.interp(steps, curves.proxy.steps[finite], curves.proxy.values[finite]))
        gold = self._gold_y(np.interp(steps, curves.gold.steps, curves.gold.values))
        upper = np.minimum(proxy, gold)  # y grows downwards
        if not (gold - upper > 0.5).any():
            return
        x = self._x(steps)
        self._path("act", _area(x, upper, gold), fill=True, opacity=0.16)
        self._gap_words(x, upper, gold)

    def _gap_words(self, x: Floats, upper: Floats, lower: Floats) -> None:
        """Words inside the gap, where it is widest; none where it is too narrow for them."""
        font = self.size.font
        grid = np.linspace(float(x[0]), float(x[-1]), 80)
        top, bottom = np.interp(grid, x, upper), np.interp(grid, x, lower)
        for words in ("paid, and not worth it", "not worth it") if font else ():
            half = 0.5 * WORD * font * len(words) + 2
            best, place = 1.5 * font, None
            for at in np.flatnonzero((grid - half >= grid[0]) & (grid + half <= grid[-1])):
                under = np.abs(grid - grid[at]) <= half
                low, high = float(bottom[under].min()), float(top[under].max())
                if low - high > best:
                    best, place = low - high, (float(grid[at]), (low + high) / 2)
            if place is not None:
                self._text(place[0], place[1] + 0.35 * font, words, "act", anchor="middle")
                return

    def _flags(self) -> None:
        curves, font = self.curves, self.size.font
        row = self.top - 2.0 * font
        for flag in curves.flags:
            x = float(self._x(flag.step))
            if flag.high > flag.low:
                ends = [max(flag.low, curves.first), min(flag.high, curves.last)]
                low, high = (float(value) for value in self._x(np.array(ends, np.float64)))
                self._path(
                    flag.colour, _box(low, self.top - (4 if font else 3), high, self.top), fill=True, opacity=0.5
                )
            dashed = not flag.text.startswith(("alarm", "warning"))
            top = row - 0.4 * font if font else self.top
            self._path(flag.colour, _line([x, x], [top, self.bottom]), width=1.6, dash="4 3" if dashed else "")
            if not dashed and font:
                self._path(flag.colour, _triangle(x, row - 0.35 * font, 0.42 * font), fill=True)
            if font:
                self._beside(x, row, flag, 0.35 * font if dashed else 0.75 * font)
            row += 1.35 * font
        if curves.keep is not None:
            self._keep(curves.keep)

    def _beside(self, x: float, y: float, flag: PictureFlag, away: float) -> None:
        """Words on the side of a line that has room for them."""
        wide = BOLD * 0.92 * self.size.font * len(flag.text)
        right = x + away + wide <= self.size.width - 2 or x - away - wide < 0
        room = self.size.width - x - away if right else x - away
        anchor: TextAnchor = "start" if right else "end"
        place = x + away if right else x - away
        self._text(place, y, flag.text, flag.colour, 0.92, bold=True, anchor=anchor, room=room)

    def _keep(self, flag: PictureFlag) -> None:
        """A ring on the curve of gold, at the checkpoint to keep."""
        gold, font = self.curves.gold, self.size.font
        x = float(self._x(flag.step))
        y = float(self._gold_y(np.interp(flag.step, gold.steps, gold.values))) if gold else self.bottom
        around = _circle(x, y, 0.42 * font or 3.0)
        self._path("ground", around, fill=True)
        self._path("ok", around, width=2.4 if font else 1.4)
        if not font:
            return
        wide = BOLD * 0.92 * font * len(flag.text)
        above = y - 0.9 * font if y - 2.2 * font > self.top else y + 1.6 * font
        anchor: TextAnchor = "start" if x - wide / 2 < self.left else "end" if x + wide / 2 > self.right else "middle"
        self._text(x, above, flag.text, "ok", 0.92, bold=True, anchor=anchor, room=self.size.width)

    def _actions(self) -> None:
        font, half = self.size.font, 0.28 * self.size.font or 1.5
        marks = self.curves.actions
        for behind, mark in zip(reversed(range(len(marks))), marks, strict=True):
            x = float(np.clip(self._x(mark.step), self.left, self.right))
            if mark.kind == "segment":
                self._path("grey", _line([x, x], [self.top, self.bottom]), width=1.0, dash="2 3")
            else:
                self._path("text", _box(x - half, self.bottom - 2 * half, x + half, self.bottom), fill=True)
            if font and behind < LABELLED and not self.size.narrow:
                y = self.bottom - (1.0 + 1.15 * behind) * font
                words = truncate(mark.text, 40)
                right = x + WORD * font * len(words) < self.size.width
                anchor: TextAnchor = "start" if right else "end"
                place = x + 1.5 * half if right else x - 1.5 * half
                self._text(place, y, words, "text", 0.85, anchor=anchor)

    def _ends(self) -> None:
        """Both numbers at the end of their curves, pushed apart where they would lie upon each other."""
        curves, font = self.curves, self.size.font
        ends: list[tuple[float, str, str, PictureColour]] = []
        for points, place, what, values in (
            (curves.proxy, self._proxy_y, "reward", curves.proxy_ends),
            (curves.gold, self._gold_y, "gold", curves.gold_ends),
        ):
            if points and np.isfinite(values[1]):
                y = float(place(values[1]))
                ends.append((y, f"{what} {_short(values[1])}", f"was {_short(values[0])}", _ROLES[what]))
            elif what == "gold":
                ends.append((self.top + 0.55 * (self.bottom - self.top), "gold ?", "", "blind"))
        ends.sort()
        apart = 2.7 * font
        for place_, (y, _, _, _) in enumerate(ends):
            lowest = self.bottom - 1.7 * font - apart * (len(ends) - 1 - place_)
            y = min(max(y, self.top + 0.4 * font), lowest)
            if place_:
                y = max(y, ends[place_ - 1][0] + apart)
            ends[place_] = (y, *ends[place_][1:])
        for y, now, start, colour in ends:
            self._text(self.right + 8, y + 0.35 * font, now, colour, 1.1, bold=True)
            if start:
                self._text(self.right + 8, y + 1.5 * font, start, "faint", 0.85)

    def _notes(self) -> None:
        for behind, line in enumerate(reversed(self.note_lines)):
            place = self.size.height - (0.4 + 1.25 * behind) * self.size.font
            self._text(self.left, place, line, "faint", 0.85, room=self.size.width - self.left)

    def _absence(self) -> None:
        """What is not there stands across the picture: an empty one must not look calm."""
        curves, font = self.curves, self.size.font
        if not curves.missing and (curves.proxy or curves.gold):
            return
        x, y = (self.left + self.right) / 2, (self.top + self.bottom) / 2
        words = curves.missing or "neither reward nor gold has a finite value"
        if not font:
            self._text(
                self.size.width / 2, self.size.height / 2 + 4, words, "blind", bold=True, anchor="middle", font=11.0
            )
            return
        lines = [curves.why_missing] if curves.why_missing else []
        if lines and WORD * 0.92 * font * len(lines[0]) > self.right - self.left:
            cut = lines[0].rfind(" ", 0, len(lines[0]) // 2 + 4)
            lines = [lines[0][:cut], lines[0][cut + 1 :]]
        half = max([0.5 * BOLD * 1.4 * font * len(words), *(0.5 * WORD * font * len(line) for line in lines)]) + 6
        below = y + (0.8 + 1.35 * len(lines)) * font
        self._path("ground", _box(x - half, y - 1.7 * font, x + half, below), fill=True, opacity=0.85)
        self._text(x, y, words, "blind", 1.4, bold=True, anchor="middle", room=self.size.width)
        for place, line in enumerate(lines, 1):
            self._text(x, y + 1.35 * place * font, line, "blind", 0.92, anchor="middle")

    # -- shapes ----------------------------------------------------------------------------------------------------

    def _curve(
        self, points: CurvePoints, place: object, colour: PictureColour, width: float, opacity: float = 1.0
    ) -> None:
        assert callable(place)
        d = _line(self._x(points.steps), place(points.values))
        if d:
            self._path(colour, d, width=width, opacity=opacity)
        alone = np.isfinite(points.values)
        if alone.sum() == 1:
            x, y = (float(value[alone][0]) for value in (self._x(points.steps), place(points.values)))
            self._path(colour, _circle(x, y, 3.0), fill=True, opacity=opacity)

    def _band(self, points: CurvePoints, place: object, colour: PictureColour, opacity: float) -> None:
        assert callable(place)
        x, low, high = self._x(points.steps), place(points.low), place(points.high)
        finite = np.isfinite(low) & np.isfinite(high)
        for part in _runs(finite):
            self._path(colour, _area(x[part], high[part], low[part]), fill=True, opacity=opacity)

    def _path(
        self,
        colour: PictureColour,
        d: str,
        *,
        fill: bool = False,
        width: float = 1.0,
        opacity: float = 1.0,
        dash: str = "",
    ) -> None:
        if d:
            self.paths.append(
                PicturePath(
                    d=d,
                    colour=colour,
                    fill=fill or UNSET,
                    width=UNSET if fill else width,
                    opacity=UNSET if opacity == 1.0 else opacity,
                    dash=dash or UNSET,
                )
            )

    def _text(
        self,
        x: float,
        y: float,
        text: str,
        colour: PictureColour,
        scale: float = 1.0,
        *,
        bold: bool = False,
        anchor: TextAnchor = "start",
        room: float | None = None,
        font: float = 0.0,
    ) -> None:
        size = font or scale * self.size.font
        if not size:
            return
        if room is not None:
            text = truncate(text, max(4, int(room / ((BOLD if bold else WORD) * size))))
        self.words.append(
            PictureText(
                x=round(x, 1),
                y=round(y, 1),
                text=log_line(text, 300),
                colour=colour,
                size=round(size, 1),
                bold=bold or UNSET,
                anchor=UNSET if anchor == "start" else anchor,
            )
        )


_ROLES: dict[str, PictureColour] = {"reward": "proxy", "gold": "gold"}


def _short(value: float) -> str:
    """A number for people: two decimals below ten.

    >>> _short(1.0491733333333335), _short(-0.004), _short(1234.5)
    ('1.05', '0.00', '1.23e+03')
    """
    return f"{value if abs(value) >= 0.005 else 0.0:.2f}" if abs(value) < 100 else f"{value:.3g}"


def _in_unit(bounds: Iterable[Floats]) -> bool:
    values = np.concatenate([np.empty(0), *bounds])
    values = values[np.isfinite(values)]
    return bool(len(values)) and bool(values.min() >= 0.0) and bool(values.max() <= 1.0)


def _limits(bounds: list[Floats], *, unit: bool) -> tuple[float, float]:
    """The range of an axis: 0 to 1 for values that lie in it, else theirs with some air."""
    if unit and _in_unit(bounds):
        return 0.0, 1.0
    values = np.concatenate([np.empty(0), *bounds])
    values = values[np.isfinite(values)]
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    if not np.isfinite(high - low):  # numbers at the end of what a float holds
        return low / 2 - 1.0, high / 2 + 1.0
    air = 0.06 * (high - low) or max(abs(low), 1.0) / 2
    return low - air, high + air


def _ticks(low: float, high: float, most: int, *, whole: bool = False) -> list[float]:
    """Round numbers from low to high.

    >>> _ticks(0.0, 1.0, 5), _ticks(0, 83, 7, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 20.0, 40.0, 60.0, 80.0])
    """
    span = high - low
    if not span > 0:
        return [float(low)]
    size = 10.0 ** np.floor(np.log10(span / most))
    for factor in (1.0, 2.0, 2.5, 5.0, 10.0, 20.0):
        step = size * factor
        if span / step <= most and (not whole or step == int(step)):
            break
    first = int(np.ceil(low / step - 1e-9))
    count = min(int((high - first * step) / step + 1e-9), most)
    return [round(float((first + place) * step), 12) + 0.0 for place in range(count + 1)]


def _line(x: Iterable[float], y: Iterable[float]) -> str:
    """Points joined by lines; a value that is not finite interrupts them.

    >>> _line([0, 1, 2, 3, 4], [1, 2, float("nan"), 3, 4])
    'M0,1L1,2M3,3L4,4'
    """
    parts, begun = [], False
    for across, down in zip(x, y, strict=True):
        if np.isfinite(down) and np.isfinite(across):
            parts.append(f"{'L' if begun else 'M'}{_n(across)},{_n(down)}")
            begun = True
        else:
            begun = False
    return "".join(parts)


def _area(x: Floats, upper: Floats, lower: Floats) -> str:
    ring = _line(np.concatenate([x, x[::-1]]), np.concatenate([upper, lower[::-1]]))
    return f"{ring}Z" if ring else ""


def _box(left: float, top: float, right: float, bottom: float) -> str:
    return f"{_line([left, right, right, left], [top, top, bottom, bottom])}Z"


def _triangle(x: float, y: float, half: float) -> str:
    return f"{_line([x, x + half, x - half], [y - half, y + half, y + half])}Z"


def _circle(x: float, y: float, radius: float) -> str:
    around = np.linspace(0.0, 2.0 * np.pi, 20, endpoint=False)
    return f"{_line(x + radius * np.cos(around), y + radius * np.sin(around))}Z"


def _runs(there: np.ndarray) -> list[slice]:
    """Stretches of what is there.

    >>> _runs(np.array([True, True, False, True]))
    [slice(0, 2, None), slice(3, 4, None)]
    """
    edges = np.flatnonzero(np.diff(np.concatenate([[0], there.astype(int), [0]])))
    return [slice(int(first), int(end)) for first, end in zip(edges[::2], edges[1::2], strict=True)]


def _n(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
