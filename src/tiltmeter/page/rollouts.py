"""One rollout with its prompt group, read from the step's files: what a report shows without an index of the run."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiltmeter.errors import StoreError
from tiltmeter.page.book import Book
from tiltmeter.page.history import History
from tiltmeter.page.proof import gold_of, rollout_id
from tiltmeter.page.series import number
from tiltmeter.records import FLAGS, Floats, RolloutBatch
from tiltmeter.steps import stored

BEGINNING = 200  # characters of a completion in a list
EARLIEST = 5  # steps in which the same prompt is looked for
_COLUMNS = ("group", "reward", "rewards", "gold", "advantage", "length", "truncated", "prompt", "completion", "facts")


def group(book: Book, id: str) -> dict[str, Any]:
    """A rollout, the others of its group and the same prompt at the start: `Group` of the page's types.

    Raises `KeyError` if there is no such rollout, or its step was deleted. The start is the reference's answer or one
    of the run's first steps; the page, which has an index, looks through the whole run.
    """
    attempt, step, row = (int(part) for part in id.split("-"))
    batch = _batch(book, attempt, step)
    if batch is None or not 0 <= row < len(batch):
        raise KeyError(f"there is no rollout {id}")
    gold = gold_of(book.run, batch)
    same = np.flatnonzero(batch.group == batch.group[row])
    paid = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    order = same[np.argsort(-np.nan_to_num(paid[same], nan=-np.inf), kind="stable")]
    scored = paid[same][np.isfinite(paid[same])]
    prompt = None if batch.prompt is None else batch.prompt[row]
    base, why = _base(book, prompt, step)
    return {
        "rollout": _full(batch, gold, row),
        "rows": [_row(batch, gold, int(other)) for other in order],
        "mean": number(float(scored.mean())) if len(scored) else None,
        "spread": number(float(scored.std())) if len(scored) else None,
        "base": base,
        "base_why": why,
    }


def _batch(book: Book, attempt: int, step: int) -> RolloutBatch | None:
    ranks = book.folded("history", History).ranks.get((attempt, step))
    try:
        return None if not ranks else stored(book.run, attempt, step, ranks, _COLUMNS)
    except StoreError:
        return None


def _row(batch: RolloutBatch, gold: Floats, row: int) -> dict[str, Any]:
    text = None if batch.completion is None else batch.completion[row]
    return {
        "id": rollout_id(batch.attempt, batch.step, row),
        "attempt": batch.attempt,
        "step": batch.step,
        "group": int(batch.group[row]),
        "reward": None if batch.reward is None else number(float(batch.reward[row])),
        "flag": _flag(batch, "reward", row),
        "gold": number(float(gold[row])),
        "length": None if batch.length is None else int(batch.length[row]),
        "truncated": None if batch.truncated is None else bool(batch.truncated[row]),
        "advantage": None if batch.advantage is None else number(float(batch.advantage[row])),
        "text": (text or "")[:BEGINNING],
    }


def _flag(batch: RolloutBatch, column: str, row: int) -> str:
    """Why a value is no plain number; empty if it is one."""
    flags = batch.flags.get(column)
    return "" if flags is None or not flags[row] else FLAGS[int(flags[row])]


def _full(batch: RolloutBatch, gold: Floats, row: int) -> dict[str, Any]:
    rewards = [
        {"name": name, "value": number(float(values[row])), "flag": _flag(batch, f"rewards.{name}", row)}
        for name, values in batch.rewards.items()
    ]
    texts = {name: getattr(batch, name) for name in ("prompt", "completion", "facts")}
    told = {name: None if column is None else column[row] for name, column in texts.items()}
    return {**_row(batch, gold, row), **told, "facts": told["facts"] or "", "rewards": rewards, "capped": False}


def _base(book: Book, prompt: str | None, before: int) -> tuple[dict[str, Any] | None, str]:
    """What was said to the same prompt at the start, or why that is not known."""
    if prompt is None:
        return None, "the text of prompts is not stored"
    try:
        reference = book.run.reference()
    except StoreError:
        reference = None
    if (said := _said(reference, prompt)) is not None:
        return {"step": None, "text": said, "source": "reference"}, ""
    known = sorted(key for key in book.folded("history", History).ranks if key[1] < before)
    for attempt, step in known[:EARLIEST]:
        if (said := _said(_batch(book, attempt, step), prompt)) is not None:
            return {"step": step, "text": said, "source": f"attempt {attempt}, step {step}"}, ""
    return None, f"the first {EARLIEST} steps do not have this prompt, nor does a reference"


def _said(batch: RolloutBatch | None, prompt: str) -> str | None:
    if batch is None or batch.prompt is None or batch.completion is None:
        return None
    return next((text for asked, text in zip(batch.prompt, batch.completion, strict=True) if asked == prompt), None)
