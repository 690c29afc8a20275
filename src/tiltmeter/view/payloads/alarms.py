"""The alarms screen and the actions screen."""

from __future__ import annotations

from msgspec import Struct

from tiltmeter.view.payloads.overview import ActionRow, AlarmRow, Exemplar, Number
from tiltmeter.view.payloads.plots import Panel


class Alarms(Struct, frozen=True, kw_only=True):
    """GET /api/alarms?run"""

    rows: list[AlarmRow]
    promise: str  # the run-level bound, in words


class EvidenceCurve(Struct, frozen=True, kw_only=True):
    """The log odds of an alarm's test up to where it was raised."""

    labels: list[int]
    steps: list[int]
    odds: list[float]
    threshold: float
    raised: int  # index


class AlarmDetail(Struct, frozen=True, kw_only=True):
    """GET /api/alarm?run&id"""

    alarm: AlarmRow
    promise: str
    evidence: EvidenceCurve
    readings: Panel  # what it watches
    exemplars: list[Exemplar]


class KnobRow(Struct, frozen=True, kw_only=True):
    """A setting of the trainer that may be changed, with its value now."""

    name: str
    value: Number
    floor: Number
    ceiling: Number
    why: str


class Actions(Struct, frozen=True, kw_only=True):
    """GET /api/actions?run"""

    rows: list[ActionRow]  # newest first
    mode: str
    knobs: list[KnobRow]
    dry_run: list[str]  # what mode act would ask for now
