"""The stock phrases a policy has taken to: how often, since when, and whether they are paid for and worth it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.baseline import Baseline, Start, from_reference
from tiltmeter.batches import from_columns, join
from tiltmeter.errors import StoreError
from tiltmeter.instruments.phrases import CHARACTERS, FEWEST, OverusedPhrases, Phrase, overused
from tiltmeter.page.book import Book
from tiltmeter.page.samples import At, gold_of, measured, rollouts, spread
from tiltmeter.page.series import number
from tiltmeter.records import Floats, RolloutBatch
from tiltmeter.stats.words import Hashes, Texts, Words
from tiltmeter.store import RunDirectory

NEEDED = ("group", "prompt", "completion")
AGAINST = {
    "reference": "the reference policy",
    "start": "the run's own first steps",
    "later": "the first steps still stored",
}
MOST = 30  # phrases
TREND = 23  # steps of a phrase's trend, besides the newest
SHARE = 0.02  # of completions, below which a phrase has not come up
ANSWERS = 4  # kept of one run, for as many steps
TOO_LITTLE = "too little text to compare: it takes 16 completions of 4 prompts, now and before"


def phrases(book: Book, step: int | None = None, most: int = MOST) -> dict[str, Any]:
    """The phrases that a step, the newest if none is named, over-uses against the start of the run."""
    with book.lock:
        steps = measured(book, high=step)
        waiting = len(book.story.unlabelled)
    key = (step, most, steps[-1][:2] if steps else None, waiting)
    return book.once("phrases", key, lambda: _phrases(book, step, most, steps), ANSWERS)


def _phrases(book: Book, step: int | None, most: int, steps: Sequence[At]) -> dict[str, Any]:
    shown: dict[str, Any] = {"step": -1 if step is None else step, "against": "", "rows": []}
    if not steps or (step is not None and steps[-1].step != step):
        told = "No step has been measured yet." if step is None else f"Step {step} has no measured completions."
        return {**shown, "empty": told}
    at = steps[-1]
    shown["step"] = at.step
    now = rollouts(book, at, (*NEEDED, "reward", "gold"))
    if now is None or now.completion is None:
        return {**shown, "empty": f"Step {at.step} has no completions with text; pass completion= to observe()"}
    try:
        start = book.once("phrases start", steps[0][:2], lambda: start_of(book.run), 1)
    except StoreError:
        return {**shown, "empty": "What the run is compared with cannot be read; run: tiltmeter verify"}
    if not compared(now, start):
        return {**shown, "empty": f"There is {TOO_LITTLE}."}
    assert start is not None
    found = overused(now, start, most)
    trend = _trend(book, [at for at in spread(steps, TREND) if at.step < now.step], found)
    rows = [_row(book, at, now, phrase, trend[number_]) for number_, phrase in enumerate(found)]
    empty = "" if rows else f"No phrase is over-used at step {at.step} against {AGAINST[start.source]}."
    return {**shown, "against": AGAINST[start.source], "rows": rows, "empty": empty}


def _row(book: Book, at: At, now: RolloutBatch, phrase: Phrase, past: Sequence[tuple[int, float]]) -> dict[str, Any]:
    has = holding(now, [phrase])[0]
    known = np.array([text is not None for text in now.completion or ()], bool)
    gold = gold_of(book, at, now)
    reward = np.full(len(now), np.nan) if now.reward is None else now.reward
    trend = [*past, (at.step, phrase.share)]
    return {
        "text": phrase.text,
        "share": number(phrase.share, 4),
        "share_before": number(phrase.share_before, 4),
        "z": number(phrase.z, 4),
        "reward_with": _mean(reward, known & has),
        "reward_without": _mean(reward, known & ~has),
        "gold_with": _mean(gold, known & has),
        "gold_without": _mean(gold, known & ~has),
        "first": _first(trend, max(2.0 * phrase.share_before, SHARE)),
        "trend": [number(share, 3) for _, share in trend],
        "excerpt": phrase.excerpt,
        "id": at.id(phrase.row),
    }


def _first(trend: Sequence[tuple[int, float]], passed: float) -> int | None:
    """The step at which a share passed this and was above it at the next look too: one look may be chance."""
    above = [share > passed for _, share in trend]
    lasting = [now and after for now, after in zip(above, [*above[1:], True], strict=True)]
    return next((step for (step, _), lasts in zip(trend, lasting, strict=True) if lasts), None)


def _mean(values: Floats, rows: NDArray[np.bool_]) -> float | None:
    found = values[rows & np.isfinite(values)]
    return number(float(found.mean()), 4) if len(found) else None


def _trend(book: Book, steps: Sequence[At], found: Sequence[Phrase]) -> list[list[tuple[int, float]]]:
    """For each phrase its share of completions at each of the steps; damaged steps are left out."""
    trend: list[list[tuple[int, float]]] = [[] for _ in found]
    for at in steps if found else ():
        batch = rollouts(book, at, ("group", "completion"))
        if batch is None or batch.completion is None:
            continue
        texts = sum(text is not None for text in batch.completion)
        for line, has in zip(trend, holding(batch, found), strict=True):
            line.append((at.step, float(has.sum()) / max(texts, 1)))
    return trend


def holding(batch: RolloutBatch, found: Sequence[Phrase]) -> list[NDArray[np.bool_]]:
    """For each phrase which completions contain its words one after the other, counted as the instrument counts."""
    words = Words.of(Texts.of(batch.completion or (), CHARACTERS))
    return [_holding(words, Words.of(Texts.of([phrase.text])).hashes, len(batch)) for phrase in found]


def _holding(words: Words, run: Hashes, texts: int) -> NDArray[np.bool_]:
    has = np.zeros(texts, bool)
    if not len(run) or len(words.hashes) < len(run):
        return has
    at = np.flatnonzero(words.hashes[: len(words.hashes) - len(run) + 1] == run[0])
    for i, word in enumerate(run[1:], 1):
        at = at[words.hashes[at + i] == word]
    text = np.searchsorted(words.offsets, at, "right") - 1
    has[text[at + len(run) <= words.offsets[text + 1]]] = True
    return has


def compared(now: RolloutBatch, start: Baseline | None) -> bool:
    """Whether both sides hold enough text."""
    return start is not None and not np.isnan(OverusedPhrases().measure(now, start)["share"]).all()


def warm() -> None:
    """Load what counts words, about a second in a new process, so that whoever asks first does not wait for it. For a
    thread of the server, after it has begun to answer."""
    texts = [f"well now {text}" for text in map(str, range(FEWEST))]
    group = [row // 2 for row in range(FEWEST)]
    start = Baseline(from_columns(0, group, prompt=[f"{row}" for row in group], completion=texts))
    now = from_columns(1, group, prompt=start.batch.prompt, completion=[f"in short {text}" for text in texts])
    if compared(now, start):
        holding(now, overused(now, start))


def newest(run: RunDirectory, step: int | None) -> RolloutBatch | None:
    """The completions of the asked or newest step of the newest attempt that has one, all ranks together."""
    for attempt in reversed(run.attempts()):
        wanted = max((file.step for file in run.files(attempt)), default=None) if step is None else step
        if wanted is not None and (batch := stored(run, attempt, wanted)) is not None and batch.completion is not None:
            return batch
    return None


def start_of(run: RunDirectory) -> Baseline | None:
    """What the run is compared with, by the rules of the loop: its reference, or the first steps."""
    reference = run.reference()
    if reference is not None and len(reference):
        return from_reference(reference)
    start = Start()
    for attempt in run.attempts():
        for step in dict.fromkeys(file.step for file in run.files(attempt)):
            try:
                made = start.add(stored(run, attempt, step))
            except StoreError:
                continue  # damaged: the loop has said so, and went on
            if made is not None:
                return made
    return None


def stored(run: RunDirectory, attempt: int, step: int) -> RolloutBatch | None:
    read = [run.read(file, NEEDED) for file in run.find(attempt, step)]
    if not read:
        return None
    return join([batch for batch, _, _ in read], shared_groups=read[-1][1].get("groups") == "shared")
