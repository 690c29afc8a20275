"""The state function against the truth table: green needs all nine checks, and nothing falls through to it."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sizes import size

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Alarm, Finding, Reading
from tiltmeter.rundir.journal import Event
from tiltmeter.verdict.agreement_and_gain import Gain
from tiltmeter.verdict.checks import CHECKS, Ages, HealthCheck, run_checks
from tiltmeter.verdict.gold_standing import stand
from tiltmeter.verdict.message import message
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.stop_advice import Advice
from tiltmeter.verdict.verdict import decide, stop_advice, verdict_of

FRESH = Ages(data=1.0, waiting=None)


def alarm(tier: Any, name: str = "gold.slope", attempt: int = 0, step: int = 30) -> Alarm:
    return Alarm(attempt, name, "gold_loss", tier, "down", step, step, 10, 8, 12, 9.0, 5.0, summary="it fell")


@pytest.mark.parametrize("alarmed", [True, False])
@pytest.mark.parametrize("warned", [True, False])
def test_the_truth_table(alarmed: bool, warned: bool) -> None:
    for counts in product([True, False], repeat=9):
        checks = {name: HealthCheck(ok, f"about {name}") for name, ok in zip(CHECKS, counts, strict=True)}
        for word in ("continue", "cannot tell", None):
            advice = None if word is None else Advice(word, "of gold", None, None, "gold.mean")
            alarms, warnings = [alarm("alarm")] * alarmed, [alarm("warning")] * warned
            verdict = decide(checks, alarms, warnings, RunFacts(), advice)
            if alarmed:
                expected = ("ACT", 1)
            elif not (checks["monitor"].ok and checks["fresh"].ok):
                expected = ("STALE", 2)
            elif not all(counts):
                expected = ("BLIND", 2)
            elif warned:
                expected = ("WATCH", 2 if word == "cannot tell" else 0)
            else:
                expected = ("OK", 0) if word == "continue" else ("BLIND", 2)
            assert (verdict.state, verdict.exit_code) == expected, (counts, word)


def test_while_the_advice_is_to_stop_nothing_is_calm() -> None:
    """Whatever else is known: no OK, no exit code 0, and never "continue" beside a state that is not calm."""
    for counts in product([True, False], repeat=9):
        checks = {name: HealthCheck(ok, f"about {name}") for name, ok in zip(CHECKS, counts, strict=True)}
        for word in ("stop", "continue", "cannot tell"):
            verdict = decide(checks, [], [], RunFacts(), Advice(word, "gold fell", None, None, "gold.mean"))
            assert verdict.advice is not None
            if word == "stop":
                assert verdict.state in ("WATCH", "STALE") and verdict.exit_code == 1
            if verdict.advice.word == "continue":
                assert verdict.state in ("OK", "WATCH")


def test_a_stop_for_drift_does_not_say_that_answers_got_worse() -> None:
    checks = {name: HealthCheck(True, f"about {name}") for name in CHECKS}
    why = "the KL to the reference is 250 nats, and gold has not risen (0.57 at first, 0.60 now); more"
    for lower, words in ((True, "answers have got worse"), (False, why.partition(";")[0])):
        verdict = decide(checks, [], [], RunFacts(), Advice("stop", why, None, None, "gold.mean", lower=lower))
        assert message(verdict, RunFacts(), place="runs/a").state == f"stop advised: {words}"


def test_a_live_run_stays_ok_as_of_the_step_at_which_it_was_and_an_ended_one_does_not() -> None:
    checks = {name: HealthCheck(name != "gold_level", f"about {name}") for name in CHECKS}
    held = Advice("cannot tell", "more labels", None, None, "gold.mean", as_of=80)
    live = RunFacts(attempts={0: {}})
    verdict = decide(checks, [], [], live, held)
    assert verdict.advice is not None
    assert (verdict.state, verdict.as_of, verdict.exit_code, verdict.advice.word) == ("OK", 80, 2, "continue")
    assert verdict.sentence.startswith("as of step 80: ")
    assert message(verdict, live, place="runs/a").state.startswith("healthy as of step 80")
    assert decide(checks, [], [], RunFacts(attempts={0: {}}, ended={0}), held).state == "BLIND"
    assert decide(checks | {"gold": HealthCheck(False, "no gold")}, [], [], live, held).state == "BLIND"
    assert decide(checks, [], [], live, replace(held, lower=True)).state == "BLIND"
    assert decide(checks, [alarm("alarm")], [], live, held).as_of is None


def test_what_comes_as_often_in_healthy_runs_is_shown_and_colours_no_state() -> None:
    checks = {name: HealthCheck(True, f"about {name}") for name in CHECKS}
    go_on = Advice("continue", "no sign", None, None, "gold.mean")
    slow = Finding(0, 99, "no_progress", 0.9, (), ("reward.mean",), summary="it barely moves")
    remarks = [replace(alarm("warning", "policy.entropy"), detector=name) for name in ("departure", "decline")]
    verdict = decide(checks, [], remarks, RunFacts(findings={"no_progress": slow}), go_on)
    assert (verdict.state, verdict.exit_code, len(verdict.warnings)) == ("OK", 0, 2)
    share = replace(alarm("warning", "reward.dead_share"), detector="limit", summary="most are dead")
    verdict = decide(checks, [], [*remarks, share], RunFacts(), go_on)
    assert (verdict.state, verdict.sentence, verdict.warnings[0]) == ("WATCH", "Warning: most are dead", share)


def test_a_lower_level_of_new_prompts_is_not_calm_and_no_stop() -> None:
    checks = {name: HealthCheck(name != "gold_level", f"about {name}") for name in CHECKS}
    harder = replace(alarm("warning", "gold.prompts"), detector="new_prompts_fall", summary="a harder mix")
    for word, lower in (("stop", True), ("cannot tell", False), ("continue", False)):
        advice = Advice(word, "gold is lower", None, None, "gold.mean", lower=lower)  # type: ignore[arg-type]
        verdict = decide(checks, [], [harder], RunFacts(), advice)
        assert verdict.advice is not None
        assert (verdict.state, verdict.exit_code, verdict.advice.word) == ("WATCH", 2, "cannot tell")
        verdict = decide(checks, [alarm("alarm")], [harder], RunFacts(), Advice("stop", "", None, None, "gold.mean"))
        assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    duels = Advice("stop", "answers lose to earlier ones", None, None, "gold.mean")
    assert decide(checks, [], [harder], RunFacts(), duels).exit_code == 1
    blind = checks | {"gold": HealthCheck(False, "no gold")}
    assert decide(blind, [], [harder], RunFacts(), duels).exit_code == 1
    assert decide(blind, [], [harder], RunFacts(), replace(duels, word="cannot tell")).state == "BLIND"


def test_a_strong_finding_is_never_ok() -> None:
    checks = {name: HealthCheck(True, f"about {name}") for name in CHECKS}
    for confidence, state in ((0.9, "WATCH"), (0.2, "OK")):
        found = RunFacts(
            findings={"x": Finding(0, 9, "reward_hacking", confidence, (), ("gold.gap",), summary="it is")}
        )
        verdict = decide(checks, [], [], found, Advice("continue", "no sign", None, None, "gold.mean"))
        assert verdict.state == state
        assert state == "OK" or verdict.sentence == "reward hacking: it is"


gold_levels = st.lists(st.floats(0.0, 1.0), min_size=3, max_size=8)


@given(levels=gold_levels, labels=st.sampled_from([4, 64]), seed=st.integers(0, 1000), saves=st.booleans())
@settings(max_examples=size(60, 400), deadline=None)
def test_gold_that_stands_lower_than_it_did_is_never_calm(
    levels: list[float], labels: int, seed: int, saves: bool
) -> None:
    rng = np.random.default_rng(seed)
    told = story()
    path = np.interp(np.arange(40 * len(levels)), np.arange(len(levels)) * 40.0, levels)
    for step, level in enumerate(path, start=50):
        gold = rng.binomial(labels, level) / labels
        measured = {"gold.mean": [gold, labels, None], "gold.slope": [0.1, 2, None, [0.1, 0.2]]}
        if saves and step % 25 == 0:
            measured["training.checkpoint"] = [step, 1, None]
        told.add(Event("reading", 0, step, {"measured": measured}, f"r{step}"))
        told.add(Event("step_done", 0, step, step_done(step), f"s{step}"))
    verdict = verdict_of(told, FRESH)
    assert verdict.advice is not None
    best, now = max(0.5, np.convolve(path, np.full(20, 0.05), "valid").max()), path[-20:].mean()
    if verdict.advice.lower:
        assert verdict.state != "OK" and verdict.exit_code != 0 and verdict.advice.word != "continue"
    if labels == 64 and best - now > 0.25:
        assert verdict.exit_code != 0, "a plain fall that was labelled"
    if verdict.state == "OK" and verdict.as_of is None:
        assert "or more is excluded" in verdict.sentence
    if verdict.as_of is not None:
        assert f"as of step {verdict.as_of}: " in verdict.sentence and verdict.exit_code == 2
    assert (verdict.exit_code == 0) <= (verdict.state in ("OK", "WATCH"))


def test_counts_that_were_not_examined_are_not_green() -> None:
    assert decide({}, [], [], RunFacts()).state == "STALE"
    some = {name: HealthCheck(True, "") for name in CHECKS[:-1]}
    assert decide(some, [], [], RunFacts()).state == "BLIND"


def test_no_events_are_not_green() -> None:
    verdict = verdict_of(RunFacts(), FRESH)
    assert verdict.exit_code == 2
    assert verdict.state != "OK"


def story(**changes: Any) -> RunFacts:
    """A run that is healthy in every way, or with one thing changed."""
    detectors = [{"name": "gold_loss", "tier": "alarm", "alpha": 0.01, "watches": ["gold.slope"], "least": 13}]
    opened = {"state": "open", "facts": {"ranks": 1}, "detectors": detectors, "config": ""}
    us = changes.pop("us", (0.1, 0.2))
    steps = [Event("step_done", 0, step, step_done(step, **changes), f"s{step}") for step in range(50)]
    readings = [bets(step, *us) for step in range(50)]
    both = [event for pair in zip(readings, steps, strict=True) for event in pair]
    return RunFacts.from_events([Event("attempt", 0, -1, opened, "a"), *both])


def step_done(step: int, **changes: Any) -> dict[str, Any]:
    data = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 8, "labels": 8, "unscored": {}}
    return {**data, "gold_differs": True, "seen": step + 1, "lost": {}, "written": float(step), **changes}


def bets(step: int, *us: float) -> Event:
    measured = {"gold.mean": [0.5, 8, 0.1], "gold.slope": [0.1, 2, None, list(us)]}
    return Event("reading", 0, step, {"measured": measured}, f"r{step}")


def test_a_healthy_run_is_ok() -> None:
    assert verdict_of(story(), FRESH).state == "OK"


@pytest.mark.parametrize(
    ("changes", "ages", "state", "check"),
    [
        ({"us": ()}, FRESH, "BLIND", "gold"),
        ({"us": (0.0, 0.0)}, FRESH, "BLIND", "gold"),
        ({"us": (1e-17, -3e-17)}, FRESH, "BLIND", "gold"),  # gold that does not look at the completion
        ({"gold_differs": False}, FRESH, "BLIND", "gold"),
        ({"missing": [[1, 1]]}, FRESH, "BLIND", "ranks"),
        ({"seen": 100, "lost": {"0": [1, 1, 0, "full"]}}, FRESH, "BLIND", "kept"),
        ({"seen": 0}, FRESH, "BLIND", "kept"),
        ({"unscored": {"reward": {"infra": 1}}}, FRESH, "BLIND", "scored"),
        ({}, Ages(data=1e4, waiting=None), "STALE", "fresh"),
        ({}, Ages(data=1.0, waiting=1e4, behind=7), "STALE", "monitor"),
    ],
)
def test_each_count_fails_for_its_own_reason(changes: dict[str, Any], ages: Ages, state: str, check: str) -> None:
    told = story(**changes)
    verdict = verdict_of(told, ages)
    assert (verdict.state, verdict.exit_code) == (state, 2)
    assert not run_checks(told, ages, stop_advice(told))[check].ok


def test_old_gold_is_blind() -> None:
    told = story()
    for step in range(50, 120):
        told.add(Event("step_done", 0, step, step_done(step), f"s{step}"))
    assert verdict_of(told, FRESH).state == "BLIND"
    assert not run_checks(told, FRESH, stop_advice(told))["gold_recent"].ok


@pytest.mark.parametrize("part", ["gold_loss:gold.slope", "gold.slope"])
def test_a_detector_that_is_off_is_blind(part: str) -> None:
    told = story()
    fault = {"attempt": 0, "step": 49, "part": part, "error": "boom", "off": True}
    told.add(Event("fault", 0, 49, fault, "f"))
    assert verdict_of(told, FRESH).state == "BLIND"


def test_the_end_marker_ends_staleness_but_not_blindness() -> None:
    told = story(us=())
    told.add(Event("attempt", 0, 49, {"state": "end", "seen": 50, "lost": {}}, "e"))
    assert verdict_of(told, Ages(data=1e6, waiting=None)).state == "BLIND"


def test_an_alarm_outlives_a_rewind_until_it_is_resolved_and_a_warning_does_not() -> None:
    from dataclasses import asdict, replace

    told = story()
    for kind, name in (("alarm", "gold.slope"), ("warning", "reward.dead_share")):
        told.add(Event("alarm", 0, 30, asdict(alarm(kind, name)), f"{kind}-open"))
    verdict = verdict_of(told, FRESH)
    assert verdict.state == "ACT" and verdict.advice is not None and verdict.advice.word == "stop"
    assert len(told.open_alarms("warning")) == 1
    told.add(Event("attempt", 1, -1, {"state": "open", "facts": {"parent": 0}, "detectors": [], "config": ""}, "a1"))
    told.add(Event("step_done", 1, 20, step_done(20), "s1-20"))
    assert len(told.open_alarms("alarm")) == 1
    assert told.open_alarms("warning") == ()
    resolved = asdict(replace(alarm("alarm"), resolved=20))
    told.add(Event("alarm", 1, 20, resolved, "alarm-resolved"))
    assert told.open_alarms("alarm") == ()


@pytest.mark.parametrize(("gold", "state"), [(0.35, "BLIND"), (0.6, "OK")])
def test_a_reward_that_gained_much_while_gold_was_not_seen_to_is_not_ok(
    gold: float, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {name: HealthCheck(True, f"about {name}") for name in CHECKS}
    labels = [Reading(0, step, "gold.mean", 0.35 if step < 40 else gold, 64) for step in range(120)]
    standing = stand(119, {"gold.mean": ReadingTable("gold.mean", labels)}, [])
    gain = Gain(0.8, 0.7, gold - 0.35, gold, 80, 119, by_curve=False)
    monkeypatch.setattr("tiltmeter.verdict.verdict.read_agreement_and_gain", lambda run_facts: (None, gain))
    monkeypatch.setattr("tiltmeter.verdict.verdict.gold_standing", lambda run_facts: standing)
    verdict = decide(checks, [], [], RunFacts(), Advice("continue", "no sign", None, None, "gold.mean"))
    assert verdict.state == state
    if state == "BLIND":
        assert verdict.exit_code == 2 and verdict.advice is not None and verdict.advice.word == "cannot tell"
        said = message(verdict, RunFacts(), place="runs/a")
        assert "gold was not seen to" in said.state and "Gold(share=)" in said.what_to_do
