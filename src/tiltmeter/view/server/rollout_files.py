"""Reads step files for the rollout index: the numbers of whole steps, and the text of single rows.

`RunDirectory.read` makes every text and flag of a file a Python object, which for a million rollouts takes a minute.
Here columns stay Arrow arrays, and only the text cells that are shown or searched are decoded.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tiltmeter.data.batches import OK, join
from tiltmeter.data.records import FLAGS, Flags, Floats, Ints, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.columns import file_columns
from tiltmeter.rundir.parquet import open_sealed
from tiltmeter.rundir.run_path import file_status
from tiltmeter.rundir.seal import SealedFile, map_file
from tiltmeter.rundir.store import RunDirectory, StepFile

#: New in each process, so that nobody can construct two prompts with the same hash.
_SALT = secrets.token_bytes(16)

#: One row of the table per rollout, in this order; `row` counts the joined batch, `place` the file of `rank`.
SCHEMA = pa.schema(
    [
        ("attempt", pa.int64()),
        ("step", pa.int64()),
        ("row", pa.int32()),
        ("rank", pa.int32()),
        ("place", pa.int32()),
        ("prompt_group", pa.int64()),
        ("reward", pa.float64()),
        ("flag", pa.uint8()),
        ("gold", pa.float64()),
        ("length", pa.int64()),
        ("truncated", pa.bool_()),
        ("advantage", pa.float64()),
        ("prompt", pa.uint64()),
        ("standing", pa.float64()),
        ("disagrees", pa.bool_()),
    ]
)


@dataclass
class _RankColumns:
    """The numbers of one rank's file; NaN and None are what is missing."""

    rank: int
    shared: bool
    group: Ints
    numbers: dict[str, Floats]
    flag: Flags
    length: pa.Array
    truncated: pa.Array
    prompt: pa.Array
    rewards: dict[str, Floats]


class StepFileReader:
    """Reads columns of step files and caches the last row groups, which neighbouring steps of a packed file share. Not
    thread-safe."""

    def __init__(self) -> None:
        self._sealed: tuple[Path, SealedFile] | None = None
        self._schema = pa.schema([])  # of that file, and the index of each column's data
        self._leaves: dict[str, int] = {}
        self._cached_table: tuple[object, pa.Table] | None = None

    def read_step(self, files: Sequence[StepFile]) -> pa.Table:
        """The numbers of one step, with the row numbers that a batch joined from these files has. See `SCHEMA`."""
        parts = [self._read_rank(file) for file in files]
        sizes = [len(part.group) for part in parts]
        begins = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        first = files[0]
        batches = [
            RolloutBatch(first.attempt, first.step, part.group, length=np.arange(start, start + len(part.group)))
            for part, start in zip(parts, begins[:-1], strict=True)
        ]
        whole = join(batches, shared_groups=parts[-1].shared)
        order = whole.length
        assert order is not None
        return _table(parts, whole, order)

    def read_texts(self, file: StepFile, names: Sequence[str]) -> tuple[pa.Table, dict[str, Any]]:
        """Whole text columns of a file, as they are stored, and the file's facts."""
        with _damage_as_store_error(file):
            sealed, facts = self._open(file)
            groups = file.row_groups if file.row_groups is not None else range(sealed.file.metadata.num_row_groups)
            table = self._read_columns(sealed, tuple(groups), _companions(names))
            return table.slice(file.offset, facts["rows"]), facts

    def read_cells(self, file: StepFile, places: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
        """These columns, companions included, of single rows; only the row groups that hold them are read.

        An entry of `names` that ends in a dot stands for every column that begins so.
        """
        with _damage_as_store_error(file):
            sealed, _ = self._open(file)
            groups = list(
                file.row_groups if file.row_groups is not None else range(sealed.file.metadata.num_row_groups)
            )
            ends = np.cumsum([sealed.file.metadata.row_group(group).num_rows for group in groups])
            cells = []
            for place in places:
                row = place + file.offset
                nth = int(np.searchsorted(ends, row, "right"))
                table = self._read_columns(sealed, (groups[nth],), _companions(names), reasons=True)
                inside = row - (int(ends[nth - 1]) if nth else 0)
                cells.append(table.slice(inside, 1).to_pylist()[0])
            return cells

    def _read_rank(self, file: StepFile) -> _RankColumns:
        with _damage_as_store_error(file):
            sealed, facts = self._open(file)
            names = ["group", "reward", "reward_flag", "gold", "gold_flag", "advantage", "length", "truncated"]
            names += ["prompt", "prompt_raw", "rewards."]
            groups = file.row_groups if file.row_groups is not None else range(sealed.file.metadata.num_row_groups)
            table = self._read_columns(sealed, tuple(groups), tuple(names)).slice(file.offset, facts["rows"])
            if table.num_rows != facts["rows"]:
                raise StoreError(f"{file.path} has {table.num_rows} rows, its metadata says {facts['rows']}")
            own_columns = set(facts["columns"])  # in a packed file other steps may have had more
            table = table.select(
                [n for n in table.column_names if n.removesuffix("_flag").removesuffix("_raw") in own_columns]
            )
            return _rank_columns(file.rank, facts.get("groups") == "shared", table)

    def _open(self, file: StepFile) -> tuple[SealedFile, dict[str, Any]]:
        """Open and check a step file; the last one stays open."""
        if self._sealed is None or self._sealed[0] != file.path:
            sealed, facts = open_sealed(map_file(file.path), str(file.path))
            declared = sealed.file.metadata
            leaves = range(declared.num_columns if declared.num_row_groups else 0)
            self._schema, self._facts = sealed.file.schema_arrow, facts
            paths = {leaf: declared.row_group(0).column(leaf).path_in_schema for leaf in leaves}
            # A list is one leaf too, below its column; none of ours is nested deeper.
            self._leaves = {
                path if path in self._schema.names else path.removesuffix(".list.element"): leaf
                for leaf, path in paths.items()
            }
            self._sealed, self._cached_table = (file.path, sealed), None
        facts = self._facts if file.row_groups is None else json.loads(file.facts)
        if (facts["attempt"], facts["step"], facts["rank"]) != (file.attempt, file.step, file.rank):
            raise StoreError(f"{file.path} holds another step than its name says")
        return self._sealed[1], facts

    def _read_columns(
        self, sealed: SealedFile, groups: tuple[int, ...], wanted: tuple[str, ...], *, reasons: bool = False
    ) -> pa.Table:
        """Checked columns of these row groups; absent ones are left out. `reasons`: with the flags of reward functions,
        which tell why a number is missing, not whether."""
        if self._cached_table is not None and self._cached_table[0] == (groups, wanted):
            return self._cached_table[1]
        stems = tuple(name for name in wanted if name.endswith("."))
        names = [
            name
            for name in self._schema.names
            if name in wanted or (stems and name.startswith(stems) and (reasons or not name.endswith("_flag")))
        ]
        if not groups:
            table = self._schema.empty_table().select(names)
        else:
            sealed.check(groups, [self._leaves[name] for name in names])
            table = sealed.file.read_row_groups(list(groups), columns=names, use_threads=False)
        self._cached_table = ((groups, wanted), table)
        return table


def find_step_file(run: RunDirectory, attempt: int, step: int, rank: int) -> StepFile:
    """The file that holds a rank's rollouts of a step, loose or packed. Raises `StoreError` if they are deleted."""
    path = run.step_path(attempt, step, rank)
    if file_status(path) is not None:
        return StepFile(attempt, step, rank, path, path.name)
    for file in run.find(attempt, step):
        if file.rank == rank:
            return file
    raise StoreError(f"step {step} of attempt {attempt}, rank {rank}, is not stored any more")


def text_of(cell: dict[str, Any], name: str) -> str | None:
    """A text of a row, exactly as written, also where it is not valid UTF-8."""
    raw = cell.get(f"{name}_raw")
    if raw is not None:
        return bytes(raw).decode("utf-8", "surrogatepass")
    text = cell.get(name)
    return None if text is None else str(text)


def prompt_hash(text: str | bytes) -> int:
    """A hash of a prompt, stable within this process."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=_SALT).digest())


def text_hashes(table: pa.Table, name: str = "prompt") -> pa.Array:
    """The hash of each text of a column, each distinct one hashed once; null where there is none."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.uint64())
    coded = table[name].combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    distinct_hashes = pa.array(
        [None if t is None else prompt_hash(t) for t in coded.dictionary.to_pylist()], pa.uint64()
    )
    row_hashes = distinct_hashes.take(coded.indices)
    if f"{name}_raw" not in table.column_names:
        return row_hashes
    exact = [None if raw is None else prompt_hash(bytes(raw)) for raw in table[f"{name}_raw"].to_pylist()]
    return pc.coalesce(pa.array(exact, pa.uint64()), row_hashes)


def _companions(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for name in names for part in ((name,) if name.endswith(".") else file_columns(name)))


def _rank_columns(rank: int, shared: bool, table: pa.Table) -> _RankColumns:
    rows, present = table.num_rows, set(table.column_names)

    def number(name: str) -> Floats:
        if name not in present:
            return np.full(rows, np.nan)
        values = table[name].to_numpy()  # null becomes NaN
        return np.where(np.isfinite(values), values, np.nan)

    def flagged(name: str) -> Flags:
        if f"{name}_flag" not in present:
            return np.zeros(rows, np.uint8)
        codes = pc.index_in(table[f"{name}_flag"], pa.array(FLAGS))
        # An unknown flag of a newer format also means that the value must not be used.
        return np.asarray(pc.fill_null(codes, FLAGS.index("type")), np.uint8)

    def plain(name: str, kind: pa.DataType) -> pa.Array:
        return table[name].combine_chunks() if name in present else pa.nulls(rows, kind)

    numbers, flag = {name: number(name) for name in ("reward", "gold", "advantage")}, flagged("reward")
    numbers["reward"] = np.where(flag == OK, numbers["reward"], np.nan)
    numbers["gold"] = np.where(flagged("gold") == OK, numbers["gold"], np.nan)
    group = table["group"].to_numpy() if "group" in present else np.zeros(rows, np.int64)
    rewards = {n: number(n) for n in table.column_names if n.startswith("rewards.") and not n.endswith("_flag")}
    length, truncated = plain("length", pa.int64()), plain("truncated", pa.bool_())
    return _RankColumns(rank, shared, group, numbers, flag, length, truncated, text_hashes(table), rewards)


def _table(parts: list[_RankColumns], whole: RolloutBatch, order: Ints) -> pa.Table:
    numbers = {name: np.concatenate([part.numbers[name] for part in parts])[order] for name in parts[0].numbers}
    names = dict.fromkeys(name for part in parts for name in part.rewards)
    rewards = [
        np.concatenate([part.rewards.get(name, np.full(len(part.group), np.nan)) for part in parts])[order]
        for name in names
    ]
    ranks = np.concatenate([np.full(len(part.group), part.rank) for part in parts])
    places = np.concatenate([np.arange(len(part.group)) for part in parts])
    flag = np.concatenate([part.flag for part in parts])
    picked = pa.array(order)
    columns = [
        np.full(len(order), whole.attempt),
        np.full(len(order), whole.step),
        np.arange(len(order)),
        ranks[order],
        places[order],
        whole.group,
        _nan_to_null(numbers["reward"]),
        flag[order],
        _nan_to_null(numbers["gold"]),
        *(pa.concat_arrays([getattr(part, name) for part in parts]).take(picked) for name in ("length", "truncated")),
        _nan_to_null(numbers["advantage"]),
        pa.concat_arrays([part.prompt for part in parts]).take(picked),
        _nan_to_null(percentile_rank(numbers["reward"])),
        disagrees(rewards, len(order)),
    ]
    arrays = [pa.array(column, kind) if isinstance(column, np.ndarray) else column.cast(kind)
              for column, kind in zip(columns, SCHEMA.types, strict=True)]  # fmt: skip
    return pa.table(arrays, schema=SCHEMA)


def percentile_rank(reward: Floats) -> Floats:
    """The percentile rank of each reward in its step, from 0 to 1 like gold, ties in the middle: comparable with gold
    whatever the reward's scale.

    >>> percentile_rank(np.array([5.0, np.nan, 1e9, 5.0])).round(3).tolist()
    [0.333, nan, 0.833, 0.333]
    """
    ordered = np.sort(reward[np.isfinite(reward)])
    if not len(ordered):
        return np.full(len(reward), np.nan)
    below, upto = np.searchsorted(ordered, reward, "left"), np.searchsorted(ordered, reward, "right")
    return np.where(np.isfinite(reward), (below + upto) / (2.0 * len(ordered)), np.nan)


def disagrees(rewards: Sequence[Floats], rows: int) -> NDArray[np.bool_]:
    """Rows whose reward functions lie furthest apart, each in standard deviations of the step: the widest quarter.

    Ties at the edge are included unless they make up most of the step. A constant reward function is ignored.

    >>> disagrees([np.array([0.0, 0, 1, 1]), np.array([0.0, 0, 1, 0])], 4).tolist()
    [False, False, False, True]
    """
    scaled = []
    for values in rewards:
        finite = values[np.isfinite(values)]
        with np.errstate(over="ignore", invalid="ignore"):  # a reward may be as large as a float can be
            mean, spread = (float(finite.mean()), float(finite.std())) if len(finite) else (0.0, 0.0)
            if np.isfinite(spread) and spread > 1e-9 * (1.0 + abs(mean)):
                scaled.append((values - mean) / spread)
    nothing = np.zeros(rows, bool)
    if len(scaled) < 2:
        return nothing
    stacked = np.stack(scaled)
    comparable = np.isfinite(stacked).sum(axis=0) >= 2
    if not comparable.any():
        return nothing
    width = np.full(rows, np.nan)
    width[comparable] = np.nanmax(stacked[:, comparable], axis=0) - np.nanmin(stacked[:, comparable], axis=0)
    edge = float(np.quantile(width[comparable], 0.75, method="higher"))
    widest: NDArray[np.bool_] = comparable & (width >= edge)
    return widest if widest.sum() <= comparable.sum() / 2 else np.asarray(comparable & (width > edge))


def _nan_to_null(values: Floats) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null


@contextmanager
def _damage_as_store_error(file: StepFile) -> Iterator[None]:
    """Turn every error that a damaged file causes in the libraries into a `StoreError`."""
    try:
        yield
    except StoreError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise StoreError(f"{file.path} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
