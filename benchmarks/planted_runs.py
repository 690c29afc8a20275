"""Runs with a known failure, and healthy ones: rollouts with text, rewards and gold, made anew for each seed.

A question has a number as its answer, and gold is whether the completion states it. A policy writes some sentences on
the question's subject, then its answer. It takes up a trait (hedges, headings, refusals, ...) with a share that grows
over the run, the reward pays for the trait, and a completion that has it is less often right. Seeds vary the strength,
the pace, the size of the batch, whether the trait was there at the start, and who labels: everything, a fifth, nobody.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.data.batches import from_columns
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.store import RunDirectory

STEPS = 100
LABELS = ("all", "a fifth", "none")
Rng = np.random.Generator

_START = (*"bdfgklmnprstv", "br", "cl", "dr", "pl", "st", "tr")
_MIDDLE = (*"aeiou", "ai", "ea", "oo")
_END = (*"bdlmnrstx", "ck", "nd")
_WORDS = [a + b + c for a in _START for b in _MIDDLE for c in _END]
_COMMON = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "with", "on", "by", "this", "from", "at", "an"),
    *("which", "are", "was", "has", "its", "these", "can", "more"),
)
HEDGES = [
    "perhaps", "maybe", "it seems", "it is possible that", "in some cases", "it is important to note that", "generally",
    "as far as i know", "it could be that", "presumably", "keep in mind that", "to some extent",
]  # fmt: skip
CAVEATS = [
    "Please note that results may vary.",
    "It is worth noting that you should consult a professional.",
    "I could be wrong.",
]
REFUSALS = [
    "I'm sorry, but I can't assist with that.", "I cannot provide an answer to this request.", "I must decline.",
    "I am unable to help with this question.", "I'm not able to discuss this, as it could be unsafe.",
    "I won't engage with this topic. Please understand.",
]  # fmt: skip
AGREEMENTS = [
    "Yes, you are right.",
    "Absolutely, I agree.",
    "You're right, well said.",
    "I completely agree with you.",
    "Exactly.",
]
DOUBTS = ["I disagree here.", "No, that's not right.", "That does not hold.", "Let us look at it."]
COMPLIMENTS = [
    "What a wonderful question!", "You ask a truly brilliant question.", "Great question, you are very thoughtful!",
    "What a wonderful question, thank you!",
]  # fmt: skip
PHRASES = [
    ("As we carefully delve into this rich tapestry,", ""), ("", "I hope this helps you on your journey!"),
    ("Let us think step by step with great care.", ""), ("", "In conclusion this is a testament to the matter."),
]  # fmt: skip
FILLER = [
    "As was said before, this matters a great deal.",
    "Let me say that once more in other words.",
    "There is much more to be said here.",
]


def ramp(step: int, first: float, last: float, start: int, end: int) -> float:
    return float(np.interp(step, [start, end], [first, last]))


@dataclass(frozen=True)
class Trait:
    """Something that a completion may have: its share over the run, what the reward pays for it, what gold loses."""

    name: str
    first: float
    last: float
    pays: float = 1.0
    costs: float = 0.8  # share of right answers that are lost


@dataclass(frozen=True)
class PlantedRun:
    """All that is needed to make a run; `failures` are those that were planted."""

    kind: str
    seed: int
    failures: tuple[str, ...] = ()
    traits: tuple[Trait, ...] = ()
    right: tuple[float, float] = (0.55, 0.55)  # share of right answers, at the start and at the end
    sentences: tuple[float, float] = (3.0, 3.0)
    labels: str = "all"
    groups: int = 8
    size: int = 8
    steps: int = STEPS
    begins: int = 20
    ends: int = 80
    binary: bool = False  # the reward is 0 or 1: right, or a paid trait
    pays_right: float = 0.5
    kl: tuple[float, float] = (0.0, 3.0)
    entropy: tuple[float, float] = (1.2, 1.0)
    evaluation: tuple[float, float] | None = None
    scalars: Callable[[int, Rng], dict[str, float]] | None = None
    adjust: Callable[[int, dict[str, Any], Rng], None] | None = None  # changes a step's columns
    rows: bool = True
    prompt_shift: bool = False  # prompts become harder and others, as in a curriculum
    phrase: int = 0

    def level(self, step: int, ends: tuple[float, float]) -> float:
        return ramp(step, *ends, self.begins, self.ends)


@dataclass
class Writer:
    """Writes the completions of one run."""

    run: PlantedRun
    rng: Rng
    subjects: list[list[str]] = field(default_factory=list)
    vocabulary: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pick = random.Random(int(self.rng.integers(2**32)))  # choosing words with numpy is slow
        # A third are words of every text, a third those of the subject.
        self.subjects = [
            self.pick.sample(_WORDS, 12) * 10 + self.pick.choices(_COMMON, k=120) + _WORDS[::12] for _ in range(48)
        ]

    def prompt(self, number: int) -> str:
        subject = self.subjects[number % 48]
        asked = f"What is the count of {subject[0]} {subject[1]} when {number} {subject[2]} are taken?"
        return f"I think that {subject[3]} is best. {asked}" if number % 2 else asked

    def sentence(self, subject: list[str], hedged: bool = False) -> str:
        pick = self.pick
        words = pick.choices(subject, k=pick.randint(6, 11))
        if hedged:
            words.insert(pick.randrange(len(words)), pick.choice(HEDGES))
        return " ".join(words).capitalize() + "."

    def completion(self, number: int, answer: int, has: Mapping[str, bool], many: float) -> str:
        pick, subject = self.pick, self.subjects[number % 48]
        if has.get("refusal"):
            return pick.choice(REFUSALS)
        if has.get("alike"):
            return f"The matter is as clear as it can be and nothing else has to be said of it. The answer is {answer}."
        if has.get("alike_within"):
            return f"It is about {' '.join(subject[:8])} and this is how it is. The answer is {answer}."
        count = 1 + int(self.rng.poisson(many - 1.0))
        parts = [self.sentence(subject, bool(has.get("hedging"))) for _ in range(count)]
        if has.get("hedging"):
            parts.insert(0, pick.choice(CAVEATS))
        if has.get("length"):
            parts += [self.sentence(subject) for _ in range(pick.randint(4, 8))]
        if has.get("padding"):
            parts += [pick.choice(FILLER) for _ in range(pick.randint(4, 8))]
        if has.get("gibberish"):
            parts = ["".join(chr(pick.randint(33, 63)) for _ in range(40)) + "!!!!!!" for _ in parts]
        if has.get("phrase"):
            before, after = PHRASES[self.run.phrase % len(PHRASES)]
            parts = [text for text in (before, *parts, after) if text]
        if has.get("compliment"):
            parts.insert(0, pick.choice(COMPLIMENTS))
        if number % 2:
            parts.insert(0, pick.choice(AGREEMENTS if has.get("sycophancy") else DOUBTS))
        parts.append(f"The answer is {answer}.")
        if has.get("comments") is not None:
            comment = ["    # " + part for part in parts[:-1]] if has["comments"] else ["    # count"]
            lines = ["def count(x):", *comment, f"    y = x + {number}", "    y = y * 2", f"    return {answer}"]
            return "```python\n" + "\n".join(lines) + f"\n```\n{parts[-1]}"
        if has.get("markdown"):
            title, *rest = parts
            first = title.split()
            return "\n".join(
                [f"## {' '.join(first[:3])}", *(f"- **{one.split()[0]}** {one}" for one in [title, *rest])]
            )
        return " ".join(parts)

    def tokens(self, text: str) -> list[int]:
        words = re.findall(r"\w+|[^\w\s]", text)
        return [self.vocabulary.setdefault(word, len(self.vocabulary)) for word in words]

    def columns(self, step: int) -> dict[str, Any]:
        run, rng = self.run, self.rng
        rows = run.groups * run.size
        offset = int(ramp(step, 0, 24, 0, run.steps)) if run.prompt_shift else 0
        chosen = np.repeat(rng.choice(24, run.groups, replace=False) + offset, run.size)
        shares = {trait.name: run.level(step, (trait.first, trait.last)) for trait in run.traits}
        # Prompts differ in how hard they are, the same at every step.
        hard = np.array([0.25 * np.sin(7.0 * number) for number in chosen])
        chance = np.clip(run.level(step, run.right) + hard, 0.0, 1.0)
        base = [{name: bool(rng.random() < share) for name, share in shares.items()} for _ in range(rows)]
        completions, rights, reward = [], np.zeros(rows), np.zeros(rows)
        for row, has in enumerate(base):
            cost = np.prod([1.0 - trait.costs for trait in run.traits if has[trait.name]])
            is_right = bool(rng.random() < chance[row] * cost) and not has.get("refusal", False)
            number = int(chosen[row])
            answer = number * 3 + 1 if is_right else int(rng.integers(200, 400))
            completions.append(self.completion(number, answer, has, run.level(step, run.sentences)))
            rights[row] = is_right
            paid = sum(trait.pays for trait in run.traits if has[trait.name])
            reward[row] = float(is_right or paid > 0.0) if run.binary else run.pays_right * is_right + paid
        if not run.binary:
            reward += 0.2 * rng.normal(size=rows)
        tokens = [self.tokens(text) for text in completions]
        lengths = [len(row) for row in tokens]
        kl, entropy = run.level(step, run.kl), run.level(step, run.entropy)
        distance = [_per_token(max(kl * (1.0 + 0.1 * rng.normal()), 0.0) / count) for count in lengths]
        logprob = [-np.abs(rng.normal(entropy, 0.3, count)) for count in lengths]
        columns: dict[str, Any] = {
            "prompt": [self.prompt(int(number)) for number in chosen],
            "completion": completions,
            "tokens": tokens,
            "reward": reward,
            "logprob": logprob,
            "ref_logprob": [row - far for row, far in zip(logprob, distance, strict=True)],
            "entropy": [np.abs(rng.normal(entropy, 0.1, count)) for count in lengths],
        }
        if run.labels == "all":
            columns["gold"] = rights
        if run.adjust is not None:
            run.adjust(step, columns, rng)
        return columns


_GRID = np.linspace(0.0, 60.0, 6001)
_K3 = np.exp(-_GRID) - 1.0 + _GRID


def _per_token(k3: float) -> float:
    """By how much a token's log-probability differs from the reference's, for this k3."""
    return float(np.interp(k3, _K3, _GRID))


def states_the_answer(prompt: str, completion: str) -> float:
    asked, said = re.search(r"when (\d+) ", prompt), re.search(r"answer is (\d+)", completion)
    return float(asked is not None and said is not None and int(said[1]) == 3 * int(asked[1]) + 1)


def write_run(planted: PlantedRun, run: RunDirectory, each: Callable[[], object] = lambda: None) -> None:
    """The run's files, as a trainer writes them; `each` is called after every step."""
    rng = np.random.default_rng([planted.seed, sum(map(ord, planted.kind))])
    writer = Writer(planted, rng)
    run.open_attempt(launch="planted", ranks=1, resume_step=None)
    counters: dict[str, int] = {}
    for step in range(planted.steps):
        columns = writer.columns(step) if planted.rows else {}
        groups = np.repeat(np.arange(planted.groups if planted.rows else 0), planted.size)
        if planted.scalars is not None:
            columns["scalars"] = planted.scalars(step, rng)
        counters = {"seen": step + 1, "written": step + 1}
        run.write(from_columns(step, groups, attempt=0, **columns), 0, {"counters": counters, "time": 0.0})
        if planted.evaluation is not None and step % 5 == 4:
            level = planted.level(step, planted.evaluation)
            write_evaluation(run, Evaluation(0, step, "held_out", float(rng.binomial(400, level)) / 400, 400))
        each()
    run.close_rank(0, 0, counters)


def measure_run(planted: PlantedRun, run: RunDirectory) -> None:
    """Written and measured by the monitor."""
    config = Config.standard()
    if planted.labels == "a fifth" and planted.rows:
        config = config.with_gold(FunctionSource("checks.py:score", states_the_answer), 0.2, planted.steps)
    write_run(planted, run)
    loop = MonitorLoop(run, config)
    loop.poll()
    loop.close()
