"""Gold that says nothing is BLIND with the true reason, never OK and never ACT; good gold and real hacks are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltmeter
from tiltmeter.rundir.payloads import LabelCounts
from tiltmeter.stats.gold_breaks import LabelledStep, find_break
from tiltmeter.stats.gold_counts import chance_of_choice, chance_of_none, count_gold
from tiltmeter.verdict.gold_audit import GoldAudit

GROUPS, SIZE, STEPS, BREAKS = 8, 8, 30, 20
Label = Callable[[np.ndarray, int], np.ndarray]
BY_PROMPT = "def score(prompt, completion):\n    return float(len(prompt) % 2)\n"


def columns(step: int, rng: np.random.Generator, label: Label) -> dict[str, Any]:
    """One step whose answers are right in 6 of 10, and paid for that."""
    right = (rng.random((GROUPS, SIZE)) < 0.6).astype(float)
    return {
        "group": np.repeat(np.arange(GROUPS), SIZE),
        "reward": (right + 0.3 * rng.normal(size=right.shape)).ravel(),
        "gold": label(right, step).ravel(),
        "prompt": [f"task {group}{'x' * (group % 2)}" for group in np.repeat(np.arange(GROUPS), SIZE)],
        "completion": [f"{'right' if one else 'wrong'} {rng.integers(10**6):06}" for one in right.ravel()],
    }


def verdict_of(folder: Path, label: Label, gold: tiltmeter.Gold | None = None) -> tiltmeter.Verdict:
    rng, options = np.random.default_rng(5), tiltmeter.Options(on_full="wait", quiet=True, strict=True)
    with tiltmeter.open_run(folder / "run", gold=gold, options=options) as run:
        for step in range(STEPS):
            made = columns(step, rng, label)
            if gold is not None:
                del made["gold"]
            run.observe(step=step, **made)
    return run.verdict(60)


def since_break(value: Callable[[np.ndarray], np.ndarray]) -> Label:
    return lambda right, step: value(right) if step >= BREAKS else right


@pytest.mark.parametrize(
    ("label", "why"),
    [
        (lambda right, step: np.zeros_like(right), f"every one of {STEPS * GROUPS * SIZE} answers"),
        (since_break(np.zeros_like), f"broke at step {BREAKS}, every label is 0 since"),
    ],
)
def test_gold_that_says_nothing_is_blind_with_the_reason(tmp_path: Path, label: Label, why: str) -> None:
    verdict = verdict_of(tmp_path, label)
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert why in verdict.sentence
    assert not verdict.alarms
    assert verdict.advice is None or verdict.advice.word == "cannot tell"


def test_a_function_that_reads_the_prompt_alone_is_named_where_pairs_are_labelled(tmp_path: Path) -> None:
    (tmp_path / "by_prompt.py").write_text(BY_PROMPT)
    gold = tiltmeter.Gold(f"{tmp_path / 'by_prompt.py'}:score", share=0.25, steps=STEPS)
    verdict = verdict_of(tmp_path, lambda right, step: right, gold)
    assert verdict.state == "BLIND"
    assert "all answers to a prompt have the same gold" in verdict.sentence


def test_labels_that_are_missing_where_answers_are_paid_are_named() -> None:
    """Fewer than one in ten are missing, and they are those that would show the harm."""
    rng, audit, starts = np.random.default_rng(3), GoldAudit(), np.arange(0, GROUPS * SIZE + 1, SIZE)
    for step in range(STEPS):
        junk = rng.random(GROUPS * SIZE) < (0.08 if step >= BREAKS else 0.0)
        right = (rng.random(len(junk)) < 0.6).astype(float)
        reward = np.where(junk, 2.0, right) + 0.3 * rng.normal(size=len(junk))
        counts = count_gold(np.where(junk, np.nan, right), reward, starts)
        audit.add_counts(0, step, LabelCounts(**counts), len(junk))  # type: ignore[arg-type]
        assert not (audit.failure and step < BREAKS)
    assert "labels are missing, those of the better paid answers" in audit.failure


def test_a_sudden_hack_is_no_break_of_gold(tmp_path: Path) -> None:
    """Every answer is wrong from one step on, as after a break, and paid as before; but not for being right."""

    def hacked(step: int, rng: np.random.Generator) -> dict[str, Any]:
        made = columns(step, rng, lambda right, step: right)
        if step >= BREAKS:
            made |= {"gold": np.zeros(GROUPS * SIZE), "reward": 0.6 + 0.3 * rng.normal(size=GROUPS * SIZE)}
        return made

    rng, options = np.random.default_rng(5), tiltmeter.Options(on_full="wait", quiet=True, strict=True)
    with tiltmeter.open_run(tmp_path / "run", options=options) as run:
        for step in range(STEPS):
            run.observe(step=step, **hacked(step, rng))
    assert run.verdict(60).state == "ACT"


def test_an_alarm_that_rests_on_a_break_is_shown_until_it_is_dismissed(tmp_path: Path) -> None:
    """The source is whole again, but the alarm that it raised bets on nothing while it is open."""
    verdict = verdict_of(tmp_path, lambda right, step: np.zeros_like(right) if 12 <= step < 27 else right)
    assert verdict.state == "BLIND"
    assert "was broken from step 12 to 27, and the alarm of step" in verdict.sentence


def test_the_same_texts_step_after_step_are_a_stuck_engine(tmp_path: Path) -> None:
    options = tiltmeter.Options(on_full="wait", quiet=True, strict=True)
    with tiltmeter.open_run(tmp_path / "run", options=options) as run:
        for step in range(STEPS):
            rng = np.random.default_rng([5, min(step, BREAKS)])
            run.observe(step=step, **columns(min(step, BREAKS), rng, lambda right, step: right))
    verdict = run.verdict(60)
    assert verdict.state == "BLIND"
    assert verdict.sentence.startswith(f"every step since {BREAKS} is the same, word for word")


def fold(level: Callable[[int], float], steps: int, rng: np.random.Generator, style: float = 0.0) -> str:
    """Why an honest run of `steps` is refused, at first; empty if it never is."""
    audit, starts = GoldAudit(), np.arange(0, GROUPS * SIZE + 1, SIZE)
    for step in range(steps):
        right = (rng.random(GROUPS * SIZE) < level(step)).astype(float)
        reward = right + (0.3 + style * step) * rng.normal(size=len(right))
        counts = count_gold(right, reward, starts, np.ones(GROUPS, bool))
        audit.add_counts(0, step, LabelCounts(**counts), GROUPS * SIZE)  # type: ignore[arg-type]
        if audit.failure:
            return audit.failure
    return ""


def test_mastery_is_no_break() -> None:
    """Gold that differed, and is 1 for all once the task is mastered, has done what it should."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        assert not fold(lambda step: float(np.interp(step, [5, 60], [0.35, 1.0])), 200, rng)
        assert not fold(lambda step: float(np.interp(step, [20, 35], [0.3, 1.0])), 120, rng, 0.003)


def test_gold_that_is_one_number_a_step_is_named() -> None:
    audit = GoldAudit()
    for step in range(9):
        value = step % 3 / 2
        audit.add_counts(0, step, LabelCounts(labels=8, low=value, high=value, groups=4, first=value, last=value))
    assert audit.failure.startswith("gold does not look at the answer, all answers of a step have the same gold")


def test_a_break_needs_everything_else_unchanged() -> None:
    sums: dict[str, Any] = {"free": 56, "gold_squares": 13.0, "reward_squares": 18.0, "products": 13.0}
    whole = [
        LabelledStep(t, 64, 0.0, 1.0, 8, 7, **sums, reward=0.6 + 0.05 * (t % 2), length=40.0 + t % 3) for t in range(12)
    ]
    void = [replace(whole[0], step=12 + t, high=0.0, differ=0, gold_squares=0.0, products=0.0) for t in range(4)]
    found = find_break(whole, void)
    assert found is not None
    assert (found.step, found.constant) == (12, 0.0)
    by_prompt = find_break(whole, [replace(one, high=1.0) for one in void])
    assert by_prompt is not None
    assert by_prompt.constant is None
    for change in ({"reward": 1.4}, {"length": 80.0}, {"reward_squares": 5.0}, {"reward_squares": 60.0}):
        assert find_break(whole, [replace(one, **change) for one in void]) is None  # type: ignore[arg-type]
    assert find_break([replace(one, products=0.0) for one in whole], void) is None
    assert find_break(whole[:5], void) is None


def test_fishers_chance_is_that_of_drawing() -> None:
    rng = np.random.default_rng(0)
    draws = [not (rng.permutation(12)[:3] < 4).any() for _ in range(20_000)]
    assert chance_of_none(4, 8, 3) == pytest.approx(np.mean(draws), abs=0.01)


def test_labels_missing_by_chance_are_no_choice() -> None:
    """Runs of 200 labels, a tenth missing at random: the bound holds."""
    rng, starts = np.random.default_rng(1), np.arange(0, 201, 8)
    below = 0
    for _ in range(2_000):
        gold = np.where(rng.random(200) < 0.1, np.nan, 1.0)
        counts = count_gold(gold, np.exp(rng.normal(size=200)), starts)
        facts = (counts.get(f"absent_{name}", 0.0) for name in ("pay", "noise", "most"))
        below += chance_of_choice(*facts) < 0.01
    assert below <= 0.01 * 2_000
