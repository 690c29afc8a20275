"""`tiltmeter.attach` on real TRL trainers: what arrives, that training does not change, and what is said at attach."""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.sizes import size

import tiltmeter
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import AttachError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts, series
from tiltmeter.verdict.verdict import judge_run

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]


def long(completions: list[str], **_: Any) -> list[float]:
    return [len(text) / 50 for text in completions]


def right(completions: list[str], answer: list[str], **_: Any) -> list[float]:
    return [float(a in text) for text, a in zip(completions, answer, strict=True)]


def half_unscored(completions: list[str], **_: Any) -> list[float | None]:
    return [None if row % 2 else 1.0 for row, _ in enumerate(completions)]


def attached(trainer: Any, **options: Any) -> Any:
    """Attach where what is said about missing gold is not the point."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        return tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True), **options)


def stored(run: Any, attempt: int = 0) -> list[RolloutBatch]:
    directory = RunDirectory(run.directory)
    return [directory.read(file)[0] for file in directory.files(attempt)]


def parameters(trainer: Any) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode())
        digest.update(value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_every_column_that_the_trainer_has_arrives(make_trainer: Make, kind: str) -> None:
    trainer = make_trainer(kind, rewards=[long, right], reward_weights=[1.0, 2.0])
    run = attached(trainer)
    trainer.train()
    batches = stored(run)
    assert [batch.step for batch in batches] == [1, 2, 3, 4]
    for batch in batches:
        assert batch.group.tolist() == [0] * 4 + [1] * 4
        assert set(batch.rewards) == {"long", "right"}
        assert batch.reward is not None and batch.advantage is not None and batch.completion is not None
        np.testing.assert_allclose(batch.reward, batch.rewards["long"] + 2 * batch.rewards["right"], rtol=1e-5)
        assert batch.facts is not None and '"answer"' in str(batch.facts[0])
        assert batch.length is not None and batch.truncated is not None and batch.tokens is not None
        assert batch.tokens.lengths.tolist() == batch.length.tolist()
        for column in (batch.logprob, batch.ref_logprob, batch.entropy):
            assert column is not None and column.lengths.tolist() == batch.length.tolist()
            assert np.isfinite(column.sums()).all()
        assert {"loss", "grad_norm", "beta", "learning_rate", "kl_ref", "entropy"} <= set(batch.scalars)
    first = batches[0]
    assert first.logprob is not None and first.ref_logprob is not None
    # The policy is its own reference before the first update.
    np.testing.assert_allclose(first.logprob.sums(), first.ref_logprob.sums(), atol=1e-3)


@pytest.mark.usefixtures("unmeasured")
def test_log_probabilities_stand_beside_their_own_tokens(make_trainer: Make) -> None:
    """TRL shuffles rows before the loss; scored again, each stored row must have the stored values."""
    import torch

    trainer = make_trainer(max_steps=1, learning_rate=0.0, gradient_accumulation_steps=2)
    run = attached(trainer)
    trainer.train()
    (batch,) = stored(run)
    assert batch.tokens is not None and batch.logprob is not None and batch.prompt is not None
    trainer.model.eval()
    for row in range(len(batch)):
        prompt = trainer.processing_class(batch.prompt[row])["input_ids"]
        ids = torch.tensor([prompt + batch.tokens[row].tolist()])
        with torch.no_grad():
            logits = trainer.model(input_ids=ids).logits[0].float()
        told = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1].gather(1, ids[0, len(prompt) :, None])[:, 0]
        np.testing.assert_allclose(np.asarray(batch.logprob[row], np.float64), told.double().numpy(), atol=1e-3)


@pytest.mark.usefixtures("unmeasured")
@pytest.mark.parametrize(
    ("changes", "steps", "rows"),
    [
        ({"gradient_accumulation_steps": 4}, [1, 2], 32),
        ({"gradient_accumulation_steps": 4, "steps_per_generation": 2}, [1, 2], 32),  # two generations a step
        ({"steps_per_generation": 2, "max_steps": 4}, [1, 3], 16),  # two steps a generation
        ({"num_iterations": 2, "max_steps": 4}, [1, 3], 8),  # each rollout used twice, stored once
    ],
)
def test_rollouts_belong_to_the_step_that_first_uses_them(
    make_trainer: Make, changes: dict[str, Any], steps: list[int], rows: int
) -> None:
    trainer = make_trainer(**{"max_steps": 2, **changes})
    run = attached(trainer)
    trainer.train()
    batches = stored(run)
    assert [batch.step for batch in batches] == steps
    for batch in batches:
        assert len(batch) == rows and np.unique(batch.group, return_counts=True)[1].tolist() == [4] * (rows // 4)
        assert batch.logprob is not None
        assert batch.prompt is not None
        for start, end in zip(batch.starts, batch.starts[1:], strict=False):
            assert len(set(batch.prompt[start:end])) == 1


def test_evaluation_rollouts_are_not_training_rollouts_and_its_series_can_be_gold(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[right], eval_strategy="steps", eval_steps=2, per_device_eval_batch_size=4)
    run = attached(trainer, gold=tiltmeter.Gold(evals=["eval_rewards/right/mean"]))
    trainer.train()
    assert [len(batch) for batch in stored(run)] == [8, 8, 8, 8]
    run.verdict()
    assert series(read_events(run.directory / "events"), {0: np.inf})["eval.rewards_right_mean"][0][0] == 2


@pytest.mark.usefixtures("unmeasured")
def test_a_row_nobody_scored_is_missing_and_never_zero(make_trainer: Make) -> None:
    trainer = make_trainer(rewards=[half_unscored], max_steps=1)
    run = attached(trainer)
    trainer.train()
    (batch,) = stored(run)
    assert batch.reward is not None and np.isnan(batch.reward[1::2]).all() and (batch.reward[::2] == 1.0).all()
    assert batch.flags["reward"].tolist() == [0, 1] * 4


@pytest.mark.usefixtures("unmeasured")
def test_the_engines_own_log_probabilities_arrive(make_trainer: Make) -> None:
    """`rollout_func` is the door by which an engine other than the trainer's model answers."""

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        ids = [trainer.processing_class(prompt)["input_ids"] for prompt in prompts]
        answers = [[5 + row % 3, 6, 2] for row, _ in enumerate(prompts)]
        return {"prompt_ids": ids, "completion_ids": answers, "logprobs": [[-0.5] * 3 for _ in prompts]}

    trainer = make_trainer(max_steps=2)
    trainer.rollout_func = rollout
    run = attached(trainer)
    trainer.train()
    batch = stored(run)[0]
    assert batch.engine_logprob is not None and (batch.engine_logprob.values == np.float32(-0.5)).all()


@pytest.mark.parametrize("mode", ["observe", "advise"])
def test_training_does_not_change_by_a_bit(make_trainer: Make, mode: str) -> None:
    steps = size(25, 50)
    plain = make_trainer(max_steps=steps, name="plain", save_strategy="no")
    plain.train()
    watched = make_trainer(max_steps=steps, name="watched", save_strategy="no")
    run = attached(watched, act=mode)
    watched.train()
    assert parameters(plain) == parameters(watched)
    assert len(stored(run)) == steps


@pytest.mark.parametrize(
    ("kind", "readings"),
    [
        ("DPO", {"margin", "accuracy", "chosen_logprob", "rejected_logprob", "loss"}),
        ("KTO", {"margin", "chosen_logprob", "loss"}),
        ("SFT", {"token_accuracy", "entropy", "loss"}),
        ("Reward", {"margin", "accuracy", "loss"}),
    ],
)
@pytest.mark.usefixtures("unmeasured")
def test_trainers_without_rollouts_give_their_own_signals(make_trainer: Make, kind: str, readings: set[str]) -> None:
    trainer = make_trainer(kind)
    directory = RunDirectory(attached(trainer).directory)
    trainer.train()
    loop = MonitorLoop(directory, Config.standard(), strict=True)  # a process of its own costs two seconds
    while loop.poll():
        pass
    loop.close()
    found = series(read_events(directory.path / "events"), {0: np.inf})
    assert {f"training.{name}" for name in readings} <= set(found)
    assert judge_run(directory)[0].state == "BLIND"


def test_a_resumed_run_is_a_new_attempt(make_trainer: Make) -> None:
    first = make_trainer(max_steps=3, save_strategy="steps", save_steps=2)
    attached(first)
    first.train()
    second = make_trainer(max_steps=4, save_strategy="steps", save_steps=2)
    run = attached(second)
    second.train(resume_from_checkpoint=str(Path(second.args.output_dir) / "checkpoint-2"))
    assert run.attempt == 1
    assert [batch.step for batch in stored(run, 0)] == [1, 2, 3]
    assert [batch.step for batch in stored(run, 1)] == [3, 4]
    run.verdict()
    story = RunFacts.from_events(read_events(run.directory / "events"))
    assert story.spans() == {0: 3, 1: np.inf}


def test_another_reward_in_the_middle_of_a_run_opens_a_segment_and_is_named(make_trainer: Make) -> None:
    from transformers import TrainerCallback

    trainer = make_trainer(rewards=[long])

    class Swap(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                trainer.reward_funcs[0] = right
                trainer.reward_func_names[0] = "right"

    trainer.add_callback(Swap())
    run = attached(trainer)
    trainer.train()
    run.verdict()
    notes = [event for event in read_events(run.directory / "events") if event.data.get("note") == "segment"]
    assert [event.step for event in notes] == [3]
    assert notes[0].data["before"].startswith("long ") and notes[0].data["after"].startswith("right ")


@pytest.mark.usefixtures("unmeasured")
def test_what_attach_says(make_trainer: Make) -> None:
    with pytest.warns(UserWarning, match="tiltmeter: ") as told:
        tiltmeter.attach(make_trainer(rewards=[long, long]))
    said = "\n".join(str(one.message) for one in told)
    assert "several reward functions are named long" in said
    assert "counts it as 0" in said
    assert "gold" in said and "gold=" in said
    trainer = make_trainer(name="other")
    attached(trainer)
    with pytest.raises(AttachError, match="watched already"):
        tiltmeter.attach(trainer)
    with pytest.raises(AttachError, match="slices='langauge' is no column of the dataset: it has"):
        attached(make_trainer(name="sliced"), slices="langauge")
    with pytest.raises(AttachError, match="is a function in C"):
        tiltmeter.attach(make_trainer(name="third"), gold=len)
    with pytest.raises(AttachError, match="it saves nothing"):
        tiltmeter.attach(make_trainer("SFT", name="fourth"), gold="checks.py:score")


def test_an_unknown_version_of_trl_is_watched_through_its_reward_functions(
    make_trainer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    import trl

    monkeypatch.setattr(trl, "__version__", "9.9.0")

    async def later(completions: list[str], **_: Any) -> list[float]:
        return [0.5] * len(completions)

    trainer = make_trainer(rewards=[right, later])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True))
    assert sum("TRL 9.9.0 is not one" in str(one.message) for one in told) == 1
    assert trainer.reward_funcs[0].__name__ == "right"
    trainer.train()
    batch = stored(run)[0]
    assert len(stored(run)) == 4 and batch.advantage is None and batch.logprob is None
    assert set(batch.rewards) == {"right", "later"} and batch.length is not None
    assert np.unique(batch.group, return_counts=True)[1].tolist() == [4, 4]


def test_a_bare_callback_sees_what_is_logged(make_trainer: Make) -> None:
    trainer = make_trainer()
    callback = tiltmeter.Callback()
    trainer.add_callback(callback)
    trainer.train()
    assert callback.run is not None
    callback.run.verdict()
    found = series(read_events(Path(trainer.args.output_dir) / "tiltmeter" / "events"), {0: np.inf})
    assert {"training.loss", "training.kl_ref", "training.entropy"} <= set(found)
    assert "reward.mean" not in found


@pytest.mark.usefixtures("unmeasured")
def test_one_failure_of_ours_costs_one_steps_log_probabilities(
    make_trainer: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiltmeter.adapters.trl.rollouts import Rollouts

    calls, whole = [], Rollouts._record_loss

    def once(self: Any, input_ids: Any, output: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("a bad moment")
        whole(self, input_ids, output)

    monkeypatch.setattr(Rollouts, "_record_loss", once)
    trainer = make_trainer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tiltmeter.attach(trainer)
    trainer.train()
    assert [batch.logprob is not None for batch in stored(run)] == [True, False, True, True]
    assert run.counters["dropped"] == 0  # every rollout was kept


@pytest.mark.usefixtures("unmeasured")
def test_a_training_that_is_cut_short_keeps_its_last_step_and_frees_its_directory(make_trainer: Make) -> None:
    def fails(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        if trainer_state.global_step == 2:
            raise RuntimeError("the user's own function")
        return [1.0] * len(completions)

    trainer = make_trainer(rewards=[fails])
    run = attached(trainer)
    with pytest.raises(RuntimeError, match="the user's own"):
        trainer.train()
    assert [batch.step for batch in stored(run)] == [1, 2]
    after = attached(make_trainer())
    assert (after.directory, after.attempt) == (run.directory, 1)


def test_what_was_changed_can_be_changed_back_and_not_beyond_the_limits_of_the_start(make_trainer: Make) -> None:
    from tiltmeter.adapters.trl.knobs import Knobs

    trainer = make_trainer(rewards=[long, right], reward_weights=[3.0, 1.0], beta=0.04)
    knobs = Knobs(trainer, {"beta": (0.01, 0.2)}, gold_share=0.02)
    for name, there, back in (("gold_share", 0.04, 0.02), ("reward_weight.long", 1.5, 3.0), ("beta", 0.1, 0.04)):
        assert knobs.set(name, there) == pytest.approx((back, there))
        assert knobs.set(name, back) == pytest.approx((there, back))
    with pytest.raises(ValueError, match=r"outside \[0.01, 0.2\]"):
        knobs.set("beta", 0.5)
    with pytest.raises(AttachError, match="limits= names"):
        Knobs(trainer, {"temperature": (0.0, 1.0)})


def test_beta_that_started_at_0_is_refused_with_the_reason(make_trainer: Make) -> None:
    from tiltmeter.adapters.trl.knobs import Knobs

    trainer = make_trainer(beta=0.0)
    assert "start with beta=1e-6" in Knobs(trainer).read()["beta"].why
    with pytest.raises(ValueError, match="no reference model"):
        Knobs(trainer).set("beta", 0.1)


@pytest.mark.usefixtures("unmeasured")
def test_a_step_that_was_interrupted_is_made_again_without_its_first_half(make_trainer: Make) -> None:
    stops = [3]

    def interrupted(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        if stops and trainer_state.global_step == stops[0]:
            stops.clear()
            raise KeyboardInterrupt
        return [float(len(text)) for text in completions]

    trainer = make_trainer(rewards=[interrupted], save_strategy="steps", save_steps=1)
    run = attached(trainer)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    trainer.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-2"))
    for attempt in (0, 1):
        assert all(len(batch) == 8 and batch.logprob is not None for batch in stored(run, attempt))
    assert [batch.step for batch in stored(run, 1)] == [3, 4]


@pytest.mark.usefixtures("unmeasured")
def test_gold_is_never_loaded_from_the_script_that_trains(
    make_trainer: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading it again would make a second trainer, which attaches, and so on."""
    script = tmp_path / "train.py"
    script.write_text("raise SystemExit('it was run again')\ndef score(prompt, completion):\n    return 1.0\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(script), raising=False)
    with pytest.raises(AttachError, match="a file of its own"):
        tiltmeter.attach(make_trainer(), gold=f"{script}:score")


def test_disabled_means_untouched(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTMETER_DISABLED", "1")
    trainer = make_trainer(max_steps=1)
    before = dict(vars(trainer))
    run = tiltmeter.attach(trainer)
    assert run.directory is None and vars(trainer) == before
    trainer.train()


def test_what_we_get_wrong_does_not_end_training(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from tiltmeter.adapters.trl.rollouts import Rollouts

    def broken(self: Any, inputs: Any, output: Any) -> None:
        raise KeyError("completion_ids")

    monkeypatch.setattr(Rollouts, "_record_generation", broken)
    trainer = make_trainer()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = tiltmeter.attach(trainer)
    trainer.train()
    assert trainer.state.global_step == 4 and run.counters["dropped"] == 4
    assert run.verdict().state in ("BLIND", "STALE")
