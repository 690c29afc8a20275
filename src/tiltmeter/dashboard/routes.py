"""Every route in one table: its method, who may ask, what it takes and what answers. Tests are made from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tiltmeter.dashboard import answers
from tiltmeter.dashboard.access import RequestError, Role
from tiltmeter.dashboard.site import Asked

Parser = Callable[[Any], Any]

MOST_NAMES = 64  # values of a parameter that may be given more than once


# -- what parameters may be -----------------------------------------------------------------------------------------


def text(limit: int) -> Parser:
    def parse(given: Any) -> str:
        if not isinstance(given, str) or len(given) > limit:
            raise ValueError(f"must be a text of at most {limit} characters")
        return given

    return parse


def pattern(regex: str, what: str) -> Parser:
    compiled = re.compile(regex)

    def parse(given: Any) -> str:
        if not isinstance(given, str) or not compiled.fullmatch(given):
            raise ValueError(f"must be {what}")
        return given

    return parse


def choice(*allowed: str) -> Parser:
    def parse(given: Any) -> str:
        if not isinstance(given, str) or given not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return given

    return parse


def whole(low: int, high: int) -> Parser:
    def parse(given: Any) -> int:
        if isinstance(given, str) and re.fullmatch(r"-?[0-9]{1,12}", given):
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool) or not low <= given <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return given

    return parse


def real(given: Any) -> float:
    if isinstance(given, str) and re.fullmatch(r"-?[0-9.]{1,30}(e[+-]?[0-9]{1,3})?", given):
        given = float(given)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not math.isfinite(given):
        raise ValueError("must be a finite number")
    return float(given)


def yes_no(given: Any) -> int:
    if given not in ("0", "1"):
        raise ValueError("must be 0 or 1")
    return int(given)


RUN = pattern(r"[0-9a-f]{12}", "the id of a run, as /api/fleet gives it")
ROLLOUT = pattern(r"[0-9]{1,16}-[0-9]{1,16}-[0-9]{1,10}", "the id of a rollout: attempt-step-row")
STEP = whole(0, 10**9)
READING = text(200)
POINTS = whole(10, 2000)


# -- the table ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """One address. `takes` are its parameters, of a POST the fields of its JSON; whatever else comes is refused."""

    method: Literal["GET", "POST"]
    path: str
    role: Role
    answer: Callable[[Asked], Any]
    takes: Mapping[str, Parser] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    many: frozenset[str] = frozenset()  # parameters that may be given more than once
    status: int = 200

    def parsed(self, given: Mapping[str, list[Any]]) -> dict[str, Any]:
        """The parameters as their parsers give them. Raises `RequestError` for what is unknown, missing or wrong."""
        for name in given:
            if name not in self.takes:
                raise RequestError(
                    400, f"{self.path} takes no such parameter; it takes: {', '.join(self.takes) or '-'}"
                )
        found: dict[str, Any] = {}
        for name, values in given.items():
            if len(values) > (MOST_NAMES if name in self.many else 1):
                raise RequestError(400, f"{name} is given too often")
            try:
                parsed = [self.takes[name](value) for value in values]
            except ValueError as error:
                raise RequestError(400, f"{name} {error}") from None
            found[name] = parsed if name in self.many else parsed[0]
        if lacks := sorted(self.needs - found.keys()):
            raise RequestError(400, f"{self.path} needs {', '.join(lacks)}")
        return found


RANGE: Mapping[str, Parser] = {"from": STEP, "to": STEP}
FILTERS: Mapping[str, Parser] = {
    **RANGE,
    "attempt": whole(0, 10**6),
    **{f"{name}_{end}": real for name in ("reward", "gold") for end in ("min", "max")},
    **dict.fromkeys(("length_min", "length_max"), whole(0, 10**9)),
    **dict.fromkeys(("labelled", "truncated", "flagged", "disagree"), yes_no),
    "phrase": text(200),
    "sort": choice("step", "reward", "gold", "length", "gap"),
    "order": choice("up", "down"),
}
CONTROLS = ("acknowledge", "mute", "false_alarm", "ask_label", "approve", "reject", "undo")
ANSWERS = ("a", "b", "tie", "both_bad", "skip", "0", "0.25", "0.5", "0.75", "1")
CONTROL: Mapping[str, Parser] = {
    "run": RUN,
    "kind": choice(*CONTROLS),
    "target": text(300),
    "step": whole(-1, 10**9),
    "reason": text(500),
    "nonce": pattern(r"[A-Za-z0-9_-]{16,64}", "16 to 64 letters and digits, new for every request"),
}
LABEL: Mapping[str, Parser] = {
    "task": pattern(r"[A-Za-z0-9_-]{1,64}", "the id of a task"),
    "answer": choice(*ANSWERS),
    "milliseconds": whole(0, 10**9),
}


def _view(path: str, answer: Callable[[Asked], Any], takes: Mapping[str, Parser], *needs: str, many: str = "") -> Route:
    return Route(
        "GET", f"/api/{path}", "view", answer, takes, frozenset(needs), frozenset({many}) if many else frozenset()
    )


ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/login", "open", answers.login, {"code": text(100)}, frozenset({"code"})),
    _view("fleet", answers.fleet, {}),
    _view("summary", answers.summary, {"run": RUN, "since": real}, "run"),
    _view("plots", answers.plots, {"run": RUN, **RANGE, "points": POINTS}, "run"),
    _view("geometry", answers.geometry, {"run": RUN, **RANGE}, "run"),
    _view(
        "series", answers.series, {"run": RUN, "name": READING, **RANGE, "points": POINTS}, "run", "name", many="name"
    ),
    _view("readings", answers.readings, {"run": RUN}, "run"),
    _view("rollouts", answers.rollouts, {"run": RUN, **FILTERS, "after": text(300), "limit": whole(1, 100)}, "run"),
    _view("rollout", answers.rollout, {"run": RUN, "id": ROLLOUT}, "run", "id"),
    _view("group", answers.group, {"run": RUN, "id": ROLLOUT}, "run", "id"),
    _view("phrases", answers.phrases, {"run": RUN, "step": STEP}, "run"),
    _view("pinned", answers.pinned, {"run": RUN}, "run"),
    _view("alarms", answers.alarms, {"run": RUN}, "run"),
    _view("alarm", answers.alarm, {"run": RUN, "id": text(300)}, "run", "id"),
    _view("actions", answers.actions, {"run": RUN}, "run"),
    _view(
        "compare",
        answers.compare,
        {"run": RUN, "x": choice("step", "root_kl", "tokens"), "name": READING},
        "run",
        many="run",
    ),
    _view("verifier", answers.verifier, {"run": RUN}, "run"),
    _view("health", answers.health, {"run": RUN}, "run"),
    _view("report", answers.report, {"run": RUN, "redact": yes_no}, "run"),
    _view("stream", answers.stream, {"run": RUN}),
    Route("GET", "/api/label/next", "label", answers.label_next),
    Route("POST", "/api/label", "label", answers.label, LABEL, frozenset(LABEL)),
    Route("POST", "/api/label/undo", "label", answers.label_undo),
    Route("POST", "/api/control", "control", answers.control, CONTROL, frozenset(CONTROL), status=202),
)
