"""One estimate of gold: its level, where it was best, when it turned, and the checkpoint to go back to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Alarm, Floats, Reading
from tiltmeter.verdict.gold_standing import PAST, GoldStanding, stand

STEPS = 160
Levels = Callable[[Floats], Floats]


def fall(steps: Floats) -> Floats:
    return np.interp(steps, [0, 60, 120], [0.5, 0.7, 0.3])


def table(name: str, level: Levels, labels: int, seed: int = 0, steps: int = STEPS) -> ReadingTable:
    rng, gold = np.random.default_rng(seed), level(np.arange(steps, dtype=float))
    return ReadingTable(
        name, [Reading(0, t, name, rng.binomial(labels, g) / labels, labels) for t, g in enumerate(gold)]
    )


def alarm(name: str = "gold.prompts", step: int = 110, onset: int = 34) -> Alarm:
    summary = f"gold has fallen since about step {onset} (odds 120 to 1)"
    return Alarm(0, name, "gold_loss", "alarm", "down", step, step, onset, 9, 71, 5.0, 4.6, None, summary)


def standing(*tables: ReadingTable, alarms: tuple[Alarm, ...] = (), step: int = STEPS) -> GoldStanding:
    stood = stand(step, {one.name: one for one in tables}, alarms)
    assert stood is not None
    return stood


def test_level_is_gold_now_beside_the_best_stretch() -> None:
    level = standing(table("gold.mean", lambda t: np.where(t < 80, 0.7, 0.3), 64)).level
    assert level.low <= -0.4 <= level.high < -0.25
    assert level.best == pytest.approx(0.7, abs=0.03) and level.best_last < 81 and level.first >= 80
    rising = standing(table("gold.mean", lambda t: 0.3 + t / 400, 64)).level
    assert rising.change == 0.0 and rising.best == rising.now and rising.low > -0.15


def test_few_labels_have_a_level_of_their_own_and_no_best() -> None:
    few = standing(table("gold.mean", lambda t: 0 * t + 0.5, 4, steps=6))
    assert few.curve.last_look is None and few.best is None
    assert few.level.change == 0.0 and few.level.low < -0.3


def test_an_open_alarm_is_dated_by_the_turn_of_today_and_the_one_that_was_raised_is_untouched() -> None:
    raised = alarm()
    stood = standing(table("gold.mean", fall, 32), alarms=(raised,))
    dated = stood.date([raised])[0]
    assert dated.onset_low <= 60 <= dated.onset_high and abs(dated.onset - 60) < 15
    assert f"since about step {dated.onset} " in dated.summary and raised.onset == 34
    assert standing(table("gold.mean", fall, 32)).turn is None, "nothing is dated without an alarm"


def test_labels_of_the_past_narrow_the_turn() -> None:
    widths = []
    for more in (0, 24):
        tables = [table("gold.answers", fall, 2, seed=3)] + ([table(PAST, fall, more, seed=4)] if more else [])
        turn = standing(*tables, alarms=(alarm(),)).turn
        widths.append(STEPS if turn is None else turn.high - turn.low)
    assert widths[1] < 0.6 * widths[0]


def test_the_checkpoint_is_asked_of_the_curve_and_the_same_everywhere() -> None:
    raised, saved = alarm(), list(range(10, 160, 10))
    stood = standing(table("gold.mean", fall, 32), alarms=(raised,))
    best = stood.checkpoint(saved, [raised])
    assert best is not None and 40 <= best.step <= 70 and abs(best.gold - fall(np.array([best.step]))[0]) < 0.04
    assert stood.at(best.step, saved) == best
    assert stood.checkpoint([100, 140], [raised]) is None, "nothing was saved before gold turned"


def test_an_alarm_on_something_else_bounds_the_checkpoint_by_its_own_onset() -> None:
    traps = replace(alarm("gold.traps", onset=50), onset_low=50)
    stood = standing(table("gold.mean", lambda t: 0.3 + t / 400, 32), alarms=(traps,))
    assert stood.turn is None and stood.date([traps]) == [traps]
    best = stood.checkpoint([20, 50, 80, 120], [traps])
    assert best is not None and best.step == 50


def test_what_is_not_between_0_and_1_is_no_gold() -> None:
    elo = ReadingTable("eval.elo", [Reading(0, t, "eval.elo", 1200.0 - t, 100) for t in range(50)])
    assert stand(50, {"eval.elo": elo}, ()) is None


def test_audited_pairs_have_no_best_without_a_turn() -> None:
    """Solved prompts leave the pairs, so their mean falls while gold gains."""
    stood = standing(table("gold.level", lambda t: 0.8 - 0.004 * t, 16))
    assert stood.level.change < -0.1 and stood.best is None
