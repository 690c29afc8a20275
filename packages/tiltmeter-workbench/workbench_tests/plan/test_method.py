"""Rules for a method: every set of means has exactly one, none asks for what is not there, and the table holds."""

from __future__ import annotations

from itertools import product

import pytest

from tiltmeter_workbench.plan.choose_method import FEW, MANY, REMARKS, RULES, AvailableInputs, StartModel, choose_method

STARTS: tuple[StartModel, ...] = ("base", "instruct")
EVERY = [
    AvailableInputs(pairs, reward_model, verifier, judge, dense, start, sampling)
    for pairs, reward_model, verifier, judge, dense, start, sampling in product(
        (0, 1, FEW - 1, FEW, MANY),
        (False, True),
        (False, True),
        (False, True),
        (False, True),
        STARTS,
        (False, True),
    )
]


@pytest.mark.parametrize(
    ("have", "steps"),
    [
        (AvailableInputs(), ()),
        (AvailableInputs(pairs=20_000), ("dpo",)),
        (AvailableInputs(pairs=2_000, sampling=False), ("dpo",)),
        (AvailableInputs(pairs=100), ("sft",)),
        (AvailableInputs(verifier=True), ("grpo",)),
        (AvailableInputs(verifier=True, start="base"), ("sft", "grpo")),
        (AvailableInputs(verifier=True, pairs=5_000), ("dpo", "grpo")),
        (AvailableInputs(verifier=True, pairs=5_000, start="base"), ("sft", "dpo", "grpo")),
        (AvailableInputs(verifier=True, reward_model=True), ("grpo",)),
        (AvailableInputs(reward_model=True), ("rloo",)),
        (AvailableInputs(reward_model=True, pairs=5_000), ("dpo", "rloo")),
        (AvailableInputs(reward_model=True, dense=True), ("ppo",)),
        (AvailableInputs(judge=True), ("iterative dpo",)),
        (AvailableInputs(judge=True, sampling=False), ("sft",)),
        (AvailableInputs(verifier=True, sampling=False), ("sft",)),
        (AvailableInputs(verifier=True, sampling=False, pairs=5_000), ("dpo",)),
        (AvailableInputs(pairs=100, judge=True), ("iterative dpo",)),
    ],
)
def test_the_method_for_what_one_has(have: AvailableInputs, steps: tuple[str, ...]) -> None:
    assert choose_method(have).steps == steps


def test_no_advice_contradicts_what_one_has() -> None:
    for have in EVERY:
        choice = choose_method(have)
        steps = choice.steps
        assert bool(steps) == have.has_signal
        assert len(set(steps)) == len(steps)
        online = {"grpo", "rloo", "ppo", "iterative dpo"} & set(steps)
        assert not online or have.sampling, have
        assert "dpo" not in steps or have.pairs >= FEW, have
        assert "grpo" not in steps or have.verifier, have
        assert "rloo" not in steps or have.reward_model, have
        assert "ppo" not in steps or (have.dense and (have.reward_model or have.verifier)), have
        assert "iterative dpo" not in steps or have.judge, have
        assert not steps or have.start == "instruct" or steps[0] == "sft", have
        assert choice.method in (None, "sft", "dpo", "grpo", "rloo", "ppo")


def test_every_rule_and_remark_is_reached_and_has_a_reason() -> None:
    reached = {choose_method(have).rule.name for have in EVERY} | {
        remark.name for have in EVERY for remark in choose_method(have).remarks
    }
    assert reached == {rule.name for rule in (*RULES, *REMARKS)}
    assert all(rule.because and (rule.source or not rule.steps) for rule in (*RULES, *REMARKS))


def test_ppo_comes_with_the_word_that_trl_has_none() -> None:
    for have in EVERY:
        choice = choose_method(have)
        if "ppo" in choice.steps:
            assert any("veRL" in remark.because for remark in choice.remarks)


def test_fewer_than_no_pairs_is_refused() -> None:
    with pytest.raises(ValueError, match="pairs"):
        choose_method(AvailableInputs(pairs=-1))
