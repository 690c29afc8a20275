"""What shows an alarm in the trainer's own run: proxy and gold as one picture, and completions that show it."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

from tiltmeter.safety.safe_text import log_line, visible
from tiltmeter.view.payloads.plots import Line, ProxyGoldPanel
from tiltmeter.view.screens.exemplars import example_completions
from tiltmeter.view.screens.proxy_gold import truth_panel
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.series import StepRange
from tiltmeter.view.trackers.sink import Evidence

ROWS = 10
POINTS = 300  # of a line
SIZE, MARGIN, TOP = (720, 360), 64, 40  # pixels
INK, MARK = "#55606e", "#b42318"
COLOURS = {"proxy": "#1f5fa8", "gold": "#a86a00"}

log = logging.getLogger("tiltmeter")


def gather_evidence(reader: RunReader) -> Evidence:
    panel = truth_panel(reader, StepRange(), POINTS)
    alarms = reader.verdict.alarms
    return Evidence(
        max(reader.run_state.last_step, 0),
        log_line(panel.sentence, 500),
        draw_panel(panel, alarms[0].onset if alarms else None) if _can_draw() else b"",
        tuple((row.id, row.reward, row.gold, visible(row.text)) for row in example_completions(reader, ROWS)),
    )


@cache
def _can_draw() -> bool:
    if find_spec("PIL") is None:
        log.warning("no picture of proxy and gold for the trackers: pip install pillow")
        return False
    return True


def draw_panel(panel: ProxyGoldPanel, onset: int | None) -> bytes:
    """The reward on the left axis and gold on the right, as a PNG; nothing where there is nothing to draw."""
    if len(panel.steps) < 2:
        return b""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", SIZE, "white")
    pen = ImageDraw.Draw(image)
    width, height = SIZE[0] - 2 * MARGIN, SIZE[1] - MARGIN - TOP
    first, last = panel.steps[0], panel.steps[-1]

    def across(step: float) -> float:
        return MARGIN + width * (step - first) / max(last - first, 1)

    pen.rectangle((MARGIN, TOP, MARGIN + width, TOP + height), outline=INK)
    pen.text((MARGIN, TOP + height + 8), str(first), INK)
    pen.text((MARGIN + width - 24, TOP + height + 8), str(last), INK)
    pen.text((MARGIN + width / 2, TOP + height + 8), "step", INK)
    if onset is not None and first <= onset <= last:
        pen.line((across(onset), TOP, across(onset), TOP + height), MARK)
        pen.text((across(onset) + 4, TOP + height - 16), f"onset, step {onset}", MARK)
    for line in panel.lines:
        _draw_line(pen, line, [across(step) for step in panel.steps], height)
    stream = io.BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def _draw_line(pen: Any, line: Line, across: Sequence[float], height: int) -> None:
    drawn = [value for value in line.values if value is not None]
    if not drawn:
        return
    low, high = min(drawn), max(drawn)
    room = (high - low) or 1.0
    colour, left = COLOURS.get(line.role, INK), line.axis == "left"
    points = [
        (x, TOP + height - height * (value - low) / room)
        for x, value in zip(across, line.values, strict=True)
        if value is not None
    ]
    pen.line(points, colour, width=2)
    edge = 4 if left else SIZE[0] - MARGIN + 6
    pen.text((edge, TOP - 4), f"{high:.3g}", colour)
    pen.text((edge, TOP + height - 10), f"{low:.3g}", colour)
    # Pillow's own font has no other characters, and a gold source may be named by anybody.
    label = line.label.encode("ascii", "replace").decode()[:60]
    pen.text((MARGIN if left else SIZE[0] / 2, 12), label, colour)
