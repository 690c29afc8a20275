"""One row for one trajectory, and only the policy's own tokens in it, whatever a trainer hands over.

Trainers split a long trajectory into several rows, and put a tool's words between the policy's tokens. Both are undone
when a batch is built, so that every bet, label and statistic is of a trajectory and of what the policy wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from tiltmeter.data.records import (
    FLAGS,
    LABEL_COLUMNS,
    NUMBER_COLUMNS,
    RAGGED_COLUMNS,
    TOKEN_COLUMNS,
    Flags,
    Floats,
    Ragged,
    RolloutBatch,
)
from tiltmeter.data.stops import is_trusted
from tiltmeter.data.turns import Turn, decode_turns, encode_turns, own_text

_OK, _MISSING = FLAGS.index("ok"), FLAGS.index("missing")


def keep_own_tokens(columns: dict[str, Any]) -> None:
    """Leave out the tokens that the policy did not write, of every column that has one value a token, in place."""
    own: Ragged | None = columns.get("own")
    if own is None:
        return
    for name in TOKEN_COLUMNS:
        column: Ragged | None = columns.get(name)
        if column is None:
            continue
        if np.array_equal(column.offsets, own.offsets):
            columns[name] = _where(column, own)
        elif not np.array_equal(column.lengths, own_lengths(own)):  # else it has been done
            raise ValueError(f"{name} and own differ in the number of tokens of a row")
    columns["length"] = own_lengths(own)


def own_lengths(own: Ragged) -> Any:
    """How many tokens of each row the policy wrote."""
    return own.sums().astype(np.int64)


def _where(column: Ragged, own: Ragged) -> Ragged:
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(own_lengths(own))))
    return Ragged(np.ascontiguousarray(column.values[own.values.astype(bool)]), offsets)


def void_untrusted(
    stops: Sequence[str | None] | None, values: Floats, codes: Flags, *, total: bool = False
) -> tuple[Floats, Flags]:
    """Rewards without those that say nothing about an answer, because a container, a verifier or a clock failed.

    That is also why a `total` is missing there; a part may be missing because it is paid elsewhere.
    """
    if stops is None or len(stops) != len(values):  # the lengths of columns are checked elsewhere
        return values, codes
    odd = np.array([not is_trusted(stop) for stop in stops], bool)
    odd &= (codes == _OK) | (total & (codes == _MISSING))
    if not odd.any():
        return values, codes
    return np.where(odd, np.nan, values), np.where(odd, FLAGS.index("infra"), codes).astype(np.uint8)


def merge_trajectories(batch: RolloutBatch) -> RolloutBatch:
    """The batch with one row a trajectory (of one agent, in one group), at the place of its first row.

    A reward that all of its rows share is that of the trajectory; rewards that differ are added, as a return is.
    Advantages are averaged, tokens and turns follow each other, and the last row says how it ended.
    """
    if batch.trajectory is None:
        return batch
    agents = batch.agent or (None,) * len(batch)
    numbers: dict[object, int] = {}
    keys = zip(batch.group.tolist(), batch.trajectory.tolist(), agents, strict=True)
    ids = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    if len(numbers) == len(batch):
        return batch
    order = np.argsort(ids, kind="stable")
    bounds = np.concatenate((np.flatnonzero(np.diff(ids[order], prepend=-1)), [len(ids)]))
    parts = [order[start:stop] for start, stop in pairwise(bounds)]
    first = np.array([rows[0] for rows in parts])
    changed: dict[str, Any] = {"group": batch.group[first], "trajectory": batch.trajectory[first]}
    flags: dict[str, Flags] = {}
    rewards: dict[str, Floats] = {}
    for name in [*NUMBER_COLUMNS, *(f"rewards.{part}" for part in batch.rewards)]:
        part = name.removeprefix("rewards.")
        values = batch.rewards[part] if name.startswith("rewards.") else getattr(batch, name)
        if values is not None:
            merged, codes = _merge_numbers(name, values, batch.flags.get(name), parts)
            (rewards if name.startswith("rewards.") else changed)[part] = merged
            if codes.any():
                flags[name] = codes
    changed["rewards"] = rewards
    if batch.length is not None:
        changed["length"] = np.array([batch.length[rows].sum() for rows in parts], np.int64)
    if batch.truncated is not None:
        changed["truncated"] = np.array([batch.truncated[rows[-1]] for rows in parts], bool)
    if batch.trained is not None:
        changed["trained"] = np.array([batch.trained[rows].any() for rows in parts], bool)
    for name in RAGGED_COLUMNS:
        if (column := getattr(batch, name)) is not None:
            joined = [np.concatenate([column[int(row)] for row in rows]) for rows in parts]
            changed[name] = Ragged.of(joined, column.values.dtype.type)
    for name in (*LABEL_COLUMNS, "artifacts", "prompt", "facts"):
        if (texts := getattr(batch, name)) is not None:
            last = name in ("stop", "artifacts")
            changed[name] = tuple(_text_of(texts, rows[::-1] if last else rows) for rows in parts)
    if batch.turns is not None:
        lists = [_merge_turns([batch.turns[row] for row in rows]) for rows in parts]
        changed["turns"] = tuple(None if turns is None else encode_turns(turns) for turns in lists)
        changed["completion"] = tuple(None if turns is None else own_text(turns) for turns in lists)
    elif batch.completion is not None:
        texts = batch.completion
        changed["completion"] = tuple(_join_texts([texts[row] for row in rows]) for rows in parts)
    if "tokens" in batch.flags:
        codes = np.array([batch.flags["tokens"][rows].max() for rows in parts], np.uint8)
        flags |= {"tokens": codes} if codes.any() else {}
    return replace(batch, flags=flags, **changed)


def _merge_numbers(name: str, values: Floats, codes: Flags | None, parts: Sequence[Any]) -> tuple[Floats, Flags]:
    codes = np.zeros(len(values), np.uint8) if codes is None else codes
    merged, merged_codes = np.full(len(parts), np.nan), np.zeros(len(parts), np.uint8)
    for number, rows in enumerate(parts):
        good = rows[codes[rows] == _OK]
        infra = codes[rows] == FLAGS.index("infra")
        present = values[good][np.isfinite(values[good])]
        if infra.any() or not len(present):
            merged_codes[number] = FLAGS.index("infra") if infra.any() else codes[rows].max()
        elif name == "version_low":
            merged[number] = present.min()
        elif name == "version_high":
            merged[number] = present.max()
        elif name.startswith("gold") or (present == present[0]).all():
            merged[number] = present[-1]
        elif name == "advantage":
            merged[number] = present.mean()
        else:
            merged[number] = present.sum()
    return merged, merged_codes


def _join_texts(texts: Sequence[str | None]) -> str | None:
    words = [text for text in texts if text is not None]
    return "\n".join(words) if words else None


def _text_of(texts: Sequence[str | None], rows: Any) -> str | None:
    return next((texts[row] for row in rows if texts[row] is not None), None)


def _merge_turns(parts: Sequence[str | None]) -> list[Turn] | None:
    """The turns of several rows one after the other. Equal rows are kept: a policy may say the same thing again."""
    turns: list[Turn] = []
    for text in (part for part in parts if part is not None):
        offset = len(turns)
        for turn in decode_turns(text):
            moved = {} if turn.parent is None else {"parent": turn.parent + offset}
            turns.append(msgspec.structs.replace(turn, **moved) if moved else turn)
    return turns if any(part is not None for part in parts) else None


def version_bounds(versions: Any) -> dict[str, Any]:
    """The oldest and newest policy that wrote each row: from a number a row, a pair, or one a token."""
    if isinstance(versions, Ragged):
        versions = [versions[row] for row in range(len(versions))]
    low: list[Any] = []
    high: list[Any] = []
    for item in versions:
        values = item.tolist() if isinstance(item, np.ndarray) else item
        present = [value for value in values if value is not None] if isinstance(values, (list, tuple)) else None
        low.append(values if present is None else min(present) if present else None)
        high.append(values if present is None else max(present) if present else None)
    return {"version_low": low, "version_high": high}


def staleness(batch: RolloutBatch) -> Floats:
    """Versions between the oldest part of each trajectory and the newest policy of the batch."""
    low, high = batch.version_low, batch.version_high if batch.version_high is not None else batch.version_low
    assert low is not None and high is not None
    numbers = high[np.isfinite(high)]
    return (numbers.max() if len(numbers) else np.nan) - low
