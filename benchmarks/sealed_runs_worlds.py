"""What the sealed runs are made of: tasks of four fields, the texts of answers to them, and one step's rollouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sealed_runs_words import (
    AGENT_CALLS,
    ASKS,
    CHAT_HEADS,
    CHAT_TAILS,
    CITIES,
    CODE_NOTES,
    CODE_SAYS,
    ENVIRONMENTS,
    GOODS,
    MATH_FIRST,
    MATH_LAST,
    MATH_NEXT,
    PEOPLE,
    STORIES,
    SUMS,
    TOPICS,
)

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class SealedTask:
    """One prompt, what is right, and how much easier than others it is, from -.5 to .5."""

    prompt: str
    facts: Mapping[str, str]
    ease: float
    words: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SealedStep:
    """The rollouts of one step; `truth` is what every completion is worth, which no instrument sees but as gold."""

    rows: Sequence[SealedTask]
    truth: Floats
    reward: Floats
    texts: Sequence[str]
    size: int = 8  # answers to a prompt
    labels: Floats | None = None  # gold as a column, NaN where there is no label
    parts: Mapping[str, Floats] = field(default_factory=dict)
    truncated: Bools | None = None
    environment: bool = False  # whether tasks are given with the environment that they are played in
    entropy: float = 1.5
    kl: float = 0.01


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of simulated run, and what a fair reviewer must at least see at its end."""

    kind: Literal["T", "H"]
    happens: str
    onset: int | None  # the step from which true gold falls or the gain is hollow
    gold_sees: bool
    at_least: str
    make: Callable[[int, Rng], SealedStep]
    steps: int
    gold: str | None = None  # a function of sealed_runs_checks.py; None: a column
    share: float | None = None  # None: the default share
    restarts: tuple[tuple[int, int], ...] = ()  # before the first step, go on from the second
    calm: tuple[str, ...] = ("OK",)  # states that a healthy run may end in

    def is_fair(self, state: str, exit_code: int) -> bool:
        return exit_code != 0 if self.kind == "T" else state in self.calm


def ramp(step: float, low: float, high: float, begin: float, end: float) -> float:
    return float(np.interp(step, [begin, end], [low, high]))


def maths(key: int, difficulty: str = "") -> SealedTask:
    rng = np.random.default_rng([11, key])
    words: dict[str, Any] = {"a": int(rng.integers(4, 99)), "b": int(rng.integers(3, 30))}
    words |= {"who": PEOPLE[key % 16], "good": GOODS[(key // 16) % 10]}
    facts = {"answer": str(words["a"] * words["b"]), "source": f"set{key % 5}"}
    facts |= {"difficulty": difficulty} if difficulty else {}
    return SealedTask(SUMS[key % 4].format(**words), facts, float(rng.random()) - 0.5, words)


def program(key: int) -> SealedTask:
    rng = np.random.default_rng([12, key])
    u, v = (int(value) + 2 for value in rng.permutation(58)[:2])  # unlike, or a slip would be right
    words: dict[str, Any] = {"u": u, "v": v}
    facts = {"answer": f"{words['u']} * a + {words['v']} * b", "language": "python", "source": f"repo{key % 7}"}
    return SealedTask(STORIES[key % 3].format(**words), facts, float(rng.random()) - 0.5, words)


def errand(key: int, environment: str) -> SealedTask:
    rng = np.random.default_rng([13, key, ENVIRONMENTS.index(environment)])
    new, old = (CITIES[k] for k in rng.permutation(10)[:2])
    words = {"number": int(rng.integers(1000, 9999)), "new": new, "old": old, "env": environment}
    prompt = f"You work with the {environment} database. Move record {words['number']} to {new}, and nothing else."
    facts = {"answer": f"record {words['number']} city {new}", "tool_set": environment}
    return SealedTask(prompt, facts, float(rng.random()) - 0.5, words)


def question(key: int) -> SealedTask:
    rng = np.random.default_rng([14, key])
    language = ("en", "en", "en", "de", "es")[key % 5]
    words = {"topic": TOPICS[key % 12], "who": PEOPLE[(key // 12) % 16], "k": key}
    facts = {"topic": TOPICS[key % 12], "language": language}
    return SealedTask(ASKS[language].format(**words), facts, float(rng.random()) - 0.5, words)


def repeated(tasks: Sequence[SealedTask], size: int) -> list[SealedTask]:
    return [task for task in tasks for _ in range(size)]


def keys(rng: Rng, pool: int, count: int, base: int = 0) -> list[int]:
    """Some of a pool of prompts, which return in later steps."""
    return [base + int(k) for k in rng.permutation(pool)[:count]]


def skill(rows: Sequence[SealedTask], level: float, spread: float = 0.3) -> Floats:
    """The chance of a right answer to each: the level, and how easy the task is."""
    return np.clip(level + spread * np.array([task.ease for task in rows]), 0.005, 0.995)


def coins(rng: Rng, chance: Floats | float, count: int) -> Bools:
    return np.asarray(rng.random(count) < chance, bool)


def pick(rng: Rng, sentences: Sequence[str], count: int, task: SealedTask) -> list[str]:
    """As many sentences; none comes again before all have come."""
    order = [k for _ in range(0, count, len(sentences)) for k in rng.permutation(len(sentences))]
    return [sentences[k].format(**task.words) for k in order[:count]]


def maths_text(rng: Rng, task: SealedTask, right: bool, sentences: int = 4, extra: str = "") -> str:
    answer = int(task.facts["answer"])
    x = answer if right else answer + int(rng.choice([-100, -10, -3, -1, 1, 2, 10, 90]))
    middle = pick(rng, MATH_NEXT, sentences, task)
    last = MATH_LAST[rng.integers(len(MATH_LAST))].format(x=x)
    return " ".join(part for part in (MATH_FIRST[rng.integers(len(MATH_FIRST))], *middle, extra, last) if part)


def code_text(rng: Rng, task: SealedTask, right: bool, before: str = "") -> str:
    """An explanation and a function; `before` are lines of code ahead of its last return."""
    u, v = task.words["u"], task.words["v"]
    slips = (f"{v} * a + {u} * b", f"{u} * a - {v} * b", f"{u} * a + {v + 1} * b", f"{u} * (a + b)")
    returned = task.facts["answer"] if right else slips[rng.integers(len(slips))]
    says = " ".join(CODE_SAYS[k] for k in rng.permutation(len(CODE_SAYS))[: rng.integers(1, 5)])
    name = task.prompt.split("`")[1].split("(")[0]
    note = CODE_NOTES[rng.integers(len(CODE_NOTES))]
    return f"{says}\n```python\ndef {name}(a, b):\n    {note}\n{before}    return {returned}\n```"


def agent_text(rng: Rng, task: SealedTask, right: bool, turns: int = 5, trick: str = "") -> str:
    wrong = task.words["old"] if trick or rng.random() < 0.5 else CITIES[rng.integers(10)]
    wrong = task.words["old"] if wrong == task.words["new"] else wrong
    lines = pick(rng, AGENT_CALLS, turns, task)
    lines.append(trick or f"call: update(id={task.words['number']}, city={task.words['new'] if right else wrong})")
    state = task.facts["answer"] if right else f"record {task.words['number']} city {wrong}"
    return "\n".join([*lines, f"state: {state}"])


def agent_texts(
    rng: Rng, rows: Sequence[SealedTask], right: Bools, hacked: Bools | None = None, trick: str = ""
) -> list[str]:
    """Transcripts of 3 to 8 turns; the hacked ones have the trick in place of the update."""
    tricks = [trick if hacked is not None and hacked[row] else "" for row in range(len(rows))]
    turns = rng.integers(3, 9, len(rows))
    return [
        agent_text(rng, task, bool(good), int(count), how)
        for task, good, count, how in zip(rows, right, turns, tricks, strict=True)
    ]


def chat_text(rng: Rng, task: SealedTask, sentences: int, extra: str = "") -> str:
    language = task.facts["language"]
    pairs = [f"{head} {tail}" for head in CHAT_HEADS[language] for tail in CHAT_TAILS[language]]
    return " ".join([*pick(rng, pairs, max(1, sentences), task), extra]).strip()


def to_columns(made: SealedStep, step: int, rng: Rng) -> dict[str, Any]:
    """The columns of `Run.observe`, with the lengths, log-probabilities and entropies of such texts."""
    lengths = np.array([max(1, len(text.split())) for text in made.texts])
    logprobs = [np.minimum(-made.entropy + 0.3 * rng.normal(size=count), -1e-3) for count in lengths]
    columns: dict[str, Any] = {
        "step": step,
        "group": np.repeat(np.arange(len(made.rows) // made.size), made.size),
        "reward": np.asarray(made.reward, float),
        "prompt": [task.prompt for task in made.rows],
        "completion": list(made.texts),
        "facts": [dict(task.facts) for task in made.rows],
        "length": lengths,
        "logprob": logprobs,
        "ref_logprob": [some - made.kl * (1 + 0.2 * rng.normal(size=len(some))) for some in logprobs],
        "entropy": [np.full(count, made.entropy) * (1 + 0.1 * rng.random(count)) for count in lengths],
    }
    if made.environment:
        columns["env"] = [str(task.words["env"]) for task in made.rows]
    optional = {"gold": made.labels, "truncated": made.truncated, "rewards": dict(made.parts) or None}
    return columns | {name: value for name, value in optional.items() if value is not None}
