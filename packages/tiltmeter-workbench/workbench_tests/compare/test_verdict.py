"""The verdict: the two anchors of common sense, their borders, and the sentence that is pasted."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tiltmeter_workbench.compare.measures.measure import Measure, not_asked
from tiltmeter_workbench.compare.verdict import DRIFT, verdict


def wins(rate: float, low: float, high: float, name: str = "win_rate") -> Measure:
    state: Any = "better" if low > 0.5 else "worse" if high < 0.5 else "cannot tell"
    shown: Any = state if name == "win_rate" else "shown"
    cost = "quality" if name == "win_rate" else ""
    return Measure(
        name, "Wins", shown, f"It wins {rate:.0%}.", cost, checkpoint=rate, low=low - 0.5, high=high - 0.5, n=200
    )


def kl(nats: float) -> Measure:
    return Measure("kl", "KL from base", "shown", f"{nats} nats.", checkpoint=nats, difference=nats)


def cost(name: str) -> Measure:
    return Measure(name, name.capitalize(), "worse", f"{name} got worse.", cost=name)


def test_two_nats_with_55_percent_of_wins_is_healthy() -> None:
    for low, high in ((0.45, 0.65), (0.51, 0.59)):
        found = verdict([wins(0.55, low, high), kl(2.0)])
        assert (found.state, found.exit_code, found.costs) == ("healthy", 0, ())
    assert "55.0 % wins" in found.line
    assert "2 nats" in found.line


def test_too_few_pairs_to_exclude_being_beaten_are_not_green() -> None:
    found = verdict([wins(0.55, 0.24, 0.75), kl(2.0)])
    assert (found.state, found.exit_code) == ("cannot tell", 2)
    assert "so few pairs" in found.sentence
    assert verdict([wins(0.55, 0.26, 0.75), kl(2.0)]).state == "healthy"


@pytest.mark.parametrize(("rate", "low", "high"), [(0.5, 0.4, 0.6), (0.55, 0.45, 0.65), (0.3, 0.2, 0.4)])
def test_above_a_hundred_nats_without_wins_is_drift(rate: float, low: float, high: float) -> None:
    found = verdict([wins(rate, low, high), kl(150.0)])
    assert (found.state, found.exit_code) == ("drift", 1)


def test_far_from_base_with_wins_is_no_drift() -> None:
    assert verdict([wins(0.7, 0.62, 0.78), kl(150.0)]).state == "healthy"


def test_a_hundred_nats_are_the_border() -> None:
    even = wins(0.5, 0.4, 0.6)
    assert verdict([even, kl(DRIFT)]).state == "healthy"
    assert verdict([even, kl(math.nextafter(DRIFT, math.inf))]).state == "drift"


def test_wins_that_turn_into_losses_at_equal_length_do_not_pay_for_the_way() -> None:
    raw = wins(0.7, 0.62, 0.78)
    lost = wins(0.3, 0.2, 0.4, "win_rate_length_controlled")
    assert verdict([raw, lost, kl(150.0)]).state == "drift"
    even = wins(0.5, 0.4, 0.6, "win_rate_length_controlled")
    told = verdict([raw, even, kl(150.0)])
    assert told.state == "healthy"
    assert "At equal length the wins are not shown" in told.sentence


def test_losses_that_are_shown_are_a_cost_of_quality() -> None:
    found = verdict([wins(0.4, 0.33, 0.47), kl(2.0)])
    assert (found.state, found.costs, found.exit_code) == ("costs", ("quality",), 1)


def test_losses_that_may_be_chance_are_not_called_healthy() -> None:
    found = verdict([wins(0.42, 0.16, 0.74), kl(2.0)])
    assert (found.state, found.exit_code) == ("cannot tell", 2)
    assert "42.0 % wins" in found.sentence and "more prompts" in found.sentence
    assert verdict([wins(0.46, 0.3, 0.62), kl(2.0)]).state == "healthy"


def test_every_cost_is_named_once_and_costs_are_known_without_a_judge() -> None:
    found = verdict([wins(0.6, 0.52, 0.68), kl(5.0), cost("sycophancy"), cost("verbosity"), cost("verbosity")])
    assert (found.state, found.costs) == ("costs", ("sycophancy", "verbosity"))
    assert found.line.startswith("Costs: sycophancy and verbosity.")
    alone = verdict([kl(5.0), not_asked("win_rate", "Wins", "Give --judge."), cost("capability")])
    assert (alone.state, alone.costs) == ("costs", ("capability",))


def test_drift_names_what_else_it_costs() -> None:
    found = verdict([wins(0.4, 0.33, 0.47), kl(300.0), cost("diversity")])
    assert (found.state, found.costs) == ("drift", ("quality", "diversity"))
    assert "It also costs quality and diversity" in found.sentence


@pytest.mark.parametrize("nats", [2.0, 150.0])
def test_without_a_judge_nobody_can_tell(nats: float) -> None:
    for judged in ([], [not_asked("win_rate", "Wins", "Give --judge.")]):
        found = verdict([*judged, kl(nats)])
        assert (found.state, found.exit_code) == ("cannot tell", 2)
        assert "--judge" in found.sentence
        assert ("whether that bought anything" in found.sentence) == (nats > DRIFT)


def test_a_judge_that_could_not_decide_says_why() -> None:
    few = Measure("win_rate", "Wins", "cannot tell", "3 of 40 pairs were judged.", "quality", n=3)
    found = verdict([few, kl(2.0)])
    assert (found.state, found.exit_code) == ("cannot tell", 2)
    assert "3 of 40" in found.sentence


def test_what_rests_on_a_model_says_so() -> None:
    measures = [wins(0.55, 0.45, 0.65), kl(2.0)]
    assert "(about this judge)" in verdict(measures, opinion=True).sentence
    assert "about this judge" not in verdict(measures).sentence


def test_healthy_says_what_stays_open() -> None:
    open_ = Measure("refusal", "Harmless prompts refused", "cannot tell", "Too few.", cost="over_refusal")
    assert "Cannot tell: Harmless prompts refused." in verdict([wins(0.55, 0.45, 0.65), open_]).sentence
