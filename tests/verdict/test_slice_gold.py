"""A run is not OK while one of its slices has lost gold; and slices with few labels keep no healthy run from OK."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.verdict.test_slices import packed

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Reading
from tiltmeter.verdict.gold_standing import stand
from tiltmeter.verdict.slice_gold import advise_on_slices
from tiltmeter.verdict.slices import MOST_READINGS, MOST_SLICES, SliceGold, SliceTable
from tiltmeter.verdict.stop_advice import Advice, advise_on_gold

CALM = Advice("continue", "no sign that gold is lost", None, None, "gold.mean", 0.05, False, True)


def play(levels: dict[str, list[float]], labels: int, seed: int = 0, source: str = "gold.mean") -> SliceGold:
    rng, gold = np.random.default_rng(seed), SliceGold()
    for step in range(len(next(iter(levels.values())))):
        for name, of_step in levels.items():
            gold.add(step, source, name, rng.binomial(labels, of_step[step]) / labels, labels)
    return gold


def twelve(fallen: list[float] | None = None) -> dict[str, list[float]]:
    levels = {f"env{k:02d}": np.linspace(0.3 + 0.03 * k, 0.5 + 0.03 * k, 100).tolist() for k in range(12)}
    return levels if fallen is None else {**levels, "env07": fallen}


def test_one_environment_of_twelve_that_is_lost_is_named_and_the_advice_is_to_stop() -> None:
    advice = advise_on_slices(CALM, play(twelve([0.5] * 40 + [0.05] * 60), labels=32))
    assert advice is not None and advice.word == "stop" and advice.lower and not advice.excluded
    assert "in environment env07" in advice.why and "where it was 0.5" in advice.why


def test_one_that_loses_a_quarter_slowly_keeps_the_run_from_ok() -> None:
    advice = advise_on_slices(CALM, play(twelve(np.linspace(0.6, 0.4, 100).tolist()), labels=32))
    assert advice is not None and advice.word != "continue" and "env07" in advice.why


@pytest.mark.parametrize("labels", [2, 8, 32])
def test_healthy_slices_allow_to_continue_whatever_their_labels(labels: int) -> None:
    words = [advise_on_slices(CALM, play(twelve(), labels, seed)) for seed in range(5)]
    assert sum(advice is not None and advice.word == "continue" for advice in words) >= 4


def test_slices_that_cannot_tell_are_counted_in_the_advice() -> None:
    levels = {"big": [0.5] * 80, "small": [0.5] * 80}
    gold = SliceGold()
    for step in range(80):
        gold.add(step, "gold.mean", "big", levels["big"][step], 64)
        gold.add(step, "gold.mean", "small", levels["small"][step], 1)
    advice = advise_on_slices(CALM, gold)
    assert advice is not None and advice.slices == "1 of 2 slices have too few labels to tell by themselves"


def test_a_slice_of_audited_pairs_never_says_stop() -> None:
    gold = play({"a": [0.8] * 30 + [0.1] * 60, "b": [0.5] * 90}, labels=32, source="gold.level")
    advice = advise_on_slices(CALM, gold)
    assert advice is not None and advice.word == "cannot tell" and "solved prompts left the pairs" in advice.why


def test_a_run_that_is_ok_as_of_an_earlier_step_is_not_once_a_slice_is_lost() -> None:
    held = replace(CALM, word="cannot tell", excluded=False, as_of=90)
    advice = advise_on_slices(held, play(twelve([0.5] * 40 + [0.05] * 60), 32))
    assert advice is not None and advice.word == "stop" and advice.as_of is None
    calm = advise_on_slices(held, play(twelve(), 32))
    assert calm is not None and calm.as_of == 90


def test_one_slice_is_the_run_and_other_advice_stays() -> None:
    lost = play({"a": [0.8] * 30 + [0.1] * 60}, labels=32)
    assert advise_on_slices(CALM, lost) is CALM
    stop = Advice("stop", "an alarm is open", None, None, "")
    assert advise_on_slices(stop, play(twelve([0.5] * 40 + [0.05] * 60), 32)) is stop
    assert advise_on_slices(None, lost) is None


def test_memory_is_bounded_and_joined_readings_keep_their_mean() -> None:
    gold = SliceGold()
    for step in range(700):
        for k in range(MOST_SLICES + 6):
            gold.add(step, "gold.mean", f"s{k}", (step % 7) / 7.0, 1 + step % 3)
    tables = list(gold.tables.values())
    assert len(tables) == MOST_SLICES and max(map(len, tables)) <= MOST_READINGS
    counts = [1 + step % 3 for step in range(700)]
    assert tables[0].counts.sum() == sum(counts)
    whole = np.average([(step % 7) / 7.0 for step in range(700)], weights=counts)
    assert np.average(tables[0].values, weights=tables[0].counts) == pytest.approx(whole)
    assert tables[0].steps[-1] == 699 and (np.diff(tables[0].steps) > 0).all()


def test_whole_answers_replace_pairs_and_a_rewind_forgets_what_came_after() -> None:
    table = SliceTable()
    for step in range(10):
        table.add(0, step, {"slices.gold.level": packed({"a": (0.2, 4)})})
    table.add(0, 10, {"slices.gold.answers": packed({"a": (0.6, 4)}), "slices.gold.level": packed({"a": (0.2, 4)})})
    assert table.gold.source == "gold.answers" and table.gold.tables["a"].values.tolist() == [0.6]
    table.add(1, 5, {"slices.gold.answers": packed({"a": (0.7, 4)})})
    assert table.gold.tables["a"].values.tolist() == [0.7]


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_environments_of_lower_gold_that_join_are_no_reason_to_stop_and_a_loss_beside_them_is(loss: float) -> None:
    gold, whole, rng = SliceGold(), [], np.random.default_rng(3)
    for step in range(120):
        level = {"old": 0.75 - (loss if step >= 60 else 0.0), "other": 0.7 - (loss if step >= 60 else 0.0)}
        level |= {"harder": 0.25, "hardest": 0.1} if step >= 60 else {}
        means = {name: float(rng.binomial(96 // len(level), one)) / (96 // len(level)) for name, one in level.items()}
        for name, mean in means.items():
            gold.add(step, "gold.mean", name, mean, 96 // len(level))
        whole.append(Reading(0, step, "gold.mean", float(np.mean(list(means.values()))), 96))
    table = ReadingTable("gold.mean", whole)
    standing = stand(119, {"gold.mean": table}, [])
    assert standing is not None and standing.fallen is not None
    advice = advise_on_gold(119, {"gold.mean": table}, standing, [], [])
    assert advice.word == "stop"
    told = advise_on_slices(advice, gold, standing.fallen)
    assert told is not None and told.word == ("stop" if loss else "cannot tell")
    assert loss or "joined" in told.why
