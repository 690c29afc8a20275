"""P4, F10, F11: no input crashes us, text and numbers come back exactly, no reading is made of nothing."""

from __future__ import annotations

import importlib
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Reading, RolloutBatch
from tiltmeter.rundir.parquet import ROW_GROUP_ROWS
from tiltmeter.rundir.store import RunDirectory

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

Bench = Callable[..., dict[str, Any]]


def test_thousands_of_hostile_batches_come_back_exactly(bench: Bench) -> None:
    batches = size(10**4, 10**5)
    figures = bench("fuzz", "--batches", str(batches))
    assert figures["batches"] == batches and figures["file_each"] == 500
    assert figures["crashes"] == figures["differences"] == figures["non_finite_readings"] == 0
    # Proof that it looked: a tenth was measured, bad ones were refused and, in a run, counted as dropped.
    assert figures["measured"] > batches / 10 and figures["readings"] > batches / 10
    assert figures["refused"] > batches / 100 and figures["dropped"] > 5 and figures["long_texts"] > batches / 1000


# -- the harness must see a store that is a little wrong --------------------------------------------------------------


@pytest.fixture
def fuzz(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program as a module, to put mistakes into what it tests."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("fuzz")


def without_surrogates(batch: RolloutBatch) -> RolloutBatch:
    if batch.completion is None:
        return batch
    texts = (text and text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in batch.completion)
    return replace(batch, completion=tuple(texts))


def without_negative_zero(batch: RolloutBatch) -> RolloutBatch:
    return batch if batch.reward is None else replace(batch, reward=batch.reward + 0.0)


def without_flags(batch: RolloutBatch) -> RolloutBatch:
    return replace(batch, flags={})


def with_zero_for_missing(batch: RolloutBatch) -> RolloutBatch:
    return batch if batch.reward is None else replace(batch, reward=np.nan_to_num(batch.reward))


def without_empty_texts(batch: RolloutBatch) -> RolloutBatch:
    return batch if batch.prompt is None else replace(batch, prompt=tuple(text or None for text in batch.prompt))


def with_two_rows_exchanged(batch: RolloutBatch) -> RolloutBatch:
    if batch.completion is None or len(batch) < 2:
        return batch
    return replace(batch, completion=(batch.completion[1], batch.completion[0], *batch.completion[2:]))


@pytest.mark.parametrize(
    "mistake",
    (
        without_surrogates,
        without_negative_zero,
        without_flags,
        with_zero_for_missing,
        without_empty_texts,
        with_two_rows_exchanged,
    ),
)
def test_a_store_that_changes_a_little_is_caught(
    mistake: Callable[[RolloutBatch], RolloutBatch], fuzz: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fuzz.from_table
    monkeypatch.setattr(fuzz, "from_table", lambda *args: mistake(real(*args)))
    assert fuzz.fuzz(1000, 0, seed=1)["differences"] > 0


@pytest.mark.parametrize("error", (KeyError, OverflowError, AttributeError, None))
def test_a_refusal_that_is_not_clean_is_caught(error: type[Exception] | None, fuzz: Any, monkeypatch: Any) -> None:
    def careless(**columns: Any) -> None:
        if error is not None:
            raise error("by design")

    monkeypatch.setattr(fuzz, "from_columns", careless)
    with pytest.raises(fuzz.DifferenceError):
        fuzz.refused({"group": [0, 1], "reward": [1.0]})


@pytest.mark.parametrize("change", ({"value": math.inf}, {"value": math.nan}, {"n": 0}, {"values": (math.nan,)}))
def test_a_reading_of_nothing_is_caught(change: dict[str, Any], fuzz: Any) -> None:
    reading = Reading(0, 0, "reward.mean", 0.5, 3, 0.1)
    fuzz.finite([reading], [])
    with pytest.raises(fuzz.DifferenceError):
        fuzz.finite([replace(reading, **change)], [])


def test_the_pack_sees_every_kind_of_column(fuzz: Any) -> None:
    """What the pools offer is only tested if it is drawn."""
    rng, drawn = random.Random(0), Counter[str]()
    for _ in range(300):
        schema = fuzz.schema_of(rng)
        drawn.update(list(fuzz.case_of(rng, schema, ["a"], 0).columns))
    known = {"reward", "advantage", "gold", "gold_chance", "rewards", "length", "truncated", "prompt", "completion"}
    assert {*known, *fuzz.RAGGED, "scalars"} <= set(drawn)


# -- sizes that fuzzing does not reach --------------------------------------------------------------------------------


def test_a_group_larger_than_a_row_group_may_be_is_still_read(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    rows = 2 * ROW_GROUP_ROWS + 1
    reward = np.arange(rows, dtype=np.float64)
    run.write(from_columns(0, np.zeros(rows, np.int64), attempt=attempt, reward=reward), 0, {})
    batch, _, _ = run.read(run.files(attempt)[0])
    assert batch.reward is not None and np.array_equal(batch.reward, reward)


def test_a_group_with_more_text_than_a_reader_accepts_at_once_is_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The limit is 1 GB; the same code at 1 MB shows the same thing in a thousandth of the memory.
    monkeypatch.setattr("tiltmeter.rundir.store.ROW_GROUP_BYTES", 1 << 20)
    monkeypatch.setattr("tiltmeter.rundir.parquet.ROW_GROUP_BYTES", 1 << 20)
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step, letter in enumerate(("x", "é", "\ud800")):  # the last is stored twice, shown and exact
        texts = [letter * 3000] * 300
        run.write(from_columns(step, [0] * 300, attempt=attempt, completion=texts, length=[1] * 300), 0, {})
        batch, _, _ = run.read(run.find(attempt, step)[0])
        assert batch.completion is not None and list(batch.completion) == texts
