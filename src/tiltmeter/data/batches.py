"""Build, join and select rows of `RolloutBatch`es from whatever columns a trainer passes.

A value that is not a number gets a flag with the reason; rows are sorted by group; column lengths must agree.
numpy only: this runs in the trainer's process, on the writer thread.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data import dataset_facts
from tiltmeter.data.messages import is_conversation, turns_from_messages
from tiltmeter.data.records import (
    BOOL_COLUMNS,
    FLAGS,
    LABEL_COLUMNS,
    NUMBER_COLUMNS,
    RAGGED_COLUMNS,
    ROW_COLUMNS,
    TEXT_COLUMNS,
    Flags,
    Floats,
    Ints,
    Ragged,
    RolloutBatch,
)
from tiltmeter.data.stops import parse_stop
from tiltmeter.data.trajectories import keep_own_tokens, merge_trajectories, version_bounds, void_untrusted
from tiltmeter.data.turns import ASSISTANT, Turn, encode_turns, own_text, parse_turns, prompt_text

OK, MISSING, NAN, PLUS_INF, MINUS_INF, OVERFLOW, TYPE, INFRA = range(8)

TOKEN_LIMIT = 131_072  # per completion
LENGTH_LIMIT = 2**53  # and, for steps, what every reader of JSON and of file names keeps exactly
STEP_LIMIT = 2**53
COLUMN_BYTES = 4 << 30
ROW_LIMIT = 2**20  # rows of a step that are read from something other than a list or an array
SCALAR_LIMIT = 2_000  # per step

#: What `from_columns` takes beside the columns of a batch: chat messages, of which turns, prompt and completion are
#: made, and policy versions, of which the oldest and the newest are kept.
INPUTS = ("messages", "version")

_DTYPES: dict[str, type[np.generic]] = dict.fromkeys(RAGGED_COLUMNS, np.float32) | {"tokens": np.int32, "own": np.uint8}
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")


def from_columns(step: int, group: object, *, attempt: int = 0, **columns: Any) -> RolloutBatch:
    """A batch from what a loop has at hand: lists, arrays, CPU tensors, padded matrices with a `length` column.

    >>> batch = from_columns(3, ["b", "a", "b"], reward=[1, None, True], completion=["x", "y", "z"])
    >>> batch.reward.tolist(), [FLAGS[code] for code in batch.flags["reward"]], list(batch.completion)
    ([1.0, 1.0, nan], ['ok', 'ok', 'missing'], ['x', 'z', 'y'])
    """
    column_names = {field.name for field in fields(RolloutBatch)} | set(INPUTS)
    if unknown := sorted(set(columns) - column_names):
        raise TypeError(f"unknown columns {unknown}; a batch has {sorted(column_names)}")
    for name in ("rewards", "scalars"):
        if not isinstance(columns.get(name), (Mapping, type(None))):
            raise TypeError(f"{name} must be a dict by name, not {type(columns[name]).__name__}")
    ids = _group_ids(group)
    rows = len(ids)
    clean: dict[str, Any] = {
        "scalars": _scalars(columns.get("scalars") or {}),
        # Raises for anything but text: a file with another fingerprint would be refused by whoever reads it.
        "fingerprint": str.__str__("" if columns.get("fingerprint") is None else columns["fingerprint"]),
    }
    columns = {**columns, **_from_messages(columns, rows), **_from_versions(columns, rows)}
    for name in (*LABEL_COLUMNS, *TEXT_COLUMNS):
        if columns.get(name) is not None:
            clean[name] = tuple(map(_PARSERS.get(name, plain_text), _first_rows(columns[name], rows)))
    flags: dict[str, Flags] = {}
    for name in NUMBER_COLUMNS:
        if columns.get(name) is not None:
            clean[name], flags[name] = numbers(_first_rows(columns[name], rows))
    if "reward" in clean:
        paid = void_untrusted(clean.get("stop"), clean["reward"], flags["reward"], total=True)
        clean["reward"], flags["reward"] = paid
    if "gold" in clean:
        odd = (flags["gold"] == OK) & ((clean["gold"] < 0.0) | (clean["gold"] > 1.0))
        flags["gold"][odd] = FLAGS.index("range")
        clean["gold"] = np.where(odd, np.nan, clean["gold"])
    parts: dict[str, Floats] = {}
    for raw, part in (columns.get("rewards") or {}).items():
        name = component_name(str(raw), existing=parts)
        parts[name], flags[f"rewards.{name}"] = void_untrusted(clean.get("stop"), *numbers(_first_rows(part, rows)))
    clean["rewards"] = parts
    if columns.get("gold") is not None and columns.get("gold_chance") is None:
        # Gold that the trainer passes was not sampled: each scored row had probability 1.
        clean["gold_chance"] = np.where(flags["gold"] == OK, 1.0, np.nan)
    length = None
    if columns.get("length") is not None:
        length = _require_whole(_clean_numbers(columns["length"], rows)[0], 0, LENGTH_LIMIT).astype(np.int64)
    for name in RAGGED_COLUMNS:
        if columns.get(name) is not None:
            clean[name] = ragged(_first_rows(columns[name], rows), length, _DTYPES[name])
    if length is None:
        length = next((clean[name].lengths for name in ("tokens", "logprob") if name in clean), None)
    clean["length"] = length
    keep_own_tokens(clean)
    for name in BOOL_COLUMNS:
        if columns.get(name) is not None:
            values, missing = _clean_numbers(columns[name], rows)
            clean[name] = (values != 0) & ~missing
    if columns.get("trajectory") is not None:
        clean["trajectory"] = _group_ids(_first_rows(columns["trajectory"], rows))
    for name, column in [*clean.items(), *((f"rewards.{name}", part) for name, part in parts.items())]:
        if name not in ("rewards", "scalars", "fingerprint") and column is not None and len(column) != rows:
            raise ValueError(f"{name} has {len(column)} rows, group has {rows}")
    nonzero_flags = {name: codes for name, codes in flags.items() if codes.any()}
    batch = RolloutBatch(attempt=attempt, step=_require_step(step), group=ids, flags=nonzero_flags, **clean)
    return by_group(merge_trajectories(_within_token_limit(batch)))


def _from_messages(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Turns, and the prompt and completion that follow from them, where a row is a conversation."""
    derived: dict[str, Any] = {}
    if columns.get("messages") is not None:
        lists = [None if row is None else turns_from_messages(row) for row in _first_rows(columns["messages"], rows)]
        if columns.get("prompt") is None:
            derived["prompt"] = [None if row is None else prompt_text(row) for row in lists]
    elif columns.get("turns") is not None:
        lists = list(map(parse_turns, _first_rows(columns["turns"], rows)))
    else:
        items = columns.get("completion")
        if not isinstance(items, (list, tuple)) or not any(map(is_conversation, items)):
            return {}
        lists = [turns_from_messages(item) if is_conversation(item) else _one_turn(item) for item in items]
    return {**derived, "turns": lists, "completion": [None if row is None else own_text(row) for row in lists]}


def _one_turn(completion: object) -> tuple[Turn, ...] | None:
    return None if completion is None else (Turn(ASSISTANT, plain_text(completion)),)


def _from_versions(columns: Mapping[str, Any], rows: int) -> dict[str, Any]:
    versions = columns.get("version")
    if versions is None:
        return {}
    return version_bounds(_first_rows(from_tensor(versions) if hasattr(versions, "__array__") else versions, rows))


def numbers(values: object) -> tuple[Floats, Flags]:
    """Float64 values with NaN wherever the input is not a finite number, and a flag that says what the input was.

    Bools count as 0 and 1; strings are never parsed; an exception object means the reward could not be computed.

    >>> values, flags = numbers([0.5, None, float("inf"), "7", 10**400, TimeoutError("judge")])
    >>> values.tolist(), [FLAGS[code] for code in flags]
    ([0.5, nan, inf, nan, nan, nan], ['ok', 'missing', '+inf', 'type', 'overflow', 'infra'])
    """
    if not isinstance(values, np.ndarray) and hasattr(values, "__array__"):
        values = from_tensor(values)
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
    if isinstance(item, (np.generic, np.ndarray)) and item.dtype.kind not in "biuf":
        return np.nan, TYPE  # float() would parse numpy's strings and drop the imaginary part
    if isinstance(item, (float, int, np.number, np.bool_)) or (hasattr(item, "item") and hasattr(item, "__float__")):
        try:
            return float(item), OK
        except OverflowError:
            return np.nan, OVERFLOW
        except (TypeError, ValueError):  # a tensor of several elements
            return np.nan, TYPE
    return np.nan, TYPE


def ragged(values: object, length: Ints | None, dtype: type[np.generic]) -> Ragged:
    """Rows of different length from rows, or from a padded matrix whose valid lengths are the `length` column."""
    if isinstance(values, Ragged):
        return Ragged(_cast(values.values, dtype), values.offsets.astype(np.int64))
    if not isinstance(values, (list, tuple, np.ndarray)) and hasattr(values, "__array__"):
        values = from_tensor(values)
    if isinstance(values, np.ndarray) and values.ndim == 2:
        if length is None:
            raise ValueError("a padded matrix needs the length column, to tell tokens from padding")
        if len(length) != len(values):
            raise ValueError(f"length has {len(length)} rows, the padded matrix {len(values)}")
        keep = np.arange(values.shape[1]) < length[:, None]
        offsets = np.concatenate(([0], np.cumsum(np.minimum(length, values.shape[1])))).astype(np.int64)
        return Ragged(_cast(values[keep], dtype), offsets)
    rows = [np.atleast_1d(_token_row(row)) for row in values]  # type: ignore[attr-defined]  # any iterable of rows
    if any(row.ndim > 1 for row in rows):
        raise ValueError("a row must be a list of numbers, not of lists")
    filled = [row for row in rows if len(row)]  # an empty list is an array of floats to numpy
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum([len(row) for row in rows], dtype=np.int64)))
    return Ragged(_cast(np.concatenate(filled) if filled else np.empty(0, dtype), dtype), offsets)


def _token_row(row: Any) -> Any:
    """A row's numbers; of something lazy, no more than are kept of any row."""
    lazy = not isinstance(row, (list, tuple, np.ndarray)) and hasattr(row, "__len__") and not hasattr(row, "__array__")
    return _sized_rows(row, TOKEN_LIMIT) if lazy else from_tensor(row) if hasattr(row, "__array__") else row


def _cast(values: NDArray[np.generic], dtype: type[np.generic]) -> NDArray[np.generic]:
    """The values as `dtype`: integers exact or refused, floats rounded (beyond float32 they are infinite)."""
    values = _numeric(values)
    if np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)  # type: ignore[type-var]
        values = _require_whole(values, int(limits.min), int(limits.max))
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype)


def _numeric(values: NDArray[Any]) -> NDArray[np.generic]:
    """The same numbers without Python objects among them (None is NaN); anything else is refused, never parsed."""
    if values.dtype.kind == "O":
        pairs = [_number(item) for item in values]
        if any(code not in (OK, MISSING) for _, code in pairs):
            raise TypeError("a column of numbers holds something else")
        return np.array([number for number, _ in pairs], np.float64)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"a column of numbers holds {values.dtype}")
    return values


def _require_whole(values: NDArray[Any], low: int, high: int) -> NDArray[np.generic]:
    """The values, if each is a whole number between the limits."""
    if values.dtype.kind == "f" and not np.array_equal(values, np.trunc(values)):  # NaN differs from itself
        raise ValueError("lengths and tokens must be whole numbers")
    if values.size and (values.min() < low or values.max() > high):
        raise ValueError(f"lengths and tokens must lie between {low} and {high}")
    return values


def _require_step(step: object) -> int:
    """The step as an int: a file is named after it, so what is not a whole number from 0 on would never be found."""
    try:
        number = int(step)  # type: ignore[call-overload]
    except OverflowError:
        number = -1
    if number != step or not 0 <= number <= STEP_LIMIT:
        raise ValueError(f"step must be a whole number from 0 to {STEP_LIMIT}, not {str(step)[:40]}")
    return int(number)


def from_tensor(value: Any) -> Any:
    """An array from whatever has one: torch tensors too, on any device, with a gradient, or in bfloat16."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":  # numpy has no such type; float32 holds every value of it
            value = value.float()
    return bounded_array(np.asarray(value))


def bounded_array(array: Any) -> Any:
    """The array, unless it claims more memory than a column may have: a broadcast one is small until it is copied."""
    if array.nbytes > COLUMN_BYTES:
        raise ValueError(f"an array of {array.nbytes:,} bytes is larger than a step's column may be")
    return array


def component_name(raw: str, existing: Mapping[str, object]) -> str:
    """A reward function's name as a reading may carry it: odd characters become `_`, with a digest to tell two apart.

    >>> component_name("format", {}), component_name("<lambda>", {})
    ('format', '_lambda_.a153')
    """
    name = raw
    if not _PLAIN_NAME.fullmatch(raw) or raw.endswith(("_flag", "_raw")):
        digest = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()[:4]
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", raw)[:90] + "." + digest
    base, count = name, 2
    while name in existing:
        name, count = f"{base}.{count}", count + 1
    return name


def by_group(batch: RolloutBatch) -> RolloutBatch:
    """The same rows with those of a group adjacent, first appearance first, order inside a group kept."""
    _, first, inverse = np.unique(batch.group, return_index=True, return_inverse=True)
    order = np.argsort(first[inverse], kind="stable")
    return batch if np.array_equal(order, np.arange(len(batch))) else take(batch, order)


def by_prompt(batch: RolloutBatch) -> tuple[Ints, Ints]:
    """Rows in an order in which those of one prompt are adjacent, and where each prompt begins, then the end.

    A prompt that stands in several groups is one prompt. Without the text of prompts a group is a prompt.

    >>> order, starts = by_prompt(from_columns(0, [0, 1, 2], prompt=["a", "b", "a"]))
    >>> order.tolist(), starts.tolist()
    ([0, 2, 1], [0, 2, 3])
    """
    numbers: dict[object, int] = {}
    prompts = batch.prompt or (None,) * len(batch)
    keys = (group if prompt is None else prompt for prompt, group in zip(prompts, batch.group.tolist(), strict=True))
    ids = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    starts = np.concatenate(([0], np.cumsum(np.bincount(ids, minlength=len(numbers)))))
    return np.argsort(ids, kind="stable"), starts.astype(np.int64)


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
        **{name: pick(getattr(batch, name)) for name in ROW_COLUMNS},
    )


def with_gold(batch: RolloutBatch, values: Sequence[float | None]) -> RolloutBatch:
    """The batch with one gold label a row, each asked for with certainty; None: there is none.

    >>> with_gold(from_columns(0, [0, 0], reward=[1, 0]), [1.0, None]).gold.tolist()
    [1.0, nan]
    """
    gold = np.array([np.nan if value is None else value for value in values], np.float64)
    flags = np.where(np.isfinite(gold), 0, FLAGS.index("missing")).astype(np.uint8)
    chance = np.where(np.isfinite(gold), 1.0, np.nan)
    return replace(batch, gold=gold, gold_chance=chance, flags={**batch.flags, "gold": flags})


def join(batches: Sequence[RolloutBatch], *, shared_groups: bool) -> RolloutBatch:
    """One step's batch from those of its ranks, in rank order.

    `shared_groups`: equal ids on two ranks are one prompt group; else ids are each rank's own. A column that one rank
    lacks (it was thinned there) is absent from the whole; a reward function that one rank lacks is `missing` there.
    """
    scalars: dict[str, float] = {}
    for batch in batches:
        scalars = {**batch.scalars, **scalars}  # the lowest rank's value wins: trainers log from rank 0
    batches = [batch for batch in batches if len(batch)] or batches[:1]  # rows: empty ranks are left out
    if len(batches) == 1:
        return replace(batches[0], scalars=scalars)
    if shared_groups:
        group = np.concatenate([batch.group for batch in batches])
    else:
        local_ids = [np.repeat(np.arange(len(b.starts) - 1), np.diff(b.starts)) for b in batches]
        before = np.cumsum([0, *(len(b.starts) - 1 for b in batches)])
        group = np.concatenate([own + start for own, start in zip(local_ids, before[:-1], strict=True)])
    names = dict.fromkeys(name for batch in batches for name in batch.rewards)
    whole = replace(
        batches[0],
        group=group.astype(np.int64),
        rewards={n: np.concatenate([b.rewards.get(n, np.full(len(b), np.nan)) for b in batches]) for n in names},
        flags=_join_flags(batches, names),
        scalars=scalars,
        **{name: _join_column([getattr(batch, name) for batch in batches]) for name in ROW_COLUMNS},
    )
    return by_group(merge_trajectories(whole)) if shared_groups else whole


def _join_column(parts: list[Any]) -> Any:
    if any(part is None for part in parts):
        return None
    if isinstance(parts[0], Ragged):
        lengths = np.concatenate([part.lengths for part in parts])
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        return Ragged(np.concatenate([part.values for part in parts]), offsets)
    if isinstance(parts[0], tuple):
        return tuple(item for part in parts for item in part)
    return np.concatenate(parts)


def _join_flags(batches: Sequence[RolloutBatch], rewards: Iterable[str]) -> dict[str, Flags]:
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


def _first_rows(values: object, rows: int) -> Any:
    """A column, of which at most one row too many is read: a lazy one may have no end."""
    if isinstance(values, np.ma.MaskedArray):
        return values.tolist()  # None where it is masked; as an array it would be stored with gaps
    if isinstance(values, (list, tuple, np.ndarray, Ragged)) or hasattr(values, "__array__"):
        return values
    return list(islice(values, rows + 1))  # type: ignore[call-overload]  # any iterable; a scalar raises, as it should


def _sized_rows(values: Any, most: int) -> list[Any]:
    """The items of something that has a length, if there are as many and not too many."""
    count = len(values)
    items = list(islice(values, min(count, most) + 1))
    if len(items) != count:
        raise ValueError(f"{len(items)} items or more, of {count} that it says it has; {most} at most are read")
    return items


def _clean_numbers(values: object, rows: int) -> tuple[Floats, NDArray[np.bool_]]:
    """A column's numbers, and which are None; anything else among them raises."""
    array, codes = numbers(_first_rows(values, rows))
    if (odd := (codes != OK) & (codes != MISSING)).any():
        raise TypeError(f"a column of numbers holds something else in row {int(np.argmax(odd))}")
    return array, codes == MISSING


def _within_token_limit(batch: RolloutBatch) -> RolloutBatch:
    cut: dict[str, Ragged] = {}
    over = np.zeros(len(batch), bool)
    for name in RAGGED_COLUMNS:
        column: Ragged | None = getattr(batch, name)
        if column is not None and len(column) and column.lengths.max() > TOKEN_LIMIT:
            over |= column.lengths > TOKEN_LIMIT
            cut[name] = Ragged.of([column[row][:TOKEN_LIMIT] for row in range(len(column))], column.values.dtype.type)
    if not cut:
        return batch
    codes = np.where(over, FLAGS.index("capped"), OK).astype(np.uint8)
    return replace(batch, flags={**batch.flags, "tokens": codes}, **cut)  # type: ignore[arg-type]


def _group_ids(group: object) -> Ints:
    """Integer ids as they are; anything else by a stable hash of its text, so that ranks agree without messages."""
    if isinstance(group, np.ma.MaskedArray):
        raise TypeError("group needs one id per completion, none of them masked")
    if not isinstance(group, (list, tuple, np.ndarray)):
        lazy = type(group) is not range and not hasattr(group, "__array__") and hasattr(group, "__len__")
        group = _sized_rows(group, ROW_LIMIT) if lazy else from_tensor(group)
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


def _scalars(raw: Mapping[str, Any]) -> dict[str, float]:
    scalars = {}
    for name, value in islice(raw.items(), SCALAR_LIMIT):
        number, code = _number(value)
        if code == OK:
            scalars[str(name)] = number
    return scalars


def _facts(item: object) -> str | None:
    return dataset_facts.to_text(item) if isinstance(item, Mapping) else plain_text(item)


_PARSERS: dict[str, Callable[[Any], str | None]] = {
    "facts": _facts,
    "artifacts": _facts,
    "stop": parse_stop,
    "turns": lambda turns: None if turns is None else encode_turns(turns),
}


def replace_surrogates(text: str) -> str:
    """The text with lone surrogates replaced: UTF-8 cannot encode them and tokenizers reject them.

    >>> ascii(replace_surrogates("a" + chr(0xD800) + "b"))
    "'a\\\\ufffdb'"
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def plain_text(item: object) -> str | None:
    """A prompt or completion as plain text: a string unchanged, the contents of chat messages, None for None."""
    if item is None or type(item) is str:
        return item
    if isinstance(item, str):  # numpy.str_ and other subclasses
        return str.__str__(item)
    if isinstance(item, (list, dict)):
        messages = item if isinstance(item, list) else [item]
        contents = [message.get("content") if isinstance(message, dict) else None for message in messages]
        if contents and all(isinstance(content, str) for content in contents):
            # Chat messages: their contents, one per line. As JSON a line break would be two characters, and text
            # instruments would not see it.
            return "\n".join(map(str, contents))
        return json.dumps(item, ensure_ascii=False, default=str)
    return str(item)
