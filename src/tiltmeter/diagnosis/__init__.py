"""What a run suffers from: rules as data over readings and alarms, their own tests, and experiments that confirm."""

from __future__ import annotations

from tiltmeter.diagnosis.cases import builtin_cases, check_rules, read_cases
from tiltmeter.diagnosis.experiments import Outcome, experiment
from tiltmeter.diagnosis.fold import Diagnosis
from tiltmeter.diagnosis.rules import FAILURES, KNOBS, Rule, Rules, builtin_rules, knobs_for, read_rules

__all__ = [
    "FAILURES",
    "KNOBS",
    "Diagnosis",
    "Outcome",
    "Rule",
    "Rules",
    "builtin_cases",
    "builtin_rules",
    "check_rules",
    "experiment",
    "knobs_for",
    "read_cases",
    "read_rules",
]
