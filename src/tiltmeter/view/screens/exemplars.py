"""Example completions for findings and alarms: the exemplars of a finding, or rows with high reward and low gold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.rundir.journal import Event
from tiltmeter.view.payloads.overview import Exemplar
from tiltmeter.view.screens.excerpts import Passage, excerpt, new_passages, passages_of
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import all_measured_steps, gold_of, measured_steps, read_rollouts, rollout_id
from tiltmeter.view.screens.wording import finite_or_none, ranked_findings

TEXT = 200  # characters of a completion
MOST = 2_000  # exemplars that are cached
COLUMNS = ("group", "reward", "gold", "completion")

ExemplarKey = tuple[int, int, int]  # attempt, step, row in the joined batch


class _ExemplarCache:
    """Exemplars read from files; those of a step are read again when its labels are closed."""

    of_rare = True  # what came before it was made has left nothing in it

    def __init__(self) -> None:
        self.rows: dict[ExemplarKey, Exemplar] = {}
        self.paid: dict[tuple[int, int], list[ExemplarKey]] = {}

    def add(self, event: Event) -> None:
        step_key = (event.attempt, event.step)
        if len(self.rows) > MOST:
            self.rows = {}
        elif event.kind == "labels_closed":
            self.rows = {key: row for key, row in self.rows.items() if key[:2] != step_key}
            self.paid.pop(step_key, None)


def example_completions(reader: RunReader, n: int = 10) -> list[Exemplar]:
    """The exemplars of the most likely findings, then completions of the newest step with high reward and low gold."""
    rows = list(
        dict.fromkeys(_exemplar_key(row) for finding in ranked_findings(reader.run_facts) for row in finding.exemplars)
    )
    examples = read_exemplars(reader, rows, n)
    if len(examples) < n and reader.run_facts.attempt is not None:
        newest_rows = highest_paid_rows(reader, reader.run_facts.attempt, reader.run_facts.last_step, n)
        examples += read_exemplars(reader, [row for row in newest_rows if row not in rows], n - len(examples))
    return examples


def read_exemplars(reader: RunReader, rows: Iterable[Sequence[int]], n: int) -> list[Exemplar]:
    """The first n of these rows that are still stored, with reward and gold."""
    cached = reader.get_fold("exemplars", _ExemplarCache).rows
    keys = [_exemplar_key(row) for row in rows]
    examples: list[Exemplar] = []
    missing_steps: set[tuple[int, int]] = set()
    for row in keys:
        if len(examples) == n:
            break
        if row not in cached and row[:2] not in missing_steps:
            batch, gold = _rollouts_and_gold(reader, *row[:2])
            if batch is None:
                missing_steps.add(row[:2])
            else:
                passages = _new_passages(reader, batch)
                cached |= {
                    key: _exemplar(batch, gold, key, passages)
                    for key in keys
                    if key[:2] == row[:2] and key[2] < len(batch)
                }
        if row in cached:
            examples.append(cached[row])
    return examples


def highest_paid_rows(reader: RunReader, attempt: int, step: int, n: int) -> list[ExemplarKey]:
    """Of the quarter of a step with the highest rewards, the rows with the lowest gold; ties by reward."""
    cache = reader.get_fold("exemplars", _ExemplarCache).paid
    if (attempt, step) not in cache:
        batch, gold = _rollouts_and_gold(reader, attempt, step)
        rows: list[ExemplarKey] = []
        if batch is not None and batch.reward is not None and np.isfinite(batch.reward).any():
            scored = np.flatnonzero(np.isfinite(batch.reward))
            gold_or_half = np.where(np.isfinite(gold), gold, 0.5)
            top = scored[batch.reward[scored] >= np.quantile(batch.reward[scored], 0.75)]
            order = top[np.lexsort((-batch.reward[top], gold_or_half[top]))][:n]
            rows = [(attempt, step, int(row)) for row in order]
        cache[attempt, step] = rows
        while len(cache) > 64:
            cache.pop(next(iter(cache)))
    return cache[attempt, step][:n]


def _exemplar_key(row: Sequence[int]) -> ExemplarKey:
    """A row reference from a journal (a list) or from a record (a tuple)."""
    return int(row[0]), int(row[1]), int(row[2])


def _rollouts_and_gold(reader: RunReader, attempt: int, step: int) -> tuple[RolloutBatch | None, Floats]:
    """The rollouts of a measured step with their gold; None if it was not measured, or was deleted since."""
    at = all_measured_steps(reader).get((attempt, step))
    batch = None if at is None else read_rollouts(reader, at, COLUMNS)
    return batch, np.zeros(0) if at is None or batch is None else gold_of(reader, at, batch)


def _new_passages(reader: RunReader, batch: RolloutBatch) -> frozenset[Passage]:
    """What several completions of a step have in common and none of the run's first step has."""
    steps = measured_steps(reader)
    if batch.completion is None or not steps or steps[0].step == batch.step:
        return frozenset()

    def read_start() -> frozenset[Passage] | None:
        start = read_rollouts(reader, steps[0], ("completion",))
        return None if start is None or start.completion is None else passages_of(start.completion)

    before = reader.cache_lru("start_passages", steps[0][:2], read_start, 1)
    return frozenset() if before is None else new_passages(batch.completion, before)


def _exemplar(batch: RolloutBatch, gold: Floats, key: ExemplarKey, passages: frozenset[Passage]) -> Exemplar:
    text = batch.completion[key[2]] if batch.completion is not None else None
    return Exemplar(
        id=rollout_id(*key),
        reward=None if batch.reward is None else finite_or_none(float(batch.reward[key[2]])),
        gold=finite_or_none(float(gold[key[2]])),
        text=excerpt(text or "", passages, TEXT),
    )
