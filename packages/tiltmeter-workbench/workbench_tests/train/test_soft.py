"""Soft preference learning is TRL's own with equal weights, and leads to the exact tabular optimum with others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")

import torch
import trl
from transformers import AutoModelForCausalLM

from tiltmeter.errors import AttachError
from tiltmeter_workbench.stats.tilting import tilted
from tiltmeter_workbench.train.methods import soft_trainers

Make = Callable[..., Any]
BETA, WEIGHT = 0.25, 0.75  # w_CE and w_H where they differ


@pytest.fixture
def make(make_trainer: Make, monkeypatch: pytest.MonkeyPatch) -> Make:
    """`make("DPO", weight, **config)`: our trainer, built as `make_trainer` builds TRL's; no weight at all is TRL's."""

    def built(kind: str, weight: float | None = None, **changes: Any) -> Any:
        changes = {"max_steps": 3, "beta": BETA, **changes}
        if weight is None:
            return make_trainer(kind, **changes)
        ours = functools.partial(getattr(soft_trainers, f"Soft{kind}Trainer"), entropy_weight=weight)
        with monkeypatch.context() as patch:
            patch.setattr(trl, f"{kind}Trainer", ours)
            return make_trainer(kind, **changes)

    return built


def trained(trainer: Any) -> tuple[dict[str, Any], list[float]]:
    trainer.train()
    losses = [told["loss"] for told in trainer.state.log_history if "loss" in told]
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}, losses


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("DPO", {}),
        ("DPO", {"precompute_ref_log_probs": True}),
        ("DPO", {"loss_type": "ipo"}),
        ("GRPO", {}),
        ("GRPO", {"loss_type": "grpo", "gradient_accumulation_steps": 2}),
    ],
)
def test_equal_weights_are_plain_trl_bit_for_bit(make: Make, kind: str, settings: dict[str, Any]) -> None:
    plain, losses = trained(make(kind, **settings))
    equal, equal_losses = trained(make(kind, BETA, **settings))
    assert len(losses) == 3
    assert equal_losses == losses
    assert same(plain, equal)


@pytest.mark.parametrize("kind", ["DPO", "GRPO"])
def test_other_weights_are_not(make: Make, kind: str) -> None:
    """The control of the test above: it can fail."""
    plain, _ = trained(make(kind))
    other, _ = trained(make(kind, WEIGHT))
    assert not same(plain, other)


def moved(trainer: Any) -> Any:
    """The trainer's model, away from its reference."""
    torch.manual_seed(5)
    with torch.no_grad():
        for value in trainer.model.parameters():
            if value.requires_grad:
                value.add_(0.05 * torch.randn_like(value))
    trainer.current_gradient_accumulation_steps = 1
    return trainer.model.train()


def log_probabilities(model: Any, batch: dict[str, Any], mask: Any) -> Any:
    """ln π of every completion of a batch, from the logits alone."""
    with torch.no_grad():
        logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    told = torch.log_softmax(logits[:, :-1], dim=-1).gather(-1, batch["input_ids"][:, 1:, None])[..., 0]
    return (told * mask[:, 1:]).sum(1)


def pairs_checked(trainer: Any, folder: Path) -> None:
    model = moved(trainer)
    batch = next(iter(trainer.get_train_dataloader()))
    mask = batch["completion_mask"]
    reference = AutoModelForCausalLM.from_pretrained(folder)
    ours, theirs = (log_probabilities(each, batch, mask) for each in (model, reference))
    reward = WEIGHT * ours - BETA * theirs
    chosen, rejected = reward.chunk(2)
    if trainer.loss_types == ["ipo"]:
        long, short = mask.sum(1).chunk(2)
        wanted = ((chosen / long - rejected / short) / WEIGHT - 1 / (2 * WEIGHT)).square().mean()
    else:
        wanted = -torch.nn.functional.logsigmoid(chosen - rejected).mean()
    found = trainer.compute_loss(model, batch).detach()
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    told = trainer._metrics["train"]["rewards/margins"][-1]
    assert told == pytest.approx(float((chosen - rejected).mean()), rel=1e-3, abs=1e-4)
    # The loss of TRL with either weight alone is another one.
    for alone in (WEIGHT, BETA):
        unsplit = -torch.nn.functional.logsigmoid(
            alone * ((ours - theirs)[: len(chosen)] - (ours - theirs)[len(chosen) :])
        )
        assert abs(float(unsplit.mean()) - float(found)) > 1e-3


@pytest.mark.parametrize("settings", [{}, {"precompute_ref_log_probs": True}, {"loss_type": "ipo"}])
def test_the_loss_of_a_pair_is_the_formula(make: Make, tiny_model: Path, settings: dict[str, Any]) -> None:
    pairs_checked(make("DPO", WEIGHT, **settings), tiny_model)


def test_with_adapters_the_reference_is_the_model_without_them(
    make_trainer: Make, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    kept = {}
    for name, ours in (
        ("plain", trl.DPOTrainer),
        ("equal", functools.partial(soft_trainers.SoftDPOTrainer, entropy_weight=BETA)),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(trl, "DPOTrainer", functools.partial(ours, peft_config=lora))
            kept[name] = trained(make_trainer("DPO", beta=BETA, max_steps=2))
    assert kept["plain"][1] == kept["equal"][1]
    assert same(kept["plain"][0], kept["equal"][0])
    with monkeypatch.context() as patch:
        patch.setattr(
            trl, "DPOTrainer", functools.partial(soft_trainers.SoftDPOTrainer, entropy_weight=WEIGHT, peft_config=lora)
        )
        pairs_checked(make_trainer("DPO", beta=BETA), tiny_model)


LENGTHS = ((9, 3, 1, 7), (2, 8, 5, 5))  # tokens of the completions of two micro-batches


def rollouts(trainer: Any, lengths: tuple[int, ...], total: int) -> dict[str, Any]:
    """A micro-batch as GRPOTrainer makes it."""
    rows, width = len(lengths), max(lengths)
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.randint(3, trainer.model.config.vocab_size, (rows, 4 + width), generator=generator)
    return {
        "prompt_ids": ids[:, :4],
        "prompt_mask": torch.ones(rows, 4, dtype=torch.long),
        "completion_ids": ids[:, 4:],
        "completion_mask": (torch.arange(width)[None] < torch.tensor(lengths)[:, None]).long(),
        "advantages": torch.randn(rows, generator=generator),
        "num_items_in_batch": torch.tensor(total),
        "ref_per_token_logps": -5.0 - torch.rand(rows, width, generator=generator),
    }


def entropies(model: Any, batch: dict[str, Any]) -> Any:
    """The entropy at every token of the completions, from the logits alone; 0 at what is masked."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], 1)
    with torch.no_grad():
        told = torch.log_softmax(model(input_ids=ids, attention_mask=mask).logits, dim=-1)
    return -(told.exp() * told).sum(-1)[:, 3:-1] * batch["completion_mask"]


@pytest.mark.parametrize("loss_type", ["dapo", "bnpo", "dr_grpo", "luspo"])
def test_other_weights_add_the_entropy_on_the_footing_of_the_kl(make: Make, loss_type: str) -> None:
    """Over an accumulated step: (w_CE - w_H) times the entropies, added up and divided as this loss divides the KL."""
    settings = {"loss_type": loss_type, "gradient_accumulation_steps": 2, "max_completion_length": 16}
    plain, ours = make("GRPO", **settings), make("GRPO", WEIGHT, name="ours", **settings)
    total = sum(map(sum, LENGTHS))
    added, wanted = 0.0, 0.0
    for lengths in LENGTHS:
        losses = []
        for trainer in (plain, ours):
            model = moved(trainer) if lengths is LENGTHS[0] else trainer.model
            trainer.current_gradient_accumulation_steps = 2
            trainer.model.train()
            losses.append(float(trainer.compute_loss(model, rollouts(trainer, lengths, total)).detach()))
        added += losses[1] - losses[0]
        batch = rollouts(ours, lengths, total)
        told = float(entropies(ours.model, batch).sum())
        divisor = {"dapo": total, "bnpo": 2 * sum(lengths), "dr_grpo": 2 * len(lengths) * 16, "luspo": 2 * len(lengths)}
        wanted += (BETA - WEIGHT) * told / divisor[loss_type]
    assert added == pytest.approx(wanted, rel=1e-4)
    assert ours.entropy_coef == WEIGHT - BETA  # as it was set: a lever of the monitor reads and changes it


REWARDS = np.log([1.0, 2.0, 4.0])
TOKENS = (5, 9, 14)  # three answers of one token
WINS = {(0, 1): (5, 10), (0, 2): (3, 12), (1, 2): (5, 10)}  # of fifteen: Bradley-Terry with these rewards
PROMPT = (3, 7, 4)


def settled(trainer: Any, batch: dict[str, Any]) -> Any:
    """The next-token distribution of the model before and after its output layer has minimised the trainer's loss."""
    model = trainer.model.train()
    asked = torch.tensor([PROMPT])

    def chances() -> Any:
        return torch.softmax(model(input_ids=asked).logits[0, -1].detach().double(), -1).numpy()

    before = chances()
    for value in model.parameters():
        value.requires_grad_(value is model.lm_head.weight)
    optimiser = torch.optim.LBFGS([model.lm_head.weight], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Any:
        optimiser.zero_grad()
        found = trainer.compute_loss(model, batch)
        found.backward()
        return found

    trainer.current_gradient_accumulation_steps = 1
    for _ in range(3):
        optimiser.step(loss)
    return before, chances()


@pytest.mark.parametrize("loss_type", ["sigmoid", "ipo"])
def test_pairs_lead_to_the_exact_optimum(make: Make, loss_type: str) -> None:
    ordered = [(low, high) for (a, b), (less, more) in WINS.items() for low, high in [(a, b)] * more + [(b, a)] * less]
    chosen, rejected = [TOKENS[high] for _, high in ordered], [TOKENS[low] for low, _ in ordered]
    ids = torch.tensor([[*PROMPT, token] for token in chosen + rejected])
    mask = torch.zeros_like(ids)
    mask[:, -1] = 1
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "completion_mask": mask}
    before, after = settled(make("DPO", WEIGHT, loss_type=loss_type), batch)
    worth = REWARDS
    if loss_type == "ipo":  # the chance to beat an answer drawn evenly, oneself included
        worth = np.array([np.mean([1 / (1 + math.exp(other - own)) for other in REWARDS]) for own in REWARDS])
    flat = before[list(TOKENS)] ** (BETA / WEIGHT)
    wanted = tilted(flat / flat.sum(), worth, WEIGHT)
    found = after[list(TOKENS)]
    np.testing.assert_allclose(found / found.sum(), wanted, atol=2e-3)
    unsplit = tilted(before[list(TOKENS)] / before[list(TOKENS)].sum(), worth, BETA)
    assert abs(unsplit - wanted).max() > 0.02


def test_rollouts_lead_to_the_exact_optimum(make: Make) -> None:
    """Every token once, each with its importance, is the exact expectation over one-token answers."""
    trainer = make("GRPO", WEIGHT, loss_type="bnpo", use_bias_correction_kl=True, epsilon=1e6)
    size = trainer.model.config.vocab_size
    worth = np.random.default_rng(2).random(size)
    reference = trainer.model(input_ids=torch.tensor([PROMPT])).logits[0, -1].detach().log_softmax(-1)
    batch = {
        "prompt_ids": torch.tensor([PROMPT] * size),
        "prompt_mask": torch.ones(size, len(PROMPT), dtype=torch.long),
        "completion_ids": torch.arange(size)[:, None],
        "completion_mask": torch.ones(size, 1, dtype=torch.long),
        "advantages": torch.tensor(worth, dtype=torch.float32),
        "num_items_in_batch": torch.tensor(size),
        "old_per_token_logps": torch.full((size, 1), -math.log(size)),
        "ref_per_token_logps": reference[:, None],
    }
    before, after = settled(trainer, batch)
    flat = before ** (BETA / WEIGHT)
    wanted = tilted(flat / flat.sum(), worth, WEIGHT)
    np.testing.assert_allclose(after, wanted, atol=1e-4)
    assert abs(tilted(before, worth, BETA) - wanted).max() > 1e-3


def test_trl_pulls_with_the_other_kl_unless_it_is_told_to_correct(make: Make) -> None:
    """Expected over one-token answers of the policy itself, the gradient of TRL's term is that of KL(ref || π); with
    `use_bias_correction_kl` it is that of KL(π || ref), of which the optimum above is the optimum."""
    found: dict[bool, Any] = {}
    for corrected in (False, True):
        trainer = make("GRPO", loss_type="bnpo", beta=1.0, use_bias_correction_kl=corrected, name=str(corrected))
        model, size = trainer.model, trainer.model.config.vocab_size
        reference = model(input_ids=torch.tensor([PROMPT])).logits[0, -1].detach().log_softmax(-1)
        moved(trainer)
        policy = model(input_ids=torch.tensor([PROMPT])).logits[0, -1].log_softmax(-1)
        wanted = {
            False: (reference.exp() * (reference - policy)).sum(),
            True: (policy.exp() * (policy - reference)).sum(),
        }
        slope = {key: torch.autograd.grad(kl, model.lm_head.weight, retain_graph=True)[0] for key, kl in wanted.items()}
        batch: dict[str, Any] = {
            "prompt_ids": torch.tensor([PROMPT]),
            "prompt_mask": torch.ones(1, len(PROMPT), dtype=torch.long),
            "completion_mask": torch.ones(1, 1, dtype=torch.long),
            "advantages": torch.zeros(1),
            "num_items_in_batch": torch.tensor(1),
        }
        for token in range(size):
            told = {"completion_ids": torch.tensor([[token]]), "ref_per_token_logps": reference[None, token, None]}
            chance = float(policy[token].detach().exp())
            loss = chance * trainer.compute_loss(model, batch | told)
            (part,) = torch.autograd.grad(loss, model.lm_head.weight)
            found[corrected] = part + found[corrected] if corrected in found else part
        torch.testing.assert_close(found[corrected], slope[corrected], rtol=1e-3, atol=1e-5)
        assert (found[corrected] - slope[not corrected]).abs().max() > 10 * 1e-5


@pytest.mark.parametrize(
    ("kind", "weight", "settings", "said"),
    [
        ("DPO", 0.0, {}, "above 0"),
        ("DPO", float("nan"), {}, "above 0"),
        ("DPO", WEIGHT, {"loss_type": "hinge"}, "sigmoid, ipo"),
        ("DPO", WEIGHT, {"loss_type": ["sigmoid", "sft"]}, "one loss_type"),
        ("DPO", WEIGHT, {"f_divergence_type": "forward_kl"}, "f_divergence_type='reverse_kl'"),
        ("DPO", WEIGHT, {"ld_alpha": 0.5}, "ld_alpha=None"),
        ("DPO", WEIGHT, {"use_weighting": True}, "use_weighting=False"),
        ("GRPO", -1.0, {}, "above 0"),
        ("GRPO", WEIGHT, {"loss_type": "grpo"}, "dapo"),
        ("GRPO", WEIGHT, {"use_adaptive_entropy": True}, "use_adaptive_entropy=False"),
        ("GRPO", WEIGHT, {"entropy_coef": 0.1}, "leave entropy_coef out"),
        ("GRPO", WEIGHT, {"top_entropy_quantile": 0.5}, "top_entropy_quantile=1.0"),
    ],
)
def test_what_the_split_is_not_derived_for_is_refused(
    make: Make, kind: str, weight: float, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(AttachError, match=said):
        make(kind, weight, **settings)


def test_with_equal_weights_every_loss_of_trl_is_taken(make: Make) -> None:
    assert make("DPO", BETA, loss_type="hinge", ld_alpha=0.5).beta == BETA
    assert make("GRPO", BETA, loss_type="grpo", top_entropy_quantile=0.5).entropy_coef == 0.0
    assert make("GRPO", WEIGHT, entropy_coef=WEIGHT - BETA).entropy_coef == WEIGHT - BETA
