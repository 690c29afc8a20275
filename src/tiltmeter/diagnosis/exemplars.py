"""Picks the completions of a step that show what a finding says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from tiltmeter.acts import batch_acts
from tiltmeter.data.records import Floats, Ragged, RolloutBatch

EACH = 2  # rows for each way of showing
CHARACTERS = 2_000  # of a completion that are looked at for repeated words
RUN = 4  # words that count as one phrase


def exemplars(batch: RolloutBatch, show: Sequence[str]) -> tuple[tuple[int, int, int], ...]:
    """Rows that prove a finding, as (attempt, step, row), the first of `show` first; none where a column is absent.

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(7, [0, 0, 1], reward=[1, 3, 2], length=[9, 4, 8])
    >>> exemplars(batch, ["longest", "paid_most"])
    ((0, 7, 0), (0, 7, 2), (0, 7, 1))
    """
    rows: dict[int, None] = {}
    for way in show:
        score = _scores(batch, way)
        if score is not None and len(score):
            order = np.argsort(-score, kind="stable")[:EACH]  # NaN sorts last
            rows.update(dict.fromkeys(int(row) for row in order if np.isfinite(score[row])))
    return tuple((batch.attempt, batch.step, row) for row in rows)


def _scores(batch: RolloutBatch, way: str) -> Floats | None:
    """How well each row shows it; the highest are shown."""
    match way:
        case "longest" | "shortest":
            length = None if batch.length is None else batch.length.astype(np.float64)
            return length if length is None or way == "longest" else -length
        case "paid_most":
            return batch.reward
        case "paid_least":
            return None if batch.reward is None else -batch.reward
        case "least_gold":
            return None if batch.gold is None else -batch.gold
        case "furthest":
            return _distance(batch.logprob, batch.ref_logprob)
        case "engine_off":
            return _distance(batch.logprob, batch.engine_logprob)
        case "most_repeated":
            return _repetition_scores(batch)
        case "acts":
            return _act_scores(batch)
    raise ValueError(f"rows cannot be shown by {way!r}")


def _act_scores(batch: RolloutBatch) -> Floats | None:
    """Of rows in which an act is seen, the best paid first."""
    if batch.completion is None:
        return None
    seen = np.array([bool(acts) for acts in batch_acts(batch)], bool)
    paid = np.zeros(len(batch)) if batch.reward is None else np.nan_to_num(batch.reward, nan=-1e300)
    return np.where(seen, paid, np.nan)


def _distance(one: Ragged | None, other: Ragged | None) -> Floats | None:
    if one is None or other is None or not np.array_equal(one.offsets, other.offsets):
        return None
    return one.sums(np.abs(one.values.astype(np.float64) - other.values.astype(np.float64)))


def _repetition_scores(batch: RolloutBatch) -> Floats | None:
    """In how many completions the commonest run of words of each one occurs."""
    if batch.completion is None:
        return None
    phrase_sets = []
    for text in batch.completion:
        words = (text or "")[:CHARACTERS].casefold().split()
        phrase_sets.append(
            {tuple(words[at : at + RUN]) for at in range(max(1, len(words) - RUN + 1))} if words else set()
        )
    counts = Counter(run for runs in phrase_sets for run in runs)
    return np.array([max((counts[run] for run in runs), default=np.nan) for runs in phrase_sets], np.float64)
