"""What each kind of event holds. `payload_of` gives an event's data as one of these, so readers match on types.

Keys and values are those of the JSON in the journal; a field that older or other events lack has a default. Keys of a
newer version are ignored here, and stay in `Event.data`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, convert, field, to_builtins

from tiltmeter.data.records import Action, Alarm, Fault, Finding

#: A reading: value, n, standard error, then, where there are any, what is bet on, what it was compared with, the
#: prompts that the bets are about, and whose they are.
PackedReading: TypeAlias = list[Any]
MOST_LABELS = 1 << 40  # of a step
MOST_RANKS = 65_536  # of an attempt: a number from an untrusted file must not fill the memory
FALL = 0.03  # of gold below its peak, beyond chance, that counts as a fall


class PackedRow(Struct, frozen=True, array_like=True):
    """What a `PackedReading` must be."""

    value: float
    n: int
    stderr: float | None = None
    values: tuple[float, ...] = ()
    against: str = ""
    keys: tuple[int, ...] = ()
    slices: tuple[tuple[str, int], ...] = ()


class AttemptFacts(Struct, frozen=True):
    """What `attempt.json` and the event about it must be, where they have these keys; they may have more."""

    parent: Annotated[int, Meta(ge=0)] | None = None
    resume_step: int | None = None
    launch: str = ""
    ranks: Annotated[int, Meta(ge=1, le=MOST_RANKS)] = 1
    started: float = 0.0


class Counts(Struct, frozen=True, kw_only=True):
    """Batches that the ranks have seen, and by rank those that were thinned, dropped, not synced, and why."""

    seen: int
    lost: dict[str, list[Any]]


class SettingsInForce(Struct, frozen=True, kw_only=True):
    """The settings that measure from here on: their digest, what each detector promises, and the source of gold."""

    config: str = ""
    detectors: list[dict[str, Any]] = []
    gold: dict[str, Any] | None = None


class AttemptOpen(SettingsInForce, frozen=True, kw_only=True, tag="open", tag_field="state"):
    """A trainer started, or went on from an earlier attempt."""

    facts: dict[str, Any]


class AttemptEnd(Counts, frozen=True, kw_only=True, tag="end", tag_field="state"):
    """Every rank of an attempt has closed."""


class StepReadings(Struct, frozen=True, kw_only=True):
    """The readings of a step, by name, in the order in which they were made."""

    measured: dict[str, PackedReading]
    derived: dict[str, PackedReading] = {}


class LabelCounts(Struct, frozen=True, kw_only=True):
    """What the labels of a step say of their source (`stats.gold_counts`). A group is one prompt with two labels."""

    labels: Annotated[int, Meta(ge=0, le=MOST_LABELS)] = 0
    low: float = 0.0  # the smallest label
    high: float = 0.0
    groups: Annotated[int, Meta(ge=0, le=MOST_LABELS)] = 0  # whose answers differ
    differ: Annotated[int, Meta(ge=0, le=MOST_LABELS)] = 0  # of those, groups in which gold differs
    apart: Annotated[int, Meta(ge=0, le=MOST_LABELS)] = 0  # neighbours among those whose smallest labels differ
    first: float | None = None  # the smallest label of the first and of the last of those
    last: float | None = None
    free: Annotated[int, Meta(ge=0, le=MOST_LABELS)] = 0  # labels of those, less one a group
    gold_squares: float = 0.0  # inside the groups
    reward_squares: float = 0.0
    products: float = 0.0
    reward: float = 0.0  # its mean there
    absent: Annotated[int, Meta(ge=0, le=MOST_LABELS)] = 0  # labels that did not come, of groups that have others
    absent_pay: float = 0.0  # their rewards, standardised inside their groups
    absent_noise: float = 0.0  # variance of that, had chance chosen them
    absent_most: float = 0.0  # that one group could add


class StepDone(Counts, frozen=True, kw_only=True):
    """A step was measured. Fields that are unset belong to a step of which no file could be read, or without gold."""

    ranks: list[list[int]]  # that were measured, as ranges
    sha256: str
    missing: list[list[int]]
    unreadable: list[list[int]]
    rows: int
    written: float | UnsetType = UNSET
    labels: int | UnsetType = UNSET
    unscored: dict[str, dict[str, int]] | UnsetType = UNSET
    gold_differs: bool | UnsetType = UNSET
    segment: int | UnsetType = UNSET
    fingerprint: str | UnsetType = UNSET
    asked: int | UnsetType = UNSET
    requests: str | UnsetType = UNSET  # the digest of what was asked
    boost: bool | UnsetType = UNSET
    behind: bool | UnsetType = UNSET  # nothing was asked, because the gold source was busy with earlier steps
    behaviours: dict[str, list[list[int]]] | UnsetType = UNSET  # rows that could be looked at, and rows without it
    source: LabelCounts | UnsetType = UNSET  # where the trainer handed over labels
    texts: str | UnsetType = UNSET  # a digest of all prompts, answers and rewards


class ColumnTrial(Struct, frozen=True, kw_only=True):
    """Whether the first labels allow that the column which gold took by itself holds right answers."""

    source: str  # identity of the source
    labels: int = 0
    prompts: int = 0
    different: int = 0  # prompts inside which gold differs
    agree: int = 0  # prompts inside which the reward prefers what gold does
    against: int = 0
    worth: float = 0.0  # sum of the mean gold of prompts
    state: str = "open"  # "taken" or "refused" in the end
    why: str = ""  # it was refused


class ProbeLabels(Struct, frozen=True):
    """Labels of texts whose worth is known, for one prompt: its right answer and a wrong one in as many forms."""

    right: list[float | None]
    wrong: list[float | None]
    empty: list[float | None] = []
    reads: bool = False  # the source is a check that is given the right answer


class LabelsClosed(StepReadings, frozen=True, kw_only=True):
    """The labels of a step are complete."""

    at: list[int]  # attempt and step measured last
    asked: int
    answered: int
    missing: int
    why: str
    gold_differs: bool
    labels: int  # bought so far
    whole: bool = False  # every rollout of the step was asked about
    canaries_pass: bool = False
    trial: ColumnTrial | UnsetType = UNSET  # of a column that gold took by itself, until it is decided
    source: LabelCounts | UnsetType = UNSET
    again: list[tuple[float, float | None]] | UnsetType = UNSET  # answers asked about again: label at first, and now
    probes: list[ProbeLabels] | UnsetType = UNSET
    unprobed: str | UnsetType = UNSET  # why no known answer can be asked about, once


class Note(Struct, frozen=True, kw_only=True, tag_field="note"):
    """What is neither a measurement nor a conclusion."""


class AbsentColumns(Note, frozen=True, kw_only=True, tag="absent"):
    """Instruments that cannot measure, and the columns they lack."""

    absent: dict[str, str]


class SegmentBegan(Note, frozen=True, kw_only=True, tag="segment"):
    """The reward functions changed."""

    segment: int
    before: str
    after: str


class BehaviourSeen(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What many completions of a step do and few did at the start. A model wrote features and excerpt: escape them."""

    features: list[str]  # the telling ones: phrases in quotes, patterns in words
    share: float  # of completions
    before: float  # at the start
    paid_with: float | None = None
    paid_without: float | None = None
    gold_with: float | None = None
    gold_without: float | None = None
    excerpt: str = ""
    rows: list[int] = []  # the best paid ones
    others: list[int] = []  # rows of the same prompts without it
    number: int = 0  # of the behaviour in this run; 0: not followed yet
    first: int = -1  # step at which it was first seen
    times: int = 0  # steps at which it was seen


class BehavioursRead(Note, frozen=True, kw_only=True, tag="behaviours"):
    """The behaviours of a step."""

    seen: list[BehaviourSeen]


class BaselineChosen(Note, frozen=True, kw_only=True, tag="baseline"):
    """What steps are compared with from here on."""

    source: str
    rows: int = 0
    absent: dict[str, str] = {}


class KnobsOffered(Note, frozen=True, kw_only=True, tag="offer"):
    """What this attempt's trainer allows to be changed."""

    offer: dict[str, Any]


class GoldShareChosen(Note, frozen=True, kw_only=True, tag="gold_share"):
    """The share of rollouts to label was chosen by what a label costs."""

    share: float
    seconds: float  # a label
    why: str


class OnsetEstimated(Note, frozen=True, kw_only=True, tag="onset"):
    """Labels of the past, bought after an alarm at this step: when gold was highest; or why that cannot be said."""

    requested: int
    answered: int
    requests: str  # the digest of what was asked
    why: str = ""  # empty: it can be said
    peak: int = -1
    low: int = -1  # of a 90 % interval
    high: int = -1
    r2: float = 0.0
    steps: list[int] = []
    gold: list[float] = []  # the fitted curve, by step
    stderr: float = 0.0
    label_steps: list[int] = []
    labels: list[float] = []

    @property
    def has_fallen(self) -> bool:
        """Whether the curve ends below its peak by more than chance: only then is the peak an onset of anything."""
        if self.why or not self.gold:
            return False
        return max(self.gold) - self.gold[-1] > FALL + 2.83 * self.stderr  # twice the error of a difference


class OutcomeJudged(Note, frozen=True, kw_only=True, tag="outcome"):
    """What followed an action."""

    action: str
    verdict: str
    sentence: str


class MessageRead(Note, frozen=True, kw_only=True):
    """A file that came to the monitor, and what it said."""

    file: str
    message: dict[str, Any] = field(name="told")


class ReceiptRead(MessageRead, frozen=True, kw_only=True, tag="receipt"):
    """A rank applied or refused a request."""


class DecisionRead(MessageRead, frozen=True, kw_only=True, tag="decision"):
    """A person decided about a proposal, or wrote a note about an alarm."""


class EvaluationRead(Note, frozen=True, kw_only=True, tag="evaluation"):
    """Somebody declared an evaluation."""

    file: str
    name: str
    value: float
    n: int
    env: str | UnsetType = UNSET  # the slice that it is about
    judge: str | UnsetType = UNSET  # whose scores they are, where checkpoints were asked
    missed: int | UnsetType = UNSET  # checkpoints before this one that were gone before they could be asked
    unknown: int | UnsetType = UNSET  # further answers, whose score did not come
    at: list[int] = []
    measured: dict[str, PackedReading] = {}
    derived: dict[str, PackedReading] = {}


class ExperimentRead(Note, frozen=True, kw_only=True, tag="experiment"):
    """An experiment on the reward function has ended."""

    attempt: int
    step: int
    failure: str
    sentence: str = ""


class SettingsChanged(Note, frozen=True, kw_only=True, tag="config"):
    """Other settings, or another version, measure from here on."""

    config: str = ""
    detectors: list[dict[str, Any]] = []
    gold: dict[str, Any] | None = None


AnyNote: TypeAlias = (
    AbsentColumns | SegmentBegan | BehavioursRead | BaselineChosen | KnobsOffered | GoldShareChosen | OnsetEstimated
    | OutcomeJudged | ReceiptRead | DecisionRead | EvaluationRead | ExperimentRead | SettingsChanged
)  # fmt: skip
Payload: TypeAlias = (
    AttemptOpen | AttemptEnd | StepReadings | StepDone | LabelsClosed | AnyNote | Alarm | Finding | Action | Fault
)
_STRUCTS: dict[str, Any] = {
    "attempt": AttemptOpen | AttemptEnd,
    "reading": StepReadings,
    "step_done": StepDone,
    "labels_closed": LabelsClosed,
}
_NOTES: dict[Any, type[Note]] = {note.__struct_config__.tag: note for note in get_args(AnyNote)}
_RECORDS: dict[str, type[Any]] = {"alarm": Alarm, "fault": Fault, "finding": Finding, "action": Action}


def parse_payload(kind: str, data: Mapping[str, Any]) -> Payload | None:
    """An event's data as its type; None for a kind or a note that this version does not know.

    Raises `ValueError` if the data is not what its kind says: an alarm that cannot be read must not be passed over.

    >>> parse_payload("note", {"note": "absent", "absent": {"entropy": "logprobs"}})
    AbsentColumns(absent={'entropy': 'logprobs'})
    >>> parse_payload("note", {"note": "of a newer version"}) is None
    True
    """
    record = _RECORDS.get(kind)
    note = data.get("note", "")
    if kind == "note" and not isinstance(note, str):
        raise ValueError("a note whose kind is no text")
    struct: Any = _NOTES.get(note) if kind == "note" else _STRUCTS.get(kind)
    payload: Payload | None = None
    try:
        if record is not None:
            payload = convert({name: restore_number(value) for name, value in data.items()}, record)
        elif struct is not None:
            payload = convert(data, struct)
    except (ValueError, TypeError) as error:
        raise ValueError(f"an event of kind {kind}: {error}") from error
    return payload


def check_payload(kind: str, data: Mapping[str, Any]) -> None:
    """Raise `ValueError` unless everything that a reader takes from an event has its type."""
    payload = parse_payload(kind, data)
    if isinstance(payload, (StepReadings, EvaluationRead)):
        convert((payload.measured, payload.derived), tuple[dict[str, PackedRow], dict[str, PackedRow]])
    if isinstance(payload, AttemptOpen):
        convert(payload.facts, AttemptFacts)


def restore_number(value: Any) -> Any:
    """A number that is not finite, which stands in the journal as its flag."""
    return float(value["flag"]) if isinstance(value, dict) and value.keys() == {"value", "flag"} else value


def to_data(payload: Struct) -> dict[str, Any]:
    """The JSON of a payload; fields that are unset are left out."""
    data: dict[str, Any] = to_builtins(payload)
    return data
