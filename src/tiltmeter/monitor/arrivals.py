"""The inputs of the monitor loop. What arrives is made an input by reading its files; the state then applies it.

An `Arrival` says that something is there: the files of a step, the labels of a step, a reply. Three kinds are read from
files first: `StepReady` becomes `StepMeasured`, `LabelsComplete` `LabelsSettled` and `PastLabelled` `PastEstimated`.
All others are inputs as they are. A restart takes inputs from the journal, where nothing has to be measured again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from tiltmeter.data.records import Fault, Reading, RolloutBatch
from tiltmeter.monitor.panel import InstrumentResult
from tiltmeter.rundir.evaluations import Evaluation
from tiltmeter.rundir.payloads import BehaviourSeen, OnsetEstimated, StepDone
from tiltmeter.rundir.requests import ControlRequest, Receipt
from tiltmeter.rundir.store import StepFile

#: Values of `Fault.part` for problems with files. Replay takes them from the journal: the files may have changed since.
FILE_PARTS = ("store", "file", "label", "control")
#: Returns the rollouts of a step, read again if they are not in memory.
Rollouts = Callable[[], RolloutBatch]


@dataclass(frozen=True, slots=True)
class AttemptOpened:
    """A trainer started, or resumed: a new attempt."""

    attempt: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepReady:
    """The files of one step, to be measured together."""

    attempt: int
    step: int
    files: tuple[StepFile, ...]
    missing: tuple[int, ...]  # ranks
    sha256: str | None = None  # combined hash of the files, if a journal recorded it
    unreadable: tuple[int, ...] = ()  # ranks that could not be read, if a journal recorded it


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """Every rank of an attempt has closed; batches seen and lost, as `count_losses` gives them."""

    attempt: int
    step: int
    counts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LabelsComplete:
    """Every label requested for a step was answered or has timed out: its labels can be read from the files."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class PastLabelled:
    """Every label of the past that was requested after an alarm at this step was answered or has timed out."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class PastEstimated:
    """What the labels of the past say."""

    attempt: int
    step: int
    onset: OnsetEstimated


@dataclass(frozen=True, slots=True)
class EvaluationDeclared:
    """Somebody declared an evaluation."""

    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class ControlReply:
    """A rank of the trainer applied or refused a request, or a person decided about a proposal."""

    message: Receipt | ControlRequest


@dataclass(frozen=True, slots=True)
class ExperimentDone:
    """An experiment on the user's reward function has ended."""

    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FileFault:
    """A problem with the files themselves."""

    fault: Fault


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """What the journal has of a step beyond its readings; a restart goes by this and not by its own conclusions."""

    seq: int  # of the step's last event
    faults: tuple[Fault, ...]  # of the panel
    advice_failed: bool
    baseline: str  # the source that was written down at this step; empty if none was
    reference_failed: bool


@dataclass(frozen=True, slots=True)
class StepMeasured:
    """A step was measured: now, or, with `recorded`, before a restart."""

    attempt: int
    step: int
    done: StepDone  # without what follows from the run's past: segment and label requests, unless it is recorded
    answers: tuple[InstrumentResult, ...] | None  # None: nothing could be read
    rollouts: Rollouts | None
    absent: Mapping[str, str] | None = None  # columns that instruments would need, by instrument
    behaviours: tuple[BehaviourSeen, ...] = ()  # as the step alone shows them, or as they were recorded
    recorded: RecordedStep | None = None


@dataclass(frozen=True, slots=True)
class LabelsSettled:
    """The labels of a step, as readings, and the facts about them."""

    attempt: int
    step: int
    readings: tuple[Reading, ...]
    facts: Mapping[str, Any]


Arrival: TypeAlias = (
    AttemptOpened
    | StepReady
    | AttemptEnded
    | LabelsComplete
    | PastLabelled
    | EvaluationDeclared
    | ControlReply
    | ExperimentDone
    | FileFault
)
Input: TypeAlias = (
    AttemptOpened
    | StepMeasured
    | AttemptEnded
    | LabelsSettled
    | PastEstimated
    | EvaluationDeclared
    | ControlReply
    | ExperimentDone
    | FileFault
)
