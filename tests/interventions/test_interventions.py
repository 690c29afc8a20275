"""What is proposed when, within which limits, what may be done without asking, and how the outcome is judged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tiltmeter.cli.run import actions as verbs
from tiltmeter.data.records import Action, Finding, Reading
from tiltmeter.diagnosis import FAILURES, knobs_for
from tiltmeter.interventions import BUILTIN, Intervention
from tiltmeter.interventions.kl_controller import KlController
from tiltmeter.interventions.outcome import verdict
from tiltmeter.interventions.policy import COOL_DOWN, PATIENCE, WINDOW, InterventionPolicy
from tiltmeter.interventions.reward_weight import RewardWeight
from tiltmeter.interventions.roll_back import RollBack, RollbackAction
from tiltmeter.rundir import journal, requests
from tiltmeter.rundir.requests import KNOBS, Knob, Receipt, request_for
from tiltmeter.rundir.signing import make_token, read_token
from tiltmeter.rundir.store import RunDirectory

FROM_ZERO = "it started at 0: there is no reference model; start with beta=1e-6"
MADE: tuple[Callable[[], Intervention], ...] = (*BUILTIN, partial(KlController, 6.0))


def knobs(**values: float) -> dict[str, Knob]:
    """A trainer's knobs, with other values where they are given."""
    found = {
        "beta": Knob("beta", 0.04, 1e-6, 1.0),
        "entropy_coef": Knob("entropy_coef", 0.0, 0.0, 0.05),
        "learning_rate": Knob("learning_rate", 1e-5, 1e-7, 1e-5),
        "reward_weight.style": Knob("reward_weight.style", 1.0, 0.0, 1.0),
        "reward_weight.tests": Knob("reward_weight.tests", 1.0, 0.0, 1.0),
        "gold_share": Knob("gold_share", 0.02, 0.02, 0.1),
        "stop": Knob("stop", 0.0, 0.0, 1.0),
        "rollback": Knob("rollback", 200.0, 0.0, 150.0),
    }
    return found | {name: replace(found[name], value=value) for name, value in values.items()}


def finding(failure: str = "length_hacking", step: int = 120, confidence: float = 0.8, **rest: Any) -> Finding:
    return Finding(rest.pop("attempt", 0), step, failure, confidence, rest.pop("alarms", ("gold.slope",)), (), **rest)


def made(make: Callable[[], Intervention]) -> Intervention:
    part = make()
    if isinstance(part, KlController):
        for step in range(part.every):
            part.fold(Reading(0, step, "policy.kl.k3", 12.0, 8))
    return part


ON_ROLLOUTS = {name: Knob(name, 0.0, 0.0, 1.0) for name in ("screen", "penalty", "inoculate", "quarantine.swe")}


# -- every intervention against its protocol --------------------------------------------------------------------------


@pytest.mark.parametrize("make", MADE)
def test_an_intervention_has_its_facts(make: Callable[[], Intervention]) -> None:
    part = make()
    assert part.knob in KNOBS
    assert part.answers and set(part.answers) <= {*FAILURES, "kl_target"}
    assert isinstance(part.reversible, bool) and isinstance(part.conservative, bool)


@pytest.mark.parametrize("make", MADE)
def test_a_proposal_is_absolute_within_limits_and_the_same_again(make: Callable[[], Intervention]) -> None:
    part, twin, offer = made(make), made(make), knobs() | ON_ROLLOUTS
    for failure in part.answers:
        one = finding(failure, alarms=("env.swe.gold.slope",))
        action = part.propose(one, offer)
        assert action is not None
        assert action == twin.propose(one, offer) == part.propose(one, offer)
        knob = offer[action.knob]
        assert action.knob.split(".")[0] == part.knob
        assert action.before == knob.value != action.after
        assert knob.floor <= action.after <= knob.ceiling
        assert (action.finding, action.state, action.step) == (failure, "proposed", 120)


@pytest.mark.parametrize("make", MADE)
def test_nothing_is_proposed_where_nothing_can_move(make: Callable[[], Intervention]) -> None:
    part = made(make)
    assert part.propose(finding(part.answers[0]), {}) is None
    fixed = {name: replace(knob, why="it is fixed") for name, knob in knobs().items()}
    assert part.propose(finding(part.answers[0]), fixed) is None
    ends = {name: replace(knob, floor=knob.value, ceiling=knob.value) for name, knob in knobs().items()}
    assert part.propose(finding(part.answers[0]), ends) is None


def test_what_a_diagnosis_names_first_has_an_intervention() -> None:
    parts = [make() for make in BUILTIN]
    for failure in FAILURES:
        wanted = knobs_for(failure)
        if not wanted or failure in ("no_progress",):  # a faster rate or a longer leash is for a person
            continue
        assert any(part.knob == wanted[0] and failure in part.answers for part in parts), failure


def test_a_leash_that_is_hardly_there_is_raised_to_where_it_is_felt() -> None:
    beta = next(part for part in (make() for make in BUILTIN) if part.knob == "beta")
    action = beta.propose(finding(), knobs(beta=1e-6))
    assert action is not None and action.after == 0.01


def test_a_rollback_changes_something_and_turns_to_the_rate_where_beta_cannot_move() -> None:
    action = RollBack().propose(finding(), knobs())
    assert isinstance(action, RollbackAction)
    assert (action.after, action.with_knob, action.with_value) == (150.0, "beta", 0.16)
    action = RollBack().propose(finding(), knobs() | {"beta": Knob("beta", 0.0, 1e-6, 1.0, FROM_ZERO)})
    assert isinstance(action, RollbackAction)
    assert action.with_knob == "learning_rate" and action.with_value == pytest.approx(2e-6)
    assert RollBack().propose(finding(), {"rollback": knobs()["rollback"]}) is None


def test_one_reward_function_alone_has_no_weight_to_lower() -> None:
    alone = {name: knob for name, knob in knobs().items() if name != "reward_weight.tests"}
    assert RewardWeight().propose(finding(), alone) is None


def test_the_controller_brings_kl_to_its_target_and_no_faster_than_published() -> None:
    """A policy whose KL is 0.4 / beta nats: at a target of 6 beta must end near 0.0667."""
    steer, offer = KlController(6.0), {"beta": Knob("beta", 0.01, 1e-6, 1.0)}
    for step in range(600):
        beta = offer["beta"].value
        steer.fold(Reading(0, step, "policy.kl.k3", 0.4 / beta, 8))
        action = steer.propose(finding("kl_target", step), offer)
        if action is not None:
            assert 0.8 - 1e-9 <= action.after / action.before <= 1.2 + 1e-9
            offer["beta"] = replace(offer["beta"], value=action.after)
            steer.restart()
    assert 0.4 / offer["beta"].value == pytest.approx(6.0, rel=0.1)


def test_a_target_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="nats per completion"):
        KlController(0.0)


# -- the steward ------------------------------------------------------------------------------------------------------


def receipt(
    action: Action, step: int, kind: str = "apply", rank: int = 0, state: Any = "applied", why: str = ""
) -> Receipt:
    value = (action.after, action.before) if kind == "undo" else (action.before, action.after)
    return Receipt(f"{action.id}.{kind}", rank, state, action.knob, *value, step, why)


def steward(mode: Any = "advise", offer: dict[str, Knob] | None = None, **settings: Any) -> InterventionPolicy:
    settings.setdefault("order", {failure: knobs_for(failure) for failure in FAILURES})
    return InterventionPolicy(mode, knobs() if offer is None else offer, **settings)


def told(
    steward: InterventionPolicy, steps: Iterable[int], *found: Finding, attempt: int = 0, **rest: Any
) -> list[Action]:
    """All that is proposed over some steps, the findings told at the first."""
    said: list[Action] = []
    for step in steps:
        said += steward.consider(attempt, step, found if step == found[0].step else (), (), rest.get("saved", (50,)))
        steward.judge_outcome(step)
    return said


def test_observing_proposes_nothing_and_asks_nothing() -> None:
    quiet = steward("observe")
    assert told(quiet, range(120, 300), finding()) == []
    assert quiet.requests([Action("0-120-beta", 0, 120, "x", "beta", 0.0, 1.0, "")]) == []


def test_a_doubtful_finding_is_not_worth_a_proposal_and_one_that_is_over_is_dropped() -> None:
    assert told(steward(), range(120, 200), finding(confidence=0.2)) == []
    over = steward()
    said = over.consider(0, 120, [finding(), finding(confidence=0.0)], (), ())
    assert said == []


def test_there_is_one_open_proposal_a_knob_however_many_findings_want_it() -> None:
    said = told(steward(), range(120, 120 + PATIENCE), finding("hedging"), finding("sycophancy"))
    assert [action.id for action in said] == ["0-120-beta"]


def test_a_proposal_expires_and_comes_back_after_the_cool_down() -> None:
    said = told(steward(), range(120, 250), finding())
    expired = 120 + PATIENCE + 1
    assert [(action.knob, action.state, action.step) for action in said] == [
        ("beta", "proposed", 120),
        ("beta", "expired", 120),
        ("beta", "proposed", expired + COOL_DOWN),
        ("beta", "expired", expired + COOL_DOWN),
    ][: len(said)]
    assert len(said) >= 3


@pytest.mark.parametrize("answer", ["refused", "rejected"])
def test_what_was_refused_is_not_asked_again_and_the_next_is_tried(answer: str) -> None:
    run = steward()
    [first] = run.consider(0, 120, [finding()], (), (50,))
    if answer == "refused":
        moved = run.heard(receipt(first, 121, state="refused", why="no"), 121)
    else:
        moved = run.heard(request_for(first, "reject", "operator", expires_step=200), 121)
    assert [(action.id, action.state) for action in moved] == [(first.id, answer)]
    assert [action.knob for action in told(run, range(122, 160), finding(step=122))] == ["rollback"]


def test_a_beta_that_started_at_zero_is_refused_with_the_reason_once_and_the_next_is_tried() -> None:
    offer = knobs() | {"beta": Knob("beta", 0.0, 1e-6, 1.0, FROM_ZERO)}
    said = told(steward(offer=offer), range(120, 150), finding())
    assert [(action.knob, action.state) for action in said] == [("beta", "refused"), ("rollback", "proposed")]
    assert FROM_ZERO in said[0].reason


def test_a_knob_that_a_trainer_lacks_is_said_and_passed_over() -> None:
    said = told(steward(offer={"stop": knobs()["stop"]}), range(120, 130), finding("mode_collapse"), finding())
    assert {(action.knob, action.state) for action in said} == {
        ("entropy_coef", "refused"), ("beta", "refused"), ("learning_rate", "refused"), ("rollback", "refused"),
        ("reward_weight", "refused"), ("stop", "proposed"),
    }  # fmt: skip


def test_the_weight_that_is_lowered_is_of_the_function_that_brings_the_gain() -> None:
    run = steward()
    gains = [Reading(0, 120, "reward.gain_share.tests", 0.2, 8), Reading(0, 120, "reward.gain_share.style", 0.8, 8)]
    [action] = run.consider(0, 120, [finding("format_hacking")], gains, ())
    assert (action.knob, action.after) == ("reward_weight.style", 0.5)


def test_a_rollback_goes_to_the_last_checkpoint_before_the_onset() -> None:
    run = steward(offer={name: knob for name, knob in knobs().items() if name in ("rollback", "learning_rate", "stop")})
    said = run.consider(0, 120, [finding()], (), (40, 60, 80, 100, 120), {"length_hacking": 85})
    assert said[-1].knob == "rollback" and said[-1].after == 80.0
    late = steward(
        offer={name: knob for name, knob in knobs().items() if name in ("rollback", "learning_rate", "stop")}
    )
    said = late.consider(0, 120, [finding()], (), (100, 120), {"length_hacking": 85})
    assert [(a.knob, a.state) for a in said if a.knob in ("rollback", "stop")] == [
        ("rollback", "refused"),
        ("stop", "proposed"),
    ]


def test_a_run_goes_back_three_times_and_no_more() -> None:
    run = steward("act", {name: knob for name, knob in knobs().items() if name in ("rollback", "beta", "stop")},
                  cool_down=1, window=5)  # fmt: skip
    run.order = {"length_hacking": ("rollback", "stop")}
    states = []
    for attempt in range(5):
        said = run.consider(attempt, 120, [finding(attempt=attempt)], (), (50,), {"length_hacking": 90})
        states.append((said[-1].knob, said[-1].state))
        if said[-1].knob == "rollback":
            assert run.requests(said)[-1].with_knob == "beta"
            run.begin_attempt(attempt + 1, "act", run.knobs)
            assert [action.state for action in run.heard(receipt(said[-1], 50), 50)] == ["applied"]
    assert states[:4] == [("rollback", "proposed")] * 3 + [("stop", "proposed")]


def test_states_follow_each_other_and_nothing_moves_twice() -> None:
    run = steward()
    [action] = run.consider(0, 120, [finding()], (), ())
    approve = request_for(action, "approve", "operator", expires_step=170)
    assert [a.state for a in run.heard(approve, 121)] == ["approved"]
    assert run.heard(approve, 121) == []
    done = receipt(action, 122, "approve")
    assert [a.state for a in run.heard(done, 123)] == ["applied"]
    assert run.knobs["beta"].value == 0.08
    assert run.heard(done, 123) == run.heard(approve, 123) == []
    assert run.heard(receipt(action, 125, "apply", state="refused"), 125) == []
    back = receipt(action, 130, "undo")
    assert [a.state for a in run.heard(back, 131)] == ["reverted"]
    assert run.knobs["beta"].value == 0.04
    assert run.heard(back, 131) == run.heard(done, 131) == []
    assert run.heard(Receipt("0-7-beta.apply", 0, "applied", "beta", 0.0, 1.0, 7), 131) == []


def test_the_trainers_word_counts_even_after_a_proposal_has_expired() -> None:
    run = steward("act")
    [action] = run.consider(0, 120, [finding()], (), ())
    assert [a.state for a in run.consider(0, 171, (), (), ())] == ["expired"]
    assert [a.state for a in run.heard(receipt(action, 130), 172)] == ["applied"]


def test_on_several_ranks_all_must_have_done_it() -> None:
    run = steward("act", ranks=3)
    [action] = run.consider(0, 120, [finding()], (), ())
    assert run.heard(receipt(action, 121, rank=0), 121) == run.heard(receipt(action, 121, rank=1), 121) == []
    assert run.heard(receipt(action, 121, rank=1), 121) == []
    assert [a.state for a in run.heard(receipt(action, 121, rank=2), 121)] == ["applied"]
    other = steward("act", ranks=2)
    [action] = other.consider(0, 120, [finding()], (), ())
    other.heard(receipt(action, 121, rank=0), 121)
    [moved] = other.heard(receipt(action, 121, rank=1, state="refused", why="out of memory"), 121)
    assert moved.state == "refused" and moved.reason == "rank 1: out of memory"


def test_what_is_read_back_is_what_stands_in_the_journal() -> None:
    run = steward("act")
    [action] = run.consider(0, 120, [finding()], (), ())
    [moved] = run.heard(replace(receipt(action, 121), before=0.05, after=0.0799), 121)
    assert (moved.before, moved.after, run.knobs["beta"].value) == (0.05, 0.0799, 0.0799)


def test_acting_asks_with_an_absolute_value_an_end_and_one_id() -> None:
    run = steward("act")
    said = run.consider(0, 120, [finding()], (), ())
    [request] = run.requests(said)
    assert (request.id, request.value, request.expires_step) == ("0-120-beta.apply", 0.08, 120 + PATIENCE)
    assert run.requests(said) == run.requests(run.open) == [request]
    assert steward("advise").requests(said) == []


def test_a_suspicion_is_proposed_and_never_acted_on_alone() -> None:
    run = steward("act")
    said = run.consider(0, 120, [finding(confidence=0.45, alarms=("length.mean",))], (), ())
    assert said and run.requests(said) == []


@pytest.mark.parametrize(
    ("failure", "knob", "canaries", "asked"),
    [
        ("length_hacking", "beta", True, True),
        ("length_hacking", "beta", False, False),
        ("length_hacking", "stop", True, True),
        ("length_hacking", "rollback", True, False),
        ("length_hacking", "reward_weight", True, False),
        ("mode_collapse", "entropy_coef", True, False),
    ],
)
def test_a_judges_word_leads_only_to_what_holds_back_and_can_be_undone(
    failure: str, knob: str, canaries: bool, asked: bool
) -> None:
    gains = [Reading(0, 120, "reward.gain_share.style", 0.9, 8)]
    for judged in (True, False):
        run = steward("act", judged=judged)
        run.order = {failure: (knob,)}
        said = run.consider(0, 120, [finding(failure)], gains, (50,))
        assert [action.knob.split(".")[0] for action in said] == [knob]
        alone = asked or (not judged and knob != "reward_weight")  # which component is honest, only a person knows
        assert bool(run.requests(said, canaries_pass=canaries)) == alone


def test_where_nobody_has_to_be_asked_an_alarm_brings_the_run_back_before_anything_else() -> None:
    kl = [Reading(0, step, "policy.kl.k3", 0.5, 8) for step in range(60)]
    [action] = steward("act").consider(0, 120, [finding()], kl, (40, 60))
    assert isinstance(action, RollbackAction) and (action.after, action.with_knob) == (60.0, "beta")
    assert action.with_value == pytest.approx(1.0)  # 1 / sqrt(2 x 0.5): the leash that holds a KL of half a nat
    [asked] = steward("advise").consider(0, 120, [finding()], kl, (40, 60))
    assert asked.knob == "beta"
    [action] = steward("act", judged=True).consider(0, 120, [finding()], kl, (40, 60))
    assert action.knob == "beta"


def test_what_was_proposed_on_a_suspicion_makes_way_for_the_answer_to_an_alarm() -> None:
    suspected = Finding(0, 100, "length_hacking", 0.4, (), ("length.mean",))
    run = steward("act")
    assert len(run.consider(0, 100, [suspected], (), (60,))) == 1
    said = run.consider(0, 110, [finding(step=110)], (), (60,))
    assert [(action.knob, action.state) for action in said] == [("beta", "expired"), ("rollback", "proposed")]


def test_what_does_not_rest_on_the_judge_is_not_bound_by_it() -> None:
    run = steward("act", judged=True)
    said = run.consider(0, 120, [finding("unstable_training", alarms=("training.grad_norm",))], (), (50,))
    assert [request.knob for request in run.requests(said)] == ["learning_rate"]


def test_a_new_attempt_ends_what_was_open_and_reads_its_own_knobs() -> None:
    run = steward("act")
    [action] = run.consider(0, 120, [finding()], (), ())
    [moved] = run.begin_attempt(1, "act", knobs(beta=0.5))
    assert (moved.id, moved.state) == (action.id, "expired")
    assert run.open == [] and run.knobs["beta"].value == 0.5
    assert [a.before for a in run.consider(1, 100, [finding(step=100, attempt=1)], (), ())] == [0.5]


def test_the_kl_controller_acts_at_most_every_ten_steps_and_never_loosens_while_something_is_wrong() -> None:
    run = steward("act", {"beta": Knob("beta", 0.04, 1e-6, 1.0)}, target_kl=6.0)
    changes = []
    for step in range(100):
        for action in run.consider(0, step, (), [Reading(0, step, "policy.kl.k3", 12.0, 8)], ()):
            if action.state == "proposed":
                changes.append(step)
                assert run.requests([action])
                run.heard(receipt(action, step), step)
    assert changes and min(np.diff(changes)) >= 10
    low = steward("act", {"beta": Knob("beta", 0.04, 1e-6, 1.0)}, target_kl=60.0)
    low.order = {"no_progress": ()}
    found = [finding("no_progress", 0)]
    assert all(not low.consider(0, s, found, [Reading(0, s, "policy.kl.k3", 12.0, 8)], ()) for s in range(50))


def test_a_knob_that_is_changed_back_and_forth_is_left_alone() -> None:
    """KL swings from far above its target to far below: the controller follows a few times, then says why not."""
    run = steward("act", {"beta": Knob("beta", 0.04, 1e-6, 1.0)}, target_kl=6.0)
    applied: list[Action] = []
    refused: list[Action] = []
    for step in range(400):
        kl = 12.0 if len(applied) % 2 == 0 else 1.0
        for action in run.consider(0, step, (), [Reading(0, step, "policy.kl.k3", kl, 8)], ()):
            if action.state == "refused":
                refused.append(action)
            else:
                applied += run.heard(receipt(action, step), step)
    assert [action.after > action.before for action in applied] == [True, False, True, False, True]
    assert len(refused) == 1 and "back and forth 4 times" in refused[0].reason


def test_a_change_that_is_undone_in_attempt_after_attempt_ends() -> None:
    run, proposed = steward("act", {"beta": Knob("beta", 0.04, 1e-6, 1.0)}), 0
    for attempt in range(8):
        run.begin_attempt(attempt, "act", {"beta": Knob("beta", 0.04, 1e-6, 1.0)})
        made = run.consider(attempt, 100, [finding(step=100, attempt=attempt)], (), ())
        for action in made:
            if action.state == "proposed" and action.knob == "beta":
                proposed += 1
                run.heard(receipt(action, 101), 101)
                run.heard(receipt(action, 103, "undo"), 103)
    assert proposed == 3 and any("back and forth" in action.reason for action in made)


def test_a_screen_is_proposed_only_where_it_is_offered_and_before_what_slows_everything_down() -> None:
    order = {"tampering": ("screen", "quarantine", "inoculate", "penalty", "beta", "stop")}
    for offered in ({}, {"screen": Knob("screen", 0.0, 0.0, 1.0), "penalty": Knob("penalty", 0.0, 0.0, 1.0)}):
        run = steward("act", {"beta": Knob("beta", 0.04, 1e-6, 1.0), **offered}, order=order)
        (action,) = run.consider(0, 50, [finding("tampering", 50)], (), ())
        assert (action.knob, action.state) == ("screen" if offered else "beta", "proposed")
        assert len(run.requests([action])) == 1
    judged = steward("act", {"screen": Knob("screen", 0.0, 0.0, 1.0)}, order=order, judged=True)
    (action,) = judged.consider(0, 50, [finding("tampering", 50)], (), ())
    assert not judged.requests([action], canaries_pass=True), "a judge that is gold never screens"


def test_a_penalty_and_an_inoculation_wait_for_a_person() -> None:
    order = {"tampering": ("inoculate", "penalty")}
    for name in ("inoculate", "penalty"):
        run = steward("act", {name: Knob(name, 0.0, 0.0, 1.0)}, order=order)
        (action,) = run.consider(0, 50, [finding("tampering", 50)], (), ())
        assert action.knob == name and not run.requests([action])


def test_a_screen_that_goes_on_and_off_is_left_alone() -> None:
    run, proposed = steward("act", {"screen": Knob("screen", 0.0, 0.0, 1.0)}, order={"tampering": ("screen",)}), 0
    refused: list[Action] = []
    for attempt in range(8):
        run.begin_attempt(attempt, "act", {"screen": Knob("screen", 0.0, 0.0, 1.0)})
        for action in run.consider(attempt, 100, [finding("tampering", 100, attempt=attempt)], (), ()):
            refused += [action] if action.state == "refused" else []
            if action.state == "proposed":
                proposed += 1
                run.heard(receipt(action, 101), 101)
                run.heard(receipt(action, 103, "undo"), 103)
    assert proposed == 3 and any("back and forth" in action.reason for action in refused)


def test_small_corrections_of_the_controller_are_no_swings() -> None:
    run = steward("act", {"beta": Knob("beta", 0.04, 1e-6, 1.0)}, target_kl=6.0)
    changes = 0
    for step in range(400):
        kl = 6.5 if changes % 2 == 0 else 5.5
        for action in run.consider(0, step, (), [Reading(0, step, "policy.kl.k3", kl, 8)], ()):
            assert action.state == "proposed"
            changes += len(run.heard(receipt(action, step), step))
    assert changes > 20


def test_the_same_inputs_give_the_same_story_in_any_process() -> None:
    def story() -> tuple[list[Action], list[Any]]:
        rng = np.random.default_rng(5)
        run, said, ends = steward("act", target_kl=6.0), [], []
        for step in range(300):
            found = [finding(str(rng.choice(FAILURES)), step, round(rng.random(), 2))] if rng.random() < 0.1 else []
            readings = [Reading(0, step, "gold.mean", rng.random(), 8), Reading(0, step, "policy.kl.k3", 8.0, 8)]
            made = run.consider(0, step, found, readings, list(range(0, step, 25)))
            said += made
            for action in made:
                if rng.random() < 0.5 and action.state == "proposed":
                    said += run.heard(receipt(action, step), step)
            ends += run.judge_outcome(step)
        return said, ends

    first, second = story(), story()
    assert first == second and len(first[0]) > 10 and first[1]
    assert len({(action.id, action.state) for action in first[0]}) == len(first[0])


def test_a_journal_of_states_brings_a_steward_to_where_it_was() -> None:
    live, again = steward("act"), steward("act")
    [action] = live.consider(0, 120, [finding()], (), ())
    [applied] = live.heard(receipt(action, 121), 121)
    again.consider(0, 120, [finding()], (), ())
    again.restore(applied, 121)
    assert again.knobs == live.knobs and again.open == live.open == []
    assert told(live, range(122, 200), finding(step=122)) == told(again, range(122, 200), finding(step=122))


# -- outcomes ---------------------------------------------------------------------------------------------------------


def series(values: Iterable[float], name: str = "gold.mean", first: int = 0, attempt: int = 0) -> list[Reading]:
    return [Reading(attempt, first + t, name, float(value), 8) for t, value in enumerate(values)]


def judged(gold: Iterable[float], name: str = "gold.mean") -> Any:
    """The outcome of a beta raised after step 39, with 40 steps of gold before it and 40 after."""
    run = steward("act")
    readings = series(gold, name)
    [action] = run.consider(0, 39, [finding(step=39)], readings[:40], ())
    run.heard(receipt(action, 39), 39)
    for reading in readings[40:]:
        if ends := run.judge_outcome(reading.step, [reading]):
            assert reading.step == 39 + WINDOW
            return ends[0]
    return None


NOISE = np.random.default_rng(0).normal(0, 0.01, 80)
FALL, FLAT = 0.8 - 0.01 * np.arange(40), np.full(40, 0.41)


@pytest.mark.parametrize(
    ("gold", "word"),
    [
        (np.concatenate([FALL, FLAT]), "better"),  # the fall was halted, though the mean is lower than before
        (np.concatenate([FALL, 0.4 + 0.01 * np.arange(40)]), "better"),
        (np.concatenate([FALL, 0.4 - 0.01 * np.arange(40)]), "worse"),
        (np.concatenate([FLAT, 0.41 - 0.01 * np.arange(40)]), "worse"),
        (np.concatenate([FLAT, FLAT]), "no clear change"),
        (np.concatenate([0.3 + 0.005 * np.arange(40), np.full(40, 0.495)]), "no clear change"),  # learnt what there is
    ],
)
def test_an_outcome_compares_gold_before_and_after(gold: Any, word: str) -> None:
    end = judged(gold + NOISE)
    assert end.verdict == word, end.sentence
    assert word in end.sentence and "beta 0.04 -> 0.08" in end.sentence


def test_without_gold_nobody_says_better() -> None:
    end = judged(np.linspace(0, 1, 80), "reward.mean")
    assert end.verdict == "no clear change" and "without gold" in end.sentence
    assert set(end.numbers) == {"reward_before", "reward_after"}


def test_where_gold_is_flat_the_slope_of_gold_decides() -> None:
    before = {"gold.slope": [(t, -0.3 + 0.1 * NOISE[t]) for t in range(20)]}
    after = {"gold.slope": [(t, 0.2 + 0.1 * NOISE[t]) for t in range(20)]}
    assert verdict(before, after)[0] == "better" and verdict(after, before)[0] == "worse"


def test_gold_itself_counts_more_than_its_slope() -> None:
    before = {"gold.mean": [(t, 0.8 + NOISE[t]) for t in range(20)], "gold.slope": [(t, NOISE[t]) for t in range(20)]}
    after = {
        "gold.mean": [(t, 0.5 + NOISE[t]) for t in range(20)],
        "gold.slope": [(t, 1 + NOISE[t]) for t in range(20)],
    }
    assert verdict(before, after)[0] == "worse" and verdict(after, before)[0] == "better"


def test_noise_alone_is_seldom_called_better_or_worse() -> None:
    """Of 1,000 flat runs whose gold is a mean of 16 labels."""
    rng, wrong = np.random.default_rng(3), 0
    for _ in range(1000):
        gold = rng.binomial(16, 0.5, 40) / 16
        points = list(enumerate(gold.tolist()))
        wrong += verdict({"gold.mean": points[:20]}, {"gold.mean": points[20:]})[0] != "no clear change"
    assert wrong <= 20


def test_gold_that_comes_late_is_waited_for_one_window_and_no_longer() -> None:
    run = steward("act")
    [action] = run.consider(0, 39, [finding(step=39)], series(np.full(40, 0.5)), ())
    run.heard(receipt(action, 39), 39)
    steps = [step for step in range(40, 100) if run.judge_outcome(step)]
    assert steps == [39 + 2 * WINDOW]


def test_a_rollback_is_held_against_the_steps_before_it_in_the_attempt_that_was_left() -> None:
    run = steward("act")
    run.order = {"length_hacking": ("rollback",)}
    [action] = run.consider(
        0, 119, [finding(step=119)], series(np.linspace(0.8, 0.2, 120)), (60,), {"length_hacking": 70}
    )
    run.begin_attempt(1, "act", knobs(beta=0.16))
    run.heard(replace(receipt(action, 60), before=0.04, after=0.16), 60)
    ends = []
    for reading in series(np.full(30, 0.6) + NOISE[:30], first=61, attempt=1):
        ends += run.judge_outcome(reading.step, [reading])
    assert [(end.attempt, end.step, end.verdict) for end in ends] == [(1, 60 + WINDOW, "better")]
    assert ends[0].numbers["gold_before"] == pytest.approx(0.2) and "rollback 119 -> 60" in ends[0].sentence


def test_an_action_that_is_undone_is_not_judged() -> None:
    run = steward("act")
    [action] = run.consider(0, 39, [finding(step=39)], series(np.full(40, 0.5)), ())
    run.heard(receipt(action, 39), 39)
    run.heard(receipt(action, 45, "undo"), 45)
    [end] = run.judge_outcome(46)
    assert end.verdict == "no clear change" and "undone" in end.sentence
    assert run.judge_outcome(90) == []


def test_what_helped_is_left_alone_until_gold_falls_again() -> None:
    run = steward("act")
    gold = np.concatenate([FALL, 0.4 + 0.005 * np.arange(60), 0.7 - 0.01 * np.arange(60)])
    said = []
    for reading in series(gold + np.tile(NOISE, 2)[:160]):
        found = [finding(step=39)] if reading.step == 39 else []
        for action in run.consider(0, reading.step, found, [reading], ()):
            if action.state == "proposed":
                said.append((reading.step, action.knob))
                run.heard(receipt(action, reading.step), reading.step)
        run.judge_outcome(reading.step, [reading])
    assert said[0] == (39, "beta")
    assert len(said) > 1 and said[1][0] > 100 and said[1][1] == "beta"


def test_what_did_not_help_is_followed_by_the_next_thing() -> None:
    run, said = steward("act"), []
    for reading in series(0.9 - 0.005 * np.arange(160) + np.tile(NOISE, 2)):
        found = [finding(step=39)] if reading.step == 39 else []
        for action in run.consider(0, reading.step, found, [reading], ()):
            if action.state == "proposed":
                said.append(action.knob)
                run.heard(receipt(action, reading.step), reading.step)
        run.judge_outcome(reading.step, [reading])
    assert said == ["beta", "stop"]  # no weight is known to bring the gain, and there is no checkpoint


# -- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """A run with a proposal, an applied action with an outcome, and a rollback that waits."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    requests.publish_knobs(run, 0, "advise", knobs() | {"rollback": Knob("rollback", 0.0, 0.0, math.inf)})
    make_token(run)
    book = journal.Journal(run.path / "events")
    opened: dict[str, Any] = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": [], "gold": None}
    book.commit([journal.Event("attempt", 0, -1, opened, "attempt|0|open")])
    applied = Action("0-80-learning_rate", 0, 80, "kl_failure", "learning_rate", 1e-5, 2e-6, "too fast", "applied")
    waiting = Action("0-120-beta", 0, 120, "length_hacking", "beta", 0.04, 0.08, "\x1b[31mred")
    back = RollbackAction(
        "0-119-rollback", 0, 119, "hedging", "rollback", 119.0, 60.0, "x", with_knob="beta", with_value=0.16
    )
    for record in (finding(), applied, waiting, back):
        book.commit([journal.event(record, 0, 120, "c")])
    note = {"note": "outcome", "action": applied.id, "verdict": "better", "sentence": "after that: better"}
    book.commit([journal.Event("note", 0, 120, note, "note|outcome")])
    done = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 0, "seen": 0, "lost": {}}
    book.commit([journal.Event("step_done", 0, 120, done, "step_done|0|120")])
    book.close()
    return run


def spoken(*arguments: object) -> Any:
    app = typer.Typer()
    for verb in (verbs.approve, verbs.dismiss, verbs.undo):
        app.command()(verb)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def asked(run: RunDirectory, **rest: Any) -> Any:
    return requests.read_requests(
        run, set(), read_token(run), attempt=0, step=121, kinds=requests.ALLOWED_KINDS["act"], **rest
    )


def test_actions_are_listed_with_their_outcomes_and_no_escape_passes(run: RunDirectory) -> None:
    shown = spoken("approve", run.path)
    assert shown.exit_code == 0
    assert "0-120-beta" in shown.output and "better" in shown.output and "\x1b" not in shown.output
    rows = {row["id"]: row for row in json.loads(spoken("approve", run.path, "--json").output)}
    assert rows["0-80-learning_rate"]["outcome"] == "better" and rows["0-119-rollback"]["with_value"] == 0.16


def test_an_operators_word_becomes_a_signed_request(run: RunDirectory) -> None:
    assert spoken("approve", run.path, "0-120-beta").exit_code == 0
    assert spoken("undo", run.path, "0-80-learning_rate").exit_code == 0
    assert spoken("approve", run.path, "0-119-rollback").exit_code == 0
    good, refused = asked(run, knobs=knobs() | {"rollback": Knob("rollback", 0.0, 0.0, math.inf)})
    assert refused == []
    assert {(r.action, r.kind, r.value, r.with_knob) for r in good} == {
        ("0-120-beta", "approve", 0.08, None), ("0-80-learning_rate", "undo", 1e-5, None),
        ("0-119-rollback", "approve", 60.0, "beta"),
    }  # fmt: skip
    again = spoken("approve", run.path, "0-120-beta")
    assert again.exit_code != 0 and "asked already" in str(again.exception)


def test_a_rejection_is_for_the_monitor_and_reaches_no_trainer(run: RunDirectory) -> None:
    assert spoken("dismiss", run.path, "0-120-beta").exit_code == 0
    assert [request.kind for request in asked(run)[0]] == ["reject"]
    assert requests.read_requests(run, set(), read_token(run), attempt=0, step=121) == ([], [])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("approve", "0-7-beta"), "no action"),
        (("approve", "0-80-learning_rate"), "is applied"),
        (("undo", "0-120-beta"), "is proposed"),
        (("dismiss", "0-80-learning_rate"), "is applied"),
        (("dismiss", "0-7-beta"), "neither an alarm nor a proposal '0-7-beta'; see: tiltmeter alarms "),
    ],
)
def test_what_cannot_be_asked_says_why(run: RunDirectory, arguments: tuple[str, str], why: str) -> None:
    verb, name = arguments
    answer = spoken(verb, run.path, name)
    assert answer.exit_code != 0 and why in str(answer.exception)


def test_without_the_token_nobody_asks(run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    answer = spoken("approve", run.path, "0-120-beta")
    assert answer.exit_code != 0 and "only the user who started training" in str(answer.exception)


def test_a_dry_run_prints_what_acting_would_ask_and_writes_nothing(run: RunDirectory) -> None:
    before = sorted(run.path.rglob("*"))
    shown = spoken("approve", run.path, "--dry-run")
    assert shown.exit_code == 0 and "beta to 0.08" in shown.output
    assert sorted(run.path.rglob("*")) == before


def test_an_action_with_its_setting_survives_the_journal(run: RunDirectory) -> None:
    written = [
        e.data for e in journal.read_events(run.path / "events") if e.kind == "action" and e.data["knob"] == "rollback"
    ]
    made = RollBack().propose(finding("hedging", 119), knobs())
    assert made is not None and set(written[0]) == set(asdict(made))
