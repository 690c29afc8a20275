"""Plots made from single rollouts: length against reward, and the reward's standard deviation within prompt groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tiltmeter.data.records import Floats, Ints
from tiltmeter.stats.groups import group_sums
from tiltmeter.view.payloads.plots import EraMedians, Geometry, Heat, Scatter, ScatterEra
from tiltmeter.view.screens.readings import explain_missing
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import (
    MeasuredStep,
    evenly_spaced,
    gold_of,
    measured_steps,
    read_rollouts,
    sampling_stride,
)
from tiltmeter.view.screens.series import finite_numbers, json_numbers

FEWEST_STEPS, MOST_STEPS = 60, 128  # steps that are read: fewer where each holds many rollouts
ROWS = 30_000  # rollouts that are read, about
DOTS = 2_000  # of one scatter plot
BINS = 10  # of length, each with its median
IN_BIN = 5  # dots that a bin needs to have a median
BUCKETS = 10  # of prompts
IN_CELL = 3  # groups for each cell, about; with fewer most of the heat map is blank
FEWEST_COLUMNS = 20
ANSWERS = 8  # cached results of one run, one for each range
EQUAL = 1e-9  # rewards that differ by less are equal
COLUMNS = ("group", "reward", "gold", "length", "prompt")


@dataclass(frozen=True, slots=True)
class StepRollouts:
    """The numbers of one step: by row, and by group the reward's mean and standard deviation and the prompt's hash."""

    at: MeasuredStep
    length: Floats | None
    reward: Floats | None
    gold: Floats
    mean: Floats
    sd: Floats  # NaN: fewer than two rewards; 0: all equal
    prompts: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Era:
    """A range of steps that is drawn in one colour."""

    label: str
    low: float
    high: float  # not included


def geometry(reader: RunReader, low: int | None = None, high: int | None = None) -> Geometry:
    """The plots of rollouts for a range of steps; the result is cached until a step is added."""
    with reader.lock:
        steps = measured_steps(reader, low, high)
        last = steps[-1] if steps else None
        eras = _eras(reader, steps)
        waiting = len(reader.run_facts.unlabelled)
    key = (low, high, last and last[:2], len(steps), tuple(era.label for era in eras), waiting)
    return reader.cache_lru("geometry", key, lambda: _geometry(reader, steps, eras), ANSWERS)


def _geometry(reader: RunReader, steps: Sequence[MeasuredStep], eras: Sequence[Era]) -> Geometry:
    rows = max((at.rows for at in steps), default=1)
    most = int(np.clip(ROWS // max(rows, 1), FEWEST_STEPS, MOST_STEPS))
    sampled_steps = evenly_spaced(steps, most)
    step_data = [_read_step_cached(reader, at, 2 * most) for at in sampled_steps]
    readable = [step_rollouts for step_rollouts in step_data if step_rollouts is not None]
    why = "" if readable else "No rollouts of the chosen steps are stored: they were deleted, or nothing was measured."
    return Geometry(
        scatter=scatter(reader, readable, eras, "reward", why),
        gold_scatter=scatter(reader, readable, eras, "gold", why),
        heat=heat(reader, step_data, sampling_stride(steps, most) * _usual_gap(steps), why),
    )


def _usual_gap(steps: Sequence[MeasuredStep]) -> int:
    """The usual distance between two measured steps."""
    gaps = np.diff([at.step for at in steps])
    return max(1, int(np.median(gaps))) if len(gaps) else 1


def _read_step_cached(reader: RunReader, at: MeasuredStep, most: int) -> StepRollouts | None:
    closed = (at.attempt, at.step) not in reader.run_facts.unlabelled  # read again once its labels are closed
    return reader.cache_lru("geometry step", (at.attempt, at.step, closed), lambda: _read_step(reader, at), most)


def _read_step(reader: RunReader, at: MeasuredStep) -> StepRollouts | None:
    batch = read_rollouts(reader, at, COLUMNS)
    if batch is None or not len(batch):
        return None
    mean, sd = group_mean_sd(batch.reward, batch.starts) if batch.reward is not None else (np.zeros(0), np.zeros(0))
    prompts: list[int | None] = [None] * len(mean)
    if batch.prompt is not None:
        texts = [batch.prompt[row] for row in batch.starts[:-1].tolist()]
        prompts = [None if text is None else hash(text) for text in texts]
    length = None if batch.length is None else batch.length.astype(np.float64)
    return StepRollouts(at, length, batch.reward, gold_of(reader, at, batch), mean, sd, prompts)


def group_mean_sd(values: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each group; NaN where fewer than two values are known, 0 where all are equal.

    >>> [part.tolist() for part in group_mean_sd(np.array([1.0, 3.0, 2.0, 2.0, 5.0]), np.array([0, 2, 4, 5]))]
    [[2.0, 2.0, 5.0], [1.0, 0.0, nan]]
    """
    sums, counts = group_sums(values, starts)
    mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    squares, _ = group_sums((values - np.repeat(mean, np.diff(starts))) ** 2, starts)
    sd = np.sqrt(np.divide(squares, counts, out=np.full(len(sums), np.nan), where=counts > 1))
    return mean, np.where(sd < EQUAL, 0.0, sd)


def _eras(reader: RunReader, steps: Sequence[MeasuredStep]) -> list[Era]:
    """Before and after the onset of the open alarm; without one, quarters of the range."""
    if not steps:
        return []
    first, last = steps[0].step, steps[-1].step
    onset = min((alarm.onset for alarm in reader.verdict.alarms), default=None)
    if onset is not None and first < onset <= last:
        return [Era(f"before step {onset}", -np.inf, onset), Era(f"from step {onset} on", onset, np.inf)]
    parts = np.unique(np.linspace(first, last + 1, 5).round().astype(int)).tolist()
    return [
        Era(f"steps {low} to {high - 1}" if high - 1 > low else f"step {low}", low, high)
        for low, high in pairwise(parts)
    ]


def scatter(reader: RunReader, steps: Sequence[StepRollouts], eras: Sequence[Era], what: str, why: str) -> Scatter:
    """Length against reward, or against gold: dots sampled evenly over the eras, and medians of each era."""
    title = "Length and reward" if what == "reward" else "Length and gold"
    era_rows: list[ScatterEra] = []
    median_rows: list[EraMedians] = []
    empty = why or _explain_empty(reader, steps, what)
    sentence = empty
    if not empty:
        rng = np.random.default_rng(len(steps))
        dots = [_dots(steps, era, what, DOTS // len(eras), rng) for era in eras]
        all_x = np.concatenate([x for x, _, _ in dots])
        edges = np.unique(np.quantile(all_x, np.linspace(0.0, 1.0, BINS + 1)))
        correlations = []
        for era_index, (era, (x, y, ids)) in enumerate(zip(eras, dots, strict=True)):
            era_rows.append(ScatterEra(label=era.label, x=finite_numbers(x, 5), y=finite_numbers(y, 4), ids=ids))
            medians = [] if len(edges) < 3 else _medians(x, y, edges)
            if medians:
                xs, ys = zip(*medians, strict=True)
                median_rows.append(EraMedians(era=era_index, x=json_numbers(xs, 5), y=json_numbers(ys, 4)))
            correlations.append(f"{_correlation_text(x, y)} {era.label}")
        sentence = f"Correlation of length and {what}: {', '.join(correlations)}. {len(all_x):,} completions are drawn."
    return Scatter(
        title=title, x="length (tokens)", y=what, eras=era_rows, medians=median_rows, sentence=sentence, empty=empty
    )


def _explain_empty(reader: RunReader, steps: Sequence[StepRollouts], what: str) -> str:
    """Why there is nothing to draw; empty if there is."""
    if not any(step_rollouts.length is not None for step_rollouts in steps):
        return explain_missing(reader, "length.mean", "length")
    if what == "reward" and not any(step_rollouts.reward is not None for step_rollouts in steps):
        return explain_missing(reader, "reward.mean", "reward")
    if any(np.isfinite(_values(step_rollouts, what)).any() for step_rollouts in steps):
        return ""
    if what == "gold" and reader.run_facts.gold is not None:
        return "No completion of these steps has a gold label yet; labels are still to come."
    return explain_missing(reader, "gold.mean", "gold") if what == "gold" else "No reward of these steps is a number."


def _values(step_rollouts: StepRollouts, what: str) -> Floats:
    if what == "gold":
        return step_rollouts.gold
    return np.full(len(step_rollouts.gold), np.nan) if step_rollouts.reward is None else step_rollouts.reward


def _dots(
    steps: Sequence[StepRollouts], era: Era, what: str, most: int, rng: np.random.Generator
) -> tuple[Floats, Floats, list[str]]:
    xs, ys, ids = [np.empty(0)], [np.empty(0)], []
    for step_rollouts in steps:
        if step_rollouts.length is not None and era.low <= step_rollouts.at.step < era.high:
            y = _values(step_rollouts, what)
            rows = np.flatnonzero(np.isfinite(y))
            xs.append(step_rollouts.length[rows])
            ys.append(y[rows])
            ids += [step_rollouts.at.rollout_id(row) for row in rows.tolist()]
    x, y = np.concatenate(xs), np.concatenate(ys)
    if len(x) > most:
        chosen = np.sort(rng.choice(len(x), most, replace=False))
        return x[chosen], y[chosen], [ids[row] for row in chosen.tolist()]
    return x, y, ids


def _medians(x: Floats, y: Floats, edges: Floats) -> list[tuple[float, float]]:
    bins = np.clip(np.searchsorted(edges, x, "right") - 1, 0, len(edges) - 2)
    parts = [bins == bin_ for bin_ in range(len(edges) - 1)]
    return [(float(np.median(x[part])), float(np.median(y[part]))) for part in parts if part.sum() >= IN_BIN]


def _correlation_text(x: Floats, y: Floats) -> str:
    if len(x) < IN_BIN or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return "none"
    return f"{np.corrcoef(x, y)[0, 1]:.2f}"


def heat(reader: RunReader, steps: Sequence[StepRollouts | None], width: int, why: str) -> Heat:
    """The reward's standard deviation within groups, by step and prompt difficulty; 0 means no gradient."""
    title = "Reward spread within prompt groups"
    with_groups = [
        step_rollouts for step_rollouts in steps if step_rollouts is not None and np.isfinite(step_rollouts.sd).any()
    ]
    if not with_groups:
        empty = why or (
            "No group has two rewards to compare: every prompt was answered once. More completions a prompt show it."
            if any(step_rollouts is not None and step_rollouts.reward is not None for step_rollouts in steps)
            else explain_missing(reader, "reward.spread", "reward")
        )
        return Heat(title=title, width=width, sentence=empty, steps=[], rows=[], cells=[], most=0.0, empty=empty)
    labels, buckets, explanation = _prompt_buckets(with_groups)
    width *= _steps_per_column(with_groups, len(labels))
    first = with_groups[0].at.step
    columns = sorted({(step_rollouts.at.step - first) // width for step_rollouts in with_groups})
    column_indices = np.searchsorted(
        columns, [(step_rollouts.at.step - first) // width for step_rollouts in with_groups]
    )
    cells = _cells(with_groups, buckets, column_indices, (len(labels), len(columns)))
    return Heat(
        title=title,
        width=width,
        sentence=f"{_describe_dead_groups(with_groups)} {explanation}",
        steps=[first + width * column for column in columns],
        rows=labels,
        cells=cells,
        most=max((value for line in cells for value in line if value is not None and value > 0.0), default=0.0),
        empty="",
    )


def _cells(
    steps: Sequence[StepRollouts], buckets: Sequence[Ints], columns: Ints, shape: tuple[int, int]
) -> list[list[float | None]]:
    """The mean standard deviation of the groups in each cell; -1 where all are 0, None where there are no groups."""
    sd, row = np.concatenate([step_rollouts.sd for step_rollouts in steps]), np.concatenate(buckets)
    cell = row * shape[1] + np.repeat(columns, [len(step_rollouts.sd) for step_rollouts in steps])
    valid = np.isfinite(sd) & (row >= 0)
    count = np.bincount(cell[valid], minlength=shape[0] * shape[1])
    total = np.bincount(cell[valid], sd[valid], minlength=shape[0] * shape[1])
    mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    values = json_numbers(np.where(mean == 0.0, -1.0, mean), 3)
    return [values[start : start + shape[1]] for start in range(0, len(values), shape[1])]


def _steps_per_column(steps: Sequence[StepRollouts], rows: int) -> int:
    """How many steps are pooled into one column, so that most cells are not empty."""
    groups = float(np.mean([np.isfinite(step_rollouts.sd).sum() for step_rollouts in steps]))
    return max(1, min(round(IN_CELL * rows / max(groups, 1.0)), len(steps) // FEWEST_COLUMNS))


def _describe_dead_groups(steps: Sequence[StepRollouts]) -> str:
    shares = [float((step_rollouts.sd == 0.0).sum() / np.isfinite(step_rollouts.sd).sum()) for step_rollouts in steps]
    tail = max(1, len(steps) // 10)
    early, late = np.mean(shares[:tail]), np.mean(shares[-tail:])
    return f"In {early:.0%} of prompt groups all rewards were equal at first, now in {late:.0%}: they give no gradient."


def _prompt_buckets(steps: Sequence[StepRollouts]) -> tuple[list[str], list[Ints], str]:
    """Names of the rows, the row of each group of each step (-1: none), and a sentence on how rows were chosen."""
    start = steps[: max(1, len(steps) // 4)]
    start_means: dict[int, list[float]] = {}
    for step_rollouts in start:
        for prompt, mean in zip(step_rollouts.prompts, step_rollouts.mean.tolist(), strict=True):
            if prompt is not None and np.isfinite(mean):
                start_means.setdefault(prompt, []).append(mean)
    later = [prompt for step_rollouts in steps[len(start) :] for prompt in step_rollouts.prompts]
    if later and sum(prompt in start_means for prompt in later) >= 0.5 * len(later):
        return _buckets_by_start_reward(steps, {prompt: float(np.mean(means)) for prompt, means in start_means.items()})
    return _buckets_by_rank(steps)


def _buckets_by_start_reward(
    steps: Sequence[StepRollouts], start_means: dict[int, float]
) -> tuple[list[str], list[Ints], str]:
    edges = np.unique(np.quantile(list(start_means.values()), np.linspace(0.0, 1.0, BUCKETS + 1)))
    if len(edges) < 2:
        edges = np.array([edges[0], edges[0]])
    count = len(edges) - 1
    labels = [f"{edges[row]:.2g} to {edges[row + 1]:.2g} at the start" for row in reversed(range(count))]
    rows = []
    for step_rollouts in steps:
        level = np.array(
            [start_means.get(prompt, np.nan) if prompt is not None else np.nan for prompt in step_rollouts.prompts]
        )
        bucket = np.clip(np.searchsorted(edges, level, "right") - 1, 0, count - 1)
        rows.append(np.where(np.isfinite(level), count - 1 - bucket, -1).astype(np.int64))
    explanation = (
        "Rows are prompts by their mean reward at the start, the hardest last; prompts that came later are left out."
    )
    return labels, rows, explanation


def _buckets_by_rank(steps: Sequence[StepRollouts]) -> tuple[list[str], list[Ints], str]:
    count = min(BUCKETS, max(len(step_rollouts.mean) for step_rollouts in steps))
    labels = [f"{100 * row // count} to {100 * (row + 1) // count} %" for row in range(count)]
    labels[0] += ", highest reward"
    rows = []
    for step_rollouts in steps:
        order = np.argsort(np.argsort(-np.nan_to_num(step_rollouts.mean, nan=-np.inf), kind="stable"), kind="stable")
        rows.append(np.where(np.isfinite(step_rollouts.mean), order * count // max(len(order), 1), -1).astype(np.int64))
    explanation = (
        "Prompts do not repeat: rows are groups by the rank of their own mean reward in their step, the lowest last."
    )
    return labels, rows, explanation
