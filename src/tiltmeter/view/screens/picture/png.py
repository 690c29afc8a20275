"""The picture of a run as PNG, for chats and trackers that show no SVG.

Drawn by Pillow, which brings a font: a renderer of SVG takes the fonts of its machine, and a container without any
would leave out every word.
"""

from __future__ import annotations

import io
from typing import Any

from msgspec import UNSET

from tiltmeter.view.payloads.picture import PicturePath, PictureText, RunPicture
from tiltmeter.view.screens.picture.svg import COLOURS

SHARP = 3  # drawn so many times larger, then made smaller: lines get soft edges
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def render_png(picture: RunPicture, scale: float = 1.0) -> bytes:
    """The picture in its light colours. Raises `ModuleNotFoundError` without Pillow."""
    from PIL import Image, ImageDraw

    zoom = scale * SHARP
    large = Image.new("RGB", (round(picture.width * zoom), round(picture.height * zoom)), "white")
    pen = ImageDraw.Draw(large, "RGBA")
    for path in picture.paths:
        _draw_path(pen, path, zoom)
    for words in picture.words:
        _draw_text(pen, words, zoom)
    image = large.resize((round(picture.width * scale), round(picture.height * scale)), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    image.quantize(128).save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _draw_path(pen: Any, path: PicturePath, zoom: float) -> None:
    opacity = 1.0 if path.opacity is UNSET else path.opacity
    colour = f"{COLOURS[path.colour][0]}{round(255 * opacity):02x}"
    for part in path.d.split("M")[1:]:
        points = [tuple(zoom * float(n) for n in pair.split(",")) for pair in part.rstrip("Z").split("L")]
        if path.fill is not UNSET:
            pen.polygon(points, fill=colour)
            continue
        width = max(1, round(zoom * (1.0 if path.width is UNSET else path.width)))
        points = [*points, points[0]] if part.endswith("Z") else points
        if path.dash is UNSET:
            pen.line(points, colour, width, joint="curve")
            continue
        for dash in _dashes(points, [zoom * float(n) for n in path.dash.split()]):
            pen.line(dash, colour, width)


def _dashes(points: list[tuple[float, ...]], lengths: list[float]) -> list[list[tuple[float, float]]]:
    """Pieces of a straight line: Pillow draws no dashes.

    >>> _dashes([(0.0, 0.0), (0.0, 10.0)], [4.0, 3.0])
    [[(0.0, 0.0), (0.0, 4.0)], [(0.0, 7.0), (0.0, 10.0)]]
    """
    (x, y), (end_x, end_y) = points[0], points[-1]
    whole = max(((end_x - x) ** 2 + (end_y - y) ** 2) ** 0.5, 1e-9)
    pieces, at = [], 0.0
    while at < whole:
        share, until = at / whole, min(at + lengths[0], whole) / whole
        pieces.append(
            [(x + share * (end_x - x), y + share * (end_y - y)), (x + until * (end_x - x), y + until * (end_y - y))]
        )
        at += sum(lengths)
    return pieces


def _draw_text(pen: Any, words: PictureText, zoom: float) -> None:
    from PIL import ImageFont

    font = ImageFont.load_default(size=zoom * words.size)
    text = words.text.encode("ascii", "replace").decode()  # Pillow's own font has no other characters
    anchor = ANCHORS["start" if words.anchor is UNSET else words.anchor]
    colour = COLOURS[words.colour][0]
    bold = 0.0 if words.bold is UNSET else 0.02 * zoom * words.size
    pen.text((zoom * words.x, zoom * words.y), text, colour, font=font, anchor=anchor, stroke_width=bold)
