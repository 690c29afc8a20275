"""Renders pages while mkdocs builds: figures from `benchmarks/results/*.json`, instruments from their docstrings.

No figure is typed into a page.

A line `<!-- figures: NAME -->` becomes the table of `NAME.json`; `<!-- figures: others -->` the tables of all files
that no other line names. A file that is not there was not measured yet, and the page says so. A line
`<!-- instruments -->` becomes one section per built-in instrument, `<!-- derived -->` one per derived reading.
"""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
#: What `benchmarks/record.py` adds to the figures: how they were made.
ORIGIN = ("command", "seed", "version", "revision", "python", "cpu", "cores", "load_1min")

#: What a reading's first word is about, as a heading.
SUBJECTS = {
    "reward": "Reward",
    "gold": "Proxy against gold",
    "length": "Length",
    "policy": "The leash and the policy",
    "engine": "The inference engine",
    "training": "Training health",
    "diversity": "Diversity",
    "text": "Text",
    "group": "Groups",
}

_MARK = re.compile(r"^<!-- figures: ([a-z0-9_]+) -->$", re.M)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    if "<!-- instruments -->" in markdown:
        markdown = instruments_page(markdown, RESULTS)
    return rendered(markdown, RESULTS) if _MARK.search(markdown) else markdown


def rendered(markdown: str, results: Path) -> str:
    """The page with its tables filled in."""
    named = set(_MARK.findall(markdown)) - {"others"}

    def fill(mark: re.Match[str]) -> str:
        if mark[1] != "others":
            return table(results / f"{mark[1]}.json")
        # phrases.json has a page of its own, which its benchmark writes.
        rest = [path for path in sorted(results.glob("*.json")) if path.stem not in {*named, "phrases"}]
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
    for name, value in figures.items():
        parts = {f"{name}.{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        lines += [f"| `{key}` | {cell(part)} |" for key, part in parts.items()]
    origin = [f"{name.replace('_', ' ')} {cell(result[name])}" for name in ORIGIN[1:] if name in result]
    made = f"`{result['command']}`" if "command" in result else "unknown command"
    return "\n".join([*lines, "", f"Made by {made}: {'; '.join(origin)}."])


def instruments_page(markdown: str, results: Path) -> str:
    """The page with a section per built-in instrument and derived reading, costs from the benchmark's result."""
    from tiltmeter import derived, instruments

    measured = results / "instruments.json"
    cost = json.loads(measured.read_text()).get("us_per_token", {}) if measured.exists() else {}
    sections: list[str] = []
    for part in (make() for make in instruments.BUILTIN):
        subject = part.name.split(".")[0]
        title = f"## {SUBJECTS[subject]}"
        # Grouped by subject, in the order of the tuple.
        sections += [*([] if title in sections else [title]), section(part, cost.get(part.name))]
    folds = [section(make(), None) for make in derived.BUILTIN]
    page = markdown.replace("<!-- instruments -->", "\n\n".join(sections))
    return page.replace("<!-- derived -->", "\n\n".join(folds))


def section(part: Any, cost: float | None) -> str:
    """What an instrument's docstring and facts say, as Markdown."""
    told = docstring(part)
    facts = [("formula", told.get("Formula", "")), ("source", told.get("Source", ""))]
    if hasattr(part, "grain"):
        low, high = part.bounds
        facts += [
            ("one value per", {"rollout": "completion", "group": "prompt group", "batch": "step"}[part.grain]),
            ("range", f"{'-∞' if low is None else f'{low:g}'} to {'∞' if high is None else f'{high:g}'}"),
            ("needs", ", ".join(f"`{column}`" for column in part.needs)),
            ("compared with", "the reference policy, or the run's first steps" if getattr(part, "compares", 0) else ""),
            ("cost", "not measured yet" if cost is None else f"{1000 * cost:,.3g} ns per token"),
        ]
    else:
        facts += [("folds", ", ".join(f"`{name}`" for name in part.watches))]
    rows = [f"| {name} | {cell(text)} |" for name, text in facts if text]
    return "\n".join([f"### `{part.name}`", "", told["what"], "", told["why"], "", "| | |", "|---|---|", *rows])


def docstring(part: Any) -> dict[str, str]:
    """A part's docstring taken apart: what it measures, why it matters, `Formula:` and `Source:`."""
    text = inspect.cleandoc(type(part).__doc__ or "").split(">>>")[0]
    told: dict[str, str] = {}
    for line in re.split(r"\n(?=Formula: |Source: |\n)", text):
        name, found, rest = line.strip().partition(": ")
        if found and name in ("Formula", "Source"):
            told[name] = " ".join(rest.split())
        elif line.strip():
            key = "why" if "what" in told else "what"
            told[key] = "\n\n".join(filter(None, (told.get(key, ""), " ".join(line.split()))))
    return {"what": "", "why": "", **told}


def cell(value: object) -> str:
    """A value as it may stand in a table cell."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value).replace("|", "\\|").replace("\n", " ")
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
