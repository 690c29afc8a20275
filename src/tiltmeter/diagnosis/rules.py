"""Diagnosis rules as data: read from TOML, with an error for anything that is not a valid rule."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Literal

from tiltmeter.errors import ContractError

#: The failures that a diagnosis can name, in the field's terms.
FAILURES = (
    "reward_hacking",
    "length_hacking",
    "phrase_gaming",
    "refusal_hacking",
    "sycophancy",
    "mode_collapse",
    "kl_failure",
    "heavy_tailed_reward",
    "alignment_tax",
    "format_hacking",
    "hedging",
    "verifier_fault",
    "dead_groups",
    "no_progress",
    "unstable_training",
    "engine_mismatch",
    "retokenisation",
    "stale_policy",
    "environment_fault",
    "tool_loop",
    "tampering",
    "starved_tasks",
    "likelihood_displacement",
    "unknown",
)
#: What may be changed in a run, by the name that interventions have for it.
KNOBS = ("beta", "learning_rate", "entropy_coef", "reward_weight", "stop", "rollback", "gold_share")
#: Which completions of the step prove a finding.
SHOW = (
    "longest",
    "shortest",
    "paid_most",
    "paid_least",
    "most_repeated",
    "least_gold",
    "furthest",
    "engine_off",
    "acts",
)
EXPERIMENTS = ("cut_padding", "drop_phrase", "drop_hedges", "drop_opening", "strip_form")

Form = Literal["rising", "falling", "flat", "above", "below"]
FORMS: tuple[Form, ...] = ("rising", "falling", "flat", "above", "below")
MOVES = ("rising", "falling")

_READING = re.compile(r"[a-z][a-z0-9_]*\.[A-Za-z0-9_.*-]+")
_ALARM = re.compile(_READING.pattern + r"|\*")
_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = ("before", "now", "change", "ratio", "level", "since", "name", "share", "part")


@dataclass(frozen=True, slots=True, eq=False)  # looked up by identity a thousand times a second
class Condition:
    """One thing that may be true of one reading's course, or of the alarms that are open.

    `rising` and `falling`: the last readings differ from the run's own first ones by more than `noise` standard errors
    *and* by at least `by`, or by the `factor`. `flat`: by less than `noise` standard errors. `above` and `below`: the
    last readings lie beyond `than` by more than `noise` standard errors. A name may contain `*`; one match is enough.
    """

    reading: str = ""
    form: Form | Literal["open"] = "open"
    alarm: str = ""
    tier: Literal["alarm", "warning"] = "alarm"
    than: float = 0.0
    by: float = 0.0
    factor: float = 0.0  # of the beginning; 0: not asked for
    noise: float = 0.0
    after: int = 0  # steps since the run began, before which it does not hold
    early: bool = False  # holds only if it has held since one of the first steps
    least: int = 1  # readings
    weight: float = 0.3
    says: str = ""


@dataclass(frozen=True, slots=True)
class DiagnosisRule:
    """A failure, what shows it, and what to do. See `rules.toml` for every field at work.

    >>> rule = next(rule for rule in builtin_rules().rules if rule.name == "length_multiplies")
    >>> rule.failure, rule.cause
    ('length_hacking', 'the reward pays for length')
    """

    name: str
    failure: str
    symptom: str
    must: tuple[Condition, ...] = ()
    any: tuple[Condition, ...] = ()
    also: tuple[Condition, ...] = ()  # where they hold they add weight and words, and decide nothing
    least: int = 0  # of `any` that must hold
    alone: int = 0  # the same where no alarm that the rule explains is open
    unless: tuple[Condition, ...] = ()
    judged: Literal["", "harm", "gain"] = ""  # by gold: what gold has to show
    explains: tuple[str, ...] = ()  # alarms, by name
    otherwise: bool = False  # named only where no other rule explains what is open
    yields_to: tuple[str, ...] = ()  # more specific rules, by name, below which it ranks where they hold
    hold: int = 0  # steps in a row before it is named; 0: as the settings say
    show: tuple[str, ...] = ()
    cause: str = ""
    fix: tuple[str, ...] = ()
    knobs: tuple[str, ...] = ()
    experiment: str = ""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (*self.must, *self.any, *self.also, *self.unless)


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """Numbers that hold for all rules of a file."""

    window: int = 10  # readings at the beginning and at the end that are compared
    gold_window: int = 40  # the same for gold and evaluations: a step has few labels
    early: int = 50  # steps
    hold: int = 3  # steps in a row before a finding without an alarm is named
    quiet: int = 20  # steps in a row before it is reported as over
    moved: float = 0.2  # change of confidence that is reported
    alarm_weight: float = 0.6
    edit_weight: float = 0.6  # of an edit that shows what the reward pays for
    unpaid: float = 0.3  # factor of the confidence where an edit shows that the reward does not pay for it
    suspected: float = 0.4  # factor of the confidence where gold does not confirm it
    yields: float = 0.9  # of the confidence of a more specific finding, the most that a general one may have
    gold_age: int = 100  # steps after which gold no longer counts as gold to judge by


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules in order, what counts as healthy gold, and the settings.

    >>> sorted({rule.failure for rule in builtin_rules().rules})[:2]
    ['alignment_tax', 'dead_groups']
    """

    rules: tuple[DiagnosisRule, ...]
    healthy: tuple[Condition, ...] = ()
    settings: RuleSettings = RuleSettings()

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Every condition once, in a fixed order."""
        unique = dict.fromkeys(self.healthy)
        for rule in self.rules:
            unique.update(dict.fromkeys(rule.conditions))
        return tuple(unique)


@cache
def builtin_rules() -> RuleSet:
    """The rules that come with the package.

    >>> builtin_rules().settings.window
    10
    """
    return read_rules(resources.files("tiltmeter.diagnosis").joinpath("rules.toml").read_text("utf-8"), "rules.toml")


def knobs_for(failure: str) -> tuple[str, ...]:
    """What could be changed in a run that suffers from a failure, the most promising first; empty: only its owner can.

    >>> knobs_for("dead_groups"), knobs_for("length_hacking")[0]
    ((), 'beta')
    """
    if failure not in FAILURES:
        raise ContractError(f"no failure is called {failure!r}; they are {', '.join(FAILURES)}")
    return tuple(dict.fromkeys(k for rule in builtin_rules().rules if rule.failure == failure for k in rule.knobs))


def read_rules(text: str, origin: str = "rules") -> RuleSet:
    """Rules from TOML text; `ContractError` names the place and the fix for anything that is not a rule.

    >>> read_rules("[[rule]]\\nfailure = 'boredom'", "mine.toml")
    Traceback (most recent call last):
    tiltmeter.errors.ContractError: mine.toml, rule 1: it has no name; add name = "..."
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ContractError(f"{origin} is not TOML: {error}") from error
    _check_keys(table, ("rule", "healthy", "settings"), origin)
    for key in ("rule", "healthy"):
        if not isinstance(table.get(key, []), list):
            raise ContractError(f"{origin}: {key} is a list; rules are written as [[rule]] tables")
    settings = table.get("settings", {})
    _check_keys(settings, RuleSettings.__slots__, f"{origin}, settings")
    rules = tuple(_parse_rule(item, f"{origin}, rule {place}") for place, item in enumerate(table.get("rule", ()), 1))
    names = [rule.name for rule in rules]
    if len(set(names)) < len(names):
        raise ContractError(f"{origin}: two rules share a name; give each its own")
    for place, rule in enumerate(rules):
        _check_choices(rule.yields_to, tuple(names[:place]), f"{origin} ({rule.name}), yields_to: rules above it")
    healthy = tuple(_parse_condition(item, f"{origin}, healthy") for item in table.get("healthy", ()))
    return RuleSet(rules, healthy, RuleSettings(**settings))


def _parse_rule(table: Mapping[str, Any], where: str) -> DiagnosisRule:
    _check_keys(table, DiagnosisRule.__slots__, where)
    if not isinstance(table.get("name"), str):
        raise ContractError(f'{where}: it has no name; add name = "..."')
    where = f"{where} ({table['name']})"
    for key, choices in (("failure", FAILURES), ("judged", ("", "harm", "gain")), ("experiment", ("", *EXPERIMENTS))):
        _check_choices([table.get(key, "")], choices, f"{where}, {key}")
    _check_choices(table.get("knobs", ()), KNOBS, f"{where}, knobs")
    _check_choices(table.get("show", ()), SHOW, f"{where}, show")
    for key in ("symptom", "cause", "fix"):
        if not table.get(key):
            raise ContractError(f"{where}: it has no {key}; a finding without one helps nobody")
    parts: dict[str, Any] = {
        key: tuple(_parse_condition(item, f"{where}, {key}") for item in table.get(key, ())) for key in _PARTS
    }
    if not parts["must"] and not parts["any"]:
        raise ContractError(f"{where}: it has no conditions; add must = [...] or any = [...]")
    least = table.get("least", 1 if parts["any"] else 0)
    alone = table.get("alone", least)
    if not 0 <= least <= alone <= len(parts["any"]):
        raise ContractError(f"{where}: needs 0 <= least <= alone <= {len(parts['any'])}, the conditions in any")
    if not least and not parts["must"]:
        raise ContractError(f"{where}: with least = 0 and no must it would always hold")
    lists: dict[str, Any] = {
        key: tuple(table.get(key, ())) for key in ("explains", "yields_to", "show", "fix", "knobs")
    }
    plain = {key: table[key] for key in ("judged", "otherwise", "hold", "experiment") if key in table}
    return DiagnosisRule(
        table["name"],
        table["failure"],
        table["symptom"],
        **parts,
        **lists,
        **plain,
        least=least,
        alone=alone,
        cause=table["cause"],
    )


_PARTS = ("must", "any", "also", "unless")
_KEYS: dict[str, Callable[[Any], bool]] = {
    "reading": lambda value: isinstance(value, str) and bool(_READING.fullmatch(value)),
    "alarm": lambda value: isinstance(value, str) and bool(_ALARM.fullmatch(value)),
    "is": lambda value: value in FORMS,
    "tier": lambda value: value in ("alarm", "warning"),
    "than": lambda value: _is_number(value),
    "by": lambda value: _is_number(value) and value > 0,
    "factor": lambda value: _is_number(value) and value > 0,
    "noise": lambda value: _is_number(value) and value >= 0,
    "after": lambda value: type(value) is int and value >= 0,
    "least": lambda value: type(value) is int and value >= 1,
    "early": lambda value: type(value) is bool,
    "weight": lambda value: _is_number(value) and 0 <= value < 1,
    "says": lambda value: isinstance(value, str) and all(_is_field(name) for name in _FIELD.findall(value)),
}
_EXPECTED = {
    "reading": "a name such as length.mean or eval.*",
    "alarm": "a name such as gold.slope or gold.*, or * for any",
    "is": f"one of {', '.join(FORMS)}",
    "tier": "alarm or warning",
    "weight": "a number from 0 to below 1",
    "early": "true or false",
    "says": f"text with fields among {', '.join(_FIELDS)}, a percentage as {{now%}}",
}


def _parse_condition(table: Mapping[str, Any], where: str) -> Condition:
    _check_keys(table, tuple(_KEYS), where)
    for key, value in table.items():
        if not _KEYS[key](value):
            raise ContractError(f"{where}: {key} = {value!r} is not {_EXPECTED.get(key, 'a number that can be used')}")
    if ("reading" in table) == ("alarm" in table):
        raise ContractError(f"{where}: a condition is about one reading or one alarm; give reading = or alarm =")
    if "alarm" in table:
        _check_keys(table, ("alarm", "tier", "weight", "says"), f"{where}, an alarm")
        return Condition(**table)
    if "is" not in table:
        raise ContractError(f"{where}: what about {table['reading']}? add is = one of {', '.join(FORMS)}")
    form = table["is"]
    if form in ("above", "below"):
        _check_keys(table, tuple(set(_KEYS) - {"by", "factor", "tier"}), f"{where}, {form}")
        if "than" not in table:
            raise ContractError(f"{where}: {form} what? add than = a number")
    else:
        _check_keys(table, tuple(set(_KEYS) - {"than", "tier"} - (set() if form in MOVES else {"by", "factor"})), where)
    if form in MOVES and not {"by", "factor", "noise"} & set(table):
        raise ContractError(f"{where}: {form} by how much? add by =, factor = or noise =, or any drift would do")
    if (form == "rising" and table.get("factor", 2) <= 1) or (form == "falling" and table.get("factor", 0.5) >= 1):
        raise ContractError(f"{where}: factor multiplies the beginning; above 1 for rising, below 1 for falling")
    usual = {"noise": 4.0 if form in MOVES else 2.0, "least": 4 if form in ("above", "below") else 2}
    return Condition(**{**usual, **{key: value for key, value in table.items() if key != "is"}, "form": form})


def _check_keys(table: Any, keys: Any, where: str) -> None:
    if not isinstance(table, Mapping):
        raise ContractError(f"{where}: expected a table, not {table!r}")
    for key in table:
        if key not in keys:
            raise ContractError(f"{where}: nothing is called {key!r} here; the keys are {', '.join(sorted(keys))}")


def _check_choices(values: Any, choices: tuple[str, ...], where: str) -> None:
    for one in values:
        if one not in choices:
            raise ContractError(f"{where}: {one!r} is none of {', '.join(filter(None, choices))}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value


def _is_field(field_name: str) -> bool:
    return field_name.removesuffix("%") in _FIELDS
