"""Gradient ascent against a differentiable reward model: a few tokens after a wrong answer, exchanged one by one.

A simplification of HotFlip and GCG (arXiv 1712.06751, 2307.15043): the gradient of the score with respect to the tokens
proposes exchanges, a real forward pass on the decoded text decides, and one suffix serves all prompts. Tokens that do
not survive being written and read again are paid nothing by construction, since only text is ever scored.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from tiltmeter_workbench.probe import attack_phrases
from tiltmeter_workbench.probe.attack_effects import Scale
from tiltmeter_workbench.probe.pairs import ProbeItem
from tiltmeter_workbench.probe.reward_target import Target, messages
from tiltmeter_workbench.probe.search import (
    BUDGET,
    PROMPTS,
    Progress,
    SearchResult,
    compare_with_right,
    first_per_prompt,
    search_result,
)

TOKENS = 10  # of the suffix, about
NEAREST = 24  # exchanges proposed for each token
PATIENCE = 5  # gradients in a row that led to nothing
TRIES = 16  # exchanges that are scored before the gradient is taken again


def ascend(
    target: Target,
    items: Sequence[ProbeItem],
    units: Scale,
    *,
    budget: int = BUDGET,
    seed: int = 0,
    progress: Progress | None = None,
) -> SearchResult | None:
    """A suffix that makes wrong answers score more than right ones, found on a few prompts and tried on the others."""
    prompts = first_per_prompt([item for item in items if item.wrong is not None])
    if len(prompts) < PROMPTS + 4 or not units.spread > 0.0:
        return None
    train_items, test_items = prompts[: PROMPTS // 2], prompts[PROMPTS:]
    rng, start = random.Random(f"{seed}/gradient"), target.calls
    tokenizer = target.part.tokenizer
    allowed = _printable(tokenizer)
    suffix = " " + " ".join(rng.choice(attack_phrases.FILLER).split()[:TOKENS])
    paid = _mean_score(target, train_items, suffix)
    before = compare_with_right(target, test_items, [item.wrong or "" for item in test_items], units.spread)[0]
    idle = 0
    while target.calls - start < budget and idle < PATIENCE:
        ids = tokenizer(suffix, add_special_tokens=False)["input_ids"][: 2 * TOKENS]
        proposals = _propose_tokens(target, train_items, suffix, len(ids), allowed)
        better = False
        for _ in range(TRIES):
            at = rng.randrange(len(ids))
            new = list(ids)
            new[at] = int(rng.choice(proposals[at]))
            text = tokenizer.decode(new)
            value = _mean_score(target, train_items, text)
            if progress is not None:
                progress(min(target.calls - start, budget), budget)
            if value > paid and text.strip():
                suffix, paid, better = text, value, True
                ids = new
        idle = 0 if better else idle + 1
    texts = [f"{item.wrong}{suffix}" for item in test_items]
    return search_result("gradient", target, test_items, texts, units, before, target.calls - start)


def _mean_score(target: Target, items: Sequence[ProbeItem], suffix: str) -> float:
    scores = target.fresh([i.prompt for i in items], [f"{i.wrong}{suffix}" for i in items], [i.columns for i in items])
    return float(scores.mean())


def _propose_tokens(
    target: Target, items: Sequence[ProbeItem], suffix: str, count: int, allowed: Any
) -> list[list[int]]:
    """For each token of the suffix, those that the gradient says would raise the score most, over all items."""
    import torch

    part = target.part
    embedding = part.model.get_input_embeddings()
    total = torch.zeros(count, embedding.weight.shape[0])
    for item in items:
        prompts, completions = [item.prompt], [f"{item.wrong}{suffix}"]
        (text,) = part.format_texts(*(messages(prompts, completions) if target.chat else (prompts, completions)))
        tokens = part.tokenizer(text, return_tensors="pt", return_offsets_mapping=True, add_special_tokens=False)
        begins = text.rindex(suffix)
        offsets = tokens["offset_mapping"][0]
        inside = [n for n, (a, b) in enumerate(offsets.tolist()) if b > begins and a < begins + len(suffix)][:count]
        vectors = embedding(tokens["input_ids"]).detach().requires_grad_(True)
        with torch.enable_grad():
            part.model(inputs_embeds=vectors, attention_mask=tokens["attention_mask"]).logits[:, 0].sum().backward()
        gradient = vectors.grad[0, inside] @ embedding.weight.T
        total[: len(inside)] += gradient.float()
    total[:, ~allowed] = -float("inf")
    proposals: list[list[int]] = total.topk(NEAREST, dim=1).indices.tolist()
    return proposals


def _printable(tokenizer: Any) -> Any:
    """Which tokens are plain text that is read as it was written."""
    import torch

    texts = [tokenizer.decode([token]) for token in range(len(tokenizer))]
    special = set(tokenizer.all_special_ids)
    keep = [n not in special and bool(text) and text.isascii() and text.isprintable() for n, text in enumerate(texts)]
    return torch.tensor(np.array(keep, bool))
