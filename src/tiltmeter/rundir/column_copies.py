"""What a trainer passes to `observe`: copied on its own thread, and made a batch on the writer's.

Any column may be broken in any way: it may raise when it is looked at, never end, or call `observe` itself. A broken
one is left out with its reason; without `step`, `group` or the reward there is no batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import fields
from itertools import islice
from typing import Any

import numpy as np

from tiltmeter.data.batches import INPUTS, bounded_array, from_columns, from_tensor, thin
from tiltmeter.data.records import RAGGED_COLUMNS, TEXT_COLUMNS, Ragged, RolloutBatch
from tiltmeter.errors import Boundary, describe_error

LOCKED_COPY = 4 << 20  # bytes copied in one go without letting other threads run: below 1 ms
MAPPING_ITEMS = 10_000  # of a mapping that is no dict and may have no end
NEEDED = ("step", "group", "reward")  # a step without its reward would be measured as one without any

COLUMN_NAMES = frozenset((*(field.name for field in fields(RolloutBatch)), *INPUTS))
_PLAIN = (str, int, float, type(None))
_SMALL = (*_PLAIN, dict)

Columns = Mapping[str, Any]
LostColumns = dict[str, str]  # why each column was left out, by its name


def copy_columns(item: Columns, lost: LostColumns | None = None) -> dict[str, Any]:
    """The columns with numeric data copied, because trainers reuse buffers; strings cannot change and stay shared.

    A column that cannot be copied is left out and named in `lost`; one of `NEEDED`, or without `lost`, raises."""
    errors: list[BaseException] = []
    with Boundary(errors.append, strict=lost is None):
        return {name: _copy(value) for name, value in item.items()}
    columns = {}  # one of them fails, and a boundary each costs time
    for name, value in item.items():
        with column_boundary(lost, name):
            columns[name] = _copy(value)
    return columns


def column_boundary(lost: LostColumns | None, name: str) -> Boundary:
    """The boundary around one column."""

    def note(error: BaseException) -> None:
        assert lost is not None
        lost[name] = describe_error(error)

    return Boundary(note, strict=lost is None or name in NEEDED)


def build_batch(columns: Columns, lost: LostColumns) -> RolloutBatch:
    """The batch of these columns; those that cannot be read are left out and named in `lost`. Runs on our thread."""
    errors: list[BaseException] = []
    with Boundary(errors.append, own_thread=True):
        return from_columns(**columns)
    if not columns.keys() <= COLUMN_NAMES:
        raise errors[0]  # a name that is misspelt: whoever wrote it hears of it
    needed = {name: columns[name] for name in ("step", "group", "attempt") if name in columns}
    rows = len(from_columns(**needed))
    # The length first: a padded matrix cannot be read without it.
    for name in sorted(columns, key=lambda name: name != "length"):
        if name in ("rewards", "scalars") and isinstance(columns[name], Mapping):
            needed[name] = {}
            for part, values in islice(columns[name].items(), MAPPING_ITEMS):
                label = f"{name}.{str.__getitem__(str(part), slice(40))}"
                with column_boundary(lost, label):
                    values = _rows(values, rows) if name == "rewards" else values
                    from_columns(**{**needed, name: {part: values}})
                    needed[name][part] = values
        elif name not in needed:
            with column_boundary(lost, name):
                value = columns[name] if name == "fingerprint" else _rows(columns[name], rows)
                from_columns(**needed, **{name: value})
                needed[name] = value
    filled = {name for name, value in needed.items() if type(value) is not dict or value}
    if filled <= {"step", "group", "attempt", "fingerprint"}:
        raise errors[0]  # nothing is left to measure
    return from_columns(**needed)


def _rows(values: Any, rows: int) -> Any:
    """The rows of a column that can be read twice; of one that may have no end, one more than there should be."""
    whole = isinstance(values, (list, tuple, np.ndarray, Ragged, type(None))) or hasattr(values, "__array__")
    return values if whole else list(islice(values, rows + 1))


def thin_columns(item: RolloutBatch | Columns) -> RolloutBatch | Columns:
    """The columns without text and tokens; lengths are kept, computed from the tokens if necessary."""
    if isinstance(item, RolloutBatch):
        return thin(item)
    columns = {name: value for name, value in item.items() if name not in (*TEXT_COLUMNS, *RAGGED_COLUMNS, "messages")}
    rows = item.get("tokens") if item.get("tokens") is not None else item.get("logprob")
    if columns.get("length") is None and rows is not None:
        columns["length"] = rows.lengths if isinstance(rows, Ragged) else [len(row) for row in rows]
    return columns


def nbytes(item: RolloutBatch | Columns) -> int:
    """About how much memory a batch holds. It runs on the training thread and must be fast: a list counts as if
    each of its items were as large as the largest of three samples."""
    columns: Iterable[Any] = vars(item).values() if isinstance(item, RolloutBatch) else item.values()
    total = 0
    for value in columns:
        kind = type(value)
        if kind is np.ndarray:
            size = value.nbytes
        elif kind is list or kind is tuple:
            size = len(value) and len(value) * max(map(_item_bytes, (value[0], value[len(value) // 2], value[-1])))
        else:
            size = 0 if kind in _SMALL else _odd_bytes(value)
        total += size or 64
    return total


def _odd_bytes(value: Any) -> int:
    """Of a tensor or the like."""
    with Boundary(lambda error: None):  # it is counted where the column is read
        return value.nbytes if type(value.nbytes) is int else 0
    return 0


def _item_bytes(value: Any) -> int:
    kind = type(value)
    return len(value) + 56 if kind is str else 8 * len(value) if kind in (list, tuple, dict, np.ndarray) else 8


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _copy_array(value)
    if isinstance(value, Ragged):
        twin = copy(value)  # not by its constructor, whose checks have been made and would let go of the lock
        object.__setattr__(twin, "values", _copy_array(value.values))
        object.__setattr__(twin, "offsets", _copy_array(value.offsets))
        return twin
    if isinstance(value, (list, tuple)):
        first = value[0] if value else None
        if isinstance(first, _PLAIN):
            return list(value)
        if type(first) is list and first and isinstance(first[0], (int, float)):
            return [list(part) if type(part) is list else _copy(part) for part in value]  # token ids, often millions
        return [_copy(part) for part in value]
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, Mapping):
        return {name: _copy(part) for name, part in islice(value.items(), MAPPING_ITEMS)}
    if hasattr(value, "__array__") and not np.isscalar(value):
        return _copy_array(from_tensor(value))  # a tensor: always a copy, and never one of its storage
    return value


def _copy_array(array: Any) -> Any:
    """A copy that nobody else holds. `ndarray.copy` lets go of the interpreter lock, and with our own thread busy,
    getting it back takes up to the switch interval of 5 ms: twenty times the copy. `tobytes` keeps it."""
    array = bounded_array(array)
    plain = type(array) is np.ndarray and array.dtype.kind in "biuf" and array.flags.c_contiguous
    if plain and array.nbytes <= LOCKED_COPY:
        return np.ndarray(array.shape, array.dtype, array.tobytes())
    return array.copy()
