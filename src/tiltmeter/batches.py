"""Making and joining `RolloutBatch`es: whatever a trainer hands over becomes clean columns, and nothing is guessed.

Numbers that are not numbers keep the reason in a flag; rows are sorted so that groups are adjacent; lengths must agree.
numpy only: this runs in the trainer's process, on the writer thread.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from tiltmeter.records import (
    FLAGS,
    NUMBER_COLUMNS,
    RAGGED_COLUMNS,
    TEXT_COLUMNS,
    Flags,
    Floats,
    Ints,
    Ragged,
    RolloutBatch,
)

OK, MISSING, NAN, PLUS_INF, MINUS_INF, OVERFLOW, TYPE, INFRA = range(8)

TOKEN_LIMIT = 131_072  # per completion
SCALAR_LIMIT = 2_000  # per step

_DTYPES: dict[str, type[np.generic]] = dict.fromkeys(RAGGED_COLUMNS, np.float32) | {"tokens": np.int32}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def from_columns(step: int, group: object, *, attempt: int = 0, **columns: Any) -> RolloutBatch:
    """A batch from what a loop has at hand: lists, arrays, CPU tensors, padded matrices with a `length` column.

    >>> batch = from_columns(3, ["b", "a", "b"], reward=[1, None, True], completion=["x", "y", "z"])
    >>> batch.reward.tolist(), [FLAGS[code] for code in batch.flags["reward"]], list(batch.completion)
    ([1.0, 1.0, nan], ['ok', 'ok', 'missing'], ['x', 'z', 'y'])
    """
    known = {field.name for field in fields(RolloutBatch)}
    if unknown := sorted(set(columns) - known):
        raise TypeError(f"unknown columns {unknown}; a batch has {sorted(known)}")
    ids = _group_ids(group)
    rows = len(ids)
    made: dict[str, Any] = {
        "scalars": _scalars(columns.get("scalars") or {}),
        "fingerprint": columns.get("fingerprint", ""),
    }
    flags: dict[str, Flags] = {}
    for name in NUMBER_COLUMNS:
        if columns.get(name) is not None:
            made[name], flags[name] = numbers(columns[name])
    parts: dict[str, Floats] = {}
    for raw, part in (columns.get("rewards") or {}).items():
        name = component_name(str(raw), taken=parts)
        parts[name], flags[f"rewards.{name}"] = numbers(part)
    made["rewards"] = parts
    if columns.get("gold") is not None and columns.get("gold_chance") is None:
        # The trainer's own gold was not sampled: each row it scored was certain to be asked.
        made["gold_chance"] = np.where(flags["gold"] == OK, 1.0, np.nan)
    length = None if columns.get("length") is None else _integers(columns["length"])
    for name in RAGGED_COLUMNS:
        if columns.get(name) is not None:
            made[name] = ragged(columns[name], length, _DTYPES[name])
    if length is None:
        length = next((made[name].lengths for name in ("tokens", "logprob") if name in made), None)
    made["length"] = length
    if columns.get("truncated") is not None:
        made["truncated"] = np.asarray(columns["truncated"]).astype(bool).reshape(-1)
    for name in TEXT_COLUMNS:
        if columns.get(name) is not None:
            made[name] = tuple(map(_text, columns[name]))
    for name, column in [*made.items(), *((f"rewards.{name}", part) for name, part in parts.items())]:
        if name not in ("rewards", "scalars", "fingerprint") and column is not None and len(column) != rows:
            raise ValueError(f"{name} has {len(column)} rows, group has {rows}")
    kept = {name: codes for name, codes in flags.items() if codes.any()}
    batch = RolloutBatch(attempt=attempt, step=int(step), group=ids, flags=kept, **made)
    return by_group(_within_token_limit(batch))


def numbers(values: object) -> tuple[Floats, Flags]:
    """Float64 values with NaN wherever the input is not a finite number, and the flag that says what stood there.

    Bools count as 0 and 1; strings are never parsed; an exception object means the reward could not be computed.

    >>> values, flags = numbers([0.5, None, float("inf"), "7", 10**400, TimeoutError("judge")])
    >>> values.tolist(), [FLAGS[code] for code in flags]
    ([0.5, nan, inf, nan, nan, nan], ['ok', 'missing', '+inf', 'type', 'overflow', 'infra'])
    """
    if not isinstance(values, np.ndarray) and hasattr(values, "__array__"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        array = values.reshape(-1).astype(np.float64)
        codes = np.zeros(len(array), np.uint8)
    else:
        items = list(values)  # type: ignore[call-overload]  # any iterable; a scalar raises, as it should
        array = np.full(len(items), np.nan)
        codes = np.zeros(len(items), np.uint8)
        for row, item in enumerate(items):
            array[row], codes[row] = _number(item)
    odd = ~np.isfinite(array) & (codes == OK)
    codes[odd & np.isnan(array)] = NAN
    codes[odd & (array == np.inf)] = PLUS_INF
    codes[odd & (array == -np.inf)] = MINUS_INF
    return array, codes


def _number(item: object) -> tuple[float, int]:
    if item is None:
        return np.nan, MISSING
    if isinstance(item, BaseException):
        return np.nan, INFRA
    if isinstance(item, (float, int, np.number, np.bool_)) or (hasattr(item, "item") and hasattr(item, "__float__")):
        try:
            return float(item), OK
        except OverflowError:
            return np.nan, OVERFLOW
        except (TypeError, ValueError):  # a complex number, a tensor of several elements
            return np.nan, TYPE
    return np.nan, TYPE


def ragged(values: object, length: Ints | None, dtype: type[np.generic]) -> Ragged:
    """Rows of different length from rows, or from a padded matrix whose valid lengths are the `length` column."""
    if isinstance(values, Ragged):
        return Ragged(np.ascontiguousarray(values.values, dtype), values.offsets.astype(np.int64))
    if not isinstance(values, (list, tuple, np.ndarray)) and hasattr(values, "__array__"):
        values = np.asarray(values)
    if isinstance(values, np.ndarray) and values.ndim == 2:
        if length is None:
            raise ValueError("a padded matrix needs the length column, to tell tokens from padding")
        if len(length) != len(values):
            raise ValueError(f"length has {len(length)} rows, the padded matrix {len(values)}")
        keep = np.arange(values.shape[1]) < length[:, None]
        offsets = np.concatenate(([0], np.cumsum(np.minimum(length, values.shape[1])))).astype(np.int64)
        return Ragged(values[keep].astype(dtype), offsets)
    return Ragged.of(list(values), dtype)  # type: ignore[call-overload]  # any iterable of rows


def component_name(raw: str, taken: Mapping[str, object]) -> str:
    """A reward function's name as a reading may carry it: odd characters become `_`, with a digest to tell two apart.

    >>> component_name("format", {}), component_name("<lambda>", {})
    ('format', '_lambda_.a153')
    """
    name = raw
    if not _PLAIN_NAME.fullmatch(raw) or raw.endswith(("_flag", "_raw")):
        digest = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:4]
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", raw)[:90] + "." + digest
    base, count = name, 2
    while name in taken:
        name, count = f"{base}.{count}", count + 1
    return name


def by_group(batch: RolloutBatch) -> RolloutBatch:
    """The same rows with those of a group adjacent, first appearance first, order inside a group kept."""
    _, first, inverse = np.unique(batch.group, return_index=True, return_inverse=True)
    order = np.argsort(first[inverse], kind="stable")
    return batch if np.array_equal(order, np.arange(len(batch))) else take(batch, order)


def take(batch: RolloutBatch, rows: Ints) -> RolloutBatch:
    """The given rows, in the given order."""

    def pick(column: Any) -> Any:
        if column is None:
            return None
        if isinstance(column, Ragged):
            return Ragged.of([column[int(row)] for row in rows], column.values.dtype.type)
        return tuple(column[int(row)] for row in rows) if isinstance(column, tuple) else np.asarray(column)[rows]

    return replace(
        batch,
        group=batch.group[rows],
        rewards={name: part[rows] for name, part in batch.rewards.items()},
        flags={name: codes[rows] for name, codes in batch.flags.items()},
        **{name: pick(getattr(batch, name)) for name in _ROW_COLUMNS},
    )


def join(batches: Sequence[RolloutBatch], *, shared_groups: bool) -> RolloutBatch:
    """One step's batch from those of its ranks, in rank order.

    `shared_groups`: equal ids on two ranks are one prompt group; else ids are each rank's own. A column that one rank
    lacks (it was thinned there) is absent from the whole; a reward function that one rank lacks is `missing` there.
    """
    batches = [batch for batch in batches if len(batch)] or batches[:1]  # an empty rank has nothing to say
    if len(batches) == 1:
        return batches[0]
    if shared_groups:
        group = np.concatenate([batch.group for batch in batches])
    else:
        numbered = [np.repeat(np.arange(len(b.starts) - 1), np.diff(b.starts)) for b in batches]
        before = np.cumsum([0, *(len(b.starts) - 1 for b in batches)])
        group = np.concatenate([own + start for own, start in zip(numbered, before[:-1], strict=True)])
    names = dict.fromkeys(name for batch in batches for name in batch.rewards)
    scalars: dict[str, float] = {}
    for batch in batches:
        scalars = {**batch.scalars, **scalars}  # the lowest rank's value stands: trainers log from rank 0
    joined = replace(
        batches[0],
        group=group.astype(np.int64),
        rewards={n: np.concatenate([b.rewards.get(n, np.full(len(b), np.nan)) for b in batches]) for n in names},
        flags=_joined_flags(batches, names),
        scalars=scalars,
        **{name: _joined([getattr(batch, name) for batch in batches]) for name in _ROW_COLUMNS},
    )
    return by_group(joined) if shared_groups else joined


def _joined(parts: list[Any]) -> Any:
    if any(part is None for part in parts):
        return None
    if isinstance(parts[0], Ragged):
        lengths = np.concatenate([part.lengths for part in parts])
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return Ragged(np.concatenate([part.values for part in parts]), offsets)
    if isinstance(parts[0], tuple):
        return tuple(item for part in parts for item in part)
    return np.concatenate(parts)


def _joined_flags(batches: Sequence[RolloutBatch], rewards: Iterable[str]) -> dict[str, Flags]:
    flags = {}
    for name in dict.fromkeys([*(n for b in batches for n in b.flags), *(f"rewards.{n}" for n in rewards)]):
        codes = []
        for batch in batches:
            component = name.removeprefix("rewards.") if name.startswith("rewards.") else None
            absent = component is not None and component not in batch.rewards
            codes.append(batch.flags.get(name, np.full(len(batch), MISSING if absent else OK, np.uint8)))
        flags[name] = np.concatenate(codes)
    return {name: codes for name, codes in flags.items() if codes.any()}


def thin(batch: RolloutBatch) -> RolloutBatch:
    """The batch without text and token columns: every row stays, numbers stay."""
    nothing: dict[str, Any] = dict.fromkeys((*TEXT_COLUMNS, *RAGGED_COLUMNS))
    return replace(batch, **nothing)


_ROW_COLUMNS = (*NUMBER_COLUMNS, "length", "truncated", *TEXT_COLUMNS, *RAGGED_COLUMNS)


def _within_token_limit(batch: RolloutBatch) -> RolloutBatch:
    cut: dict[str, Ragged] = {}
    for name in RAGGED_COLUMNS:
        column: Ragged | None = getattr(batch, name)
        if column is not None and len(column) and column.lengths.max() > TOKEN_LIMIT:
            cut[name] = Ragged.of([column[row][:TOKEN_LIMIT] for row in range(len(column))], column.values.dtype.type)
    if not cut:
        return batch
    codes = np.where(next(iter(cut.values())).lengths == TOKEN_LIMIT, FLAGS.index("capped"), OK).astype(np.uint8)
    return replace(batch, flags={**batch.flags, "tokens": codes}, **cut)  # type: ignore[arg-type]


def _group_ids(group: object) -> Ints:
    """Integer ids as they are; anything else by a stable hash of its text, so that ranks agree without talking."""
    if not isinstance(group, (list, tuple)):
        group = np.asarray(group)
    array = group if isinstance(group, np.ndarray) else np.asarray(group, dtype=None if _all_ints(group) else object)
    if array.ndim != 1:
        raise TypeError("group needs one id per completion")
    if array.dtype.kind in "iu" or array.size == 0:
        return array.reshape(-1).astype(np.int64)
    texts = [str(item).encode("utf-8", "surrogatepass") for item in array.reshape(-1).tolist()]
    hashed = {text: int.from_bytes(hashlib.blake2b(text, digest_size=8).digest()) >> 1 for text in set(texts)}
    return np.array([hashed[text] for text in texts], np.int64)


def _all_ints(items: Sequence[object]) -> bool:
    return all(isinstance(item, (int, np.integer)) and -(2**63) <= item < 2**63 for item in items)


def _integers(values: object) -> Ints:
    array = np.asarray(values).reshape(-1)
    if array.size and array.dtype.kind not in "iu" and not np.all(np.isfinite(array.astype(np.float64))):
        raise ValueError("length must be whole numbers")
    return array.astype(np.int64)


def _scalars(raw: Mapping[str, Any]) -> dict[str, float]:
    kept = {}
    for name, value in list(raw.items())[:SCALAR_LIMIT]:
        number, code = _number(value)
        if code == OK:
            kept[str(name)] = number
    return kept


def _text(item: object) -> str | None:
    if item is None or type(item) is str:
        return item
    if isinstance(item, str):  # numpy.str_ and other subclasses
        return str.__str__(item)
    if isinstance(item, (list, dict)):  # chat messages
        return json.dumps(item, ensure_ascii=False, default=str)
    return str(item)
