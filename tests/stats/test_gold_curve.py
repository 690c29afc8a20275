"""A loss of gold is excluded by labels against every earlier stretch, or not at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Floats, Reading
from tiltmeter.stats.gold_curve import GoldCurve

Levels = Callable[[Floats], Floats]
STEPS = 150


def flat(level: float) -> Levels:
    return lambda steps: np.full(len(steps), level)


def ramp(start: float, end: float) -> Levels:
    return lambda steps: np.linspace(start, end, len(steps))


def drop(start: float, end: float, at: int = STEPS // 2) -> Levels:
    return lambda steps: np.where(steps < at, start, end)


def readings(levels: Levels, labels: float, seed: int, *, prompts: float = 0.25) -> ReadingTable:
    """Steps of 64 answers to eight prompts, of which so many a step are labelled."""
    rng = np.random.default_rng([seed, int(100 * labels)])
    table = ReadingTable("gold.answers")
    for step, level in enumerate(levels(np.arange(STEPS, dtype=float))):
        chance = np.clip(level + prompts * (rng.random(8) - 0.5), 0.0, 1.0)
        answers = (rng.random((8, 8)) < chance[:, None]).astype(float)
        count = int(labels) if labels >= 1 and labels == int(labels) else rng.binomial(64, labels / 64)
        if count == 64:
            error = float(answers.mean(1).std(ddof=1) / np.sqrt(8))
            table.add(0, step, float(answers.mean()), 64, error)
        elif count:
            values = rng.permutation(answers.ravel())[:count]
            error_of_some = float(values.std(ddof=1) / np.sqrt(count)) if count > 1 else None
            table.add(0, step, float(values.mean()), count, error_of_some)
    return table


def share_excluded(levels: Levels, labels: float, runs: int, **how: float) -> float:
    return float(np.mean([GoldCurve(readings(levels, labels, seed, **how)).excludes_loss for seed in range(runs)]))


@pytest.mark.parametrize("labels", [6.4, 64])
@pytest.mark.parametrize("lost", [drop(0.6, 0.45), drop(0.3, 0.225), drop(0.16, 0.11)], ids=["0.6", "0.3", "0.16"])
def test_a_loss_of_just_a_quarter_is_seldom_excluded(lost: Levels, labels: float) -> None:
    """At the edge of what is claimed, where a wrong OK is likeliest: 5 % are promised."""
    runs = size(40, 1000)
    assert share_excluded(lost, labels, runs) <= 0.05 + 2.0 * np.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("labels", [1.28, 6.4, 64])
@pytest.mark.parametrize("lost", [ramp(0.76, 0.48), drop(0.7, 0.3), drop(0.2, 0.0), drop(0.25, 0.05)])
def test_gold_that_is_lost_is_never_called_kept(lost: Levels, labels: float) -> None:
    assert share_excluded(lost, labels, size(20, 400)) <= 0.05


@pytest.mark.parametrize("labels", [6.4, 64])
@pytest.mark.parametrize("kept", [flat(0.6), ramp(0.35, 0.75), ramp(0.46, 0.56), flat(0.92)])
def test_a_healthy_run_is_told_from_a_loss(kept: Levels, labels: float) -> None:
    assert share_excluded(kept, labels, size(20, 400)) >= 0.8


def test_a_cliff_in_the_last_steps_is_seen_where_every_answer_is_labelled() -> None:
    assert share_excluded(drop(0.7, 0.15, STEPS - 8), 64, size(20, 400)) == 0.0


def test_prompts_that_share_their_fate_count_as_fewer_labels() -> None:
    """All answers to a prompt right or wrong: eight labels are hardly more than one."""
    alike = GoldCurve(readings(flat(0.5), 64, 1, prompts=40.0))
    apart = GoldCurve(readings(flat(0.5), 64, 1, prompts=0.0))
    assert alike.effect > 4.0 > 2.0 > apart.effect


def test_edges_depend_on_counts_alone() -> None:
    """Else the best stretch would be chosen by luck."""
    one, other = (
        GoldCurve(ReadingTable("gold.mean", [Reading(0, t, "gold.mean", v, 16) for t, v in enumerate(values)]))
        for values in (np.full(80, 0.5), np.random.default_rng(0).permutation(np.tile([0.25, 0.75], 40)))
    )
    looks = [curve.look(60) for curve in (one, other)]
    assert all(look is not None for look in looks)
    assert one.effect <= 1.0 < 1.5 and looks[0] is not None and looks[0].best.first % 5 == 0


def test_about_as_many_labels_as_it_says_would_tell() -> None:
    """With so many more of the newest steps, as good as before, a loss is excluded or nearly."""
    before, after = [], []
    for seed in range(30):
        table = readings(flat(0.6), 1.28, seed)
        look = GoldCurve(table).last_look
        if look is None or look.more_labels is None or look.margins[0] <= 0.0:
            continue
        more = ReadingTable("gold.answers", list(table))
        for step in table.steps.tolist()[-4:]:
            more.add(0, step, look.now.mean, max(look.more_labels // 4, 1))
        later = GoldCurve(more).last_look
        assert later is not None
        before.append(look.margins[0])
        after.append(later.margins[0])
    assert len(before) >= 5
    assert np.mean(after) < 0.25 * np.mean(before)


def test_two_evaluations_of_many_items_are_enough_and_one_is_not() -> None:
    one = ReadingTable("eval.math", [Reading(0, 0, "eval.math", 0.5, 500)])
    assert not GoldCurve(one, evaluations=True).excludes_loss
    for value, kept in ((0.52, True), (0.3, False)):
        two = ReadingTable("eval.math", [*one, Reading(0, 50, "eval.math", value, 500)])
        assert GoldCurve(two, evaluations=True).excludes_loss == kept


def test_what_it_says_can_be_stored() -> None:
    look = GoldCurve(readings(flat(0.6), 64, 3)).last_look
    assert look is not None
    json.dumps([look.fall, look.allowed, look.more_labels, look.best.first, look.now.n])


def changes(states: list[bool]) -> int:
    """Of a live state, beyond the first time that it is healthy."""
    states = states[states.index(True) :] if True in states else []
    return sum(one != other for one, other in pairwise(states))


def test_a_live_state_is_kept_while_few_labels_are_new_and_flickers_less() -> None:
    strict, held = 0, 0
    for seed in range(3):
        golds = np.random.default_rng([41, seed]).binomial(6, 0.6, 400) / 6
        made = [Reading(0, step, "gold.answers", float(gold), 6, 0.2) for step, gold in enumerate(golds)]
        curves = [GoldCurve(ReadingTable("gold.answers", made[:end])) for end in range(40, 400, 2)]
        strict += changes([curve.excludes_loss for curve in curves])
        held += changes([curve.excludes_loss or curve.held_step is not None for curve in curves])
    assert held < strict / 2


def test_a_state_is_not_held_over_gold_that_is_lower_nor_for_long() -> None:
    rng, made = np.random.default_rng(43), []
    for step in range(140):
        level = 0.7 if step < 100 else 0.3
        made.append(Reading(0, step, "gold.mean", float(rng.binomial(64, level) / 64), 64))
    assert GoldCurve(ReadingTable("gold.mean", made[:100])).excludes_loss
    for end in range(104, 140):
        assert GoldCurve(ReadingTable("gold.mean", made[:end])).held_step is None
    slow = [Reading(0, t, "gold.mean", 0.7 - 0.004 * max(t - 60, 0), 8, 0.1) for t in range(160)]
    steps = [GoldCurve(ReadingTable("gold.mean", slow[:end])).held_step for end in range(60, 160)]
    assert steps[-1] is None
