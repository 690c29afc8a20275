"""Credit for steps: TRL's own without it, tokens credited by hand with it, and a process reward model by a recipe."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")

import torch
import trl

from tiltmeter.adapters.trl.rollouts import _row_advantages
from tiltmeter.errors import AttachError
from tiltmeter_workbench import rewards
from tiltmeter_workbench.train.methods import step_trainers
from tiltmeter_workbench.train.methods.step_trainers import splitter_of, step_credit, step_of_tokens
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe

Make = Callable[..., Any]
THIRDS = 5  # characters of a step


def cut(text: str) -> list[str]:
    return [text[at : at + THIRDS] for at in range(0, len(text), THIRDS)]


def scorer(prompts: Any, steps: list[list[str]], **_: Any) -> list[list[float]]:
    return [[float(len(set(step))) for step in row] for row in steps]


def reward() -> Any:
    return rewards.process(scorer, split=cut, outcome="mean")


@pytest.fixture
def make(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """`make("GRPO", weight)`: our trainer, built as `make_trainer` builds TRL's; no weight at all is TRL's."""

    def built(kind: str, weight: float | None = None, pays: Any = None, **changes: Any) -> Any:
        changes = {"max_steps": 2, "rewards": [reward() if pays is None else pays], **changes}
        if weight is None:
            return make_trainer(kind, **changes)
        ours = functools.partial(getattr(step_trainers, f"Step{kind}Trainer"), step_weight=weight)
        with monkeypatch.context() as patch:
            patch.setattr(trl, f"{kind}Trainer", ours)
            return make_trainer(kind, **changes)

    return built


def weights_after(trainer: Any) -> list[Any]:
    trainer.train()
    return [value.clone() for value in trainer.model.parameters()]


@pytest.mark.parametrize("kind", ["GRPO", "RLOO"])
def test_no_weight_is_plain_trl_bit_for_bit_and_any_other_is_not(make: Make, kind: str) -> None:
    plain, none, whole = (weights_after(make(kind, weight)) for weight in (None, 0.0, 1.0))
    assert all(torch.equal(one, other) for one, other in zip(plain, none, strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(plain, whole, strict=True))


def test_every_token_has_the_credit_of_its_step_and_of_those_behind_it(make: Make) -> None:
    trainer = make("GRPO", 1.0)
    output = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    table, mask = output["advantages"], output["completion_mask"]
    assert table.shape == mask.shape and bool((table[mask == 0] == 0).all())
    texts = [trainer._text_of(row[keep.bool()]) for row, keep in zip(output["completion_ids"], mask, strict=True)]
    scores = scorer(None, [cut(text) or [text] for text in texts])
    for start in range(0, len(texts), 4):
        pool = np.array([value for row in scores[start : start + 4] for value in row])
        for row in range(start, start + 4):
            own = (np.array(scores[row]) - pool.mean()) / (pool.std(ddof=1) + 1e-4)
            assert float(table[row, 0]) == pytest.approx(own.sum(), abs=1e-4)
            last = int(mask[row].sum()) - 1
            begins = len(trainer._text_of(output["completion_ids"][row][:last]))  # a token is of the step it begins in
            step = min(begins // THIRDS, len(own) - 1)
            assert float(table[row, last]) == pytest.approx(own[step:].sum(), abs=1e-4)


def test_rloo_adds_the_steps_gradient_to_that_of_answers(make: Make) -> None:
    """With all of the weight on steps the loss's gradient is that of the sum of credit times log-probability."""
    trainer = make("RLOO", 1.0, beta=0.0)
    output = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
    model = trainer.model.train()
    trainer._compute_loss(model, output).backward()
    ours = [value.grad.clone() for value in model.parameters()]
    model.zero_grad()
    ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
    mask = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
    keep = output["completion_ids"].size(1)
    logps = trl.RLOOTrainer._get_per_token_logps_and_entropies(trainer, model, ids, mask, keep)[0]
    (-(logps * output["step_credit"]).sum(1).mean()).backward()
    assert all(torch.allclose(one, value.grad, atol=1e-6) for one, value in zip(ours, model.parameters(), strict=True))
    assert any(float(one.abs().max()) > 0 for one in ours)


def test_a_group_without_spread_and_an_answer_without_scores_have_no_credit() -> None:
    assert step_credit([[1.0, 1.0], [1.0]], 2) == [[], []]
    assert step_credit([[], [1.0, 0.0], [0.5], [0.5]], 2, leave_one_out=True) == [[], [], [0.0], [0.0]]


def test_tokens_between_steps_belong_to_the_later_one_and_steps_that_repeat_are_kept_apart() -> None:
    text = "ab. ab. c"
    steps = step_of_tokens(list(map(ord, text)), rewards_sentences, lambda ids: "".join(map(chr, ids)))
    assert steps.tolist() == [0, 0, 0, 1, 1, 1, 1, 2, 2]


def rewards_sentences(text: str) -> list[str]:
    return text.split(" ")


def test_a_reward_without_steps_and_a_weight_that_is_no_share_are_refused(make: Make) -> None:
    def plain(completions: list[str], **_: Any) -> list[float]:
        return [1.0] * len(completions)

    with pytest.raises(AttachError, match="one reward function that scores steps"):
        make("GRPO", 0.5, pays=plain)
    with pytest.raises(AttachError, match="from 0"):
        make("GRPO", 1.5)
    with pytest.raises(AttachError, match="num_iterations=1"):
        make("RLOO", 1.0, num_iterations=2)
    assert splitter_of(rewards.combine({"steps": reward(), "plain": plain})) is cut


def test_a_watched_run_records_the_mean_of_an_answers_tokens() -> None:
    mask, table = torch.tensor([[1, 1, 0], [1, 0, 0]]), torch.tensor([[1.0, 3.0, 9.0], [5.0, 9.0, 9.0]])
    assert _row_advantages({"advantages": table, "completion_mask": mask}).tolist() == [2.0, 5.0]
    rloo = {"advantages": torch.tensor([1.0, 0.0]), "step_credit": table, "completion_mask": mask}
    assert _row_advantages(rloo).tolist() == [3.0, 5.0]
    assert _row_advantages({"advantages": torch.tensor([1.0, 0.0])}).tolist() == [1.0, 0.0]


ROW = {"prompt": "what is 1 plus 2", "completions": ["the answer is 3", "what what what"], "labels": [True, False]}


def test_a_process_reward_model_is_trained_by_a_recipe_and_scores_steps(recipe: Any, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "learning_rate": 5e-3}
    settings |= {"per_device_train_batch_size": 8, "max_steps": 30, "save_strategy": "no"}
    stage = {"method": "process_reward", "data": "steps.jsonl", "eval": "steps.jsonl", "trl": settings}
    path = recipe(stage)
    other = {**ROW, "prompt": "what is 2 plus 2", "completions": ["what what what", "the answer is 3"]}
    rows = [ROW, {**other, "labels": [False, True]}] * 8
    (path.parent / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (done,) = run_recipe(read_recipe(path), lambda *_: None)
    output = done.result.trained
    assert output.facts["eval"] == {"right_steps": 1.0, "wrong_steps": 1.0} and output.facts["steps"] == 30
    judge = rewards.process(rewards.step_model(output.folders[0]), outcome="min")
    low, high = judge(prompts=[ROW["prompt"]] * 2, completions=["the answer is 3\nwhat what what", "the answer is 3"])
    assert low is not None and high is not None and low < 0.5 < high
    assert judge.rule.first_bad_step() == [1, None]
    (path.parent / "steps.jsonl").write_text(json.dumps({**ROW, "labels": [True]}) + "\n")
    with pytest.raises(AttachError, match="row 1: 2 steps and 1 labels"):
        run_recipe(read_recipe(path), lambda *_: None)
