"""Labels bought over the stored past: when gold was highest, and the checkpoint that is worth going back to.

An alarm is sure that gold is being lost, and late about when that began. So after an alarm a few answers are drawn at
random over everything stored so far, labelled within a budget of their own, and the curve that first rises and then
falls is fitted to them. It is an estimate; the alarm's bound does not depend on it, and it costs nothing of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from tiltmeter.data.records import Floats, Ints, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.gold import GoldSource
from tiltmeter.gold.label_files import ONSET, PEOPLE, Label, LabelRequest, draw_generator
from tiltmeter.gold.row_features import COLUMNS, prompt_numbers, row_features
from tiltmeter.gold.row_request import REQUEST_COLUMNS
from tiltmeter.gold.sampler import Bet, Row
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.payloads import OnsetEstimated, StepDone
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.backfilled_onset import SMOOTHING, backfilled_onset

LABELS = 200  # of the past, for a function or a judge
PEOPLE_LABELS = 100
LEAST = 30  # labels below which nothing is estimated
MOST_STEPS = 400  # that are read; of a longer run these are spread evenly


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A measured step whose rollouts are stored."""

    attempt: int
    step: int
    rows: int
    ranks: tuple[tuple[int, int], ...]


def steps_of(events: Iterable[Event], limits: Mapping[int, float], last: int) -> list[StoredStep]:
    """The measured steps of a lineage up to its step `last`; `limits`: by attempt, the step before which it counts."""
    stored: dict[int, StoredStep] = {}
    for event in events:
        done = event.payload if event.kind == "step_done" else None
        if isinstance(done, StepDone) and event.step <= last and event.step < limits.get(event.attempt, -1):
            ranks = tuple((first, end) for first, end in done.ranks)
            stored[event.step] = StoredStep(event.attempt, event.step, done.rows, ranks)
    return [stored[step] for step in sorted(stored)]


def draw_rows(
    run_id: str, attempt: int, step: int, stored: Sequence[StoredStep], source: GoldSource, labels: int = 0
) -> LabelRequest | None:
    """What to label of the past up to a step, drawn uniformly over all rows; None if nothing is stored.

    The order is random too, so whoever labels does not go from the beginning of the run to its end.
    """
    chosen = [one for one in stored if one.rows]
    if len(chosen) > MOST_STEPS:
        chosen = [chosen[at] for at in np.linspace(0, len(chosen) - 1, MOST_STEPS).round().astype(int)]
    total = sum(one.rows for one in chosen)
    if not total:
        return None
    seed, rng = draw_generator(f"{run_id}/{ONSET}", attempt, step)
    count = labels or (PEOPLE_LABELS if source.name == PEOPLE else LABELS)
    ends = np.cumsum([one.rows for one in chosen])
    bets = []
    for drawn in rng.choice(total, min(count, total), replace=False):
        at = int(np.searchsorted(ends, drawn, side="right"))
        row: Row = (chosen[at].attempt, chosen[at].step, int(drawn - ends[at] + chosen[at].rows))
        bets.append(Bet(ONSET, row, row, 0.0, count / total))
    state = {"steps": [[one.attempt, one.step, one.rows, [list(span) for span in one.ranks]] for one in chosen]}
    identity = {"name": source.name, "identity": source.identity}
    ranks = chosen[-1].ranks
    rewards = (None,) * len(bets)
    return LabelRequest(attempt, step, ranks, seed, identity, 0.0, state, tuple(bets), rewards, time.time())


def stored_steps(request: LabelRequest) -> list[StoredStep]:
    """The steps that a request was drawn from, as it recorded them."""
    try:
        return [
            StoredStep(int(attempt), int(step), int(rows), tuple((int(a), int(b)) for a, b in ranks))
            for attempt, step, rows, ranks in request.state["steps"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(f"the onset request of step {request.step} does not say what it was drawn from") from error


def estimate_onset(run: RunDirectory, request: LabelRequest, labels: Sequence[Label]) -> OnsetEstimated:
    """The estimate from a request's labels, with reward, length and prompt of all rows of its steps; or why not."""
    values = {row: label.value for row, label in zip(request.rows, labels, strict=True) if label.value is not None}

    def unknown(why: str) -> OnsetEstimated:
        return OnsetEstimated(requested=len(labels), answered=len(values), requests=request.digest, why=why)

    if len(values) < LEAST:
        reason = next((label.why for label in labels if label.value is None), "the run is short")
        return unknown(f"{len(values)} labels of the past are too few to say when gold was highest: {reason}")
    parts: list[tuple[Ints, Floats, Ints]] = []
    places: dict[Row, int] = {}
    rows_before = 0
    for one in stored_steps(request):
        try:
            batch = read_step(run, one.attempt, one.step, one.ranks, COLUMNS)
        except StoreError:
            continue  # deleted since: the other steps stand for it
        parts.append((np.full(len(batch), one.step), row_features(batch), prompt_numbers(batch)))
        places |= {(one.attempt, one.step, row): rows_before + row for row in range(len(batch))}
        rows_before += len(batch)
    gold_by_place = {places[row]: value for row, value in values.items() if row in places}
    if len(gold_by_place) < LEAST:
        return unknown("the rollouts that were labelled are not stored any more")
    step, features, prompt = (np.concatenate(column) for column in zip(*parts, strict=True))
    gold = np.array(list(gold_by_place.values()))
    curve = backfilled_onset(step, features, np.array(list(gold_by_place)), gold, prompt)
    near = len(gold_by_place) * sqrt(2.0 * np.pi) / SMOOTHING  # labels that the smoothing of one point averages
    stderr = sqrt(float(gold.var()) * (1.0 - min(max(curve.r2, 0.0), 0.95)) / max(near, 1.0))
    return OnsetEstimated(
        requested=len(labels),
        answered=len(values),
        requests=request.digest,
        peak=curve.peak,
        low=curve.low,
        high=curve.high,
        r2=round(float(curve.r2), 4),
        steps=curve.steps.tolist(),
        gold=curve.fit.round(4).tolist(),
        stderr=round(stderr, 4),
        label_steps=step[list(gold_by_place)].tolist(),
        labels=gold.round(4).tolist(),
    )


def request_texts(run: RunDirectory, request: LabelRequest) -> dict[Row, RolloutBatch | str]:
    """By row, the stored step that it belongs to, or why it cannot be read. Each step is read once."""
    ranks = {(one.attempt, one.step): one.ranks for one in stored_steps(request)}
    batches: dict[tuple[int, int], RolloutBatch | str] = {}
    for attempt, step, _ in request.rows:
        if (attempt, step) not in batches:
            try:
                of_step = ranks.get((attempt, step), ())
                batches[attempt, step] = read_step(run, attempt, step, of_step, REQUEST_COLUMNS)
            except StoreError as error:
                batches[attempt, step] = f"the rollout cannot be read: {error}"[:200]
    return {row: batches[row[:2]] for row in request.rows}
