"""Measure: generation speed of both models, and the time to score answers with guards off and on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.rewards import Reward
from tiltmeter_workbench.common.chat_model import ChatAnswer
from tiltmeter_workbench.compare.measures.difference import FEWEST, Difference, means
from tiltmeter_workbench.compare.measures.measure import Measure, State, not_asked
from tiltmeter_workbench.compare.sampling import AnswerSampler, Which
from tiltmeter_workbench.compare.suite import Suite, read_suite
from tiltmeter_workbench.rewards.recipe_reward import Guards, reward_from_recipe

#: Only a checkpoint that is slower by half is called so: timings swing with whatever else a machine does.
SLOWER = 1.5
ROUNDS = FEWEST
BATCH = 8  # prompts that are answered at once
SHORTEST = 8  # tokens of the longest answers; below, a call costs more than the answer and says little of a model
WHICH: tuple[Which, Which] = ("base", "checkpoint")
Clock = Callable[[], float]


def measure(
    sampler: AnswerSampler,
    suite: str | Path | Suite = "general",
    *,
    reward: Sequence[Mapping[str, Any]] | None = None,
    guards: Guards = "standard",
    folder: str | Path = ".",
    rounds: int = ROUNDS,
    batch: int = BATCH,
    clock: Clock = time.perf_counter,
    alpha: float,
) -> list[Measure]:
    """Throughput and latency of both models, asked in turns, and the time that a reward takes, with guards and without.

    `reward` and `guards` are as in a recipe, with paths relative to `folder`. The order changes from round to round, so
    that a machine that warms up or slows down does so for both; a first round is not counted.
    """
    texts = (suite if isinstance(suite, Suite) else read_suite(suite)).texts
    scorers = _scorers(reward, guards, folder, sampler.limit)
    times: dict[Which, list[tuple[float, float, float, float]]] = {which: [] for which in WHICH}
    longest: dict[Which, list[int]] = {which: [] for which in WHICH}
    scored: list[list[float]] = []
    for number in range(rounds + 1):
        prompts = [texts[(number * batch + at) % len(texts)] for at in range(batch)]
        order = WHICH if number % 2 else WHICH[::-1]
        replies = {which: _time_answers(sampler, which, prompts, sampler.seed + number, clock) for which in order}
        spent = [_time_scoring(scorer, prompts, replies["checkpoint"][0], clock) for scorer in scorers]
        if number:
            for which in WHICH:
                answers, whole, alone = replies[which]
                steps = _steps(answers, sampler.model(which).batch)
                times[which].append((sum(map(_size, answers)) / whole, whole / batch, alone, steps / whole))
                longest[which].append(steps)
            scored.append(spent)
        if sampler.progress is not None:
            sampler.progress("speed", number, rounds)
    speeds = _speeds(times, min(float(np.median(longest[which])) for which in WHICH), alpha)
    if not scorers:
        return [
            speeds,
            not_asked("scoring", "Time to score", "--reward names a reward to time, with guards and without"),
        ]
    return [speeds, _costs(np.array([one[1] for one in times["checkpoint"]]), np.array(scored) / batch)]


def _time_answers(
    sampler: AnswerSampler, which: Which, prompts: Sequence[str], seed: int, clock: Clock
) -> tuple[list[ChatAnswer], float, float]:
    """The answers to a batch, the seconds they took, and the seconds of one prompt that is asked alone."""
    model = sampler.model(which)
    start = clock()
    answers = [group[0] for _, group in model.answers(prompts, limit=sampler.limit, seed=seed)]
    between = clock()
    list(model.answers(prompts[:1], limit=sampler.limit, seed=seed))
    return answers, between - start, clock() - between


def _steps(answers: Sequence[ChatAnswer], batch: int) -> int:
    """Forward passes of a model: a batch goes on until its longest answer ends.

    Counting tokens would penalise answers of unequal length: the short ones of a batch wait for the longest.
    """
    return sum(max(map(_size, answers[first : first + batch])) for first in range(0, len(answers), batch))


def _speeds(times: Mapping[Which, Sequence[tuple[float, float, float, float]]], steps: float, alpha: float) -> Measure:
    base, checkpoint = (np.array(times[which]) for which in WHICH)
    log_ratio = means(np.log(base[:, 3]), np.log(checkpoint[:, 3]), alpha)
    ratio = math.exp(log_ratio.value)
    slower = log_ratio.n >= FEWEST and steps >= SHORTEST and log_ratio.high < -math.log(SLOWER)
    state: State = "worse" if slower else "shown"
    rows = [
        _row("tokens a second", base[:, 0], checkpoint[:, 0]),
        _row("seconds an answer, in a batch", base[:, 1], checkpoint[:, 1]),
        _row("seconds an answer, alone", base[:, 2], checkpoint[:, 2]),
        _row("seconds a token, in a batch", 1.0 / base[:, 3], 1.0 / checkpoint[:, 3]),
    ]
    difference = Difference(
        1.0, ratio, ratio - 1.0, math.exp(log_ratio.low) - 1.0, math.exp(log_ratio.high) - 1.0, log_ratio.n
    )
    return Measure(
        "speed",
        "Speed of answering",
        state,
        f"The next token of a batch takes the checkpoint {1000.0 / np.median(checkpoint[:, 3]):.1f} ms, the base "
        f"{1000.0 / np.median(base[:, 3]):.1f} ms, on this machine in {log_ratio.n} rounds.",
        cost="slower",
        unit="of the base's speed",
        base=difference.base,
        checkpoint=difference.checkpoint,
        difference=difference.value,
        low=difference.low,
        high=difference.high,
        n=difference.n,
        rows=rows,
        fix="Look whether both have the same size, precision and attention; an adapter is merged before it is timed.",
    )


def _costs(generation: Any, scored: Any) -> Measure:
    """Seconds of a completion, from nothing but generation to a guarded reward; medians over rounds."""
    steps = (
        ("generation", generation),
        ("with reward", generation + scored[:, 0]),
        ("with reward and guards", generation + scored[:, 1]),
    )
    rows = [
        {"what": what, "seconds a completion": (took := float(np.median(seconds))), "completions a second": 1.0 / took}
        for what, seconds in steps
    ]
    plain, guarded = (float(np.median(scored[:, at])) for at in (0, 1))
    return Measure(
        "scoring",
        "Time to score",
        "shown",
        f"Scoring takes {1000.0 * plain:.2f} ms a completion, {1000.0 * guarded:.2f} ms with guards; "
        f"generating it takes {1000.0 * float(np.median(generation)):.1f} ms.",
        unit="seconds a completion",
        base=plain,
        checkpoint=guarded,
        difference=guarded - plain,
        n=len(scored),
        rows=rows,
    )


def _scorers(
    reward: Sequence[Mapping[str, Any]] | None, guards: Guards, folder: str | Path, limit: int
) -> list[Reward]:
    if not reward:
        return []
    return [
        reward_from_recipe(reward, (), folder=folder),
        reward_from_recipe(reward, guards, limit=limit, folder=folder),
    ]


def _time_scoring(scorer: Reward, prompts: Sequence[str], answers: Sequence[ChatAnswer], clock: Clock) -> float:
    arguments = {"completions": [one.text for one in answers], "completion_ids": [list(one.tokens) for one in answers]}
    start = clock()
    scorer(prompts=list(prompts), **arguments)
    return clock() - start


def _row(what: str, base: Any, checkpoint: Any) -> dict[str, object]:
    return {"what": what, "base": float(np.median(base)), "checkpoint": float(np.median(checkpoint))}


def _size(answer: ChatAnswer) -> int:
    return len(answer.tokens) or len(answer.text.split())
