"""Gradient projection under TRL: rows to keep stay likely, and what it cannot do is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train.checks import check_recipe
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe
from workbench_tests.train.conftest import PAIRS, TRL, Write

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
pytestmark = pytest.mark.usefixtures("their_warnings")

KEPT = [{"prompt": row["prompt"], "completion": row["chosen"]} for row in PAIRS]


def loss_on(folder: Path, rows: list[dict[str, str]]) -> float:
    """Nats for each token of what is to be kept."""
    from tiltmeter_workbench.common.local_model import LocalModel

    model = LocalModel(folder)
    tokens = [model.tokenizer(row["completion"], add_special_tokens=False)["input_ids"] for row in rows]
    scores = model.log_likelihoods([row["prompt"] for row in rows], tokens)
    return -sum(float(one.sum()) for one in scores) / sum(len(one) for one in tokens)


def test_what_training_would_forget_is_kept(recipe: Write, tmp_path: Path) -> None:
    """Both stages learn another answer to the same questions; one of them has the first answer to keep."""
    settings = {**TRL, "max_steps": 24, "learning_rate": 2e-3}
    shared = {"method": "sft", "data": "other.jsonl", "trl": settings, "watch": False}
    first = {"method": "sft", "name": "first", "data": "answers.jsonl", "trl": settings, "watch": False}
    path = recipe(
        first, {"name": "plain", "model": "@first", **shared},
        {"name": "projected", "model": "@first", "replay": "answers.jsonl", **shared},
    )  # fmt: skip
    other = [{"prompt": row["prompt"], "completion": " because what"} for row in PAIRS]
    (path.parent / "other.jsonl").write_text("".join(json.dumps(row) + "\n" for row in other))
    results = {one.result.name: one.result for one in run_recipe(read_recipe(path), lambda *_: None)}
    before, plain, projected = (
        loss_on(results[name].trained.folders[0], KEPT) for name in ("first", "plain", "projected")
    )
    assert plain > before + 0.3  # it was forgotten
    assert projected < before + 0.5 * (plain - before)
    learnt = {name: loss_on(results[name].trained.folders[0], other) for name in ("first", "projected")}
    assert learnt["projected"] < learnt["first"]  # and something was learnt all the same
    times, steps = map(int, str(results["projected"].trained.facts["projected_steps"]).split(" of "))
    assert steps == 24 and times > 12
    assert "projected_steps" not in results["plain"].trained.facts


def test_a_step_that_is_projected_no_longer_raises_the_loss_to_first_order(tiny_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from tiltmeter_workbench.train.replay import GradientProjection

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    trainer: Any = SimpleNamespace(
        model=model, processing_class=AutoTokenizer.from_pretrained(tiny_model), is_deepspeed_enabled=False,
        is_fsdp_enabled=False, args=SimpleNamespace(fp16=False),
        accelerator=SimpleNamespace(unwrap_model=lambda one: one),
    )  # fmt: skip
    projection = GradientProjection(trainer, KEPT, 0)
    encoded = projection._encode(KEPT, model.device, torch)
    weights = list(model.parameters())
    kept = torch.autograd.grad(model(**encoded).loss, weights)
    size = sum(float((other * other).sum()) for other in kept)
    torch.manual_seed(1)
    for sign in (1.0, -1.0):  # of a step that raises the loss on what is kept, and of one that lowers it
        before = [weight.detach().clone() for weight in weights]
        state = torch.random.get_rng_state()
        projection.on_pre_optimizer_step(None, SimpleNamespace(global_step=0), None)
        assert torch.equal(state, torch.random.get_rng_state())
        with torch.no_grad():
            moved = [1e-3 * torch.randn_like(one) + sign * 0.1 * one for one in kept]
            for weight, step in zip(weights, moved, strict=True):
                weight += step
            projection.on_optimizer_step(None, None, None)
            steps = [weight - old for weight, old in zip(weights, before, strict=True)]
            along = sum(float((own * other).sum()) for own, other in zip(steps, kept, strict=True)) / size
            assert along == pytest.approx(0.0 if sign > 0 else -0.1, abs=0.02)
            for weight, old in zip(weights, before, strict=True):
                weight.copy_(old)
    assert (projection.steps, projection.projected) == (2, 1)


def test_what_it_cannot_do_is_refused_before_training(recipe: Write) -> None:
    with pytest.raises(AttachError, match="there is no"):
        check_recipe(read_recipe(recipe({"method": "sft", "data": "answers.jsonl", "replay": "nothing.jsonl"})))
    with pytest.raises(AttachError, match=r"prompts\.jsonl"):
        check_recipe(read_recipe(recipe({"method": "sft", "data": "answers.jsonl", "replay": "prompts.jsonl"})))
    with pytest.raises(AttachError, match="replay"):
        check_recipe(read_recipe(recipe({"method": "reward", "data": "pairs.jsonl", "replay": "answers.jsonl"})))
    with pytest.raises(AttachError, match="fp16"):
        stage = {"method": "sft", "data": "answers.jsonl", "replay": "answers.jsonl", "trl": {**TRL, "fp16": True}}
        list(run_recipe(read_recipe(recipe({**stage, "watch": False})), lambda *_: None))
