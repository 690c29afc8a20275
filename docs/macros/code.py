"""What the package says of itself: instruments from their docstrings, rules, forgeries, families, the page "Try it"."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from tiltmeter import instruments
from tiltmeter.data.baseline import Baseline
from tiltmeter.detectors.derived_readings import DERIVED
from tiltmeter.instruments.training import SCALARS
from tiltmeter.monitor.panel import warmup_batch
from tiltmeter_lab.baselines import BASELINES
from tiltmeter_lab.worlds.families import FAMILIES, NETWORK, NETWORK_FAMILIES, split
from tiltmeter_workbench.diversity.semantic import SemanticDiversity
from tiltmeter_workbench.plan.lint.all_rules import every_rule
from tiltmeter_workbench.plan.settings.trainer_settings import NAMES, trainer_tables
from tiltmeter_workbench.probe.forgeries import FORGERIES

from . import try_world
from .registry import NotMeasuredError, ResultFiles, macro
from .tables import escape, number, one_line, table


@macro
def try_data(_: ResultFiles) -> str:
    return try_world.data()


@macro
def try_presets(_: ResultFiles) -> str:
    return try_world.presets_table()


@macro
def lab_families(_: ResultFiles) -> str:
    """Every family, what its runs are, and in which part of the split it is."""
    part = {family.name: name for name in ("dev", "calibration", "heldout") for family in split(name)[0]}
    part |= {family.name: "all" for family in split("dev")[0] if family.kind == "boundary"}
    part |= dict.fromkeys(NETWORK_FAMILIES, NETWORK)
    rows = [
        (f"`{name}`", part[name], "cliff" if family.cliff else family.kind, first_paragraph(family.make))
        for name, family in (FAMILIES | NETWORK_FAMILIES).items()
    ]
    return table("family | split | meant as | what happens", rows)


def first_paragraph(function: Any) -> str:
    return one_line((inspect.getdoc(function) or "").split("\n\n")[0])


@macro
def lab_baselines(_: ResultFiles) -> str:
    """Every baseline: what it reads, who uses it, and where it alarms as published."""
    rows = []
    for rule in BASELINES:
        gold, limit = "yes" if rule.gold else "no", one_line(number(rule.published, 4))
        rows.append((f"`{rule.name}`", rule.group, gold, limit, one_line(rule.source)))
    return table("rule | about | reads gold | alarms above | source", rows)


@macro
def forgery_catalogue(_: ResultFiles) -> str:
    """All forgeries, with what closes them."""
    rows = [[text.replace("\\", "\\\\") for text in (one.name, one.kind, one.why, one.fix)] for one in FORGERIES]
    return table("forgery | of | why it may be paid | what closes it", rows)


@macro
def lint_rules(_: ResultFiles) -> str:
    """The rules of each level, in the order they are tried."""
    tables = []
    for level in ("error", "note"):
        rules = [rule for rule in every_rule() if rule.level == level]
        rows = [(f"`{rule.id}`", *map(escape, (rule.about, rule.where, rule.source)), rule.date) for rule in rules]
        filled = table("rule | what it finds | for | source | date", rows)
        tables.append(f"### {level.capitalize()}s\n\n{len(rules)} rules.\n\n{filled}")
    return "\n\n".join(tables)


@macro
def lint_versions(_: ResultFiles) -> str:
    """The trainers whose settings are known, each with its version and the day that they were read."""
    return ", ".join(f"{NAMES[name]} {one['version']} (read {one['read']})" for name, one in trainer_tables().items())


# -- instruments ------------------------------------------------------------------------------------------------------

#: What a reading's first word is about, as a heading, where the word itself will not do. No heading may be the name of
#: an instrument: the two would have one anchor.
SUBJECTS = {
    "gold": "Proxy against gold",
    "policy": "Policy and KL",
    "engine": "Inference engine",
    "training": "Training health",
    "verifier": "The verifier itself",
    "diversity": "Diversity of completions",
    "tools": "Calls of tools",
    "stop": "Why trajectories end",
    "drops": "What is dropped",
    "tasks": "Tasks of agents",
    "acts": "What agents do",
    "group": "Groups",
}

GRAINS = {"rollout": "per completion", "group": "per prompt group", "batch": "per step", "item": "per item counted"}


class Semantic(SemanticDiversity):  # its docstring is the parent's, which the page shows
    def embed(self, texts: Any) -> Any:
        return [[1.0]] * len(texts)


@macro
def instrument_sections(read: ResultFiles) -> str:
    """A table of contents, and a section per built-in instrument, with its cost where that was measured."""
    parts = [make() for make in instruments.BUILTIN]
    try:
        cost = read("instruments").get("us_per_token", {})
    except NotMeasuredError:
        cost = {}
    suffixes = suffixes_of(parts)
    subjects: dict[str, list[Any]] = {}
    for part in parts:
        subject = part.name.split(".")[0]
        subjects.setdefault(SUBJECTS.get(subject, subject.capitalize()), []).append(part)
    contents = [(title, linked(own)) for title, own in subjects.items()]
    contents.append(("Folded over steps", linked([make() for make in DERIVED])))
    sections = [table("about | instruments", contents)]
    for title, own in subjects.items():
        sections += [f"## {title}", *(section(part, suffixes[part.name], cost.get(part.name)) for part in own)]
    return "\n\n".join(sections)


@macro
def derived_sections(_: ResultFiles) -> str:
    return "\n\n".join(section(make()) for make in DERIVED)


@macro
def semantic_section(_: ResultFiles) -> str:
    return section(Semantic(), suffixes_of([Semantic()])[Semantic.name])


def linked(parts: list[Any]) -> str:
    """Their names, each with a link to its section."""
    return ", ".join(f"[`{part.name}`](#{part.name.replace('.', '')})" for part in parts)


def suffixes_of(parts: list[Any]) -> dict[str, list[str]]:
    """By instrument: what its readings are called after its own name, found by measuring a batch that has everything.
    Those that are named after the user's reward functions are one, NAME."""
    batch = dataclasses.replace(warmup_batch(), scalars=dict.fromkeys(SCALARS, 1.0))
    baseline = Baseline(batch)
    found = {part.name: part.measure(batch, baseline) for part in parts}
    return {
        name: [] if not isinstance(values, dict) else ["NAME"] if set(values) == set(batch.rewards) else list(values)
        for name, values in found.items()
    }


def section(part: Any, suffixes: list[str] | None = None, cost: float | None = None) -> str:
    """What an instrument's docstring and facts say, as Markdown."""
    text = docstring(part)
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
    whence = "  \n".join(f"{name}: {text[name]}" for name in ("Formula", "Source") if name in text)
    small = [f"<small>{line}</small>" for line in (" · ".join(filter(None, facts)), whence)]
    return "\n\n".join(filter(None, [f"### `{part.name}`", small[0], text["what"], text["why"], names, small[1]]))


def listed(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def docstring(part: Any) -> dict[str, str]:
    """A part's docstring taken apart: what it measures, why it matters, `Formula:` and `Source:`."""
    text = (inspect.getdoc(type(part)) or "").split(">>>")[0]
    parts = {"what": "", "why": ""}
    for line in re.split(r"\n(?=Formula: |Source: |\n)", text):
        name, colon, rest = line.strip().partition(": ")
        if colon and name in ("Formula", "Source"):
            parts[name] = " ".join(rest.split())
        elif line.strip():
            key = "why" if parts["what"] else "what"
            parts[key] = "\n\n".join(filter(None, (parts[key], " ".join(line.split()))))
    return parts
