"""A run under real TRL that goes wrong halfway: alarm, finding, rollback with a changed setting, and how that went."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import tiltmeter
from tiltmeter.data.records import Action
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.requests import request_for, write_request
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]

GOLD = "def brief(prompt, completion):\n    return max(0.0, 1.0 - len(completion) / 80)\n"
TURNS = 20  # the step after which the reward pays for the opposite of what it paid for


def turning(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
    sign = -1.0 if trainer_state.global_step < TURNS else 1.0
    return [sign * len(text) / 50 for text in completions]


@pytest.fixture
def story(make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Train such a run; gives what `attach` gave."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    checks = tmp_path / "checks.py"
    checks.write_text(GOLD)

    def run(mode: Literal["advise", "act"], steps: int = 75, **options: Any) -> Any:
        trainer = make_trainer(
            rewards=[turning], max_steps=steps, learning_rate=3e-3, per_device_train_batch_size=32, num_generations=8,
            save_strategy="steps", save_steps=5, lr_scheduler_type="constant", beta=0.001,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tiltmeter.attach(
                trainer,
                gold=tiltmeter.Gold(f"{checks}:brief", share=0.4),
                act=mode,
                options=tiltmeter.Options(strict=True),
                **options,
            )

    return run


def actions(events: list[Event]) -> list[Action]:
    return [action for event in events if isinstance(action := event.payload, Action)]


@pytest.mark.slow
def test_in_act_mode_the_run_goes_back_with_a_changed_setting_and_the_outcome_is_judged(story: Any) -> None:
    run = story("act")
    run.train()
    run.verdict(120.0)
    events = read_events(run.directory / "events")
    told = RunFacts.from_events(events)
    alarms = [event for event in events if event.kind == "alarm" and event.data["tier"] == "alarm"]
    assert alarms and alarms[0].data["onset"] + 10 >= TURNS and alarms[0].step > TURNS
    assert any(event.kind == "finding" and event.data["alarms"] for event in events)
    went = [action for action in actions(events) if action.knob == "rollback" and action.state == "applied"]
    assert went and went[0].after <= alarms[0].data["onset"]
    assert len(told.attempts) >= 2 and told.first[1] == went[0].after + 1
    # The setting was changed after the checkpoint was loaded, and read back.
    betas = {a: [e.data["measured"]["training.beta"][0] for e in events if e.kind == "reading" and e.attempt == a]
             for a in (0, 1)}  # fmt: skip
    assert set(betas[0]) == {0.001} and min(betas[1]) > 0.001
    assert any(event.data.get("resolved") is not None for event in events if event.kind == "alarm")
    judged = [event for event in events if event.data.get("note") == "outcome"]
    assert judged and judged[0].data["action"] == went[0].id
    again = replay(RunDirectory(run.directory), Config.standard())
    assert again.difference is None


def test_in_advise_mode_nothing_is_changed_until_somebody_approves_and_it_can_be_undone(story: Any) -> None:
    run = story("advise", steps=200)
    asked: list[str] = []

    from transformers import TrainerCallback

    class Operator(TrainerCallback):  # type: ignore[misc]
        """A person at another terminal: approves the first proposal about beta, and takes it back ten steps later."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
            store = RunDirectory(run.directory)
            found = {action.id: action for action in actions(read_events(run.directory / "events"))}
            for action in found.values():
                if action.knob == "beta" and action.state == "proposed" and not asked:
                    asked.append(action.id)
                    write_request(
                        store, request_for(action, "approve", "operator", expires_step=10_000), read_token(store)
                    )
                if action.id in asked and action.state == "applied" and len(asked) == 1:
                    asked.append("undo")
                    write_request(
                        store, request_for(action, "undo", "operator", expires_step=10_000), read_token(store)
                    )
            control.should_training_stop = len(asked) == 2 and run.trainer.beta == 0.001
            return control

    run.trainer.add_callback(Operator())
    run.trainer.train()
    run.verdict(120.0)
    states = [action.state for action in actions(read_events(run.directory / "events")) if action.id == asked[0]]
    assert states == ["proposed", "applied", "reverted"]
    assert run.trainer.beta == 0.001
    listed = subprocess.run(
        [sys.executable, "-m", "tiltmeter", "approve", str(run.directory), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert any(row["id"] == asked[0] and row["state"] == "reverted" for row in json.loads(listed.stdout))
