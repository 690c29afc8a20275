"""Test cases of the rules, as data: short series, the open alarms, and what must or must not be found."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from tiltmeter.data.records import Alarm, Finding, Reading
from tiltmeter.diagnosis.findings import Diagnosis
from tiltmeter.diagnosis.rules import FAILURES, DiagnosisRule, RuleSet
from tiltmeter.errors import ContractError

_NUMBER = r"-?\d+(?:\.\d+)?(?:e-?\d+)?"
_PART = re.compile(
    rf"(?:(?P<none>none)|(?P<a>{_NUMBER})(?:\.\.(?P<b>{_NUMBER}))?)(?: x(?P<n>\d+))?(?: ~(?P<s>{_NUMBER}))?"
)
_KEYS = ("name", "rule", "series", "every", "n", "alarms", "found", "absent", "only", "says", "confidence", "seed")


@dataclass(frozen=True, slots=True)
class RuleCase:
    """One test: series by reading, alarms as (name, tier, first step, last step, onset), and what they must lead to.

    `found`: failures that stand at the end. `absent`: failures that are never named. `only`: nothing else is found.
    """

    name: str
    rule: str
    series: Mapping[str, tuple[float, ...]]  # NaN: no reading at that step
    alarms: tuple[Alarm, ...] = ()
    found: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    only: bool = False
    says: str = ""
    confidence: tuple[float, float] = (0.0, 1.0)
    n: int = 64

    @property
    def steps(self) -> int:
        return max(len(values) for values in self.series.values())


def parse_series(notation: str, seed: int = 0) -> tuple[float, ...]:
    """The series that a notation stands for: parts with commas between them, each `VALUE`, `FROM..TO` or `none`, then
    how many readings (`x30`) and the standard deviation of their noise (`~0.5`).

    >>> parse_series("12 x2, 12..16 x3, none x2, 5")
    (12.0, 12.0, 12.0, 14.0, 16.0, nan, nan, 5.0)
    """
    rng = np.random.default_rng(seed)
    series: list[float] = []
    for part in notation.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            raise ContractError(f"{part.strip()!r} is no part of a series; write for example 12 x30 ~0.5, 12..40 x70")
        count = int(match["n"] or 1)
        first = np.nan if match["none"] else float(match["a"])
        line = np.linspace(first, float(match["b"] or first), count)
        series += (line + float(match["s"] or 0.0) * rng.standard_normal(count)).tolist()
    return tuple(series)


@cache
def builtin_cases() -> tuple[RuleCase, ...]:
    """The tests of the rules that come with the package.

    >>> len(builtin_cases()) > 50
    True
    """
    return read_cases(resources.files("tiltmeter.diagnosis").joinpath("cases.toml").read_text("utf-8"), "cases.toml")


def read_cases(text: str, origin: str = "cases") -> tuple[RuleCase, ...]:
    """Cases from TOML text; `ContractError` says which of them cannot be read, and why.

    >>> read_cases("")
    ()
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"{origin} is not TOML: {error}") from error
    if set(table) - {"case"}:
        raise ContractError(f"{origin}: it holds [[case]] tables and nothing else")
    return tuple(_parse_case(item, f"{origin}, case {place}") for place, item in enumerate(table.get("case", ()), 1))


def _parse_case(table: Mapping[str, Any], where: str) -> RuleCase:
    for key in table:
        if key not in _KEYS:
            raise ContractError(f"{where}: nothing is called {key!r} here; the keys are {', '.join(_KEYS)}")
    for key in ("name", "rule", "series"):
        if not table.get(key):
            raise ContractError(f"{where}: it has no {key}")
    for failure in (*table.get("found", ()), *table.get("absent", ())):
        if failure not in FAILURES:
            raise ContractError(f"{where}: no failure is called {failure!r}; they are {', '.join(FAILURES)}")
    every = table.get("every", {})
    series = {}
    for place, (name, notation) in enumerate(table["series"].items()):
        points = parse_series(notation, seed=1000 * int(table.get("seed", 0)) + place)
        gaps = (np.nan,) * (int(every.get(name, 1)) - 1)
        series[name] = tuple(value for one in points for value in (one, *gaps))
    low, high = table.get("confidence", (0.0, 1.0))
    lists: dict[str, Any] = {key: tuple(table.get(key, ())) for key in ("found", "absent")}
    alarms = tuple(_parse_alarm(item, where) for item in table.get("alarms", ()))
    plain = {key: table[key] for key in ("only", "says", "n") if key in table}
    return RuleCase(table["name"], table["rule"], series, alarms, **lists, **plain, confidence=(low, high))


def _parse_alarm(table: Mapping[str, Any], where: str) -> Alarm:
    if "name" not in table or "at" not in table or set(table) - {"name", "at", "until", "tier", "onset"}:
        raise ContractError(f"{where}: an alarm has name and at, and may have until, tier and onset")
    at, onset = int(table["at"]), int(table.get("onset", table["at"]))
    tier = table.get("tier", "alarm")
    return Alarm(0, table["name"], "case", tier, "down", at, at, onset, onset, at, 9.0, 5.0, table.get("until"))


def check_rules(rules: RuleSet, cases: Iterable[RuleCase]) -> list[str]:
    """What is wrong with a set of rules, in words: cases that come out otherwise, and rules without a test.

    Each rule needs a case of its own in which it is behind what is found, and a near miss: one in which something it
    asks for holds (or, for a rule that asks for one thing, is measured), and its failure is not named. A near miss in
    which nothing holds would prove nothing.

    >>> from tiltmeter.diagnosis.rules import builtin_rules
    >>> check_rules(builtin_rules(), [])[0]
    'rule acts_are_seen has no case in which it fires'
    """
    by_name = {rule.name: rule for rule in rules.rules}
    problems_found: list[str] = []
    fired: set[str] = set()
    near_misses: set[str] = set()
    for case in cases:
        rule = by_name.get(case.rule)
        if rule is None:
            problems_found.append(f"{case.name}: no rule is called {case.rule}")
            continue
        problems, behind, near = _run_case(rules, rule, case)
        problems_found += [f"{case.name}: {problem}" for problem in problems]
        if rule.failure in case.found and not problems:
            if behind:
                fired.add(rule.name)
            else:
                problems_found.append(f"{case.name}: {rule.failure} is found by another rule than {rule.name}")
        if rule.failure in case.absent and not problems:
            if near:
                near_misses.add(rule.name)
            else:
                problems_found.append(f"{case.name}: no near miss of {rule.name}, nothing that it asks for ever holds")
    problems_found += [f"rule {name} has no case in which it fires" for name in by_name if name not in fired]
    problems_found += [f"rule {name} has no near miss" for name in by_name if name not in near_misses]
    return problems_found


def _run_case(rules: RuleSet, rule: DiagnosisRule, case: RuleCase) -> tuple[list[str], bool, bool]:
    """What came out wrong, whether the rule was behind its failure at the end, and whether it ever came near."""
    diagnosis = Diagnosis(rules)
    findings: list[Finding] = []
    # Where one condition decides, there is no part of it that could hold: that its reading is there must do.
    near = len(rule.must) + rule.alone == 1 and any(one.reading in case.series for one in (*rule.must, *rule.any))
    for step in range(case.steps):
        findings += diagnosis.update(0, step, list(_readings(case, step)), _open_alarms(case.alarms, step))
        near |= any(condition in diagnosis.evidence.holds for condition in (*rule.must, *rule.any))
    end = {finding.failure: finding for finding in diagnosis.standing}
    ever = {finding.failure for finding in findings}
    problems = [f"{failure} is not found at the end" for failure in case.found if failure not in end]
    problems += [f"{failure} is found" for failure in case.absent if failure in ever]
    problems += [f"{failure} is found too" for failure in ever if case.only and failure not in case.found]
    first = end.get(case.found[0]) if case.found else None
    low, high = case.confidence
    if first is not None and not low <= first.confidence <= high:
        problems.append(f"confidence {first.confidence} is not in [{low}, {high}]")
    if first is not None and case.says not in first.summary:
        problems.append(f"it does not say {case.says!r}: {first.summary}")
    return problems, diagnosis.rule(rule.failure) == rule.name, near


def _readings(case: RuleCase, step: int) -> Iterable[Reading]:
    for name, line in case.series.items():
        if step < len(line) and line[step] == line[step]:
            yield Reading(0, step, name, line[step], case.n)


def _open_alarms(alarms: Sequence[Alarm], step: int) -> list[Alarm]:
    return [alarm for alarm in alarms if alarm.step <= step and (alarm.resolved is None or step < alarm.resolved)]
