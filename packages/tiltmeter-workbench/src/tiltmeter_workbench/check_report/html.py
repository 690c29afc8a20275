"""A report as one HTML file: no script, no network requests, all text escaped by the template."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined, Template

from tiltmeter.safety.safe_text import visible
from tiltmeter.view.shell.shell import render_shell, shell_style
from tiltmeter.view.without_secrets import without_secrets
from tiltmeter_workbench.check_report.report import Check, Report, Tone
from tiltmeter_workbench.check_report.tables import cell, is_numeric, titles
from tiltmeter_workbench.version import __version__

ROWS, EXAMPLES = 25, 4  # of one check
MOST_PARTS = 40  # of the table of contents, of checks with details
WIDTH, HEIGHT = 220, 20  # pixels of a bar
#: A tone in the colours of the run's states, so that red means the same on every page.
STATES: Mapping[Tone, str] = {"bad": "act", "good": "ok", "doubt": "watch", "plain": "stale", "faint": "stale"}


def render_html(report: Report) -> str:
    """The whole file, in the shell that all reports share."""
    report = without_secrets(report)
    style = shell_style() + (files(__package__) / "report.css").read_text("utf-8")
    about = f"Report of tiltmeter {__version__}"
    body = _template().render(report=report, anchors=_anchors(report), about=about)
    return render_shell(f"{shorten(report.label)} - {shorten(report.title)}", body, style)


def shorten(value: str, limit: int = 400) -> str:
    """Untrusted text in readable characters, cut where it is too long; the template escapes it.

    >>> shorten("<b>\\x1b"), shorten("abcdef", 4)
    ('<b>\\\\u{1b}', 'abcd… (+2)')
    """
    output = visible(value)
    return output if len(output) <= limit else f"{output[:limit]}… (+{len(output) - limit})"


@cache
def _template() -> Template:
    # A name that is missing is an error, not an empty place in a report.
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"shorten": shorten, "cell": cell, "plain_facts": _plain_facts, "draw": _draw}
    environment.globals |= {"titles": titles, "is_numeric": is_numeric, "most_rows": ROWS, "most_examples": EXAMPLES}
    environment.globals |= {"width": WIDTH, "height": HEIGHT, "contents": _contents, "states": STATES}
    return environment.from_string((files(__package__) / "report.html.j2").read_text("utf-8"))


def _anchors(report: Report) -> dict[str, str]:
    """An HTML id for each check with details: its name, where any character that is not ASCII alphanumeric is `-`."""
    anchors: dict[str, str] = {}
    for check in report.checks:
        if check.has_details:
            name = "".join(char if char.isascii() and char.isalnum() else "-" for char in check.name)
            anchors[check.name] = f"{name}-{len(anchors)}" if name in anchors.values() else name
    return anchors


def _contents(report: Report, anchors: Mapping[str, str]) -> list[tuple[str, str]]:
    """The parts of a report in their order, each by its HTML id."""
    groups = [group for group in report.groups if group.checks]
    parts = [(f"group-{at}", group.title) for at, group in enumerate(groups, 1)]
    parts += [("to-do", "What to do")] if report.fixes else []
    parts += [(anchors[check.name], check.heading) for check in report.checks if check.has_details][:MOST_PARTS]
    return parts + [(f"list-{at}", title) for at, (title, lines) in enumerate(report.lists.items(), 1) if lines]


def _draw(check: Check) -> dict[str, Any] | None:
    """The interval's places in pixels; None where there is nothing to draw."""
    axis = check.axis
    if axis is None or not math.isfinite(check.estimate):
        return None

    def at(value: float) -> float:
        return round(WIDTH * axis.share(value), 1)

    low, high = check.drawn_ends()
    left, right = sorted((at(axis.zero), at(check.estimate)))
    return {
        "zero": at(axis.zero),
        "limits": [at(limit) for limit in axis.limits],
        "left": left,
        "width": round(right - left, 1),
        "low": at(low),
        "high": at(high),
    }


def _plain_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Plain figures; what is a table or a list inside them is for --json."""
    return {name: value for name, value in facts.items() if not isinstance(value, Mapping) and not _is_table(value)}


def _is_table(value: object) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(each, (Mapping, list, tuple)) for each in value)
