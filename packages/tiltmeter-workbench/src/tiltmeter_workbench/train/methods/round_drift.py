"""Drift over rounds of iterated training: gold, diversity and the judge's taste for length by round, and when to stop.

Round k samples the policy that rounds 1 to k - 1 made. Its gold is compared with that of each earlier round on the
prompts that both asked, with the bets of `stats.checkpoint_falls`: E_k is their average, and the sum of E_k / (t (t +
1)), t = k - 1, ever reaches 1/α with a chance of at most α while no policy is lower than an earlier one by more than
the tolerance, in the mean over the prompts that those were drawn from. Which prompts a round asks is drawn beforehand,
so the bets are fair on those that two rounds share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from statistics import fmean
from typing import Any

import numpy as np

from tiltmeter.data.batches import from_columns
from tiltmeter.instruments.answer_classes import AnswerClasses
from tiltmeter.stats.checkpoint_falls import ALPHA, LEAST_PROMPTS, log_looks, log_odds_lower

Gold = Mapping[int, float | None]  # by row of the data


@dataclass(frozen=True, slots=True)
class StopRule:
    """Whether the last of some rounds proves a fall, and the round whose policy had the most gold."""

    stop: bool
    best: int  # from 1; of equal ones the first
    odds: float  # against "no round is lower than an earlier one"


def stop_rule(rounds: Sequence[Gold], alpha: float = ALPHA) -> StopRule:
    """`rounds`: gold of the first answer to each prompt, by row, in the order of training.

    >>> rng = np.random.default_rng(0)
    >>> course = [dict(enumerate(map(float, rng.random(300) < gold))) for gold in (0.4, 0.6, 0.35)]
    >>> rule = stop_rule(course)
    >>> rule.stop, rule.best, stop_rule(course[:2]).stop
    (True, 2, False)
    """
    bets = []
    for number in range(1, len(rounds)):
        logs = [_log_odds(rounds[number], earlier) for earlier in rounds[:number]]
        bets.append(float(np.logaddexp.reduce(logs)) - log(len(logs)) - log_looks(number))
    evidence = float(np.logaddexp.reduce(bets)) if bets else -inf
    means = [
        fmean(values) if (values := [one for one in gold.values() if one is not None]) else -inf for gold in rounds
    ]
    best = max(range(len(rounds)), key=lambda at: (means[at], -at)) + 1 if rounds else 0
    return StopRule(evidence >= log(1.0 / alpha), best, float(np.exp(min(evidence, 700.0))))


def drift_summary(samples: Sequence[Mapping[str, Any]], pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of a round: the share of answers to a prompt that differ, and how often the longer one of a pair was chosen."""
    texts = [text for row in samples for text in row["completions"]]
    group = [number for number, row in enumerate(samples) for _ in row["completions"]]
    differing = AnswerClasses().measure(from_columns(0, group, completion=texts), None)["differing_share"]
    lengths = [(_length(pair["chosen"]), _length(pair["rejected"])) for pair in pairs]
    longer = [chosen > rejected for chosen, rejected in lengths if chosen != rejected]
    return {
        "differing": float(np.nanmean(differing)) if np.isfinite(differing).any() else None,
        "longer_chosen": fmean(longer) if longer else None,
    }


def _log_odds(now: Gold, earlier: Gold) -> float:
    shared = sorted(now.keys() & earlier.keys())
    if len(shared) < LEAST_PROMPTS:
        return 0.0  # nothing is bet
    one, other = (np.array([np.nan if gold[row] is None else gold[row] for row in shared]) for gold in (now, earlier))
    return log_odds_lower(one.astype(np.float64), other.astype(np.float64))


def _length(completion: Any) -> int:
    if isinstance(completion, str):
        return len(completion)
    return sum(len(str(message.get("content") or "")) for message in completion)
