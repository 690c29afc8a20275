"""Build a report as one self-contained HTML file: no scripts, no network requests, model text escaped."""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping, Sequence
from importlib.resources import files

from tiltmeter.safety.safe_text import visible
from tiltmeter.view.check_report.tables import Rows, cell, is_numeric, titles

EXAMPLE_CHARACTERS = 400  # characters of an example
ROWS, CELL, ANSWER = 25, 120, 700  # rows of a table; characters of its cells, and of an answer
WIDTH, HEIGHT = 220, 20  # pixels of a bar
#: The style of a report that is a table of checks with the details of each below it.
CHECKS = "common/checks.css"


def html_page(title: str, body: str, *more: str) -> str:
    """The complete HTML file. `more` are style sheets of the package beside the common one: "probe/scorecard.css".

    The content security policy allows this style by its hash and nothing else: even unescaped text could neither run
    nor load anything.
    """
    style = "".join((files("tiltmeter.workbench") / name).read_text("utf-8") for name in ("common/sheet.css", *more))
    mark = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{mark}'; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{text(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def text(value: str, limit: int = EXAMPLE_CHARACTERS) -> str:
    """Untrusted text, escaped and shortened for the page.

    >>> text("<b>\\x1b")
    '&lt;b&gt;\\\\u{1b}'
    """
    output = visible(value)
    return html.escape(output if len(output) <= limit else f"{output[:limit]}… (+{len(output) - limit})")


def list_section(title: str, lines: Sequence[str], tag: str = "ul", limit: int = EXAMPLE_CHARACTERS) -> str:
    """A section with a list of lines; empty if there are none."""
    if not lines:
        return ""
    items = "".join(f"<li>{text(line, limit)}</li>" for line in lines)
    return f"<section><h2>{text(title)}</h2><{tag}>{items}</{tag}></section>"


def scroll_region(table: str, name: str) -> str:
    """A scrollable region for a wide table, usable by keyboard. `table` is trusted HTML."""
    return f'<div class="wide" role="region" tabindex="0" aria-label="{text(name)}">{table}</div>'


def rows_table(name: str, rows: Rows) -> str:
    """The small table of a check; nothing where it has none."""
    if not rows:
        return ""
    names = titles(rows)
    kinds = {each: ' class="number"' if is_numeric(rows, each) else "" for each in names}
    head = "".join(f"<th{kinds[each]}>{text(each.replace('_', ' '))}</th>" for each in names)
    body = "".join(
        f"<tr>{''.join(f'<td{kinds[each]}>{text(cell(row.get(each)), CELL)}</td>' for each in names)}</tr>"
        for row in rows[:ROWS]
    )
    more = f'<p class="small">More rows in --json: {len(rows) - ROWS}.</p>' if len(rows) > ROWS else ""
    size = "narrow" if len(names) < 5 else "full"
    return (
        scroll_region(f'<table class="{size}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>', name) + more
    )


def two_answers(title: str, prompt: str, answers: Mapping[str, str]) -> str:
    """A prompt with two answers side by side, each under its name."""
    sides = "".join(f"<div><h4>{name}</h4><p>{text(answer, ANSWER)}</p></div>" for name, answer in answers.items())
    return (
        f'<article><h3>{text(title)}</h3><p class="prompt">{text(prompt, ANSWER)}</p>'
        f'<div class="sides">{sides}</div></article>'
    )


def anchor(name: str) -> str:
    """A check's name as an HTML id: any character that is not ASCII alphanumeric becomes `-`."""
    return "".join(char if char.isascii() and char.isalnum() else "-" for char in name)


def bar(
    mean: float, low: float, high: float, *, ends: tuple[float, float], zero: float, limits: Sequence[float], kind: str,
    label: str,
) -> str:  # fmt: skip
    """An interval on a line from one of `ends` to the other, with its zero and the limits beyond which it counts."""

    def at(value: float) -> float:
        return round(WIDTH * max(0.0, min(1.0, (value - ends[0]) / (ends[1] - ends[0]))), 1)

    left, width = min(at(zero), at(mean)), abs(at(mean) - at(zero))
    edges = "".join(f'<line class="limit" x1="{at(x)}" x2="{at(x)}" y1="0" y2="{HEIGHT}"/>' for x in limits)
    return (
        f'<svg class="{kind}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{text(label)}">'
        f'<line class="zero" x1="{at(zero)}" x2="{at(zero)}" y1="0" y2="{HEIGHT}"/>{edges}'
        f'<rect x="{left}" y="5" width="{width:.1f}" height="{HEIGHT // 2}" rx="2"/>'
        f'<line class="reach" x1="{at(low)}" x2="{at(high)}" y1="{HEIGHT // 2}" y2="{HEIGHT // 2}"/></svg>'
    )
