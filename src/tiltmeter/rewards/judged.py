"""A judge as a reward: a language model behind an endpoint scores each answer by a guide."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.judge import CANARIES, Judge, read_judge
from tiltmeter.rewards import Reward
from tiltmeter.rewards.parts import Made, OnInfra, Rows, Told

SECONDS = 600.0  # for all rows of one call: training waits for it


@dataclass(frozen=True)
class Opinion:
    """The judge's score of each row, from 0 to 1; where it gave none, the row is broken and not bad."""

    judge: Judge
    seconds: float

    def __call__(self, told: Told, rows: Rows) -> Any:
        asked = [None] * len(rows) if rows.prompts is None else rows.asked
        return self.judge.scores(list(zip(asked, rows.texts, strict=True)), within=self.seconds)


def judge(
    source: str | Path | Judge,
    *,
    every: int = 1,
    seconds: float = SECONDS,
    name: str = "judge",
    on_infra: OnInfra = "none",
) -> Reward:
    """The judge that a TOML file describes, as a reward from 0 to 1.

    What the policy wrote reaches it as data between lines that cannot be foreseen, and only an answer that is exactly a
    score counts. That keeps it from being talked into a score by simple means, and no more: a policy that trains
    against a judge finds what the judge likes. So canaries, answers of known worth, are asked along with the rows at
    every `every`-th call (see `canaried`); the judge's own from its file come on top. A row without a score is None
    with `infra` set; training waits at most `seconds` for a call. `every=0`: no canaries, where something else asks
    them.
    """
    asked = source if isinstance(source, Judge) else read_judge(source)
    settings = (asked.endpoint, asked.model, asked.mark)
    made = Made(name, {}, Opinion(asked, float(seconds)), bounds=(0.0, 1.0), settings=settings, on_infra=on_infra)
    if not every:
        return made
    from tiltmeter.rewards.canaries import canaried

    return canaried(made, (*CANARIES, *asked.canaries), every=every)
