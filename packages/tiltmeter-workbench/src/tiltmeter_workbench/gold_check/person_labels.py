"""A person says which of two answers is better, blind, and the check is compared with that: does it measure the same?

Pairs are of one prompt, and the check prefers one of the two. Sides are random, and neither score is shown.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from tiltmeter.data.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter.gold import CompletionToLabel, GoldSource
from tiltmeter.gold.label_files import to_label
from tiltmeter.stats.intervals import upper_bound

PAIRS = 30
MOST_SCORED = 600  # completions that the check is asked about, to have pairs
Choice = Literal["first", "second", "tie", "skip"]
CHOICES = get_args(Choice)
#: Shows a pair and returns what the person chose; None: no more of them.
Ask = Callable[["ScoredPair", int, int], Choice | None]


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Two answers to one prompt, in the order in which they are shown; which of them the check prefers."""

    prompt: str
    first: str
    second: str
    check_prefers_first: bool


@dataclass(frozen=True, slots=True)
class PersonAgreement:
    """How often a person and the check prefer the same answer, of pairs on which the person decided.

    >>> verdict = PersonAgreement(27, 30, ties=2, skips=0)
    >>> verdict.share, [round(end, 2) for end in verdict.interval], verdict.exit_code
    (0.9, [0.73, 0.98], 0)
    """

    agreed: int
    decided: int
    ties: int
    skips: int

    @property
    def share(self) -> float:
        return self.agreed / self.decided if self.decided else math.nan

    @property
    def interval(self) -> tuple[float, float]:
        """Exact (Clopper and Pearson), 95 %, from both sides."""
        if not self.decided:
            return 0.0, 1.0
        low = 1.0 - upper_bound(self.decided - self.agreed, self.decided, 0.975)
        return low, upper_bound(self.agreed, self.decided, 0.975)

    @property
    def exit_code(self) -> int:
        """0: the check prefers what the person does, more often than a coin; 1: it does not; 2: too few to say."""
        low, high = self.interval
        return 0 if low > 0.5 else 1 if high <= 0.5 or (self.decided >= PAIRS and low <= 0.5) else 2


def choose_pairs(
    source: GoldSource, rows: Sequence[Mapping[str, Any]], count: int = PAIRS, seed: int = 0
) -> list[ScoredPair]:
    """Pairs to ask about, one per prompt first. `rows` have a prompt and a completion. Raises `AttachError`."""
    generator = random.Random(seed)
    usable = [row for row in rows if _text(row, "completion") is not None and _text(row, "prompt") is not None]
    by_prompt: dict[str, list[Mapping[str, Any]]] = {}
    for row in usable:
        by_prompt.setdefault(str(_text(row, "prompt")), []).append(row)
    groups = [group for group in by_prompt.values() if len({_text(row, "completion") for row in group}) > 1]
    if not groups:
        raise AttachError(
            f"{len(usable)} rows with a prompt and a completion, and no prompt with two different ones: give rollouts, "
            'as {"prompt": "2 + 2?", "completion": "4", "answer": "4"}, several of each prompt'
        )
    generator.shuffle(groups)
    chosen = [row for group in groups for row in group][:MOST_SCORED]
    requests = [
        CompletionToLabel(
            f"pair-{at}", 0, 0, at, "pair", str(_text(row, "prompt")), str(_text(row, "completion")),
            {name: value for name, value in row.items() if name not in ("prompt", "completion")},
        )
        for at, row in enumerate(chosen)
    ]  # fmt: skip
    labels = [to_label(answer) for answer in source.label(requests)]
    pairs = list(_pairs(requests, [label.value for label in labels], generator))
    if not pairs:
        why = next((label.why for label in labels if label.value is None), "")
        reason = f"it gave no labels ({why})" if why else "it gives all answers to a prompt the same"
        raise AttachError(f"{source.name} prefers none of {len(chosen)} answers to another: {reason}")
    return pairs[:count]


def _pairs(
    requests: Sequence[CompletionToLabel], values: Sequence[float | None], generator: random.Random
) -> Iterator[ScoredPair]:
    scored: dict[str, list[tuple[float, str]]] = {}
    for request, value in zip(requests, values, strict=True):
        if value is not None:
            scored.setdefault(str(request.prompt), []).append((value, request.completion))
    decided: dict[str, list[ScoredPair]] = {}
    for prompt, answers in scored.items():
        both = [(a, b) for at, a in enumerate(answers) for b in answers[at + 1 :] if a[0] != b[0]]
        generator.shuffle(both)
        for pair in both:
            first, second = pair if generator.random() < 0.5 else pair[::-1]
            decided.setdefault(prompt, []).append(ScoredPair(prompt, first[1], second[1], first[0] > second[0]))
    while decided:  # one of each prompt, then a second one
        for prompt in list(decided):
            yield decided[prompt].pop()
            if not decided[prompt]:
                del decided[prompt]


def label_pairs(pairs: Sequence[ScoredPair], ask: Ask, out: Path | None = None) -> PersonAgreement:
    """Ask about each pair; every answer is appended to `out` as it is given."""
    agreed = decided = ties = skips = 0
    for at, pair in enumerate(pairs):
        choice = ask(pair, at + 1, len(pairs))
        if choice is None:
            break
        ties, skips = ties + (choice == "tie"), skips + (choice == "skip")
        if choice in ("first", "second"):
            decided += 1
            agreed += (choice == "first") == pair.check_prefers_first
        if out is not None:
            record = {"prompt": pair.prompt, "first": pair.first, "second": pair.second, "person": choice}
            record["check"] = "first" if pair.check_prefers_first else "second"
            with out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
    return PersonAgreement(agreed, decided, ties, skips)


def ask_in_notebook(pair: ScoredPair, number: int, count: int) -> Choice | None:
    """Ask with Python's own `input`, which notebooks show as a field."""
    shown = f"[{number}/{count}] {pair.prompt}\n\nA: {pair.first}\n\nB: {pair.second}\n\na, b, t(ie), s(kip), q(uit): "
    choices: dict[str, Choice | None] = {"a": "first", "b": "second", "t": "tie", "s": "skip", "q": None}
    while (answer := input(shown).strip().lower()[:1]) not in choices:
        shown = "a, b, t, s or q: "
    return choices[answer]


def _text(row: Mapping[str, Any], name: str) -> str | None:
    value = row.get(name)
    return None if value is None else plain_text(value)
