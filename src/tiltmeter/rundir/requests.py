"""Control files: signed requests from the monitor or a person to the trainer. Its receipts are in `receipts.py`.

Write access to a run directory must not be enough to change training. A request is followed only if it is signed with a
token stored outside the directory, names the current attempt, is new and has not expired; its knob must be in the fixed
list and its value between the floor and the ceiling set at attach.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple, get_args

from msgspec import Struct, convert

from tiltmeter.data.records import Action
from tiltmeter.errors import StoreError
from tiltmeter.rundir.payloads import restore_number
from tiltmeter.rundir.remote.inbox import leave_file
from tiltmeter.rundir.sidecar import read_sidecar, reason, refuse, write_sidecar
from tiltmeter.rundir.signing import is_signed, make_control_folder, read_new_files, signature
from tiltmeter.rundir.store import RunDirectory

Mode = Literal["observe", "advise", "act"]
Kind = Literal["apply", "undo", "approve", "reject", "note"]
Who = Literal["monitor", "operator"]

#: Knobs on rollouts, which a trainer offers only where the user named what flags, and words or a column.
ROLLOUT_KNOBS = ("screen", "quarantine", "inoculate", "penalty")
KNOBS = ("beta", "entropy_coef", "learning_rate", "reward_weight", "stop", "rollback", "gold_share", *ROLLOUT_KNOBS)
WEIGHT = "reward_weight."  # followed by the name of the reward function
QUARANTINE = "quarantine."  # followed by the name of the slice
#: Settings that a rollback may change as well: they apply from the first step after the checkpoint is loaded.
SETTINGS = ("beta", "entropy_coef", "learning_rate", "reward_weight")
ENDED = "ended"  # the end of the id of a receipt that nobody asked for: the trainer put a knob back itself
LONGEST_AUTHOR = 64
CHANGES: tuple[Kind, ...] = ("apply", "approve", "undo")  # requests that change a knob
#: The kinds of request that are followed, by mode.
ALLOWED_KINDS: Mapping[str, tuple[Kind, ...]] = {
    "observe": ("note",),
    "advise": ("approve", "undo", "reject", "note"),
    "act": get_args(Kind),
}
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


@dataclass(frozen=True, slots=True)
class Knob:
    """A number of the trainer that may be changed while it runs, and how far.

    A `why` that is not empty says why this one cannot be changed live, and what to do instead. The trainer keeps floor
    and ceiling from attach on and checks them itself: no request can exceed them.

    >>> Knob("beta", 0.04, 1e-6, 1.0).clip(3.0)
    1.0
    """

    name: str
    value: float
    floor: float
    ceiling: float
    why: str = ""

    def __post_init__(self) -> None:
        if not is_knob(self.name):
            raise ValueError(f"{self.name!r} is no knob; there are {', '.join(KNOBS)}, the weight as {WEIGHT}NAME")
        if not math.isfinite(self.value) or not self.floor <= self.ceiling:
            raise ValueError(f"{self.name} is {self.value} in [{self.floor}, {self.ceiling}]: give it finite numbers")

    def clip(self, value: float) -> float:
        return min(max(value, self.floor), self.ceiling)


class ControlOffer(NamedTuple):
    """What one attempt's trainer allows to be changed: the mode, its knobs at attach, and the target KL."""

    mode: Mode
    knobs: dict[str, Knob]
    target_kl: float | None = None  # nats per completion

    def facts(self) -> dict[str, Any]:
        """The offer as JSON; a ceiling of infinity, which JSON does not have, as null."""
        knobs = [asdict(knob) | {"ceiling": _finite(knob.ceiling)} for knob in self.knobs.values()]
        return {"mode": self.mode, "knobs": knobs, "target_kl": self.target_kl}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> ControlOffer:
        """The inverse of `facts`.

        >>> offer = ControlOffer("act", {"stop": Knob("stop", 0.0, 0.0, 1.0)}, 6.0)
        >>> ControlOffer.of(offer.facts()) == offer
        True
        """
        return convert(facts, StoredOffer).offer()


class StoredKnob(Struct, frozen=True):
    """A knob in `control/knobs-N.json`; no ceiling is none."""

    name: str
    value: float
    floor: float
    ceiling: float | None
    why: str = ""


class StoredOffer(Struct, frozen=True):
    """`control/knobs-N.json`."""

    mode: Mode
    knobs: list[StoredKnob]
    target_kl: float | None

    def offer(self) -> ControlOffer:
        """Raises `ValueError` for a knob that is none."""
        knobs = [
            Knob(row.name, row.value, row.floor, math.inf if row.ceiling is None else row.ceiling, row.why)
            for row in self.knobs
        ]
        return ControlOffer(self.mode, {knob.name: knob for knob in knobs}, self.target_kl)


class SignedRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """`control/requests/ID.json`. The request is read only once its signature is checked."""

    request: dict[str, Any]
    signature: str
    signed: dict[str, Any] = {}  # by the person who left it in an inbox; checked when it was taken from there


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request to the trainer: set a knob to a value.

    The value is absolute, never relative, so applying a request twice changes nothing more. A rollback has its
    checkpoint's step as value and names a setting to change as well: without one, training would repeat the same steps
    bit for bit, so that is refused.

    >>> ControlRequest("0-120-beta.apply", "0-120-beta", 0, "beta", 0.08, "apply", "monitor", expires_step=170).value
    0.08
    """

    id: str
    action: str
    attempt: int
    knob: str
    value: float
    kind: Kind
    who: Who
    expires_step: int | None = None
    expires_time: float | None = None  # seconds since 1970, by the clock of the machine that trains
    with_knob: str | None = None
    with_value: float | None = None
    asked: float = 0.0  # seconds since 1970; put in by `write_request`
    text: str = ""  # of a note
    author: str = ""  # the account of the person, where a server has several

    def __post_init__(self) -> None:
        _check_request(self)

    def facts(self) -> dict[str, Any]:
        """The request as JSON. An author who has no name is left out: earlier versions know no such key."""
        return {name: value for name, value in asdict(self).items() if name != "author" or value}


def request_for(
    action: Action,
    kind: Kind,
    who: Who,
    *,
    expires_step: int | None = None,
    expires_time: float | None = None,
    with_knob: str | None = None,
    with_value: float | None = None,
    author: str = "",
) -> ControlRequest:
    """The request for an action; an undo asks for the previous value. One request of each kind per action.

    >>> done = Action("0-120-beta", 0, 120, "reward_hacking", "beta", 0.04, 0.08, "", "applied")
    >>> undo = request_for(done, "undo", "operator", expires_step=200)
    >>> undo.id, undo.value
    ('0-120-beta.undo', 0.04)
    """
    value = action.before if kind == "undo" else action.after
    return ControlRequest(
        f"{action.id}.{kind}", action.id, action.attempt, action.knob, value, kind, who,
        expires_step, expires_time, with_knob, with_value, author=author,
    )  # fmt: skip


class Refusal(NamedTuple):
    """A file that is not followed, and why. `request` is set if its signature is valid: it then gets a receipt."""

    file: str
    why: str
    request: ControlRequest | None = None

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one rank did about a request: the knob as it was before, and as it was read back afterwards.

    >>> Receipt("0-120-beta.apply", 0, "applied", "beta", 0.04, 0.08, 123).file
    '0-120-beta.apply-0.json'
    """

    id: str  # of the request
    rank: int
    state: Literal["applied", "refused"]
    knob: str
    before: float
    after: float
    step: int  # after which it holds
    why: str = ""

    @property
    def file(self) -> str:
        return f"{self.id}-{self.rank}.json"


def parse_receipt(message: Mapping[str, Any]) -> Receipt:
    """A receipt as the journal has it. Raises `ValueError`."""
    return convert({name: restore_number(value) for name, value in message.items()}, Receipt)


def is_knob(name: str) -> bool:
    """
    >>> [is_knob(name) for name in ("beta", "reward_weight.style", "reward_weight.", "temperature")]
    [True, True, False, False]
    """
    for prefix in (WEIGHT, QUARANTINE):
        if name.startswith(prefix):
            return len(prefix) < len(name) <= 200
    return name in KNOBS and name not in ("reward_weight", "quarantine")


def publish_knobs(
    run: RunDirectory, attempt: int, mode: Mode, knobs: Mapping[str, Knob], target_kl: float | None = None
) -> None:
    """Publish, once per attempt, the knobs and their limits. For readers only: the trainer keeps its own copy."""
    facts = ControlOffer(mode, dict(knobs), target_kl).facts()
    write_sidecar(make_control_folder(run) / f"knobs-{attempt}.json", facts, indent=1)


def read_knobs(run: RunDirectory, attempt: int) -> ControlOffer:
    """What this attempt's trainer has published. Raises `StoreError` if it has not, or it cannot be read."""
    path = run.path / "control" / f"knobs-{attempt}.json"
    try:
        return read_sidecar(path, StoredOffer).offer()
    except ValueError as error:
        raise refuse(path, error) from error
    except StoreError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            message = f"attempt {attempt} of {run.path} was not attached to a trainer that can be changed"
            raise StoreError(message) from None
        raise


def write_request(run: RunDirectory, request: ControlRequest, token: bytes) -> None:
    """Write a signed request, which the trainer reads at the end of its step. Raises `FileExistsError` if it exists."""
    facts = replace(request, asked=request.asked or time.time()).facts()
    signed = {"request": facts, "signature": signature(facts, token)}
    leave_file(run, ("control", "requests"), f"{request.id}.json", signed)


def read_requests(
    run: RunDirectory,
    seen_names: set[str],
    token: bytes,
    *,
    attempt: int,
    step: int,
    mode: Mode | None = None,
    knobs: Mapping[str, Knob] | None = None,
    kinds: Collection[str] = CHANGES,
    now: float | None = None,
) -> tuple[list[ControlRequest], list[Refusal]]:
    """New requests that may be followed, in the order they were written, and those that are refused.

    Never raises for a file's content. Each request is returned once: its name is added to `seen_names`. `mode` is the
    mode at attach (default: the published one); with `knobs`, floors and ceilings are checked too. Requests of other
    `kinds` are skipped, for another reader: a trainer wants `CHANGES`, a monitor all.
    """
    good: list[ControlRequest] = []
    now = time.time() if now is None else now
    files, unreadable = read_new_files(run.path, "requests", SignedRequest, seen_names)
    refusals = [refuse_control_file(name, why, seen_names) for name, why in unreadable.items()]
    for name, signed in files.items():
        request: ControlRequest | None = None
        seen_names.add(name.removesuffix(".json"))
        try:
            request = _parse_signed(name, signed, token)
            if request.kind not in kinds:
                continue
            mode = read_knobs(run, attempt).mode if mode is None else mode
            if why := refusal_reason(request, attempt=attempt, step=step, mode=mode, knobs=knobs, now=now):
                raise ValueError(why)
            good.append(request)
        except (ValueError, RecursionError, StoreError) as error:
            refusals.append(refuse_control_file(name, reason(error), seen_names, request))
    return sorted(good, key=lambda request: (request.asked, request.id)), refusals


def refusal_reason(
    request: ControlRequest, *, attempt: int, step: int, mode: Mode, knobs: Mapping[str, Knob] | None, now: float
) -> str:
    """Why an authentic request is not followed; empty if it may be."""
    if request.attempt != attempt:
        return f"stale: it is meant for attempt {request.attempt}, this is {attempt}"
    if request.expires_step is not None and step > request.expires_step:
        return f"stale: it was good until step {request.expires_step}, this is step {step}"
    if request.expires_time is not None and now > request.expires_time:
        return "stale: its time is over"
    if request.kind not in ALLOWED_KINDS[mode]:
        return f"the trainer was attached with mode={mode!r}, which hears no request to {request.kind}"
    if knobs is None or request.kind not in CHANGES:
        return ""
    if request.knob == "rollback":
        return _knob_refusal(knobs, request.knob, request.value) or _knob_refusal(
            knobs, request.with_knob, request.with_value
        )
    return _knob_refusal(knobs, request.knob, request.value)


def _knob_refusal(knobs: Mapping[str, Knob], name: str | None, value: float | None) -> str:
    knob = None if name is None else knobs.get(name)
    if knob is None or value is None:
        return f"this trainer has no knob {name}"
    if knob.why:
        return f"{name} cannot be changed: {knob.why}"
    if not knob.floor <= value <= knob.ceiling:
        return f"{name} = {value:g} is outside [{knob.floor:g}, {knob.ceiling:g}], fixed at attach"
    return ""


def _check_request(request: ControlRequest) -> None:
    """Raise `ValueError` for a request that cannot be followed."""
    numbers = [request.value, request.asked, *(n for n in (request.with_value, request.expires_time) if n is not None)]
    if not all(map(math.isfinite, numbers)):
        raise ValueError("its numbers must be finite")
    if not _ID.fullmatch(request.id):
        raise ValueError("malformed: its id has other characters than letters, digits and _.-")
    if len(request.author) > LONGEST_AUTHOR:
        raise ValueError(f"malformed: its author has more than {LONGEST_AUTHOR} characters")
    if (request.kind == "apply") != (request.who == "monitor"):
        raise ValueError("the monitor applies; an operator approves, rejects, undoes or leaves a note")
    if request.expires_step is None and request.expires_time is None:
        raise ValueError("it never expires: give expires_step or expires_time")
    if request.kind != "note" and not is_knob(request.knob):
        raise ValueError(f"{request.knob!r} is no knob; there are {', '.join(KNOBS)}")
    if request.kind == "undo" and request.knob in ("stop", "rollback"):
        raise ValueError(f"a {request.knob} cannot be undone from here: start training again from the checkpoint")
    if request.kind != "note" and request.id != f"{request.action}.{request.kind}":
        raise ValueError("its id must be that of its action and its kind")
    back = request.knob == "rollback"
    if back and request.kind in CHANGES and not _is_setting(request.with_knob, request.with_value):
        raise ValueError("going back without a change repeats the same steps: name with_knob and with_value")
    if not back and (request.with_knob is not None or request.with_value is not None):
        raise ValueError("only a rollback changes a second setting")


def _is_setting(name: object, value: float | None) -> bool:
    return isinstance(name, str) and value is not None and is_knob(name) and name.split(".")[0] in SETTINGS


def _parse_signed(name: str, signed: SignedRequest, token: bytes) -> ControlRequest:
    """The request in a file; raises `ValueError` if it is malformed, not signed, or its id is not the file's name."""
    if {*signed.request, "author"} != {field.name for field in fields(ControlRequest)}:
        raise ValueError("malformed: it has other keys than a request has")
    if not is_signed(signed.request, signed.signature, token):
        raise ValueError("not signed with this run's token")
    if f"{signed.request['id']}.json" != name:
        raise ValueError("replayed: it stands under another name than its own")
    return convert(signed.request, ControlRequest)


def refuse_control_file(name: str, why: str, seen_names: set[str], request: ControlRequest | None = None) -> Refusal:
    seen_names.add(name.removesuffix(".json"))
    return Refusal(ascii(name)[1:-1][:80], why, request)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
