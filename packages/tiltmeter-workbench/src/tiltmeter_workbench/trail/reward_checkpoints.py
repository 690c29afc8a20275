"""Asks checkpoints of a reward model which of two answers is better, and compares it with gold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.data.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.rundir.checkpoints.sampling import CheckpointSampling
from tiltmeter_workbench.compare.referees import MARGIN, ScoringReferee
from tiltmeter_workbench.rewards.reward_model import RewardModel
from tiltmeter_workbench.trail.checkpoints import Floats


class RewardPairs:
    """Pairs of answers that gold tells apart: 1 where a reward model prefers the better one, 0.5 where it ties.

    Gold is asked once, before any checkpoint: pairs that it does not tell apart are left out, and no checkpoint has a
    say in which they are.
    """

    has_base = False  # before training its score is drawn at random

    def __init__(self, sampling: CheckpointSampling, gold: ScoringReferee) -> None:
        self.gold, self._tokens = gold, sampling.tokens
        rows = [row for row in sampling.rows if "chosen" in row and "rejected" in row]
        scores = np.stack([self._gold_of(rows, name) for name in ("chosen", "rejected")])
        differs = np.abs(scores[0] - scores[1]) > MARGIN  # no number differs from none
        if not differs.any():
            raise AttachError("gold tells no two answers of the pairs apart: a reward model cannot be judged by it")
        self._rows = [row for row, tells in zip(rows, differs, strict=True) if tells]
        self._first_is_better = (scores[0] > scores[1])[differs]

    def _gold_of(self, rows: list[dict[str, Any]], name: str) -> Floats:
        texts = [(_text(row["prompt"]), _text(row[name])) for row in rows]
        columns = [{key: value for key, value in row.items() if key not in ("prompt", name)} for row in rows]
        return self.gold.scores([(*text, column) for text, column in zip(texts, columns, strict=True)])

    def measure(self, folder: Path | None) -> Floats:
        assert folder is not None
        reward = RewardModel(folder)
        if reward.tokenizer.chat_template is None or not isinstance(self._rows[0]["chosen"], list):
            reward.ending = reward.tokenizer.eos_token or ""  # as TRL's RewardTrainer ends plain text
        prompts = [row["prompt"] for row in self._rows]
        first, second = (reward(prompts, [row[name] for row in self._rows]) for name in ("chosen", "rejected"))
        leads = np.array([np.nan if a is None or b is None else a - b for a, b in zip(first, second, strict=True)])
        right = np.where(leads == 0.0, 0.5, ((leads > 0.0) == self._first_is_better).astype(np.float64))
        return np.where(np.isnan(leads), np.nan, right)


def _text(turns: Any) -> str:
    return turns if isinstance(turns, str) else plain_text(turns) or ""
