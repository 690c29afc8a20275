"""Summaries that merge across steps and workers: quantiles and distinct counts of values that are no longer there.

For one step sort instead: it is exact and as fast. `LogHistogram` and the registers of distinct
counts are deterministic, so a replay decides alike; `RankSketch` flips coins and is for display only.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel

Floats = NDArray[np.float64]

ERROR = 0.01  # relative, of a quantile
_WIDTH = math.log((1.0 + ERROR) / (1.0 - ERROR))  # of a bucket, in logarithms
_SHIFT = 40_000  # more than the number of buckets below 1, so that keys of positive values are positive
_HEADER = struct.Struct("<qq")


@dataclass(frozen=True, eq=False)
class LogHistogram:
    """Counts of values in buckets whose width is proportional to their distance from zero.

    Every quantile is within 1 % of a value of that rank, on both sides of zero and over the whole normal range of
    float64; merging adds counts, so the result does not depend on how the values were split or in which order they
    came. Only buckets that hold something are kept. NaN and infinities are counted apart.
    Source: the buckets of DDSketch, Masson, Rim and Lee 2019 (1908.10693), without its collapsing of small buckets.

    >>> steps = [LogHistogram.of(np.array(values)) for values in ([1.0, 2.0, np.nan], [-5.0, 0.0, 300.0])]
    >>> both = steps[0].merged(steps[1])
    >>> both.count, both.nonfinite, [round(both.quantile(q), 1) for q in (0.0, 0.25, 0.5, 1.0)]
    (5, 1, [-5.0, 0.0, 1.0, 301.9])
    """

    keys: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))  # rising; 0 is the value zero
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    nonfinite: int = 0

    @classmethod
    def of(cls, values: NDArray[Any]) -> LogHistogram:
        keys, lost = _bucket_keys(np.ascontiguousarray(values, np.float64).reshape(-1))
        keys.sort()
        return _sum_equal_keys(keys, np.ones(len(keys), np.int64), int(lost))

    def merged(self, other: LogHistogram) -> LogHistogram:
        keys = np.concatenate((self.keys, other.keys))
        order = np.argsort(keys, kind="stable")
        counts = np.concatenate((self.counts, other.counts))[order]
        return _sum_equal_keys(keys[order], counts, self.nonfinite + other.nonfinite)

    @property
    def count(self) -> int:
        """Of finite values."""
        return int(self.counts.sum())

    def quantile(self, share: float) -> float:
        """Within 1 % of the value of rank floor(share (n - 1)), counted from 0; NaN without values."""
        if not self.count:
            return float("nan")
        rank = min(max(math.floor(share * (self.count - 1)), 0), self.count - 1)
        key = int(self.keys[np.searchsorted(np.cumsum(self.counts), rank, side="right")])
        if key == 0:
            return 0.0
        power = (abs(key) - _SHIFT) * _WIDTH + math.log1p(-ERROR)  # the point 1 % above the lower end of its bucket
        return math.copysign(math.exp(min(power, 709.78)), key)

    def to_bytes(self) -> bytes:
        head = _HEADER.pack(self.nonfinite, len(self.keys))
        return head + self.keys.astype("<i4").tobytes() + self.counts.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, raw: bytes) -> LogHistogram:
        nonfinite, size = _HEADER.unpack_from(raw) if len(raw) >= _HEADER.size else (0, -1)
        if size < 0 or len(raw) != _HEADER.size + 12 * size:
            raise ValueError("these bytes are no histogram")
        keys = np.frombuffer(raw, "<i4", size, _HEADER.size).astype(np.int32)
        counts = np.frombuffer(raw, "<i8", size, _HEADER.size + 4 * size).astype(np.int64)
        if nonfinite < 0 or (counts <= 0).any() or (np.diff(keys) <= 0).any():
            raise ValueError("these bytes are no histogram")
        return cls(keys, counts, nonfinite)


def _sum_equal_keys(keys: NDArray[np.int32], counts: NDArray[np.int64], nonfinite: int) -> LogHistogram:
    """Counts of equal neighbours added up."""
    if not len(keys):
        return LogHistogram(nonfinite=nonfinite)
    first = np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))
    return LogHistogram(keys[first], np.add.reduceat(counts, first), nonfinite)


@kernel
def _bucket_keys(values: Floats) -> tuple[NDArray[np.int32], int]:
    keys = np.empty(len(values), np.int32)
    size = 0
    for value in values:
        if not np.isfinite(value):
            continue
        key = 0
        if value != 0.0:
            key = _SHIFT + math.ceil(math.log(abs(value)) / _WIDTH)
        keys[size] = key if value > 0.0 else -key
        size += 1
    return keys[:size].copy(), len(values) - size


class RankSketch:
    """Quantiles of a stream for display, in 2.5 kB, by rank: within 1.33 % of the rank asked for in 99 of 100 queries.

    The KLL sketch of Apache DataSketches (Karnin, Lang and Liberty 2016, 1603.05346). It flips coins: two sketches of
    the same values differ, so nothing that decides may read it. It would drop NaN without a word; here values that are
    not finite in float32 are counted first.

    >>> sketch = RankSketch()
    >>> sketch.add(np.array([3.0, 1.0, 2.0, np.nan]))
    >>> sketch.count, sketch.nonfinite, sketch.quantile(0.5), RankSketch.from_bytes(sketch.to_bytes()).quantile(1.0)
    (3, 1, 2.0, 3.0)
    """

    def __init__(self) -> None:
        from datasketches import kll_floats_sketch

        self.nonfinite = 0
        self._sketch = kll_floats_sketch(200)

    @property
    def count(self) -> int:
        return int(self._sketch.n)

    def add(self, values: NDArray[Any]) -> None:
        with np.errstate(over="ignore"):
            plain = np.asarray(values, np.float32).reshape(-1)
        finite = np.isfinite(plain)
        self.nonfinite += int(len(plain) - finite.sum())
        self._sketch.update(plain[finite])

    def merge(self, other: RankSketch) -> None:
        self.nonfinite += other.nonfinite
        self._sketch.merge(other._sketch)

    def quantile(self, share: float) -> float:
        return float(self._sketch.get_quantile(min(max(share, 0.0), 1.0), True)) if self.count else float("nan")

    def to_bytes(self) -> bytes:
        return struct.pack("<q", self.nonfinite) + bytes(self._sketch.serialize())

    @classmethod
    def from_bytes(cls, raw: bytes) -> RankSketch:
        from datasketches import kll_floats_sketch

        sketch = cls()
        (sketch.nonfinite,) = struct.unpack_from("<q", raw)
        sketch._sketch = kll_floats_sketch.deserialize(raw[8:])
        return sketch


_PLACES = 14  # bits that choose a register
_REGISTERS = 1 << _PLACES
_DEEPEST = 64 - _PLACES + 1  # largest value of a register


def distinct_registers(keys: NDArray[Any]) -> NDArray[np.uint8]:
    """HyperLogLog registers of 64-bit keys, 16 kB; of two parts together: the elementwise maximum.

    Keys may be any integers; they are hashed here with fixed constants (splitmix64), since Python's hash is salted.
    """
    return _registers(np.ascontiguousarray(keys).reshape(-1).astype(np.int64, copy=False).view(np.uint64))


def distinct_count(registers: NDArray[np.uint8]) -> float:
    """How many different keys went into the registers; standard error 0.81 %, without the bias of the classic formula.

    Source: Ertl 2017 (1702.01284), the improved raw estimator: α m² / (m σ(C_0/m) + Σ C_k 2^-k + m τ(1 - C_q+1/m) 2^-q)
    with C_k the number of registers that hold k.

    >>> one, two = distinct_registers(np.arange(600)), distinct_registers(np.arange(300, 1000))
    >>> round(distinct_count(np.maximum(one, two)), -2)
    1000.0
    """
    counts = np.bincount(registers, minlength=_DEEPEST + 1)
    z = _REGISTERS * _tau(1.0 - counts[_DEEPEST] / _REGISTERS)
    for k in range(_DEEPEST - 1, 0, -1):
        z = 0.5 * (z + float(counts[k]))
    z += _REGISTERS * _sigma(counts[0] / _REGISTERS)
    return float(_REGISTERS**2 / (2.0 * math.log(2.0) * z))


def _sigma(x: float) -> float:
    """x + Σ_k x^(2^k) 2^(k-1); infinite at 1, where nothing was counted."""
    if x == 1.0:
        return float("inf")
    total, weight, before = x, 1.0, -1.0
    while total != before:
        x, before = x * x, total
        total, weight = total + x * weight, 2.0 * weight
    return total


def _tau(x: float) -> float:
    """(1 - x - Σ_k (1 - x^(2^-k))² 2^-k) / 3."""
    if x in (0.0, 1.0):
        return 0.0
    total, weight, before = 1.0 - x, 1.0, -1.0
    while total != before:
        x, before, weight = math.sqrt(x), total, 0.5 * weight
        total -= (1.0 - x) ** 2 * weight
    return total / 3.0


@kernel
def _registers(keys: NDArray[np.uint64]) -> NDArray[np.uint8]:
    registers = np.zeros(_REGISTERS, np.uint8)
    for key in keys:
        z = key + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        place = np.int64(z >> np.uint64(64 - _PLACES))
        rest = z << np.uint64(_PLACES)
        rank = 1
        while rank < _DEEPEST and rest < np.uint64(1 << 63):
            rest <<= np.uint64(1)
            rank += 1
        if rank > registers[place]:
            registers[place] = rank
    return registers
