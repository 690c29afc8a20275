"""Readers written from a format's description: the files here are written by hand, field by field, from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.audit.readers.described import AREAL, NEMO, OPEN_INSTRUCT, SKYRL
from tiltmeter.audit.readers.external_run import ExternalRun, FormatReader, ReadOptions
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError


def one(reader: FormatReader, path: Path, **asked: Any) -> ExternalRun:
    (run,) = reader.find(path, ReadOptions(**asked))
    return run


def batches(reader: FormatReader, run: ExternalRun) -> list[RolloutBatch]:
    return [batch for piece in run.pieces for batch in reader.read(run, piece)]


def says(run: ExternalRun, *words: str) -> bool:
    return any(all(word in line for word in words) for line in run.notes)


def lines(path: Path, rows: list[dict[str, Any]], tail: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + tail)
    return path


@pytest.mark.parametrize("reader", [NEMO, SKYRL, OPEN_INSTRUCT, AREAL])
def test_a_reader_that_was_never_run_on_real_files_says_so(reader: FormatReader) -> None:
    assert "from the format's description only" in reader.title
    assert "description of the format" in str(type(reader).__doc__)


def nemo(prompt: list[int], answer: int, reward: float, **more: Any) -> dict[str, Any]:
    """A row as `log_batched_dict_as_jsonl` leaves it: every value in a batch of one."""
    size, own = len(prompt) + answer, [0] * len(prompt) + [1] * answer
    row = {
        "content": "question answer",
        "rewards": reward,
        "token_ids": [*prompt, *range(100, 100 + answer)],
        "token_loss_mask": own,
        "sample_loss_mask": 1.0,
        "advantages": [0.5] * size,
        "generation_logprobs": [0.0] * len(prompt) + [-0.5] * answer,
        "prev_logprobs": [0.0] * len(prompt) + [-0.625] * answer,
    }
    return {key: [value] for key, value in (row | more).items()} | {"idx": 0}


def test_nemo_has_engine_and_trainer_side_by_side(tmp_path: Path) -> None:
    rows = [nemo([1, 2], 3, 1.0), nemo([1, 2], 2, 0.0), nemo([5], 1, 0.0), nemo([5], 4, 1.0)]
    lines(tmp_path / "exp_001" / "train_data_step1.jsonl", rows)
    lines(tmp_path / "exp_001" / "train_data_step2.jsonl", rows, tail='{"conte')
    lines(tmp_path / "exp_001" / "val_data_step2.jsonl", [{"content": ["x"], "rewards": [1.0], "idx": 0}])
    run = one(NEMO, tmp_path)
    (batch,) = batches(NEMO, run)
    assert run.name == "exp_001" and batch.step == 1 and np.diff(batch.starts).tolist() == [2, 2]
    assert batch.tokens is not None and batch.tokens.lengths.tolist() == [3, 2, 1, 4]
    assert batch.engine_logprob is not None and set(batch.engine_logprob.values.tolist()) == {-0.5}
    assert batch.logprob is not None and set(batch.logprob.values.tolist()) == {-0.625}
    assert batch.advantage is not None and batch.advantage.tolist() == [0.5] * 4
    assert batch.reward is not None and batch.reward.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert says(run, "step2.jsonl is not whole yet") and says(run, "prompt tokens agree, inferred")
    assert [(found.step, found.value) for found in run.evaluations] == [(2, 1.0)]


def test_nemo_without_tokens_needs_the_group_size(tmp_path: Path) -> None:
    rows = [{"content": ["x"], "rewards": [float(at % 2)], "idx": at} for at in range(4)]
    lines(tmp_path / "train_data_step1.jsonl", rows)
    run = one(NEMO, tmp_path)
    assert says(run, "no groups", "--group-size") and np.diff(batches(NEMO, run)[0].starts).tolist() == [1] * 4
    assert np.diff(batches(NEMO, one(NEMO, tmp_path, group_size=2))[0].starts).tolist() == [2, 2]
    with pytest.raises(StoreError, match="not groups of 3"):
        batches(NEMO, one(NEMO, tmp_path, group_size=3))


def test_nemo_does_not_put_two_prompts_into_one_group(tmp_path: Path) -> None:
    lines(tmp_path / "train_data_step1.jsonl", [nemo([1], 1, 1.0), nemo([2], 1, 1.0)])
    with pytest.raises(StoreError, match="not groups of 2 with one prompt each"):
        batches(NEMO, one(NEMO, tmp_path, group_size=2))


def test_nemo_trains_on_filtered_rewards(tmp_path: Path) -> None:
    lines(tmp_path / "train_data_step1.jsonl", [nemo([1], 1, 1.0, filtered_rewards=0.25)])
    (batch,) = batches(NEMO, one(NEMO, tmp_path))
    assert batch.reward is not None and batch.reward.tolist() == [0.25]
    assert batch.rewards["unfiltered"].tolist() == [1.0]


def test_nemo_rows_that_do_not_fit_are_blamed_and_distillation_has_nothing_to_judge(tmp_path: Path) -> None:
    lines(tmp_path / "a" / "train_data_step1.jsonl", [nemo([1], 1, 1.0, token_ids=["x", "y"])])
    with pytest.raises(StoreError, match=r"train_data_step1[.]jsonl: a row is not as its trainer writes it"):
        batches(NEMO, one(NEMO, tmp_path / "a"))
    lines(tmp_path / "b" / "train_data_step1.jsonl", [{"content": ["x"], "input_lengths": [3]}])
    with pytest.raises(StoreError, match="no rewards in its rows"):
        one(NEMO, tmp_path / "b")


def test_skyrl_gives_evaluations_and_no_rollouts(tmp_path: Path) -> None:
    base = {"output_response": "x", "stop_reason": "stop", "env_class": "gsm8k", "env_extras": {}, "data_source": "d"}
    for step, right in ((0, 0.0), (5, 1.0)):
        folder = tmp_path / "exports" / "dumped_evals" / f"global_step_{step}_evals"
        rows: list[dict[str, Any]] = [
            {"input_prompt": "a", "score": right, **base},
            {"input_prompt": "b", "score": [0.0, 1.0], **base},
        ]
        lines(folder / "openai_gsm8k.jsonl", rows)
        lines(folder / "aggregated_results.jsonl", [{"eval/all/avg_score": 0.5}])
    lines(tmp_path / "exports/dumped_evals/global_step_5_evals/odd.jsonl", [{"input_prompt": "a", "score": -3, **base}])
    run = one(SKYRL, tmp_path)
    assert [(found.step, found.name, found.value, found.n) for found in run.evaluations] == [
        (0, "eval_openai_gsm8k", 0.5, 2),
        (5, "eval_openai_gsm8k", 1.0, 2),
    ]
    assert run.name == "exports" and not run.pieces and batches(SKYRL, run) == []
    assert says(run, "pickle") and says(run, "odd.jsonl is no evaluation", "-3")


def trace(step: int, prompt: int, reward: float, **more: Any) -> dict[str, Any]:
    row = {"step": step, "sample_idx": 0, "prompt_idx": prompt, "prompt_tokens": [1], "response_tokens": [2, 3]}
    ended = {"reward": reward, "advantage": reward - 0.5, "finish_reason": "stop", "logprobs": [-0.1, -0.2]}
    return {**row, **ended, "dataset": "gsm8k", "ground_truth": "7", "request_info": {}, **more}


def test_open_instruct_has_tokens_groups_and_endings(tmp_path: Path) -> None:
    rows = [trace(1, 0, 1.0), trace(1, 0, 0.0, finish_reason="length"), trace(1, 1, 0.0), trace(2, 0, 1.0)]
    lines(tmp_path / "run_rollouts_000000.jsonl", rows)
    lines(tmp_path / "run_rollouts_000001.jsonl", [trace(2, 0, 0.0), trace(3, 0, 1.0)], tail='{"step')
    lines(tmp_path / "other_rollouts_000000.jsonl", [trace(1, 0, 1.0)])
    runs = {run.name: run for run in OPEN_INSTRUCT.find(tmp_path, ReadOptions())}
    assert sorted(runs) == ["other", "run"]
    run = runs["run"]
    assert len(run.pieces) == 1  # the shards share a step
    first, second, third = batches(OPEN_INSTRUCT, run)
    assert [len(batch) for batch in (first, second, third)] == [3, 2, 1]
    assert np.diff(first.starts).tolist() == [2, 1]
    assert first.truncated is not None and first.truncated.tolist() == [False, True, False]
    assert first.engine_logprob is not None and first.tokens is not None and first.completion is None
    assert says(run, "no text") and says(run, "still being written")


def test_open_instruct_shards_without_a_common_step_are_pieces_of_their_own(tmp_path: Path) -> None:
    lines(tmp_path / "run_rollouts_000000.jsonl", [trace(1, 0, 1.0)])
    lines(tmp_path / "run_rollouts_000001.jsonl", [trace(2, 0, 1.0, logprobs=None)])
    run = one(OPEN_INSTRUCT, tmp_path)
    assert [len(piece.files) for piece in run.pieces] == [1, 1]
    assert [batch.engine_logprob is None for batch in batches(OPEN_INSTRUCT, run)] == [False, True]


def test_open_instruct_refuses_a_resume_in_the_same_file(tmp_path: Path) -> None:
    lines(tmp_path / "run_rollouts_000000.jsonl", [trace(1, 0, 1.0), trace(2, 0, 1.0), trace(1, 0, 1.0)])
    with pytest.raises(StoreError, match=r"step 1 comes again after step 2.*split"):
        batches(OPEN_INSTRUCT, one(OPEN_INSTRUCT, tmp_path))


def areal(task: str, reward: Any, **more: Any) -> dict[str, Any]:
    row = {"task_id": task, "sample_idx": 0, "seqlen": 9, "prompt_len": 4, "head_version": 1, "tail_version": 2}
    return {**row, "reward": reward, "prompt": "q", "completion": "x", **more}


def test_areal_has_groups_by_task_and_warns_of_what_did_not_survive(tmp_path: Path) -> None:
    home = tmp_path / "logs" / "trial"
    for version in (2, 10):
        lines(home / "rollout" / str(version) / "7.jsonl", [areal("7", 1.0), areal("7", 0.0)])
        lines(home / "rollout" / str(version) / "8.jsonl", [areal("8", 0.5, original_reward=1.0)], tail='{"task')
    lines(home / "eval-rollout" / "10" / "1.jsonl", [areal("1", 1.0)])
    run = one(AREAL, tmp_path)
    assert run.name == "logs-trial" and [piece.steps for piece in run.pieces] == [(2, 10)]
    assert says(run, "only what survived", "silence")
    assert [(found.step, found.value) for found in run.evaluations] == [(10, 1.0)]
    with pytest.raises(StoreError, match=r"rollout/2/8[.]jsonl: line 2, the last, is cut off"):
        batches(AREAL, run)  # only the newest version is still written
    lines(home / "rollout" / "2" / "8.jsonl", [areal("8", 0.5, original_reward=1.0)])
    two, ten = batches(AREAL, run)
    assert (two.step, ten.step) == (2, 10) and np.diff(two.starts).tolist() == [2, 1]
    assert two.length is not None and two.length.tolist() == [5, 5, 5]
    assert two.rewards["original"].tolist()[2] == 1.0 and np.isnan(two.rewards["original"][0])


def test_areal_and_verl_do_not_take_each_others_numbered_files(tmp_path: Path) -> None:
    from tiltmeter.audit.readers.verl import VerlReader

    lines(tmp_path / "rollout" / "2" / "7.jsonl", [areal("7", 1.0)])
    assert (
        VerlReader().find(tmp_path, ReadOptions()) == []
        and VerlReader().find(tmp_path / "rollout" / "2", ReadOptions()) == []
    )
    verl = tmp_path / "verl" / "rollout"
    lines(verl / "1.jsonl", [{"input": "q", "output": "a", "score": 1.0, "gts": None, "step": 1}])
    assert (
        AREAL.find(tmp_path / "verl", ReadOptions()) == []
        and len(VerlReader().find(tmp_path / "verl", ReadOptions())) == 1
    )
