"""All lint rules in one list."""

from __future__ import annotations

from tiltmeter_workbench.plan.lint import rules_broken, rules_keys, rules_ranges
from tiltmeter_workbench.plan.lint.rule import LintRule


def every_rule() -> tuple[LintRule, ...]:
    """All rules, errors first."""
    return (*rules_keys.RULES, *rules_broken.RULES, *rules_ranges.RULES)
