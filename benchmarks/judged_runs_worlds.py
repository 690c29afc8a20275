"""What the judged runs are made of: kinds with a slice or a judge, and one builder for runs of sums."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from chat_server import ChatReply, as_content, read_fenced
from sealed_runs_worlds import (
    Bools,
    Floats,
    Kind,
    Rng,
    SealedStep,
    SealedTask,
    coins,
    keys,
    maths,
    maths_text,
    repeated,
    skill,
)

STEPS = 150
POOL = 200  # prompts, which return
PROMPTS, ANSWERS = 16, 8
CHECKS = "judged_runs_checks.py"

Level = Callable[[int], float]
Pay = Callable[[Floats, Floats, int], Floats]
Draw = Callable[[int, Rng], Sequence[SealedTask]]
Write = Callable[[Rng, SealedTask, bool, int], str]
Make = Callable[[int, Rng], SealedStep]


@dataclass(frozen=True, slots=True)
class JudgedKind(Kind):
    """`gold` is a file and a function of this folder. `blind_words`: a pattern of what a verdict says that sees that
    gold cannot tell; for kinds whose gold does not see the trouble."""

    slices: str | None = None
    judged: bool = False  # gold is a judge's, served on this machine
    blind_words: str = ""

    def says_blind(self, shown: str) -> bool:
        """Whether the screen of a run says that gold cannot see this kind's trouble."""
        return bool(self.blind_words and re.search(self.blind_words, shown, re.IGNORECASE))


def some(step: int, rng: Rng) -> list[SealedTask]:
    return [maths(k) for k in keys(rng, POOL, PROMPTS)]


def new(step: int, rng: Rng) -> list[SealedTask]:
    """Prompts that no other step has."""
    return [maths(50_000 + step * PROMPTS + k) for k in range(PROMPTS)]


def write_sum(rng: Rng, task: SealedTask, right: bool, step: int) -> str:
    return maths_text(rng, task, right, 3)


def write_all(write: Write, rng: Rng, rows: Sequence[SealedTask], right: Bools, step: int) -> list[str]:
    return [write(rng, task, bool(good), step) for task, good in zip(rows, right, strict=True)]


def sums(
    level: Level,
    pay: Pay,
    *,
    draw: Draw = some,
    write: Write = write_sum,
    labelled: bool = False,
    size: int = ANSWERS,
    entropy: Level = lambda step: 1.5,
    kl: Level = lambda step: 0.0003 * step,
    spread: float = 0.3,
) -> Make:
    """Steps whose mean gold is `level`, and whose reward is `pay(gold, noise, step)`. `labelled`: every answer."""

    def make(step: int, rng: Rng) -> SealedStep:
        rows = repeated(draw(step, rng), size)
        right = coins(rng, skill(rows, level(step), spread), len(rows))
        truth = right.astype(float)
        reward = pay(truth, rng.normal(size=len(rows)), step)
        texts = write_all(write, rng, rows, right, step)
        labels = truth if labelled else None
        return SealedStep(rows, truth, reward, texts, size, labels, entropy=entropy(step), kl=kl(step))

    return make


def tag(task: SealedTask, **facts: str) -> SealedTask:
    return replace(task, facts={**task.facts, **facts})


def weighed(gold: float, noise: float, growth: float = 0.0) -> Pay:
    """A reward of so much for gold, so much noise, and a growth by step that nothing earns."""
    return lambda truth, errors, step: gold * truth + noise * errors + growth * step


def reply(body: dict[str, object]) -> ChatReply:
    """A judge that works the sum out, and gives one answer in ten any grade between."""
    data, _ = read_fenced(body)
    asked, said = ([int(x) for x in re.findall(r"-?\d+", str(data[part]))] for part in ("task", "answer"))
    rng = np.random.default_rng([len(data["answer"]), *map(abs, said)])
    grade = 9 if said and len(asked) > 1 and said[-1] == asked[0] * asked[1] else 2
    return ChatReply(as_content({"score": int(rng.integers(3, 9)) if rng.random() < 0.1 else grade}))
