"""The GRPO loss of docs/worked-examples.md, run as it stands there, beside TRL's own."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")
torch = pytest.importorskip("torch", reason="needs torch")

PAGE = Path(__file__).parents[4] / "docs" / "worked-examples.md"
PAID = np.array([0.2, 0.8, 0.5, 0.3])


def documented() -> dict[str, Any]:
    """The names that the page's section on the loss defines."""
    section = PAGE.read_text().split("## The GRPO loss", 1)[1]
    names: dict[str, Any] = {"np": np}
    for example in doctest.DocTestParser().get_examples(section):
        if example.source.startswith("def "):
            exec(example.source, names)  # noqa: S102  our own page
    return names


@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_the_documented_loss_is_trls(make_trainer: Callable[..., Any], beta: float) -> None:
    """With answers of one token a language model is a table of logits; the page's function needs nothing else."""
    # By default TRL 1.16 weighs the KL by the ratio too, which is 1 at the first update and another estimate after it.
    trainer = make_trainer("GRPO", beta=beta, loss_type="grpo", temperature=1.0, use_bias_correction_kl=False)
    model, rng = trainer.model.eval(), torch.Generator().manual_seed(3)
    asked = torch.tensor([[5, 9, 4]]).repeat(4, 1)
    taken = torch.tensor([[7], [11], [13], [7]])

    def logits() -> Any:
        with torch.no_grad():
            return model(asked[:1]).logits[0, -1].double().numpy()

    def moved(size: float) -> None:
        with torch.no_grad():
            for weight in model.parameters():
                weight += size * torch.randn(weight.shape, generator=rng)

    def logps(of: Any) -> Any:
        return torch.tensor((of - np.log(np.exp(of).sum()))[taken.numpy()], dtype=torch.float32)

    advantage = (PAID - PAID.mean()) / (PAID.std(ddof=1) + 1e-4)  # TRL's own guard against a spread of 0
    loss, ref = documented()["grpo_loss"], logits()
    moved(0.05)
    old = logits()
    clipped = 0
    for size in (0.0, 0.01, 0.1, 0.3):
        moved(size)
        inputs = {
            "prompt_ids": asked, "prompt_mask": torch.ones_like(asked),
            "completion_ids": taken, "completion_mask": torch.ones_like(taken),
            "advantages": torch.tensor(advantage, dtype=torch.float32),
            "old_per_token_logps": logps(old), "ref_per_token_logps": logps(ref),
            "num_items_in_batch": torch.tensor(4.0),
        }  # fmt: skip
        theirs = float(trainer._compute_loss(model, inputs).detach())
        now = logits()
        ours = float(loss(now, old, ref, taken[:, 0].numpy(), advantage, beta=beta, clip=0.2))
        assert theirs == pytest.approx(ours, rel=1e-4, abs=2e-6), size
        ratio = np.exp(now - np.log(np.exp(now).sum()) - old + np.log(np.exp(old).sum()))[taken[:, 0].numpy()]
        clipped += int((np.abs(ratio - 1) > 0.2).any())
    assert clipped >= 1  # the clip was put to the test as well
