"""What is audited: decided by the past and by chance, within the budget, and unbiased for the slope it names."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.records import Floats, Ints, Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.gold.sampler import ADVANCE, BLOCK, CLOSING_LABELS, CLOSING_STEPS, UNPLANNED, Bet, Sampler
from tiltmeter.stats.groups import standardise

GROUPS, SIZE = 16, 8
STARTS = np.arange(0, GROUPS * SIZE + 1, SIZE)
PROMPTS = [f"p{k}" for k in range(GROUPS)]


def chance(step: int) -> np.random.Generator:
    return np.random.default_rng([7, step])


def rewards(step: int) -> Floats:
    return np.random.default_rng([8, step]).normal(size=GROUPS * SIZE)


def drawn(sampler: Sampler, step: int, advantage: Floats | None = None, attempt: int = 0) -> list[Bet]:
    return sampler.draw(attempt, step, rewards(step) if advantage is None else advantage, STARTS, PROMPTS, chance(step))


def told(sampler: Sampler, bets: Sequence[Bet], slope: float) -> None:
    """Close a step whose slope bets all came to one value and whose duels were ties."""
    duels = [bet for bet in bets if bet.purpose == "duel"]
    sampler.close([slope] * (len(bets) - len(duels)), [0.0] * len(duels))


class Scripted(np.random.Generator):
    """Chance that is told what to say, so that every choice can be enumerated."""

    def __init__(self, said: Sequence[float]) -> None:
        super().__init__(np.random.PCG64(0))
        self.said = list(said)

    def random(self, *_: Any, **__: Any) -> Any:
        return self.said.pop(0)


@pytest.mark.parametrize("offset", [0.0, 5.0])
def test_the_mean_over_all_choices_is_twice_the_covariance_of_gold_and_advantage(offset: float) -> None:
    advantage, gold = np.array([3.0, 1.0, -2.0, -2.0]) + offset, np.array([0.9, 0.2, 0.4, 0.7])
    us = []
    # Thirds would need a finer grid: up is drawn with 3/4 and 1/4, down with halves.
    for up, down in product((0.125, 0.375, 0.625, 0.875), repeat=2):
        sampler = Sampler(share=50.0)
        for said in ([], [up, down]):
            bets = sampler.draw(0, 0, advantage, np.array([0, 4]), ["p"], Scripted(said))
        (bet,) = bets
        us.append(bet.weight * (gold[bet.up[2]] - gold[bet.down[2]]))
    scale = np.abs(advantage - advantage.mean()).mean()
    covariance = np.mean((advantage - advantage.mean()) * gold)
    assert np.mean(us) == pytest.approx(2.0 * covariance / scale, abs=1e-12)


def test_a_group_of_little_spread_counts_little_and_none_counts_more_than_one() -> None:
    advantage = rewards(0) * np.repeat(np.geomspace(0.01, 100.0, GROUPS), SIZE)
    sampler = Sampler(share=10.0)
    drawn(sampler, 0, advantage)
    weights = {bet.up[2] // SIZE: bet.weight for bet in drawn(sampler, 1, advantage)}
    assert len(weights) == GROUPS
    assert max(weights.values()) == 1.0
    assert weights[0] < 1e-2 < weights[GROUPS // 2] < weights[GROUPS - 1]


def test_the_first_step_is_not_audited_because_no_scale_is_known_before_it() -> None:
    sampler = Sampler(share=1.0)
    assert drawn(sampler, 0) == []
    assert drawn(sampler, 1)


def test_how_many_are_asked_and_which_groups_does_not_depend_on_what_the_step_shows() -> None:
    found = []
    for scale in (1.0, -3.0):
        sampler = Sampler(share=0.2, steps=50)
        for step in range(24):
            told(sampler, drawn(sampler, step), -0.1)
        bets = drawn(sampler, 24, scale * rewards(99))
        found.append([(bet.purpose, bet.up[2] // SIZE, bet.chance) for bet in bets])
    assert found[0] == found[1]
    assert {purpose for purpose, _, _ in found[0]} == {"slope", "duel"}


def test_slope_and_duel_of_a_step_never_use_the_same_group() -> None:
    sampler = Sampler(share=0.5)
    for step in range(60):
        bets = drawn(sampler, step)
        groups = [bet.up[2] // SIZE for bet in bets]
        assert len(groups) == len(set(groups))
        told(sampler, bets, -0.2)


def test_dead_groups_cost_nothing_and_their_share_goes_to_duels() -> None:
    sampler = Sampler(share=0.5)
    for step in range(BLOCK):
        drawn(sampler, step)
    for step in range(BLOCK, 3 * BLOCK):
        bets = drawn(sampler, step, np.full(GROUPS * SIZE, 0.1))
        assert not [bet for bet in bets if bet.purpose == "slope"]
    assert [bet for bet in bets if bet.purpose == "duel"]


def test_equal_rewards_that_differ_by_rounding_are_dead() -> None:
    sampler = Sampler(share=1.0)
    drawn(sampler, 0)
    advantage = np.where(np.arange(GROUPS * SIZE) % 2, 0.3, 0.1 + 0.2)
    assert drawn(sampler, 1, advantage) == []


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_an_answer_without_a_finite_score_is_never_on_either_side_of_a_slope(odd: float) -> None:
    sampler = Sampler(share=2.0)
    unscored = set(range(0, GROUPS * SIZE, 3))
    for step in range(6):
        advantage = rewards(step)
        advantage[sorted(unscored)] = odd
        for bet in drawn(sampler, step, advantage):
            if bet.purpose == "slope":
                assert not {bet.up[2], bet.down[2]} & unscored
                assert advantage[bet.up[2]] > advantage[bet.down[2]]
                assert 0.0 < bet.weight <= 1.0


def test_a_score_that_is_not_finite_does_not_change_what_later_groups_count() -> None:
    plain, odd = Sampler(share=2.0), Sampler(share=2.0)
    advantage = rewards(0)
    drawn(plain, 0, np.where(np.arange(GROUPS * SIZE) == 5, np.nan, advantage))
    drawn(odd, 0, np.where(np.arange(GROUPS * SIZE) == 5, np.inf, advantage))
    assert drawn(plain, 1) == drawn(odd, 1)


def test_groups_of_one_and_steps_without_groups_are_passed_over() -> None:
    sampler = Sampler(share=2.0)
    starts = np.array([0, 1, 4, 5])
    for step in range(5):
        bets = sampler.draw(0, step, rewards(step)[:5], starts, ["a", "b", "c"], chance(step))
        assert all(1 <= row[2] < 4 for bet in bets if bet.purpose == "slope" for row in (bet.up, bet.down))
        assert sampler.draw(0, step, np.zeros(0), np.zeros(1, np.int64), [], chance(step)) == []
    assert bets


def test_duels_take_scored_and_unscored_answers_alike_on_both_sides() -> None:
    """Were now drawn from the scored alone, a run that never changes would look worse than its own past, or better."""
    sampler, now, then = Sampler(share=1.0), [], []
    for step in range(200):
        advantage = np.where(np.arange(GROUPS * SIZE) < GROUPS * SIZE // 2, rewards(step), 1.0)  # half dead: more duels
        advantage[np.arange(GROUPS * SIZE) % 4 == 0] = np.nan
        bets = [bet for bet in drawn(sampler, step, advantage) if bet.purpose == "duel"]
        now += [bet.up[2] % 4 == 0 for bet in bets]
        then += [bet.down[2] % 4 == 0 for bet in bets]
    assert len(now) > 300
    assert np.mean(now) == pytest.approx(0.25, abs=0.08)
    assert np.mean(then) == pytest.approx(0.25, abs=0.08)


def test_a_duel_is_on_the_same_prompt_where_the_champion_had_it() -> None:
    sampler = Sampler(share=1.0)
    for step in range(40):
        for bet in drawn(sampler, step):
            if bet.purpose == "duel":
                assert bet.up[2] // SIZE == bet.down[2] // SIZE
                assert bet.down[1] < step


def test_prompts_that_the_champion_did_not_have_are_never_in_a_duel() -> None:
    """A curriculum that turns harder, or new prompts every step: their answers may be worse and the policy is not."""
    sampler, count = Sampler(share=1.0), 0
    for step in range(40):
        names = [f"{step}-{k}" if k % 4 else f"p{k}" for k in range(GROUPS)]
        bets = sampler.draw(0, step, rewards(step), STARTS, names, chance(step))
        groups = [(bet.up[2] // SIZE, bet.down[2] // SIZE) for bet in bets if bet.purpose == "duel"]
        assert all(now == then and now % 4 == 0 for now, then in groups)
        count += len(groups)
    assert count > 5


def test_where_no_prompt_comes_back_all_labels_go_to_slopes() -> None:
    sampler = Sampler(share=0.5)
    for step in range(40):
        names = [f"{step}-{k}" for k in range(GROUPS)]
        bets = sampler.draw(0, step, rewards(step), STARTS, names, chance(step))
        assert all(bet.purpose == "slope" for bet in bets)
        told(sampler, bets, 0.2)
    assert bets


def false_alarms(make: Callable[[int, np.random.Generator], tuple[Floats, Floats]], share: float, runs: int) -> int:
    """How many of these runs alarm: advantages and chances of a good answer by step, new prompts at each."""
    count = 0
    for seed in range(runs):
        rng, sampler, detector = np.random.default_rng([31, seed]), Sampler(share, 100), GoldLossTest()
        labels: dict[int, Floats] = {}
        for step in range(100):
            advantage, good = make(step, rng)
            groups = len(advantage)
            starts = np.arange(0, groups * SIZE + 1, SIZE)
            labels[step] = (rng.random(good.shape) < good).astype(float).ravel()
            us: dict[str, list[float]] = {"slope": [], "duel": []}
            for bet in sampler.draw(0, step, advantage.ravel(), starts, [f"{step}-{k}" for k in range(groups)], rng):
                us[bet.purpose].append(bet.weight * (labels[bet.up[1]][bet.up[2]] - labels[bet.down[1]][bet.down[2]]))
            sampler.close(us["slope"], us["duel"])
            readings = [
                Reading(0, step, f"gold.{name}", float(np.mean(values)), len(values), None, tuple(values))
                for name, values in us.items()
                if values
            ]
            if any(detector.update(reading) for reading in readings):
                count += 1
                break
    return count


def test_a_curriculum_that_turns_harder_at_once_is_no_loss() -> None:
    """With duels between different prompts about one run in five alarmed."""

    def harder_from_step_40(step: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        z = rng.normal(size=(32, SIZE))
        z = (z - z.mean(1, keepdims=True)) / z.std(1, keepdims=True)
        return z, (0.85 if step < 40 else 0.45) + 0.05 * z

    assert false_alarms(harder_from_step_40, 0.3, 25) == 0


@pytest.mark.parametrize(("often", "large"), [(0.03, 60.0), (0.01, 120.0)])
def test_jackpots_that_are_good_outweigh_many_small_advantages_that_are_bad(often: float, large: float) -> None:
    """Advantages as Dr. GRPO has them. Cut off at what most groups have, jackpots raised false alarms in most runs."""

    def jackpots(step: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
        reward = rng.normal(size=(64, SIZE))
        reward[rng.random(64) < often, 0] += large
        advantage = reward - reward.mean(1, keepdims=True)
        return advantage, np.where(reward > large / 2, 0.9, 0.4 - 0.05 * advantage.clip(-3, 3))

    assert false_alarms(jackpots, 0.1, 8) == 0


@pytest.mark.parametrize("size", [2, 8, 32])
@pytest.mark.parametrize("kind", ["normal", "lognormal", "cauchy", "right or wrong"])
def test_normalised_advantages_have_the_weights_that_they_always_had(kind: str, size: int) -> None:
    rng = np.random.default_rng([len(kind), size])
    draws: dict[str, Callable[[], Floats]] = {
        "normal": lambda: rng.normal(size=64 * size),
        "lognormal": lambda: rng.lognormal(size=64 * size),
        "cauchy": lambda: rng.standard_cauchy(64 * size),
        "right or wrong": lambda: (rng.random(64 * size) < 0.3).astype(float),
    }
    sampler, starts, scale = Sampler(share=0.5), np.arange(0, 64 * size + 1, size), 0.0
    for step in range(40):
        advantage = standardise(draws[kind](), starts)[0]
        centred = np.abs(advantage.reshape(64, size)).mean(1)
        bets = sampler.draw(0, step, advantage, starts, [f"{step}-{k}" for k in range(64)], rng)
        assert all(bet.weight == pytest.approx(min(centred[bet.up[2] // size] / scale, 1.0)) for bet in bets)
        alive = np.sort(centred[centred > 1e-9])
        large = alive[int(0.95 * (len(alive) - 1))]
        scale = scale + 0.1 * (large - scale) if scale else large
    assert bets


def test_a_state_of_an_earlier_version_is_restored() -> None:
    sampler = Sampler(share=0.5)
    drawn(sampler, 0)
    state = {key: value for key, value in sampler.state().items() if key != "raised"}
    again = Sampler(share=0.5)
    again.restore(state)
    assert drawn(sampler, 1) == drawn(again, 1)


def stretches(slope_of: dict[int, float], steps: int) -> list[set[int]]:
    """The steps that each block's duels were fought against, when block b had slopes of this value."""
    sampler, found = Sampler(share=1.0), [set[int]() for _ in range(steps // BLOCK)]
    for step in range(steps):
        bets = drawn(sampler, step)
        found[step // BLOCK] |= {bet.down[1] // BLOCK for bet in bets if bet.purpose == "duel"}
        told(sampler, bets, slope_of.get(step // BLOCK, 0.2))
    return found


def test_the_champion_is_the_last_stretch_whose_slope_was_up_and_never_one_to_come() -> None:
    assert stretches({}, 4 * BLOCK) == [set(), {0}, {1}, {2}]
    assert stretches({1: -0.2, 2: -0.2, 3: 0.9}, 5 * BLOCK) == [set(), {0}, {0}, {0}, {3}]


def test_after_going_back_no_champion_is_a_stretch_that_was_left() -> None:
    sampler = Sampler(share=1.0)
    for step in range(3 * BLOCK):
        told(sampler, drawn(sampler, step), 0.2)
    sampler.rewind(1, 5)
    for step in range(5, 5 + 3 * BLOCK):
        bets = drawn(sampler, step, attempt=1)
        assert all(bet.down[0] == 1 for bet in bets if bet.purpose == "duel")
        told(sampler, bets, 0.2)
    assert any(bet.purpose == "duel" for bet in bets)


def test_after_going_back_the_part_of_the_champion_that_was_kept_stays_champion() -> None:
    sampler = Sampler(share=1.0)
    for step in range(BLOCK + 3):
        told(sampler, drawn(sampler, step), 0.2)
    sampler.rewind(1, 4)
    against = {bet.down[:2] for step in range(4, 9) for bet in drawn(sampler, step, attempt=1) if bet.purpose == "duel"}
    assert against
    assert against <= {(0, step) for step in range(4)}


@pytest.mark.parametrize("steps", [None, 60])
def test_a_sampler_restored_from_its_state_draws_the_same(steps: int | None) -> None:
    def recall(attempt: int, step: int) -> tuple[Ints, Sequence[object]] | None:
        return STARTS, PROMPTS

    first = Sampler(0.3, steps, recall)
    for step in range(37):
        told(first, drawn(first, step), 0.3 - 0.02 * step)
        if step == 30:
            first.boost()
    second = Sampler(0.3, steps, recall)
    second.restore(json.loads(json.dumps(first.state(), allow_nan=False)))
    for step in range(37, 60):
        bets = drawn(first, step)
        assert bets == drawn(second, step)
        for sampler in (first, second):
            told(sampler, bets, 0.3 - 0.02 * step)
    assert any(bet.purpose == "duel" for bet in bets)


def spending(
    steps: int | None, length: int, share: float, seed: int, boosted: bool, dead: bool
) -> tuple[Floats, Floats]:
    """Labels asked for and rollouts made, summed up to each step, of a run that turns at some time."""
    rng = np.random.default_rng(seed)
    sampler = Sampler(share, steps)
    turns = rng.integers(length)
    asked = np.zeros(length)
    for step in range(length):
        # Groups come alive or die in stretches, so that the sampler's guess of their share is often wrong.
        alive = np.repeat(rng.random(GROUPS) < (0.02 if dead and (step // 12) % 2 == 0 else 1.0), SIZE)
        advantage = np.where(alive | (step == 0), rng.normal(size=GROUPS * SIZE), 0.0)
        bets = drawn(sampler, step, advantage)
        asked[step] = 2 * len(bets)
        if boosted:
            sampler.boost()
        told(sampler, bets, 0.2 if step < turns else -0.5)
    return np.cumsum(asked), GROUPS * SIZE * np.arange(1.0, length + 1)


@pytest.mark.parametrize(("boosted", "dead"), [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("share", [0.02, 0.08])
def test_labels_never_exceed_their_share_of_what_was_rolled_out_and_of_the_plan(
    share: float, boosted: bool, dead: bool
) -> None:
    for seed in range(3):
        asked, rolled = spending(120, 120, share, seed, boosted, dead)
        assert (asked <= share * rolled + ADVANCE * share * rolled[-1] + 2).all()
        assert asked[-1] <= share * rolled[-1] + 2
        asked, rolled = spending(None, 120, share, seed, boosted, dead)
        assert (asked <= share * rolled + UNPLANNED * share * GROUPS * SIZE + 2).all()


def test_a_run_that_looks_bad_gets_most_of_what_was_saved() -> None:
    rates = []
    for slope in (0.3, -0.3):
        sampler = Sampler(0.1, 100)
        for step in range(80):
            bets = drawn(sampler, step)
            told(sampler, bets, 0.3 if step < 50 else slope)
        rates.append(sampler._labels_drawn)
    assert rates[1] > 1.3 * rates[0]


def test_a_warning_raises_the_rate_of_the_steps_after_it() -> None:
    counts = []
    for boosted in (False, True):
        sampler = Sampler(0.2)
        for step in range(40):
            told(sampler, drawn(sampler, step), 0.5)
        if boosted:
            sampler.boost()
        counts.append(sum(len(drawn(sampler, step)) for step in range(40, 50)))
    assert counts[1] > 1.5 * counts[0]


@pytest.mark.parametrize(
    ("planned", "least", "most"), [(100, CLOSING_LABELS - 4, CLOSING_LABELS + 4), (None, 0, CLOSING_LABELS - 16)]
)
def test_the_last_steps_of_a_planned_run_get_forty_labels_of_what_was_saved(
    planned: int | None, least: int, most: int
) -> None:
    sampler, labels = Sampler(0.03, planned), []
    for step in range(100):
        bets = drawn(sampler, step)
        labels.append(2 * len(bets))
        told(sampler, bets, 0.5)
    assert least <= sum(labels[-CLOSING_STEPS:]) <= most
    assert sum(labels) <= 0.03 * GROUPS * SIZE * 100 + 2


def test_where_nothing_was_saved_the_last_steps_get_no_more() -> None:
    sampler, labels = Sampler(0.03, 100, floor=1.0), []
    for step in range(100):
        bets = drawn(sampler, step)
        labels.append(2 * len(bets))
        told(sampler, bets, 0.5)
    assert sum(labels) <= 0.03 * GROUPS * SIZE * 100 + 2
