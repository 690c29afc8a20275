"""Renders pages while mkdocs builds: figures from `benchmarks/results/*.json`, instruments from their docstrings.

No figure is typed into a page.

A line `<!-- figures: NAME -->` becomes the table of `STAGE_NAME.json`; `<!-- figures: others -->` the tables of all
files that no other line names; `<!-- figure: NAME KEY -->`, anywhere in a line, one figure of it, or on a line of its
own the table of records that it is. A file that is not there was not measured yet: the page says so, and a strict build
fails. A line `<!-- instruments -->` becomes a table of contents and one section per built-in instrument,
`<!-- derived -->` one per derived reading, `<!-- semantic -->` the section of the instrument that needs a model.

`<!-- lab: CAMPAIGN TABLE -->` becomes a table of a recorded campaign of the proving ground, or one of its plots, and
`<!-- lab: CAMPAIGN =FIGURE -->`, anywhere in a line, one figure of it. `<!-- lab families -->` and
`<!-- lab baselines -->` list what the package has.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from shown import PENDING, RESULTS, measured

#: Results that are shown on pages of their own.
ELSEWHERE = {
    *("phrases", "real_logs", "required_nulls", "variants", "warnings", "tails", "controls"),
    *("tiny_watched", "real_model", "dashboard", "hardening", "audit", "probe", "probe_samples"),
    *("sandbox", "audit_scale", "real_audits", "before", "defences", "constitution", "soft"),
    *("compare", "pipeline"),
}
#: What `benchmarks/record.py` adds to the figures: how they were made.
ORIGIN = ("command", "seed", "version", "revision", "python", "cpu", "cores", "load_1min")

#: What a reading's first word is about, as a heading, where the word itself will not do. No heading may be the name of
#: an instrument: the two would have one anchor.
SUBJECTS = {
    "gold": "Proxy against gold",
    "policy": "Policy and KL",
    "engine": "Inference engine",
    "training": "Training health",
    "verifier": "The verifier itself",
    "diversity": "Diversity of completions",
    "group": "Groups",
}

GRAINS = {"rollout": "per completion", "group": "per prompt group", "batch": "per step", "item": "per item counted"}

_MARK = re.compile(r"^<!-- figures: ([a-z0-9_]+) -->$", re.M)
_FIGURE = re.compile(r"<!-- figure: ([a-z0-9_]+) ([a-z0-9_.]+) -->")
_LAB = re.compile(r"<!-- lab: ([a-z_]+) (=?[a-z0-9_.]+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    if "<!-- instruments -->" in markdown:
        markdown = instruments_page(markdown, RESULTS)
    if "<!-- lab" in markdown:
        markdown = lab_page(markdown)
    markdown = _FIGURE.sub(lambda mark: one_figure(RESULTS / f"{mark[1]}.json", mark[2]), markdown)
    return rendered(markdown, RESULTS) if _MARK.search(markdown) else markdown


def one_figure(path: Path, name: str) -> str:
    """One figure by its name, those inside others after a dot."""
    found = measured(path)
    if found is None:
        return PENDING
    value = dict(walked(found))[name]
    return rows_table(value) if is_rows(value) else cell(value)


def rendered(markdown: str, results: Path) -> str:
    """The page with its tables filled in."""
    named = set(_MARK.findall(markdown)) - {"others"}

    def fill(mark: re.Match[str]) -> str:
        if mark[1] != "others":
            return table(results / f"{mark[1]}.json")
        rest = [path for path in sorted(results.glob("*.json")) if path.stem not in {*named, *ELSEWHERE}]
        return "\n\n".join(f"### {path.stem}\n\n{table(path)}" for path in rest) or "None."

    return _MARK.sub(fill, markdown)


def table(path: Path) -> str:
    """One result as a Markdown table, with its origin below; what is a list of records is a table of its own."""
    try:
        result = measured(path)
        if result is None:
            return PENDING
        if isinstance(result, list):
            return rows_table(result)
        found = list(walked({name: value for name, value in result.items() if name not in ORIGIN}))
    except (ValueError, AttributeError):
        return "*the results file could not be read*"
    lines = ["| figure | value |", "|---|---|"]
    lines += [f"| `{name}` | {cell(value)} |" for name, value in found if not is_rows(value) and not is_series(value)]
    origin = [f"{name.replace('_', ' ')} {cell(result[name])}" for name in ORIGIN[1:] if name in result]
    made = f"`{result['command']}`" if "command" in result else "unknown command"
    tables = ["\n".join(lines)] if len(lines) > 2 else []
    tables += [f"`{name}`:\n\n{rows_table(value)}" for name, value in found if is_rows(value)]
    return "\n\n".join([*tables, f"Made by {made}: {'; '.join(origin)}."])


def walked(figures: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Every figure with its full name, those inside others after a dot."""
    for name, value in figures.items():
        if isinstance(value, dict):
            yield from walked(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, dict) for row in value)


def is_series(value: object) -> bool:
    """What was measured again and again; the file has it, and a table has no room for it."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, (int, float)) for one in value)


def rows_table(rows: list[Any]) -> str:
    """Records as one table; a column for everything that any of them has."""
    if not is_rows(rows):
        return "*the results file could not be read*" if rows else PENDING
    flat = [dict(walked(row)) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    lines = ["| " + " | ".join(name.replace("_", " ") for name in names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(cell(row.get(name, "")) for name in names) + " |" for row in flat]
    return "\n".join(lines)


def lab_page(markdown: str) -> str:
    """The page with tables, figures and plots of recorded campaigns."""
    markdown = _LAB.sub(lambda mark: lab(mark[1], mark[2]), markdown)
    for mark, filled in (("families", families), ("baselines", baselines)):
        if f"<!-- lab {mark} -->" in markdown:
            markdown = markdown.replace(f"<!-- lab {mark} -->", filled())
    return markdown


def lab(name: str, what: str) -> str:
    """One table, figure or plot of a recorded campaign."""
    from tiltmeter.lab import report

    scored = campaign(name)
    if scored is None:
        return PENDING
    facts, figures = scored
    if what.startswith("="):
        return figure(figures, what[1:])
    if what.endswith(".svg"):
        drawn = Path(__file__).parent / "detectors" / what
        return f"![{report.TITLES[what]}](detectors/{what})" if drawn.exists() else PENDING
    if what == "origin":
        return report.origin(facts, figures)
    rows = report.TABLES[what](figures)
    return report.markdown(rows) if len(rows) > 1 else "*no such runs*"


@cache
def campaign(name: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """Facts and figures of a recorded campaign; None if there is none yet."""
    from tiltmeter.lab.campaign_records import RECORDED, load_recorded
    from tiltmeter.lab.score import score

    if not (RECORDED / f"{name}.jsonl.gz").exists():
        return None
    facts, limits, lines = load_recorded(name)
    return facts, score(lines, limits)


def figure(figures: dict[str, Any], name: str) -> str:
    """One figure by its name in the JSON of `tiltmeter lab score`, in the unit that its name implies."""
    from tiltmeter.lab import report

    value = dict(walked(figures))[name]
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    last = name.rpartition(".")[2]
    if last.startswith(("detection", "false_alarm_", "forecast_error", "labels_share", "coverage", "refused", "error")):
        return report.percent(value, 2 if "upper95" in last or "labels_share" in last else 0)
    return report.gold(value) if last.startswith(("regret", "floor", "over_floor", "auroc")) else report.count(value)


def families() -> str:
    """Every family, what its runs are, and in which part of the split it is."""
    from tiltmeter.lab.worlds.families import FAMILIES, split

    part = {family.name: name for name in ("dev", "calibration", "heldout") for family in split(name)[0]}
    part |= {family.name: "all" for family in split("dev")[0] if family.kind == "boundary"}
    rows = [
        (f"`{name}`", part[name], "cliff" if family.cliff else family.kind, first_sentence(family.make))
        for name, family in FAMILIES.items()
    ]
    return "\n".join(["| family | split | meant as | what happens |", "|---|---|---|---|", *map(row_of, rows)])


def baselines() -> str:
    """Every baseline: what it reads, who uses it, and where it alarms as published."""
    from tiltmeter.lab.baselines import BASELINES

    rows = [
        (f"`{rule.name}`", rule.group, "yes" if rule.gold else "no", cell(rule.published), rule.source)
        for rule in BASELINES
    ]
    return "\n".join(
        ["| rule | about | reads gold | alarms above | source |", "|---|---|---|---|---|", *map(row_of, rows)]
    )


def row_of(cells: tuple[str, ...]) -> str:
    return "| " + " | ".join(cell(part) for part in cells) + " |"


def first_sentence(function: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())


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
    from tiltmeter.data.baseline import Baseline
    from tiltmeter.instruments.training import SCALARS
    from tiltmeter.monitor.panel import warmup_batch

    batch = dataclasses.replace(warmup_batch(), scalars=dict.fromkeys(SCALARS, 1.0))
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
            GRAINS[part.grain],
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
