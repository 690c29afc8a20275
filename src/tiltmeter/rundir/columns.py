"""Convert a `RolloutBatch` to an Arrow table and back: text byte for byte, numbers with a flag where they are missing.

Columns in files: numbers as float64 with a `*_flag` word beside them; text as valid UTF-8 with the exact bytes in
`*_raw` where the text was not (lone surrogates); `*_chars` and `*_sha256` where it was longer than the limit; ragged
columns as lists. The file's metadata lists the batch's columns, so an absent column differs from one not read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tiltmeter.data.batches import OK
from tiltmeter.data.records import (
    BOOL_COLUMNS,
    FLAGS,
    LABEL_COLUMNS,
    NUMBER_COLUMNS,
    RAGGED_COLUMNS,
    TEXT_COLUMNS,
    Flags,
    Ragged,
    RolloutBatch,
    Text,
)
from tiltmeter.data.turns import TURNS_BYTES
from tiltmeter.errors import StoreError

TEXT_LIMIT = 256 * 1024  # bytes of UTF-8 per field; the first and last half of a longer text are kept
PRECISIONS = ("fp32", "round12", "fp16")

_CAPPED = FLAGS.index("capped")
_LOGPROBS = ("logprob", "ref_logprob", "engine_logprob")
_NUMPY_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64"}  # Arrow's, where they differ


def to_table(batch: RolloutBatch, *, precision: str = "fp32") -> tuple[pa.Table, dict[str, Any]]:
    """The batch's rows, and the part of it that is not rows (to be kept as the file's metadata)."""
    arrays: dict[str, pa.Array] = {"group": pa.array(batch.group, pa.int64())}
    columns = ["group"]
    for name in NUMBER_COLUMNS:
        if (values := getattr(batch, name)) is not None:
            _add_numbers(arrays, name, values, batch.flags.get(name))
            columns.append(name)
    for name, values in batch.rewards.items():
        _add_numbers(arrays, f"rewards.{name}", values, batch.flags.get(f"rewards.{name}"))
        columns.append(f"rewards.{name}")
    kinds = {"length": pa.int64(), **dict.fromkeys(BOOL_COLUMNS, pa.bool_()), "trajectory": pa.int64()}
    for name, kind in kinds.items():
        if (values := getattr(batch, name)) is not None:
            arrays[name] = pa.array(values, kind)
            columns.append(name)
    for name in (*TEXT_COLUMNS, *LABEL_COLUMNS):
        if (texts := getattr(batch, name)) is not None:
            _add_text(arrays, name, texts, TURNS_BYTES if name == "turns" else TEXT_LIMIT)
            columns.append(name)
    for name in RAGGED_COLUMNS:
        if (rows := getattr(batch, name)) is not None:
            arrays[name] = _list_array(rows, precision if name in _LOGPROBS else "fp32")
            columns.append(name)
    facts: dict[str, Any] = {"columns": columns, "fingerprint": batch.fingerprint, "scalars": _plain(batch.scalars)}
    if "tokens" in batch.flags:
        facts["capped_tokens"] = np.flatnonzero(batch.flags["tokens"]).tolist()
    return pa.table(arrays), facts


def from_table(table: pa.Table, facts: Mapping[str, Any], attempt: int, step: int) -> RolloutBatch:
    """The batch that `to_table` was given, with NaN in every number that is not `ok`."""
    columns: dict[str, Any] = {}
    rewards: dict[str, Any] = {}
    flags: dict[str, Flags] = {}
    present = set(table.column_names)
    for name in facts["columns"]:
        if name not in present:
            continue  # not read this time
        if name in NUMBER_COLUMNS or name.startswith("rewards."):
            values, codes = _numbers(table, name)
            if codes.any():
                flags[name] = codes
            if name in NUMBER_COLUMNS:
                columns[name] = values
            else:
                rewards[name.removeprefix("rewards.")] = values
        elif name in ("length", "trajectory", *BOOL_COLUMNS):
            columns[name] = _numpy(table[name])
        elif name in TEXT_COLUMNS or name in LABEL_COLUMNS:
            columns[name], codes = _texts(table, name)
            if codes.any():
                flags[name] = codes
        elif name in RAGGED_COLUMNS:
            columns[name] = _ragged(table[name])
    if capped := facts.get("capped_tokens"):
        flags["tokens"] = np.zeros(table.num_rows, np.uint8)
        flags["tokens"][capped] = _CAPPED
    return RolloutBatch(
        attempt=attempt,
        step=step,
        group=_numpy(table["group"]) if "group" in present else np.zeros(table.num_rows, np.int64),
        rewards=rewards,
        flags=flags,
        scalars={name: float(value) for name, value in facts.get("scalars", {}).items()},
        fingerprint=facts.get("fingerprint", ""),
        **columns,
    )


def file_columns(name: str) -> tuple[str, ...]:
    """The file columns that carry one batch column."""
    if name in TEXT_COLUMNS or name in LABEL_COLUMNS:
        return (name, f"{name}_raw", f"{name}_chars", f"{name}_sha256")
    return (name, f"{name}_flag") if name in NUMBER_COLUMNS or name.startswith("rewards.") else (name,)


def content_hash(table: pa.Table) -> str:
    """SHA-256 of a table's content, independent of chunking and encoding: equal before and after packing.

    >>> one = pa.table({"a": pa.chunked_array([[1], [None, 3]])})
    >>> content_hash(one) == content_hash(one.combine_chunks()), content_hash(one) == content_hash(one.slice(1))
    (True, False)
    """
    digest = hashlib.sha256()
    for name in sorted(table.column_names):
        column = table[name]
        if column.null_count == len(column):
            continue  # merging files with different columns fills in nulls, which are not content
        digest.update(f"{name}:{len(column)}".encode())
        _hash_array(digest, column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    return digest.hexdigest()


def _hash_array(digest: Any, array: pa.Array) -> None:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    digest.update(np.packbits(_numpy(array.is_valid())).tobytes())
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        digest.update(_numpy(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64).tobytes())
        _hash_array(digest, array.flatten())
    elif pa.types.is_floating(array.type) or pa.types.is_integer(array.type) or pa.types.is_boolean(array.type):
        digest.update(np.ascontiguousarray(_numpy(pc.fill_null(array, pa.scalar(0).cast(array.type)))).tobytes())
    else:
        for item in array.to_pylist():
            raw = item if isinstance(item, bytes) else str(item).encode()
            digest.update(len(raw).to_bytes(8, "little") + raw)


def _add_numbers(arrays: dict[str, pa.Array], name: str, values: Any, codes: Flags | None) -> None:
    if codes is None:
        codes = np.zeros(len(values), np.uint8)
    # Not a number at all is null; NaN and infinities are numbers of their own kind and keep their value.
    null = (codes != OK) & ~np.isin(codes, (FLAGS.index("nan"), FLAGS.index("+inf"), FLAGS.index("-inf")))
    arrays[name] = pa.array(values, pa.float64(), mask=null if null.any() else None)
    arrays[f"{name}_flag"] = pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int8()), pa.array(FLAGS)
    ).dictionary_decode()


def _numbers(table: pa.Table, name: str) -> tuple[Any, Flags]:
    array = _combine_chunks(table[name])
    values = _values(array).astype(np.float64)
    if array.null_count:
        values[~_values(array.is_valid())] = np.nan
    codes = np.zeros(len(values), np.uint8)
    if f"{name}_flag" in table.column_names:
        words = table[f"{name}_flag"].to_pylist()
        if any(word != "ok" for word in words):
            # A word from a newer format still means "not ok": the value is not used, whatever it says.
            codes = np.array([FLAGS.index(w) if w in FLAGS else FLAGS.index("type") for w in words], np.uint8)
    return np.where(codes == OK, values, np.nan), codes


def _add_text(arrays: dict[str, pa.Array], name: str, texts: Text, limit: int) -> None:
    try:
        array = pa.array(texts, pa.large_string())
    except UnicodeEncodeError:
        array = None
    if array is not None and (not len(array) or (pc.max(pc.binary_length(array)).as_py() or 0) <= limit):
        arrays[name] = array
        return
    valid: list[str | None] = []
    raw: list[bytes | None] = []
    chars: list[int | None] = []
    sha: list[bytes | None] = []
    for text in texts:
        excerpt, whole = _cap(text)
        exact = None if excerpt is None else excerpt.encode("utf-8", "surrogatepass")
        valid.append(None if excerpt is None else excerpt.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
        raw.append(exact if valid[-1] != excerpt else None)
        chars.append(len(text) if whole and text is not None else None)
        sha.append(whole)
    arrays[name] = pa.array(valid, pa.large_string())
    arrays[f"{name}_raw"] = pa.array(raw, pa.large_binary())
    arrays[f"{name}_chars"] = pa.array(chars, pa.int64())
    arrays[f"{name}_sha256"] = pa.array(sha, pa.binary())


def _cap(text: str | None) -> tuple[str | None, bytes | None]:
    """The text within the limit, and the digest of the whole if it was cut."""
    if text is None or (len(text) * 4 <= TEXT_LIMIT):
        return text, None
    whole = text.encode("utf-8", "surrogatepass")
    if len(whole) <= TEXT_LIMIT:
        return text, None
    half = TEXT_LIMIT // 2
    head, tail = half, len(whole) - half
    while whole[head] & 0xC0 == 0x80:  # back to a code point's first byte
        head -= 1
    while whole[tail] & 0xC0 == 0x80:
        tail += 1
    excerpt = whole[:head].decode("utf-8", "surrogatepass") + whole[tail:].decode("utf-8", "surrogatepass")
    return excerpt, hashlib.sha256(whole).digest()


def _texts(table: pa.Table, name: str) -> tuple[tuple[str | None, ...], Flags]:
    texts = table[name].to_pylist()
    codes = np.zeros(len(texts), np.uint8)
    if f"{name}_raw" in table.column_names:
        for row, raw in enumerate(table[f"{name}_raw"].to_pylist()):
            if raw is not None:
                texts[row] = raw.decode("utf-8", "surrogatepass")
    if f"{name}_sha256" in table.column_names:
        codes[_numpy(table[f"{name}_sha256"].is_valid())] = _CAPPED
    return tuple(texts), codes


def _list_array(rows: Ragged, precision: str) -> pa.Array:
    values = rows.values
    if precision == "round12":
        # Round the mantissa to 12 bits: readers are unchanged, and zstd finds the zeros.
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        rounded = ((bits + np.uint32(1 << 10)) & ~np.uint32((1 << 11) - 1)).view(np.float32)
        values = np.where(np.isfinite(values), rounded, values)
    elif precision == "fp16":
        values = values.astype(np.float16)
    offsets = pa.array(rows.offsets, pa.int64())
    return pa.LargeListArray.from_arrays(offsets, pa.array(values))


def _ragged(column: pa.ChunkedArray) -> Ragged:
    array = _combine_chunks(column)
    lengths = _values(pc.list_value_length(array)).astype(np.int64)
    if array.null_count:
        lengths[~_values(array.is_valid())] = 0
    values = _numpy(array.flatten())
    offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
    return Ragged(values.astype(np.float32) if values.dtype == np.float16 else values, offsets)


def _numpy(array: Any) -> Any:
    array = _combine_chunks(array)
    if array.null_count:
        raise StoreError("a column that must be whole has gaps")
    return _values(array)


def _combine_chunks(array: Any) -> Any:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.combine_chunks() if array.num_chunks != 1 else array.chunk(0)


def _values(array: pa.Array) -> Any:
    """Numbers as they lie in memory, anything where one is null. `to_numpy`, and whatever makes a scalar, import pandas
    where it is installed, which takes longer than to read a hundred files."""
    # Not `to_pandas_dtype`, which before pyarrow 25 wants pandas for it.
    name = str(array.type)
    kind, stop = np.dtype(_NUMPY_NAMES.get(name, name)), array.offset + len(array)
    if not len(array):
        return np.empty(0, kind)
    data = array.buffers()[1]
    if pa.types.is_boolean(array.type):
        bits = np.unpackbits(np.frombuffer(data, np.uint8), count=stop, bitorder="little")
        return bits[array.offset :].view(np.bool_)
    values = np.frombuffer(data, kind, stop)[array.offset :]
    values.flags.writeable = False  # kernels are compiled once more for arrays that may be written to
    return values


def _plain(scalars: Mapping[str, float]) -> dict[str, float | str]:
    """JSON has no NaN: a scalar that is not finite is stored as a string."""
    return {name: value if np.isfinite(value) else str(value) for name, value in scalars.items()}
