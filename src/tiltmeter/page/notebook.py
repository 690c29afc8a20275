"""A run as a notebook shows it: plain text, and a small static table with sparklines that survives any viewer."""

from __future__ import annotations

import html

import numpy as np

from tiltmeter.encode import visible
from tiltmeter.page.book import Book
from tiltmeter.page.readings import spark as stretches
from tiltmeter.page.summary import summary
from tiltmeter.records import Floats
from tiltmeter.verdict import ICONS

#: Readings worth a line, where they exist.
SHOWN = ("reward.mean", "gold.mean", "gold.level", "policy.kl.k3", "length.mean", "policy.entropy")
WIDTH, HEIGHT, POINTS = 160, 24, 60
COLOURS = {"ACT": "#b42318", "STALE": "#55606e", "BLIND": "#6b3fa0", "WATCH": "#8a5300", "OK": "#14693a"}


def bundle(book: Book) -> dict[str, str]:
    """The representations by MIME type. No script, no style sheet, nothing fetched; every text is escaped."""
    told = summary(book)
    heads = [f"{ICONS[told['state']]} {told['state']}  {told['name']}  step {told['step']}", told["sentence"]]
    if told["symptom"]:
        heads.append(told["symptom"])
    surest = told["findings"][:2]
    heads += [f"{found['failure']} ({found['confidence']:.0%} sure): {found['summary']}" for found in surest]
    if told["advice"] is not None:
        heads.append(f"{told['advice']['word']}: {told['advice']['why']}")
    heads.append(f"{told['gold']['labels']:,} labels of {told['rows']:,} completions; {told['health']['text']}")
    return {"text/plain": "\n".join(map(visible, heads)), "text/html": _html(book, told["state"], heads)}


def _html(book: Book, state: str, heads: list[str]) -> str:
    first, *rest = (html.escape(visible(line)) for line in heads)
    rows = "".join(_row(book, name) for name in SHOWN if len(book.columns.line(name).steps))
    lines = "".join(f"<div>{line}</div>" for line in rest)
    table = f"<table>{rows}</table>" if rows else ""
    return f'<div><b style="color:{COLOURS[state]}">{first}</b>{lines}{table}</div>'


def _row(book: Book, name: str) -> str:
    values = book.columns.line(name).values
    known = values[np.isfinite(values)]
    if not len(known):
        return ""
    cells = (html.escape(visible(name)), spark(known), f"{known[0]:.4g}", f"{known[-1]:.4g}")
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


def spark(values: Floats) -> str:
    """A line as inline SVG.

    >>> spark(np.array([0.0, 1.0]))[:40]
    '<svg width="160" height="24" role="img" '
    """
    means = stretches(values, POINTS)
    low, spread = float(means.min()), float(np.ptp(means)) or 1.0
    x = np.linspace(1.0, WIDTH - 1.0, len(means)) if len(means) > 1 else np.array([WIDTH / 2])
    y = HEIGHT - 2.0 - (means - low) / spread * (HEIGHT - 4.0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    said = f"from {values[0]:.3g} to {values[-1]:.3g}"
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{said}">'
        f'<polyline points="{points}" fill="none" stroke="currentColor" stroke-width="1.5"></polyline></svg>'
    )
