"""The protocol of a tracker sink, and the messages it receives: metric points, alerts and the run's status."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, Protocol, runtime_checkable

from tiltmeter.errors import AttachError
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.states import State

PREFIX = "tiltmeter/"  # keeps our metrics apart from the trainer's own
NAME = 200  # characters of a reading's name: reward functions and evaluations are named by users

Level = Literal["ERROR", "WARN"]


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """The id and name of a run, as trackers get them; no path leaves the machine."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The readings of one journal line: metrics at a step.

    >>> MetricPoint(3, 0, 12, 1.7e9, {"reward.mean": 0.5}).prefixed_values()
    {'tiltmeter/reward.mean': 0.5}
    """

    seq: int  # position in the journal
    attempt: int
    step: int
    time: float
    values: Mapping[str, float]

    def prefixed_values(self) -> dict[str, float]:
        return {f"{PREFIX}{log_line(name, NAME)}": value for name, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alarm or a warning as a message that says what to do. It contains no completion.

    `alert_identity` is the same wherever and however often it is sent, so that a receiver can drop duplicates.
    """

    identity: str
    event: str  # of the journal
    title: str
    text: str
    level: Level
    attempt: int
    step: int
    onset: int
    onset_low: int
    onset_high: int
    detector: str
    reading: str
    run: RunIdentity
    time: float
    evidence: tuple[str, ...] = ()  # ids of the rollouts that show it, as the page and `tiltmeter pin` know them
    picture: str = ""  # proxy and gold as SVG, with an alarm; no text of a rollout is in it
    png: bytes = b""  # the same as PNG, for those who show no SVG; empty without Pillow
    covers: tuple[str, ...] = ()  # identities of earlier alerts of this title, which this one replaces


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The current status of a run, for the summary of a tracker's run and for gauges."""

    state: State
    sentence: str
    step: int
    alarms: int
    warnings: int
    open: frozenset[str]  # identities of the alerts that hold now
    behind: int  # steps that are stored and not measured
    newest: int | None  # second in which the newest rollouts were written
    agreement: float | None = None  # how often the reward prefers the better answer
    level: float | None = None  # gold now less its best
    findings: tuple[str, ...] = ()  # that hold now, the most likely first
    advice: str = ""  # whether to continue, and which checkpoint to keep


@dataclass(frozen=True, slots=True)
class Evidence:
    """What shows an alarm: the picture of proxy and gold, and completions. Only the trainer's own run gets it, because
    completions are nobody else's business."""

    step: int
    sentence: str  # what the picture shows
    picture: bytes  # a PNG; empty where none can be drawn
    rows: tuple[tuple[str, float | None, float | None, str], ...]  # by EVIDENCE_COLUMNS; texts are made visible


EVIDENCE_COLUMNS = ("rollout", "reward", "gold", "completion")


class TrackerSink(Protocol):
    """A target that a run is sent to. Every method may raise: the call is then repeated later.

    `pushes`: alerts notify people. Such a sink gets at most one alert a minute for each title, and no warning that was
    resolved meanwhile. `remembers`: what it received outlives this process.
    """

    pushes: bool
    remembers: bool

    def log_point(self, point: MetricPoint) -> None: ...

    def send_alert(self, alert: Alert) -> None: ...

    def set_status(self, status: RunStatus) -> None: ...

    def flush(self) -> None:
        """Return when everything is handed over to the tracker, as far as it can tell."""

    def close(self) -> None: ...


@runtime_checkable
class EvidenceSink(TrackerSink, Protocol):
    """A sink that is the trainer's own run. It is the trainer's: `close` leaves it open."""

    def show_evidence(self, evidence: Evidence) -> None: ...


class RefusedError(Exception):
    """The sink refused this message; others may succeed and are tried at once."""


class RetryLaterError(Exception):
    """The sink accepts nothing now. `seconds`: the receiver's Retry-After, if it sent one."""

    def __init__(self, why: str, seconds: float = 0.0) -> None:
        super().__init__(why)
        self.seconds = seconds


def alert_identity(run: RunIdentity, event: str) -> str:
    """The permanent id of an alert, from the run and the event that raised it.

    >>> alert_identity(RunIdentity("7cc90d", "tonight"), "alarm|0|gold.slope|gold_loss|down|66|-|0|fcb7f781")
    '0851040cbc1e8db63462817dbc74378a'
    """
    return hashlib.sha256(f"{run.id}\n{event}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def import_package(name: str, extra: str = "trackers") -> Any:
    """Import a tracker's package; the error names the command that installs it."""
    try:
        module: ModuleType | None = import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != name:
            raise AttachError(f"{name} is installed but does not load: {log_line(str(error), 200)}") from error
        module = None
    # Trackers create folders of their own name, and Python imports a folder without code too.
    if module is None or module.__file__ is None:
        raise AttachError(f"{name} is not installed: pip install 'tiltmeter[{extra}]'")
    return module
