"""One rollout with its prompt group, read from the step's files: what a report shows without an index of the run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from tiltmeter.errors import StoreError
from tiltmeter.page.book import Book
from tiltmeter.page.samples import At, everywhere, gold_of, rollout_id, rollouts
from tiltmeter.page.series import number
from tiltmeter.records import FLAGS, Floats, RolloutBatch
from tiltmeter.rewards.process import BAD, SPLITTERS, first_bad

BEGINNING = 200  # characters of a completion in a list
EARLIEST = 1_000  # steps in which the same prompt is looked for: about a millisecond each, once for all rollouts
STEPS = 1_000  # of an answer that are shown, and the first bad one wherever it is
_COLUMNS = (
    *("group", "reward", "rewards", "step_reward", "gold", "advantage", "length", "truncated"),
    *("prompt", "completion", "facts"),
)


def group(book: Book, id: str) -> dict[str, Any]:
    """A rollout, the others of its group and the same prompt at the start: `Group` of the page's types.

    Raises `KeyError` if there is no such rollout, or its step was deleted.
    """
    attempt, step, row = (int(part) for part in id.split("-"))
    at = everywhere(book).get((attempt, step))
    batch = None if at is None else rollouts(book, at, _COLUMNS)
    if at is None or batch is None or not 0 <= row < len(batch):
        raise KeyError(f"there is no rollout {id}")
    gold = gold_of(book, at, batch)
    same = np.flatnonzero(batch.group == batch.group[row])
    paid = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    order = same[np.argsort(-np.nan_to_num(paid[same], nan=-np.inf), kind="stable")]
    scored = paid[same][np.isfinite(paid[same])]
    prompt = None if batch.prompt is None else batch.prompt[row]
    base, why = _base(book, prompt, (attempt, step))
    return {
        "rollout": _full(batch, gold, row),
        "rows": [_row(batch, gold, int(other)) for other in order],
        "mean": number(float(scored.mean())) if len(scored) else None,
        "spread": number(float(scored.std())) if len(scored) else None,
        "base": base,
        "base_why": why,
    }


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
    scores = () if batch.step_reward is None else batch.step_reward[row].tolist()
    return {
        **_row(batch, gold, row),
        **told,
        "facts": told["facts"] or "",
        "rewards": rewards,
        "steps": steps(told["completion"], scores),
        "capped": False,
    }


def steps(completion: str | None, scores: Sequence[float]) -> list[dict[str, Any]]:
    """Scores of an answer's steps, with the text of each where the count shows how the answer was split.

    The first bad step is marked where scores read as how likely a step is to be right: from 0 to 1, and the first below
    0.5. On another scale nobody said what is bad.

    >>> steps("2 + 2 is 5\\nso 5", [0.2, 0.1])
    [{'reward': 0.2, 'text': '2 + 2 is 5', 'bad': True}, {'reward': 0.1, 'text': 'so 5', 'bad': False}]
    """
    cuts = [split(completion or "") for split in SPLITTERS.values()]
    texts: Sequence[str | None] = next((cut for cut in cuts if len(cut) == len(scores)), [None] * len(scores))
    likely = all(0.0 <= score <= 1.0 for score in scores)
    bad = first_bad(scores, BAD) if likely else None
    return [
        {"reward": number(score), "text": text, "bad": place == bad}
        for place, (score, text) in enumerate(zip(scores, texts, strict=True))
        if place < STEPS or place == bad
    ]


def _base(book: Book, prompt: str | None, own: tuple[int, int]) -> tuple[dict[str, Any] | None, str]:
    """What was said to the same prompt at the start, or why that is not known. As the page's index has it: by the
    reference, else in the earliest step before this one, of the current lineage or of the rollout's own attempt."""
    if prompt is None:
        return None, "the text of prompts is not stored"
    if (said := _by_reference(book, prompt)) is not None:
        return {"step": None, "text": said, "source": "reference"}, ""
    spans = book.story.spans()
    known = [
        at
        for at in everywhere(book).values()
        if at.step < own[1] and (at.attempt == own[0] or at.step < spans.get(at.attempt, -1))
    ]
    known.sort(key=lambda at: (at.step, -at.attempt))
    for at in known[:EARLIEST]:
        row = book.once("prompts", at[:2], partial(_asked, book, at), EARLIEST).get(hash(prompt))
        if row is None:
            continue
        batch = rollouts(book, at, ("group", "completion"))
        text = None if batch is None or batch.completion is None else batch.completion[row]
        if text is None:
            return None, f"step {at.step} had this prompt, without the text of completions"
        return {"step": at.step, "text": text, "source": f"attempt {at.attempt}, step {at.step}"}, ""
    if len(known) > EARLIEST:
        return None, f"the first {EARLIEST:,} steps do not have this prompt, nor does a reference"
    return None, f"step {own[1]} is the first with this prompt, and the reference does not hold it"


def _asked(book: Book, at: At) -> dict[int, int]:
    """The first row of each prompt of a step, by the prompt's hash; empty where it cannot be read."""
    batch = rollouts(book, at, ("group", "prompt"))
    if batch is None or batch.prompt is None:
        return {}
    return {hash(batch.prompt[row]): row for row in reversed(range(len(batch))) if batch.prompt[row] is not None}


def _by_reference(book: Book, prompt: str) -> str | None:
    """The reference policy's answer to a prompt, if it was given one."""
    try:
        written = (book.run.path / "reference.parquet").lstat().st_mtime_ns
        reference = book.once("reference", written, book.run.reference, 1)
    except (StoreError, OSError):
        return None  # a damaged one is reported by the monitor; an earlier step may serve
    if reference is None or reference.prompt is None or reference.completion is None:
        return None
    answers = zip(reference.prompt, reference.completion, strict=True)
    return next((text for asked, text in answers if asked == prompt), None)
