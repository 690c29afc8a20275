"""A test for each slice: one that loses gold is named, a healthy one is not, and nothing is paid for one slice."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import product
from math import exp, log
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tiltmeter.data.records import SHARED_STEP, Alarm, Reading
from tiltmeter.data.slices import bets_by_slice, label_key, slice_parts
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.slice_tests import LEVEL_TESTED, MOST_TESTED, SLICE_SHARE, SliceTests, slice_weight
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.overpay import REFERENCE_PART

Bets = dict[str, tuple[float, ...]]  # by slice


def bets(step: int, us: Bets, attempt: int = 0, table: str = "gold.slope") -> Reading:
    values = tuple(u for part in us.values() for u in part)
    slices = tuple((name, len(part)) for name, part in us.items())
    return Reading(attempt, step, f"slices.{table}", float(np.mean(values)), len(values), None, values, slices=slices)


def of_all(step: int, us: Bets, attempt: int = 0) -> Reading:
    values = tuple(u for part in us.values() for u in part)
    return Reading(attempt, step, "gold.slope", float(np.mean(values)), len(values), None, values)


def play(test: GoldLossTest, steps: list[Bets], first: int = 0) -> list[Alarm]:
    raised = []
    for step, us in enumerate(steps, first):
        raised += [alarm for alarm in [test.update(of_all(step, us))] if alarm]
        raised += test.update_slices(bets(step, us))
    return raised


GOOD, BAD = (0.5, 0.3), (-0.6, -0.4)


def turning(slices: int, steps: int, turn: int, bad: tuple[str, ...] = ("s0",)) -> list[Bets]:
    names = [f"s{number}" for number in range(slices)]
    return [{name: BAD if step >= turn and name in bad else GOOD for name in names} for step in range(steps)]


def test_the_slice_that_turns_is_named_with_its_own_onset_and_the_run_is_not_alarmed() -> None:
    (raised,) = play(GoldLossTest(), turning(20, 80, 40))
    assert (raised.name, raised.tier, raised.detector, raised.onset) == ("env.s0.gold.slope", "alarm", "gold_loss", 40)
    assert raised.summary.startswith("in environment s0 the reward pushes gold down since about step 40 (odds ")
    assert "a healthy slice is ever named with chance at most 0.0028)" in raised.summary
    assert raised.step < 70
    assert play(GoldLossTest(), turning(20, 80, 80)) == []


def test_several_slices_stand_at_once_also_beside_an_alarm_on_the_run() -> None:
    test = GoldLossTest()
    raised = play(test, turning(3, 90, 30, bad=("s0", "s1", "s2")))
    assert {alarm.name for alarm in raised} == {"gold.slope", *(f"env.s{k}.gold.slope" for k in range(3))}
    assert test.standing is not None and len(test.standing_slices) == 3
    dismissed = test.dismiss_slice("env.s1.gold.slope", 90)
    assert dismissed.resolved == 90 and len(test.standing_slices) == 2 and test.standing is not None
    assert [alarm.name for alarm in test.rewind_slices(1, 10)] == ["env.s0.gold.slope", "env.s2.gold.slope"]
    again = play(test, turning(3, 60, 0, bad=("s1",)), first=91)
    assert [alarm.name for alarm in again] == ["env.s1.gold.slope"]
    assert again[0].threshold > raised[-1].threshold + log(7.0)  # a second arming has less than a tenth of it


def test_one_slice_costs_nothing_and_a_second_one_costs_the_run_a_part_of_its_bound() -> None:
    def first_alarm(slices: int) -> Alarm:
        test = GoldLossTest()
        us = [(0.3,) * 8] * 20 + [(-0.3,) * 8] * 60
        for step, part in enumerate(us):
            if slices:
                test.update_slices(bets(step, {f"s{k}": part[k::slices] for k in range(slices)}))
            alarm = test.update(of_all(step, {"": part}))
            if alarm is not None:
                return alarm
        raise AssertionError("no alarm")

    assert first_alarm(0) == first_alarm(1)
    assert first_alarm(2).threshold == pytest.approx(first_alarm(0).threshold - log(1.0 - SLICE_SHARE))


def test_shares_are_fixed_at_first_sight_and_never_more_than_all() -> None:
    tests, shares = SliceTests(), {}

    def make(name: str, alpha: float) -> GoldLossTest:
        shares[name] = alpha
        return GoldLossTest(alpha)

    def see(step: int, names: list[str]) -> None:
        tests.update(bets(step, dict.fromkeys(names, (0.1,))), lambda: 0.01, make)

    see(0, ["first"])
    assert tests.alpha == 0.0 and not shares
    see(1, [f"s{k}" for k in range(20)])
    assert tests.alpha == pytest.approx(SLICE_SHARE * 0.01)
    assert set(shares.values()) == {slice_weight(0, 20) * tests.alpha}
    before = dict(shares)
    for k in range(200):
        see(2 + k, ["first", f"late{k}"])
    assert {name: shares[name] for name in before} == before
    assert sum(shares.values()) < tests.alpha
    assert shares["late199"] > tests.alpha / 10_000


def test_what_the_run_has_lost_or_spent_is_not_given_to_slices() -> None:
    test = GoldLossTest()
    for step in range(60):
        test.update(of_all(step, {"": (0.0, 0.9, -0.9)}))
    money = exp(min(test.evidence, 0.0))
    test.update_slices(bets(60, {"a": (0.1,), "b": (0.1,)}))
    assert test._slices.alpha == pytest.approx(SLICE_SHARE * 0.0095 * money) and money < 1.0

    spent = GoldLossTest()
    play_alone = [of_all(step, {"": BAD}) for step in range(60)]
    assert any(spent.update(reading) for reading in play_alone)
    spent.update_slices(bets(60, {"a": (0.1,), "b": (0.1,)}))
    assert spent._slices.alpha == pytest.approx(SLICE_SHARE * 0.0015)  # of what later armings may spend


def test_the_money_of_a_slice_does_not_grow_at_the_edge_of_the_null_whatever_another_does() -> None:
    """Exactly, over all outcomes of seven fair bets of one slice, while the other one loses all the time."""
    total = 0.0
    for us in product((-1.0, 1.0), repeat=7):
        test = GoldLossTest(alpha=1e-9)
        for step, u in enumerate(us):
            test.update_slices(bets(step, {"bad": (-1.0,), "fair": (u,)}))
        total += exp(test.slice_evidence()["fair"]) / 2**7
    assert total == pytest.approx(1.0, abs=1e-12)


def test_two_rollouts_many_slices_and_late_ones() -> None:
    test = GoldLossTest()
    for step in range(40):  # new ones at every step, each seen once
        test.update_slices(bets(step, {f"once{step}-{k}": (-1.0,) for k in range(120)}))
    assert len(test.slice_evidence()) == MOST_TESTED and test.standing_slices == []
    assert any(one.about == "slices" and one.holds is False for one in test.assumptions())

    late = GoldLossTest()
    for step in range(30):
        late.update_slices(bets(step, {f"s{k}": GOOD for k in range(10)}))
    raised = [alarm for step in range(30, 80) for alarm in late.update_slices(bets(step, {"late": BAD, "s0": GOOD}))]
    assert [alarm.name for alarm in raised] == ["env.late.gold.slope"] and raised[0].onset == 30


def test_the_level_of_a_slice_is_tested_for_the_first_slices() -> None:
    test, rng = GoldLossTest(), np.random.default_rng(0)
    raised = []
    for step in range(90):
        names = [f"s{k:02}" for k in range(LEVEL_TESTED + 1)]
        low = step >= 40
        gold = {name: rng.binomial(8, 0.2 if low and name in ("s00", names[-1]) else 0.7, 4) / 8 for name in names}
        values = tuple(float(one) for part in gold.values() for one in part)
        keys = tuple(100 * k + prompt for k in range(len(names)) for prompt in range(4))
        mean, slices = float(np.mean(values)), tuple((name, 4) for name in names)
        reading = Reading(0, step, "slices.gold.prompts", mean, 8 * len(values), None, values, "", keys, slices)
        raised += test.update_slices(reading)
    assert [alarm.name for alarm in raised] == ["env.s00.gold.prompts"]
    assert "in environment s00 gold has fallen since about step 4" in raised[0].summary


def test_rows_that_a_resume_makes_again_count_once() -> None:
    def evidence(repeat: bool) -> float:
        rng, test = np.random.default_rng(1), GoldLossTest(alpha=1e-9)
        steps = [{f"s{k}": tuple(rng.normal(-0.1, 0.3, 4).clip(-1, 1)) for k in range(4)} for _ in range(30)]
        play(test, steps)
        test.rewind(1, 0)
        test.rewind_slices(1, 0)
        for step, us in enumerate(steps if repeat else []):
            test.update(of_all(step, us, attempt=1))
            test.update_slices(bets(step, us, attempt=1))
        return test.slice_evidence()["s0"]

    assert evidence(repeat=True) == evidence(repeat=False)


def test_a_reading_is_divided_as_it_was_put_together() -> None:
    made = bets_by_slice(of_all(3, {"": (0.0,)}), [0.1, 0.2, float("nan"), 0.4], ["a", "b", "a", ""])
    assert made is not None and made.slices == (("a", 1), ("b", 1))
    assert [(name, part.name, part.values) for name, part in slice_parts(made)] == [
        ("a", "gold.slope", (0.1,)),
        ("b", "gold.slope", (0.2,)),
    ]
    many = bets_by_slice(of_all(3, {"": (0.0,)}), [float(k % 2) for k in range(4_000)], ["a", "b"] * 2_000)
    assert many is not None and many.slices == (("a", 8), ("b", 8)) and set(many.values) == {0.0, 1.0}


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import gold_auto_slices as module  # benchmarks are scripts, not a package

    yield module
    for name in ("gold_auto_slices", "real_logs", "record"):
        sys.modules.pop(name, None)


def test_environments_that_were_hacked_are_named_in_a_real_run_and_honest_ones_are_not(measured: ModuleType) -> None:
    if not (measured.DATA / measured.RUN).is_dir():
        pytest.skip(f"the judged rollouts by environment are not at {measured.DATA / measured.RUN}")
    figures = measured.real_run()
    assert figures["slices_named"] == 2
    for way in ("slices_by_gold", "slices_by_hack"):
        assert figures[way].keys() >= measured.HACKED and not measured.HONEST & figures[way].keys()


def test_one_slice_of_twenty_is_found_at_a_small_multiple_of_its_labels(measured: ModuleType) -> None:
    found = measured.one_of_twenty(0)
    assert found["named"] <= 3 * found["alone"] and found["run"] is None


def overpaid(step: int, means: dict[str, float], rng: np.random.Generator, against: str = "start") -> Reading:
    """Four groups of eight 0/1 answers a slice."""
    values = tuple(float(x) for mean in means.values() for x in rng.binomial(8, mean, 4) / 8)
    whose, keys = tuple((name, 4) for name in means), (label_key(8, 0),) * len(values)
    mean = float(np.mean(values))
    return Reading(0, step, "slices.gold.overpay", mean, len(values), None, values, against, keys, whose)


def test_the_slice_whose_wrong_answers_are_paid_is_named_and_its_reference_costs_a_part_of_its_bound() -> None:
    test, rng = GoldLossTest(), np.random.default_rng(0)
    names = [f"s{k:02}" for k in range(LEVEL_TESTED + 2)]
    raised = []
    for step in range(60):
        means = {name: 0.7 if step >= 40 and name in ("s01", names[-1]) else 0.05 for name in names}
        raised += test.update_slices(overpaid(step, means, rng))
    assert sorted(alarm.name for alarm in raised) == ["env.s01.gold.overpay", f"env.{names[-1]}.gold.overpay"]
    assert raised[0].summary.startswith("in environment s01 wrong answers are paid since about step 4")
    assert all(38 <= alarm.onset <= 41 and alarm.step <= 48 for alarm in raised)
    share = alpha_share(slice_weight(0, len(names)) * test._slices.alpha, 1)
    assert raised[0].threshold == pytest.approx(-log(share * (1.0 - REFERENCE_PART)))


def test_overpay_is_bet_on_by_slice_and_not_for_the_run() -> None:
    test, rng = GoldLossTest(), np.random.default_rng(0)
    for step in range(60):
        test.update_slices(overpaid(step, {"only": 0.05 if step < 30 else 0.9}, rng))
    assert test.evidence == 0.0 and test.standing_slices == [] and "gold.overpay" not in test.watches


def test_opinions_about_overpay_are_one_bet_a_step_with_a_longer_reference() -> None:
    named = {}
    for against in ("start", SHARED_STEP):
        test, rng = GoldLossTest(), np.random.default_rng(0)
        readings = [overpaid(step, {"a": 0.05 if step < 70 else 0.9, "b": 0.05}, rng, against) for step in range(110)]
        named[against] = [alarm.step for reading in readings for alarm in test.update_slices(reading)]
    assert len(named["start"]) == len(named[SHARED_STEP]) == 1
    assert named["start"][0] + 5 < named[SHARED_STEP][0]
