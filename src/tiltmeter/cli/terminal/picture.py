"""The picture of a run in a terminal: its two curves in braille dots, and its flags in words below."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np
from msgspec import UNSET
from rich.text import Text

from tiltmeter.safety.safe_text import terminal
from tiltmeter.verdict.states import TONES
from tiltmeter.view.screens.picture.curves import PictureCurves, caption
from tiltmeter.view.screens.picture.layout import PictureSize, draw_run

COLOURS = {"proxy": "blue", "gold": "yellow"} | {
    tone: TONES[tone].terminal.removeprefix("bold ") for tone in ("act", "watch", "ok")
}
#: By row and column of a cell, the bit of its dot.
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def picture_lines(curves: PictureCurves, columns: int = 60, rows: int = 7) -> list[Text]:
    """The picture in so many lines, and one or two of words."""
    lines = _dot_lines(curves, columns, rows) if curves.proxy or curves.gold else []
    return [*lines, *(terminal(line, 400) for line in caption(curves))]


def _dot_lines(curves: PictureCurves, columns: int, rows: int) -> list[Text]:
    picture = draw_run(curves, PictureSize(2 * columns, 4 * rows, 0.0))
    cells = np.zeros((rows, columns), np.int64)
    colours = np.full((rows, columns), "", object)
    for path in picture.paths:
        if path.fill is not UNSET or path.colour not in COLOURS:
            continue
        for part in path.d.split("M")[1:]:
            points = [tuple(float(n) for n in pair.split(",")) for pair in part.rstrip("Z").split("L")]
            for (x, y), (end_x, end_y) in pairwise(points):
                count = ceil(max(abs(end_x - x), abs(end_y - y), 1.0))
                for share in np.linspace(0.0, 1.0, count + 1):
                    _mark(cells, colours, x + share * (end_x - x), y + share * (end_y - y), COLOURS[path.colour])
    return [
        Text.assemble(*((chr(0x2800 + int(dots)), str(colour)) for dots, colour in zip(*row, strict=True)))
        for row in zip(cells, colours, strict=True)
    ]


def _mark(cells: np.ndarray, colours: np.ndarray, x: float, y: float, colour: str) -> None:
    across, down = min(int(x), 2 * cells.shape[1] - 1), min(int(y), 4 * cells.shape[0] - 1)
    cells[down // 4, across // 2] |= DOTS[down % 4][across % 2]
    colours[down // 4, across // 2] = colour
