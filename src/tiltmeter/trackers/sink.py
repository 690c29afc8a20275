"""What a tracker is told of a run, and what a tracker must be able to take."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, Protocol

from tiltmeter.encode import log_line
from tiltmeter.errors import AttachError
from tiltmeter.verdict import State

PREFIX = "tiltmeter/"  # our numbers stand beside the trainer's own, and must never take the place of one
NAME = 200  # characters of a reading's name: reward functions and evaluations are named by users

Level = Literal["ERROR", "WARN"]


@dataclass(frozen=True, slots=True)
class Named:
    """A run as others know it. Trackers find it again by its id, people by its name; no path leaves the machine."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Point:
    """The readings that one line of the journal holds: numbers at a step, which a tracker draws beside the loss.

    >>> Point(3, 0, 12, 1.7e9, {"reward.mean": 0.5}).named()
    {'tiltmeter/reward.mean': 0.5}
    """

    seq: int  # place in the journal: what a sink has been told up to
    attempt: int
    step: int
    time: float
    values: Mapping[str, float]

    def named(self) -> dict[str, float]:
        return {f"{PREFIX}{log_line(name, NAME)}": value for name, value in self.values.items()}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alarm or a warning in words that say what to do, for somebody who is not looking. It carries no completion.

    `identity` is the same wherever and however often it is told: a receiver that has seen it may drop it.
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
    run: Named
    time: float
    evidence: tuple[str, ...] = ()  # ids of the rollouts that show it, as the page and `tiltmeter pin` know them
    covers: tuple[str, ...] = ()  # identities of earlier ones of this title, which are told with this one


@dataclass(frozen=True, slots=True)
class Standing:
    """How a run stands now: what belongs into a run's summary, and onto a wall of gauges."""

    state: State
    sentence: str
    step: int
    alarms: int
    warnings: int
    open: frozenset[str]  # identities of the alerts that hold now
    behind: int  # steps that are stored and not measured
    newest: int | None  # second in which the newest rollouts were written


class Sink(Protocol):
    """Where a run is told. Every method may raise: the same is then told again, later.

    `pushes`: an alert there disturbs somebody. Those keep a minute between two of one title, and a warning that was
    resolved before it could be told is left out. `remembers`: what it was told outlives this process.
    """

    pushes: bool
    remembers: bool

    def point(self, point: Point) -> None: ...

    def alert(self, alert: Alert) -> None: ...

    def standing(self, standing: Standing) -> None: ...

    def flush(self) -> None:
        """Return when what was told is out of our hands, as far as the tracker lets one know."""

    def close(self) -> None: ...


class RefusedError(Exception):
    """This one thing was not taken, and others may be: the next is tried at once."""


class NotNowError(Exception):
    """Nothing is taken now. `seconds`: when the receiver wants to be asked again, if it said."""

    def __init__(self, why: str, seconds: float = 0.0) -> None:
        super().__init__(why)
        self.seconds = seconds


def identity(run: Named, event: str) -> str:
    """The name of an alert for all time: of the run and of the event that raised it.

    >>> identity(Named("7cc90d", "tonight"), "alarm|0|gold.slope|ledger|down|66|-|0|fcb7f781")
    '71f947ff99248da15ccc628a49b69c87'
    """
    return hashlib.sha256(f"{run.id}\n{event}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def package(name: str, extra: str = "trackers") -> Any:
    """A tracker's package, or the line that installs it."""
    try:
        found: ModuleType | None = import_module(name)
    except ImportError as error:
        if error.name is not None and error.name.split(".")[0] != name:
            raise AttachError(f"{name} is installed but does not load: {log_line(str(error), 200)}") from error
        found = None
    # Trackers leave folders of their own name behind, and a folder without code imports as well.
    if found is None or found.__file__ is None:
        raise AttachError(f"{name} is not installed: pip install 'tiltmeter[{extra}]'")
    return found
