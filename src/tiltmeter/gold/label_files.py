"""Label requests and labels on disk: one request file per step, written first, and one file per label.

A file is complete or absent and is never replaced, so the first label counts. A label names its request by a hash, so a
label that was written before the request does not count. These files hold row numbers and no text of the policy.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from tiltmeter.errors import StoreError
from tiltmeter.gold.sampler import Bet, Row
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.run_path import entries, exists, make_folder, read_file
from tiltmeter.rundir.sidecar import (
    HOSTILE,
    Count,
    find_sidecar,
    parse_sidecar,
    refuse,
    write_sidecar,
)
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.secret_scan import replace_secrets

MAX_REASON = 200  # characters of a reason that are kept
REQUEST_BYTES = 64 << 20  # 16,384 bets take 5 MB
LABEL_BYTES = 64 << 10
PEOPLE = "people"
BESIDE_JUDGE = "corrected by people"  # in the identity of a judge of which people compare some pairs too
COLUMN_FILE = "all.json"
ONSET = "onset"  # purpose of labels of the past, bought after an alarm
PROBES = "probes"  # a request that examines the source itself, and the purposes of its labels
AGAIN, RIGHT, WRONG, EMPTY = PROBE_PURPOSES = ("again", "right", "wrong", "empty")


class RequestHead(Struct, frozen=True):
    """The first line of a request file."""

    attempt: Count
    step: Count
    bets: Count
    ranks: tuple[tuple[Count, Count], ...]
    seed: str
    source: dict[str, str]
    share: float
    state: dict[str, Any]
    time: float
    whole: Count = 0
    paid: tuple[int | float | None, ...] = ()


class BetSide(Struct, frozen=True):
    """One of the two rollouts of a bet."""

    row: tuple[Count, Count, Count]
    reward: int | float | None  # as it is written: the digest is that of the text


class BetLine(Struct, frozen=True):
    """Each other line of a request file."""

    purpose: str
    weight: int | float
    chance: int | float
    up: BetSide
    down: BetSide
    slice: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{0,120}$")] = ""


class StoredColumn(Struct, frozen=True):
    """The file of all labels of a step that a function answered at once."""

    request: str
    values: list[Any]
    why: dict[str, str] = {}  # by number, where there is no label


class StoredLabel(Struct, frozen=True):
    """The file of a label. `to_label` judges the value, and its words are in journals that are replayed."""

    request: str
    value: Any
    why: Any = ""
    id: str = ""


@dataclass(frozen=True)
class LabelRequest:
    """The label request of one step: the bets, the seed of the draw, and the sampler's state after it."""

    attempt: int
    step: int
    ranks: tuple[tuple[int, int], ...]  # whose files the row numbers count, as runs of neighbours
    seed: str  # of the draw; `draw_generator` computes it again
    source: Mapping[str, str]  # name and identity
    share: float  # of rollouts that labels may be bought for
    state: Mapping[str, Any]
    bets: tuple[Bet, ...]
    paid: tuple[float | None, ...]  # reward by label, where the row is of this step
    time: float = 0.0  # when it was asked, for the time-out alone
    whole: int = 0  # every row of the step is asked about, this many; 0: those of the bets

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """Each rollout to be labelled once, in the order of the bets; its position is the number of its label."""
        if self.whole:
            return tuple((self.attempt, self.step, row) for row in range(self.whole))
        if self.part == PROBES:  # several texts are tried on one row
            return tuple(bet.up for bet in self.bets)
        return tuple(dict.fromkeys(row for bet in self.bets for row in (bet.up, bet.down)))

    @property
    def has_column(self) -> bool:
        """Whether its labels may stand in one file. People give theirs one by one."""
        return not asks_people(self.source)

    @cached_property
    def part(self) -> str:
        """Which of a step's requests it is: its own (empty), one for labels of its past, or one about the source."""
        purpose = self.bets[0].purpose if self.bets else ""
        return PROBES if purpose in PROBE_PURPOSES else ONSET if purpose == ONSET else ""

    @property
    def name(self) -> str:
        """Of its files and folders."""
        return _request_name(self.attempt, self.step, self.part)

    @cached_property
    def digest(self) -> str:
        """Of everything but the time: equal where the same choice was made from the same past."""
        return hashlib.sha256("\n".join(self._json_lines()).encode()).hexdigest()

    def is_nearly(self, other: LabelRequest) -> bool:
        """Whether both ask for the same labels for the same reasons, up to the last digits of numbers.

        A version that knew no slices asked for the same.
        """
        plain = (replace(one, bets=tuple(replace(bet, slice="") for bet in one.bets)) for one in (self, other))
        ours, theirs = (json.loads(f"[{','.join(one._json_lines())}]") for one in plain)
        return _nearly_equal(ours, theirs)

    def label_id(self, number: int) -> str:
        return f"{self.attempt}-{self.step}-{number}"

    def lines(self) -> bytes:
        """The file: one line about the step, then one per bet."""
        head, *bets = self._json_lines()
        return "\n".join([f'{head[:-1]}, "time": {self.time!r}}}', *bets, ""]).encode()

    def _json_lines(self) -> list[str]:
        numbers = {row: number for number, row in enumerate(self.rows)}
        head = {"attempt": self.attempt, "step": self.step, "bets": len(self.bets), "ranks": self.ranks}
        head |= {"seed": self.seed, "source": dict(self.source), "share": self.share, "state": self.state}
        if self.whole:
            head |= {"whole": self.whole, "paid": self.paid}
        lines = [json.dumps(head, allow_nan=False)]
        for bet in self.bets:
            line: dict[str, Any] = {"purpose": bet.purpose, "weight": bet.weight, "chance": bet.chance}
            line |= {"slice": bet.slice} if bet.slice else {}
            for side, row in (("up", bet.up), ("down", bet.down)):
                number = numbers[row]
                line[side] = {"id": self.label_id(number), "row": row, "reward": self.paid[number]}
            lines.append(json.dumps(line, allow_nan=False))
        return lines

    @classmethod
    def parse(cls, text: bytes) -> LabelRequest:
        """The inverse of `lines`. Raises `ValueError` or `RecursionError`."""
        first, *rest = text.splitlines() or [b""]
        head, lines = parse_sidecar(first, RequestHead), [parse_sidecar(line, BetLine) for line in rest]
        if len(lines) != head.bets:
            raise ValueError(f"{len(lines)} bets, not {head.bets}")
        bets = tuple(
            Bet(line.purpose, line.up.row, line.down.row, line.weight, line.chance, line.slice) for line in lines
        )
        rewards = {side.row: side.reward for line in lines for side in (line.up, line.down)}
        request = cls(
            head.attempt, head.step, head.ranks, head.seed, head.source, head.share, head.state, bets, head.paid,
            head.time, head.whole,
        )  # fmt: skip
        if head.whole != len(head.paid):
            raise ValueError(f"{len(head.paid)} rewards, not {head.whole}")
        return request if head.whole else replace(request, paid=tuple(rewards[row] for row in request.rows))


@dataclass(frozen=True, slots=True)
class Label:
    """One answer: a number in [0, 1], or None and why there is none."""

    value: float | None
    why: str = ""


def asks_people(source: Mapping[str, Any]) -> bool:
    """Whether people label, alone or beside a judge, by the name and identity of a source.

    >>> asks_people({"name": "people", "identity": ""}), asks_people({"name": "checks.py:score", "identity": ""})
    (True, False)
    """
    return source.get("name") == PEOPLE or BESIDE_JUDGE in str(source.get("identity", ""))


def draw_generator(run_id: str, attempt: int, step: int) -> tuple[str, np.random.Generator]:
    """Seed and generator of one step's draw, from the run's identity alone: anybody can repeat the draw.

    >>> one, two = draw_generator("f8b7", 0, 12), draw_generator("f8b7", 0, 12)
    >>> one[0] == two[0], one[1].random() == two[1].random(), draw_generator("f8b7", 0, 13)[0] == one[0]
    (True, True, False)
    """
    seed = hashlib.sha256(f"{run_id}/{attempt}/{step}".encode()).hexdigest()[:32]
    return seed, np.random.Generator(np.random.Philox(key=int(seed, 16)))


def write_request(run: RunDirectory, request: LabelRequest) -> None:
    """Make a step's requests durable. Called before anybody is asked."""
    make_folder(run.path, "gold", "requests")
    publish(_request_path(run, request.name), [request.lines()])


def read_request(run: RunDirectory, attempt: int, step: int, part: str = "") -> LabelRequest | None:
    """The label request of a step, or another part of it; None if there is none. Raises `StoreError` for a damaged
    file."""
    name = _request_name(attempt, step, part)
    path = _request_path(run, name)
    try:
        request = LabelRequest.parse(read_file(path, REQUEST_BYTES))
    except FileNotFoundError:
        return None
    except HOSTILE as error:
        raise refuse(path, error) from error
    if request.name != name:
        raise refuse(path, "it holds another step than its name says")
    return request


def write_label(run: RunDirectory, request: LabelRequest, number: int, label: Label, source: str, by: str = "") -> bool:
    """Store a label; False if there is one already, in which case this one is stored beside it and never used.

    `by`: who labels the same row beside the source that the request names.
    """
    folder = make_folder(run.path, "gold", "labels", request.name)
    facts = {"id": request.label_id(number), "request": request.digest, "value": label.value, "why": label.why}
    facts |= {"source": source, "time": time.time()}
    try:
        write_sidecar(folder / _label_file(number, by), facts)
    except FileExistsError:
        write_sidecar(folder / f"{number}.late-{secrets.token_hex(4)}.json", facts)
        return False
    return True


def write_column(run: RunDirectory, request: LabelRequest, labels: Sequence[Label], source: str) -> None:
    """Store all labels of a step in one file: a file each, synced, would be slower than their answers."""
    folder = make_folder(run.path, "gold", "labels", request.name)
    reasons = {str(number): label.why for number, label in enumerate(labels) if label.value is None}
    facts = {"request": request.digest, "values": [label.value for label in labels], "why": reasons}
    write_sidecar(folder / COLUMN_FILE, {**facts, "source": source, "time": time.time()})


def read_labels(run: RunDirectory, request: LabelRequest, by: str = "") -> list[Label | None]:
    """The labels so far by number; None where there is none yet. `by` as in `write_label`."""
    digest, folder = request.digest, _label_folder(run, request)
    if request.has_column and (column := _read_column(folder / COLUMN_FILE, request)) is not None:
        return column
    numbers = range(len(request.rows))
    return [_read_label(folder / _label_file(number, by), digest, request.label_id(number)) for number in numbers]


def stray_labels(run: RunDirectory, request: LabelRequest) -> Iterator[str]:
    """File names of labels in a step's folder that no request asked for, or that were written before it."""
    digest, count = request.digest, len(request.rows)
    folder = _label_folder(run, request)
    for entry in sorted(entries(folder), key=lambda entry: entry.name):
        number = entry.name.split(".")[0]
        if entry.name.startswith(".") or not entry.name.endswith(".json"):
            continue
        if request.has_column and entry.name == COLUMN_FILE:
            if _read_column(folder / entry.name, request) == [NO_REQUEST] * count:
                yield f"gold/labels/{folder.name}/{entry.name}"
            continue
        is_asked = number.isdecimal() and int(number) < count
        if not is_asked or _read_label(folder / entry.name, digest, request.label_id(int(number))) == NO_REQUEST:
            yield f"gold/labels/{folder.name}/{entry.name}"


def labels_without_request(run: RunDirectory) -> Iterator[tuple[int, int, str]]:
    """Attempt, step and folder name of labels of steps that have no request."""
    for entry in sorted(entries(run.path / "gold" / "labels"), key=lambda entry: entry.name):
        attempt, _, step = entry.name.partition("-")
        if attempt.isdecimal() and step.isdecimal() and not exists(_request_path(run, entry.name)):
            yield int(attempt), int(step), f"gold/labels/{entry.name}"


def to_label(value: object) -> Label:
    """A source's answer as a label: a finite number in [0, 1], or None with the reason.

    >>> to_label(1), to_label(None).why, to_label(float("nan")).why, to_label(ValueError("no")).why
    (Label(value=1.0, why=''), 'no answer', 'nan is not a number from 0 to 1', 'ValueError: no')
    """
    if value is None:
        return Label(None, "no answer")
    if isinstance(value, BaseException):
        # The error of a request often quotes the address or the header with its key.
        return Label(None, replace_secrets(f"{type(value).__name__}: {value}")[:MAX_REASON])
    plain = isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))
    if not plain or not 0.0 <= value <= 1.0:  # type: ignore[operator]
        # A whole number of thousands of digits is no number that Python would write out.
        huge = isinstance(value, int) and abs(value) > 10**18
        text = repr(value) if plain and not huge else type(value).__name__
        return Label(None, f"{text} is not a number from 0 to 1"[:MAX_REASON])
    return Label(float(value))  # type: ignore[arg-type]


NO_REQUEST = Label(None, "answered without a request")


def _read_column(path: Path, request: LabelRequest) -> list[Label | None] | None:
    """The labels in a step's one file; None if there is none."""
    count = len(request.rows)
    try:
        stored = find_sidecar(path, StoredColumn, REQUEST_BYTES)
    except StoreError as error:
        return [Label(None, f"unreadable answer: {type(error.__cause__).__name__}")] * count
    if stored is None:
        return None
    if stored.request != request.digest or len(stored.values) != count:
        return [NO_REQUEST] * count
    reasons = (stored.why.get(str(number), "no answer") for number in range(count))
    return [
        Label(None, why) if value is None else to_label(value)
        for value, why in zip(stored.values, reasons, strict=True)
    ]


def _read_label(path: Path, digest: str, label_id: str) -> Label | None:
    try:
        stored = find_sidecar(path, StoredLabel, LABEL_BYTES)
    except StoreError as error:
        # No more than the kind of error: the journal has this text, and a replay must say the same again.
        return Label(None, f"unreadable answer: {type(error.__cause__).__name__}")
    if stored is None:
        return None
    if stored.request != digest or stored.id not in ("", label_id):  # renamed, it would be another row's
        return NO_REQUEST
    return Label(None, str(stored.why)) if stored.value is None else to_label(stored.value)


def _nearly_equal(one: Any, two: Any) -> bool:
    if isinstance(one, float) or isinstance(two, float):
        return (
            isinstance(one, int | float)
            and isinstance(two, int | float)
            and isclose(one, two, rel_tol=1e-6, abs_tol=1e-9)
        )
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(_nearly_equal(one[key], two[key]) for key in one)
    if isinstance(one, list) and isinstance(two, list):
        return len(one) == len(two) and all(map(_nearly_equal, one, two))
    return bool(one == two)


def _request_name(attempt: int, step: int, part: str) -> str:
    return f"{attempt}-{step:06d}{part and f'.{part}'}"


def _request_path(run: RunDirectory, name: str) -> Path:
    return run.path / "gold" / "requests" / f"{name}.jsonl"


def _label_file(number: int, by: str) -> str:
    return f"{number}.{by}.json" if by else f"{number}.json"


def _label_folder(run: RunDirectory, request: LabelRequest) -> Path:
    return run.path / "gold" / "labels" / request.name
