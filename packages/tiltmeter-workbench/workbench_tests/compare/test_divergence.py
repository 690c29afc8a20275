"""KL from base: against an exact sum over the vocabulary, against torch, and exactly 0 for the same model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.measures import divergence
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts

PROMPTS = Prompts("prompts", ["what is 1 plus 2", "the answer", "one and two", "because"], [{}] * 4)


@pytest.fixture(scope="module")
def moved(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with noise on its weights."""
    import torch

    folder = tmp_path_factory.mktemp("moved") / "checkpoint"
    held = LocalModel(tiny_model)
    model = held.model
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    model.save_pretrained(folder)
    held.tokenizer.save_pretrained(folder)
    return folder


def material(base: Path, checkpoint: Path, work: Path, **settings: Any) -> AnswerSampler:
    return AnswerSampler(LocalModel(base), LocalModel(checkpoint), work, **settings)


def test_one_token_answers_have_the_kl_of_the_sum_over_the_vocabulary(
    tiny_model: Path, moved: Path, tmp_path: Path
) -> None:
    import torch

    held = material(tiny_model, moved, tmp_path, limit=1, samples=400)
    exact = []
    for turns in PROMPTS.turns:
        ids = torch.tensor([held.base.prompt_tokens(turns)])
        with torch.no_grad():
            ours, theirs = (
                model.model(input_ids=ids).logits[0, -1].double().log_softmax(-1)
                for model in (held.checkpoint, held.base)
            )
        exact.append(float((ours.exp() * (ours - theirs)).sum()))
    (found,) = divergence.measure(held, PROMPTS, alpha=0.05)
    assert found.state == "shown"
    assert min(exact) > 0.01
    # 1,600 draws of a difference of logarithms with a spread of about sqrt(2 KL) each.
    spread = math.sqrt(2.0 * float(np.mean(exact)) / 1600.0)
    assert found.checkpoint == pytest.approx(float(np.mean(exact)), abs=4.0 * spread)
    assert found.low < found.checkpoint < found.high


def test_longer_answers_sum_what_torch_says_of_each_token(tiny_model: Path, moved: Path, tmp_path: Path) -> None:
    import torch

    held = material(tiny_model, moved, tmp_path, limit=6, samples=2)
    (found,) = divergence.measure(held, PROMPTS, alpha=0.05)
    by_prompt, total, count = [], 0.0, 0
    for turns, answers in zip(PROMPTS.turns, held.answers("checkpoint", "prompts", PROMPTS.turns, 2), strict=True):
        sums = []
        for answer in answers:
            prompt = held.base.prompt_tokens(turns)
            ids = torch.tensor([prompt + list(answer.tokens)])
            with torch.no_grad():
                ours, theirs = (
                    model.model(input_ids=ids).logits[0].double().log_softmax(-1)
                    for model in (held.checkpoint, held.base)
                )
            places = [(len(prompt) + at - 1, token) for at, token in enumerate(answer.tokens)]
            sums.append(sum(float(ours[at, token] - theirs[at, token]) for at, token in places))
            count += len(places)
        total += sum(sums)
        by_prompt.append(sum(sums) / 2)
    assert found.checkpoint == pytest.approx(float(np.mean(by_prompt)), abs=1e-3)
    assert found.rows[0]["per token"] == pytest.approx(total / count, abs=1e-3)


def test_a_model_is_at_no_distance_from_itself(tiny_model: Path, tmp_path: Path) -> None:
    (found,) = divergence.measure(material(tiny_model, tiny_model, tmp_path, limit=8), PROMPTS, alpha=0.05)
    assert (found.checkpoint, found.low, found.high) == (0.0, 0.0, 0.0)


def test_models_with_other_tokens_have_no_distance(tiny_model: Path, tmp_path: Path) -> None:
    held = material(tiny_model, tiny_model, tmp_path, limit=2)
    held.base.tokenizer.add_tokens(["another"])
    (found,) = divergence.measure(held, PROMPTS, alpha=0.05)
    assert found.state == "cannot tell"
    assert math.isnan(found.checkpoint)


def test_the_interval_is_over_prompts_and_keeps_its_promise() -> None:
    rng = np.random.default_rng(4)
    missed = 0
    for _ in range(300):
        means = rng.normal(2.0, 1.0, 30)  # prompts differ, and answers to one prompt hardly do
        found = divergence.distance([[np.array([mean]), np.array([mean])] for mean in means], 0.05)
        missed += not found.low <= 2.0 <= found.high
    assert missed <= 15 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_one_prompt_has_no_interval_and_none_has_no_distance() -> None:
    assert math.isnan(divergence.distance([[np.array([1.0])]], 0.05).low)
    assert math.isnan(divergence.distance([], 0.05).mean)
