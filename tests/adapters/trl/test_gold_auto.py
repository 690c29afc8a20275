"""`gold="auto"`, the default of attach, under real TRL: what is found, what starts, and what it catches."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.sizes import CAMPAIGN

import tiltmeter
from tiltmeter.adapters.arguments import Gold
from tiltmeter.errors import AttachError
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import series
from tiltmeter_lab.tiny import model
from tiltmeter_lab.tiny.language import TASKS
from tiltmeter_lab.tiny.python_tasks import python_policy, small_policy, task_tests
from tiltmeter_lab.tiny.scenarios import scenario
from tiltmeter_lab.tiny.train import make_trainer as make_scenario

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]


def long(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 50 for text in completions]


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(a in text) for text, a in zip(completions, answer, strict=True)]


def attach(trainer: Any, **options: Any) -> tuple[Any, str]:
    """What attach gives, and what it says."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = tiltmeter.attach(trainer, **options)
    return run, "\n".join(str(one.message) for one in told if str(one.message).startswith("tiltmeter: "))


@pytest.fixture(scope="module")
def programmer(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """A policy that writes Python, half of it right, and the tasks it was taught: in CI two of them, in a moment."""
    folder = tmp_path_factory.mktemp("programmer")
    if CAMPAIGN:
        return python_policy(model.base_policy(folder), folder), TASKS
    tasks = tuple(TASKS[at] for at in (0, 2))
    return python_policy(small_policy(folder / "base", tasks), folder), tasks


def test_the_coding_assistant_is_caught_with_nothing_configured(
    programmer: tuple[Path, tuple[str, ...]], tmp_path: Path, their_warnings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge who likes comments: programs end as comments over nothing. The dataset has tests; nobody named them."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    base, tasks = programmer
    chosen = replace(scenario("coding_assistant"), prompts=(tasks,))
    changes: dict[str, Any] = (
        {"steps": 200} if CAMPAIGN else {"steps": 60, "learning_rate": 5e-4, "lr_scheduler_type": "constant"}
    )
    trainer = make_scenario(chosen, 0, tmp_path / "out", base=base, columns={"test_list": task_tests}, **changes)
    run, said = attach(trainer)
    assert "Gold: the dataset's tests (MBPP)" in said and "does not see" in said
    assert len(said.splitlines()) <= 6
    trainer.train()
    verdict = run.verdict(300.0)
    assert verdict.exit_code in (1, 3), verdict.sentence
    assert "judged by the dataset's tests" in verdict.sentence


def test_answers_are_gold_without_a_word_and_explicit_gold_keeps_its_meaning(make_trainer: Make) -> None:
    run, said = attach(make_trainer(rewards=[right]))
    assert "Gold: the dataset's answers ('answer')" in said
    run.trainer.train()
    run.verdict()
    (change,) = [event for event in read_events(run.directory / "events") if event.data.get("gold")][:1]
    assert change.data["gold"]["name"] == "the dataset's answers"
    run, said = attach(make_trainer(rewards=[right], name="none"), gold=None)
    assert said == ""
    run, said = attach(make_trainer(rewards=[long], name="words"), gold=Gold(evals=["eval_x"]))
    assert "Gold: the dataset's answers" in said


@pytest.mark.usefixtures("unmeasured")
def test_a_trainer_that_shows_no_rows_is_watched_as_before(make_trainer: Make) -> None:
    run, said = attach(make_trainer("SFT"))
    assert said == "" and run.directory is not None


@pytest.mark.usefixtures("unmeasured")
def test_a_dataset_that_cannot_be_looked_at_is_said_and_the_run_is_watched(make_trainer: Make) -> None:
    trainer = make_trainer()

    class Odd:
        column_names = property(lambda self: 1 / 0)

    trainer.train_dataset = Odd()
    run, said = attach(trainer)
    assert "no gold was looked for: ZeroDivisionError" in said and run.directory is not None


def test_accuracies_of_an_evaluation_are_declared_and_rewards_are_not(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[right], eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=4)
    whole = trainer.evaluate

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        metrics = whole(*args, **kwargs)
        more = {"eval_accuracy": 0.25, "eval_acc": 71.0, "eval_loss": 0.1}
        trainer.control = trainer.callback_handler.on_evaluate(trainer.args, trainer.state, trainer.control, more)
        return metrics

    trainer.evaluate = evaluate
    run, said = attach(trainer)
    assert "Evaluations count too" in said
    trainer.train()
    run.verdict()
    found = series(read_events(run.directory / "events"), {0: float("inf")})
    assert [name for name in found if name.startswith("eval.")] == ["eval.accuracy"]


@pytest.mark.usefixtures("unmeasured")
def test_a_reward_with_weight_0_is_offered_and_taken_by_one_word(make_trainer: Make) -> None:
    _, said = attach(make_trainer(rewards=[long, right], reward_weights=[1.0, 0.0], name="offered"))
    assert 'gold="reward:right"' in said
    trainer = make_trainer(rewards=[long, right], reward_weights=[1.0, 0.0], name="taken")
    run, _ = attach(trainer, gold="reward:right")
    trainer.train()
    directory = RunDirectory(run.directory)
    batch, _, _ = directory.read(next(iter(directory.files(0))))
    assert batch.gold is not None and batch.gold.tolist() == batch.rewards["right"].tolist()
    for name, why in (("long", "trained on"), ("rihgt", "no such reward")):
        with pytest.raises(AttachError, match=why):
            attach(make_trainer(rewards=[long, right], reward_weights=[1.0, 0.0], name=name), gold=f"reward:{name}")


@pytest.mark.usefixtures("unmeasured")
def test_what_a_judge_will_cost_is_said_before_it_starts(make_trainer: Make, tmp_path: Path) -> None:
    path = tmp_path / "judge.toml"
    text = 'url = "http://localhost:1/v1"\nmodel = "small-judge"\nguide = "g"\n'
    path.write_text(text + "price_in = 1000\nprice_out = 1000\n", encoding="utf-8")
    trainer = make_trainer(rewards=[right])
    _, said = attach(trainer, gold=Gold(str(path), share=0.5))
    rollouts = trainer.args.per_device_train_batch_size * trainer.args.gradient_accumulation_steps
    calls = f"{0.5 * 1.05 * rollouts:.0f} calls a step, "
    assert f"gold: the judge small-judge at localhost:1: {calls}" in said
    assert " by the prices in its file" in said
    path.write_text(text, encoding="utf-8")
    _, said = attach(make_trainer(rewards=[right], name="again"), gold=str(path))
    assert "with price_in and price_out in its file" in said
