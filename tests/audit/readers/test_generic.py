"""Rollouts in anybody's table: which column is what, which rows belong together, and what an empty cell means."""

from __future__ import annotations

import csv
import gzip
import json
import random
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tiltmeter.audit.readers import generic
from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.audit.readers.generic import GenericReader, steps_of
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.errors import StoreError


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """The rows in whatever format the name says."""
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    elif ".csv" in path.name:
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    return path


def rollouts(steps: Sequence[int], prompts: int = 2, size: int = 2) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "prompt": f"p{prompt}",
            "completion": f'answer {step}{prompt}{row}, "so"\nthere',
            "reward": 0.5 * row + prompt,
        }
        for step in steps
        for prompt in range(prompts)
        for row in range(size)
    ]


def find(path: Path, **asked: Any) -> ExternalRun:
    (run,) = GenericReader().find(path, ReadOptions(**asked))
    return run


def batches(path: Path, **asked: Any) -> list[RolloutBatch]:
    run = find(path, **asked)
    return [batch for piece in run.pieces for batch in GenericReader().read(run, piece)]


def rewards(batch: RolloutBatch) -> list[float]:
    assert batch.reward is not None
    return [float(value) for value in batch.reward]


def flags(batch: RolloutBatch, column: str) -> list[str]:
    return [FLAGS[code] for code in batch.flags[column]]


# -- formats and columns ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.parquet"])
def test_every_format_gives_the_same_batches(tmp_path: Path, name: str) -> None:
    found = batches(write(tmp_path / name, rollouts([3, 4, 7])))
    assert [(batch.step, len(batch), len(batch.starts) - 1) for batch in found] == [(3, 4, 2), (4, 4, 2), (7, 4, 2)]
    assert rewards(found[2]) == [0.0, 0.5, 1.0, 1.5]
    assert found[2].completion is not None
    assert found[2].completion[3] == 'answer 711, "so"\nthere'
    assert find(tmp_path / name).pieces[0].steps == (3, 4, 7)


def test_columns_are_mapped_by_name_and_by_dots_and_the_rest_is_said(tmp_path: Path) -> None:
    row = {"it": 2, "q": "2+2", "text": "4", "info": {"score": 0.5, "good": 1}, "weird": 1, "uid": "g1"}
    path = write(tmp_path / "a.jsonl", [row, row])
    columns = {"step": "it", "prompt": "q", "completion": "text", "reward": "info.score", "gold": "info.good"}
    run = find(path, columns={**columns, "group": "uid", "facts.answer": "weird"})
    assert "reward is info.score" in " ".join(run.notes)
    (batch,) = GenericReader().read(run, run.pieces[0])
    assert (batch.step, rewards(batch)) == (2, [0.5, 0.5])
    assert batch.gold is not None
    assert batch.gold.tolist() == [1.0, 1.0]
    assert [json.loads(told or "") for told in batch.facts or ()] == [{"answer": 1}] * 2
    assert "columns that were not used: weird, uid" in find(path, columns=columns).notes
    inner = find(path, columns={**columns, "step": "info.good"})
    assert [batch.step for piece in inner.pieces for batch in GenericReader().read(inner, piece)] == [1]


def test_all_columns_of_a_batch_can_be_given(tmp_path: Path) -> None:
    rows = [
        {"step": 1, "group": group, "reward": 1.0, "rewards": {"fmt": 0.5, "ok": None}, "advantage": -0.5, "gold": 0.25}
        | {"length": 2, "truncated": False, "tokens": [1, 2], "logprob": [-1.0, -2.0], "ref_logprob": [-1.5, -2.5]}
        | {"engine_logprob": [-1.0, -2.0], "entropy": [0.1, 0.2], "step_reward": [1.0]}
        for group in (7, 7, 9)
    ]
    for name in ("a.jsonl", "a.parquet"):
        run = find(write(tmp_path / name, rows))
        (batch,) = GenericReader().read(run, run.pieces[0])
        assert batch.group.tolist() == [7, 7, 9]
        assert batch.rewards["fmt"].tolist() == [0.5] * 3
        assert flags(batch, "rewards.ok") == ["missing"] * 3
        assert batch.logprob is not None
        assert batch.logprob[2].tolist() == [-1.0, -2.0]
        assert batch.length is not None
        assert batch.length.tolist() == [2, 2, 2]
        assert not any("no KL measured" in told for told in run.notes)
        assert all(getattr(batch, column) is not None for column in ("tokens", "entropy", "truncated", "step_reward"))


def test_lists_in_csv_are_json_and_numbers_are_parsed_there_only(tmp_path: Path) -> None:
    rows = [{"step": 1, "group": 1, "reward": "0.5", "tokens": "[4, 5]", "truncated": "length", "length": "2"}]
    rows += [{"step": 1, "group": 1, "reward": "True", "tokens": "[6]", "truncated": "stop", "length": "1"}]
    rows += [{"step": 1, "group": 1, "reward": "n/a", "tokens": "[]", "truncated": "stop", "length": "0"}]
    rows += [{"step": 1, "group": 1, "reward": "", "tokens": "[1]", "truncated": "eos", "length": "1"}]
    (batch,) = batches(write(tmp_path / "a.csv", rows))
    assert rewards(batch)[:2] == [0.5, 1.0]
    assert flags(batch, "reward") == ["ok", "ok", "type", "missing"]
    assert batch.tokens is not None
    assert [row.tolist() for row in (batch.tokens[0], batch.tokens[2])] == [[4, 5], []]
    assert batch.truncated is not None
    assert batch.truncated.tolist() == [True, False, False, False]
    with pytest.raises(StoreError, match="written as JSON"):
        batches(write(tmp_path / "b.csv", [{**rows[0], "tokens": "4 5"}]))


def test_half_a_column_is_left_out_of_its_step_and_never_filled_in(tmp_path: Path) -> None:
    rows = rollouts([1, 2])
    for row in rows:
        row |= {"length": 3, "truncated": True, "tokens": [1, 2, 3]}
    rows[0] |= {"length": None, "truncated": None, "tokens": None, "reward": None}
    first, second = batches(write(tmp_path / "a.jsonl", rows))
    assert (first.length, first.truncated, first.tokens) == (None, None, None)
    assert flags(first, "reward")[0] == "missing"
    assert second.length is not None
    assert second.length.tolist() == [3] * 4


def test_a_reward_that_is_not_stored_is_added_up_and_a_part_that_is_missing_is_not_zero(tmp_path: Path) -> None:
    rows = [{"step": 1, "prompt": "p", "completion": "c", "a": 1.0, "b": b} for b in (0.5, None)]
    asked = {"columns": {"rewards.a": "a", "rewards.b": "b"}, "weights": {"b": 2.0}}
    path = write(tmp_path / "a.jsonl", rows)
    assert "the reward is not stored and was added up: 1 x a + 2 x b" in find(path, **asked).notes
    (batch,) = batches(path, **asked)
    assert rewards(batch)[0] == 2.0
    assert np.isnan(rewards(batch)[1])
    assert flags(batch, "reward") == ["ok", "missing"]


def test_gold_beyond_its_range_is_flagged(tmp_path: Path) -> None:
    rows = [{**row, "gold": gold} for row, gold in zip(rollouts([1], 1), (50, 1), strict=True)]
    (batch,) = batches(write(tmp_path / "a.jsonl", rows))
    assert flags(batch, "gold") == ["range", "ok"]


# -- groups -----------------------------------------------------------------------------------------------------------


def test_groups_come_from_a_column_a_size_or_equal_prompts_and_it_is_said(tmp_path: Path) -> None:
    rows = rollouts([1], prompts=3)
    path = write(tmp_path / "a.jsonl", rows)
    assert any(told.startswith("groups are inferred: equal prompts within a step") for told in find(path).notes)
    assert len(batches(path)[0].starts) - 1 == 3
    twice = write(tmp_path / "b.jsonl", [{**row, "prompt": "same", "uid": i // 2} for i, row in enumerate(rows)])
    assert len(batches(twice)[0].starts) - 1 == 1
    assert len(batches(twice, group_size=2)[0].starts) - 1 == 3
    assert any("2 rows that follow each other, as you said" in told for told in find(twice, group_size=2).notes)
    assert len(batches(twice, columns={"group": "uid"})[0].starts) - 1 == 3
    with pytest.raises(StoreError, match=r"groups are stored \(uid\): leave --group-size out"):
        find(twice, columns={"group": "uid"}, group_size=6)
    alone = write(tmp_path / "c.jsonl", [{"step": 1, "completion": "x", "reward": 1}] * 3)
    assert len(batches(alone)[0].starts) - 1 == 3
    assert any(told.startswith("no groups") for told in find(alone).notes)


def test_groups_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", rollouts([1], prompts=3))
    with pytest.raises(StoreError, match="6 rows of one step are not groups of 4; mend --group-size"):
        batches(path, group_size=4)
    with pytest.raises(StoreError, match="3 rows that follow each other have different prompts"):
        batches(path, group_size=3)
    rows = [{**row, "group": group} for row, group in zip(rollouts([1], 1), (1, None), strict=True)]
    with pytest.raises(StoreError, match=r"b\.jsonl:2: a row without a group"):
        batches(write(tmp_path / "b.jsonl", rows))


# -- steps, order, several files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_unsorted_rows_are_sorted_and_it_is_said(tmp_path: Path, name: str) -> None:
    rows = rollouts([5, 1, 9, 3, 9])
    random.Random(0).shuffle(rows)
    path = write(tmp_path / name, rows)
    assert any("were sorted" in told for told in find(path).notes)
    assert [(batch.step, len(batch)) for batch in batches(path)] == [(1, 4), (3, 4), (5, 4), (9, 8)]


def test_what_is_too_large_to_sort_is_refused_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic, "SORT_LIMIT", 100)
    assert len(batches(write(tmp_path / "a.jsonl", rollouts([1, 2])))) == 2  # in order, size is no matter
    with pytest.raises(StoreError, match="sort them by step, or write one file a step"):
        find(write(tmp_path / "b.jsonl", rollouts([2, 1])))


def test_a_sorted_file_is_read_a_step_at_a_time(tmp_path: Path) -> None:
    path, text = tmp_path / "a.jsonl", "x" * 20_000
    with path.open("w") as stream:
        for step in range(2000):
            stream.write(json.dumps({"step": step, "prompt": "p", "completion": text, "reward": 1}) + "\n")
    tracemalloc.start()
    try:
        run = find(path)
        assert sum(len(batch) for batch in GenericReader().read(run, run.pieces[0])) == 2000
        assert tracemalloc.get_traced_memory()[1] < 5_000_000  # of 40 MB
    finally:
        tracemalloc.stop()


def test_one_file_a_step_has_its_step_from_its_name(tmp_path: Path) -> None:
    for step in (2, 10, 1):
        write(tmp_path / f"run7_step{step}.jsonl", [{**row, "step": None} for row in rollouts([0])])
    for path in tmp_path.iterdir():
        path.write_text(path.read_text().replace('"step": null, ', ""))
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2\n")
    run = find(tmp_path)
    assert [piece.steps for piece in run.pieces] == [(1,), (2,), (10,)]
    assert "files that hold no rollouts were left out: metrics.csv" in run.notes
    assert [batch.step for piece in run.pieces for batch in GenericReader().read(run, piece)] == [1, 2, 10]
    (tmp_path / "other_step2.jsonl").write_text((tmp_path / "run7_step2.jsonl").read_text())
    with pytest.raises(StoreError, match="is of step 2 too"):
        find(tmp_path)


def test_a_file_without_any_step_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "rollouts.jsonl", [{"prompt": "p", "completion": "c", "reward": 1}])
    with pytest.raises(StoreError, match="name it: --map step=COLUMN"):
        find(path)


def test_files_that_share_steps_are_put_together_and_others_stay_apart(tmp_path: Path) -> None:
    write(tmp_path / "rank0.jsonl", rollouts([1, 2, 3]))
    write(tmp_path / "rank1.jsonl", rollouts([2, 3]))
    write(tmp_path / "rank2.parquet", rollouts([4, 5]))
    run = find(tmp_path)
    assert [piece.steps for piece in run.pieces] == [(1, 2, 3), (4, 5)]
    found = [batch for piece in run.pieces for batch in GenericReader().read(run, piece)]
    assert [(batch.step, len(batch)) for batch in found] == [(1, 4), (2, 8), (3, 8), (4, 4), (5, 4)]
    assert any("files that share steps were put together" in told for told in run.notes)


def test_a_step_is_found_without_parsing_whatever_stands_in_the_text(tmp_path: Path) -> None:
    trap = '{"step": 99, "x": "'
    rows: list[dict[str, Any]] = [
        {"prompt": trap, "step": 1, "completion": '"step": 7', "reward": 1},
        {"meta": {"step": 50}, "step": 2, "prompt": "{", "reward": 1},
        {"prompt": "\\", "step": 3, "kind": "step", "reward": 1},
        {"step": 4.0, "prompt": "p", "reward": 1},
        {"prompt": "p", "reward": 1, "meta": [{"step": 60}], "step": 5},
    ]
    path = write(tmp_path / "a.jsonl", rows)
    assert steps_of(path, "step") == [1, 2, 3, 4, 5]
    assert [batch.step for batch in batches(path)] == [1, 2, 3, 4, 5]


# -- what is refused --------------------------------------------------------------------------------------------------


def test_a_table_of_means_is_not_taken_for_rollouts(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", [{"step": 1, "reward": 0.5, "kl": 0.1}])
    assert GenericReader().find(path, ReadOptions()) == []
    assert GenericReader().find(path, ReadOptions(group_size=1)) != []
    assert GenericReader().find(path, ReadOptions(format="generic")) != []
    assert GenericReader().find(tmp_path / "nowhere", ReadOptions()) == []


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"columns": {"rewrad": "reward"}}, "'rewrad' is no column of rollouts: choose one of step, group"),
        ({"columns": {"gold": "truth"}}, "there is no column 'truth'; it has step, prompt, completion, reward"),
        ({"columns": {"run": "prompt"}}, "one file or folder a run"),
        ({"evals": {"reward": 5}}, "map it as gold"),
    ],
)
def test_what_cannot_be_given_is_refused(tmp_path: Path, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(StoreError, match=told):
        find(write(tmp_path / "a.jsonl", rollouts([1])), **asked)


def test_damaged_and_foreign_files_are_refused_with_their_name(tmp_path: Path) -> None:
    whole = write(tmp_path / "a.parquet", rollouts([1, 2])).read_bytes()
    (tmp_path / "a.parquet").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreError, match=r"a\.parquet: not a whole Parquet file"):
        find(tmp_path / "a.parquet")
    (tmp_path / "b.pt").write_bytes(b"\x80\x04.")
    with pytest.raises(StoreError, match="loading one runs code"):
        GenericReader().find(tmp_path / "b.pt", ReadOptions())
    torn = write(tmp_path / "c.jsonl", rollouts([1, 2]))
    torn.write_text(torn.read_text()[:-20])
    assert [len(batch) for batch in batches(torn)] == [4, 3]
    torn.write_text(torn.read_text() + "\n" + json.dumps(rollouts([3])[0]) + "\n")
    with pytest.raises(StoreError, match=r"c\.jsonl:8: not a JSON object"):
        batches(torn)


@pytest.mark.parametrize(
    "change", [{"tokens": [1.5]}, {"tokens": [2**40]}, {"length": -1}, {"tokens": [[1]]}, {"logprob": ["x"]}]
)
def test_numbers_that_no_batch_holds_are_refused_with_their_place(tmp_path: Path, change: dict[str, Any]) -> None:
    path = write(tmp_path / "a.jsonl", [{**row, **change} for row in rollouts([8])])
    with pytest.raises(StoreError, match=r"a\.jsonl:1: step 8 cannot be used"):
        batches(path)


@pytest.mark.parametrize("step", [-1, 1.5, None, "x", 2**60, 10**400, True])
def test_a_row_whose_step_is_none_is_refused(tmp_path: Path, step: Any) -> None:
    path = write(tmp_path / "a.jsonl", [{**rollouts([1])[0], "step": value} for value in (1, step)])
    if step is True:
        assert [batch.step for batch in batches(path)] == [1]  # JSON's true is 1, as everywhere here
        return
    with pytest.raises(StoreError, match=r"a\.jsonl:2: a step is a whole number"):
        find(path)


def test_hostile_text_arrives_whole_and_hostile_names_do_not_reach_a_terminal(tmp_path: Path) -> None:
    nasty = "\x1b[2J\u202e</script>\x00"
    rows = [{"step": 1, "prompt": nasty, "completion": nasty, "reward": 1, nasty: 2, "rewards": {nasty: 0.5}}]
    run = find(write(tmp_path / "a.jsonl", rows), columns={"gold": nasty})
    assert not {"\x1b", "\u202e", "\x00"} & set(" ".join(run.notes))
    (batch,) = GenericReader().read(run, run.pieces[0])
    assert batch.completion == (nasty,)
    assert len(batch.rewards) == 1
