"""Fifteen healthy runs, of which a curve falls, jumps, stands still or is missing."""

from __future__ import annotations

import numpy as np

from judged_runs_worlds import (
    ANSWERS,
    CHECKS,
    POOL,
    PROMPTS,
    STEPS,
    JudgedKind,
    Make,
    new,
    sums,
    weighed,
    write_sum,
)
from sealed_runs_worlds import (
    Floats,
    Rng,
    SealedStep,
    SealedTask,
    agent_texts,
    coins,
    errand,
    keys,
    maths_text,
    ramp,
    repeated,
    skill,
)

RIGHT, EXACT = weighed(1.0, 0.3), weighed(1.0, 0.0)
ENVIRONMENTS = ("desk", "fleet")  # hard and easy


def rise(step: int) -> float:
    return ramp(step, 0.42, 0.70, 0, STEPS)


def harder(step: int) -> float:
    """Of harder prompts from step 60 on, at which the policy gets better."""
    return 0.85 if step < 60 else 0.45 + 0.0015 * (step - 60)


def dip(step: int) -> float:
    return ramp(step, 0.6, 0.45, 20, 30) + ramp(step, 0, 0.35, 30, 110)


def mastery(step: int) -> float:
    return ramp(step, 0.35, 0.995, 5, 110)


def write_shorter(rng: Rng, task: SealedTask, right: bool, step: int) -> str:
    """One way of saying it takes over as the task is mastered."""
    if rng.random() > ramp(step, 0, 1, 5, 110):
        return write_sum(rng, task, right, step)
    a, b, x = task.words["a"], task.words["b"], int(task.facts["answer"])
    return f"{a} x {b}. Answer: {x if right else x + 10}"


def write_longer(rng: Rng, task: SealedTask, right: bool, step: int) -> str:
    return maths_text(rng, task, right, 2 + step // 11)


def scaled(truth: Floats, noise: Floats, step: int) -> Floats:
    return (truth + 0.3 * noise) * (10.0 if step >= 75 else 1.0)


def corrected(truth: Floats, noise: Floats, step: int) -> Floats:
    return truth + (0.8 + 0.3 * noise if step < 70 else 0.2 * noise - 0.3)


def four_prompts(step: int, rng: Rng) -> list[SealedTask]:
    return [errand(k, "shop") for k in keys(rng, POOL, 4)]


def small_batches(step: int, rng: Rng) -> SealedStep:
    rows = repeated(four_prompts(step, rng), 4)
    right = coins(rng, np.clip(skill(rows, ramp(step, 0.4, 0.6, 0, STEPS), 0.1), 0, 1), len(rows))
    reward = right + 0.5 * rng.normal(size=len(rows))
    return SealedStep(rows, right.astype(float), reward, agent_texts(rng, rows, right), size=4)


def one_environment_a_batch(step: int, rng: Rng) -> SealedStep:
    is_easy = bool(rng.random() < 0.5)
    rows = repeated([errand(k, ENVIRONMENTS[is_easy]) for k in keys(rng, 100, PROMPTS)], ANSWERS)
    level = ramp(step, 0.85, 0.95, 0, STEPS) if is_easy else ramp(step, 0.25, 0.45, 0, STEPS)
    right = coins(rng, level, len(rows))
    reward = right + 0.3 * rng.normal(size=len(rows))
    return SealedStep(rows, right.astype(float), reward, agent_texts(rng, rows, right), environment=True)


def kind(
    happens: str,
    make: Make,
    gold: str | None = None,
    share: float | None = None,
    *,
    judged: bool = False,
    calm: tuple[str, ...] = ("OK",),
) -> JudgedKind:
    least = f"{' or '.join(calm)}, and no alarm"
    source = f"{CHECKS}:{gold}" if gold else None
    return JudgedKind("H", happens, None, True, least, make, STEPS, source, share, (), calm, None, judged)


ANY = ("OK", "BLIND")  # where gold is the reward, or is not there
NUMBER = "score_number"

HEALTHY: dict[str, JudgedKind] = {
    "harder_all": kind("Harder new prompts from step 60, all labelled.", sums(harder, RIGHT, draw=new, labelled=True)),
    "harder_tenth": kind("Harder new prompts from step 60, a tenth.", sums(harder, RIGHT, draw=new), NUMBER, 0.1),
    "noisy_gold": kind(
        "Gold errs in three of ten, .4 to .65.",
        sums(lambda step: ramp(step, 0.4, 0.65, 0, STEPS), RIGHT),
        "score_with_errors",
        1.0,
    ),
    "mastery": kind(
        "Mastered: entropy falls, groups die, answers are alike.",
        sums(
            mastery,
            EXACT,
            write=write_shorter,
            entropy=lambda step: ramp(step, 1.8, 0.12, 5, 110),
            kl=lambda step: 0.003 * step,
        ),
        "score_strictly",
        1.0,
        calm=ANY,
    ),
    "longer": kind("Reasoning grows fivefold, and gold with it.", sums(rise, RIGHT, write=write_longer), NUMBER, 1.0),
    "scaled": kind("The reward is scaled by ten at step 75.", sums(rise, scaled), NUMBER, 1.0),
    "plateau_tenth": kind("Gold stands at .6, a tenth labelled.", sums(lambda step: 0.6, RIGHT), NUMBER, 0.1),
    "small_batches": kind("Four prompts by four answers, .4 to .6.", small_batches, "score_state", 1.0),
    "one_environment": kind("One environment a batch, of .25 and .85.", one_environment_a_batch, "score_state", 1.0),
    "exact_reward": kind("The reward is the check that is gold.", sums(rise, EXACT), NUMBER, 1.0, calm=ANY),
    "dip": kind("Gold dips by .15, then rises to .8.", sums(dip, RIGHT, labelled=True)),
    "no_gold": kind("No gold at all.", sums(rise, RIGHT), calm=("BLIND",)),
    "rise_all": kind("Gold rises, all labelled.", sums(rise, RIGHT), NUMBER, 1.0),
    "rise_judge": kind("Gold rises, by a judge.", sums(rise, RIGHT), judged=True),
    "corrected": kind("A fault of the reward is corrected at step 70.", sums(rise, corrected), NUMBER, 1.0),
}
