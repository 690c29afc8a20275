"""TRL's files: recorded runs of TRL 1.16, and the ways in which such a folder goes wrong."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tiltmeter.audit.readers import trl_completions
from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.audit.readers.trl import TrlReader
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.errors import StoreError

OWN = Path(__file__).parent / "fixtures" / "trl-1.16"
SHARED = Path(__file__).resolve().parents[4] / "shared" / "fixtures" / "trl-1.16"
recorded = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the recorded TRL files are not at {SHARED}")


def one(path: Path, **asked: Any) -> ExternalRun:
    (run,) = TrlReader().find(path, ReadOptions(**asked))
    return run


def batches(run: ExternalRun) -> list[RolloutBatch]:
    return [batch for piece in run.pieces for batch in TrlReader().read(run, piece)]


def _mean(batch: RolloutBatch) -> float:
    assert batch.reward is not None
    return float(np.mean(batch.reward))


def says(run: ExternalRun, *words: str) -> bool:
    return any(all(word in line for word in words) for line in run.notes)


def step_file(folder: Path, step: int, prompts: list[str], **columns: list[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = len(prompts)
    table = {"step": [step] * rows, "prompt": prompts, "completion": [f"{step}.{row}" for row in range(rows)]}
    path = folder / f"completions_{step:05d}.parquet"
    pq.write_table(pa.table({**table, **columns, "advantage": [0.0] * rows}), path)
    return path


def state(folder: Path, history: list[dict[str, Any]], **more: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    last = max((row["step"] for row in history), default=0)
    path = folder / "trainer_state.json"
    path.write_text(json.dumps({"log_history": history, "global_step": last, "logging_steps": 1, **more}))
    return path


# --- recorded runs


@recorded
def test_a_folder_of_the_eight_recorded_runs_gives_eight_runs_with_the_folders_names() -> None:
    runs = TrlReader().find(SHARED, ReadOptions())
    assert [run.name for run in runs] == sorted(path.parent.name for path in SHARED.glob("*/completions"))
    assert len(runs) == 8
    assert all(batches(run) for run in runs)


@recorded
def test_plain_has_rewards_apart_from_the_extra_column_and_the_metrics_of_its_checkpoint() -> None:
    run = one(SHARED / "plain")
    read = batches(run)
    assert [batch.step for batch in read] == [1, 2, 3, 4, 5] == list(run.pieces[0].steps)
    assert all(list(batch.rewards) == ["length_reward", "correct_reward"] for batch in read)
    assert read[0].facts is not None and json.loads(str(read[0].facts[0])) == {"n_chars": 16}
    assert read[0].reward is not None
    np.testing.assert_allclose(read[0].reward, read[0].rewards["length_reward"] + read[0].rewards["correct_reward"])
    assert sorted(run.scalars) == [1, 2, 3, 4]
    logged = json.loads((SHARED / "plain/checkpoint-4/trainer_state.json").read_text())["log_history"]
    for entry in logged:
        ours = run.scalars[entry["step"]]
        assert ours["kl_ref"] == entry["kl"]
        assert ours["dead_group_share"] == entry["frac_reward_zero_std"]
        assert ours["truncated_share"] == entry["completions/clipped_ratio"]
        assert ours["length_mean"] == entry["completions/mean_length"]
        assert ours["clip_share"] == entry["clip_ratio/region_mean"]
        assert ours["rewards/length_reward"] == entry["rewards/length_reward/mean"]
        assert ours["my/charlen"] == entry["my/charlen"]
        np.testing.assert_allclose(ours["reward"], _mean(read[entry["step"] - 1]), rtol=1e-6)
    assert says(run, "weight 1") and says(run, "checkpoint-4") and says(run, "steps 5 to 5 come after")
    assert says(run, "groups: 4 rows", "inferred")


@recorded
def test_chat_is_read_as_what_was_said() -> None:
    first = batches(one(SHARED / "chat"))[0]
    assert first.prompt is not None and first.prompt[0] == "what is 5 plus 2"
    assert first.completion is not None and first.completion[0] == "l answan"
    assert np.diff(first.starts).tolist() == [4, 4]


@recorded
def test_rows_that_nobody_scored_have_no_reward_and_rows_with_a_missing_part_are_counted() -> None:
    run = one(SHARED / "unscored")
    first = batches(run)[0]
    assert first.reward is not None
    assert np.isnan(first.reward[1::2]).all() and (first.reward[::2] == 1.0).all()
    missing = FLAGS.index("missing")
    assert first.flags["reward"].tolist() == [0, missing] * 4
    assert (first.flags["rewards.never_scored"] == missing).all()
    assert says(run, "8 of 16 rows", "counted that part as 0") and says(run, "8 of 16 rows", "scored by no function")
    nothing = one(SHARED / "all_unscored")
    assert all(np.isnan(batch.reward).all() for batch in batches(nothing) if batch.reward is not None)
    assert "reward" not in nothing.scalars[1]  # the log has null there


@recorded
def test_a_step_that_an_evaluation_overwrote_is_left_out_and_said() -> None:
    run = one(SHARED / "eval_overwrites")
    assert [batch.step for batch in batches(run)] == [1]
    assert says(run, "evaluation at step 2 overwrote")
    assert sorted(run.scalars) == [1, 2]
    assert not any("EVAL" in str(prompt) for batch in batches(run) for prompt in batch.prompt or ())


@recorded
def test_two_functions_of_one_name_leave_no_total() -> None:
    run = one(SHARED / "duplicate_names")
    (batch,) = batches(run)
    assert batch.reward is None
    assert [part.tolist() for part in batch.rewards.values()] == [[2.0] * 8]
    assert says(run, "'<lambda>'", "1.5", "two reward functions share")


@recorded
def test_sparse_logging_keeps_the_steps_and_a_run_without_a_reference_has_no_leash() -> None:
    run = one(SHARED / "sparse_logging")
    assert [batch.step for batch in batches(run)] == [2, 4]
    assert says(run, "every 2 steps")
    assert batches(run)[0].reward is not None  # its log averages two steps: no clash of names
    loose = one(SHARED / "no_leash")
    assert says(loose, "no KL measured") and not any("kl_ref" in row for row in loose.scalars.values())
    assert not says(run, "no KL measured")


@recorded
@pytest.mark.parametrize("inside", ["completions", "completions/completions_00003.parquet"])
def test_the_completions_folder_or_one_file_may_be_named(inside: str) -> None:
    run = one(SHARED / "plain" / inside)
    assert run.name == "plain"
    assert [batch.step for batch in batches(run)] == ([1, 2, 3, 4, 5] if inside == "completions" else [3])
    assert run.scalars


def test_rollouts_used_for_two_steps_are_kept_once_at_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    run = one(OWN / "twice")
    assert [batch.step for batch in batches(run)] == [1, 3]
    assert says(run, "hold the same rollouts", "the first is kept")
    assert sorted(run.scalars) == [1, 2, 3, 4]
    # Pieces of one file each: the repetition must not be cut away from what it repeats.
    monkeypatch.setattr("tiltmeter.audit.readers.folders.PIECE_FILES", 1)
    cut = one(OWN / "twice")
    assert len(cut.pieces) == 2
    assert [batch.step for batch in batches(cut)] == [1, 3]


def test_weights_that_were_not_one_are_noticed_and_the_right_ones_proposed() -> None:
    run = one(OWN / "weighted")
    assert says(run, "weights were not 1", "--weight length_reward=0.5 --weight spaces=2 agrees")
    weighed = one(OWN / "weighted", weights={"length_reward": 0.5, "spaces": 2.0})
    assert not says(weighed, "were not 1") and says(weighed, "length_reward=0.5, spaces=2")
    for batch in batches(weighed):
        np.testing.assert_allclose(_mean(batch), weighed.scalars[batch.step]["reward"], rtol=1e-5)
    with pytest.raises(StoreError, match=r"no reward column 'spce'.*spaces"):
        one(OWN / "weighted", weights={"spce": 1.0})


def test_evaluations_before_and_during_training_are_no_training() -> None:
    run = one(OWN / "eval_on_start", evals={"eval_rewards/length_reward/mean": 16})
    assert [batch.step for batch in batches(run)] == [1]
    assert [(found.step, found.name, found.n) for found in run.evaluations] == [
        (step, "eval_rewards_length_reward_mean", 16) for step in (0, 2, 3)
    ]


# --- folders that were written here, column by column


def test_groups_of_one_prompt_that_are_neighbours_stay_apart(tmp_path: Path) -> None:
    step_file(tmp_path, 1, ["a"] * 4 + ["b"] * 2, score=[1.0] * 6)
    run = one(tmp_path)
    assert [np.diff(batch.starts).tolist() for batch in batches(run)] == [[2, 2, 2]]
    assert says(run, "groups: 2 rows in a row, inferred")
    assert np.diff(batches(one(tmp_path, group_size=1))[0].starts).tolist() == [1] * 6
    with pytest.raises(StoreError, match=r"not groups of 3.*--group-size"):
        one(tmp_path, group_size=3)


def test_irregular_groups_are_said_and_a_file_that_does_not_fit_is_named(tmp_path: Path) -> None:
    step_file(tmp_path / "odd", 1, ["a"] * 3 + ["b"] * 2, score=[1.0] * 5)
    assert says(one(tmp_path / "odd"), "of 2 to 3 rows: irregular")
    assert np.diff(batches(one(tmp_path / "odd"))[0].starts).tolist() == [3, 2]
    for step in range(1, 40):
        step_file(tmp_path / "late", step, ["a"] * (3 if step == 20 else 4), score=[1.0] * (3 if step == 20 else 4))
    run = one(tmp_path / "late")
    with pytest.raises(StoreError, match=r"completions_00020.*not groups of 4"):
        batches(run)


def test_without_a_log_fractions_are_rewards_and_that_is_said(tmp_path: Path) -> None:
    step_file(tmp_path, 1, ["a", "a"], score=[1.0, 0.5], n_chars=[3, 4], note=["x", "y"])
    run = one(tmp_path)
    (batch,) = batches(run)
    assert list(batch.rewards) == ["score"]
    assert batch.facts is not None and json.loads(str(batch.facts[1])) == {"n_chars": 4, "note": "y"}
    assert says(run, "no trainer_state.json") and says(run, "no log tells them")
    assert list(batches(one(tmp_path, weights={"n_chars": 2.0}))[0].rewards) == ["n_chars"]


def test_a_hostile_number_keeps_its_reason(tmp_path: Path) -> None:
    step_file(tmp_path, 1, ["a", "a", "a"], score=[1.0, float("inf"), None], other=[float("nan"), -float("inf"), None])
    (batch,) = batches(one(tmp_path))
    assert batch.reward is not None
    assert batch.reward[0] == 1.0 and np.isnan(batch.reward[1:]).all()
    assert FLAGS[batch.flags["rewards.score"][1]] == "+inf" and FLAGS[batch.flags["reward"][2]] == "missing"


def test_files_older_than_those_before_them_are_said_to_be_of_another_attempt(tmp_path: Path) -> None:
    files = [step_file(tmp_path, step, ["a", "a"], score=[1.0, 0.0]) for step in range(1, 7)]
    for number, file in enumerate(files):
        os.utime(file, (1000 + number, 1000 + number))
    assert not says(one(tmp_path), "older")
    for number, file in enumerate(files[2:4]):
        os.utime(file, (5000 + number, 5000 + number))
    assert says(one(tmp_path), "step 5", "older than those before", "earlier attempt")


def test_the_newest_file_may_not_be_whole_yet_and_any_other_must_be(tmp_path: Path) -> None:
    files = [step_file(tmp_path, step, ["a", "a"], score=[1.0, 0.0]) for step in (1, 2, 3)]
    whole = files[2].read_bytes()
    files[2].write_bytes(whole[:-20])
    run = one(tmp_path)
    assert [batch.step for batch in batches(run)] == [1, 2]
    assert says(run, "completions_00003.parquet is not whole yet")
    files[2].write_bytes(whole)
    files[1].write_bytes(files[1].read_bytes()[:-20])
    damaged = one(tmp_path)
    with pytest.raises(StoreError, match=r"completions_00002[.]parquet: not a whole Parquet file.*copy it again"):
        batches(damaged)
    for file in files:
        file.write_bytes(b"")
    with pytest.raises(StoreError, match=r"completions_00001[.]parquet"):
        one(tmp_path)


def test_a_renamed_file_is_noticed(tmp_path: Path) -> None:
    step_file(tmp_path, 1, ["a", "a"], score=[1.0, 0.0]).rename(tmp_path / "completions_00009.parquet")
    with pytest.raises(StoreError, match=r"rows say step 1"):
        batches(one(tmp_path))


def test_somebody_elses_parquet_of_that_name_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x"]}), tmp_path / "completions_00001.parquet")
    with pytest.raises(StoreError, match=r"no column step, prompt, completion"):
        one(tmp_path)
    step_file(tmp_path, 1, ["a", "a"])
    with pytest.raises(StoreError, match=r"no reward column.*--weight"):
        one(tmp_path)


def test_a_step_of_too_many_rows_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step_file(tmp_path, 1, ["a"] * 50, score=[1.0] * 50)
    monkeypatch.setattr(trl_completions, "ROW_LIMIT", 49)
    with pytest.raises(StoreError, match=r"50 rows in one step"):
        one(tmp_path)


def test_a_log_alone_is_a_run_of_numbers_and_the_newest_checkpoint_speaks(tmp_path: Path) -> None:
    state(tmp_path / "run" / "checkpoint-2", [{"step": 1, "loss": 0.5}, {"step": 2, "loss": 0.4}])
    history: list[dict[str, Any]] = [{"step": step, "loss": 1.0 / step, "kl": float("nan")} for step in range(1, 11)]
    state(tmp_path / "run" / "checkpoint-10", [*history, {"step": 10, "train_runtime": 3.0, "train_loss": 9.0}])
    run = one(tmp_path)
    assert run.name == "run" and not run.pieces and says(run, "log_completions=True")
    assert sorted(run.scalars) == list(range(1, 11))
    assert np.isnan(run.scalars[3]["kl_ref"]) and "train_loss" not in run.scalars[10]


@pytest.mark.parametrize("text", ['{"log_history": [{"step": 1', "[" * 100_000, "", '{"log_history": 3}', "[]", "\x00"])
def test_a_damaged_log_is_named_or_not_taken_for_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "trainer_state.json").write_text(text)
    try:
        assert TrlReader().find(tmp_path, ReadOptions()) == []
    except StoreError as error:
        assert "trainer_state.json: not whole JSON" in str(error)


def test_other_formats_in_the_folder_are_said(tmp_path: Path) -> None:
    step_file(tmp_path / "completions", 1, ["a", "a"], score=[1.0, 0.0])
    (tmp_path / "rollout_data").mkdir()
    (tmp_path / "rollout_data" / "1.jsonl").write_text("{}\n")
    assert says(one(tmp_path), "another format", "rollout_data", "--format verl")


def test_an_empty_folder_and_other_peoples_files_are_not_ours(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "notes.gz", "wb") as file:
        file.write(b"x")
    (tmp_path / "model.bin").write_bytes(b"\x80\x04")
    assert TrlReader().find(tmp_path, ReadOptions()) == []
    assert TrlReader().find(tmp_path / "absent", ReadOptions()) == []


def test_links_are_not_read_twice(tmp_path: Path) -> None:
    shutil.copytree(OWN / "weighted", tmp_path / "a")
    (tmp_path / "latest").symlink_to(tmp_path / "a")
    assert [run.name for run in TrlReader().find(tmp_path, ReadOptions())] == ["a"]


def test_a_column_may_be_named_as_gold(tmp_path: Path) -> None:
    step_file(tmp_path, 1, ["a", "a"], score=[3.0, 0.5], solved=[1, 0])
    run = one(tmp_path, columns={"gold": "solved"})
    (batch,) = batches(run)
    assert batch.gold is not None and batch.gold.tolist() == [1.0, 0.0] and list(batch.rewards) == ["score"]
    assert says(run, "gold: solved, as given") and not says(run, "paid")
    assert says(one(tmp_path, columns={"gold": "score"}), "paid as well")
    with pytest.raises(StoreError, match=r"no column 'truth' for gold: .*score, solved"):
        one(tmp_path, columns={"gold": "truth"})


def test_a_text_column_cannot_be_weighed(tmp_path: Path) -> None:
    step_file(tmp_path, 1, ["a", "a"], score=["good", "bad"])
    with pytest.raises(StoreError, match=r"'score' holds .*string, not numbers"):
        one(tmp_path, weights={"score": 1.0})
