"""Renders the figures page from `benchmarks/results/*.json` while mkdocs builds. No figure is typed into a page.

A line `<!-- figures: NAME -->` becomes the table of `NAME.json`; `<!-- figures: others -->` the tables of all files
that no other line names. A file that is not there was not measured yet, and the page says so.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
#: What `benchmarks/record.py` adds to the figures: how they were made.
ORIGIN = ("command", "seed", "version", "revision", "python", "cpu", "cores", "load_1min")

_MARK = re.compile(r"^<!-- figures: ([a-z0-9_]+) -->$", re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    return rendered(markdown, RESULTS) if _MARK.search(markdown) else markdown


def rendered(markdown: str, results: Path) -> str:
    """The page with its tables filled in."""
    named = set(_MARK.findall(markdown)) - {"others"}

    def fill(mark: re.Match[str]) -> str:
        if mark[1] != "others":
            return table(results / f"{mark[1]}.json")
        rest = [path for path in sorted(results.glob("*.json")) if path.stem not in named]
        return "\n\n".join(f"### {path.stem}\n\n{table(path)}" for path in rest) or "None."

    return _MARK.sub(fill, markdown)


def table(path: Path) -> str:
    """One result as a Markdown table, with its origin below."""
    if not path.exists():
        return "*not measured yet*"
    try:
        result = json.loads(path.read_text())
        figures = {name: value for name, value in result.items() if name not in ORIGIN}
    except (ValueError, AttributeError):
        return "*the results file could not be read*"
    lines = ["| figure | value |", "|---|---|"]
    lines += [f"| `{name}` | {cell(value)} |" for name, value in figures.items()]
    origin = [f"{name.replace('_', ' ')} {cell(result[name])}" for name in ORIGIN[1:] if name in result]
    made = f"`{result['command']}`" if "command" in result else "unknown command"
    return "\n".join([*lines, "", f"Made by {made}: {'; '.join(origin)}."])


def cell(value: object) -> str:
    """A value as it may stand in a table cell."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value).replace("|", "\\|").replace("\n", " ")
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
