"""GRPO and RLOO by recipe: guards that go on learning, a watched run with its parts, outages that stay outages."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.records import FLAGS
from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.composed_reward import ComposedReward
from tiltmeter.rundir.store import RunDirectory
from tiltmeter_workbench.rewards.recipe_reward import reward_from_recipe
from tiltmeter_workbench.train.checks import check_recipe
from tiltmeter_workbench.train.methods.grpo import all_reduce_sum
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe
from tiltmeter_workbench.train.stage_results import StageResult

from .conftest import TRL, Write, write_recipe

PAY = '''
from pathlib import Path

from tiltmeter.rewards import InfraError

HERE = Path(__file__).parent


def long(completions, **_):
    """Breaks off in the third step, while there is a file that says so."""
    calls = HERE / "calls"
    calls.write_text(calls.read_text() + "." if calls.exists() else ".")
    if (HERE / "break").exists() and len(calls.read_text()) == 3:
        raise RuntimeError("the power went out")
    return [len(text) / 50 for text in completions]


def checked(completions, answer, **_):
    """Row 0 of every call could not be checked."""
    assert len(answer) == len(completions)
    return [InfraError("nobody is there"), *[float(a in text) for a, text in zip(answer[1:], completions[1:])]]


def exact(completion, answer):
    return float(completion.strip() == answer)
'''
GRPO: dict[str, Any] = {
    "method": "grpo",
    "data": "prompts.jsonl",
    "rewards": [{"function": "pay.py:long"}, {"function": "pay.py:checked", "weight": 0.5}],
    "guards": "standard",
    "trl": {
        **TRL, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 12, "max_steps": 4,
        "beta": 0.02, "save_strategy": "steps", "save_steps": 1,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def interrupted(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, StageResult]]:
    """Four watched steps, broken off in the third and taken up again."""
    folder = tmp_path_factory.mktemp("online")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        stage = {**GRPO, "gold": "pay.py:exact", "watch": {"act": "act", "gold": {"share": 0.5}}}
        path = write_recipe(folder, stage, model=str(tiny_model))
        (folder / "pay.py").write_text(PAY)
        (folder / "break").touch()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="tiltmeter: the reward .* could not score")
            warnings.filterwarnings("ignore", category=FutureWarning)
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            with pytest.raises(RuntimeError, match="the power went out"):
                run_recipe(read_recipe(path), lambda *_: None)
            (folder / "break").unlink()
            (done,) = run_recipe(read_recipe(path), lambda *_: None)
        yield folder, done.result


def sums(folder: Path) -> Any:
    """What `length_debiased` had learnt, wherever in the reward it stands."""
    state = json.loads((folder / "reward.json").read_text())
    while "sums" not in state["rule"]:
        (state,) = state["parts"].values()
    return state["rule"]["sums"]


def test_guards_go_on_learning_where_they_were(interrupted: tuple[Path, StageResult]) -> None:
    result = interrupted[1]
    assert result.trained.facts["resumed"] == "checkpoint-2" and result.trained.facts["steps"] == 4
    scored = 7  # of 8 rows a step: one could not be
    weights = [1.0, 1.9, 2.71, 3.439]  # each step counts 0.9 times the next
    told = [sums(result.folder / "trainer" / f"checkpoint-{step}")[4] for step in (1, 2, 3, 4)]
    assert told == pytest.approx([scored * weight for weight in weights]), "a fresh start would have 7 rows at step 3"


def test_the_run_is_watched_with_rollouts_and_components(interrupted: tuple[Path, StageResult]) -> None:
    facts = interrupted[1].trained.facts
    store = RunDirectory(facts["run"])
    assert store.attempts() == [0, 1] and [file.step for file in store.files(1)] == [3, 4]
    batch, _, _ = store.read(store.files(1)[0])
    assert set(batch.rewards) >= {"reward", "repetition", "overlong"}
    assert batch.completion is not None and len(batch.completion) == 8
    assert facts["verdict"] in ("OK", "WATCH", "BLIND") and facts["labels"] > 0 and facts["reward"] is not None


def test_what_could_not_be_scored_is_infra_in_the_run_and_not_0(interrupted: tuple[Path, StageResult]) -> None:
    store = RunDirectory(interrupted[1].trained.facts["run"])
    for file in store.files(1):
        batch, _, _ = store.read(file)
        assert batch.reward is not None and np.isnan(batch.reward).sum() == 1
        (row,) = np.flatnonzero(np.isnan(batch.reward))
        assert FLAGS[batch.flags["reward"][row]] == "infra"


def test_the_policy_is_saved_whole(interrupted: tuple[Path, StageResult], tiny_model: Path) -> None:
    from safetensors.numpy import load_file

    (model,) = interrupted[1].trained.folders
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_model, model))
    assert before.keys() == after.keys() and any((before[name] != after[name]).any() for name in before)
    assert (model / "tokenizer.json").is_file()


def test_going_back_takes_the_reward_back_too(tmp_path: Path) -> None:
    from tiltmeter_workbench.train.reward_checkpoint import RewardStateCallback

    (tmp_path / "pay.py").write_text("def size(completions, **_): return [float(len(text)) for text in completions]\n")
    reward = reward_from_recipe([{"function": "pay.py:size"}], ["length_debiased"], folder=tmp_path)
    assert isinstance(reward, ComposedReward)
    callback, args = RewardStateCallback(reward), SimpleNamespace(output_dir=str(tmp_path))
    state = SimpleNamespace(global_step=5, is_world_process_zero=True)
    given = {"prompts": ["q"] * 2, "completions": ["a", "aaa"], "completion_ids": [[1], [1, 1, 1]]}
    (tmp_path / "checkpoint-5").mkdir()
    reward(**given)
    before = reward.state()
    callback.on_save(args, state, None)
    reward(**given)
    assert reward.state() != before
    callback.on_train_begin(args, state, None)
    assert reward.state() == before
    state.global_step = 6
    with pytest.warns(UserWarning, match="begins to learn anew"):
        callback.on_train_begin(args, state, None)


def test_rloo_soft_grpo_and_lora_are_trained_unwatched(recipe: Write, tmp_path: Path, their_warnings: None) -> None:
    trl = {**GRPO["trl"], "max_steps": 1, "save_strategy": "no"}
    plain = {**GRPO, "rewards": [{"function": "rewards.py:long"}], "guards": [], "watch": False, "trl": trl}
    soft = {**plain, "name": "soft", "options": {"entropy_weight": 0.1}, "lora": {"r": 2}}
    rloo = {**plain, "method": "rloo"}
    done = run_recipe(read_recipe(recipe(rloo, soft)), lambda *_: None)
    assert [one.result.trained.facts["steps"] for one in done] == [1, 1]
    assert all(one.result.trained.facts["labels"] is None for one in done)
    (model,) = done[1].result.trained.folders
    assert not (model / "adapter_config.json").exists() and (model.with_name("model-adapter")).is_dir()
    assert not (done[0].result.folder / "tiltmeter").exists()


def test_entropy_weight_is_not_for_rloo(recipe: Write) -> None:
    path = recipe({**GRPO, "method": "rloo", "rewards": [{"function": "rewards.py:long"}],
                   "options": {"entropy_weight": 0.1}})  # fmt: skip
    with pytest.raises(AttachError, match="entropy_weight is for dpo and grpo"):
        check_recipe(read_recipe(path))


def _one_of_two(rank: int, port: int, told: Any) -> None:
    from accelerate import PartialState
    from accelerate.state import AcceleratorState

    AcceleratorState._reset_state(reset_partial_state=True)  # what the parent had trained with
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port)}
    os.environ |= {"MASTER_ADDR": "localhost", "ACCELERATE_USE_CPU": "1"}
    PartialState(cpu=True)
    agree = all_reduce_sum()
    assert agree is not None
    told.put(list(agree([1.0, float(rank)])))


def test_several_processes_learn_from_the_rows_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all_reduce_sum() is None
    with socket.socket() as found:
        found.bind(("localhost", 0))
        port = found.getsockname()[1]
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    both = [context.Process(target=_one_of_two, args=(rank, port, told)) for rank in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(120)
    assert [process.exitcode for process in both] == [0, 0]
    assert [told.get(timeout=5) for _ in both] == [[2.0, 1.0]] * 2
