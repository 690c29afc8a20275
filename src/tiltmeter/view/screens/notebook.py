"""A run as a Jupyter notebook shows it: plain text; and as static HTML the verdict, the picture, and a few readings."""

from __future__ import annotations

import base64
import html

import numpy as np

from tiltmeter.data.records import Floats
from tiltmeter.safety.safe_text import visible
from tiltmeter.verdict.list_entry import sparkline_values as stretches
from tiltmeter.verdict.message import describe_likelihood
from tiltmeter.verdict.states import STATES, State
from tiltmeter.view.screens.picture.curves import read_curves
from tiltmeter.view.screens.picture.layout import PictureSize, draw_run
from tiltmeter.view.screens.picture.svg import render_svg
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary

#: Readings that are shown, where they exist.
SHOWN_READINGS = ("policy.kl.k3", "length.mean", "policy.entropy")
WIDTH, HEIGHT, POINTS = 160, 24, 60
SIZE = PictureSize(860, 270, 12.5)


def mime_bundle(reader: RunReader) -> dict[str, str]:
    """The representations by MIME type. No script, no style sheet, nothing fetched; every text is escaped."""
    overview = summary(reader)
    lines = [
        f"{STATES[overview.state].icon} {overview.state}  {overview.name}  step {overview.step}",
        overview.sentence,
    ]
    lines += overview.agreement_and_level
    if overview.symptom:
        lines.append(overview.symptom)
    lines += [f"{describe_likelihood(row)} {row.failure}: {row.summary}" for row in overview.findings[:2]]
    if overview.advice is not None:
        lines.append(f"{overview.advice.word}: {overview.advice.why}")
    lines.append(f"{overview.gold.labels:,} labels of {overview.rows:,} completions; {overview.health.text}")
    return {"text/plain": "\n".join(map(visible, lines)), "text/html": _html(reader, overview.state, lines)}


def _html(reader: RunReader, state: State, lines: list[str]) -> str:
    first, *rest = (html.escape(visible(text)) for text in lines)
    rows = "".join(_row(reader, name) for name in SHOWN_READINGS if len(reader.columns.lineage_series(name).steps))
    rest_html = "".join(f"<div>{text}</div>" for text in rest)
    table = f"<table>{rows}</table>" if rows else ""
    # As an image it keeps its styles to itself, and a notebook that is not trusted shows it too.
    drawn = draw_run(read_curves(reader), SIZE)
    data = base64.b64encode(render_svg(drawn).encode()).decode()
    image = f'<img alt="{html.escape(drawn.sentence)}" src="data:image/svg+xml;base64,{data}">'
    return f'<div><b style="color:{STATES[state].colour.light}">{first}</b>{rest_html}<div>{image}</div>{table}</div>'


def _row(reader: RunReader, name: str) -> str:
    values = reader.columns.lineage_series(name).values
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ""
    cells = (html.escape(visible(name)), sparkline_svg(finite), f"{finite[0]:.4g}", f"{finite[-1]:.4g}")
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def sparkline_svg(values: Floats) -> str:
    """A line as inline SVG.

    >>> sparkline_svg(np.array([0.0, 1.0]))[:40]
    '<svg width="160" height="24" role="img" '
    """
    means = stretches(values, POINTS)
    low, value_range = float(means.min()), float(np.ptp(means)) or 1.0
    x = np.linspace(1.0, WIDTH - 1.0, len(means)) if len(means) > 1 else np.array([WIDTH / 2])
    y = HEIGHT - 2.0 - (means - low) / value_range * (HEIGHT - 4.0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    label = f"from {values[0]:.3g} to {values[-1]:.3g}"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"></polyline></svg>'
    )
