"""Bounded rewards: `shaped` (sigmoid of the difference to a reference answer) and `clipped`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.data.batches import INFRA
from tiltmeter.gold.guards.composed_reward import (
    TRAINER_ARGUMENTS,
    ComposedReward,
    Floats,
    OnInfra,
    Part,
    PartScores,
    Rows,
    function_name,
    is_column,
    score_part,
)
from tiltmeter.gold.guards.reward import InfraError, texts

#: A column of the dataset with reference answers, one number for all rows, or a number by prompt.
Reference = str | float | Mapping[str, float]


@dataclass(frozen=True)
class PreferenceShaping:
    """sigmoid((r - r_ref) / scale): the probability, by the reward model, that the answer is preferred."""

    part: Part = field(repr=False)
    name: str
    reference: Reference
    scale: float

    def __call__(self, part_scores: PartScores, rows: Rows) -> Any:
        scores = part_scores[self.name]
        if isinstance(self.reference, str):
            reference, broken = self._reference_scores(self.reference, rows)
        elif isinstance(self.reference, Mapping):
            reference = np.array([self.reference.get(prompt, np.nan) for prompt in rows.prompt_texts], np.float64)
            broken = np.zeros(len(rows), bool)
        else:
            reference, broken = np.full(len(rows), float(self.reference)), np.zeros(len(rows), bool)
        won = 0.5 * (1.0 + np.tanh((scores - reference) / (2.0 * self.scale)))
        if not broken.any():
            return won
        return [InfraError("no reference reward") if broke else value for value, broke in zip(won, broken, strict=True)]

    def _reference_scores(self, column: str, rows: Rows) -> tuple[Floats, Any]:
        """The part's reward of the reference answers; equal ones in a row are scored once."""
        if column not in rows.columns:
            raise TypeError(
                f"there is no column {column!r} with reference answers; the dataset has {_dataset_columns(rows)}"
            )
        answers = rows.columns[column]
        rows_with_answer = [row for row in range(len(rows)) if answers[row] is not None]
        first: list[int] = []
        place = np.full(len(rows), -1)
        keys = [_row_key(rows, row) for row in range(len(rows))]
        for row in rows_with_answer:
            if not first or keys[row] != keys[first[-1]]:
                first.append(row)
            place[row] = len(first) - 1
        reference, broken = np.full(len(rows), np.nan), np.zeros(len(rows), bool)
        if first:
            scores, codes = score_part(
                self.part, _select_rows(rows, first, [_as_completion(answers[row], rows) for row in first])
            )
            has_answer = place >= 0
            reference[has_answer], broken[has_answer] = scores[place[has_answer]], codes[place[has_answer]] == INFRA
        return reference, broken


@dataclass(frozen=True)
class ClipRule:
    """min(max(r, low), high)."""

    low: float
    high: float

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        return np.clip(next(iter(part_scores.scores.values())), self.low, self.high)


def shaped(
    part: Part, reference: Reference, *, scale: float = 1.0, name: str = "shaped", on_infra: OnInfra = "none"
) -> ComposedReward:
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
    rule = PreferenceShaping(
        part, function_name(part), dict(reference) if isinstance(reference, Mapping) else reference, float(scale)
    )
    return ComposedReward(
        name,
        {rule.name: part},
        rule,
        bounds=(0.0, 1.0),
        settings=(_digest_reference(rule.reference), rule.scale),
        on_infra=on_infra,
    )


def clipped(
    part: Part, low: float, high: float, *, name: str = "clipped", on_infra: OnInfra = "none"
) -> ComposedReward:
    """The reward, cut off below `low` and above `high`.

    The simplest defence against heavy tails: one extreme score cannot outweigh a batch. Inside a group all answers at
    the limit are worth the same, so a limit that is reached often leaves nothing to learn: choose it from rewards of
    the reference policy, and watch `reward.saturation`. A score that is NaN or infinite is not scored.

    >>> clipped(lambda completions, **_: [9.0, -9.0, 0.5], -1.0, 1.0)(completions=["a", "b", "c"])
    [1.0, -1.0, 0.5]
    """
    if not low < high:
        raise ValueError(f"low must lie below high, and {low} does not lie below {high}")
    rule = ClipRule(float(low), float(high))
    settings = (rule.low, rule.high)
    return ComposedReward(
        name, {function_name(part): part}, rule, bounds=settings, settings=settings, on_infra=on_infra
    )


def reference_means(part: Part, prompts: Any, completions: Any, **columns: Any) -> dict[str, float]:
    """The mean reward of reference samples for each prompt, for `shaped(part, reference=...)`.

    Take several samples of the reference policy for every prompt of the dataset. Samples without a score are left out.

    >>> size = lambda completions, **_: [float(len(c)) for c in completions]
    >>> reference_means(size, ["hi", "hi", "ho"], ["a", "aaa", "aa"])
    {'hi': 2.0, 'ho': 2.0}
    """
    scores, _ = score_part(part, Rows(prompts, completions, columns))
    by_prompt: dict[str, list[float]] = {}
    for prompt, score in zip(texts(prompts), scores.tolist(), strict=True):
        if np.isfinite(score):
            by_prompt.setdefault(prompt, []).append(score)
    return {prompt: float(np.mean(values)) for prompt, values in by_prompt.items()}


def _digest_reference(reference: Reference) -> object:
    """The reference for the reward fingerprint: a digest where it is a mapping."""
    if not isinstance(reference, Mapping):
        return reference
    return hashlib.sha256(json.dumps(sorted(reference.items())).encode()).hexdigest()[:12]


def _select_rows(rows: Rows, chosen: list[int], completions: list[Any]) -> Rows:
    """Some rows with other completions, without the trainer's columns about the policy's tokens."""
    columns = {name: [rows.columns[name][row] for row in chosen] for name in _dataset_columns(rows)}
    if "trainer_state" in rows.columns:
        columns["trainer_state"] = rows.columns["trainer_state"]
    return Rows(None if rows.prompts is None else [rows.prompts[row] for row in chosen], completions, columns)


def _row_key(rows: Rows, row: int) -> tuple[str, ...]:
    """What the reward of a reference answer may depend on."""
    prompt = () if rows.prompts is None else (rows.prompt_texts[row],)
    return (*prompt, *(repr(rows.columns[name][row]) for name in _dataset_columns(rows)))


def _dataset_columns(rows: Rows) -> list[str]:
    return [n for n, values in rows.columns.items() if n not in TRAINER_ARGUMENTS and is_column(values, len(rows))]


def _as_completion(answer: Any, rows: Rows) -> Any:
    """A reference answer in the form of the completions: text or chat messages."""
    chat = isinstance(rows.completions[0], list)
    return [{"role": "assistant", "content": answer}] if chat and isinstance(answer, str) else answer
