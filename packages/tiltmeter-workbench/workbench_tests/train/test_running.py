"""Stages one after the other: what is finished is left alone, what was killed goes on, what changed is refused."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train import runner
from tiltmeter_workbench.train.checkpoint_folders import latest_checkpoint
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import FinishedStage
from tiltmeter_workbench.train.stage_results import content_id

from .conftest import TRL, Write, write_recipe

#: Runs a recipe and is killed, for good, in the middle of a stage.
KILLED = """
import os, signal, sys
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe

def tell(what, done, total):
    if what.startswith(sys.argv[2]) and done == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

run_recipe(read_recipe(sys.argv[1]), tell)
"""
SAVED = {**TRL, "save_strategy": "steps", "save_steps": 2, "max_steps": 6}
STAGES: tuple[dict[str, Any], ...] = (
    {"method": "sft", "data": "answers.jsonl", "trl": {**TRL, "max_steps": 1}, "watch": False},
    {"method": "dpo", "data": "pairs.jsonl", "trl": SAVED, "watch": False},
)

pytestmark = pytest.mark.usefixtures("their_warnings")


def silent(what: str, done: int, total: int) -> None:
    pass


def bits(folder: Path) -> str:
    """What the weights of a model are, to the last bit."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def trained(path: Path, tell: Callable[[str, int, int], None] = silent, **more: Any) -> dict[str, FinishedStage]:
    return {one.result.name: one for one in runner.run_recipe(read_recipe(path), tell, **more)}


@pytest.fixture(scope="module")
def whole(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that was trained without interruption."""
    path = write_recipe(tmp_path_factory.mktemp("whole"), *STAGES, model=str(tiny_model))
    trained(path)
    return path


def test_a_stage_killed_in_the_middle_goes_on_from_its_checkpoint_to_the_same_bits(recipe: Write, whole: Path) -> None:
    path = recipe(*STAGES)
    environment = {**os.environ, "TILTMETER_DISABLED": "1"}
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path), "dpo", "5"], env=environment, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]
    out = path.parent / "out"
    assert runner.stage_states(read_recipe(path)) == {"sft": "finished", "dpo": "begun"}
    first = bits(out / "01-sft" / "model")
    steps: list[tuple[str, int]] = []
    done = trained(path, lambda what, step, total: steps.append((what.split()[0], step)))
    assert done["sft"].before and not done["dpo"].before
    assert steps == [("dpo", 4), ("dpo", 5), ("dpo", 6)]
    assert done["dpo"].result.trained.facts["resumed"] == "checkpoint-4"
    assert done["dpo"].result.trained.facts["steps"] == 6
    assert bits(out / "01-sft" / "model") == first == bits(whole.parent / "out" / "01-sft" / "model")
    assert bits(out / "02-dpo" / "model") == bits(whole.parent / "out" / "02-dpo" / "model")


def test_a_model_that_was_trained_less_has_other_bits(whole: Path) -> None:
    """The control of the test above: the last two steps change the model."""
    out = whole.parent / "out" / "02-dpo"
    assert bits(out / "trainer" / "checkpoint-4") != bits(out / "trainer" / "checkpoint-6") == bits(out / "model")


def test_what_is_finished_is_not_trained_again(whole: Path) -> None:
    told: list[str] = []
    before = {path: path.stat().st_mtime_ns for path in (whole.parent / "out").rglob("*") if path.is_file()}
    done = trained(whole, lambda what, step, total: told.append(what))
    assert all(one.before for one in done.values())
    assert not told
    assert {path: path.stat().st_mtime_ns for path in (whole.parent / "out").rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("max_steps: 1", "max_steps: 2", r"sft is finished, and trl\.max_steps changed since: .* --fresh sft, or"),
        ("seed: 0", "seed: 1", "stage sft is finished, and seed changed since"),
        ("data: pairs.jsonl", "data: fewer.jsonl", r"dpo is finished, and data\.holds changed since: .* --fresh dpo"),
        ("method: dpo\n", "method: dpo\n  lora: {r: 2}\n", "stage dpo is finished, and lora changed since"),
    ],
)  # fmt: skip
def test_a_finished_stage_whose_recipe_changed_is_refused_and_nothing_is_touched(
    whole: Path, old: str, new: str, said: str
) -> None:
    text = whole.read_text() + "seed: 0\n"
    assert old in text
    (whole.parent / "fewer.jsonl").write_text("".join((whole.parent / "pairs.jsonl").read_text().splitlines(True)[:9]))
    changed = whole.with_name("changed.yaml")
    changed.write_text(text.replace(old, new))
    before = content_id(whole.parent / "out")
    with pytest.raises(AttachError, match=said):
        trained(changed)
    assert content_id(whole.parent / "out") == before


def test_rows_under_another_name_are_the_same_rows(whole: Path) -> None:
    (whole.parent / "same.jsonl").write_text((whole.parent / "pairs.jsonl").read_text())
    changed = whole.with_name("same.yaml")
    changed.write_text(whole.read_text().replace("data: pairs.jsonl", "data: same.jsonl"))
    assert all(one.before for one in trained(changed).values())


def test_what_was_made_of_a_stage_must_be_made_again_with_it(recipe: Write) -> None:
    first, second = ({**stage, "trl": {**TRL, "max_steps": 1}} for stage in STAGES)
    path = recipe(first, second)
    once = trained(path)
    with pytest.raises(
        AttachError, match=r"stage dpo is finished, and model\.@sft changed since: .*--fresh sft --fresh dpo"
    ):
        trained(path, fresh=["sft"])
    assert (
        trained(path)["sft"].result.build_id == once["sft"].result.build_id
    )  # refused before anything was thrown away
    again = trained(path, fresh=["dpo"])
    assert [one.before for one in again.values()] == [True, False]
    with pytest.raises(AttachError, match="--fresh stf: there is no such stage; there are sft, dpo"):
        trained(path, fresh=["stf"])
    assert bits(again["dpo"].result.trained.folders[0]) == bits(once["dpo"].result.trained.folders[0])


def test_a_trial_is_kept_apart_and_ends_early(recipe: Write) -> None:
    path = recipe({**STAGES[0], "trl": {**TRL, "max_steps": 50}})
    done = trained(path, steps=2)
    assert done["sft"].result.trained.facts["steps"] == 2
    assert done["sft"].result.folder == path.parent / "out" / "trial-2" / "01-sft"
    assert runner.stage_states(read_recipe(path)) == {"sft": "to do"}


def test_a_result_that_is_gone_is_missed(recipe: Write) -> None:
    path = recipe({**STAGES[0], "trl": {**TRL, "max_steps": 1}})
    (folder,) = trained(path)["sft"].result.trained.folders
    folder.rename(folder.with_name("elsewhere"))
    with pytest.raises(AttachError, match="is gone, which sft had left: make it again with --fresh sft"):
        trained(path)


def test_a_recipe_is_trained_by_one_run_at_a_time(recipe: Write) -> None:
    path = recipe(STAGES[0])
    with (
        runner._lock_output(path.parent / "out"),
        pytest.raises(AttachError, match="being trained in by another process"),
    ):
        trained(path)


def test_every_stage_is_configured_before_the_first_is_trained(recipe: Write) -> None:
    path = recipe(STAGES[0], {**STAGES[1], "trl": {**TRL, "loss_weights": [1.0, 2.0]}})
    with pytest.raises(AttachError, match="stage dpo: trl: DPOConfig refuses its settings"):
        trained(path)
    assert runner.stage_states(read_recipe(path))["sft"] == "to do"


def test_a_checkpoint_whose_writer_was_killed_is_passed_over(tmp_path: Path) -> None:
    assert latest_checkpoint(tmp_path) is None
    for step, state in ((2, "{}"), (10, '{"half'), (12, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
    assert latest_checkpoint(tmp_path) == tmp_path / "checkpoint-2"


def test_a_resume_after_a_rollback_takes_no_checkpoint_of_the_path_that_was_left(
    recipe: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in mode act: back to step 2 from 6, then killed before another checkpoint is written."""
    path = recipe({**STAGES[0], "trl": SAVED})
    folder = trained(path)["sft"].result.folder
    (folder / "stage.json").unlink()
    assert latest_checkpoint(folder / "trainer") == folder / "trainer" / "checkpoint-6"

    def killed(what: str, done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(
            "tiltmeter_workbench.train.trl_trainer.latest_checkpoint", lambda trainer: trainer / "checkpoint-2"
        )
        trained(path, killed)
    assert latest_checkpoint(folder / "trainer") == folder / "trainer" / "checkpoint-2"


def test_a_stage_that_was_stopped_before_its_last_step_says_so(recipe: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: Any, args: Any, state: Any, control: Any, **_: Any) -> Any:
        control.should_training_stop = state.global_step == 2
        return control

    monkeypatch.setattr("tiltmeter_workbench.train.callbacks.ProgressCallback.on_step_end", stop)
    path = recipe(*({**STAGES[0], "name": f"of-{steps}", "trl": {**TRL, "max_steps": steps}} for steps in (2, 3)))
    whole, short = (one.result.trained for one in trained(path).values())
    assert not whole.notes
    assert "stopped at step 2 of 3, and this is the model of then" in short.notes[0]
    assert "--fresh of-3 trains it anew" in short.notes[0]


def test_the_name_of_a_reward_is_no_file_of_that_name(recipe: Write) -> None:
    stage = {"method": "grpo", "data": "prompts.jsonl", "rewards": [{"function": "rewards.py:long", "name": "helpful"}]}
    path = recipe(stage)
    found = read_recipe(path)
    (path.parent / "helpful").mkdir()
    place = runner._StageRun(found, found.stages[0], path.parent / "out", None)
    assert place.parts({})["rewards"][0]["name"] == "helpful"


def test_the_same_bytes_have_one_identity_and_others_another(tmp_path: Path) -> None:
    for name, tail in (("a", b"x"), ("b", b"x"), ("c", b"y")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(bytes(1 << 18) + tail)
        (tmp_path / name / "config.json").write_text("{}")
    one, same, other = (content_id(tmp_path / name) for name in "abc")
    assert one == same != other


@pytest.mark.slow
def test_two_processes_train_one_model_and_one_of_them_writes(recipe: Write) -> None:
    sft = {**STAGES[0], "trl": {**TRL, "max_steps": 2, "per_device_train_batch_size": 2}}
    rm = {"method": "reward", "name": "rm", "data": "pairs.jsonl", "trl": {**TRL, "max_steps": 1}, "watch": False,
          "options": {"combine": "warm", "members": 2}}  # fmt: skip
    path = recipe(sft, rm)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "tiltmeter"]
    ended = subprocess.run([*command, "train", str(path), "--json"], capture_output=True, text=True, timeout=500)
    assert ended.returncode == 0, ended.stderr[-3000:]
    said = json.loads(ended.stdout)  # of one process: two would be no JSON
    assert [stage["facts"]["steps"] for stage in said["stages"]] == [2, 2]
    again = subprocess.run([*command, "train", str(path), "--json"], capture_output=True, text=True, timeout=500)
    assert [stage["before"] for stage in json.loads(again.stdout)["stages"]] == [True, True]
    one = trained(recipe({**sft, "trl": {**sft["trl"], "per_device_train_batch_size": 4}}, output="alone"))
    # Four rows a step either way, in another order of summing.
    import torch
    from safetensors.torch import load_file

    alone = load_file(one["sft"].result.trained.folders[0] / "model.safetensors")
    both = load_file(path.parent / "out" / "01-sft" / "model" / "model.safetensors")
    for name, value in alone.items():
        assert torch.allclose(value, both[name], atol=1e-4), name
