"""Going back to a checkpoint is a transaction: it is whole or refused, and if loading fails training goes on."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sizes import CAMPAIGN, size

import tiltmeter
from tiltmeter.data.records import Action
from tiltmeter.rundir.checkpoints.hashes import checkpoint_problem, hash_checkpoint
from tiltmeter.rundir.requests import request_for, write_request
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]
Damage = Callable[[Path], object]
STEPS, TARGET = 9, 2


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def link(path: Path) -> None:
    path.rename(path.with_name("." + path.name))
    path.symlink_to("." + path.name)


DAMAGES: dict[str, Damage] = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "emptied": lambda path: path.write_bytes(b""),
    "flipped": flip,
    "missing": lambda path: path.unlink(),
    "a link": link,
}


@pytest.fixture
def watched(make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def make(steps: int, at: Callable[[int, Any], None], **changes: Any) -> Any:
        """A trainer that saves every second step, and calls `at` when a step begins."""
        from transformers import TrainerCallback

        settings = {"max_steps": steps, "save_strategy": "steps", "save_steps": 2, "beta": 0.01, **changes}
        trainer = make_trainer(**settings)

        class AtStepBegin(TrainerCallback):  # type: ignore[misc]
            def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
                at(int(state.global_step), run)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = tiltmeter.attach(trainer, act="act")
        trainer.add_callback(AtStepBegin())
        return run

    return make


def ask_to_go_back(run: Any, number: int, target: int = TARGET) -> None:
    store = RunDirectory(run.directory)
    step = int(run.trainer.state.global_step)
    action = Action(f"{run.attempt}-{step}-back{number}", run.attempt, step, "test", "rollback", 0.0, float(target), "")
    request = request_for(
        action, "apply", "monitor", expires_step=10_000, with_knob="beta", with_value=round(0.02 + number / 1000, 3)
    )
    write_request(store, request, read_token(store))


def receipts(run: Any) -> list[dict[str, Any]]:
    found = [json.loads(path.read_bytes()) for path in (run.directory / "control" / "receipts").iterdir()]
    return sorted(found, key=lambda receipt: (receipt["step"], receipt["id"]))


def wait_for_hashes(run: Any) -> None:
    for thread in list(run._control._hashing.values()):
        thread.join(30)


def test_an_intact_checkpoint_is_gone_back_to_and_the_trainers_limit_of_checkpoints_holds_again(watched: Any) -> None:
    def at(step: int, run: Any) -> None:
        if step == 5 and run.attempt == 0:
            ask_to_go_back(run, 0, target=4)

    run = watched(STEPS, at, save_total_limit=2)
    run.train()
    assert run.trainer.state.global_step == STEPS and run.attempt == 1
    assert [(receipt["state"], receipt["why"]) for receipt in receipts(run)] == [("applied", "beta reads 0.02")]
    assert run.trainer.args.save_total_limit == 2


def test_every_file_in_every_damage_is_found_before_anything_is_loaded(watched: Any) -> None:
    """One request a step: each finds the checkpoint damaged in another way, and training goes on."""
    cases: list[tuple[str, str]] = []
    whole: dict[str, bytes] = {}
    answered: dict[str, str] = {}

    def at(step: int, run: Any) -> None:
        folder = Path(run.trainer.args.output_dir) / f"checkpoint-{TARGET}"
        if step < TARGET:
            return
        if not whole:
            wait_for_hashes(run)
            whole.update({path.name: path.read_bytes() for path in folder.iterdir()})
            names = sorted(whole) if CAMPAIGN else ["model.safetensors", "optimizer.pt", "rng_state.pth"]
            damages = list(DAMAGES) if CAMPAIGN else ["emptied", "flipped", "missing"]
            cases.extend((name, damage) for name in names for damage in damages)
        for path in folder.iterdir():
            path.unlink()
        for name, content in whole.items():
            (folder / name).write_bytes(content)
        number = step - TARGET
        if number < len(cases):
            name, damage = cases[number]
            DAMAGES[damage](folder / name)
            answered[f"back{number}.apply"] = name
            ask_to_go_back(run, number)
        else:
            run.trainer.control.should_training_stop = True

    run = watched(200, at)
    run.train()
    told = receipts(run)
    assert len(cases) >= size(9, 40) and len(told) == len(cases) and run.attempt == 0
    for receipt in told:
        assert receipt["state"] == "refused", receipt
        name = answered[receipt["id"].split("-")[-1]]
        assert name in receipt["why"] or name == "trainer_state.json", receipt


@pytest.mark.parametrize(("file", "damage"), [("model.safetensors", "truncated"), ("optimizer.pt", "emptied")])
def test_a_checkpoint_that_cannot_be_loaded_does_not_end_training(
    watched: Any, monkeypatch: pytest.MonkeyPatch, file: str, damage: str
) -> None:
    """Damaged between the check and the loading."""
    monkeypatch.setattr("tiltmeter.adapters.trl.control.checkpoint_problem", lambda *_: "")

    def at(step: int, run: Any) -> None:
        if step == 5 and run.attempt == 0:
            ask_to_go_back(run, 0)
            DAMAGES[damage](Path(run.trainer.args.output_dir) / f"checkpoint-{TARGET}" / file)

    run = watched(STEPS, at)
    run.train()
    assert run.trainer.state.global_step == STEPS
    (receipt,) = receipts(run)
    assert receipt["state"] == "refused" and "training went on from step 6" in receipt["why"]
    assert run.trainer.beta == 0.01, "the change that goes with a rollback was not made"


def test_an_error_of_training_itself_is_still_raised_after_going_back(watched: Any) -> None:
    def at(step: int, run: Any) -> None:
        if step == 5 and run.attempt == 0:
            ask_to_go_back(run, 0)
        if step == 4 and run.attempt == 1:
            raise ZeroDivisionError("of the trainer")

    with pytest.raises(ZeroDivisionError):
        watched(STEPS, at).train()


def test_hashes_that_somebody_else_wrote_count_for_nothing(watched: Any) -> None:
    run = watched(2, lambda step, run: None)
    run.train()
    wait_for_hashes(run)
    store, folder = RunDirectory(run.directory), Path(run.trainer.args.output_dir) / "checkpoint-2"
    token = read_token(store)
    assert checkpoint_problem(store, 2, folder, token) == ""
    flip(folder / "model.safetensors")
    manifest = run.directory / "control" / "checkpoints" / "0-000002.json"
    facts = json.loads(manifest.read_bytes()) | {"files": hash_checkpoint(folder)}
    manifest.write_text(json.dumps(facts))
    assert "not signed" in checkpoint_problem(store, 2, folder, token)
    manifest.unlink()
    assert "not hashed when it was written" in checkpoint_problem(store, 2, folder, token)
