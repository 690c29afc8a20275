"""veRL's dumps: files that veRL 0.9.1's own writers made from invented rows, and how such a folder goes wrong."""

from __future__ import annotations

import gzip
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.audit.readers.verl import VerlReader
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.errors import StoreError

MADE = Path(__file__).parent / "fixtures" / "verl-0.9.1"


def find(path: Path, **asked: Any) -> dict[str, ExternalRun]:
    return {run.name: run for run in VerlReader().find(path, ReadOptions(**asked))}


def one(path: Path, **asked: Any) -> ExternalRun:
    (run,) = VerlReader().find(path, ReadOptions(**asked))
    return run


def batches(run: ExternalRun) -> list[RolloutBatch]:
    return [batch for piece in run.pieces for batch in VerlReader().read(run, piece)]


def says(run: ExternalRun, *words: str) -> bool:
    return any(all(word in line for word in words) for line in run.notes)


def dump(folder: Path, step: int, rows: list[dict[str, Any]]) -> Path:
    """Field by field as `_write_generations` of veRL 0.9.1 writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{step}.jsonl"
    path.write_text("".join(json.dumps({"gts": None, **row, "step": step}) + "\n" for row in rows))
    return path


def row(prompt: str, score: Any, **more: Any) -> dict[str, Any]:
    return {"input": prompt, "output": "x", "score": score, **more}


def test_the_v1_trainer_has_groups_by_uid_validations_and_metrics() -> None:
    run = one(MADE / "v1")
    read = batches(run)
    assert run.name == "v1" and [batch.step for batch in read] == [1, 2, 3]
    assert [np.diff(batch.starts).tolist() for batch in read] == [[4, 4]] * 3
    lines = [json.loads(line) for line in (MADE / "v1/rollouts/1.jsonl").read_text().splitlines()]
    assert read[0].reward is not None and read[0].reward.tolist() == [line["score"] for line in lines]
    assert read[0].completion == tuple(line["output"] for line in lines)
    assert read[0].facts is not None and json.loads(str(read[0].facts[0])) == {"ground_truth": lines[0]["gts"]}
    assert says(run, "groups: by uid") and says(run, "no parts of the reward")
    assert {(found.step, found.name) for found in run.evaluations} == {
        (step, name) for step in (1, 3) for name in ("validation", "validation_acc")
    }
    assert all(found.n == 2 for found in run.evaluations)
    assert run.scalars[1]["kl_ref"] == 0.01 and run.scalars[1]["kl_old_new"] == 0.001
    assert run.scalars[1]["entropy"] == 1.4 and run.scalars[1]["learning_rate"] == 1e-6
    assert run.scalars[1]["truncated_share"] == 0.125 and run.scalars[1]["step_seconds"] == 12.5
    assert math.isnan(run.scalars[2]["grad_norm"])  # orjson wrote null
    assert run.scalars[1]["val-core/sums/acc/mean@1"] == 0.5


def test_the_older_trainer_has_groups_by_prompt_and_parts() -> None:
    run = one(MADE / "v0")
    read = batches(run)
    assert [np.diff(batch.starts).tolist() for batch in read] == [[4, 4]] * 3
    assert all(list(batch.rewards) == ["acc", "format"] for batch in read)
    assert read[0].facts is not None and set(json.loads(str(read[0].facts[0]))) == {"pred", "ground_truth"}
    assert all(len({str(prompt) for prompt in batch.prompt or ()}) == 2 for batch in read)
    assert says(run, "equal prompts, inferred") and says(run, "acc, format")
    assert says(run, "scores from -1 to 1 are not between 0 and 1")
    assert {found.name for found in run.evaluations} == {"validation_acc"}
    assert says(run, "no metrics") and says(run, "no KL measured")


def test_a_folder_of_runs_gives_each_its_own_metrics() -> None:
    runs = find(MADE)
    assert sorted(runs) == ["v0", "v1"]
    assert runs["v1"].scalars and not runs["v0"].scalars


def test_the_dump_folder_finds_its_validations_and_a_file_may_be_named_alone() -> None:
    run = one(MADE / "v1" / "rollouts")
    assert len(batches(run)) == 3 and run.evaluations
    assert [batch.step for batch in batches(one(MADE / "v1" / "rollouts" / "2.jsonl"))] == [2]
    held_out = one(MADE / "v1" / "validation")
    assert not held_out.pieces and held_out.evaluations and says(held_out, "no rollouts of training")
    numbers = one(MADE / "v1" / "project" / "experiment.jsonl")
    assert not numbers.pieces and sorted(numbers.scalars) == [1, 2, 3]


def test_a_logged_metric_may_be_named_as_an_evaluation() -> None:
    run = one(MADE / "v1", evals={"val-core/sums/acc/mean@1": 400})
    named = [found for found in run.evaluations if found.name.startswith("val_core")]
    assert [(found.step, found.value, found.n) for found in named] == [(step, 0.5, 400) for step in (1, 2, 3)]


def test_a_prompt_in_two_groups_is_parted_by_the_size_that_was_given(tmp_path: Path) -> None:
    dump(tmp_path, 1, [row("a", 1.0), row("b", 0.0), row("a", 0.0), row("b", 0.0), row("a", 1.0), row("a", 1.0)])
    merged = one(tmp_path)
    assert np.diff(batches(merged)[0].starts).tolist() == [4, 2]
    assert says(merged, "different size", "--group-size")
    assert np.diff(batches(one(tmp_path, group_size=2))[0].starts).tolist() == [2, 2, 2]


def test_numbers_that_are_none_are_flagged_not_zero(tmp_path: Path) -> None:
    bad = [None, float("nan"), float("inf"), "0.5", [1], True]
    dump(tmp_path, 1, [row("a", score) for score in bad])
    (batch,) = batches(one(tmp_path))
    assert batch.reward is not None and batch.reward[5] == 1.0
    assert [FLAGS[code] for code in batch.flags["reward"]] == ["missing", "nan", "+inf", "type", "type", "ok"]


def test_the_step_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    for step in (1, 2, 10):
        dump(tmp_path, step, [row("a", 1.0), row("a", 0.0)])
    newest = tmp_path / "10.jsonl"
    newest.write_text(newest.read_text()[:-9])
    run = one(tmp_path)
    assert [batch.step for batch in batches(run)] == [1, 2]
    assert says(run, "10.jsonl is not whole yet")
    newest.write_text("")
    assert [batch.step for batch in batches(one(tmp_path))] == [1, 2]


def test_a_damaged_line_is_named_with_its_number_and_the_other_pieces_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiltmeter.audit.readers.folders.PIECE_FILES", 1)
    for step in (1, 2, 3):
        dump(tmp_path, step, [row("a", 1.0), row("a", 0.0), row("a", 0.0)])
    lines = (tmp_path / "2.jsonl").read_text().splitlines()
    (tmp_path / "2.jsonl").write_text("\n".join([lines[0], lines[1][:10], lines[2]]) + "\n")
    run = one(tmp_path)
    assert len(run.pieces) == 3
    with pytest.raises(StoreError, match=r"2\.jsonl: line 2 is not a JSON object.*mend or remove"):
        list(VerlReader().read(run, run.pieces[1]))
    assert [batch.step for piece in (run.pieces[0], run.pieces[2]) for batch in VerlReader().read(run, piece)] == [1, 3]
    (tmp_path / "2.jsonl").write_text("\n".join([lines[0], lines[1][:10]]))
    with pytest.raises(StoreError, match="line 2, the last, is cut off"):
        list(VerlReader().read(run, run.pieces[1]))


def test_rows_of_another_step_are_refused(tmp_path: Path) -> None:
    dump(tmp_path, 1, [row("a", 1.0)]).rename(tmp_path / "7.jsonl")
    with pytest.raises(StoreError, match="another step"):
        batches(one(tmp_path))


def test_packed_files_are_read_and_twins_are_refused(tmp_path: Path) -> None:
    shutil.copytree(MADE / "v1", tmp_path / "run")
    for file in sorted((tmp_path / "run" / "rollouts").iterdir()):
        (file.parent / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(StoreError, match=r"1\.jsonl and 1\.jsonl\.gz are the same step"):
        one(tmp_path / "run")
    for file in (tmp_path / "run" / "rollouts").glob("*.jsonl"):
        file.unlink()
    assert [len(batch) for batch in batches(one(tmp_path / "run"))] == [8, 8, 8]
    third = tmp_path / "run" / "rollouts" / "2.jsonl.gz"
    third.write_bytes(third.read_bytes()[:60])
    run = one(tmp_path / "run")
    with pytest.raises(StoreError, match=r"2\.jsonl\.gz.*copy it again"):
        batches(run)


def test_metrics_that_a_resume_began_anew_are_said(tmp_path: Path) -> None:
    shutil.copytree(MADE / "v1", tmp_path / "run")
    log = tmp_path / "run" / "project" / "experiment.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[1:]) + '{"step": 4, "da')
    run = one(tmp_path / "run")
    assert sorted(run.scalars) == [2, 3] and says(run, "begin later", "resume")


def test_other_numbered_files_are_not_verls(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text('{"task_id": "1", "completion": "x", "reward": 1}\n')
    (tmp_path / "notes.jsonl").write_text('{"step": 1, "loss": 2}\n')
    assert VerlReader().find(tmp_path, ReadOptions()) == []


def test_two_dumps_side_by_side_are_two_runs(tmp_path: Path) -> None:
    for name in ("seed1", "seed2"):
        dump(tmp_path / name, 1, [row("a", 1.0), row("a", 0.0)])
    assert sorted(find(tmp_path)) == ["seed1", "seed2"]


@pytest.mark.parametrize("name", ["retrieval", "test_run", "latest", "evaluator"])
def test_a_folder_whose_name_only_sounds_like_validation_is_training(tmp_path: Path, name: str) -> None:
    dump(tmp_path / name, 1, [row("a", 1.0), row("a", 0.0)])
    assert len(batches(one(tmp_path))) == 1


@pytest.mark.parametrize("name", ["val", "my_val_dumps", "Validation-data", "eval"])
def test_a_folder_named_for_validation_is_none(tmp_path: Path, name: str) -> None:
    dump(tmp_path / name, 1, [row("a", 1.0), row("b", 0.0)])
    run = one(tmp_path)
    assert not run.pieces and [found.value for found in run.evaluations] == [0.5]
    assert says(run, "by the folder's name")


def test_a_key_may_be_named_as_gold() -> None:
    run = one(MADE / "v0", columns={"gold": "acc"})
    first = batches(run)[0]
    assert first.gold is not None and first.gold_chance is not None and set(first.gold_chance.tolist()) == {1.0}
    assert first.reward is not None and first.gold.tolist() == first.reward.tolist()
    assert list(first.rewards) == ["format"] and says(run, "gold: acc")
    with pytest.raises(StoreError, match=r"no key 'truth' for gold.*acc"):
        one(MADE / "v0", columns={"gold": "truth"})


def test_an_empty_file_among_the_others_is_a_loss_and_is_named(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        dump(tmp_path, step, [row("a", 1.0), row("a", 0.0)])
    (tmp_path / "2.jsonl").write_text("")
    with pytest.raises(StoreError, match=r"2[.]jsonl: it holds no rows"):
        batches(one(tmp_path))


def test_numbered_files_of_somebody_else_do_not_stop_the_search(tmp_path: Path) -> None:
    for name in ("1.jsonl", "01.jsonl"):
        (tmp_path / name).write_text('{"text": "x"}\n')
    assert VerlReader().find(tmp_path, ReadOptions()) == []
