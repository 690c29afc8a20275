"""A row is a trajectory, however a trainer divides it into rows and whatever stands between the policy's tokens."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltmeter.data.batches import from_columns, join
from tiltmeter.data.records import FLAGS, Ragged, RolloutBatch
from tiltmeter.data.turns import Turn, decode_turns


def same(one: RolloutBatch, other: RolloutBatch) -> None:
    for field in fields(RolloutBatch):
        left, right = getattr(one, field.name), getattr(other, field.name)
        if isinstance(left, Ragged):
            assert np.array_equal(left.values, right.values, equal_nan=left.values.dtype.kind == "f"), field.name
            assert left.lengths.tolist() == right.lengths.tolist(), field.name
        elif isinstance(left, np.ndarray):
            assert np.array_equal(left, right, equal_nan=left.dtype.kind == "f"), field.name
        elif isinstance(left, dict):
            assert left.keys() == right.keys() and all(np.array_equal(left[k], right[k], equal_nan=True) for k in left)
        else:
            assert left == right, field.name


def trajectories(seed: int, count: int) -> list[dict[str, Any]]:
    """Whole trajectories, each with a few pieces: what the policy wrote and what a tool answered."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        pieces = int(rng.integers(1, 5))
        tokens = [rng.integers(1, 99, int(rng.integers(2, 6))).tolist() for _ in range(pieces)]
        own = [[1, *rng.integers(0, 2, len(piece) - 1).tolist()] for piece in tokens]
        made.append({
            "group": number // 2, "trajectory": f"episode {number}", "reward": float(rng.random()),
            "advantage": float(rng.normal()), "prompt": f"prompt {number // 2}", "stop": "done", "env": "shell",
            "version_low": 3.0, "version_high": 4.0, "tokens": tokens, "own": own,
            "logprob": [rng.normal(size=len(piece)).tolist() for piece in tokens],
            "turns": [
                [Turn("assistant", f"{at % 2}", call="bash"), Turn("tool", "answer", parent=0)]
                for at in range(pieces)
            ],
        })  # fmt: skip
    return made


def batch_of(items: list[dict[str, Any]], cuts: list[int]) -> RolloutBatch:
    """The batch in which trajectory i has been divided into about cuts[i] rows."""
    rows: list[dict[str, Any]] = []
    for item, cut in zip(items, cuts, strict=True):
        for part in np.array_split(np.arange(len(item["tokens"])), min(cut, len(item["tokens"]))):
            row = dict(item)
            for name in ("tokens", "own", "logprob"):
                row[name] = [value for at in part for value in item[name][at]]
            row["turns"] = [
                Turn(turn.role, turn.text, call=turn.call, parent=None if turn.parent is None else turn.parent + 2 * at)
                for at, piece in enumerate(part)
                for turn in item["turns"][piece]
            ]
            rows.append(row)
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in rows[0]}
    return from_columns(7, **columns)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 4), min_size=1, max_size=6))
def test_dividing_trajectories_into_rows_changes_nothing(seed: int, cuts: list[int]) -> None:
    items = trajectories(seed, len(cuts))
    whole, divided = batch_of(items, [1] * len(cuts)), batch_of(items, cuts)
    assert len(divided) == len(cuts)
    same(whole, divided)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6))
def test_what_stands_between_the_policys_tokens_moves_no_token_column(seed: int, count: int) -> None:
    items = trajectories(seed, count)
    batch = batch_of(items, [1] * count)
    assert batch.tokens is not None and batch.logprob is not None and batch.length is not None
    for row, item in enumerate(items):
        own = np.concatenate(item["own"]).astype(bool)
        assert batch.tokens[row].tolist() == np.concatenate(item["tokens"])[own].tolist()
        assert np.allclose(batch.logprob[row], np.concatenate(item["logprob"])[own])
        assert batch.length[row] == own.sum()


def test_padding_after_the_last_token_is_cut_before_own_is_read() -> None:
    """TRL pads its mask with 1."""
    tokens, mask = np.array([[5, 6, 7, 0], [5, 6, 0, 0]]), np.array([[1, 0, 1, 1], [1, 1, 1, 1]])
    batch = from_columns(0, [0, 0], tokens=tokens, own=mask, logprob=np.array(mask, float), length=[3, 2])
    assert batch.tokens is not None and [row.tolist() for row in (batch.tokens[0], batch.tokens[1])] == [[5, 7], [5, 6]]
    assert batch.length is not None and batch.length.tolist() == [2, 2]
    assert batch.own is not None and batch.own.lengths.tolist() == [3, 2]


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="logprob and own"):
        from_columns(0, [0], own=[[1, 0, 1]], logprob=[[0.1, 0.2, 0.3, 0.4]])


def test_rewards_of_rows_that_differ_are_a_return() -> None:
    batch = from_columns(
        0, [0] * 7, trajectory=[1, 1, 2, 2, 3, 3, 4],
        reward=[0.0, 1.0, 0.5, 0.5, None, 1.0, TimeoutError()], stop=["done", "done", None, "length", None, None, None],
    )  # fmt: skip
    assert batch.reward is not None and batch.reward[:3].tolist() == [1.0, 0.5, 1.0]
    assert np.isnan(batch.reward[3]) and batch.stop == ("done", "length", None, None)


def test_a_failure_in_one_row_is_one_of_the_trajectory() -> None:
    batch = from_columns(0, [0, 0], trajectory=["a", "a"], reward=[1.0, 0.0], stop=["done", "sandbox"])
    assert len(batch) == 1 and batch.reward is not None and np.isnan(batch.reward).all() and batch.stop == ("sandbox",)


def test_two_agents_of_one_episode_are_two_rows() -> None:
    batch = from_columns(0, [0, 0], trajectory=["a", "a"], agent=["proposer", "solver"], reward=[1.0, 0.0])
    assert len(batch) == 2


def test_rows_on_two_ranks_are_merged_when_groups_are_shared() -> None:
    parts = [from_columns(0, [5], trajectory=[9], tokens=[[rank]], reward=[1.0]) for rank in range(2)]
    whole = join(parts, shared_groups=True)
    assert len(whole) == 1 and whole.tokens is not None and whole.tokens[0].tolist() == [0, 1]


def test_versions_are_a_number_a_pair_or_one_for_each_token() -> None:
    for given_as in ([3, 5], np.array([3, 5]), [[3, 3], [5]], Ragged.of([[3], [5, 5]], np.int64)):
        batch = from_columns(0, [0, 0], version=given_as)
        assert batch.version_low is not None and batch.version_low.tolist() == [3.0, 5.0]
    pair = from_columns(0, [0, 0], version=[(1, 4), (None, 2)])
    assert pair.version_high is not None and pair.version_high.tolist() == [4.0, 2.0]


def test_what_is_said_twice_is_held_twice_and_rows_without_turns_add_none() -> None:
    turns = [Turn("assistant", "one"), Turn("assistant", "two")]
    batch = from_columns(0, [0] * 3, trajectory=[1] * 3, turns=[turns, turns, None], reward=[1.0] * 3)
    assert batch.turns is not None and decode_turns(batch.turns[0]) == (*turns, *turns)
    assert batch.completion == ("one\ntwo\none\ntwo",)


def test_a_total_that_is_missing_after_a_failure_is_infra_and_a_part_stays_missing() -> None:
    batch = from_columns(
        0, [0, 0, 0], reward=[None, None, 0.0], rewards={"a": [None, 1.0, None]}, stop=["sandbox", "done", "timeout"]
    )
    assert [FLAGS[code] for code in batch.flags["reward"]] == ["infra", "missing", "infra"]
    assert [FLAGS[code] for code in batch.flags["rewards.a"]] == ["missing", "ok", "missing"]
