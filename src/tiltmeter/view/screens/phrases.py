"""The phrases screen: phrases that the policy over-uses, how often, since when, and their reward and gold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.baseline import Baseline, FirstSteps, from_reference
from tiltmeter.data.batches import from_columns, join
from tiltmeter.data.phrase import Phrase
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.instruments.phrases import CHARACTERS, FEWEST, OverusedPhrases, phrases_overused_in
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.word_hashes import Hashes, Texts, Words
from tiltmeter.view.payloads.rollouts import PhraseList, PhraseRow
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import MeasuredStep, evenly_spaced, gold_of, measured_steps, read_rollouts
from tiltmeter.view.screens.series import json_number

TEXT_COLUMNS = ("group", "prompt", "completion")
BASELINE_NAMES = {
    "reference": "the reference policy",
    "start": "the run's own first steps",
    "later": "the first steps still stored",
}
MOST = 30  # phrases
TREND = 23  # steps of a phrase's trend, besides the newest
SHARE = 0.02  # of completions, below which a phrase does not count as present
ANSWERS = 4  # cached results of one run, one for each step
TOO_LITTLE = "too little text to compare: it takes 16 completions of 4 prompts, now and before"


def phrases(reader: RunReader, step: int | None = None, most: int = MOST) -> PhraseList:
    """The phrases that a step, the newest if none is named, over-uses against the start of the run."""
    with reader.lock:
        steps = measured_steps(reader, high=step)
        waiting = len(reader.run_facts.unlabelled)
    key = (step, most, steps[-1][:2] if steps else None, waiting)
    return reader.cache_lru("phrases", key, lambda: _phrases(reader, step, most, steps), ANSWERS)


def _phrases(reader: RunReader, step: int | None, most: int, steps: Sequence[MeasuredStep]) -> PhraseList:
    if not steps or (step is not None and steps[-1].step != step):
        reason = "No step has been measured yet." if step is None else f"Step {step} has no measured completions."
        return _no_phrases(-1 if step is None else step, reason)
    at = steps[-1]
    now = read_rollouts(reader, at, (*TEXT_COLUMNS, "reward", "gold"))
    if now is None or now.completion is None:
        return _no_phrases(at.step, f"Step {at.step} has no completions with text; pass completion= to observe()")
    try:
        start = reader.cache_lru("phrases start", steps[0][:2], lambda: baseline_of(reader.run), 1)
    except StoreError:
        return _no_phrases(at.step, "What the run is compared with cannot be read; run: tiltmeter verify")
    if not has_enough_text(now, start):
        return _no_phrases(at.step, f"There is {TOO_LITTLE}.")
    assert start is not None
    top_phrases = phrases_overused_in(now, start, most)
    trend = _phrase_trends(reader, [at for at in evenly_spaced(steps, TREND) if at.step < now.step], top_phrases)
    rows = [_row(reader, at, now, phrase, trend[index]) for index, phrase in enumerate(top_phrases)]
    empty = "" if rows else f"No phrase is over-used at step {at.step} against {BASELINE_NAMES[start.source]}."
    return PhraseList(step=at.step, against=BASELINE_NAMES[start.source], rows=rows, empty=empty)


def _no_phrases(step: int, reason: str) -> PhraseList:
    return PhraseList(step=step, against="", rows=[], empty=reason)


def _row(
    reader: RunReader, at: MeasuredStep, now: RolloutBatch, phrase: Phrase, past: Sequence[tuple[int, float]]
) -> PhraseRow:
    contains = completions_with(now, [phrase])[0]
    has_text = np.array([text is not None for text in now.completion or ()], bool)
    gold = gold_of(reader, at, now)
    reward = np.full(len(now), np.nan) if now.reward is None else now.reward
    trend = [*past, (at.step, phrase.share)]
    return PhraseRow(
        text=phrase.text,
        share=json_number(phrase.share, 4),
        share_before=json_number(phrase.share_before, 4),
        z=json_number(phrase.z, 4),
        reward_with=_mean(reward, has_text & contains),
        reward_without=_mean(reward, has_text & ~contains),
        gold_with=_mean(gold, has_text & contains),
        gold_without=_mean(gold, has_text & ~contains),
        first=_first_lasting_step(trend, max(2.0 * phrase.share_before, SHARE)),
        trend=[json_number(share, 3) for _, share in trend],
        excerpt=phrase.excerpt,
        id=at.rollout_id(phrase.row),
    )


def _first_lasting_step(trend: Sequence[tuple[int, float]], threshold: float) -> int | None:
    """The first step at which the share was above the threshold and stayed above at the next one, against chance."""
    above = [share > threshold for _, share in trend]
    lasting = [now and after for now, after in zip(above, [*above[1:], True], strict=True)]
    return next((step for (step, _), lasts in zip(trend, lasting, strict=True) if lasts), None)


def _mean(values: Floats, rows: NDArray[np.bool_]) -> float | None:
    selected = values[rows & np.isfinite(values)]
    return json_number(float(selected.mean()), 4) if len(selected) else None


def _phrase_trends(
    reader: RunReader, steps: Sequence[MeasuredStep], phrases: Sequence[Phrase]
) -> list[list[tuple[int, float]]]:
    """For each phrase its share of completions at each of the steps; damaged steps are left out."""
    trends: list[list[tuple[int, float]]] = [[] for _ in phrases]
    for at in steps if phrases else ():
        batch = read_rollouts(reader, at, ("group", "completion"))
        if batch is None or batch.completion is None:
            continue
        texts = sum(text is not None for text in batch.completion)
        for line, contains in zip(trends, completions_with(batch, phrases), strict=True):
            line.append((at.step, float(contains.sum()) / max(texts, 1)))
    return trends


def completions_with(batch: RolloutBatch, phrases: Sequence[Phrase]) -> list[NDArray[np.bool_]]:
    """For each phrase, which completions contain its words in sequence, tokenized as the instrument does."""
    words = Words.of(Texts.of(batch.completion or (), CHARACTERS))
    return [_contains_words(words, Words.of(Texts.of([phrase.text])).hashes, len(batch)) for phrase in phrases]


def _contains_words(words: Words, phrase_words: Hashes, texts: int) -> NDArray[np.bool_]:
    contains = np.zeros(texts, bool)
    if not len(phrase_words) or len(words.hashes) < len(phrase_words):
        return contains
    at = np.flatnonzero(words.hashes[: len(words.hashes) - len(phrase_words) + 1] == phrase_words[0])
    for i, word in enumerate(phrase_words[1:], 1):
        at = at[words.hashes[at + i] == word]
    text = np.searchsorted(words.offsets, at, "right") - 1
    contains[text[at + len(phrase_words) <= words.offsets[text + 1]]] = True
    return contains


def has_enough_text(now: RolloutBatch, start: Baseline | None) -> bool:
    """Whether both sides have enough text to compare."""
    return start is not None and not np.isnan(OverusedPhrases().measure(now, start)["share"]).all()


def preload_kernels() -> None:
    """Compile the kernels that count words, about a second in a new process, so that the first request does not wait.
    The server calls it in a thread after it has started."""
    texts = [f"well now {text}" for text in map(str, range(FEWEST))]
    group = [row // 2 for row in range(FEWEST)]
    start = Baseline(from_columns(0, group, prompt=[f"{row}" for row in group], completion=texts))
    now = from_columns(1, group, prompt=start.batch.prompt, completion=[f"in short {text}" for text in texts])
    if has_enough_text(now, start):
        completions_with(now, phrases_overused_in(now, start))


def newest_completions(run: RunDirectory, step: int | None) -> RolloutBatch | None:
    """The completions of the given step, or of the newest one, of the newest attempt that has it; all ranks joined."""
    for attempt in reversed(run.attempts()):
        wanted_step = max((file.step for file in run.files(attempt)), default=None) if step is None else step
        if (
            wanted_step is not None
            and (batch := read_step_texts(run, attempt, wanted_step)) is not None
            and batch.completion is not None
        ):
            return batch
    return None


def baseline_of(run: RunDirectory) -> Baseline | None:
    """The baseline of the run, by the monitor's rules: its reference, else its first steps."""
    reference = run.reference()
    if reference is not None and len(reference):
        return from_reference(reference)
    start = FirstSteps()
    for attempt in run.attempts():
        for step in dict.fromkeys(file.step for file in run.files(attempt)):
            try:
                baseline = start.add(read_step_texts(run, attempt, step))
            except StoreError:
                continue  # damaged: the monitor reported it and continued
            if baseline is not None:
                return baseline
    return None


def read_step_texts(run: RunDirectory, attempt: int, step: int) -> RolloutBatch | None:
    parts = [run.read(file, TEXT_COLUMNS) for file in run.find(attempt, step)]
    if not parts:
        return None
    return join([batch for batch, _, _ in parts], shared_groups=parts[-1][1].get("groups") == "shared")
