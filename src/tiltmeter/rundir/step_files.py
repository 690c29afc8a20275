"""Read a step's files: its rollouts, a summary of the batch, and the journal events that closed it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType

from tiltmeter.data.batches import join
from tiltmeter.data.records import FLAGS, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.payloads import LabelCounts
from tiltmeter.rundir.rank_summary import expand_ranges
from tiltmeter.rundir.store import RunDirectory, StepFile
from tiltmeter.stats.gold_counts import count_gold


def closed_steps(events: Iterable[Event]) -> Iterator[tuple[Event | None, Event]]:
    """For each closed step its reading event (None: nothing could be read) and closing event; also late readings."""
    reading: Event | None = None
    for item in events:
        if item.kind == "reading":
            reading = item
        elif item.kind == "step_done":
            yield reading, item
            reading = None
        elif "measured" in item.data:
            yield item, item


def read_step(
    run: RunDirectory,
    attempt: int,
    step: int,
    ranks: Sequence[Sequence[int]],
    columns: Sequence[str] | None = None,
) -> RolloutBatch:
    """The rollouts of these ranks (as ranges), joined as they were when they were measured.

    Raises `StoreError` if a file is damaged or was deleted since.
    """
    rank_set = set(expand_ranges(ranks))
    parts = [run.read(file, columns) for file in run.find(attempt, step) if file.rank in rank_set]
    if len(parts) < len(rank_set) or not parts:
        raise StoreError(f"step {step} of attempt {attempt} is not stored any more")
    return join([batch for batch, _, _ in parts], shared_groups=parts[-1][1].get("groups") == "shared")


@dataclass
class StepContents:
    """What the files of a step hold, rank by rank."""

    batches: list[RolloutBatch] = field(default_factory=list)
    hashes: dict[int, str] = field(default_factory=dict)
    counters: dict[int, dict[str, Any]] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)  # why, by rank
    written: float = 0.0  # for display, and for calling a run stale
    shared: bool = False  # equal group ids on two ranks are one prompt group


def read_step_files(run: RunDirectory, files: Iterable[StepFile]) -> StepContents:
    """Read the files of a step; what cannot be read is noted, and the others are used."""
    result = StepContents()
    for file in files:
        try:
            batch, facts, digest = _read_file(run, file)
        except StoreError as error:
            result.unreadable[file.rank] = f"{file.name}: {str(error)[:300]}"
            continue
        result.batches.append(batch)
        result.hashes[file.rank] = digest
        result.counters[file.rank] = {**(facts.get("counters") or {}), "why": (facts.get("faults") or [""])[-1]}
        result.written = max(result.written, float(facts.get("time", 0.0)))
        result.shared = facts.get("groups") == "shared"
    return result


def _read_file(run: RunDirectory, file: StepFile) -> tuple[RolloutBatch, dict[str, Any], str]:
    """A file of a step; if it was packed since it was listed, its packed copy."""
    try:
        return run.read(file)
    except StoreError:
        again = [other for other in run.find(file.attempt, file.step) if other.rank == file.rank]
        if not again or again[0].path == file.path:
            raise
        return run.read(again[0])


def summarize_batch(batch: RolloutBatch) -> dict[str, Any]:
    """The summary of a batch for `step_done`: labels, unscored rows by reason, whether gold and reward ever differ,
    what labels say of their source, and a digest of the texts.

    >>> from tiltmeter.data.batches import from_columns
    >>> summarize_batch(from_columns(0, [0, 0], reward=[1, None]))
    {'labels': 0, 'unscored': {'reward': {'missing': 1}}, 'gold_differs': False, 'source': UNSET, 'texts': UNSET}
    """
    labels = 0 if batch.gold is None else int(np.isfinite(batch.gold).sum())
    facts = {"labels": labels, "unscored": _count_unscored(batch), "gold_differs": _gold_differs(batch)}
    # Who hands over labels chooses the rows: one without a label is not one that failed.
    return {**facts, "source": count_source(batch, requested=False), "texts": _digest_texts(batch)}


def count_source(batch: RolloutBatch, *, requested: bool = True) -> LabelCounts | UnsetType:
    """What the labels of a step say of their source. `requested`: for the label of every row."""
    if batch.gold is None:
        return UNSET
    texts, starts = batch.completion, batch.starts
    reward = np.full(len(batch), np.nan) if batch.reward is None else batch.reward
    spans = pairwise(starts)
    differing = None if texts is None else np.array([len(set(texts[a:b])) > 1 for a, b in spans], bool)
    counts = count_gold(batch.gold, reward, starts, differing, requested=requested)
    return LabelCounts(**counts) if counts else UNSET  # type: ignore[arg-type]


def _digest_texts(batch: RolloutBatch) -> str | UnsetType:
    """A digest of prompts, answers and rewards: two steps that share it are the same step."""
    if batch.completion is None or batch.reward is None or not len(batch):
        return UNSET
    digest = hashlib.sha256(batch.reward.tobytes())
    for text in (*(batch.prompt or ()), *batch.completion):
        digest.update(f"{len(text or '')}:{text or ''}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:16]


def _gold_differs(batch: RolloutBatch) -> bool:
    """Whether gold ever differs from the reward: if they are the same function, the alarm can never fire."""
    if batch.gold is None or batch.reward is None:
        return batch.gold is not None
    both = np.isfinite(batch.gold) & np.isfinite(batch.reward)
    # Within rounding: a reward kept in float32 and the same numbers in float64 are one function.
    return not np.allclose(batch.gold[both], batch.reward[both], rtol=1e-4, atol=1e-6)


def _count_unscored(batch: RolloutBatch) -> dict[str, dict[str, int]]:
    """How many rows of each column are not plain values, by reason."""
    return {
        column: {FLAGS[code]: int(count) for code, count in enumerate(np.bincount(codes)) if code and count}
        for column, codes in batch.flags.items()
    }
