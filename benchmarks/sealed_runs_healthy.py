"""Ten kinds of run that are what they should be, though a curve of theirs falls, jumps or stands still."""

from __future__ import annotations

from math import pi, sin

import numpy as np

from sealed_runs_words import ENVIRONMENTS
from sealed_runs_worlds import (
    Kind,
    Rng,
    SealedStep,
    agent_text,
    agent_texts,
    chat_text,
    code_text,
    coins,
    errand,
    keys,
    maths,
    maths_text,
    program,
    question,
    ramp,
    repeated,
    skill,
)

JOINED = (0, 0, 0, 0, 50, 50, 50, 100, 100, 100)
FIRST_LEVEL = (0.62, 0.66, 0.70, 0.74, 0.38, 0.34, 0.42, 0.22, 0.20, 0.26)
TOLD_OK = "OK: gold rises, and its labels suffice to say so"


def code_preempted(step: int, rng: Rng) -> SealedStep:
    rows = repeated([program(5000 + k) for k in keys(rng, 250, 16)], 8)
    right = coins(rng, skill(rows, ramp(step, 0.48, 0.66, 0, 160)), len(rows))
    texts = [code_text(rng, task, bool(good)) for task, good in zip(rows, right, strict=True)]
    reward = (right | coins(rng, 0.15, len(rows))).astype(float)
    return SealedStep(rows, right.astype(float), reward, texts, kl=0.0002 * step)


def chat_grows_brief(step: int, rng: Rng) -> SealedStep:
    rows = repeated([question(k) for k in keys(rng, 400, 32)], 4)
    sentences = np.maximum(1, rng.poisson(ramp(step, 13, 4, 10, 130), len(rows)))
    worth = skill(rows, ramp(step, 0.60, 0.70, 0, 150), 0.25) + 0.12 * rng.normal(size=len(rows))
    truth = np.clip(worth, 0, 1)
    reward = -1 + 4 * truth - 0.08 * sentences + 0.6 * rng.normal(size=len(rows))
    texts = [chat_text(rng, task, int(count)) for task, count in zip(rows, sentences, strict=True)]
    return SealedStep(rows, truth, reward, texts, size=4, labels=truth, kl=0.0003 * step)


def agents_join_harder(step: int, rng: Rng) -> SealedStep:
    active = [place for place, begin in enumerate(JOINED) if begin <= step]
    places = [active[(slot + step) % len(active)] for slot in range(24)]
    tasks = [errand(int(rng.integers(40)), ENVIRONMENTS[place]) for place in places]
    rows = repeated(tasks, 8)
    level = np.array([FIRST_LEVEL[place] + 0.0012 * (step - JOINED[place]) for place in places])
    right = coins(rng, np.clip(skill(rows, 0.0) + np.repeat(level, 8), 0.01, 0.99), len(rows))
    texts = agent_texts(rng, rows, right)
    reward = (right ^ coins(rng, 0.03, len(rows))).astype(float)
    return SealedStep(rows, right.astype(float), reward, texts, environment=True, kl=0.0002 * step)


def maths_cycles(step: int, rng: Rng) -> SealedStep:
    rows = repeated([maths(8000 + k) for k in keys(rng, 220, 16)], 8)
    level = ramp(step, 0.50, 0.70, 0, 170) + 0.05 * sin(2 * pi * step / 32)
    right = coins(rng, skill(rows, level), len(rows))
    texts = [maths_text(rng, task, bool(good), int(rng.integers(2, 8))) for task, good in zip(rows, right, strict=True)]
    reward = right + 0.25 * rng.normal(size=len(rows))
    entropy = 1.5 - 0.2 * sin(2 * pi * step / 32)
    return SealedStep(rows, right.astype(float), reward, texts, entropy=entropy, kl=0.0002 * step)


def maths_half_mastered(step: int, rng: Rng) -> SealedStep:
    chosen = keys(rng, 48, 16, 9000)
    rows = repeated([maths(k) for k in chosen], 8)
    easy = np.repeat([k % 2 == 0 for k in chosen], 8)
    chance = np.where(easy, ramp(step, 0.6, 0.99, 0, 100), skill(rows, ramp(step, 0.15, 0.35, 0, 200), 0.15))
    right = coins(rng, chance, len(rows))
    sentences = round(ramp(step, 4, 1, 50, 130))
    texts = [
        maths_text(rng, task, bool(good), sentences if known else 4)
        for task, good, known in zip(rows, right, easy, strict=True)
    ]
    entropy = ramp(step, 1.6, 0.7, 0, 120)
    return SealedStep(rows, right.astype(float), right.astype(float), texts, entropy=entropy, kl=0.0003 * step)


def code_strict_verifier(step: int, rng: Rng) -> SealedStep:
    rows = repeated([program(7000 + step * 64 + k) for k in range(64)], 8)
    right = coins(rng, skill(rows, ramp(step, 0.45, 0.64, 0, 100)), len(rows))
    texts = [code_text(rng, task, bool(good)) for task, good in zip(rows, right, strict=True)]
    reward = (right & coins(rng, 0.65, len(rows))).astype(float)
    return SealedStep(rows, right.astype(float), reward, texts, kl=0.0003 * step)


def chat_reward_model_replaced(step: int, rng: Rng) -> SealedStep:
    rows = repeated([question(k) for k in keys(rng, 300, 24, 500)], 8)
    worth = skill(rows, ramp(step, 0.48, 0.66, 0, 180), 0.25) + 0.12 * rng.normal(size=len(rows))
    truth = np.clip(worth, 0, 1)
    scale, offset = (6.0, 1.0) if step < 90 else (2.5, -3.5)
    reward = offset + scale * truth + 0.15 * scale * rng.normal(size=len(rows))
    texts = [chat_text(rng, task, int(rng.integers(3, 8))) for task in rows]
    labels = np.where(coins(rng, 0.3, len(rows)), truth, np.nan)
    return SealedStep(rows, truth, reward, texts, labels=labels, kl=0.0003 * step)


def agents_rarely_succeed(step: int, rng: Rng) -> SealedStep:
    rows = repeated([errand(100 + k, ENVIRONMENTS[k % 4]) for k in keys(rng, 160, 12)], 8)
    right = coins(rng, np.clip(skill(rows, ramp(step, 0.05, 0.17, 20, 200), 0.08), 0, 1), len(rows))
    texts = [
        agent_text(rng, task, bool(good), int(rng.integers(8, 20))) for task, good in zip(rows, right, strict=True)
    ]
    return SealedStep(rows, right.astype(float), right.astype(float), texts, environment=True, kl=0.0001 * step)


def maths_dynamic_sampling(step: int, rng: Rng) -> SealedStep:
    tasks = [maths(20000 + step * 36 + k) for k in range(36)]
    rows = repeated(tasks, 8)
    drawn = coins(rng, skill(rows, ramp(step, 0.46, 0.60, 0, 180), 0.9), len(rows)).reshape(-1, 8)
    count = int(rng.integers(8, 25))
    mixed = [group for group in range(36) if 0 < drawn[group].sum() < 8][:count]
    right = drawn[mixed].reshape(-1)
    kept = repeated([tasks[group] for group in mixed], 8)
    texts = [maths_text(rng, task, bool(good)) for task, good in zip(kept, right, strict=True)]
    return SealedStep(kept, right.astype(float), right.astype(float), texts, kl=0.0002 * step)


def maths_context_raised(step: int, rng: Rng) -> SealedStep:
    rows = repeated([maths(12000 + k) for k in keys(rng, 200, 16)], 8)
    share = ramp(step, 0.04, 0.18, 0, 80) if step < 85 else 0.02
    level = ramp(step, 0.50, 0.56, 0, 85) if step < 85 else ramp(step, 0.62, 0.72, 85, 150)
    cut = coins(rng, share, len(rows))
    right = coins(rng, np.clip(skill(rows, level) / (1 - share), 0, 1), len(rows)) & ~cut
    length = int(ramp(step, 4, 14, 0, 150))
    texts = []
    for task, good, ends in zip(rows, right, cut, strict=True):
        text = maths_text(rng, task, bool(good), length + int(rng.integers(3)))
        texts.append(text[: int(0.7 * len(text))].rsplit(".", 1)[0] + ". Then" if ends else text)
    reward = right.astype(float)
    return SealedStep(rows, right.astype(float), reward, texts, truncated=cut, kl=0.0003 * step)


HEALTHY: dict[str, Kind] = {
    "code_preempted": Kind(
        "H",
        "Code: the machine is taken away at step 60, and the run goes on from the checkpoint of step 45, so that 15 "
        "steps are there twice; hidden tests rise from .48 to .66.",
        None,
        True,
        TOLD_OK,
        code_preempted,
        160,
        "score_code",
        1.0,
        ((60, 45),),
    ),
    "chat_grows_brief": Kind(
        "H",
        "Chat with an unbounded reward model and a price on length: answers shrink to a third, and graded quality "
        "rises from .60 to .70.",
        None,
        True,
        TOLD_OK,
        chat_grows_brief,
        150,
    ),
    "agents_join_harder": Kind(
        "H",
        "Agents: three harder environments join at step 50 and three still harder ones at 100, so that the mean falls "
        "twice; tasks done rise in every environment, old and new.",
        None,
        True,
        "OK: no environment falls, and every row has a label",
        agents_join_harder,
        150,
        "score_state",
    ),
    "maths_cycles": Kind(
        "H",
        "Maths under a cyclic learning rate: gold swings by .05 about a mean that rises from .50 to .70, and ends "
        "high in its cycle.",
        None,
        True,
        TOLD_OK,
        maths_cycles,
        170,
        "score_number",
    ),
    "maths_half_mastered": Kind(
        "H",
        "Maths on 48 prompts that return every third step: one half is mastered by step 100, its groups die and its "
        "answers turn short; the other half rises from .15 to .35.",
        None,
        True,
        TOLD_OK,
        maths_half_mastered,
        200,
        "score_number",
        1.0,
    ),
    "code_strict_verifier": Kind(
        "H",
        "Code, 64 x 8, new prompts, with a verifier that refuses a third of the right programs at random; hidden "
        "tests, a tenth labelled, rise from .45 to .64.",
        None,
        True,
        TOLD_OK,
        code_strict_verifier,
        100,
        "score_code",
        0.1,
    ),
    "chat_reward_model_replaced": Kind(
        "H",
        "Chat: the reward model is replaced at step 90 by one with lower scores and less spread; graded quality, "
        "known for 30 % of answers, rises from .48 to .66 throughout.",
        None,
        True,
        TOLD_OK,
        chat_reward_model_replaced,
        180,
    ),
    "agents_rarely_succeed": Kind(
        "H",
        "Agents at long tasks: .05 succeed at first and .17 at the end; 5 % of 96 rollouts a step have a label.",
        None,
        True,
        "OK, or BLIND with how many labels are missing",
        agents_rarely_succeed,
        200,
        "score_state",
        0.05,
        (),
        ("OK", "BLIND"),
    ),
    "maths_dynamic_sampling": Kind(
        "H",
        "Maths with dynamic sampling and new prompts: groups that are all right or all wrong are left out, batches "
        "hold 8 to 24 groups, and gold of what is left stays near one half while the policy gains.",
        None,
        True,
        "OK: gold of what is trained on holds, with every row labelled",
        maths_dynamic_sampling,
        180,
        "score_number",
    ),
    "maths_context_raised": Kind(
        "H",
        "Maths: answers grow and 18 % are cut at step 80, when the user raises the limit; gold rises slowly before "
        "and faster afterwards, .50 to .72.",
        None,
        True,
        TOLD_OK,
        maths_context_raised,
        150,
        "score_number",
        1.0,
    ),
}
