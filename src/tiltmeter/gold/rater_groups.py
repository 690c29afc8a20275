"""Groups of raters in a run: who belongs to which, fixed before a step's labels are seen, and the bets of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tiltmeter.data.slices import RATERS, slice_name
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold.label_files import Label, LabelRequest, read_labels
from tiltmeter.rundir.store import RunDirectory

MOST_BYTES = 1 << 20
MOST_GROUPS = 16
_Name = Annotated[str, Meta(min_length=1, max_length=64)]


class GroupsFile(Struct, frozen=True, forbid_unknown_fields=True):
    """What `tiltmeter data preferences --groups` writes: the raters of each group."""

    groups: Annotated[dict[_Name, list[_Name]], Meta(min_length=2, max_length=MOST_GROUPS)]


def read_groups(path: str | Path) -> dict[str, str]:
    """The group of each rater, from a file. Raises `AttachError` if it is none, or names a rater twice."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES} bytes")
        stored = msgspec.json.decode(text, type=GroupsFile)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise AttachError(
            f'{path} names no groups of raters ({error}): write {{"groups": {{"1": ["ann", "bob"], "2": ["eve"]}}}}, '
            "or let tiltmeter data preferences DATA --groups FILE write it"
        ) from error
    groups: dict[str, str] = {}
    for group, raters in stored.groups.items():
        for rater in raters:
            if groups.setdefault(rater, slice_name(group)) != slice_name(group):
                raise AttachError(f"{path} has {rater!r} in two groups: a rater belongs to one")
    return groups


def groups_of(request: LabelRequest) -> dict[str, str]:
    """The group of each rater as it was when a step's labels were asked for; empty: there are none."""
    stored = request.state.get("groups", {})
    try:
        return msgspec.convert(stored, dict[str, str])
    except msgspec.ValidationError as error:
        raise StoreError(f"the request of step {request.step} does not say which raters belong together") from error


def written_by(group: str) -> str:
    """What marks the files of a group's labels beside those of everybody."""
    return f"{RATERS}{group}"


def group_bets(run: RunDirectory, request: LabelRequest) -> dict[str, list[tuple[str, float]]]:
    """By purpose, the slice of a group and its u, for every bet that somebody of the group has answered.

    A bet of which nobody of a group was shown is no bet of theirs. Who skipped has answered: a label that is missing is
    1 on the side that is paid and 0 on the other, as for everybody.
    """
    groups = sorted(set(groups_of(request).values()))
    bets: dict[str, list[tuple[str, float]]] = {"slope": [], "duel": []}
    numbers = {row: number for number, row in enumerate(request.rows)} if groups else {}
    for group in groups:
        labels = read_labels(run, request, written_by(group))
        for bet in request.bets:
            up, down = labels[numbers[bet.up]], labels[numbers[bet.down]]
            if bet.purpose in bets and up is not None and down is not None:
                bets[bet.purpose].append((f"{RATERS}{group}", bet.weight * (_or(up, 1.0) - _or(down, 0.0))))
    return bets


def group_labels(values: Sequence[tuple[str, float | None]], groups: Mapping[str, str]) -> dict[str, Label]:
    """The label of each group that answered, from raters and what they said (None: they skipped).

    >>> answers = [("ann", 1.0), ("bob", 0.0), ("eve", None), ("zoe", 1.0)]
    >>> group_labels(answers, {"ann": "1", "bob": "1", "eve": "2"})
    {'1': Label(value=0.5, why=''), '2': Label(value=None, why='nobody of the group could judge it')}
    """
    by_group: dict[str, list[float | None]] = {}
    for rater, value in values:
        if rater in groups:
            by_group.setdefault(groups[rater], []).append(value)
    labels = {}
    for group, answers in by_group.items():
        judged = [value for value in answers if value is not None]
        mean = sum(judged) / len(judged) if judged else None
        labels[group] = Label(mean, "" if judged else "nobody of the group could judge it")
    return labels


def _or(label: Label, otherwise: float) -> float:
    return otherwise if label.value is None else label.value
