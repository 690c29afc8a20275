"""The checkpoints of a trail: which folders they are, in which order, and what each of them says."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.instruments.prompt_diversity import PromptDiversity
from tiltmeter_workbench.common.chat_model import ChatAnswer
from tiltmeter_workbench.compare.measures.accuracy import TrlReward
from tiltmeter_workbench.compare.measures.divergence import distance, log_ratios
from tiltmeter_workbench.compare.measures.refusal import refusal_shares
from tiltmeter_workbench.compare.referees import ScoringReferee
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts, Which
from tiltmeter_workbench.trail.served_model import ServedModel, is_served

Floats = NDArray[np.float64]

BASE = "base"
_STEP = re.compile(r"(\d+)$")
INTERVAL = 0.05


@dataclass(frozen=True)
class TrailPoint:
    """What one checkpoint says to the prompts of a trail. NaN: not measured."""

    name: str
    gold: Floats  # of each prompt, the mean over its answers
    kl: float  # nats of an answer, from the base
    kl_low: float
    kl_high: float
    reward: float
    tokens: float  # of an answer
    diversity: float  # 1 - self-BLEU of the answers to a prompt
    refusals: float  # share of answers
    cut: float  # share of answers that the limit ended

    @property
    def mean(self) -> float:
        """Mean gold over prompts."""
        there = self.gold[np.isfinite(self.gold)]
        return float(there.mean()) if len(there) else math.nan

    @property
    def stderr(self) -> float:
        """Of mean gold, over prompts."""
        there = self.gold[np.isfinite(self.gold)]
        return float(there.std(ddof=1) / math.sqrt(len(there))) if len(there) > 1 else math.nan


def list_checkpoints(paths: Sequence[Path]) -> list[Path]:
    """The folders in the order of training. One folder without a model is taken for a trainer's output folder.

    >>> import tempfile
    >>> root = Path(tempfile.mkdtemp())
    >>> for step in (20, 100):
    ...     (root / f"checkpoint-{step}").mkdir()
    ...     _ = (root / f"checkpoint-{step}" / "config.json").write_text("{}")
    >>> [path.name for path in list_checkpoints([root])]
    ['checkpoint-20', 'checkpoint-100']
    """
    if len(paths) == 1 and not _is_model(paths[0]):
        inside = [path for path in paths[0].glob("checkpoint-*") if _is_model(path) and _STEP.search(path.name)]
        paths = sorted(inside, key=lambda path: int(_STEP.findall(path.name)[0]))
        if not paths:
            raise AttachError("no checkpoint-* with a model in it: name the folders in the order of training")
    if wrong := [path for path in paths if not _is_model(path)]:
        raise AttachError(
            f"{wrong[0]} holds neither config.json nor adapter_config.json: it is no model's folder, "
            "and no .toml file of a server either"
        )
    if len({path.resolve() for path in paths}) < len(paths):
        raise AttachError("a checkpoint is named twice")
    return list(paths)


def _is_model(path: Path) -> bool:
    return is_served(path) or any((path / name).exists() for name in ("config.json", "adapter_config.json"))


def measure_checkpoint(
    sampler: AnswerSampler, which: Which, name: str, prompts: Prompts, gold: ScoringReferee, reward: TrlReward | None
) -> TrailPoint:
    """Sample a checkpoint's answers, or take those that are stored, and measure them."""
    answers = sampler.answers(which, prompts.name, prompts.turns, sampler.samples)
    every = [one for group in answers for one in group]
    rows = [
        (text, one.text, columns)
        for text, columns, group in zip(prompts.texts, prompts.columns, answers, strict=True)
        for one in group
    ]
    scores = gold.shares(rows, sampler.progress)
    kl = (0.0, 0.0, 0.0)  # of the base from itself
    if any(isinstance(model, ServedModel) for model in (sampler.base, sampler.checkpoint)):
        kl = kl if which == "base" else (math.nan, math.nan, math.nan)
    elif which == "checkpoint":
        measured = distance(log_ratios(sampler, prompts, answers), INTERVAL)
        kl = measured.mean, measured.low, measured.high
    return TrailPoint(
        name,
        _means(scores, answers),
        *kl,
        math.nan if reward is None else _mean_reward(reward, rows),
        _nan_mean(np.array([len(one.tokens) if one.tokens or not one.text else math.nan for one in every])),
        _diversity(answers),
        _nan_mean(refusal_shares(answers)),
        float(np.mean([not one.ended for one in every])) if every else math.nan,
    )


def _means(values: Floats, answers: Sequence[Sequence[ChatAnswer]]) -> Floats:
    """By prompt. One of which an answer has no gold has none: leaving it out would be a choice by its outcome."""
    parts = np.split(values, np.cumsum([len(group) for group in answers])[:-1])
    return np.array([part.mean() if len(part) else math.nan for part in parts])


def _mean_reward(reward: TrlReward, rows: Sequence[tuple[str, str, object]]) -> float:
    columns: dict[str, list[object]] = {}
    for _, _, values in rows:
        for name, value in dict(values).items():  # type: ignore[call-overload]
            columns.setdefault(name, []).append(value)
    paid = reward([row[0] for row in rows], [row[1] for row in rows], **columns)
    return _nan_mean(np.array([math.nan if value is None else value for value in paid], np.float64))


def _diversity(answers: Sequence[Sequence[ChatAnswer]]) -> float:
    group = [at for at, rows in enumerate(answers) for _ in rows]
    every = [one for rows in answers for one in rows]
    tokens: list[Sequence[int]] = [one.tokens for one in every]
    if any(one.text and not one.tokens for one in every):  # a server's: words instead
        numbers: dict[str, int] = {}
        tokens = [[numbers.setdefault(word, len(numbers)) for word in one.text.split()] for one in every]
    batch = from_columns(0, group, tokens=tokens, completion=[one.text for one in every])
    return 1.0 - _nan_mean(PromptDiversity().measure(batch, None)["self_bleu"])


def _nan_mean(values: Floats) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else math.nan
