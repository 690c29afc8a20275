"""`judge`: an LLM judge behind an endpoint as a reward from 0 to 1."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from tiltmeter.gold.guards.canaries import canaried
from tiltmeter.gold.guards.composed_reward import ComposedReward, OnInfra, PartScores, Rows
from tiltmeter.gold.guards.reward import Reward
from tiltmeter.models.judge import CANARIES, Judge, read_judge

SECONDS = 600.0  # for all rows of one call: training waits for it


@dataclass(frozen=True)
class JudgeRule:
    """The judge's score of each row, from 0 to 1; a row without a score is an outage, not a 0."""

    judge: Judge
    seconds: float
    is_judge: ClassVar[bool] = True  # its canaries warn instead of alarming: a judge may err

    def __call__(self, part_scores: PartScores, rows: Rows) -> Any:
        prompts = [None] * len(rows) if rows.prompts is None else rows.prompt_texts
        texts = list(zip(prompts, rows.texts, strict=True))
        if not self.judge.reference:
            return self.judge.scores(texts, within=self.seconds)
        return self.judge.scores(texts, self.seconds, [str(one) for one in rows.columns.get(self.judge.reference, ())])


def judge(
    source: str | Path | Judge,
    *,
    every: int = 1,
    seconds: float = SECONDS,
    name: str = "judge",
    on_infra: OnInfra = "none",
) -> Reward:
    """The judge that a TOML file describes, as a reward from 0 to 1.

    The completion is passed as data between random delimiter lines, and only a reply that is exactly a score counts.
    This stops simple prompt injection and no more: a policy that trains against a judge finds what the judge likes. So
    canaries, known right and wrong answers, are scored along with the rows at
    every `every`-th call (see `canaried`); the judge's own from its file come on top. A row without a score is None
    with `infra` set; training waits at most `seconds` for a call. `every=0`: no canaries, where something else asks
    them.

    Example:

        trainer = GRPOTrainer(model, reward_funcs=rewards.judge("judge.toml"))
    """
    client = source if isinstance(source, Judge) else read_judge(source)
    settings = (client.endpoint, client.model, client.mark)
    reward = ComposedReward(
        name, {}, JudgeRule(client, float(seconds)), bounds=(0.0, 1.0), settings=settings, on_infra=on_infra
    )
    if not every:
        return reward
    return canaried(reward, (*CANARIES, *client.canaries), every=every)
