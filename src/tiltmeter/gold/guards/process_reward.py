"""`process`: a process reward that scores each step of an answer and combines the step scores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from tiltmeter.data.reward_fingerprint import fingerprint
from tiltmeter.gold.guards.composed_reward import ComposedReward, Floats, OnInfra, PartScores, Rows, await_result

Split = Literal["lines", "sentences"]
OutcomeRule = Literal["min", "mean", "last", "product"]
#: `scorer(prompts=..., steps=[[...], ...], **columns)`: one list of scores per row, as long as its steps; or None.
StepScorer = Callable[..., Any]
BAD = 0.5  # a step below this is a bad one, where the scorer says how likely a step is to be right

_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def lines(text: str) -> list[str]:
    """Lines that are not blank.

    >>> lines("a = 2\\n\\nb = 3 ")
    ['a = 2', 'b = 3']
    """
    return [line.strip() for line in text.splitlines() if line.strip()]


def sentences(text: str) -> list[str]:
    """Parts that end with a full stop, question or exclamation mark before a space, or with the line.

    >>> sentences("Add 1.5 and 2. That is 3.5!\\nDone")
    ['Add 1.5 and 2.', 'That is 3.5!', 'Done']
    """
    return [part.strip() for part in _SENTENCE.split(text) if part.strip()]


SPLITTERS: dict[str, Callable[[str], list[str]]] = {"lines": lines, "sentences": sentences}


@dataclass
class StepScores:
    """Scores of the steps of each completion, and the outcome of a row from its steps."""

    scorer: StepScorer
    split: Callable[[str], list[str]]
    outcome: OutcomeRule
    bad_below: float
    step_reward: list[list[float]] | None = None  # of the last call; an empty list where nothing was scored

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        self.step_reward = None
        # An answer of blanks only is one step, so that it is scored as well.
        steps = [self.split(text) or [text] for text in rows.texts]
        step_scores = list(await_result(self.scorer(prompts=rows.prompts, steps=steps, **rows.columns)))
        if len(step_scores) != len(rows):
            raise ValueError(f"the step scorer answered for {len(step_scores)} of {len(rows)} completions")
        self.step_reward = [_scores(scores, len(parts)) for scores, parts in zip(step_scores, steps, strict=True)]
        return np.array([_outcome(scores, self.outcome) for scores in self.step_reward], np.float64)

    def first_bad_step(self, threshold: float | None = None) -> list[int | None]:
        """The first step of each completion of the last call below the threshold, from 0; None where there is none."""
        limit = self.bad_below if threshold is None else threshold
        return [first_bad(scores, limit) for scores in self.step_reward or []]


def process(
    scorer: StepScorer,
    *,
    split: Split | Callable[[str], list[str]] = "lines",
    outcome: OutcomeRule = "min",
    bad_below: float = BAD,
    name: str = "process",
    bounds: tuple[float | None, float | None] = (None, None),
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """A reward of steps: `scorer(prompts, steps, **columns)` scores each step, and the row is paid by them.

    An outcome reward pays a right answer that was reached by wrong steps; a process reward does not, and it shows
    where an answer goes wrong. `outcome`: "min" (an answer is as good as its worst step; the hardest to pad),
    "product", "last", or "mean", which is the easiest to game: add steps that are trivially right. The scorer may be
    hacked like any other reward. An answer without steps is one step, so that saying nothing is scored as well; one
    that the scorer answers None for is None.

    `reward.step_reward` has the scores of the last call, one list per row, and `reward.rule.first_bad_step()` where
    each answer first falls below `bad_below`. A watched run stores them as the column `step_reward` and shows them
    with the rollout.

    >>> def scorer(prompts, steps, **_): return [[0.0 if "5" in s else 1.0 for s in row] for row in steps]
    >>> reward = process(scorer)
    >>> reward(completions=["2 + 2 is 5\\nso 5 it is", "2 + 2 is 4"]), reward.rule.first_bad_step()
    ([0.0, 1.0], [0, None])
    """
    if outcome not in get_args(OutcomeRule):
        raise ValueError(f"outcome must be one of {', '.join(get_args(OutcomeRule))}, not {outcome!r}")
    if isinstance(split, str) and split not in SPLITTERS:
        raise ValueError(f"split must be one of {', '.join(SPLITTERS)} or a function, not {split!r}")
    cut = SPLITTERS[split] if isinstance(split, str) else split
    rule = StepScores(scorer, cut, outcome, float(bad_below))
    settings = (fingerprint([scorer, cut]), outcome)
    return ComposedReward(name, {}, rule, bounds=bounds, settings=settings, on_infra=on_infra)


def first_bad(scores: Sequence[float], limit: float) -> int | None:
    """The first position below the limit.

    >>> first_bad([0.9, 0.2, 0.1], 0.5), first_bad([], 0.5)
    (1, None)
    """
    return next((place for place, score in enumerate(scores) if score < limit), None)


def _scores(scores: Any, steps: int) -> list[float]:
    if scores is None:
        return []
    values = [float(score) for score in scores]
    if len(values) != steps:
        raise ValueError(f"the step scorer gave {len(values)} scores for {steps} steps")
    return values if all(map(math.isfinite, values)) else []


def _outcome(scores: list[float], outcome: OutcomeRule) -> float:
    if not scores:
        return np.nan
    if outcome == "last":
        return scores[-1]
    if outcome == "product":
        return math.prod(scores)
    return min(scores) if outcome == "min" else sum(scores) / len(scores)
