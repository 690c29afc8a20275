"""What shows an alarm in the trainer's own run: proxy and gold as one picture, and completions that show it."""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec

from tiltmeter.safety.safe_text import log_line, visible
from tiltmeter.view.screens.exemplars import example_completions
from tiltmeter.view.screens.picture.curves import read_curves
from tiltmeter.view.screens.picture.layout import draw_run
from tiltmeter.view.screens.picture.png import render_png
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.trackers.sink import Evidence

ROWS = 10

log = logging.getLogger("tiltmeter")


def gather_evidence(reader: RunReader) -> Evidence:
    picture = draw_run(read_curves(reader))
    return Evidence(
        max(reader.run_facts.last_step, 0),
        log_line(picture.sentence, 500),
        render_png(picture) if can_draw() and reader.run_facts.steps else b"",
        tuple((row.id, row.reward, row.gold, visible(row.text)) for row in example_completions(reader, ROWS)),
    )


@cache
def can_draw() -> bool:
    if find_spec("PIL") is None:
        log.warning("no picture of proxy and gold for the trackers: pip install pillow")
        return False
    return True
