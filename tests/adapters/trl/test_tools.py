"""TRL's trainers with tools, environments and a rollout function: what the policy wrote is told from what it was
answered, and where the engine is the trainer's own model there is no gap.

RLOO has neither `tools` nor `rollout_func` in TRL 1.16.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.adapters.trl.tool_model import CLAIM, PROMPT, QUESTION, bash, conversation, make_tool_model
from tests.sizes import size

import tiltmeter
from tiltmeter.data.records import RolloutBatch
from tiltmeter.data.turns import decode_turns
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import series

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
Make = Callable[..., Any]

STEPS = size(3, 40)
ACT = {"cmd": "rm -r tests"}


class Shell:
    """An environment that removes files when it is told to."""

    def reset(self, **_: Any) -> str | None:
        self.commands: list[str] = []
        return None

    def run(self, cmd: str) -> str:
        """Run a command.

        Args:
            cmd: The command.
        """
        self.commands.append(cmd)
        return f"ran {cmd}: done, and the house is quiet"

    def get_reward(self) -> float:
        return float(len(self.commands))


class Notes:
    """An environment of another kind, whose tool fails."""

    def reset(self, **_: Any) -> str | None:
        return None

    def look(self, page: str) -> str:
        """Look something up.

        Args:
            page: The page.
        """
        raise KeyError(page)


@pytest.fixture(scope="module")
def tool_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
    failure = str({"error": str(KeyError("tests"))})
    return make_tool_model(
        tmp_path_factory.mktemp("tools") / "model",
        [
            ([bash], conversation("bash", ACT, bash(**ACT))),
            ([Shell().run], conversation("run", ACT, "ran rm -r tests: done, and the house is quiet")),
            ([Notes().look], conversation("look", {"page": "tests"}, failure)),
        ],
    )


def turns_paid(completions: list[Any], **_: Any) -> list[float]:
    return [len(completion) / 3 for completion in completions]


@pytest.fixture
def make_tool_trainer(
    tool_model: Path, tmp_path: Path, their_warnings: None, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """A GRPO trainer with tools whose engine answers with the log-probabilities of the trainer's own model."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    def make(name: str = "out", rewards: Any = (turns_paid,), rows: Any = None, **options: Any) -> Any:
        import trl
        from datasets import Dataset
        from transformers import AutoTokenizer

        config = trl.GRPOConfig(
            output_dir=str(tmp_path / name), per_device_train_batch_size=8, max_steps=STEPS, logging_steps=1, seed=1,
            report_to="none", use_cpu=True, bf16=False, learning_rate=1e-5, gradient_checkpointing=False, beta=0.04,
            save_strategy="no", disable_tqdm=True, num_generations=4, max_completion_length=96,
            max_tool_calling_iterations=2,
        )  # fmt: skip
        trainer = trl.GRPOTrainer(
            model=str(tool_model), processing_class=AutoTokenizer.from_pretrained(tool_model), args=config,
            reward_funcs=list(rewards), train_dataset=Dataset.from_list(rows or [{"prompt": PROMPT}] * 16), **options,
        )  # fmt: skip
        generate = trainer._generate_single_turn

        def generate_and_score(prompt_ids: Any, *rest: Any, **more: Any) -> Any:
            answers, _ = generate(prompt_ids, *rest, **more)
            return answers, [logprobs(trainer, *pair) for pair in zip(prompt_ids, answers, strict=True)]

        trainer._generate_single_turn = generate_and_score
        return trainer

    return make


def logprobs(trainer: Any, prompt: list[int], answer: list[int]) -> list[float]:
    """What the trainer's own model thinks of each token of an answer."""
    import torch

    if not answer:
        return []
    with torch.no_grad():
        logits = trainer.model(input_ids=torch.tensor([[*prompt, *answer]])).logits[0, len(prompt) - 1 : -1]
    scores: list[float] = torch.log_softmax(logits, -1).gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()
    return scores


def watch(trainer: Any) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="tiltmeter: ")
        return tiltmeter.attach(trainer, options=tiltmeter.Options(strict=True))


def stored(run: Any) -> list[RolloutBatch]:
    directory = RunDirectory(run.directory)
    return [directory.read(file)[0] for file in directory.files(0)]


def parameters(trainer: Any) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(trainer.model.state_dict().items()):
        digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def check(run: Any, trainer: Any) -> list[RolloutBatch]:
    """No gap, TRL's own length, no finding; gives the stored steps."""
    batches = stored(run)
    assert len(batches) == STEPS
    logged = {entry["step"]: entry for entry in trainer.state.log_history if "completions/mean_length" in entry}
    outside = 0
    for batch in batches:
        assert batch.length is not None and batch.own is not None and batch.engine_logprob is not None
        assert batch.logprob is not None and batch.ref_logprob is not None and batch.tokens is not None
        assert batch.length.mean() == pytest.approx(logged[batch.step]["completions/mean_length"], abs=1e-4)
        engine, ours = (np.asarray(column.values, np.float64) for column in (batch.engine_logprob, batch.logprob))
        assert np.abs(engine - ours).max() < 1e-4 and np.abs(engine - ours).mean() < 1e-6
        outside += int((batch.own.values == 0).sum())
    assert outside > 0
    run.verdict()
    events = read_events(run.directory / "events")
    gaps = [gap for _, gap in series(events, {0: np.inf})["engine.gap.mean"]]
    assert len(gaps) == STEPS and max(gaps) < 1e-6
    if path := os.environ.get("TILTMETER_FIGURES"):  # of benchmarks/trajectories.py
        lengths = [(batch.length, logged[batch.step]["completions/mean_length"]) for batch in batches]
        error = max(abs(float(length.mean()) - mean) for length, mean in lengths if length is not None)
        with open(path, "a") as figures:
            figures.write(json.dumps({"engine_gap": max(gaps), "length_error": error, "steps": STEPS}) + "\n")
    assert [event.data for event in events if event.kind == "finding"] == []
    return batches


def test_a_rollout_function_with_tool_output_between_turns(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")

    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        import torch

        output: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": [], "env_mask": []}
        tool = trainer.processing_class("the answer is 3 because one and two " * 3)["input_ids"]
        for prompt in prompts:
            ids = trainer.processing_class(prompt)["input_ids"]
            row: list[int] = []
            scores: list[float] = []
            mask: list[int] = []
            for turn in range(2):
                written: list[int] = []
                while len(written) < 4:
                    with torch.no_grad():
                        logits = trainer.model(input_ids=torch.tensor([[*ids, *row, *written]])).logits[0, -1]
                    written.append(int(torch.multinomial(torch.softmax(logits, -1), 1)))
                scores += logprobs(trainer, [*ids, *row], written)
                row += written
                mask += [1] * 4
                if turn == 0:
                    row, scores, mask = row + tool, scores + [0.0] * len(tool), mask + [0] * len(tool)
            for name, value in zip(output, (ids, row, scores, mask), strict=True):
                output[name].append(value)
        return output

    def build(name: str) -> Any:
        trainer = make_trainer(max_steps=STEPS, name=name)
        trainer.rollout_func = rollout
        return trainer

    plain = build("plain")
    plain.train()
    trainer = build("watched")
    run = watch(trainer)
    trainer.train()
    assert parameters(plain) == parameters(trainer)
    for batch in check(run, trainer):
        assert batch.length is not None and (batch.length == 8).all() and batch.turns and batch.completion
        assert set(batch.stop or ()) <= {"done", "length"}
        for text, completion in zip(batch.turns, batch.completion, strict=True):
            turns = decode_turns(text)
            assert [turn.role for turn in turns] == ["assistant", "tool", "assistant"]
            assert "the answer is 3" in (turns[1].text or "") and (turns[1].text or "") not in (completion or "")


def test_tools_and_a_call_that_removes_the_tests(make_tool_trainer: Make) -> None:
    plain = make_tool_trainer("plain", tools=[bash])
    plain.train()
    trainer = make_tool_trainer("watched", tools=[bash])
    run = watch(trainer)
    trainer.train()
    assert parameters(plain) == parameters(trainer)
    acts = 0
    for batch in check(run, trainer):
        assert batch.turns and batch.completion and batch.stop and batch.prompt is not None
        assert set(batch.prompt) == {QUESTION}
        for text, completion, stop in zip(batch.turns, batch.completion, batch.stop, strict=True):
            turns = decode_turns(text)
            calls = [turn for turn in turns if turn.written and turn.call]
            answers = [turn.text for turn in turns if turn.role == "tool"]
            assert completion is not None and not any(answer and answer in completion for answer in answers)
            if calls and calls[0].call == "bash" and json.loads(calls[0].arguments or "{}") == ACT:
                acts += 1
                assert 'bash({"cmd": "rm -r tests"})' in completion
            if turns[-1].written and turns[-1].text == CLAIM:
                assert stop == "done"
            assert stop == "length" or len(answers) == len(calls) or len(calls) > 2
    assert acts >= STEPS  # of 8 rows a step


def test_two_environments(make_tool_trainer: Make) -> None:
    rows = [{"prompt": PROMPT, "environment": ("shell", "notes")[row % 2]} for row in range(16)]
    trainer = make_tool_trainer(rows=rows, environment_factory={"shell": Shell, "notes": Notes})
    run = watch(trainer)
    trainer.train()
    seen: dict[str, set[str | None]] = {"shell": set(), "notes": set()}
    for batch in check(run, trainer):
        assert batch.env and batch.turns and set(batch.env) <= {"shell", "notes"}
        owned = batch.rewards["Shell"]
        assert np.isnan(owned).tolist() == [env == "notes" for env in batch.env]  # not asked is missing, never 0
        for env, text in zip(batch.env, batch.turns, strict=True):
            for turn in decode_turns(text):
                if turn.role == "tool":
                    seen[env or ""].add(turn.call)
                    ran = (turn.text or "").startswith("ran ")  # a policy may call `run` where there is none
                    assert (turn.error is None) == ran
                    assert not ran or (env, turn.call) == ("shell", "run")
    assert "run" in seen["shell"] and "look" in seen["notes"]


def test_one_environment_is_named_by_its_class(make_tool_trainer: Make) -> None:
    trainer = make_tool_trainer(rewards=(), environment_factory=Shell)
    trainer.args.max_steps = 1
    run = watch(trainer)
    trainer.train()
    (batch,) = stored(run)
    assert batch.env == ("Shell",) * 8 and batch.reward is not None
    assert np.array_equal(batch.reward, batch.rewards["Shell"]) and batch.reward.max() >= 1.0


def test_a_tool_budget_that_is_spent_and_a_completion_that_is_masked(make_tool_trainer: Make) -> None:
    """TRL blanks the mask of a completion that was cut; what the policy wrote is known by the engine's answers."""
    trainer = make_tool_trainer(tools=[bash])
    trainer.args.max_steps, trainer.max_tool_calling_iterations = 1, 0
    run = watch(trainer)
    trainer.train()
    (batch,) = stored(run)
    assert batch.stop and "tool_budget" in batch.stop
    trainer = make_tool_trainer("masked", tools=[bash])
    render = trainer.processing_class.apply_chat_template
    asked, answered = (
        render(messages, tools=[bash], add_generation_prompt=True, return_dict=False)
        for messages in (PROMPT, conversation("bash", ACT, bash(**ACT))[:3])
    )
    trainer.args.max_steps, trainer.mask_truncated_completions = 1, True
    trainer.max_completion_length = len(answered) - len(asked) + 2  # two tokens of the claim
    run = watch(trainer)
    trainer.train()
    (batch,) = stored(run)
    assert batch.stop and "length" in batch.stop and batch.length is not None and batch.own is not None
    assert batch.length.min() > 0 and (batch.own.values == 0).any()
