"""A reward that gained for nothing, told from audited pairs alone: what pairs cannot show counts for the run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.verdict.test_agreement_and_gain import shares

from tiltmeter.stats.running_mean import MeanWindows
from tiltmeter.verdict.agreement_and_gain import AgreementAndGain


def fold(gold: Any, paid: Any, dead: Any, pairs: int = 16, missing: float = 0.0, steps: int = 160) -> AgreementAndGain:
    """Pairs of live prompts, `gold` their gold, with 0/1 answers; `dead` prompts are solved, `missing` pairs lost."""
    rng, folded = np.random.default_rng(0), AgreementAndGain()
    for step in range(steps):
        wins = 0.4 + 0.5 * rng.binomial(8, paid(step), 32) / 8
        readings = {"group.size": [8.0, 32, 0.0], "reward.win_share": shares(wins, 8)}
        folded.add(0, step, readings | ({} if dead is None else {"reward.dead_share": [dead(step), 32, 0.0]}))
        lost = int(rng.binomial(pairs, missing))
        levels = rng.binomial(2, gold(step), pairs - lost) / 2
        us = [0.0] * pairs
        folded.add(0, step, {"gold.slope": [0.0, pairs, 0.0, us], "gold.level": shares(levels)}, pairs=True)
    return folded


def ramp(first: float, last: float) -> Any:
    return lambda step: float(np.interp(step, [30, 90], [first, last]))


CASES: dict[str, tuple[Any, Any, Any, dict[str, Any], bool]] = {
    "for nothing": (ramp(0.12, 0.12), ramp(0.2, 0.9), ramp(0.0, 0.0), {}, True),
    "gold fell": (ramp(0.4, 0.2), ramp(0.2, 0.9), ramp(0.0, 0.0), {}, True),
    "honest": (ramp(0.3, 0.7), ramp(0.2, 0.9), ramp(0.0, 0.0), {}, False),
    "solved prompts left the pairs": (ramp(0.12, 0.12), ramp(0.2, 0.9), ramp(0.0, 0.5), {}, False),
    "half of the labels are missing": (ramp(0.12, 0.12), ramp(0.2, 0.9), ramp(0.0, 0.0), {"missing": 0.5}, False),
    "prompts were not counted": (ramp(0.12, 0.12), ramp(0.2, 0.9), None, {}, False),
    "few labels": (ramp(0.12, 0.12), ramp(0.2, 0.9), ramp(0.0, 0.0), {"pairs": 2}, False),
    "no gain of the reward": (ramp(0.12, 0.12), ramp(0.2, 0.2), ramp(0.0, 0.0), {}, False),
}


@pytest.mark.parametrize("name", CASES)
def test_only_a_gain_for_nothing_is_hollow(name: str) -> None:
    gold, paid, dead, more, is_hollow = CASES[name]
    gain = fold(gold, paid, dead, **more).gain()
    assert (gain is not None and gain.is_hollow) is is_hollow, gain
    assert gain is None or gain.by_pairs


def test_whole_prompts_are_preferred_to_pairs() -> None:
    folded = fold(ramp(0.3, 0.3), ramp(0.2, 0.9), ramp(0.0, 0.0))
    folded.add(0, 200, {"gold.answers": [0.5, 8, 0.1]})
    assert folded.gain() is None


@pytest.mark.parametrize("unknown", [0.0, 1.0])
def test_the_interval_covers_gold_of_all_prompts_whatever_those_without_a_pair_have(unknown: float) -> None:
    missed, runs = 0, 100
    for seed in range(runs):
        rng, windows, truth = np.random.default_rng(seed), MeanWindows(0.1), []
        folded = AgreementAndGain(all_by_pairs=windows)
        for step in range(40):
            dead, live = rng.uniform(0.0, 0.6), 0.4
            truth.append((1.0 - dead) * live + dead * unknown)
            levels = rng.binomial(2, live, 4) / 2
            folded.add(0, step, {"reward.dead_share": [dead, 32, 0.0]})
            folded.add(0, step, {"gold.slope": [0.0, 4, 0.0, [0.0] * 4], "gold.level": shares(levels)}, pairs=True)
        window = windows.current
        _, low, high = window.interval(0.1)
        missed += not low <= np.mean(truth[window.first : window.last + 1]) <= high
    assert missed <= 10
