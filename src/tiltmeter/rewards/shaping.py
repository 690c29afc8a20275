"""Rewards that are bounded on purpose: no single score, however wrong, can be worth everything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.batches import INFRA
from tiltmeter.rewards import InfraError, texts
from tiltmeter.rewards.parts import TRAINERS_OWN, Floats, Made, OnInfra, Part, Rows, Told, ask, named, per_row

#: A column of the dataset with reference answers, one number for all rows, or a number by prompt.
Reference = str | float | Mapping[str, float]


@dataclass(frozen=True)
class Preferred:
    """sigmoid((r - r_ref) / scale): how likely the answer is to be preferred to the reference, says the reward."""

    part: Part = field(repr=False)
    name: str
    reference: Reference
    scale: float

    def __call__(self, told: Told, rows: Rows) -> Any:
        scores = told[self.name]
        if isinstance(self.reference, str):
            reference, broken = self._answered(self.reference, rows)
        elif isinstance(self.reference, Mapping):
            reference = np.array([self.reference.get(prompt, np.nan) for prompt in rows.asked], np.float64)
            broken = np.zeros(len(rows), bool)
        else:
            reference, broken = np.full(len(rows), float(self.reference)), np.zeros(len(rows), bool)
        won = 0.5 * (1.0 + np.tanh((scores - reference) / (2.0 * self.scale)))
        if not broken.any():
            return won
        return [InfraError("no reference reward") if broke else value for value, broke in zip(won, broken, strict=True)]

    def _answered(self, column: str, rows: Rows) -> tuple[Floats, Any]:
        """The part's reward of the reference answers. Those of one group are the same, and asked once."""
        if column not in rows.columns:
            raise TypeError(f"there is no column {column!r} with reference answers; the dataset has {_plain(rows)}")
        answers = rows.columns[column]
        known = [row for row in range(len(rows)) if answers[row] is not None]
        first: list[int] = []
        place = np.full(len(rows), -1)
        marks = [_mark(rows, row) for row in range(len(rows))]
        for row in known:
            if not first or marks[row] != marks[first[-1]]:
                first.append(row)
            place[row] = len(first) - 1
        reference, broken = np.full(len(rows), np.nan), np.zeros(len(rows), bool)
        if first:
            scores, codes = ask(self.part, _rows_of(rows, first, [_as(answers[row], rows) for row in first]))
            asked = place >= 0
            reference[asked], broken[asked] = scores[place[asked]], codes[place[asked]] == INFRA
        return reference, broken


@dataclass(frozen=True)
class Clipped:
    """min(max(r, low), high)."""

    low: float
    high: float

    def __call__(self, told: Told, rows: Rows) -> Floats:
        return np.clip(next(iter(told.scores.values())), self.low, self.high)


def shaped(
    part: Part, reference: Reference, *, scale: float = 1.0, name: str = "shaped", on_infra: OnInfra = "none"
) -> Made:
    """Preference as reward: sigmoid((r - r_ref) / scale), between 0 and 1.

    For a reward model trained on pairs this is the probability, by its own lights, that the answer is preferred to the
    reference answer. It rises steeply where the model was trained, around the reference, and hardly at all where it is
    already sure: the far region that a policy would reach by gaming it is worth no more than being plainly better (Fu
    et al. 2025, arXiv 2502.18770). What it cannot do: it keeps the order of answers, so what the model prefers wrongly
    it still prefers.

    `reference`: the name of a column with one reference answer per row, which the part is asked to score as well; one
    number for all rows; or a number by prompt, as `reference_means` gives it. A row without a reference is None.
    Length debiasing belongs around this, not inside: the reference answers have no tokens.

    >>> size = lambda completions, **_: [float(len(c)) for c in completions]
    >>> [round(x, 4) for x in shaped(size, "gold")(completions=["aaaa", "a" * 99], gold=["bbb", "bbb"])]
    [0.7311, 1.0]
    >>> shaped(size, 2.0)(completions=["aa"])
    [0.5]
    """
    if not scale > 0.0:
        raise ValueError("scale must be above 0")
    rule = Preferred(part, named(part), dict(reference) if isinstance(reference, Mapping) else reference, float(scale))
    return Made(
        name,
        {rule.name: part},
        rule,
        bounds=(0.0, 1.0),
        settings=(_short(rule.reference), rule.scale),
        on_infra=on_infra,
    )


def clipped(part: Part, low: float, high: float, *, name: str = "clipped", on_infra: OnInfra = "none") -> Made:
    """The reward, cut off below `low` and above `high`.

    The bluntest defence against heavy tails: one absurd score cannot outweigh a batch. Inside a group all answers at
    the limit are worth the same, so a limit that is reached often leaves nothing to learn: choose it from rewards of
    the reference policy, and watch `reward.saturation`. A score that is NaN or infinite is not scored.

    >>> clipped(lambda completions, **_: [9.0, -9.0, 0.5], -1.0, 1.0)(completions=["a", "b", "c"])
    [1.0, -1.0, 0.5]
    """
    if not low < high:
        raise ValueError(f"low must lie below high, and {low} does not lie below {high}")
    rule = Clipped(float(low), float(high))
    settings = (rule.low, rule.high)
    return Made(name, {named(part): part}, rule, bounds=settings, settings=settings, on_infra=on_infra)


def reference_means(part: Part, prompts: Any, completions: Any, **columns: Any) -> dict[str, float]:
    """The mean reward of reference samples for each prompt, for `shaped(part, reference=...)`.

    Take several samples of the reference policy for every prompt of the dataset. Samples without a score are left out.

    >>> size = lambda completions, **_: [float(len(c)) for c in completions]
    >>> reference_means(size, ["hi", "hi", "ho"], ["a", "aaa", "aa"])
    {'hi': 2.0, 'ho': 2.0}
    """
    scores, _ = ask(part, Rows(prompts, completions, columns))
    by_prompt: dict[str, list[float]] = {}
    for prompt, score in zip(texts(prompts), scores.tolist(), strict=True):
        if np.isfinite(score):
            by_prompt.setdefault(prompt, []).append(score)
    return {prompt: float(np.mean(told)) for prompt, told in by_prompt.items()}


def _short(reference: Reference) -> object:
    """The reference for a fingerprint, which is taken again and again: of many numbers a digest."""
    if not isinstance(reference, Mapping):
        return reference
    return hashlib.sha256(json.dumps(sorted(reference.items())).encode()).hexdigest()[:12]


def _rows_of(rows: Rows, chosen: list[int], completions: list[Any]) -> Rows:
    """Some rows with other completions; what the trainer said of the policy's own tokens is left out."""
    columns = {name: [rows.columns[name][row] for row in chosen] for name in _plain(rows)}
    if "trainer_state" in rows.columns:
        columns["trainer_state"] = rows.columns["trainer_state"]
    return Rows(None if rows.prompts is None else [rows.prompts[row] for row in chosen], completions, columns)


def _mark(rows: Rows, row: int) -> tuple[str, ...]:
    """What the reward of a reference answer may depend on."""
    asked = () if rows.prompts is None else (rows.asked[row],)
    return (*asked, *(repr(rows.columns[name][row]) for name in _plain(rows)))


def _plain(rows: Rows) -> list[str]:
    return [n for n, values in rows.columns.items() if n not in TRAINERS_OWN and per_row(values, len(rows))]


def _as(answer: Any, rows: Rows) -> Any:
    """A reference answer in the form in which the policy's own answers come."""
    chat = isinstance(rows.completions[0], list)
    return [{"role": "assistant", "content": answer}] if chat and isinstance(answer, str) else answer
