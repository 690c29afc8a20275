"""What pages of failures show: a planted run of `benchmarks/failures.py`, and what the rules of the diagnosis say."""

from __future__ import annotations

from typing import Any

from tiltmeter.diagnosis import DiagnosisRule, builtin_rules
from tiltmeter.safety.safe_text import markdown

from .registry import ResultFiles, macro
from .tables import columns, escape, table


def rules_of(failure: str) -> list[DiagnosisRule]:
    return [rule for rule in builtin_rules().rules if rule.failure == failure]


def unique(texts: Any) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


@macro
def failure_symptoms(_: ResultFiles, failure: str) -> str:
    return "; ".join(escape(text) for text in unique(rule.symptom for rule in rules_of(failure)))


@macro
def failure_run(read: ResultFiles, failure: str) -> str:
    """What `tiltmeter show` said of the planted run, and the readings that the rules look at."""
    run = read("failures")["failures"][failure]
    moved = columns("reading | first ten steps | last ten steps", "{reading:code} | {first} | {last}", run["readings"])
    return f"{markdown(chr(10).join(run['show']))}\n\n{moved}"


@macro
def failure_readings(_: ResultFiles, failure: str) -> str:
    """The readings and alarms that its rules look at, in their order."""
    conditions = [one for rule in rules_of(failure) for one in (*rule.must, *rule.any, *rule.also)]
    alarms = [f"the {one.tier} `{one.alarm}`" for one in conditions if one.alarm]
    return ", ".join(unique([*(f"`{one.reading}`" for one in conditions if one.reading), *alarms]))


@macro
def failure_causes(_: ResultFiles, failure: str) -> str:
    return "\n".join(f"- {escape(cause)}" for cause in unique(rule.cause for rule in rules_of(failure)))


@macro
def failure_fixes(_: ResultFiles, failure: str) -> str:
    """In the order in which to try them."""
    return "\n".join(f"1. {escape(fix)}" for fix in unique(fix for rule in rules_of(failure) for fix in rule.fix))


@macro
def failure_figures(read: ResultFiles, failure: str) -> str:
    """How often it was named first in runs in which it was planted."""
    rows = [row for row in read("diagnosis")["matrix"] if failure in row["planted"]]
    cells = ((row["kind"], row["runs"], row["right"], ", ".join(row["named_first"]).replace("_", " ")) for row in rows)
    return table("planted run | runs | named rightly | named first, and how often", cells)
