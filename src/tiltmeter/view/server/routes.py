"""The table of routes: method, path, role, parameters and handler. Tests are generated from it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from tiltmeter.rundir.reading_room.notes import TEXT_CHARACTERS
from tiltmeter.view.payloads.compare import CompareAxis
from tiltmeter.view.payloads.overview import FleetSort
from tiltmeter.view.payloads.people import AnswerValue, ControlKind
from tiltmeter.view.payloads.reading_room import TokenColour
from tiltmeter.view.payloads.rollouts import RolloutSort, SortOrder
from tiltmeter.view.server import handlers
from tiltmeter.view.server.access import AccessRole, RequestError
from tiltmeter.view.server.state import ApiRequest

Parser = Callable[[Any], Any]

MOST_NAMES = 64  # values of a parameter that may be given more than once


# -- parsers of parameters -----------------------------------------------------------------------------------------


def text(limit: int) -> Parser:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or len(value) > limit:
            raise ValueError(f"must be a text of at most {limit} characters")
        return value

    return parse


def pattern(regex: str, what: str) -> Parser:
    compiled = re.compile(regex)

    def parse(value: Any) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise ValueError(f"must be {what}")
        return value

    return parse


def choice(*allowed: str) -> Parser:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return value

    return parse


def whole(low: int, high: int) -> Parser:
    def parse(value: Any) -> int:
        if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,12}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}")
        return value

    return parse


def real(value: Any) -> float:
    if isinstance(value, str) and re.fullmatch(r"-?[0-9.]{1,30}(e[+-]?[0-9]{1,3})?", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("must be a finite number")
    return float(value)


def yes_no(value: Any) -> int:
    if value not in ("0", "1"):
        raise ValueError("must be 0 or 1")
    return int(value)


RUN = pattern(r"[0-9a-f]{12}", "the id of a run, as /api/fleet gives it")
ROLLOUT = pattern(r"[0-9]{1,16}-[0-9]{1,16}-[0-9]{1,10}", "the id of a rollout: attempt-step-row")
STEP = whole(0, 10**9)
READING = text(200)
POINTS = whole(10, 2000)


# -- the table ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Route:
    """One route. Parameters are those of the query, or of a POST the fields of its JSON; unknown ones are refused."""

    method: Literal["GET", "POST"]
    path: str
    role: AccessRole
    handler: Callable[[ApiRequest], Any]
    params: Mapping[str, Parser] = field(default_factory=dict)
    required: frozenset[str] = frozenset()
    repeatable: frozenset[str] = frozenset()  # parameters that may be given more than once
    status: int = 200

    def parse_params(self, raw: Mapping[str, list[Any]]) -> dict[str, Any]:
        """The parsed parameters. Raises `RequestError` for unknown, missing or invalid ones."""
        for name in raw:
            if name not in self.params:
                raise RequestError(
                    400, f"{self.path} takes no such parameter; it takes: {', '.join(self.params) or '-'}"
                )
        params: dict[str, Any] = {}
        for name, values in raw.items():
            if len(values) > (MOST_NAMES if name in self.repeatable else 1):
                raise RequestError(400, f"{name} is given too often")
            try:
                parsed = [self.params[name](value) for value in values]
            except ValueError as error:
                raise RequestError(400, f"{name} {error}") from None
            params[name] = parsed if name in self.repeatable else parsed[0]
        if lacks := sorted(self.required - params.keys()):
            raise RequestError(400, f"{self.path} needs {', '.join(lacks)}")
        return params


RANGE: Mapping[str, Parser] = {"from": STEP, "to": STEP}
FILTERS: Mapping[str, Parser] = {
    **RANGE,
    "attempt": whole(0, 10**6),
    **{f"{name}_{end}": real for name in ("reward", "gold") for end in ("min", "max")},
    **dict.fromkeys(("length_min", "length_max"), whole(0, 10**9)),
    **dict.fromkeys(("labelled", "truncated", "flagged", "disagree"), yes_no),
    "phrase": text(200),
    "find": text(500),
    "sort": choice(*get_args(RolloutSort)),
    "order": choice(*get_args(SortOrder)),
}
CONTROL: Mapping[str, Parser] = {
    "run": RUN,
    "kind": choice(*get_args(ControlKind)),
    "target": text(300),
    "step": whole(-1, 10**9),
    "reason": text(TEXT_CHARACTERS),
    "nonce": pattern(r"[A-Za-z0-9_-]{16,64}", "16 to 64 letters and digits, new for every request"),
}
LABEL: Mapping[str, Parser] = {
    "task": pattern(r"[A-Za-z0-9_-]{1,64}", "the id of a task"),
    "answer": choice(*get_args(AnswerValue)),
    "milliseconds": whole(0, 10**9),
}


def _view_route(
    path: str, handler: Callable[[ApiRequest], Any], params: Mapping[str, Parser], *required: str, repeatable: str = ""
) -> Route:
    return Route(
        "GET",
        f"/api/{path}",
        "view",
        handler,
        params,
        frozenset(required),
        frozenset({repeatable}) if repeatable else frozenset(),
    )


ROUTES: tuple[Route, ...] = (
    Route("POST", "/api/login", "open", handlers.login, {"code": text(100)}, frozenset({"code"})),
    Route("GET", "/api/me", "open", handlers.me),
    _view_route(
        "fleet",
        handlers.fleet,
        {
            "find": text(300),
            "sort": choice(*get_args(FleetSort)),
            "order": choice(*get_args(SortOrder)),
            "group": text(100),
            "limit": whole(1, 1000),
            "pictures": yes_no,
        },
    ),
    _view_route("summary", handlers.summary, {"run": RUN, "since": real}, "run"),
    _view_route("plots", handlers.plots, {"run": RUN, **RANGE, "points": POINTS}, "run"),
    _view_route("geometry", handlers.geometry, {"run": RUN, **RANGE}, "run"),
    _view_route(
        "series",
        handlers.series,
        {"run": RUN, "name": READING, **RANGE, "points": POINTS},
        "run",
        "name",
        repeatable="name",
    ),
    _view_route("readings", handlers.readings, {"run": RUN}, "run"),
    _view_route(
        "rollouts", handlers.rollouts, {"run": RUN, **FILTERS, "after": text(300), "limit": whole(1, 100)}, "run"
    ),
    _view_route("rollout", handlers.rollout, {"run": RUN, "id": ROLLOUT}, "run", "id"),
    _view_route("group", handlers.group, {"run": RUN, "id": ROLLOUT, "find": text(500)}, "run", "id"),
    _view_route("members", handlers.members, {"run": RUN, "id": ROLLOUT, "find": text(500)}, "run", "id"),
    _view_route(
        "tokens", handlers.tokens, {"run": RUN, "id": ROLLOUT, "by": choice(*get_args(TokenColour))}, "run", "id", "by"
    ),
    _view_route("notes", handlers.notes, {"run": RUN, "target": ROLLOUT}, "run"),
    _view_route("phrases", handlers.phrases, {"run": RUN, "step": STEP}, "run"),
    _view_route("pinned", handlers.pinned, {"run": RUN}, "run"),
    _view_route("alarms", handlers.alarms, {"run": RUN}, "run"),
    _view_route("alarm", handlers.alarm, {"run": RUN, "id": text(300)}, "run", "id"),
    _view_route("actions", handlers.actions, {"run": RUN}, "run"),
    _view_route(
        "compare",
        handlers.compare,
        {"run": RUN, "x": choice(*get_args(CompareAxis)), "name": READING},
        "run",
        repeatable="run",
    ),
    _view_route("verifier", handlers.verifier, {"run": RUN}, "run"),
    _view_route("health", handlers.health, {"run": RUN}, "run"),
    _view_route("report", handlers.report, {"run": RUN, "redact": yes_no}, "run"),
    _view_route("stream", handlers.stream, {"run": RUN}),
    Route("GET", "/api/label/next", "label", handlers.label_next),
    Route("POST", "/api/label", "label", handlers.label, LABEL, frozenset(LABEL)),
    Route("POST", "/api/label/undo", "label", handlers.label_undo),
    Route("POST", "/api/control", "control", handlers.control, CONTROL, frozenset(CONTROL), status=202),
)
