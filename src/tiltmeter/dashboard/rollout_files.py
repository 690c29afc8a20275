"""What the index of rollouts takes from a run's files: the numbers of whole steps, and the text of single rows.

`RunDirectory.read` makes every text and flag of a file a Python object, which for a million rollouts takes a minute.
Here columns stay as Arrow keeps them, and of text only the cells that are shown, or searched, are decoded.
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

from tiltmeter.batches import OK, join
from tiltmeter.columns import companions
from tiltmeter.errors import StoreError
from tiltmeter.parquet import open_sealed
from tiltmeter.records import FLAGS, Flags, Floats, Ints, RolloutBatch
from tiltmeter.seal import Sealed
from tiltmeter.store import RunDirectory, StepFile

#: Drawn anew in each process, so that nobody can write two prompts that are taken for one.
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
class _Part:
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


class Reader:
    """Reads columns of step files; the row groups read last are kept, since neighbouring steps of a packed file share
    them. For one thread."""

    def __init__(self) -> None:
        self._sealed: tuple[Path, Sealed] | None = None
        self._schema = pa.schema([])  # of that file, and where each column's data lie: a file makes them anew
        self._leaves: dict[str, int] = {}
        self._kept: tuple[object, pa.Table] | None = None

    def step(self, files: Sequence[StepFile]) -> pa.Table:
        """The numbers of one step, with the row numbers that a batch joined from these files has. See `SCHEMA`."""
        parts = [self._part(file) for file in files]
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

    def texts(self, file: StepFile, names: Sequence[str]) -> tuple[pa.Table, dict[str, Any]]:
        """Whole text columns of a file, as they are stored, and the file's facts."""
        with _damaged(file):
            sealed, facts = self._open(file)
            groups = file.row_groups if file.row_groups is not None else range(sealed.file.metadata.num_row_groups)
            table = self._read(sealed, tuple(groups), _companions(names))
            return table.slice(file.offset, facts["rows"]), facts

    def cells(self, file: StepFile, places: Sequence[int], names: Sequence[str]) -> list[dict[str, Any]]:
        """These columns, companions included, of single rows; only the row groups that hold them are read.

        An entry of `names` that ends in a dot stands for every column that begins so.
        """
        with _damaged(file):
            sealed, _ = self._open(file)
            groups = list(
                file.row_groups if file.row_groups is not None else range(sealed.file.metadata.num_row_groups)
            )
            ends = np.cumsum([sealed.file.metadata.row_group(group).num_rows for group in groups])
            found = []
            for place in places:
                at = place + file.offset
                nth = int(np.searchsorted(ends, at, "right"))
                table = self._read(sealed, (groups[nth],), _companions(names), reasons=True)
                inside = at - (int(ends[nth - 1]) if nth else 0)
                found.append(table.slice(inside, 1).to_pylist()[0])
            return found

    def _part(self, file: StepFile) -> _Part:
        with _damaged(file):
            sealed, facts = self._open(file)
            names = ["group", "reward", "reward_flag", "gold", "gold_flag", "advantage", "length", "truncated"]
            names += ["prompt", "prompt_raw", "rewards."]
            groups = file.row_groups if file.row_groups is not None else range(sealed.file.metadata.num_row_groups)
            table = self._read(sealed, tuple(groups), tuple(names)).slice(file.offset, facts["rows"])
            if table.num_rows != facts["rows"]:
                raise StoreError(f"{file.path} has {table.num_rows} rows, its metadata says {facts['rows']}")
            own = set(facts["columns"])  # in a packed file other steps may have had more
            table = table.select([n for n in table.column_names if n.removesuffix("_flag").removesuffix("_raw") in own])
            return _part(file.rank, facts.get("groups") == "shared", table)

    def _open(self, file: StepFile) -> tuple[Sealed, dict[str, Any]]:
        """A file of ours, checked; one that was opened last is open."""
        if self._sealed is None or self._sealed[0] != file.path:
            sealed, facts = open_sealed(pa.memory_map(str(file.path)).read_buffer(), str(file.path))
            declared = sealed.file.metadata
            leaves = range(declared.num_columns if declared.num_row_groups else 0)
            self._schema, self._facts = sealed.file.schema_arrow, facts
            paths = {leaf: declared.row_group(0).column(leaf).path_in_schema for leaf in leaves}
            # A list is one leaf too, below its column; none of ours is nested deeper.
            self._leaves = {
                path if path in self._schema.names else path.removesuffix(".list.element"): leaf
                for leaf, path in paths.items()
            }
            self._sealed, self._kept = (file.path, sealed), None
        facts = self._facts if file.row_groups is None else json.loads(file.facts)
        if (facts["attempt"], facts["step"], facts["rank"]) != (file.attempt, file.step, file.rank):
            raise StoreError(f"{file.path} holds another step than its name says")
        return self._sealed[1], facts

    def _read(
        self, sealed: Sealed, groups: tuple[int, ...], wanted: tuple[str, ...], *, reasons: bool = False
    ) -> pa.Table:
        """Checked columns of these row groups; absent ones are left out. `reasons`: with the flags of reward functions,
        which tell why a number is missing, not whether."""
        if self._kept is not None and self._kept[0] == (groups, wanted):
            return self._kept[1]
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
        self._kept = ((groups, wanted), table)
        return table


def locate(run: RunDirectory, attempt: int, step: int, rank: int) -> StepFile:
    """Where a rank's rollouts of a step lie now, loose or packed. Raises `StoreError` if they are gone."""
    path = run.step_path(attempt, step, rank)
    if path.is_file() and not path.is_symlink():
        return StepFile(attempt, step, rank, path, path.name)
    for file in run.find(attempt, step):
        if file.rank == rank:
            return file
    raise StoreError(f"step {step} of attempt {attempt}, rank {rank}, is not stored any more")


def text_of(cell: dict[str, Any], name: str) -> str | None:
    """A text from the row that `Reader.cells` gave: the exact one, also where it is no valid UTF-8."""
    raw = cell.get(f"{name}_raw")
    if raw is not None:
        return bytes(raw).decode("utf-8", "surrogatepass")
    text = cell.get(name)
    return None if text is None else str(text)


def prompt_hash(text: str | bytes) -> int:
    """A number for a prompt, the same all through this process."""
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(raw, digest_size=8, key=_SALT).digest())


def hashes(table: pa.Table, name: str = "prompt") -> pa.Array:
    """The hash of each text of a column, each distinct one hashed once; null where there is none."""
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.uint64())
    coded = table[name].combine_chunks().dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    known = pa.array([None if t is None else prompt_hash(t) for t in coded.dictionary.to_pylist()], pa.uint64())
    found = known.take(coded.indices)
    if f"{name}_raw" not in table.column_names:
        return found
    exact = [None if raw is None else prompt_hash(bytes(raw)) for raw in table[f"{name}_raw"].to_pylist()]
    return pc.coalesce(pa.array(exact, pa.uint64()), found)


def _companions(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for name in names for part in ((name,) if name.endswith(".") else companions(name)))


def _part(rank: int, shared: bool, table: pa.Table) -> _Part:
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
        # A word of a newer format still means that the value is not to be used.
        return np.asarray(pc.fill_null(codes, FLAGS.index("type")), np.uint8)

    def plain(name: str, kind: pa.DataType) -> pa.Array:
        return table[name].combine_chunks() if name in present else pa.nulls(rows, kind)

    numbers, flag = {name: number(name) for name in ("reward", "gold", "advantage")}, flagged("reward")
    numbers["reward"] = np.where(flag == OK, numbers["reward"], np.nan)
    numbers["gold"] = np.where(flagged("gold") == OK, numbers["gold"], np.nan)
    group = table["group"].to_numpy() if "group" in present else np.zeros(rows, np.int64)
    rewards = {n: number(n) for n in table.column_names if n.startswith("rewards.") and not n.endswith("_flag")}
    length, truncated = plain("length", pa.int64()), plain("truncated", pa.bool_())
    return _Part(rank, shared, group, numbers, flag, length, truncated, hashes(table), rewards)


def _table(parts: list[_Part], whole: RolloutBatch, order: Ints) -> pa.Table:
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
        _known(numbers["reward"]),
        flag[order],
        _known(numbers["gold"]),
        *(pa.concat_arrays([getattr(part, name) for part in parts]).take(picked) for name in ("length", "truncated")),
        _known(numbers["advantage"]),
        pa.concat_arrays([part.prompt for part in parts]).take(picked),
        _known(standing(numbers["reward"])),
        disagrees(rewards, len(order)),
    ]
    arrays = [pa.array(column, kind) if isinstance(column, np.ndarray) else column.cast(kind)
              for column, kind in zip(columns, SCHEMA.types, strict=True)]  # fmt: skip
    return pa.table(arrays, schema=SCHEMA)


def standing(reward: Floats) -> Floats:
    """Each reward's place among those of its step, from 0 to 1 as gold is, ties in the middle: what makes the two
    comparable whatever the reward's scale and tails.

    >>> standing(np.array([5.0, np.nan, 1e9, 5.0])).round(3).tolist()
    [0.333, nan, 0.833, 0.333]
    """
    ordered = np.sort(reward[np.isfinite(reward)])
    if not len(ordered):
        return np.full(len(reward), np.nan)
    below, upto = np.searchsorted(ordered, reward, "left"), np.searchsorted(ordered, reward, "right")
    return np.where(np.isfinite(reward), (below + upto) / (2.0 * len(ordered)), np.nan)


def disagrees(rewards: Sequence[Floats], rows: int) -> NDArray[np.bool_]:
    """Rows whose reward functions lie furthest apart, each in standard deviations of the step: the widest quarter.

    Ties at the edge are in, unless they would make it most of the step. A function without spread says nothing.

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
    known = np.isfinite(stacked).sum(axis=0) >= 2
    if not known.any():
        return nothing
    width = np.full(rows, np.nan)
    width[known] = np.nanmax(stacked[:, known], axis=0) - np.nanmin(stacked[:, known], axis=0)
    edge = float(np.quantile(width[known], 0.75, method="higher"))
    widest: NDArray[np.bool_] = known & (width >= edge)
    return widest if widest.sum() <= known.sum() / 2 else np.asarray(known & (width > edge))


def _known(values: Floats) -> pa.Array:
    return pa.array(values, pa.float64(), from_pandas=True)  # NaN becomes null


@contextmanager
def _damaged(file: StepFile) -> Iterator[None]:
    """Whatever a damaged file makes the libraries raise, the caller hears of a damaged file."""
    try:
        yield
    except StoreError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, IndexError, OverflowError) as error:
        raise StoreError(f"{file.path} cannot be read: {type(error).__name__}: {str(error)[:200]}") from error
