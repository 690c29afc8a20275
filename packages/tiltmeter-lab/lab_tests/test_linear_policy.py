"""Policies that share parameters: their update rules against tables and by hand, and their families."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_lab.campaign import CampaignRun, members, run_task
from tiltmeter_lab.campaign_records import compact, expand, load_recorded
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.score import score
from tiltmeter_lab.score_network import score_network
from tiltmeter_lab.simulate import simulate
from tiltmeter_lab.worlds.families import FAMILIES, NETWORK, NETWORK_FAMILIES
from tiltmeter_lab.worlds.linear_policy import LinearLearner, expected_linear_update, linear_update
from tiltmeter_lab.worlds.update_rules import RULES, Learner, SampledStep
from tiltmeter_lab.worlds.world import UPDATES, Floats, World

PROMPTS, ANSWERS = 3, 5


def world(update: str, features: Floats | None = None, **more: object) -> World:
    rng = np.random.default_rng(8)
    reference = rng.dirichlet(np.full(ANSWERS, 3.0), PROMPTS)
    shape = (PROMPTS, ANSWERS)
    facts = {"steps": 20, "rate": 1e-3, "groups": 64, "noise": 0.0, **more}
    return World("toy", reference, rng.normal(size=shape), rng.random(shape), update, features=features, **facts)  # type: ignore[arg-type]


def own_parameters() -> Floats:
    """A parameter for every cell: a policy that can express any table, so that nothing is shared."""
    return np.eye(PROMPTS * ANSWERS).reshape(PROMPTS, ANSWERS, -1)


def sampled(policy: Learner, seed: int = 0) -> SampledStep:
    rng, (table, logs) = np.random.default_rng(seed), policy.policy()
    prompt = rng.integers(0, PROMPTS, policy.world.groups)
    chances = table[prompt].cumsum(1)[:, None]
    answer = (chances < rng.random((policy.world.groups, policy.world.group_size, 1))).sum(2).clip(max=ANSWERS - 1)
    return SampledStep(0, table, logs, policy.world.proxy, prompt, answer, policy.world.proxy[prompt[:, None], answer])


@pytest.mark.parametrize("update", ["tilt", "natural"])
def test_with_a_parameter_for_every_cell_the_natural_rules_are_those_of_a_table(update: str) -> None:
    table, linear = Learner(world(update)), LinearLearner(world(update, own_parameters()))
    step = sampled(table)
    RULES[update](table, step)
    linear_update(linear, step)
    assert linear.policy()[0] - step.policy == pytest.approx(table.policy()[0] - step.policy, abs=1e-5)
    assert abs(linear.policy()[0] - step.policy).max() > 1e-4


def test_the_plain_gradient_is_the_derivative_of_the_mean_reward() -> None:
    features = np.random.default_rng(2).normal(size=(PROMPTS, ANSWERS, 2))
    given = world("gradient", features)
    move = expected_linear_update(given, given.reference)
    theta = np.linalg.lstsq(
        (features - (given.reference[..., None] * features).sum(1, keepdims=True)).reshape(-1, 2),
        move.ravel(),
        rcond=None,
    )[0]

    def mean_reward(step: Floats) -> float:
        policy = given.reference * np.exp(features @ step)
        return float((policy / policy.sum(1, keepdims=True) * given.proxy).sum(1).mean())

    small = 1e-5
    slope = [(mean_reward(small * unit) - mean_reward(-small * unit)) / (2 * small) for unit in np.eye(2)]
    assert theta / np.linalg.norm(theta) == pytest.approx(np.array(slope) / np.linalg.norm(slope), abs=1e-5)


@pytest.mark.parametrize("update", ["grpo", "ppo"])
def test_sampled_rules_move_as_expected_on_average(update: str) -> None:
    given = world(update, np.random.default_rng(2).normal(size=(PROMPTS, ANSWERS, 2)), groups=1024)
    expected = expected_linear_update(given, given.reference)
    moves = []
    for seed in range(30):
        policy = LinearLearner(given)
        before = policy.logits.copy()
        policy.value = (given.reference * given.proxy).sum(1) / given.scale
        linear_update(policy, sampled(policy, seed))
        moves.append((policy.logits - before) / 1e-3)
    move = np.mean(moves, 0)
    move = move - (given.reference * move).sum(1, keepdims=True)
    assert np.corrcoef(move.ravel(), expected.ravel())[0, 1] > 0.98
    assert np.linalg.norm(move) == pytest.approx(np.linalg.norm(expected), rel=0.2)


@pytest.mark.parametrize("update", UPDATES)
def test_what_one_prompt_is_paid_for_moves_a_prompt_that_is_paid_nothing(update: str) -> None:
    trait = np.linspace(-1.0, 1.0, ANSWERS)
    features = np.broadcast_to(trait[None, :, None], (PROMPTS, ANSWERS, 1))
    proxy = np.where(np.arange(PROMPTS)[:, None] == 0, trait, 0.0)
    shared = replace(world(update, features), proxy=proxy, rate=np.full(20, 0.05))
    alone = replace(shared, features=None)
    for given, moves in ((shared, True), (alone, False)):
        trace = simulate(replace(given, gold=np.where(np.arange(PROMPTS)[:, None] == 0, 0.5, 1 - (trait + 1) / 2)), 0)
        assert (trace.gold[-1] < trace.gold[0] - 0.005) == moves
        assert abs(trace.slope).max() < 1e-9


def test_features_of_another_shape_and_a_leash_are_refused() -> None:
    for features in (np.zeros((PROMPTS, ANSWERS + 1, 2)), np.full((PROMPTS, ANSWERS, 1), np.nan)):
        with pytest.raises(AttachError, match="prompts x answers x parameters"):
            world("tilt", features)
    with pytest.raises(AttachError, match="leash"):
        world("tilt", own_parameters(), leash=0.1)


@pytest.mark.parametrize("name", sorted(NETWORK_FAMILIES))
def test_gold_falls_in_the_families_of_networks_while_the_slope_inside_prompts_does_not_turn(name: str) -> None:
    kinds, turned = [], []
    for index, update in enumerate(UPDATES):
        made, seed = CampaignRun(name, update, index, 31).make_world()
        trace = simulate(made, seed)
        truth = GroundTruth.of(trace.gold, trace.slope)
        kinds.append(truth.kind)
        turned.append(truth.first_negative >= 0)
        assert trace.proxy[-1] > trace.proxy[0]
    if NETWORK_FAMILIES[name].kind == "hack":
        assert kinds.count("hack") >= 3
        assert name == "loud_parameter" or not any(turned)
    else:
        assert kinds == ["benign"] * 5 and not any(turned)


def test_networks_are_a_part_of_their_own_and_their_lines_survive_a_record() -> None:
    assert not set(FAMILIES) & set(NETWORK_FAMILIES)
    names, updates = members(NETWORK)
    assert names == list(NETWORK_FAMILIES) and updates == list(UPDATES)
    lines = [run_task(CampaignRun(name, "grpo", 0, 31)) for name in ("transfer", "boundary_shared")]
    again = expand(compact(lines))[2]
    assert score_network(again)["hack_runs"] == 1 and score_network(again)["flat_runs"] == 1
    assert score_network(again)["level_detection"] == score_network(lines)["level_detection"]
    assert score(again)["rollback_gap_median"] == pytest.approx(lines[0]["rollback_gap"], abs=1e-3)


def test_the_recorded_networks_show_what_the_slope_cannot_see() -> None:
    figures = score_network(load_recorded(NETWORK)[2])
    assert set(figures["families"]) <= set(NETWORK_FAMILIES) and set(figures["updates"]) == set(UPDATES)
    assert figures["hack_runs"] > 60 and figures["slope_never_turns"] > 0.6 * figures["hack_runs"]
    assert figures["level_detection"] > 0.8 > figures["detection"]
    assert figures["floor_median"] < figures["level_regret_median"] < figures["regret_median"]
    assert figures["flat_false_alarms"] <= 2 and figures["level_false_alarms"] <= 2
