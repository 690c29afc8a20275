"""Diagnosis of a run's failure: rules over readings and alarms as data, their tests, and experiments."""

from __future__ import annotations

from tiltmeter.diagnosis.cases import builtin_cases, check_rules, read_cases
from tiltmeter.diagnosis.experiments import ExperimentResult, experiment
from tiltmeter.diagnosis.findings import Diagnosis
from tiltmeter.diagnosis.rules import FAILURES, KNOBS, DiagnosisRule, RuleSet, builtin_rules, knobs_for, read_rules

__all__ = [
    "FAILURES",
    "KNOBS",
    "Diagnosis",
    "DiagnosisRule",
    "ExperimentResult",
    "RuleSet",
    "builtin_cases",
    "builtin_rules",
    "check_rules",
    "experiment",
    "knobs_for",
    "read_cases",
    "read_rules",
]
