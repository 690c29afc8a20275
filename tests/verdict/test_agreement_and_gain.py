"""Agreement and level: what they count, what they leave out, and that only a gain for nothing is called hollow."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.records import Alarm
from tiltmeter.verdict.agreement_and_gain import GROUPS, PAIRS, AgreementAndGain
from tiltmeter.verdict.checks import CHECKS, HealthCheck
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import Advice
from tiltmeter.verdict.verdict import decide, read_agreement_and_gain

Readings = dict[str, list[Any]]


def shares(values: np.ndarray, answers: int = 1) -> list[Any]:
    return [float(values.mean()), answers * len(values), float(values.std(ddof=1) / np.sqrt(len(values)))]


def step_readings(
    rng: np.random.Generator, gold: float, paid: float, agreement: float = 0.8, rows: int = 32
) -> Readings:
    """One step of prompts with eight answers each; `paid` is the chance of a reward of 1, which begins at 0.2."""
    golds = rng.binomial(8, gold, rows) / 8
    wins = 0.4 + 0.5 * rng.binomial(8, paid, rows) / 8
    return {
        "group.size": [8.0, rows, 0.0],
        "gold.agreement": shares(rng.binomial(8, agreement, rows) / 8),
        "gold.prompts": [*shares(golds, 8), golds.tolist()],
        "reward.win_share": shares(wins, 8),
    }


def fold(gold: Any, paid: Any, steps: int = 100, **more: Any) -> AgreementAndGain:
    rng, folded = np.random.default_rng(0), AgreementAndGain()
    for step in range(steps):
        folded.add(0, step, step_readings(rng, gold(step), paid(step), **more))
    return folded


def ramp(first: float, last: float) -> Any:
    return lambda step: float(np.interp(step, [20, 60], [first, last]))


def test_agreement_can_be_read_at_step_five_and_names_its_window() -> None:
    early = fold(ramp(0.4, 0.4), ramp(0.2, 0.2), steps=5).agreement()
    assert early is not None and early.low <= 0.8 <= early.high and early.low > 0.6
    assert (early.first, early.last, early.n, early.of) == (0, 4, 160, GROUPS)
    late = fold(ramp(0.4, 0.4), ramp(0.2, 0.2), agreement=0.5, rows=16).agreement()
    assert late is not None and (late.first, late.last) == (60, 99) and late.high < 0.6


def test_agreement_of_audited_pairs_is_the_sign_of_their_bets_and_ties_say_nothing() -> None:
    folded = AgreementAndGain()
    us = [0.5, 0.2, -0.1, 0.0]
    folded.add(0, 3, {"gold.slope": [0.15, 4, 0.1, us], "gold.level": [0.5, 4, 0.1]}, pairs=True)
    agreement = folded.agreement()
    assert agreement is not None and (agreement.n, agreement.of) == (3, PAIRS)
    assert agreement.share == pytest.approx(2 / 3)
    column = AgreementAndGain()
    column.add(0, 3, {"gold.slope": [0.15, 4, 0.1, us]})
    assert column.agreement() is None, "a slope of whole groups is no pair"


def test_labels_that_never_came_lower_the_low_end_and_no_other() -> None:
    whole, torn = AgreementAndGain(), AgreementAndGain()
    for step in range(40):
        us = {"gold.slope": [0.4, 4, 0.1, [0.5, 0.5, 0.5, -0.5]]}
        whole.add(0, step, {**us, "gold.level": [0.5, 4, 0.1]}, pairs=True)
        torn.add(0, step, {**us, "gold.level": [0.5, 3, 0.1]}, pairs=True)
    sure, unsure = whole.agreement(), torn.agreement()
    assert sure is not None and unsure is not None
    assert unsure.low < sure.low - 0.15 and unsure.high == sure.high


def test_a_run_that_goes_back_starts_a_window_and_late_labels_of_the_old_attempt_are_left_out() -> None:
    rng, folded = np.random.default_rng(0), AgreementAndGain()
    for step in range(80):
        folded.add(0, step, step_readings(rng, 0.7, 0.2))
    folded.add(1, 50, step_readings(rng, 0.3, 0.2, agreement=0.2))
    folded.add(0, 79, step_readings(rng, 0.7, 0.2, agreement=1.0))
    agreement = folded.agreement()
    assert agreement is not None and (agreement.first, agreement.n) == (50, 32) and agreement.share < 0.4


def test_the_reward_that_gained_for_nothing_is_hollow_and_others_are_not() -> None:
    cases = {
        "for nothing": (ramp(0.05, 0.05), ramp(0.2, 0.7), True),
        "in the middle": (ramp(0.45, 0.45), ramp(0.2, 0.7), True),
        "gold fell": (ramp(0.4, 0.2), ramp(0.2, 0.7), True),
        "honest": (ramp(0.2, 0.7), ramp(0.2, 0.7), False),
        "a little": (ramp(0.2, 0.3), ramp(0.2, 0.7), False),
        "no gain of the reward": (ramp(0.05, 0.05), ramp(0.2, 0.2), False),
        "at the ceiling": (ramp(0.95, 0.97), ramp(0.2, 0.7), False),
    }
    for name, (gold, paid, is_hollow) in cases.items():
        gain = fold(gold, paid).gain()
        assert (gain is not None and gain.is_hollow) is is_hollow, (name, gain)


def test_another_reward_begins_anew() -> None:
    folded = fold(ramp(0.05, 0.05), ramp(0.2, 0.7))
    folded.change_reward()
    assert folded.agreement() is None and folded.gain() is None


def test_two_curves_are_enough_and_an_honest_pair_of_them_is_not_hollow() -> None:
    rng = np.random.default_rng(0)
    for honest in (False, True):
        folded = AgreementAndGain()
        for step in range(35):
            proxy = float(np.interp(step, [5, 30], [0.2, 0.65])) + 0.02 * rng.normal()
            truth = proxy if honest else 0.002
            folded.add(0, step, {"training.reward": [proxy, 1, None]})
            folded.add(0, step, {"eval.score": [rng.binomial(512, truth) / 512, 512, None]})
        gain = folded.gain()
        assert gain is not None and gain.by_curve and gain.is_hollow is not honest


@pytest.mark.parametrize("broken", [None, "0.5", {"value": None, "flag": "nan"}, float("nan"), -3.0, 7.0])
def test_readings_that_are_no_numbers_are_no_reading_and_no_crash(broken: Any) -> None:
    folded = AgreementAndGain()
    for at in range(3):
        packed: list[Any] = [0.5, 8, 0.1]
        packed[at] = broken
        folded.add(0, at, {"gold.agreement": packed, "eval.x": packed, "gold.level": packed})
        folded.add(0, at, {"gold.prompts": [0.5, 8, 0.1, [0.5, broken]], "training.reward": packed})
        folded.add(0, at, {"gold.slope": [0.5, 8, 0.1, [0.5, broken]], "gold.level": packed}, pairs=True)
        folded.add(0, at, {"reward.win_share": packed, "group.size": packed})
    assert folded.gain() is None
    assert folded.agreement() is not None


@cache
def hollow_state() -> RunFacts:
    return RunFacts(agreement_and_gain=fold(ramp(0.05, 0.05), ramp(0.2, 0.7)), gold_differs=True)


def test_hollow_comes_after_an_alarm_a_stale_run_and_a_fall_of_gold_and_before_everything_else() -> None:
    """Whatever the nine checks say: a state of its own, never calm, with its own exit code and the advice to stop."""
    raised = Alarm(0, "gold.slope", "gold_loss", "alarm", "down", 30, 30, 10, 8, 12, 9.0, 5.0, summary="it fell")
    for counts in product([True, False], repeat=9):
        checks = {name: HealthCheck(ok, f"about {name}") for name, ok in zip(CHECKS, counts, strict=True)}
        go_on, stop = (Advice(word, "why", None, None, "gold.mean") for word in ("continue", "stop"))
        verdict = decide(checks, [], [], hollow_state(), go_on)
        assert verdict.advice is not None
        if counts[0] and counts[1]:
            assert (verdict.state, verdict.exit_code, verdict.advice.word) == ("HOLLOW", 3, "stop")
            assert verdict.sentence.startswith("what was gained is not worth anything: ")
            assert decide(checks, [], [], hollow_state(), stop).state == "WATCH"
        else:
            assert (verdict.state, verdict.exit_code) == ("STALE", 2)
        assert decide(checks, [raised], [], hollow_state(), go_on).exit_code == 1
        assert verdict.agreement is not None


def test_a_reward_that_is_gold_itself_agrees_with_itself_and_that_says_nothing() -> None:
    checks = {name: HealthCheck(name != "gold", f"about {name}") for name in CHECKS}
    verdict = decide(checks, [], [], RunFacts(agreement_and_gain=hollow_state().agreement_and_gain))
    assert verdict.agreement is None and verdict.state == "BLIND"


def test_agreement_of_an_earlier_policy_is_not_shown_as_that_of_now() -> None:
    for last_step, is_shown in ((20, True), (200, False)):
        run_facts = RunFacts(attempts={0: {}}, gold_differs=True, last_measured={0: last_step})
        run_facts.agreement_and_gain.add(0, 15, {"gold.slope": [0.5, 4, 0.1, [0.5, 0.5, -0.5, 0.5]]}, pairs=True)
        assert (read_agreement_and_gain(run_facts)[0] is not None) is is_shown
