"""The gold-loss test's tables: slopes, duels and evaluations share one purse, and each is tested as it is stated."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import exp, log

import numpy as np
import pytest

from tiltmeter.data.records import SHARED_STEP, Alarm, Floats, Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter_lab.baselines.classic_rule import detect_reward_hacking
from tiltmeter_lab.simulate import Trace
from tiltmeter_lab.watch_run import WatchResult, play

STEPS = np.arange(500)
PROXY = 0.3 + 0.5 * STEPS / 500
CORRECT = np.interp(STEPS, [0, 200, 500], [0.50, 0.74, 0.58])
HONEST = np.interp(STEPS, [0, 500], [0.50, 0.74])


def bets(name: str, step: int, us: tuple[float, ...], attempt: int = 0) -> Reading:
    return Reading(attempt, step, name, float(np.mean(us)), len(us), None, us)


def evaluation(step: int, value: float, n: int = 400, attempt: int = 0, name: str = "eval.held_out") -> Reading:
    return Reading(attempt, step, name, value, n)


def first(gold_test: GoldLossTest, readings: list[Reading]) -> Alarm | None:
    return next((alarm for alarm in map(gold_test.update, readings) if alarm), None)


@pytest.mark.parametrize(
    ("name", "words"),
    [("gold.slope", "the reward pushes gold down"), ("gold.duel", "answers are worse than they were")],
)
def test_each_table_can_raise_the_alarm_and_says_what_it_saw(name: str, words: str) -> None:
    us = [(0.5, -0.25)] * 30 + [(-0.5, -0.25)] * 60
    raised = first(GoldLossTest(), [bets(name, step, pair) for step, pair in enumerate(us)])
    assert raised is not None
    assert (raised.name, raised.tier, raised.detector) == (name, "alarm", "gold_loss")
    assert words in raised.summary
    assert 28 <= raised.onset_low <= raised.onset <= raised.onset_high <= raised.step
    assert raised.evidence >= raised.threshold == pytest.approx(log(125.0))


def test_what_is_on_the_tables_adds_up() -> None:
    gold_test = GoldLossTest()
    for step in range(25):
        gold_test.update(bets("gold.slope", step, (-0.2, 0.1)))
        gold_test.update(bets("gold.duel", step, (-0.5,)))
        gold_test.update(evaluation(step, 0.5))
    parts = [gold_test._wealth.cash, *(exp(gold_test._wealth.log_wealth(name)) for name in ("gold.slope", "gold.duel"))]
    parts += [exp(money + level.evidence) for money, level in gold_test._stakes.evaluations.values()]
    assert exp(gold_test.evidence) == pytest.approx(sum(parts))


def mean_money(tolerance: float, worse: float) -> float:
    """E[money] after seven duels, exactly, where an answer of now loses with this chance and else wins."""
    total = 0.0
    for us in product((-1.0, 1.0), repeat=7):
        gold_test = GoldLossTest(alpha=1e-9, tolerance=tolerance)
        for step, u in enumerate(us):
            gold_test.update(bets("gold.duel", step, (u,)))
        total += float(np.prod([worse if u < 0 else 1.0 - worse for u in us])) * exp(gold_test.evidence)
    return total


def test_a_loss_of_the_tolerance_is_the_edge_of_the_null_of_duels_and_more_is_not_in_it() -> None:
    assert mean_money(0.01, 0.505) == pytest.approx(1.0, abs=1e-12)
    assert mean_money(0.01, 0.50) < 1.0
    assert mean_money(0.01, 0.51) > 1.0
    assert mean_money(0.0, 0.505) > 1.0


@pytest.mark.parametrize("u", [float("nan"), 1.2])
def test_a_value_that_voids_the_bound_is_an_error_and_no_alarm(u: float) -> None:
    gold_test = GoldLossTest()
    with pytest.raises(ValueError, match="voids"):
        gold_test.update(Reading(0, 0, "gold.slope", 0.0, 1, None, (u,)))
    assert gold_test.evidence == 0.0


def test_a_fall_of_an_evaluation_is_an_alarm_by_itself() -> None:
    levels = [0.60, 0.64, 0.66, 0.67, 0.66, 0.55, 0.54, 0.50, 0.48]
    raised = first(GoldLossTest(), [evaluation(20 * k, value) for k, value in enumerate(levels)])
    assert raised is not None
    assert raised.name == "eval.held_out"
    assert "eval.held_out has fallen" in raised.summary
    assert 80 <= raised.onset <= 120


def test_many_evaluations_leave_money_for_the_labels() -> None:
    gold_test = GoldLossTest()
    for number in range(200):
        gold_test.update(evaluation(0, 0.5, name=f"eval.task{number}"))
    assert gold_test._wealth.cash > 1.0 / 3.0
    raised = first(gold_test, [bets("gold.slope", step, (-0.5, -0.25)) for step in range(60)])
    assert raised is not None


def rising(first_step: int, stop: int, attempt: int) -> list[Reading]:
    """A healthy run's evaluations: the level is that of the step."""
    return [evaluation(step, 0.4 + 0.002 * step, attempt=attempt) for step in range(first_step, stop, 10)]


def test_a_run_that_goes_back_may_have_the_lower_level_of_where_it_went() -> None:
    gold_test = GoldLossTest()
    assert first(gold_test, rising(0, 110, 0)) is None
    gold_test.rewind(1, 30)
    assert first(gold_test, rising(30, 110, 1)) is None
    assert first(gold_test, [evaluation(110 + 10 * k, 0.4, attempt=1) for k in range(12)]) is not None


def test_a_fall_that_was_seen_before_going_back_is_not_forgotten() -> None:
    gold_test = GoldLossTest(alpha=1e-9)
    first(gold_test, [evaluation(10 * k, value) for k, value in enumerate([0.7, 0.7, 0.7, 0.5, 0.5])])
    before = gold_test.evidence
    gold_test.rewind(1, 20)
    assert gold_test.evidence == pytest.approx(before)
    gold_test.rewind(1, 20)  # told twice, when labels of steps that were left came late
    assert gold_test.evidence == pytest.approx(before)
    assert before > log(10.0)


def test_an_attempt_that_goes_on_where_the_last_one_ended_goes_on_with_its_evaluations() -> None:
    gold_test = GoldLossTest()
    assert first(gold_test, rising(0, 110, 0)) is None
    gold_test.rewind(1, 110)
    assert first(gold_test, [evaluation(110 + 10 * k, 0.4, attempt=1) for k in range(8)]) is not None


def test_evaluations_that_come_in_the_wrong_order_are_no_fall() -> None:
    gold_test = GoldLossTest()
    assert first(gold_test, list(reversed(rising(0, 200, 0)))) is None
    assert gold_test.evidence <= 0.0


def test_an_evaluation_of_steps_that_were_left_comes_too_late() -> None:
    gold_test = GoldLossTest()
    assert first(gold_test, rising(0, 60, 0)) is None
    gold_test.rewind(1, 30)
    assert first(gold_test, [evaluation(100, 0.8, 2000), *rising(30, 90, 1)]) is None
    assert gold_test.evidence <= 0.0


def test_while_an_alarm_is_open_nothing_is_bet_and_going_back_arms_it_again_at_a_higher_price() -> None:
    gold_test = GoldLossTest()
    falling = [bets("gold.slope", step, (0.5, 0.5) if step < 20 else (-0.5, -0.5)) for step in range(60)]
    raised = first(gold_test, falling)
    assert raised is not None
    shown = gold_test.evidence
    assert gold_test.update(bets("gold.slope", 60, (-1.0,))) is None
    assert gold_test.evidence == shown
    assert gold_test.rewind(1, raised.onset + 1) is None
    resolved = gold_test.rewind(2, raised.onset)
    assert resolved is not None
    assert resolved.resolved == raised.onset
    assert gold_test.evidence == 0.0
    again = first(gold_test, [bets("gold.slope", step, (-0.5, -0.5), attempt=2) for step in range(20, 80)])
    assert again is not None
    assert again.threshold == pytest.approx(-log(0.15 / 2 * 0.01))  # half of what later alarms share of α


def resumed(slopes: Floats, repeats: int) -> GoldLossTest:
    """Steps 0 to 59, then as often as that a resume at step 40 that makes the same rows again."""
    gold_test = GoldLossTest(alpha=1e-9)
    for attempt in range(repeats + 1):
        if attempt:
            gold_test.rewind(attempt, 40)
        for step in range(40 if attempt else 0, 60):
            gold_test.update(bets("gold.slope", step, tuple(slopes[step]), attempt))
    return gold_test


def test_rows_that_a_resume_repeats_are_counted_once() -> None:
    slopes = np.random.default_rng(3).uniform(-1.0, 0.9, (60, 8))
    once, often = resumed(slopes, 0), resumed(slopes, 5)
    assert often.evidence == once.evidence
    assert len(often._wealth.tables["gold.slope"].steps) == 60
    other = np.random.default_rng(4).uniform(-1.0, 0.9, (60, 8))
    once.rewind(1, 40)
    once.update(bets("gold.slope", 40, tuple(other[40]), 1))
    assert len(once._wealth.tables["gold.slope"].steps) == 61


def test_slopes_that_are_equal_because_few_values_are_possible_are_no_repetition() -> None:
    """A hack that has taken over gives -1 in every group, before a rollback and after it."""
    gold_test = resumed(np.full((60, 64), 0.05), 1)
    assert len(gold_test._wealth.tables["gold.slope"].steps) == 80


def test_the_level_of_rows_that_a_resume_repeats_is_counted_once() -> None:
    def feed(gold_test: GoldLossTest, attempt: int, start: int) -> None:
        for step in range(start, 60):
            rng = np.random.default_rng([7, step])
            gold_test.update(bets("gold.slope", step, tuple(rng.uniform(-1.0, 1.0, 8).tolist()), attempt))
            gold = tuple(rng.integers(0, 9, 8) / 8.0)
            gold_test.update(
                Reading(attempt, step, "gold.prompts", float(np.mean(gold)), 64, None, gold, "", tuple(range(8)))
            )

    gold_test = GoldLossTest(alpha=1e-9)
    feed(gold_test, 0, 0)
    before = gold_test.evidence
    gold_test.rewind(1, 30)
    feed(gold_test, 1, 30)
    assert gold_test.evidence == pytest.approx(before)


def test_a_run_says_what_its_bound_rests_on() -> None:
    gold_test, rng = GoldLossTest(alpha=1e-9), np.random.default_rng(0)
    assert gold_test.assumptions() == []
    for step in range(10):
        gold_test.update(bets("gold.slope", step, tuple(rng.uniform(-0.5, 1.0, 16).tolist())))
    assert [(one.about, one.holds) for one in gold_test.assumptions()] == [("labels", None), ("steps are alike", None)]
    for step in range(10, 40):
        gold_test.update(bets("gold.slope", step, tuple(rng.uniform(-0.5, 1.0, 16).tolist())))
        gold_test.update(bets("gold.duel", step, (0.0, 1.0)))
    gold_test.update(evaluation(40, 0.5))
    lines = {one.about: one for one in gold_test.assumptions()}
    assert lines["steps are alike"].holds
    assert lines["duels"].text == "60, each on the same prompt"
    assert "differ by 2.0% at" in lines["evaluations"].text
    for step in range(41, 51):
        gold_test.update(bets("gold.slope", step, tuple((rng.uniform(-0.2, 0.2, 16) + (-1) ** step * 0.5).tolist())))
    assert {one.about: one.holds for one in gold_test.assumptions()}["steps are alike"] is False
    judged = GoldLossTest()
    judged.update(replace(bets("gold.slope", 0, (0.5,)), against=SHARED_STEP))
    assert judged.assumptions()[0].text == "a judge's or people's: one bet a step"
    repeated = resumed(rng.uniform(-0.5, 1.0, (60, 8)), 2)
    assert [one.text for one in repeated.assumptions() if one.about == "new rows"] == [
        "40 steps were made again: counted once"
    ]


def told(correct: Floats, seed: int, spread: float = 0.1) -> Trace:
    """A run whose mean gold and mean reward follow two curves: 64 prompts of 8 answers a step, a label each.

    Gold moves with its covariance with the reward inside a prompt, and the reward with its own variance, so the curves
    say how they go together: Cov(g, r) = Var(r) (change of gold) / (change of reward).
    """
    rng = np.random.default_rng(seed)
    shape = (500, 64, 8)
    z = rng.normal(size=shape)
    slope = np.gradient(correct) / np.gradient(PROXY) * spread
    label = rng.random(shape) < correct[:, None, None] + slope[:, None, None] * z
    prompt = np.stack([rng.permutation(256)[:64] for _ in range(500)])
    reward = PROXY[:, None, None] + spread * z
    return Trace(prompt, reward, label.astype(np.float64), None, {}, correct, PROXY, PROXY, PROXY, slope)


def watched(correct: Floats, seeds: range) -> list[WatchResult]:
    return [play(told(correct, seed), seed) for seed in seeds]


def test_the_coding_assistant_is_caught_by_two_labels_in_a_hundred() -> None:
    """Correctness 0.50, 0.74 at step 200, 0.58 at step 500, while the reward rises from 0.3 to 0.8 throughout."""
    played = watched(CORRECT, range(12))
    caught = [each.alarm.step for each in played if each.alarm is not None and each.alarm.step > 200]
    assert len(caught) == 12
    assert all(each.labels <= 0.02 * 500 * 512 for each in played)
    assert all(each.alarm is None for each in watched(HONEST, range(100, 103)))


def by_evaluation(correct: Floats, n: int, runs: int) -> list[Alarm | None]:
    """The alarms of runs that have nothing but n answers judged at every tenth step."""
    rng = np.random.default_rng(5)
    series = [[evaluation(int(t), rng.binomial(n, correct[t]) / n, n) for t in STEPS[::10]] for _ in range(runs)]
    return [first(GoldLossTest(), readings) for readings in series]


def test_the_coding_assistant_is_caught_by_an_evaluation_of_four_hundred_answers_every_ten_steps() -> None:
    """A hundred are too few: the fall takes 300 steps, and 30 evaluations of so few answers hardly show it."""
    assert sum(raised is not None and raised.step > 200 for raised in by_evaluation(CORRECT, 400, 60)) >= 57
    assert sum(raised is not None for raised in by_evaluation(HONEST, 400, 60)) == 0


def test_the_classic_rule_never_sees_the_coding_assistant() -> None:
    assert not any(detect_reward_hacking(PROXY[:n], CORRECT[:n]).get("alert") for n in range(501))
