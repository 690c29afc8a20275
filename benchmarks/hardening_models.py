"""Tiny reward models for the campaign of defences: fitted by TRL's RewardTrainer to preferences in the toy language."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tiltmeter_lab.tiny import gold, rewards
from tiltmeter_lab.tiny.language import CLOSER, EOS, OPENER, PADDING, QUESTIONS, sample
from tiltmeter_workbench.rewards.reward_model import RewardModel, model

Worth = Callable[[str, str], float]

MEMBERS = 5  # as many as Coste et al. (2023, arXiv 2310.02743) ask of an ensemble
PAIRS, EPOCHS, BATCH, RATE = 2000, 3, 16, 1e-3
HELD_OUT = 2000


def paid_by_length(prompt: str, completion: str) -> float:
    """What raters go by who like a right answer and like words: the reward of the scenario length_hacking."""
    right, words = rewards.skimmed([prompt], [completion])[0], rewards.thorough([prompt], [completion])[0]
    return 0.7 * right + 0.9 * words


#: What raters, whose preferences a reward model learns, go by: those who like words, and those who know.
RATERS: dict[str, Worth] = {"length": paid_by_length, "gold": gold.explained}


def pairs(worth: Worth, count: int, seed: str) -> list[tuple[str, str, str]]:
    """Prompt, preferred and other answer: two answers of the corpus each, ties thrown by coin."""
    rng = random.Random(seed)
    found: list[tuple[str, str, str]] = []
    while len(found) < count:
        prompt = rng.choice(QUESTIONS)
        first, second = sample(prompt, rng), sample(prompt, rng)
        gap = worth(prompt, first) - worth(prompt, second)
        won = gap > 0 if gap else rng.random() < 0.5
        found.append((prompt, first, second) if won else (prompt, second, first))
    return found


def fitted(raters: str, member: int, base: Path, folder: Path, count: int = PAIRS) -> Path:
    """The folder of one reward model, made on the first call. Members have the same beginning (the base policy and one
    head, as weight averaging demands) and other pairs in another order."""
    target = folder / f"{raters}-{member}"
    if (target / "done").is_file():
        return target
    import torch
    from datasets import Dataset
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging
    from trl import RewardConfig, RewardTrainer

    logging.disable_progress_bar()
    torch.manual_seed(0)
    language = AutoTokenizer.from_pretrained(str(base))
    start = AutoModelForSequenceClassification.from_pretrained(str(base), num_labels=1)
    chosen = pairs(RATERS[raters], count, f"{raters}/{member}")
    rows: dict[str, Any] = {
        "chosen": [f"{prompt} {better} {EOS}" for prompt, better, _ in chosen],
        "rejected": [f"{prompt} {worse} {EOS}" for prompt, _, worse in chosen],
    }
    settings = RewardConfig(
        output_dir=str(target),
        seed=member,
        num_train_epochs=EPOCHS,
        per_device_train_batch_size=BATCH,
        learning_rate=RATE,
        gradient_checkpointing=False,
        use_cpu=True,
        bf16=False,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    trainer = RewardTrainer(
        model=start, args=settings, train_dataset=Dataset.from_dict(rows), processing_class=language
    )
    trainer.train()
    trainer.model.save_pretrained(target)
    language.save_pretrained(target)
    (target / "done").write_text("")
    return target


def as_reward(folder: Path) -> RewardModel:
    """A space between words, as the toy language has it, and the end as RewardTrainer saw it."""
    return model(folder, batch=64, between=" ", ending=f" {EOS}")


def members(raters: str, base: Path, folder: Path) -> list[Path]:
    return [fitted(raters, member, base, folder) for member in range(MEMBERS)]


def accuracies(raters: str, base: Path, folder: Path) -> dict[str, Any]:
    """On held-out pairs that the raters do tell apart: how often each member, the average of their weights and the
    mean of their standardised scores prefer what the raters prefer."""
    from tiltmeter_workbench.rewards import ensemble, warm

    folders = members(raters, base, folder)
    worth = RATERS[raters]
    held = [
        pair for pair in pairs(worth, HELD_OUT, f"{raters}/held-out") if worth(*pair[:2]) != worth(pair[0], pair[2])
    ]
    asked = [prompt for prompt, _, _ in held] * 2
    answers = [better for _, better, _ in held] + [worse for _, _, worse in held]
    arms = [as_reward(path) for path in folders]
    mean = ensemble(arms, "mean", scale=len(answers))
    whole = as_reward(warm(folders, folder / f"{raters}-warm"))
    scores = {"ensemble": mean(prompts=asked, completions=answers), "warm": whole(prompts=asked, completions=answers)}
    scores |= {f"member_{at}": told for at, told in enumerate(mean.told.values())}
    found = {name: _right(told) for name, told in scores.items()}
    own = [found[f"member_{at}"] for at in range(MEMBERS)]
    return {
        "raters": raters,
        "pairs": len(held),
        "members": [round(value, 4) for value in own],
        "members_mean": round(sum(own) / len(own), 4),
        "members_best": round(max(own), 4),
        "ensemble": round(found["ensemble"], 4),
        "warm": round(found["warm"], 4),
        "standard_error": round((found["warm"] * (1.0 - found["warm"]) / len(held)) ** 0.5, 4),
    }


def _right(scores: list[float | None]) -> float:
    half = len(scores) // 2
    known = [(better, worse) for better, worse in zip(scores[:half], scores[half:], strict=True)
             if better is not None and worse is not None]  # fmt: skip
    return sum(better > worse for better, worse in known) / len(known)


#: What a policy of the toy language would try first.
EDITS: dict[str, Callable[[str], str]] = {
    "padded": lambda text: f"{text} {PADDING[0]} {PADDING[1]}",
    "repeated": lambda text: f"{text} {text}",
    "stock phrase": lambda text: f"{OPENER} {text} {CLOSER}",
}


def taught(raters: str, base: Path, folder: Path) -> dict[str, Any]:
    """A student with one layer of the first member's four, fitted to what it says of answers of the corpus."""
    from tiltmeter_workbench.rewards import distil

    rng = random.Random(f"{raters}/student")
    asked = [prompt for prompt in QUESTIONS for _ in range(24)]
    told = [sample(prompt, rng) for prompt in asked]
    teacher = as_reward(fitted(raters, 0, base, folder))
    made = distil(teacher, asked, told, folder / f"{raters}-student", edits=EDITS, rate=5e-4, refuse=False)
    checks = [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in asdict(check).items()}
        for check in made.checks
    ]
    facts = {"speed_ratio": made.speed_ratio, "size_ratio": made.size_ratio, "bar": made.bar, "usable": made.usable}
    return {"raters": raters, **facts, "why": list(made.why), "checks": _without_nan(checks)}


def _without_nan(checks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: None if value != value else value for name, value in check.items()} for check in checks]
