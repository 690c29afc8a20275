"""Entropy, NaN and the trainer's own scalars, and every instrument of this family on batches that are degenerate."""

from __future__ import annotations

import json
import math
import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Ragged, RolloutBatch
from tiltmeter.instruments.engine_gap import EngineGap
from tiltmeter.instruments.entropy import PolicyEntropy
from tiltmeter.instruments.entropy_ratio import EntropyRatio
from tiltmeter.instruments.error_tail import ErrorTail
from tiltmeter.instruments.kl import ReferenceKl
from tiltmeter.instruments.kl_tokens import TokenKl
from tiltmeter.instruments.nonfinite import NonfiniteShare
from tiltmeter.instruments.old_kl import OldKl
from tiltmeter.instruments.reward_tail import RewardTail
from tiltmeter.instruments.training import SCALARS, Training
from tiltmeter.monitor.panel import readings
from tiltmeter.rundir import columns
from tiltmeter.stats.entropy import mean_entropy, row_means
from tiltmeter.testing import check_instrument, sample_batch

FAMILY: tuple[Any, ...] = (
    ReferenceKl,
    TokenKl,
    EngineGap,
    OldKl,
    PolicyEntropy,
    EntropyRatio,
    NonfiniteShare,
    Training,
    RewardTail,
    ErrorTail,
)
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("make", FAMILY)
def test_the_contract_is_kept(make: Any) -> None:
    check_instrument(make)


def test_row_means_and_shares_equal_a_loop() -> None:
    rng = np.random.default_rng(201)
    for _ in range(500):
        rows = [rng.exponential(size=int(rng.integers(0, 12))).astype(np.float32) for _ in range(4)]
        for row in rows:
            row[rng.random(len(row)) < 0.1] = rng.choice([NAN, INF, -INF])
        column = Ragged.of(rows, np.float32)
        means, shares = row_means(column.values, column.offsets)
        for row, mean, share in zip(rows, means, shares, strict=True):
            lost = sum(not math.isfinite(x) for x in row)
            if not len(row):
                assert math.isnan(mean)
                assert math.isnan(share)
                continue
            assert share == lost / len(row)
            assert math.isnan(mean) if lost else mean == pytest.approx(math.fsum(map(float, row)) / len(row), rel=1e-12)


def test_entropy_below_zero_is_rounding_or_something_else() -> None:
    assert mean_entropy(np.array([-0.005, -0.5, 0.3]), np.array([0, 1, 2, 3])).tolist()[0] == 0.0
    assert math.isnan(mean_entropy(np.array([-0.5]), np.array([0, 1]))[0])


def test_collapse_reads_below_one_and_explosion_above() -> None:
    start = Baseline(from_columns(0, [0] * 4, entropy=[[0.5, 1.5]] * 4))
    for now, ratio in ((0.05, 0.05), (1.0, 1.0), (9.0, 9.0)):
        batch = from_columns(5, [0, 0], entropy=[[now], [now, now]])
        assert EntropyRatio().measure(batch, start) == pytest.approx([ratio, ratio], rel=1e-6)
        (reading,) = readings(EntropyRatio(), batch, start)
        assert reading.against == "start"


@pytest.mark.parametrize(
    "start",
    [
        None,
        Baseline(from_columns(0, [0], reward=[1.0])),
        Baseline(from_columns(0, [0], entropy=[[0.0]])),
        Baseline(from_columns(0, [0], entropy=[[NAN]])),
        Baseline(from_columns(0, [], entropy=[])),
    ],
)
def test_without_an_entropy_to_compare_with_there_is_no_ratio(start: Baseline | None) -> None:
    assert readings(EntropyRatio(), from_columns(1, [0], entropy=[[1.0]]), start) == []


def test_a_policy_of_nothing_but_nan_is_seen() -> None:
    batch = from_columns(0, [0, 0, 0], logprob=[[NAN, NAN], [-1.0, -1.0], []])
    assert NonfiniteShare().measure(batch, None).tolist()[:2] == [1.0, 0.0]
    assert math.isnan(NonfiniteShare().measure(batch, None)[2])


def test_scalars_become_readings_and_nan_is_counted_not_shown() -> None:
    scalars = {"loss": 0.25, "grad_norm": NAN, "learning_rate": 1e-6, "clip_share": 0.1, "beta": 0.04, "odd": INF}
    found = {r.name: r.value for r in readings(Training(), from_columns(0, [0], scalars=scalars), None)}
    assert found == {
        "training.loss": 0.25,
        "training.learning_rate": 1e-6,
        "training.clip_share": 0.1,
        "training.beta": 0.04,
        "training.nonfinite_count": 2.0,
    }


def test_every_canonical_scalar_has_a_reading_and_old_kl_has_its_own() -> None:
    batch = from_columns(0, [0], scalars={**dict.fromkeys(SCALARS, 1.0), "kl_old_new": 0.5})
    names = {r.name for r in readings(Training(), batch, None)}
    assert names == {f"training.{name}" for name in (*SCALARS, "nonfinite_count")}
    assert len(SCALARS) == len(set(SCALARS))
    assert [r.name for r in readings(OldKl(), batch, None)] == ["policy.kl_old"]
    assert readings(OldKl(), replace(batch, scalars={"loss": 1.0}), None) == []
    assert readings(OldKl(), replace(batch, scalars={"kl_old_new": NAN}), None) == []


def test_a_nan_scalar_survives_storage_and_is_counted_after() -> None:
    batch = from_columns(0, [0], reward=[1.0], scalars={"loss": NAN, "grad_norm": INF, "beta": 0.1})
    table, facts = columns.to_table(batch)
    again = columns.from_table(table, json.loads(json.dumps(facts, allow_nan=False)), 0, 0)
    assert Training().measure(again, None)["nonfinite_count"].tolist() == [2.0]


def _degenerate() -> list[tuple[str, RolloutBatch]]:
    ragged: dict[str, Any] = {name: [[-1.0]] * 6 for name in ("logprob", "ref_logprob", "engine_logprob")}
    broken: dict[str, Any] = {name: [[NAN] * 3] * 6 for name in (*ragged, "entropy")}
    bare: dict[str, Any] = dict.fromkeys(broken, [[]] * 6)
    group, numbers = [0, 0, 0, 1, 1, 1], [NAN] * 6
    return [
        ("empty", sample_batch([], seed=1)),
        ("one row", sample_batch([1], seed=1)),
        ("one token each", from_columns(0, group, reward=range(6), gold=[0, 1] * 3, entropy=[[0.5]] * 6, **ragged)),
        ("all equal", from_columns(0, group, reward=[1.0] * 6, gold=[1.0] * 6, entropy=[[0.5]] * 6, **ragged)),
        ("all NaN", from_columns(0, group, reward=numbers, gold=numbers, scalars={"loss": NAN}, **broken)),
        ("no tokens", from_columns(0, group, reward=range(6), gold=[1] * 6, **bare)),
    ]


@pytest.mark.parametrize(("title", "batch"), _degenerate())
@pytest.mark.parametrize("make", FAMILY)
def test_degenerate_batches_give_values_of_the_right_shape_or_nan(make: Any, title: str, batch: RolloutBatch) -> None:
    with warnings.catch_warnings(), np.errstate(all="raise", under="ignore"):
        warnings.simplefilter("error")
        answer = make().measure(batch, Baseline(batch))
    parts = answer if isinstance(answer, dict) else {"": answer}
    expected = len(batch) if make.grain == "rollout" else 1
    for suffix, values in parts.items():
        assert values.shape == (expected,), (title, suffix)
        assert not np.isinf(values).any()
        if title in ("all NaN", "no tokens") and make not in (NonfiniteShare, Training, RewardTail, ErrorTail):
            assert np.isnan(values).all()
        if title == "all equal" and make in (RewardTail, ErrorTail):
            assert np.isnan(values).all()


@pytest.mark.parametrize("make", [ReferenceKl, TokenKl, EngineGap, PolicyEntropy, EntropyRatio, NonfiniteShare])
def test_a_million_tokens_in_one_completion_pass_in_linear_time(make: Any) -> None:
    rng = np.random.default_rng(202)

    def made(tokens: int) -> RolloutBatch:
        ends = np.array([0, tokens, tokens + 1])
        parts: dict[str, Any] = {
            name: Ragged(-rng.exponential(size=tokens + 1).astype(np.float32), ends)
            for name in ("logprob", "ref_logprob", "engine_logprob")
        }
        entropy = Ragged(rng.exponential(size=tokens + 1).astype(np.float32), ends)
        return RolloutBatch(0, 0, np.zeros(2, np.int64), entropy=entropy, **parts)

    small, large = made(1_000), made(10**6)
    start = Baseline(small)
    make().measure(small, start)
    began = time.process_time()
    answer = make().measure(large, start)
    assert time.process_time() - began < 0.5  # 10 to 30 ms; a quadratic pass would take hours
    for values in answer.values() if isinstance(answer, dict) else (answer,):
        assert np.isfinite(values).all()
