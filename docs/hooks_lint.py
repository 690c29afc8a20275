"""Renders the linter's rules from the rules themselves, while mkdocs builds.

`<!-- lint rules -->` becomes two tables, errors and notes; `<!-- lint versions -->`, anywhere in a line, the versions
of the trainers whose settings are known, with the day they were read.
"""

from __future__ import annotations

from typing import Any

from shown import table as tabled

from tiltmeter.workbench.plan.lint.all_rules import every_rule
from tiltmeter.workbench.plan.lint.rule import LintRule
from tiltmeter.workbench.plan.settings.trainer_settings import NAMES, trainer_tables

RULES, VERSIONS = "<!-- lint rules -->", "<!-- lint versions -->"


def on_page_markdown(text: str, **_: Any) -> str:
    """Called by mkdocs for each page."""
    if RULES in text:
        rules = every_rule()
        text = text.replace(RULES, "\n\n".join(table(level, rules) for level in ("error", "note")))
    return text.replace(VERSIONS, versions()) if VERSIONS in text else text


def table(level: str, rules: tuple[LintRule, ...]) -> str:
    """The rules of one level, in the order they are tried."""
    chosen = [rule for rule in rules if rule.level == level]
    rows = [(f"`{rule.id}`", cell(rule.about), cell(rule.where), cell(rule.source), rule.date) for rule in chosen]
    filled = tabled(("rule", "what it finds", "for", "source", "date"), rows)
    return f"### {level.capitalize()}s\n\n{len(chosen)} rules.\n\n{filled}"


def versions() -> str:
    """Each trainer with its version and the day."""
    return ", ".join(
        f"{NAMES[name]} {table['version']} (read {table['read']})" for name, table in trainer_tables().items()
    )


def cell(text: str) -> str:
    """Text of a table's cell that Markdown reads nothing into."""
    return "".join(f"\\{char}" if char in "|*_^[]<>" else char for char in text)
