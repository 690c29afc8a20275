"""The proving ground itself: identities of the update rules, twins, families and the split fixed in advance."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.errors import AttachError
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.worlds.calibration import dry_run, expected_update
from tiltmeter_lab.worlds.controls import matched_pair, random_sign_pair
from tiltmeter_lab.worlds.families import FAMILIES, generator, split
from tiltmeter_lab.worlds.update_rules import (
    CLIP,
    LAMBDA,
    RULES,
    Learner,
    SampledStep,
    TwoStage,
    advantages,
    clipped_gradient,
    gae_advantages,
    log_softmax,
    make_learner,
)
from tiltmeter_lab.worlds.world import UPDATES, Floats, World, load_worlds


def small(update: str, prompts: int = 4, answers: int = 12, **more: object) -> World:
    rng = np.random.default_rng(5)
    reference = rng.dirichlet(np.full(answers, 3.0), prompts)
    facts: dict[str, object] = {"steps": 20, "rate": 1e-4, "groups": 64, "group_size": 8, **more}
    shape = (prompts, answers)
    return World("small", reference, rng.standard_normal(shape), rng.random(shape), update=update, **facts)  # type: ignore[arg-type]


def drawn(policy: Learner, step: int = 0, seed: int = 0) -> SampledStep:
    """What a step of this policy could have seen."""
    world, rng = policy.world, np.random.default_rng(seed)
    table, logs = policy.policy()
    prompt = rng.integers(0, len(table), world.groups)
    uniform = rng.random((world.groups, world.group_size, 1))
    answer = (np.cumsum(table, 1)[prompt][:, None, :] < uniform).sum(2).clip(max=table.shape[1] - 1)
    return SampledStep(step, table, logs, world.proxy, prompt, answer, world.proxy[prompt[:, None], answer])


def gold(policy: Learner) -> Floats:
    return np.asarray((policy.policy()[0] * policy.world.gold).sum(1), np.float64)


def covariance(table: Floats, one: Floats, other: Floats) -> Floats:
    mean = (table * one).sum(1, keepdims=True)
    return np.asarray((table * (one - mean) * other).sum(1), np.float64)


def run(name: str, index: int, update: str, seed: int = 11) -> tuple[World, Trace]:
    world = FAMILIES[name].world(seed, index, update)
    return world, simulate(world, index)


def test_gold_moves_with_the_covariance_under_the_exact_tilt() -> None:
    policy = Learner(small("tilt"))
    seen = drawn(policy)
    before = gold(policy)
    RULES["tilt"](policy, seen)
    slope = covariance(seen.policy, policy.world.proxy, policy.world.gold) / policy.world.scale
    assert (gold(policy) - before) / 1e-4 == pytest.approx(slope, abs=1e-4)


def test_gold_moves_with_the_normalised_covariance_under_the_natural_gradient() -> None:
    policy = Learner(small("natural"))
    seen = drawn(policy)
    before = gold(policy)
    RULES["natural"](policy, seen)
    spread = np.sqrt(covariance(seen.policy, policy.world.proxy, policy.world.proxy))
    slope = covariance(seen.policy, policy.world.proxy, policy.world.gold) / spread
    assert (gold(policy) - before) / 1e-4 == pytest.approx(slope, abs=1e-4)


def test_the_plain_gradient_is_the_derivative_of_the_expected_reward() -> None:
    world = small("gradient")
    policy = Learner(world)
    seen = drawn(policy)
    RULES["gradient"](policy, seen)
    typical = (seen.policy**2).sum(1)
    moved = (policy.logits - policy.start) * typical[:, None] / 1e-4 * world.scale

    def reward(logits: Floats) -> Floats:
        return np.asarray((np.exp(log_softmax(logits)) * world.proxy).sum(1), np.float64)

    for answer in range(12):
        nudge = np.zeros(12)
        nudge[answer] = 1e-5
        numeric = (reward(policy.start + nudge) - reward(policy.start - nudge)) / 2e-5
        assert moved[:, answer] == pytest.approx(numeric, abs=1e-6)


def test_the_expected_step_of_grpo_is_the_natural_one() -> None:
    world = small("grpo", normalise=False)
    total, count = np.zeros(world.reference.shape), 600
    for seed in range(count):
        policy = Learner(world)
        RULES["grpo"](policy, drawn(policy, seed=seed))
        total += policy.logits - policy.start
    mean = (world.reference * world.proxy).sum(1, keepdims=True)
    # A reward minus its group's mean holds 1 / group_size of itself.
    wanted = 1e-4 * (world.proxy - mean) / world.scale * (1 - 1 / world.group_size)
    assert np.corrcoef((total / count).ravel(), wanted.ravel())[0, 1] > 0.995
    assert (total / count / wanted)[np.abs(wanted) > 5e-5] == pytest.approx(1.0, abs=0.25)


def test_the_gold_of_grpo_moves_with_the_covariance_on_average() -> None:
    world, moved = small("grpo", normalise=False, rate=1e-3), []
    for seed in range(500):
        policy = Learner(world)
        before = gold(policy)
        RULES["grpo"](policy, drawn(policy, seed=seed))
        moved.append(gold(policy) - before)
    slope = covariance(world.reference, world.proxy, world.gold) / world.scale * (1 - 1 / world.group_size)
    error = np.std(moved, axis=0) / 1e-3 / np.sqrt(len(moved))
    assert (np.abs(np.mean(moved, axis=0) / 1e-3 - slope) < 4 * error + 0.003).all()


@pytest.mark.parametrize("update", ["tilt", "gradient"])
def test_under_a_leash_the_policy_rests_at_the_tilt_by_reward_over_leash(update: str) -> None:
    world = small(update, rate=0.1, leash=0.5)
    policy = Learner(world)
    policy.logits += 2.0 * world.proxy / world.scale
    before = policy.policy()[0]
    RULES[update](policy, drawn(policy))
    assert policy.policy()[0] == pytest.approx(before, abs=1e-4)
    loose = replace(world, leash=0.0)
    policy.world = loose
    RULES[update](policy, drawn(policy))
    assert np.abs(policy.policy()[0] - before).max() > 1e-3


def test_a_group_without_spread_teaches_nothing() -> None:
    assert (advantages(np.full((3, 4), 0.1 + 0.2), True, 1.0) == 0).all()


def test_the_two_stages_of_ppo_start_at_the_reference() -> None:
    world = small("ppo", answers=11)
    policy = make_learner(world)
    assert isinstance(policy, TwoStage)
    assert policy.width == 4
    assert policy.policy()[0] == pytest.approx(world.reference, abs=1e-12)
    assert isinstance(make_learner(small("grpo")), Learner)


def test_generalised_advantages_are_the_sum_of_discounted_errors() -> None:
    rng = np.random.default_rng(0)
    reward, whole, unfinished = rng.standard_normal((3, 50))
    errors = np.stack([unfinished - whole, reward - unfinished])
    first, second = gae_advantages(reward, whole, unfinished)
    by_hand = [sum(LAMBDA ** (later - now) * errors[later] for later in range(now, 2)) for now in range(2)]
    assert np.stack([first, second]) == pytest.approx(np.stack(by_hand))


def test_pressure_is_the_derivative_of_the_clipped_objective() -> None:
    def objective(logs: Floats, gain: Floats) -> Floats:
        ratio = np.exp(logs)
        return np.minimum(ratio * gain, np.clip(ratio, 1 - CLIP, 1 + CLIP) * gain)

    logs, gain = (axis.ravel() for axis in np.meshgrid(np.linspace(-0.61, 0.6, 40), [-1.5, -0.2, 0.3, 2.0]))
    numeric = (objective(logs + 1e-6, gain) - objective(logs - 1e-6, gain)) / 2e-6
    assert clipped_gradient(np.exp(logs), gain) == pytest.approx(numeric, abs=1e-5)


def test_ppo_stops_where_the_ratio_is_clipped() -> None:
    """A step a thousand times as long does not go half as far as it would without the clip."""

    def ratio(rate: float) -> float:
        policy = make_learner(small("ppo", prompts=1, rate=rate))
        assert isinstance(policy, TwoStage)
        seen = drawn(policy)
        before = log_softmax(policy.first)
        RULES["ppo"](policy, seen)
        return float(np.abs(log_softmax(policy.first) - before).max())

    free = ratio(1e-3) * 1000
    assert ratio(1e-3) < np.log(1 + CLIP)
    assert ratio(1.0) < 0.5 * free


def test_the_values_of_ppo_converge_to_what_the_policy_earns() -> None:
    world = small("ppo", rate=0.0)
    policy = make_learner(world)
    assert isinstance(policy, TwoStage)
    kept = []
    for step in range(400):
        RULES["ppo"](policy, drawn(policy, seed=step))
        kept.append(policy.values[0].copy())
    earned = (world.reference * world.proxy).sum(1) / world.scale
    assert np.mean(kept[100:], axis=0) == pytest.approx(earned, abs=0.05)


def test_ppo_learns_its_reward() -> None:
    trace = simulate(small("ppo", rate=0.02, steps=150), 0)
    assert trace.proxy[-1] > trace.proxy[0] + 0.7


def test_the_dry_run_of_ppo_agrees_with_ppo() -> None:
    world = small("ppo", prompts=6, answers=64, rate=0.006, steps=150, groups=96)
    way, trace = dry_run(world), simulate(world, 0)
    mean = np.einsum("kpy,py->k", way.policy, world.proxy) / 6
    planned = np.interp(world.rate.sum(), way.total, mean) - mean[0]
    assert 0.6 < (trace.proxy[-1] - trace.proxy[0]) / planned < 1.4


def test_the_expected_step_of_grpo_knows_that_an_answer_is_part_of_its_group() -> None:
    world = replace(small("grpo", prompts=1, answers=50), proxy=np.eye(1, 50), reference=np.full((1, 50), 0.02))
    gain = expected_update(world, world.reference)[0, 0]
    assert gain == pytest.approx(np.sqrt(world.group_size - 1), rel=0.1)


@pytest.mark.parametrize("update", UPDATES)
def test_twins_differ_in_gold_alone(update: str) -> None:
    hack, healthy = (simulate(world, 7) for world in matched_pair(np.random.default_rng(3), update))
    for name in ("prompt", "reward", "kl", "entropy", "tokens", "proxy"):
        assert np.array_equal(getattr(hack, name), getattr(healthy, name)), name
    assert all(np.array_equal(hack.parts[name], healthy.parts[name]) for name in hack.parts)
    assert hack.gold.argmax() < len(hack.gold) - 10
    assert GroundTruth.of(hack.gold, hack.slope).drop >= 0.03
    assert GroundTruth.of(healthy.gold, healthy.slope).kind == "benign"


def test_signs_of_length_and_entropy_are_tossed() -> None:
    signs: dict[bool, set[tuple[bool, bool]]] = {True: set(), False: set()}
    for index in range(16):
        for hacked, world in zip(
            (True, False), random_sign_pair(np.random.default_rng(index), "gradient"), strict=True
        ):
            policy = Learner(world)
            before, logs = policy.policy()
            policy.logits += 0.5 * world.proxy / world.scale
            after, tilted = policy.policy()
            assert world.tokens is not None
            longer = ((after - before) * world.tokens).sum() > 0
            signs[hacked].add((bool(longer), bool((before * logs).sum() > (after * tilted).sum())))
    assert {len(seen) for seen in signs.values()} == {4}


def test_the_split_is_the_one_that_was_fixed() -> None:
    text = json.loads(resources.files("tiltmeter_lab").joinpath("split.json").read_text())
    hacks = [set(part["hacks"]) for part in text.values()]
    benign = [set(part["benign"]) for part in text.values()]
    assert list(text) == ["dev", "calibration", "heldout"]
    assert sum(map(len, hacks)) == len(set.union(*hacks)) == 13
    assert sum(map(len, benign)) == len(set.union(*benign)) == 10
    assert set(text["heldout"]["updates"]) - set(text["dev"]["updates"]) == {"gradient", "ppo"}
    assert {family.name for family in split("heldout")[0] if family.cliff} == {"heavy_pareto", "phase_switch"}
    with pytest.raises(AttachError, match="dev"):
        split("test")


def test_a_run_is_the_same_whenever_it_is_made() -> None:
    (one, first), (two, second) = run("weak_rm", 3, "grpo"), run("weak_rm", 3, "grpo")
    assert np.array_equal(one.gold, two.gold)
    assert np.array_equal(first.label, second.label)
    assert not np.array_equal(one.gold, FAMILIES["weak_rm"].world(11, 4, "grpo").gold)
    assert generator("length", 1, 2).random() != generator("weak_rm", 1, 2).random()


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.kind == "hack"])
def test_hack_families_rise_turn_and_fall(name: str) -> None:
    world, trace = run(name, 0, "natural")
    assert world.cliff == FAMILIES[name].cliff
    assert world.family == name
    assert world.groups * world.group_size == 512
    truth = GroundTruth.of(trace.gold, trace.slope)
    assert 0 < truth.peak < 0.8 * world.steps
    assert trace.gold.max() > trace.gold[0]
    assert truth.drop >= 0.03


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.kind != "hack"])
def test_benign_families_do_not_lose_gold_though_their_policy_moves(name: str) -> None:
    for index, update in enumerate(("natural", "grpo", "ppo")[: size(2, 3)]):
        _, trace = run(name, index, update)
        truth = GroundTruth.of(trace.gold, trace.slope)
        assert truth.drop <= 0.01, update
        assert trace.kl[-1] > 0.2
        if FAMILIES[name].kind == "boundary":
            assert np.abs(trace.slope).max() < 1e-9
            assert trace.reward.std() > 0


@pytest.mark.parametrize("update", ["gradient", "grpo", "ppo"])
def test_sampled_rules_fall_too(update: str) -> None:
    drops = [
        GroundTruth.of(trace.gold, trace.slope).drop
        for index, name in enumerate(("length", "mode_collapse", "kl_failure"))
        for _, trace in [run(name, index, update)]
    ]
    assert np.median(drops) >= 0.05


def test_a_mastered_verifier_leaves_dead_groups_and_a_jump_is_fast() -> None:
    _, mastered = run("mastery", 0, "tilt")
    assert (mastered.reward[-1].std(1) == 0).mean() > 0.5
    world, jump = run("fast_jump", 0, "tilt")
    assert np.diff(jump.kl).max() > 5 * jump.kl[-1] / world.steps


def test_the_mix_of_prompts_turns_harder() -> None:
    world, trace = run("prompt_mix", 1, "tilt")
    assert world.mix is not None
    level = (world.reference * world.gold).sum(1)
    assert world.mix[-1] @ level < world.mix[0] @ level - 0.01
    assert trace.gold[-1] > trace.gold[0]


OUTSIDE = """
from types import SimpleNamespace

ONE = {"reference": [[0.5, 0.5], [0.2, 0.3, 0.5]], "proxy": [[0, 1], [1, 2, 3]], "gold": [[1, 0], [0, 1, 1]]}
SHORT = {**ONE, "length": 40, "update": "npg"}
LONG = {**ONE, "length": [[10, 20], [5, 6, 7]]}
THING = SimpleNamespace(**ONE)
SEVERAL = [SHORT, {**ONE, "family": "named"}]
FAMILIES = {"a": ONE, "b": lambda: SHORT, "c": lambda rng: {**ONE, "rate": float(rng.random())}}
WRONG = {**ONE, "colour": "red"}


def alone(rng):
    return {"reference": [0.5, 0.5], "proxy": [0, 1], "gold": [1, 0]}
"""


def test_worlds_of_others_come_in_any_form_that_says_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "theirs.py"
    file.write_text(OUTSIDE)

    def made(name: str) -> dict[str, World]:
        return {family: maker(np.random.default_rng(0)) for family, maker in load_worlds(f"{file}:{name}")}

    short = made("SHORT")["SHORT"]
    assert (short.steps, short.update, short.reference.shape) == (40, "natural", (2, 3))
    long = made("LONG")["LONG"]
    assert long.tokens is not None
    assert (long.steps, long.tokens.tolist()) == (200, [[10, 20, 0], [5, 6, 7]])
    assert made("THING")["THING"].gold.tolist() == [[1, 0, 0], [0, 1, 1]]
    assert list(made("SEVERAL")) == ["SEVERAL_0", "named"]
    assert list(made("FAMILIES")) == ["a", "b", "c"]
    assert made("alone")["alone"].reference.shape == (1, 2)
    with pytest.raises(AttachError, match="unknown fields colour"):
        made("WRONG")
    with pytest.raises(AttachError, match="defines no"):
        made("NOTHING")
