"""Renders pages while mkdocs builds: figures from `benchmarks/results/*.json`, instruments from their docstrings.

No figure is typed into a page.

A line `<!-- figures: NAME -->` becomes the table of `NAME.json`; `<!-- figures: others -->` the tables of all files
that no other line names. A file that is not there was not measured yet, and the page says so. A line
`<!-- instruments -->` becomes a table of contents and one section per built-in instrument, `<!-- derived -->` one per
derived reading, `<!-- semantic -->` the section of the instrument that needs a model.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
#: What `benchmarks/record.py` adds to the figures: how they were made.
ORIGIN = ("command", "seed", "version", "revision", "python", "cpu", "cores", "load_1min")

#: What a reading's first word is about, as a heading, where the word itself will not do. No heading may be the name of
#: an instrument: the two would have one anchor.
SUBJECTS = {
    "gold": "Proxy against gold",
    "policy": "Policy and KL",
    "engine": "Inference engine",
    "training": "Training health",
    "diversity": "Diversity of completions",
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
    from tiltmeter.instruments.semantic import SemanticDiversity

    class Semantic(SemanticDiversity):
        def embed(self, texts: Any) -> Any:
            return [[1.0]] * len(texts)

    measured = results / "instruments.json"
    cost = json.loads(measured.read_text()).get("us_per_token", {}) if measured.exists() else {}
    suffixes = suffixes_of([*(make() for make in instruments.BUILTIN), Semantic()])
    subjects: dict[str, list[Any]] = {}
    for part in (make() for make in instruments.BUILTIN):
        subjects.setdefault(part.name.split(".")[0], []).append(part)
    folds = [make() for make in derived.BUILTIN]
    contents, sections = ["| about | instruments |", "|---|---|"], []
    for subject, parts in subjects.items():
        title = SUBJECTS.get(subject, subject.capitalize())
        contents.append(f"| {title} | {linked(parts)} |")
        sections += [f"## {title}", *(section(part, suffixes[part.name], cost.get(part.name)) for part in parts)]
    contents.append(f"| Folded over steps | {linked(folds)} |")
    for mark, filled in (
        ("instruments", ["\n".join(contents), *sections]),
        ("derived", [section(part) for part in folds]),
        ("semantic", [section(Semantic(), suffixes[Semantic.name])]),
    ):
        markdown = markdown.replace(f"<!-- {mark} -->", "\n\n".join(filled))
    return markdown


def linked(parts: list[Any]) -> str:
    """Their names, each with a link to its section."""
    return ", ".join(f"[`{part.name}`](#{part.name.replace('.', '')})" for part in parts)


def suffixes_of(parts: list[Any]) -> dict[str, list[str]]:
    """By instrument: what its readings are called after its own name, found by measuring a batch that has everything.
    Those that are named after the user's reward functions are one, NAME."""
    from tiltmeter.baseline import Baseline
    from tiltmeter.instruments.training import SCALARS
    from tiltmeter.panel import specimen

    batch = dataclasses.replace(specimen(), scalars=dict.fromkeys(SCALARS, 1.0))
    baseline = Baseline(batch)
    found = {part.name: part.measure(batch, baseline) for part in parts}
    return {
        name: [] if not isinstance(values, dict) else ["NAME"] if set(values) == set(batch.rewards) else list(values)
        for name, values in found.items()
    }


def section(part: Any, suffixes: list[str] | None = None, cost: float | None = None) -> str:
    """What an instrument's docstring and facts say, as Markdown."""
    told = docstring(part)
    if hasattr(part, "grain"):
        low, high = part.bounds
        facts = [
            {"rollout": "per completion", "group": "per prompt group", "batch": "per step"}[part.grain],
            "" if low is None else f"{low:g} or more" if high is None else f"{low:g} to {high:g}",
            f"needs {listed(part.needs)}",
            "compared with the baseline" if getattr(part, "compares", False) else "",
            "" if cost is None else f"{1000 * cost:,.3g} ns per token",
        ]
    else:
        settings = [f"{field.name} {field.default:g}" for field in dataclasses.fields(part) if field.init]
        facts = [f"folds {listed(part.watches)}", *settings]
    names = f"Readings: {listed([f'{part.name}.{suffix}' for suffix in suffixes])}" if suffixes else ""
    if suffixes == ["NAME"]:
        names += " for each reward function"
    # Two spaces at the end of a line break it.
    whence = "  \n".join(f"{name}: {told[name]}" for name in ("Formula", "Source") if name in told)
    small = [f"<small>{text}</small>" for text in (" · ".join(filter(None, facts)), whence)]
    whole = [f"### `{part.name}`", small[0], told["what"], told["why"], names, small[1]]
    return "\n\n".join(filter(None, whole))


def listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def docstring(part: Any) -> dict[str, str]:
    """A part's docstring taken apart: what it measures, why it matters, `Formula:` and `Source:`."""
    text = (inspect.getdoc(type(part)) or "").split(">>>")[0]
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
