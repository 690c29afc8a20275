"""The audit of gold by what its labels say: is gold that says nothing named, and is good gold left alone?

`measure_void_gold` plays runs through the public API whose gold says nothing from the start or from step 60 on: is the
true reason there within 30 steps, and does none end OK or ACT? Of three the policy really falls, suddenly, and those
must be ACT. `measure_refusals`: the share of good sources of gold that are ever refused, by the audit alone.
`measure_function_judge`: false alarms where a judge whose mood changes at each step stands behind a function.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import tiltmeter
from bound import SHARES, Cell, alarms, leaning, mood
from judged_runs import counted
from judged_runs_worlds import CHECKS, Make, Pay, sums, weighed
from sealed_runs_worlds import Floats, Rng, SealedStep, ramp, to_columns
from tiltmeter.rundir.payloads import LabelCounts
from tiltmeter.stats.gold_counts import count_gold
from tiltmeter.verdict.gold_audit import GoldAudit

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]
Change = Callable[[SealedStep, int, Rng], SealedStep]
BREAKS, IN_TIME, STEPS = 60, 30, 100


@dataclass(frozen=True)
class VoidKind:
    """Gold that says nothing from a step on, and a pattern of what must be said. `share`: of rows that a function
    labels; None: a column. `policy`: it is the policy that fails, so the state must be ACT."""

    make: Make
    begins: int
    words: str
    function: str = ""
    share: float | None = None
    policy: bool = False


def step_of(pay: Pay, level: Callable[[int], float] = lambda step: 0.6) -> Make:
    return sums(level, pay, labelled=True)


def column(change: Change, pay: Pay | None = None, level: Callable[[int], float] = lambda step: 0.6) -> Make:
    """A step whose labels are changed; `sums` with every answer labelled."""
    make = step_of(pay or weighed(1.0, 0.3), level)
    return lambda step, rng: change(make(step, rng), step, rng)


def number(value: Callable[[SealedStep, int], Floats], begins: int = 0) -> Change:
    return lambda made, step, rng: replace(made, labels=value(made, step)) if step >= begins else made


def all_of(value: float) -> Callable[[SealedStep, int], Floats]:
    return lambda made, step: np.full(len(made.truth), value)


def by_prompt(made: SealedStep, step: int) -> Floats:
    """What the first answer to a prompt is worth, for all of them."""
    return np.repeat(made.truth.reshape(-1, made.size)[:, 0], made.size)


def by_step(made: SealedStep, step: int) -> Floats:
    return np.full(len(made.truth), (7 * step % 10) / 10)


def fails(paid: float) -> Change:
    """From step 60 on every answer is wrong, and paid so much."""

    def change(made: SealedStep, step: int, rng: Rng) -> SealedStep:
        if step < BREAKS:
            return made
        wrong = np.zeros(len(made.truth))
        return replace(made, truth=wrong, labels=wrong, reward=paid + 0.3 * rng.normal(size=len(wrong)))

    return change


def falling(step: int) -> float:
    return ramp(step, 0.7, 0.1, 40, 80)


ALL, PROMPT, STEP, BROKE = (
    r"every one of \d+ answers",
    "all answers to a prompt|does not look at the answer, a known right one",
    "all answers of a step",
    "broke at step 60",
)
WEAK = weighed(0.2, 0.3)
VOID: dict[str, VoidKind] = {
    "all 0": VoidKind(column(number(all_of(0.0)), WEAK, falling), 0, ALL),
    "all 1": VoidKind(column(number(all_of(1.0)), WEAK, falling), 0, ALL),
    "by prompt": VoidKind(step_of(WEAK, falling), 0, PROMPT, "score_by_prompt", 1.0),
    "by prompt, a tenth": VoidKind(step_of(WEAK, falling), 0, PROMPT, "score_by_prompt", 0.1),
    "cache without the answer": VoidKind(step_of(WEAK, falling), 0, PROMPT, "score_from_cache", 1.0),
    "cache without the answer, a tenth": VoidKind(step_of(WEAK, falling), 0, PROMPT, "score_from_cache", 0.1),
    "by step": VoidKind(column(number(by_step), WEAK, falling), 0, STEP),
    "0 from step 60 on": VoidKind(column(number(all_of(0.0), BREAKS)), BREAKS, BROKE),
    "1 from step 60 on": VoidKind(column(number(all_of(1.0), BREAKS)), BREAKS, BROKE),
    "0 from step 60 on, weak reward": VoidKind(column(number(all_of(0.0), BREAKS), weighed(0.5, 0.3)), BREAKS, BROKE),
    "a cache from step 60 on": VoidKind(column(number(by_prompt, BREAKS), WEAK), BREAKS, BROKE),
    "a sudden hack": VoidKind(column(fails(1.5)), BREAKS, "gold", policy=True),
    "a sudden hack, paid as before": VoidKind(column(fails(0.6)), BREAKS, "gold", policy=True),
    "a sudden loss": VoidKind(column(fails(0.0)), BREAKS, "gold", policy=True),
}


def play_void(name: str, seed: int) -> Row:
    """One run to 30 steps after its gold began to say nothing, and to its end."""
    kind, rng = VOID[name], np.random.default_rng([seed, len(name)])
    gold = (
        None if not kind.function else tiltmeter.Gold(f"{HERE / CHECKS}:{kind.function}", share=kind.share, steps=STEPS)
    )
    options = tiltmeter.Options(on_full="wait", quiet=True, strict=True)
    states = list[tuple[str, str]]()
    with tempfile.TemporaryDirectory(prefix="trusted-", ignore_cleanup_errors=True) as folder:
        with tiltmeter.open_run(Path(folder) / "run", gold=gold, options=options) as run:
            for step in range(STEPS):
                made = kind.make(step, rng)
                made = replace(made, labels=None) if kind.function else made
                run.observe(**to_columns(made, step, rng))
                if step == kind.begins + IN_TIME - 1:
                    verdict = run.verdict(180)
                    states.append((str(verdict.state), verdict.sentence))
        verdict = run.verdict(180)
    states.append((str(verdict.state), verdict.sentence))
    wanted = "ACT" if kind.policy else "BLIND"
    right = [state == wanted and bool(re.search(kind.words, why)) for state, why in states]
    return {
        "name": name, "seed": seed, "policy": kind.policy, "states": [state for state, _ in states],
        "sentence": states[-1][1], "in_time": right[0], "right": right[-1],
    }  # fmt: skip


def measure_void_gold(runs: int, seed: int, small: bool) -> dict[str, object]:
    """`runs` seeds of each kind."""
    names = ("by prompt, a tenth",) if small else tuple(VOID)
    rows = list[Row]()
    for name in names:
        for number_ in range(1 if small else runs):
            rows.append(play_void(name, seed + number_))
            print(rows[-1], file=sys.stderr, flush=True)
    void, policy = ([row for row in rows if row["policy"] == is_policy] for is_policy in (False, True))
    return {
        **counted(
            void_gold_ok=[row["states"][-1] == "OK" for row in void],
            void_gold_act=[row["states"][-1] == "ACT" for row in void],
            void_gold_named=[row["right"] for row in void],
            void_gold_named_in_time=[row["in_time"] for row in void],
            sudden_loss_act=[row["right"] for row in policy],
        ),
        "void_gold_rows": rows,
    }


# -- good gold --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GoodKind:
    """Good gold: how right answers are by step, what labels make of it, what is paid, and how many are labelled."""

    level: Callable[[int], float]
    label: Callable[[Floats, Rng], Floats] = lambda right, rng: right
    pay: Callable[[Floats, Floats, int], Floats] = lambda right, noise, step: right + 0.3 * noise
    groups: int = 16
    size: int = 8
    steps: int = 150
    spread: float = 0.5  # of how hard prompts are
    sharper: int = 0  # step at which each prompt is all right or all wrong
    absent: float = 0.0  # share of labels that do not come


def noisy(right: Floats, rng: Rng) -> Floats:
    return np.where(rng.random(right.shape) < 0.3, 1.0 - right, right)


def graded(right: Floats, rng: Rng) -> Floats:
    return np.asarray(np.round(np.clip(0.2 + 0.6 * right + 0.15 * rng.normal(size=right.shape), 0, 1), 1), np.float64)


def rise(step: int) -> float:
    return ramp(step, 0.4, 0.7, 0, 150)


def styled(right: Floats, noise: Floats, step: int) -> Floats:
    """What is paid for style grows as the task is mastered."""
    return right + (0.3 + 0.004 * min(step, 100)) * noise


GOOD: dict[str, GoodKind] = {
    "a function": GoodKind(rise),
    "a judge, graded": GoodKind(rise, graded),
    "three of ten wrong": GoodKind(rise, noisy),
    "mastery": GoodKind(lambda step: ramp(step, 0.35, 0.995, 5, 110), steps=400),
    "mastery, the reward is gold": GoodKind(
        lambda step: ramp(step, 0.35, 0.999, 5, 60), pay=lambda right, noise, step: right, steps=400
    ),
    "mastery in 15 steps": GoodKind(lambda step: ramp(step, 0.3, 0.999, 30, 45), pay=styled, steps=200),
    "mastery under a reward for style": GoodKind(lambda step: ramp(step, 0.35, 0.995, 5, 80), pay=styled, steps=300),
    "one pair a step": GoodKind(rise, groups=1, size=2, steps=400),
    "one pair a step, mastery": GoodKind(lambda step: ramp(step, 0.4, 0.995, 50, 200), groups=1, size=2, steps=600),
    "one right in twenty": GoodKind(lambda step: 0.05),
    "two prompts of four": GoodKind(rise, groups=2, size=4, steps=300),
    "each prompt all or nothing in the end": GoodKind(rise, sharper=100, steps=250),
    "a fifth missing": GoodKind(rise, absent=0.2),
    "sudden loss": GoodKind(lambda step: 0.6 if step < 60 else 0.02),
}


def count_step(kind: GoodKind, step: int, rng: Rng) -> LabelCounts:
    shape = (kind.groups, kind.size)
    chance = np.clip(
        kind.level(step) + kind.spread * (rng.random((kind.groups, 1)) - 0.5) * (kind.level(step) < 0.9), 0, 1
    )
    if kind.sharper:
        part = min(step / kind.sharper, 1.0)
        chance = (1.0 - part) * chance + part * (rng.random((kind.groups, 1)) < chance)
    right = (rng.random(shape) < chance).astype(float)
    gold = np.where(rng.random(shape) < kind.absent, np.nan, kind.label(right, rng))
    reward, starts = kind.pay(right, rng.normal(size=shape), step), np.arange(0, right.size + 1, kind.size)
    counts = count_gold(gold.ravel(), reward.ravel(), starts, np.ones(kind.groups, bool))
    return LabelCounts(**counts)  # type: ignore[arg-type]


def refused(kind: GoodKind, rng: Rng) -> str:
    """Why the source was refused at first; empty if it never was."""
    audit = GoldAudit()
    for step in range(kind.steps):
        audit.add_counts(0, step, count_step(kind, step, rng), kind.groups * kind.size)
        if audit.failure:
            return f"step {step}: {audit.failure}"
    return ""


def measure_refusals(runs: int, seed: int, small: bool) -> dict[str, object]:
    """`runs` in all, as many of each kind."""
    names = tuple(GOOD)[:2] if small else tuple(GOOD)
    each, rows = max(runs // len(names), 1), list[Row]()
    for number_, name in enumerate(names):
        whys = [refused(GOOD[name], np.random.default_rng([seed, number_, run])) for run in range(each)]
        reasons = [why for why in whys if why]
        rows.append({"name": name, "refused": len(reasons), "runs": each, "first": reasons[:1]})
        print(rows[-1], file=sys.stderr, flush=True)
    count, total = (sum(row[key] for row in rows) for key in ("refused", "runs"))
    return {
        "good_gold_refused_share": round(count / total, 5),
        "good_gold_refused_share_of": total,
        "good_gold_rows": rows,
    }


# -- a judge behind a function ----------------------------------------------------------------------------------------


TOGETHER = 50  # runs whose source is found out at the same step
MEAN_Z = 0.8  # of the size of a standardised reward


def measure_function_judge(runs: int, seed: int, small: bool) -> dict[str, object]:
    """`runs` of each size of mood and share of labels, without any change of the policy, by the bets of `bound.py`.

    One answer a step is asked about again, and from the step after its label has changed bets count as an opinion's. A
    label that is drawn anew with every question, as `bound.py` draws it, changes half of the time. One that is `steady`
    changes where the moods of two steps differ and it lies between them: size E|z| of half of the steps.
    """
    rows = list[Row]()
    for steady in (False, True):
        for size in (0.2,) if small else (0.2, 0.3):
            for share in SHARES:
                rng, count = np.random.default_rng([seed, round(100 * size)]), 0
                for first in range(0, runs, TOGETHER):
                    changed = int(rng.geometric(0.5 * size * MEAN_Z if steady else 0.5)) + 1
                    cell = Cell("a mood", leaning(mood(size)), declared=True, declared_from=changed)
                    count += alarms(cell, min(TOGETHER, runs - first), share, seed + first)
                rows.append({"steady": steady, "mood": size, "share": share, "alarms": count, "runs": runs})
                print(rows[-1], file=sys.stderr, flush=True)
    worst = {kind: max(row["alarms"] for row in rows if row["steady"] is kind) / runs for kind in (False, True)}
    return {
        "function_judge_false_share": round(worst[False], 5),
        "function_judge_false_share_of": runs,
        "function_judge_steady_false_share": round(worst[True], 5),
        "function_judge_steady_false_share_of": runs,
        "function_judge_rows": rows,
    }
