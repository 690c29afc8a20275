"""The level of gold from a part of the labels: its promise, its power, and that a restart draws the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import log

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.data.records import Floats
from tiltmeter.gold import level_sampler
from tiltmeter.gold.label_files import LabelRequest
from tiltmeter.gold.level_labels import answers_by_slice, level_bets
from tiltmeter.gold.level_sampler import LevelSampler, PromptValue, level_readings, split_share, window_level
from tiltmeter.gold.sampler import CLOSING_STEPS
from tiltmeter.stats import sampled_level
from tiltmeter.stats.bets_below import GRID, BetsBelow
from tiltmeter.stats.sampled_level import SampledLevelTest

STEPS, GROUPS, ANSWERS, PROMPTS = 120, 8, 8, 24
STARTS = np.arange(0, GROUPS * ANSWERS + 1, ANSWERS)


@dataclass
class SimulatedRun:
    """Gold, features and prompts of every step."""

    gold: Floats  # steps x rows
    features: Floats  # steps x rows x 2
    prompts: list[list[str]]

    def stored(self, _: int, step: int) -> tuple[Floats, np.ndarray, list[str]]:
        return self.features[step], STARTS, self.prompts[step]


def simulated(kind: str, rng: np.random.Generator) -> SimulatedRun:
    """Gold whose mean over prompts never falls, with nothing to spare; or a `fall` from .7 to .3 after half the run."""
    mu = np.clip(0.6 + rng.normal(0.0, 0.12, PROMPTS), 0.02, 0.98)[None].repeat(STEPS, 0)
    if kind == "churn":
        walk = np.cumsum(rng.normal(0.0, 0.02, (STEPS, PROMPTS)), 0).clip(-0.2, 0.2)
        mu = mu + walk - walk.mean(1, keepdims=True)
    elif kind == "plateau":
        mu = mu - 0.25 * np.clip(1.0 - np.arange(STEPS) / 50, 0.0, 1.0)[:, None]
    elif kind == "fall":
        mu = mu + 0.1 - 0.4 * np.clip((np.arange(STEPS) - 60) / 20, 0.0, 1.0)[:, None]
    mu = np.clip(mu, 0.0, 1.0)
    if kind != "fall":
        mu = np.clip(mu + np.maximum.accumulate(mu.mean(1))[:, None] - mu.mean(1, keepdims=True), 0.0, 1.0)
    order = np.concatenate([rng.permutation(PROMPTS) for _ in range(1 + STEPS * GROUPS // PROMPTS)])
    order = order[: STEPS * GROUPS].reshape(STEPS, GROUPS)
    chance = np.take_along_axis(mu, order, 1).repeat(ANSWERS, 1)
    gold = (rng.random(chance.shape) < chance).astype(np.float64)
    # The reward tells gold with noise. In a `stale` run its meaning turns round: the guess reports a fall.
    sign = np.where(np.arange(STEPS) < 60, 1.0, -1.0)[:, None] if kind == "stale" else 1.0
    reward = sign * (gold - 0.5) + rng.normal(0.0, 0.3, gold.shape) + np.linspace(0.0, 1.0, STEPS)[:, None]
    length = rng.normal(100.0, 10.0, gold.shape)
    prompts = [[f"p{prompt}" for prompt in row] for row in order.tolist()]
    return SimulatedRun(gold, np.stack([reward, length], -1), prompts)


def evidence(run: SimulatedRun, rng: np.random.Generator, share: float = 0.1) -> Floats:
    """By step, the evidence of the level alone; and every label that was not drawn stays unseen."""
    sampler, test = LevelSampler(share, STEPS, run.stored), SampledLevelTest(0.0)
    values, labels = np.full(STEPS, -np.inf), 0
    for step in range(STEPS):
        draw = sampler.draw(0, step, run.features[step], STARTS, run.prompts[step], rng)
        gold = {row: float(run.gold[row[1], row[2]]) for row in draw.rows(0, step)}
        labels += len(gold)
        for reading in level_readings(draw, 0, step, gold):
            if reading.name == "gold.reference" and reading.stderr is not None:
                window, _, _, last = reading.keys
                test.open(window, last, np.array(reading.values), reading.value, reading.stderr**2)
            elif reading.name == "gold.change":
                window, labelled, answers = reading.keys
                test.place(window, np.array(reading.values), labelled / answers)
        sampler.close(0, step, draw, gold)
        values[step] = test.evidence
    assert labels <= share * run.gold.size + GROUPS
    return values


@pytest.mark.parametrize("kind", ["flat", "churn", "plateau", "stale"])
def test_gold_that_does_not_fall_alarms_no_more_often_than_promised(kind: str) -> None:
    runs = size(12, 1000)
    seeds = (np.random.default_rng([7, seed]) for seed in range(runs))
    highest = np.array([evidence(simulated(kind, rng), rng).max() for rng in seeds])
    for chance in (0.1, 0.02, 0.01):
        assert np.mean(highest >= log(1.0 / chance)) <= chance + 2.0 * np.sqrt(chance / runs)


def test_without_the_price_of_the_reference_it_would_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: a window is opened because it looks high, and with few labels much of that is luck."""
    monkeypatch.setattr(level_sampler, "OPENING", 0.05)
    monkeypatch.setattr(level_sampler, "LEAST_OPENING", 20)

    def highest() -> Floats:
        seeds = (np.random.default_rng([8, seed]) for seed in range(30))
        return np.array([evidence(simulated("flat", rng), rng, 0.3).max() for rng in seeds])

    class Trusting(BetsBelow):
        """Takes the level of the window at its word."""

        def __init__(self, *_: object) -> None:
            super().__init__(1e6, np.zeros(len(GRID)))

        def _price(self) -> None:
            self.evidence = float(np.logaddexp.reduce(self.log_money))

    priced = highest()
    monkeypatch.setattr(sampled_level, "BetsBelow", Trusting)
    assert np.mean(priced >= log(10.0)) <= 0.1
    assert np.mean(highest() >= log(10.0)) > 0.1


def test_a_fall_is_found_with_a_tenth_of_the_labels() -> None:
    found = []
    for seed in range(5):
        rng = np.random.default_rng([9, seed])
        above = np.flatnonzero(evidence(simulated("fall", rng), rng) >= log(100.0))
        found.append(int(above[0]) if len(above) else STEPS)
    assert 60 < np.median(found) < 90


@pytest.mark.parametrize(("planned", "least", "most"), [(STEPS, 36, 44), (None, 0, 20)])
def test_the_last_steps_of_a_planned_run_get_forty_labels(planned: int | None, least: int, most: int) -> None:
    rng = np.random.default_rng(5)
    run, sampler, labels = simulated("fall", rng), LevelSampler(0.04, planned), 0
    for step in range(STEPS):
        draw = sampler.draw(0, step, run.features[step], STARTS, run.prompts[step], rng)
        labels += len(draw.rows(0, step)) if step >= STEPS - CLOSING_STEPS else 0
    assert least <= labels <= most


def test_a_restart_draws_the_same() -> None:
    rng = np.random.default_rng(3)
    run = simulated("fall", rng)
    one = LevelSampler(0.2, STEPS, run.stored)
    two = LevelSampler(0.2, STEPS, run.stored)
    windows: dict[tuple[int, int], dict[str, PromptValue]] = {}
    for step in range(STEPS):
        draws = [
            sampler.draw(0, step, run.features[step], STARTS, run.prompts[step], np.random.default_rng(step))
            for sampler in (one, two)
        ]
        assert draws[0] == draws[1]
        gold = {row: float(run.gold[row[1], row[2]]) for row in draws[0].rows(0, step)}
        if draws[0].opened is not None:
            windows[0, step] = window_level(draws[0].opened, gold)[1]
        state = json.loads(json.dumps(one.state(), allow_nan=False))
        one.restore(state, lambda attempt, at: windows[attempt, at])
        two = LevelSampler(0.2, STEPS, run.stored)  # killed, and begun again
        two.restore(state, lambda attempt, at: windows[attempt, at])
        for sampler in (one, two):
            sampler.close(0, step, draws[0], gold)
    assert windows


def test_the_level_of_each_slice_is_read_from_the_labels_of_its_answers() -> None:
    draw = LevelSampler(0.5).draw(0, 3, np.zeros((8, 2)), np.array([0, 4, 8]), ["p", "q"], np.random.default_rng(0))
    bets = level_bets(draw, 0, 3, ["a"] * 4 + ["b"] * 4)
    request = LabelRequest(0, 3, ((0, 0),), "00", {"name": "f", "identity": "f"}, 0.5, {}, tuple(bets), (), 0.0)
    gold = {bet.up: float(bet.slice == "a") for bet in bets}
    sliced = answers_by_slice(request, gold)
    assert sliced is not None and sliced.name == "slices.gold.answers"
    assert (
        [name for name, _ in sliced.slices] == ["a", "b"]
        and sliced.values == (1.0, 0.0)
        and sum(sliced.keys) == len(bets)
    )
    assert answers_by_slice(request, {}) is None
    assert all(bet.slice == "" for bet in level_bets(draw, 0, 3))


def test_prompts_have_values_around_the_level_and_none_far_below() -> None:
    rng = np.random.default_rng(4)
    run = simulated("fall", rng)
    sampler = LevelSampler(0.3, STEPS, run.stored)
    for step in range(STEPS):
        draw = sampler.draw(0, step, run.features[step], STARTS, run.prompts[step], rng)
        gold = {row: float(run.gold[row[1], row[2]]) for row in draw.rows(0, step)}
        sampler.close(0, step, draw, gold)
        if draw.opened is not None:
            level, values, residuals = window_level(draw.opened, gold)
            references = [value.reference for value in values.values()]
            assert np.mean(references) == pytest.approx(level)
            assert min(references) >= level - 0.1 - 1e-9
            assert (np.abs(residuals) <= 1.0).all()
            # A label that never came must not help the alarm: the window is worth less without it.
            assert window_level(draw.opened, {})[0] < level
            return
    pytest.fail("no window was opened")


def test_a_curriculum_of_prompts_that_come_back_and_turn_harder_is_no_fall() -> None:
    """Labels are few, so values of hard prompts are drawn towards the level; together they would look like a fall."""
    alarms = 0
    for seed in range(4):
        rng = np.random.default_rng([14, seed])
        run = simulated("flat", rng)
        place = np.arange(STEPS)[:, None]
        hard = rng.random((STEPS, GROUPS)) < np.interp(place, [STEPS // 3, STEPS // 2], [0.1, 0.9])
        number = rng.permuted(np.tile(np.arange(32), (STEPS, 1)), axis=1)[:, :GROUPS] + 32 * hard
        chance = np.repeat(np.where(hard, 0.3, 0.85), np.diff(STARTS), axis=1)
        run.gold = (rng.random(chance.shape) < chance).astype(np.float64)
        run.features = np.stack([run.gold + rng.normal(0.0, 0.3, chance.shape), run.features[..., 1]], -1)
        run.prompts = [[f"p{one}" for one in row] for row in number.tolist()]
        alarms += bool((evidence(run, rng) >= log(100.0)).any())
    assert alarms == 0


def test_prompts_that_never_come_back_open_nothing() -> None:
    rng = np.random.default_rng(5)
    run = simulated("fall", rng)
    run.prompts = [[f"{step}-{k}" for k in range(GROUPS)] for step in range(STEPS)]
    sampler = LevelSampler(0.3, STEPS, run.stored)
    for step in range(STEPS):
        draw = sampler.draw(0, step, run.features[step], STARTS, run.prompts[step], rng)
        sampler.close(0, step, draw, {row: float(run.gold[row[1], row[2]]) for row in draw.rows(0, step)})
        assert draw.opened is None


def test_the_slope_keeps_its_labels_where_there_are_few() -> None:
    assert split_share(0.02) == (0.02, 0.0)
    assert sum(split_share(0.3)) == pytest.approx(0.3)
    assert min(split_share(0.08)) >= 0.02
