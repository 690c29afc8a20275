"""A million hostile batches: none may crash us, every text and number comes back exactly, no reading is non-finite.

Each batch is drawn from pools of the nastiest values we know, with what must come back computed beside it, by rules of
this file and not by the code under test. `from_columns` runs on every batch by itself; a hundred of them then share one
in-memory Parquet file (joined, encoded, sealed, read back, compared value by value), because a file each would be all
overhead. Some do get a file each, through `RunDirectory`. One in nine goes through every instrument and detector.
Batches that cannot be right (lengths that differ, words for numbers of tokens) must be refused with a clean
ValueError or TypeError, and counted as dropped by a run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from record import record
from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import TOKEN_LIMIT, from_columns, join
from tiltmeter.data.records import Ragged, Reading, RolloutBatch
from tiltmeter.monitor.panel import InstrumentPanel
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.columns import TEXT_LIMIT, from_table, to_table
from tiltmeter.rundir.journal import parse, reading_event, readings_of
from tiltmeter.rundir.parquet import FORMAT, encode, open_sealed
from tiltmeter.rundir.seal import seal
from tiltmeter.rundir.store import RunDirectory

FULL = 10**6  # batches of a run whose figures are recorded
PACK = 100  # batches per in-memory file
PANEL_SHARE = 9  # one batch in so many is measured
MALFORMED_SHARE = 40

NAN, INF = math.nan, math.inf
OK, MISSING, NOT_A_NUMBER, PLUS, MINUS, OVERFLOW, TYPE, INFRA, CAPPED, RANGE = range(10)


class Tensor:
    """What a torch tensor looks like to code that does not import torch."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.values if dtype is None else self.values.astype(dtype)

    def __len__(self) -> int:
        return len(self.values)

    def item(self) -> Any:
        return self.values.item()

    def __float__(self) -> float:
        return float(self.values)


#: A number as a reward function may answer it, the value that counts, and the flag that says why not.
NUMBERS: tuple[tuple[Any, float, int], ...] = (
    *((value, float(value), OK) for value in (0.5, -0.0, 0.0, 1, -7, 1e308, 5e-324, 0.1, -2.5e-9, 2**53 + 1, 10**300)),
    (True, 1.0, OK),
    (False, 0.0, OK),
    (np.bool_(True), 1.0, OK),
    (np.float32(0.1), float(np.float32(0.1)), OK),
    (np.float16(-3.5), -3.5, OK),
    (np.int64(-(2**63)), float(-(2**63)), OK),
    (np.uint8(255), 255.0, OK),
    (np.array(0.25), 0.25, OK),
    (Tensor(1.5), 1.5, OK),
    (None, NAN, MISSING),
    (NAN, NAN, NOT_A_NUMBER),
    (np.float32("nan"), NAN, NOT_A_NUMBER),
    (INF, NAN, PLUS),
    (-INF, NAN, MINUS),
    (np.float64("-inf"), NAN, MINUS),
    (10**400, NAN, OVERFLOW),
    (-(10**400), NAN, OVERFLOW),
    ("7", NAN, TYPE),
    ("", NAN, TYPE),
    ("nan", NAN, TYPE),
    ("\ud800", NAN, TYPE),
    (np.str_("7"), NAN, TYPE),
    (np.bytes_(b"7"), NAN, TYPE),
    (b"7", NAN, TYPE),
    (1 + 2j, NAN, TYPE),
    (np.complex128(1), NAN, TYPE),
    (np.datetime64("2024-01-01"), NAN, TYPE),
    (Decimal("0.5"), NAN, TYPE),
    ([0.5], NAN, TYPE),
    ({"reward": 1}, NAN, TYPE),
    (np.array([1.0, 2.0]), NAN, TYPE),
    (object(), NAN, TYPE),
    (len, NAN, TYPE),
    (TimeoutError("judge"), NAN, INFRA),
    (KeyboardInterrupt(), NAN, INFRA),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), NAN, INFRA),
)
PLAIN = tuple(item for item in NUMBERS if item[2] == OK)

_CHAT = [{"role": "user", "content": "What is it?"}, {"role": "assistant", "content": "It is\n\ud800 4."}]
_MESSAGES = [{"role": "user", "content": "\ud800 é"}, {"role": "assistant", "content": None}]


class Word(str):
    """A subclass of str, as tokenisers and numpy return them."""

    __slots__ = ()


#: A text as a trainer may hand it over, and what must come back.
TEXTS: tuple[tuple[Any, str | None], ...] = (
    *(
        (text, text)
        for text in (
            "",
            " ",
            "plain",
            "\x00",
            "a\x00b",
            "\x1b]0;title\x07\x1b[31m",
            "\ud800",
            "\udfff\ud800",
            "\ud83d\ude00",  # the halves of an emoji, not the emoji
            "a\udcffb",
            "😀👩‍👩‍👧‍👦",
            "\U0010ffff",
            "‮drowssap‬⁦",
            "\ufeffBOM",
            "\ufffe\uffff",
            "\ufffd",
            "\u2028\u2029\x85\r\n\t\v\f",
            "e\u0301é",
            "İıß",
            "NaN",
            "None",
            "null",
            "[/bold]",
            "=cmd|' /C calc'!A0",
            "<script>alert(1)</script>",
            '{"a": 1}\n',
            "\\ud800",
            "\x7f\x80\x9f",
            "word " * 300,
            "\ud800" * 50,
            "漢字" * 100,
        )
    ),
    (None, None),
    (5, "5"),
    (1.5, "1.5"),
    (True, "True"),
    (10**400, str(10**400)),
    (NAN, "nan"),
    (b"\xff", "b'\\xff'"),
    (np.str_("numpy"), "numpy"),
    (Word("word"), "word"),
    (np.float64(0.5), "0.5"),
    ([], "[]"),
    (_MESSAGES, json.dumps(_MESSAGES, ensure_ascii=False)),
    (_CHAT, "What is it?\nIt is\n\ud800 4."),
    ({"content": b"\xff"}, '{"content": "b\'\\\\xff\'"}'),
    (ValueError("x"), "x"),
)

#: Of a conversation as a completion, what the assistant wrote alone.
WRITTEN = {id(_MESSAGES): "", id(_CHAT): "It is\n\ud800 4."}

COMPONENTS: tuple[Any, ...] = (
    "format",
    "<lambda>",
    "",
    " ",
    "a b",
    "a_b",
    "x_flag",
    "x_raw",
    "x",
    "x.y",
    "rewards.x",
    "reward",
    "group",
    "tokens.list.element",
    "\ud800",
    "\udfff",
    "漢字",
    "n" * 300,
    "n" * 301,
    "../../etc/passwd",
    "a\x00b",
    5,
    None,
    ("t", 1),
)

TOKENS = (0, 1, 5, 151_643, 2**31 - 1, -100, -(2**31), True, np.int64(7), np.uint16(65_535))
FLOATS = (0.0, -0.0, -0.5, -1e-45, -3.4e38, NAN, INF, -INF, 1, -7, np.float32(0.1), np.float64(-0.3), 1e300, True)
RAGGED = ("step_reward", "tokens", "logprob", "ref_logprob", "engine_logprob", "entropy")
SCALARS = (*NUMBERS, ([1.0], NAN, TYPE))


@dataclass
class Truth:
    """What must come back of one batch, or of several in a row: plain lists, rows in stored order."""

    rows: int = 0
    groups: list[Any] = field(default_factory=list)  # equal where two neighbours share a group
    numbers: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # components as "rewards.0", by position
    texts: dict[str, list[str | None]] = field(default_factory=dict)
    ragged: dict[str, list[list[Any]]] = field(default_factory=dict)
    length: list[int] | None = None
    truncated: list[bool] | None = None
    scalars: dict[str, float] = field(default_factory=dict)  # the finite ones
    capped_tokens: list[bool] | None = None

    def extend(self, other: Truth, serial: int) -> None:
        self.groups += [(serial, key) for key in other.groups]
        self.rows += other.rows
        for kind in ("numbers", "texts", "ragged"):
            mine: dict[str, list[Any]] = getattr(self, kind)
            for name, values in getattr(other, kind).items():
                mine.setdefault(name, []).extend(values)
        for name in ("length", "truncated"):
            if (values := getattr(other, name)) is not None:
                setattr(self, name, [*(getattr(self, name) or []), *values])


@dataclass
class Case:
    """One batch as a loop would hand it over, and the truth about it."""

    columns: dict[str, Any]
    truth: Truth


# -- making batches ---------------------------------------------------------------------------------------------------


def schema_of(rng: random.Random) -> frozenset[str]:
    """Which columns the batches of one pack have."""
    optional = ("reward", "advantage", "gold", "gold_chance", "rewards", "length", "truncated", "prompt", "completion")
    return frozenset(name for name in (*optional, *RAGGED) if rng.random() < (0.15 if name in RAGGED else 0.4))


def case_of(rng: random.Random, schema: frozenset[str], components: list[Any], step: int) -> Case:
    rows = rng.choice((1, 1, 2, 2, 3, 3, 4, 8)) if rng.randrange(200) else 0
    group, keys = _groups(rng, rows)
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    order = sorted(range(rows), key=lambda row: first[keys[row]])  # stable: rows of a group keep their order
    columns: dict[str, Any] = {"step": step, "group": group}
    truth = Truth(rows=rows, groups=[keys[row] for row in order])

    def numbers(name: str) -> Any:
        given, values = _number_column(rng, rows)
        truth.numbers[name] = [values[row] for row in order]
        return given

    for name in ("reward", "advantage", "gold", "gold_chance"):
        if name in schema:
            columns[name] = numbers(name)
    if "gold" in schema:
        # Gold is a share; what lies outside is kept out of every bet, with the reason.
        outside = [flag == OK and not 0.0 <= value <= 1.0 for value, flag in truth.numbers["gold"]]
        truth.numbers["gold"] = [
            (NAN, RANGE) if odd else pair for odd, pair in zip(outside, truth.numbers["gold"], strict=True)
        ]
    if "gold" in schema and "gold_chance" not in schema:
        # A trainer's own gold was not sampled: every row that has one was certain to be asked.
        truth.numbers["gold_chance"] = [(1.0 if flag == OK else NAN, OK) for _, flag in truth.numbers["gold"]]
    if "rewards" in schema:
        columns["rewards"] = {name: numbers(f"rewards.{at}") for at, name in enumerate(components)}
    for name in ("prompt", "completion"):
        if name in schema:
            picked = rng.choices(TEXTS, k=rows)
            columns[name] = [given for given, _ in picked]
            said = WRITTEN if name == "completion" else {}
            truth.texts[name] = [said.get(id(picked[row][0]), picked[row][1]) for row in order]
    _ragged_columns(rng, schema, rows, order, columns, truth)
    if "truncated" in schema:
        flags = [rng.random() < 0.3 for _ in range(rows)]
        columns["truncated"] = rng.choice((list, np.array, Tensor))(flags)
        truth.truncated = [flags[row] for row in order]
    if rng.random() < 0.2:
        drawn = [(rng.choice(("loss", "lr", "\ud800", "a.b", "")), rng.choice(SCALARS)) for _ in range(3)]
        columns["scalars"] = {name: given for name, (given, _, _) in drawn}
        truth.scalars = {name: value for name, (_, value, flag) in dict(drawn).items() if flag == OK}
    return Case(columns, truth)


def _groups(rng: random.Random, rows: int) -> tuple[Any, list[Any]]:
    """Group ids in one of the shapes trainers use, and keys that are equal where the ids must be."""
    kind = rng.randrange(8)
    if kind < 3:
        ids = [rng.randrange(3) - 1 for _ in range(rows)] if kind else [row // 2 for row in range(rows)]
        return (ids if kind < 2 else np.array(ids, rng.choice((np.int32, np.int64)))), list(ids)
    if kind == 3:
        ids = list(range(rows))  # groups of one
        return tuple(ids), list(ids)
    pools: tuple[tuple[Any, ...], ...] = (
        ("a", "b", "\ud800", "", "漢"),
        (10**30, 5, -(2**63), 2**63),
        (None, "None", 1, "1", 1.0),
        (2**63 - 1, -(2**63), np.int64(3), 3),
    )
    pool = pools[kind - 4]
    drawn = rng.choices(pool, k=rows)
    whole = all(isinstance(item, (int, np.integer)) and -(2**63) <= item < 2**63 for item in drawn)
    return drawn, [int(item) if whole else str(item) for item in drawn]


def _number_column(rng: random.Random, rows: int) -> tuple[Any, list[tuple[float, int]]]:
    kind = rng.randrange(4)
    if kind:
        picked = rng.choices(NUMBERS if kind < 3 else PLAIN, k=rows)
        given = [item for item, _, _ in picked]
        return given if rng.random() < 0.8 else tuple(given), [(value, flag) for _, value, flag in picked]
    dtype = rng.choice((np.float64, np.float32, np.float16, np.int64, np.bool_))
    array = np.array([rng.choice((0.5, 1.0, -2.0, NAN, INF, -INF)) for _ in range(rows)])
    if dtype in (np.int64, np.bool_):
        array = np.where(np.isfinite(array), array, 3.0)
    array = array.astype(dtype)
    flags = [
        NOT_A_NUMBER if np.isnan(v) else PLUS if v == INF else MINUS if v == -INF else OK for v in map(float, array)
    ]
    truth = [(float(value) if flag == OK else NAN, flag) for value, flag in zip(array, flags, strict=True)]
    return (array if rng.random() < 0.7 else Tensor(array)), truth


def _ragged_columns(
    rng: random.Random, schema: frozenset[str], rows: int, order: list[int], columns: dict[str, Any], truth: Truth
) -> None:
    lengths = [rng.choice((0, 0, 1, 2, 5)) for _ in range(rows)]
    length = None
    if "length" in schema:
        length = lengths
        columns["length"] = rng.choice((list, tuple, Tensor, lambda v: np.array(v, np.int32)))(lengths)
    for name in RAGGED:
        if name not in schema:
            continue
        pool = TOKENS if name == "tokens" else FLOATS
        values = [rng.choices(pool, k=n) for n in lengths]
        exact: list[list[Any]]
        if name == "tokens":
            exact = [[int(value) for value in row] for row in values]
        else:
            with np.errstate(over="ignore"):
                exact = [[np.float32(value) for value in row] for row in values]
        columns[name] = _ragged_given(rng, values, exact, "length" in schema, name == "tokens")
        truth.ragged[name] = [exact[row] for row in order]
        if name in ("tokens", "logprob") and length is None:
            length = lengths
    if length is not None:
        truth.length = [length[row] for row in order]


def _ragged_given(
    rng: random.Random, values: list[list[Any]], exact: list[list[Any]], has_length: bool, tokens: bool
) -> Any:
    """The same rows as lists, arrays, a `Ragged`, or a padded matrix where a length column tells padding apart."""
    kind = rng.randrange(6)
    dtype = np.int32 if tokens else np.float32
    if kind == 0:
        return [np.array(row, np.int64 if tokens else np.float32) for row in exact]
    if kind == 1:
        return Ragged.of(exact, dtype)
    if kind == 2 and has_length and exact:
        width = max(map(len, exact)) + rng.randrange(2)
        padded = np.full((len(exact), width), 9, np.int64 if tokens else np.float32)
        for row, part in enumerate(exact):
            padded[row, : len(part)] = part
        return padded if rng.random() < 0.5 else Tensor(padded)
    if kind == 3:
        return [tuple(row) for row in values]
    return values


# -- comparing --------------------------------------------------------------------------------------------------------


class DifferenceError(AssertionError):
    """Something did not come back as it went in."""


class NonFiniteError(DifferenceError):
    """A reading was made of nothing, or is no number."""


def compare(got: RolloutBatch, truth: Truth, names: list[str] | None = None) -> None:
    """Raise `DifferenceError` unless the batch says exactly what the truth says."""
    _same("rows", len(got), truth.rows)
    cuts = [row for row in range(1, truth.rows) if truth.groups[row] != truth.groups[row - 1]]
    _same("groups", got.starts.tolist(), [0, *cuts, truth.rows] if truth.rows else [0])
    if names is None:
        names = list(got.rewards)
    components = {f"rewards.{at}": name for at, name in enumerate(names)}
    _same("components", len(set(got.rewards)), sum(name.startswith("rewards.") for name in truth.numbers))
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", name):
            raise DifferenceError(f"a component may not be called {name!r}")
    flags = dict(got.flags)
    for name, expected in truth.numbers.items():
        component = components.get(name)
        values = got.rewards[component] if component is not None else getattr(got, name)
        codes = flags.pop(f"rewards.{component}" if component is not None else name, None)
        _same(f"{name}: flags", [0] * truth.rows if codes is None else codes.tolist(), [flag for _, flag in expected])
        _same_floats(name, values, [value for value, _ in expected], np.float64)
    for name in ("reward", "advantage", "gold", "gold_chance"):
        if name not in truth.numbers:
            _same(f"{name} was not given", getattr(got, name), None)
    for name in ("prompt", "completion"):
        if name in truth.texts:
            _same_texts(name, getattr(got, name), truth.texts[name], flags.pop(name, None))
        else:
            _same(f"{name} was not given", getattr(got, name), None)
    for name in RAGGED:
        column = getattr(got, name)
        if name not in truth.ragged:
            _same(f"{name} was not given", column, None)
            continue
        _same(f"{name}: lengths", column.lengths.tolist(), [len(row) for row in truth.ragged[name]])
        flat = [value for row in truth.ragged[name] for value in row]
        if name == "tokens":
            _same(name, column.values.dtype, np.dtype(np.int32))
            _same(name, column.values.tolist(), flat)
        else:
            _same_floats(name, column.values, flat, np.float32)
    if truth.capped_tokens is not None:
        _same("capped", (flags.pop("tokens") == CAPPED).tolist(), truth.capped_tokens)
    _same("other flags", list(flags), [])
    _same("length", None if got.length is None else got.length.tolist(), truth.length)
    _same("truncated", None if got.truncated is None else got.truncated.tolist(), truth.truncated)


def _same(what: str, got: Any, expected: Any) -> None:
    if got != expected:
        raise DifferenceError(f"{what}: {str(got)[:300]} is not {str(expected)[:300]}")


def _same_floats(what: str, got: Any, expected: list[Any], dtype: type[np.floating[Any]]) -> None:
    """Bit for bit, so that -0.0 is not 0.0; any NaN is NaN."""
    want = np.array(expected, dtype)
    bits = np.uint64 if dtype is np.float64 else np.uint32
    if got.dtype != dtype or got.shape != want.shape:
        raise DifferenceError(f"{what}: {got.dtype} {got.shape}")
    wrong = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
    if wrong.any():
        raise DifferenceError(f"{what}: {got[wrong][:5]} is not {want[wrong][:5]}")


def _same_texts(what: str, got: Any, expected: list[str | None], codes: Any) -> None:
    if codes is None:
        _same(what, list(got), expected)
        return
    for row, text in enumerate(expected):
        capped = text is not None and len(text.encode("utf-8", "surrogatepass")) > TEXT_LIMIT
        _same(f"{what}: capped", codes[row] == CAPPED, capped)
        if capped and text is not None:
            kept = got[row].encode("utf-8", "surrogatepass")
            whole = text.encode("utf-8", "surrogatepass")
            half = TEXT_LIMIT // 2
            # Cut at code points: each half may be up to three bytes short of the limit.
            ends = [cut for cut in range(half - 3, half + 1) if kept[:cut] == whole[:cut]]
            if not any(len(kept) - cut <= half and whole.endswith(kept[cut:]) for cut in ends):
                raise DifferenceError(f"{what}: the capped text is not the first and last part of the whole")
            if len(kept) < TEXT_LIMIT - 6:
                raise DifferenceError(f"{what}: only {len(kept)} bytes were kept")
        else:
            _same(what, got[row], text)


def finite(measured: list[Reading], derived: list[Reading]) -> None:
    """Raise `DifferenceError` unless every reading is of something, finite, and comes back from its journal line."""
    for reading in (*measured, *derived):
        if not all(map(math.isfinite, (reading.value, *reading.values))):
            raise NonFiniteError(f"a reading is not finite: {reading}")
        if reading.n < 1:
            raise DifferenceError(f"a reading of nothing: {reading}")
    events = parse(reading_event(0, 0, measured, derived, "fuzz").line())
    if not events:
        raise DifferenceError("the readings of a step cannot be written down")
    written = [(reading.name, reading.value, reading.n, reading.values) for reading in readings_of(events[0])]
    _same("readings in the journal", written, [(r.name, r.value, r.n, r.values) for r in measured])
    if any(reading.stderr is not None and not math.isfinite(reading.stderr) for reading in readings_of(events[0])):
        raise DifferenceError("a standard error in the journal is not finite")


# -- what must be refused ---------------------------------------------------------------------------------------------

_TWO = {"group": [0, 1]}
MALFORMED: tuple[dict[str, Any], ...] = (
    *({**_TWO, name: [1.0]} for name in ("reward", "advantage", "gold", "gold_chance", "length", "truncated")),
    {**_TWO, "reward": [1.0] * 3},
    {**_TWO, "rewards": {"a": [1.0, 2.0], "b": [1.0]}},
    {**_TWO, "prompt": ["x"]},
    {**_TWO, "completion": ["x"] * 3},
    *({**_TWO, name: [[1]]} for name in RAGGED),
    {**_TWO, "tokens": np.ones((2, 3), np.int64)},  # padded, and nothing says where the padding begins
    {**_TWO, "tokens": np.ones((2, 3), np.int64), "length": [1]},
    {**_TWO, "tokens": np.ones((3, 3), np.int64), "length": [1, 1, 1]},
    *({**_TWO, "length": [1, bad]} for bad in (NAN, INF, 10**400, "x", 2.5, -1, 2**70, None, 1e300, 1j)),
    {**_TWO, "length": np.array([1.0, 1e300])},
    *({**_TWO, "step": bad} for bad in (NAN, INF, None, "x", -1, 10**400, 2.5, [3], np.array([1, 2]), 1j)),
    *({**_TWO, "tokens": [[1], [bad]]} for bad in (2**40, -(2**31) - 1, 10**400, NAN, INF, 1.5, None, "x", 1j)),
    *({**_TWO, "tokens": [[1], np.array([bad])]} for bad in (2**40, NAN, 1.5, np.uint64(2**63))),
    {**_TWO, "tokens": ["ab", "c"]},
    {**_TWO, "tokens": 5},
    *({**_TWO, "logprob": [[0.5], [bad]]} for bad in (10**400, "x", 1j, [1.0, 2.0], object())),
    {**_TWO, "rewards": [[1.0, 2.0]]},
    {**_TWO, "rewards": 5},
    {**_TWO, "rewards": {"a": 5}},
    {**_TWO, "scalars": [1.0]},
    {**_TWO, "scalars": 5},
    {**_TWO, "reward": 5},
    {**_TWO, "completion": 5},
    {**_TWO, "nonsense": [1, 2]},
    {**_TWO, "flags": {}, "Reward": [1, 2]},
    {"group": None, "reward": [1.0]},
    {"group": 5, "reward": [1.0, 2.0]},
    {"group": [[0, 1], [2, 3]], "reward": [1.0, 2.0]},
)


def refused(columns: dict[str, Any]) -> None:
    """Raise `DifferenceError` unless `from_columns` refuses this batch with one of the two errors it may raise."""
    try:
        from_columns(**{"step": 0, **columns})
    except (ValueError, TypeError):
        return
    except Exception as error:
        raise DifferenceError(f"{columns} raised {error!r}, which is not a clean refusal") from error
    raise DifferenceError(f"{columns} was accepted")


FAILURES = ("crashes", "differences", "non_finite_readings")
ENOUGH = 20  # failures in one process: more would say the same

# -- the campaign -----------------------------------------------------------------------------------------------------


def campaign(batches: int, files: int, seed: int, jobs: int) -> dict[str, float | int | str | bool]:
    started = time.monotonic()
    count: Counter[str] = Counter()
    if jobs == 1:
        count = fuzz(batches, files, seed)
    else:
        shares = [batches // jobs + (job < batches % jobs) for job in range(jobs)]
        with ProcessPoolExecutor(jobs) as pool:
            seeds = [seed * 1000 + job for job in range(jobs)]
            for found in pool.map(fuzz, shares, [-(-files // jobs)] * jobs, seeds):
                count += found
    kept = (
        "batches",
        "rows",
        "packs",
        "file_each",
        "measured",
        "readings",
        "refused",
        "dropped",
        "long_texts",
        *FAILURES,
    )
    figures: dict[str, float | int | str | bool] = {name: count[name] for name in kept}
    return figures | {
        "jobs": jobs,  # each has its own stream of random numbers: part of what makes a run repeatable
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(count["cpu_milliseconds"] / 1000, 1),
    }


def fuzz(batches: int, files: int, seed: int) -> Counter[str]:
    """One process's share. A crash, difference or non-finite reading is counted and told, with the place to find it."""
    cpu = time.process_time()
    rng = random.Random(seed)
    count: Counter[str] = Counter()
    panel = InstrumentPanel(Config.standard(), strict=True)
    turn = 0
    while count["batches"] < batches:
        turn += 1
        try:
            pack(rng, panel, min(PACK, batches - count["batches"]), count)
            if turn % 100 == 0:  # alarms open and close: a fresh panel now and then sees both
                panel = InstrumentPanel(Config.standard(), strict=True)
                long_texts(rng, count)
        except Exception as error:  # whatever it is, it is what this looks for
            place = f"seed {seed}, pack {count['packs']}, about batch {count['batches']}"
            sys.stderr.write(f"{place}: {type(error).__name__}: {str(error)[:500]}\n")
            count[FAILURES[isinstance(error, DifferenceError) + isinstance(error, NonFiniteError)]] += 1
            if sum(count[name] for name in FAILURES) >= ENOUGH:
                raise
    with tempfile.TemporaryDirectory(prefix="tiltmeter-fuzz-", dir=_memory()) as home:
        file_each(rng, files, Path(home), count)
        dropped_by_a_run(Path(home) / "malformed", count)
    count["cpu_milliseconds"] = round(1000 * (time.process_time() - cpu))
    return count


def pack(rng: random.Random, panel: InstrumentPanel, size: int, count: Counter[str]) -> None:
    """`size` batches, each made by itself, together in one file."""
    schema = schema_of(rng)
    components = rng.sample(COMPONENTS, rng.randrange(1, 4)) if "rewards" in schema else []
    made: list[RolloutBatch] = []
    truth = Truth()
    for serial in range(size):
        count["batches"] += 1
        if rng.randrange(MALFORMED_SHARE) == 0:
            refused(rng.choice(MALFORMED))
            count["refused"] += 1
            continue
        case = case_of(rng, schema, components, count["batches"])
        batch = from_columns(**case.columns)
        _same("scalars", {n: v for n, v in batch.scalars.items() if math.isfinite(v)}, case.truth.scalars)
        if rng.randrange(PANEL_SHARE) == 0:
            measured = panel.measure(batch, Baseline(made[0]) if made else None)
            derived, _ = panel.fold(measured)
            finite(measured, derived)
            count["measured"] += 1
            count["readings"] += len(measured)
        if case.truth.rows or not made:
            made.append(batch)
            truth.extend(case.truth, serial)
        else:
            compare(_round_trip(batch), case.truth)  # an empty batch adds nothing to a join: it gets its own file
    count["packs"] += 1
    count["rows"] += truth.rows
    if not made:
        return
    if truth.rows and not len(made[0]):
        made = made[1:]
    joined = join(made, shared_groups=False)
    compare(_round_trip(joined), truth, list(made[0].rewards))
    finite(panel.measure(joined, Baseline(made[0])), [])


def _round_trip(batch: RolloutBatch) -> RolloutBatch:
    table, facts = to_table(batch)
    spans = [(0, len(batch))] if len(batch) else []
    sealed = pa.py_buffer(b"".join(map(memoryview, seal(encode(table, {"format": FORMAT, **facts}, spans)))))
    opened, said = open_sealed(sealed, "in memory")
    return from_table(opened.read(), said, batch.attempt, batch.step)


def long_texts(rng: random.Random, count: Counter[str]) -> None:
    """Texts around and over the cap: cut at code points, flagged, with the digest of the whole."""
    texts: list[str | None] = [None, "short"]
    for piece in ("a", "é", "漢", "😀", "\ud800", "a😀é\udfff"):
        size = len(piece.encode("utf-8", "surrogatepass"))
        more = (0, 1, rng.randrange(2, 5000))
        texts += ["x" * rng.randrange(4) + piece * (TEXT_LIMIT // size + extra) for extra in more]
    batch = from_columns(0, [0] * len(texts), completion=texts)
    table, _ = to_table(batch)
    whole = [None if text is None else text.encode("utf-8", "surrogatepass") for text in texts]
    long = [text is not None and len(text) > TEXT_LIMIT for text in whole]
    digests = [hashlib.sha256(text).digest() if text and far else None for text, far in zip(whole, long, strict=True)]
    _same("completion_sha256", table["completion_sha256"].to_pylist(), digests)
    chars = [len(text) if text and far else None for text, far in zip(texts, long, strict=True)]
    _same("completion_chars", table["completion_chars"].to_pylist(), chars)
    compare(_round_trip(batch), Truth(len(texts), [0] * len(texts), texts={"completion": texts}))
    tokens = [[7] * n for n in (TOKEN_LIMIT - 1, TOKEN_LIMIT, TOKEN_LIMIT + 1)]
    cut = Truth(
        3,
        [0] * 3,
        ragged={"tokens": [row[:TOKEN_LIMIT] for row in tokens]},
        length=[len(row) for row in tokens],
        capped_tokens=[False, False, True],
    )
    compare(_round_trip(from_columns(0, [0, 0, 0], tokens=tokens)), cut)
    count["long_texts"] += len(texts)


def file_each(rng: random.Random, files: int, home: Path, count: Counter[str]) -> None:
    """Through the run directory, a file each: names, row groups, metadata and scalars included."""
    run = RunDirectory.create(home / "run")
    attempt = run.open_attempt(launch="fuzz", ranks=1, resume_step=None)
    expected: dict[int, tuple[Case, RolloutBatch]] = {}
    for step in range(files):
        schema = schema_of(rng)
        components = rng.sample(COMPONENTS, rng.randrange(1, 5)) if "rewards" in schema else []
        case = case_of(rng, schema, components, step)
        mark = rng.choice(("", "abc", "\ud800", "漢"))
        batch = from_columns(attempt=attempt, fingerprint=mark, **case.columns)
        run.write(batch, 0, {"groups": "rank"})
        expected[step] = case, batch
        if len(expected) == 100 or step == files - 1:
            for file in run.files(attempt):
                case, batch = expected.pop(file.step)
                got, _, _ = run.read(file)
                compare(got, case.truth, list(batch.rewards))
                _same("ids", got.group.tolist(), batch.group.tolist())
                _same("scalars", {n: v for n, v in got.scalars.items() if math.isfinite(v)}, case.truth.scalars)
                _same("fingerprint", got.fingerprint, batch.fingerprint)
                _same("key", (got.attempt, got.step), (attempt, file.step))
                count["file_each"] += 1
                file.path.unlink()
            _same("every file was read", expected, {})


def dropped_by_a_run(path: Path, count: Counter[str]) -> None:
    """What must be refused, handed to a real run: each is counted as dropped, and nothing reaches the loop."""
    with open_run(path, monitor=False, options=Options(on_full="wait")) as run:
        for step, columns in enumerate(MALFORMED):
            run.observe(**{"step": step, **columns})
        run.observe(step=len(MALFORMED), group=[0], reward=[1.0])
    counters = run.counters
    _same("seen", counters["seen"], len(MALFORMED) + 1)
    # Of two reward functions one can be read: that batch is stored without the other, which is counted.
    stored = sum(
        len(columns.get("rewards") or ()) == 2 for columns in MALFORMED if type(columns.get("rewards")) is dict
    )
    _same("dropped", (counters["dropped"], counters["written"]), (len(MALFORMED) - stored, 1 + stored))
    _same("columns lost", (stored, counters["columns_lost"]), (1, 1))
    count["dropped"] += counters["dropped"]


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=FULL)
    parser.add_argument("--files", type=int, help="batches with a file each (default: 1 in 200, at least 500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, help="processes (default: 2 for a full run, else 1)")
    parser.add_argument("--quick", action="store_true", help="10^5 batches")
    parser.add_argument("--keep", action="store_true", help="record the figures although the run is not a full one")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    batches = 10**5 if asked.quick else asked.batches
    files = max(500, batches // 200) if asked.files is None else asked.files
    figures = campaign(batches, files, asked.seed, asked.jobs or (2 if batches >= FULL else 1))
    result = record("fuzz", figures, seed=asked.seed, keep=asked.keep or batches >= FULL)
    if asked.json:
        print(json.dumps(result))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    return 1 if any(figures[name] for name in FAILURES) else 0


if __name__ == "__main__":
    sys.exit(main())
