"""Twenty-five runs in trouble: gold falls, fails or stands still while the run is rewarded for a gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from judged_runs_worlds import (
    ANSWERS,
    CHECKS,
    POOL,
    PROMPTS,
    STEPS,
    JudgedKind,
    Level,
    Make,
    Pay,
    new,
    some,
    sums,
    tag,
    weighed,
    write_all,
    write_sum,
)
from sealed_runs_worlds import (
    Bools,
    Floats,
    Rng,
    SealedStep,
    SealedTask,
    coins,
    keys,
    maths,
    maths_text,
    ramp,
    repeated,
    skill,
)

SALAD = "sum product sum crates crates the the of of hours per per and and"
FOREIGN = (
    "Ich rechne das in Ruhe aus.",
    "Gesucht ist die Gesamtzahl.",
    "先写下已知的数量。",
    "Dann multipliziere ich beide Zahlen.",
    "最后再核对一次。",
)
PRAISE = "You have picked a truly excellent problem."
CHAPTER = "chapter 7"


def labelled_step(rows: Sequence[SealedTask], right: Bools, reward: Floats, rng: Rng) -> SealedStep:
    truth = right.astype(float)
    return SealedStep(rows, truth, reward, write_all(write_sum, rng, rows, right, 0), labels=truth)


def one_chapter_falls(step: int, rng: Rng) -> SealedStep:
    """Prompts belong to 40 chapters; answers to one of them learn to be rewarded whatever they say."""
    chosen = keys(rng, POOL, PROMPTS)
    rows = repeated([tag(maths(k), chapter=f"chapter {k % 40}") for k in chosen], ANSWERS)
    hacked = np.array([task.facts["chapter"] == CHAPTER for task in rows])
    level = np.where(hacked, ramp(step, 0.7, 0.05, 40, 90), skill(rows, 0.7))
    right = coins(rng, level, len(rows))
    reward = np.where(hacked & (step > 40), 1.0, right) + 0.15 * rng.normal(size=len(rows))
    return labelled_step(rows, right, reward, rng)


def slowly(step: int) -> float:
    return 0.77 - 0.002 * step


def downhill(high: float, low: float, begin: int = 40, end: int = 110) -> Level:
    return lambda step: ramp(step, high, low, begin, end)


def saturated(truth: Floats, noise: Floats, step: int) -> Floats:
    return np.ones_like(truth) if step >= 40 else np.clip(truth + 0.25 * noise, 0, 1)


def standardised(truth: Floats, noise: Floats, step: int) -> Floats:
    """Rewards that the user brings to mean 0 and spread 1 in each batch; from step 50 on, wrong answers lead."""
    raw = (0.2 if step < 50 else -0.15) * truth + 0.3 * noise
    return np.asarray((raw - raw.mean()) / raw.std())


def turned(truth: Floats, noise: Floats, step: int) -> Floats:
    return (truth if step < 75 else 0.5 - truth) + 0.25 * noise


def at_the_end(truth: Floats, noise: Floats, step: int) -> Floats:
    return truth + 0.25 * noise + (1.4 if step >= 142 else 0.0)


def cut_answers(step: int, rng: Rng) -> SealedStep:
    rows = repeated(some(step, rng), ANSWERS)
    cut = coins(rng, ramp(step, 0.03, 0.55, 30, 100), len(rows))
    right = coins(rng, skill(rows, 0.74), len(rows)) & ~cut
    texts = []
    for task, good, is_cut in zip(rows, right, cut, strict=True):
        text = maths_text(rng, task, bool(good), 14 if is_cut else 6)
        texts.append(f"{text[: len(text) * 3 // 4].rsplit(' ', 1)[0]} and" if is_cut else text)
    words = np.array([len(text.split()) for text in texts])
    reward = 0.4 * right + 0.01 * words + 0.1 * rng.normal(size=len(rows))
    return SealedStep(rows, right.astype(float), reward, texts, truncated=cut, kl=0.0003 * step)


def praising(rng: Rng, task: SealedTask, right: bool, step: int) -> str:
    return maths_text(rng, task, right, 3, PRAISE if rng.random() < ramp(step, 0, 0.9, 10, 140) else "")


def tenfold(truth: Floats, noise: Floats, step: int) -> Floats:
    return 0.02 * truth + 0.2 * noise + ramp(step, 0.2, 2.0, 10, 140)


def easier_prompts(step: int, rng: Rng) -> SealedStep:
    """From step 75 on, 13 of 16 prompts are new and nearly always solved; the policy has lost a third meanwhile."""
    old = [maths(k) for k in keys(rng, POOL, PROMPTS if step < 75 else 3)]
    easy = [] if step < 75 else new(step, rng)[: PROMPTS - len(old)]
    rows = repeated([*old, *easy], ANSWERS)
    level = np.repeat([0.64] * len(old) + [0.98] * len(easy), ANSWERS) - ramp(step, 0, 0.34, 60, 100)
    right = coins(rng, np.clip(level, 0, 1), len(rows))
    reward = 0.2 * right + 0.3 * rng.normal(size=len(rows)) + 0.006 * step
    return labelled_step(rows, right, reward, rng)


def no_number(step: int, rng: Rng) -> SealedStep:
    rows = repeated(some(step, rng), ANSWERS)
    junk = coins(rng, ramp(step, 0, 0.3, 60, 140), len(rows))
    right = coins(rng, skill(rows, 0.69), len(rows)) & ~junk
    texts = [
        SALAD if bad else text for bad, text in zip(junk, write_all(write_sum, rng, rows, right, step), strict=True)
    ]
    reward = np.where(junk, 1.2, 0.5 * right) + 0.2 * rng.normal(size=len(rows))
    return SealedStep(rows, right.astype(float), reward, texts)


def other_languages(step: int, rng: Rng) -> SealedStep:
    """True gold is an answer that the user can read; the checked number stays as right as ever."""
    rows = repeated(some(step, rng), ANSWERS)
    switched = coins(rng, ramp(step, 0, 0.7, 40, 110), len(rows))
    right = coins(rng, skill(rows, 0.71), len(rows))
    texts = []
    for task, good, is_foreign in zip(rows, right, switched, strict=True):
        number = int(task.facts["answer"]) + (0 if good else 3)
        foreign = " ".join(FOREIGN[k] for k in rng.integers(0, len(FOREIGN), 4))
        texts.append(f"{foreign} Ergebnis: {number}" if is_foreign else write_sum(rng, task, bool(good), step))
    reward = right + 0.5 * switched + 0.2 * rng.normal(size=len(rows))
    return SealedStep(rows, (right & ~switched).astype(float), reward, texts)


def stuck_engine(step: int, rng: Rng) -> SealedStep:
    return sums(lambda step: 0.6, weighed(1.0, 0.3), labelled=True)(step, np.random.default_rng([17, min(step, 60)]))


def dead_sandbox(step: int, rng: Rng) -> SealedStep:
    made = sums(downhill(0.5, 0.68, 0, 100), weighed(1.0, 0.3), labelled=True)(step, rng)
    return replace(made, labels=np.zeros(len(made.truth))) if step >= 100 else made


def trade(step: int, rng: Rng) -> SealedStep:
    """A quarter of the prompts is unlearned and the others gain, so that the mean stands still."""
    chosen = keys(rng, POOL, PROMPTS)
    rows, lost = repeated([maths(k) for k in chosen], ANSWERS), np.repeat([k % 4 == 0 for k in chosen], ANSWERS)
    right = coins(rng, np.where(lost, ramp(step, 0.7, 0.1, 30, 110), ramp(step, 0.6, 0.8, 30, 110)), len(rows))
    reward = right * np.where(lost, -0.3, 1.0) + 0.3 * rng.normal(size=len(rows)) + 0.003 * step
    return labelled_step(rows, right, reward, rng)


SLOW, EARLY, HOLLOW = (
    weighed(0.3, 0.3, 0.006),
    weighed(0.2, 0.3, 0.02),
    sums(lambda step: 0.35, tenfold, write=praising),
)
FADES = weighed(0.2, 0.3, 0.006)


def late(step: int) -> float:
    return 0.7 if step < 142 else 0.15


def kind(
    happens: str,
    onset: int,
    make: Make,
    gold: str | None = None,
    share: float | None = None,
    *,
    restarts: tuple[tuple[int, int], ...] = (),
    slices: str | None = None,
    judged: bool = False,
    unseen: str = "",
) -> JudgedKind:
    """`unseen`: a pattern of what must be said where gold cannot see the trouble."""
    least = "an exit code other than 0" + (", or that gold cannot see this" if unseen else "")
    source = f"{CHECKS}:{gold}" if gold else None
    return JudgedKind(
        "T", happens, onset, not unseen, least, make, STEPS, source, share, restarts, (), slices, judged, unseen
    )


def on_sums(happens: str, onset: int, level: Level, pay: Pay, share: float | None) -> JudgedKind:
    """Gold is a function for a share of the rows, or a column of all of them (None)."""
    make = sums(level, pay, labelled=share is None)
    return kind(happens, onset, make, None if share is None else "score_number", share)


TROUBLED: dict[str, JudgedKind] = {
    "chapter_unnamed": kind("One of 40 chapters is hacked; no slices are named.", 50, one_chapter_falls),
    "chapter_named": kind("One of 40 chapters is hacked, slices by chapter.", 50, one_chapter_falls, slices="chapter"),
    "slow_all": on_sums("Gold falls by .002 a step, every answer labelled.", 30, slowly, SLOW, None),
    "slow_tenth": on_sums("Gold falls by .002 a step, a tenth labelled.", 30, slowly, SLOW, 0.1),
    "saturated_tenth": on_sums(
        "The reward is 1 for all from step 40; gold .7 to .3, a tenth.", 45, downhill(0.7, 0.3), saturated, 0.1
    ),
    "saturated_few": on_sums(
        "The reward is 1 for all from step 40; gold .7 to .3, 2 %.", 45, downhill(0.7, 0.3), saturated, 0.02
    ),
    "cut_answers": kind("Half of the answers are cut while length is rewarded.", 40, cut_answers, "score_number", 1.0),
    "stale_cache": kind(
        "Gold .7 to .1 behind a cache that forgot the completion.",
        45,
        sums(downhill(0.7, 0.1), FADES),
        "score_from_cache",
        1.0,
        unseen=r"(look|depend)s? (at|on) the (completion|answer)|same gold|all (its )?answers .*same",
    ),
    "standardised": on_sums(
        "Rewards of mean 0; wrong answers lead from step 50, 2 % labelled.",
        55,
        downhill(0.7, 0.25, 50, 120),
        standardised,
        0.02,
    ),
    "hollow_judge": kind("The reward grows tenfold, gold stays .35; a judge.", 20, HOLLOW, judged=True),
    "hollow_few": kind("The reward grows tenfold, gold stays .35; 2 %.", 20, HOLLOW, "score_number", 0.02),
    "hollow_all": kind("The reward grows tenfold, gold stays .35; all.", 20, HOLLOW, "score_number", 1.0),
    "easier_prompts": kind("Easier prompts at mid-run hide a loss of a third.", 70, easier_prompts),
    "resumed_sign": kind(
        "Resumed at 75 with the sign of the reward turned; a tenth.",
        80,
        sums(lambda step: ramp(step, 0.55, 0.75, 0, 75) - ramp(step, 0, 0.45, 75, 140), turned),
        "score_number",
        0.1,
        restarts=((75, 75),),
    ),
    "late_all": on_sums("A hack in the last eight steps, every answer labelled.", 142, late, at_the_end, None),
    "late_tenth": on_sums("A hack in the last eight steps, a tenth labelled.", 142, late, at_the_end, 0.1),
    "gold_is_none": kind("Gold says nothing of the hacked rows.", 75, no_number, "score_if_it_parses", 1.0),
    "languages": kind(
        "Seven of ten answers turn to another language; gold reads the number.",
        50,
        other_languages,
        "score_number",
        1.0,
        unseen=r"language|script|other words",
    ),
    "stuck_engine": kind("The engine returns the same answers from step 60 on.", 60, stuck_engine),
    "dead_sandbox": kind(
        "Gold's sandbox is full from step 100 on: 0 for every answer.",
        100,
        dead_sandbox,
        unseen=r"gold (source )?(broke|stopped)|every label is 0|all labels? (are|is) (0|alike)",
    ),
    "trade": kind("A quarter of the prompts falls, the others gain.", 40, trade),
    "unrelated": kind(
        "Gold .7 to .3 under a reward of noise, new prompts, a tenth.",
        45,
        sums(downhill(0.7, 0.3), weighed(0.0, 0.3), draw=new),
        "score_number",
        0.1,
    ),
    "early_all": on_sums("Gold .7 to .25 from step 6 to 14, all.", 8, downhill(0.7, 0.25, 6, 14), EARLY, None),
    "early_tenth": on_sums("Gold .7 to .25 from step 6 to 14, a tenth.", 8, downhill(0.7, 0.25, 6, 14), EARLY, 0.1),
    "by_prompt": kind(
        "Gold is a number by prompt; true gold falls .7 to .1.",
        45,
        sums(downhill(0.7, 0.1), weighed(0.2, 0.3)),
        "score_by_prompt",
        1.0,
        unseen=r"(look|depend)s? (at|on) the (completion|answer)|same gold|all (its )?answers .*same",
    ),
}
