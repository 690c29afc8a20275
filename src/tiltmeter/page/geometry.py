"""Plots that need the rollouts themselves: length against reward, and the spread of reward inside prompt groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from tiltmeter.page.book import Book
from tiltmeter.page.readings import lacking
from tiltmeter.page.samples import At, gold_of, measured, rollouts, spread, stride
from tiltmeter.page.series import plain
from tiltmeter.records import Floats, Ints
from tiltmeter.stats.groups import group_sums

FEWEST_STEPS, MOST_STEPS = 60, 128  # steps that are read: fewer where each holds many rollouts
ROWS = 30_000  # rollouts that are read, about
DOTS = 2_000  # of one scatter plot
BINS = 10  # of length, each with its median
IN_BIN = 5  # dots below which a bin has no median
BUCKETS = 10  # of prompts
IN_CELL = 3  # groups, about: with fewer most of the map is blank
FEWEST_COLUMNS = 20
ANSWERS = 8  # kept of one run, for as many ranges
EQUAL = 1e-9  # rewards that differ by less are equal
COLUMNS = ("group", "reward", "gold", "length", "prompt")


@dataclass(frozen=True, slots=True)
class Read:
    """What is kept of one step: numbers by row, and by group the mean and spread of reward and the prompt's hash."""

    at: At
    length: Floats | None
    reward: Floats | None
    gold: Floats
    mean: Floats
    sd: Floats  # NaN: fewer than two rewards; 0: all equal
    prompts: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Era:
    """A stretch of the run that is drawn in one colour."""

    label: str
    low: float
    high: float  # not included


def geometry(book: Book, low: int | None = None, high: int | None = None) -> dict[str, Any]:
    """The plots of rollouts for a range of steps; the answer is kept until a step is added."""
    with book.lock:
        steps = measured(book, low, high)
        last = steps[-1] if steps else None
        eras = _eras(book, steps)
        waiting = len(book.story.unlabelled)
    key = (low, high, last and last[:2], len(steps), tuple(era.label for era in eras), waiting)
    return book.once("geometry", key, lambda: _geometry(book, steps, eras), ANSWERS)


def _geometry(book: Book, steps: Sequence[At], eras: Sequence[Era]) -> dict[str, Any]:
    rows = max((at.rows for at in steps), default=1)
    most = int(np.clip(ROWS // max(rows, 1), FEWEST_STEPS, MOST_STEPS))
    chosen = spread(steps, most)
    found = [_read(book, at, 2 * most) for at in chosen]
    known = [one for one in found if one is not None]
    why = "" if known else "No rollouts of the chosen steps are stored: they were deleted, or nothing was measured."
    return {
        "scatter": scatter(book, known, eras, "reward", why),
        "gold_scatter": scatter(book, known, eras, "gold", why),
        "heat": heat(book, found, stride(steps, most) * _apart(steps), why),
    }


def _apart(steps: Sequence[At]) -> int:
    """The usual distance between two measured steps."""
    gaps = np.diff([at.step for at in steps])
    return max(1, int(np.median(gaps))) if len(gaps) else 1


def _read(book: Book, at: At, most: int) -> Read | None:
    closed = (at.attempt, at.step) not in book.story.unlabelled  # labels that come later are read again
    return book.once("geometry step", (at.attempt, at.step, closed), lambda: _extract(book, at), most)


def _extract(book: Book, at: At) -> Read | None:
    batch = rollouts(book, at, COLUMNS)
    if batch is None or not len(batch):
        return None
    mean, sd = spread_of(batch.reward, batch.starts) if batch.reward is not None else (np.zeros(0), np.zeros(0))
    prompts: list[int | None] = [None] * len(mean)
    if batch.prompt is not None:
        texts = [batch.prompt[row] for row in batch.starts[:-1].tolist()]
        prompts = [None if text is None else hash(text) for text in texts]
    length = None if batch.length is None else batch.length.astype(np.float64)
    return Read(at, length, batch.reward, gold_of(book, at, batch), mean, sd, prompts)


def spread_of(values: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each group; NaN where fewer than two values are known, 0 where all are equal.

    >>> [part.tolist() for part in spread_of(np.array([1.0, 3.0, 2.0, 2.0, 5.0]), np.array([0, 2, 4, 5]))]
    [[2.0, 2.0, 5.0], [1.0, 0.0, nan]]
    """
    sums, counts = group_sums(values, starts)
    mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    squares, _ = group_sums((values - np.repeat(mean, np.diff(starts))) ** 2, starts)
    sd = np.sqrt(np.divide(squares, counts, out=np.full(len(sums), np.nan), where=counts > 1))
    return mean, np.where(sd < EQUAL, 0.0, sd)


def _eras(book: Book, steps: Sequence[At]) -> list[Era]:
    """Before and after the onset of an open alarm; without one, quarters of the range."""
    if not steps:
        return []
    first, last = steps[0].step, steps[-1].step
    onset = min((alarm.onset for alarm in book.story.open("alarm")), default=None)
    if onset is not None and first < onset <= last:
        return [Era(f"before step {onset}", -np.inf, onset), Era(f"from step {onset} on", onset, np.inf)]
    parts = np.unique(np.linspace(first, last + 1, 5).round().astype(int)).tolist()
    return [
        Era(f"steps {low} to {high - 1}" if high - 1 > low else f"step {low}", low, high)
        for low, high in pairwise(parts)
    ]


def scatter(book: Book, steps: Sequence[Read], eras: Sequence[Era], what: str, why: str) -> dict[str, Any]:
    """Length against what was paid, or against gold: dots spread evenly over the eras, and medians of each."""
    title = "Length and reward" if what == "reward" else "Length and gold"
    empty = why or _missing(book, steps, what)
    shown: dict[str, Any] = {"title": title, "x": "length (tokens)", "y": what, "eras": [], "medians": []}
    if empty:
        return {**shown, "sentence": empty, "empty": empty}
    rng = np.random.default_rng(len(steps))
    drawn = [_dots(steps, era, what, DOTS // len(eras), rng) for era in eras]
    every = np.concatenate([x for x, _, _ in drawn])
    edges = np.unique(np.quantile(every, np.linspace(0.0, 1.0, BINS + 1)))
    told = []
    for number_, (era, (x, y, ids)) in enumerate(zip(eras, drawn, strict=True)):
        shown["eras"].append({"label": era.label, "x": plain(x, 5), "y": plain(y, 4), "ids": ids})
        middle = [] if len(edges) < 3 else _medians(x, y, edges)
        if middle:
            xs, ys = zip(*middle, strict=True)
            shown["medians"].append({"era": number_, "x": plain(xs, 5), "y": plain(ys, 4)})
        told.append(f"{_together(x, y)} {era.label}")
    sentence = f"Correlation of length and {what}: {', '.join(told)}. {len(every):,} completions are drawn."
    return {**shown, "sentence": sentence, "empty": ""}


def _missing(book: Book, steps: Sequence[Read], what: str) -> str:
    """Why there is nothing to draw; empty if there is."""
    if not any(one.length is not None for one in steps):
        return lacking(book, "length.mean", "length")
    if what == "reward" and not any(one.reward is not None for one in steps):
        return lacking(book, "reward.mean", "reward")
    if any(np.isfinite(_values(one, what)).any() for one in steps):
        return ""
    if what == "gold" and book.story.gold is not None:
        return "No completion of these steps has a gold label yet; labels are still to come."
    return lacking(book, "gold.mean", "gold") if what == "gold" else "No reward of these steps is a number."


def _values(one: Read, what: str) -> Floats:
    if what == "gold":
        return one.gold
    return np.full(len(one.gold), np.nan) if one.reward is None else one.reward


def _dots(
    steps: Sequence[Read], era: Era, what: str, most: int, rng: np.random.Generator
) -> tuple[Floats, Floats, list[str]]:
    xs, ys, ids = [np.empty(0)], [np.empty(0)], []
    for one in steps:
        if one.length is not None and era.low <= one.at.step < era.high:
            y = _values(one, what)
            rows = np.flatnonzero(np.isfinite(y))
            xs.append(one.length[rows])
            ys.append(y[rows])
            ids += [one.at.id(row) for row in rows.tolist()]
    x, y = np.concatenate(xs), np.concatenate(ys)
    if len(x) > most:
        kept = np.sort(rng.choice(len(x), most, replace=False))
        return x[kept], y[kept], [ids[row] for row in kept.tolist()]
    return x, y, ids


def _medians(x: Floats, y: Floats, edges: Floats) -> list[tuple[float, float]]:
    place = np.clip(np.searchsorted(edges, x, "right") - 1, 0, len(edges) - 2)
    parts = [place == bin_ for bin_ in range(len(edges) - 1)]
    return [(float(np.median(x[part])), float(np.median(y[part]))) for part in parts if part.sum() >= IN_BIN]


def _together(x: Floats, y: Floats) -> str:
    if len(x) < IN_BIN or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return "none"
    return f"{np.corrcoef(x, y)[0, 1]:.2f}"


def heat(book: Book, steps: Sequence[Read | None], width: int, why: str) -> dict[str, Any]:
    """The spread of reward inside groups, by step and by how hard the prompt is: where it is 0 nothing is learnt."""
    shown: dict[str, Any] = {"title": "Spread inside prompt groups", "width": width}
    known = [one for one in steps if one is not None and np.isfinite(one.sd).any()]
    if not known:
        empty = why or (
            "No group has two rewards to compare: every prompt was answered once. More completions a prompt show it."
            if any(one is not None and one.reward is not None for one in steps)
            else lacking(book, "reward.spread", "reward")
        )
        return {**shown, "sentence": empty, "steps": [], "rows": [], "cells": [], "most": 0.0, "empty": empty}
    labels, buckets, how = _buckets(known)
    width *= _pooled(known, len(labels))
    first = known[0].at.step
    columns = sorted({(one.at.step - first) // width for one in known})
    places = np.searchsorted(columns, [(one.at.step - first) // width for one in known])
    cells = _cells(known, buckets, places, (len(labels), len(columns)))
    return {
        **shown,
        "sentence": f"{_dead(known)} {how}",
        "steps": [first + width * place for place in columns],
        "width": width,
        "rows": labels,
        "cells": cells,
        "most": max((value for line in cells for value in line if value is not None and value > 0.0), default=0.0),
        "empty": "",
    }


def _cells(
    steps: Sequence[Read], buckets: Sequence[Ints], columns: Ints, shape: tuple[int, int]
) -> list[list[float | None]]:
    """The mean spread of the groups of each row and column; -1 where all are 0, None where there is none."""
    sd, row = np.concatenate([one.sd for one in steps]), np.concatenate(buckets)
    cell = row * shape[1] + np.repeat(columns, [len(one.sd) for one in steps])
    known = np.isfinite(sd) & (row >= 0)
    count = np.bincount(cell[known], minlength=shape[0] * shape[1])
    total = np.bincount(cell[known], sd[known], minlength=shape[0] * shape[1])
    mean = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    values = plain(np.where(mean == 0.0, -1.0, mean), 3)
    return [values[start : start + shape[1]] for start in range(0, len(values), shape[1])]


def _pooled(steps: Sequence[Read], rows: int) -> int:
    """How many steps make one column, so that most cells hold something."""
    groups = float(np.mean([np.isfinite(one.sd).sum() for one in steps]))
    return max(1, min(round(IN_CELL * rows / max(groups, 1.0)), len(steps) // FEWEST_COLUMNS))


def _dead(steps: Sequence[Read]) -> str:
    shares = [float((one.sd == 0.0).sum() / np.isfinite(one.sd).sum()) for one in steps]
    tail = max(1, len(steps) // 10)
    early, late = np.mean(shares[:tail]), np.mean(shares[-tail:])
    return (
        f"In {early:.0%} of prompt groups all rewards were equal at first, in {late:.0%} of late: those teach nothing."
    )


def _buckets(steps: Sequence[Read]) -> tuple[list[str], list[Ints], str]:
    """Names of the rows, the row of each group of each step (-1: none), and how that was decided."""
    start = steps[: max(1, len(steps) // 4)]
    base: dict[int, list[float]] = {}
    for one in start:
        for prompt, mean in zip(one.prompts, one.mean.tolist(), strict=True):
            if prompt is not None and np.isfinite(mean):
                base.setdefault(prompt, []).append(mean)
    later = [prompt for one in steps[len(start) :] for prompt in one.prompts]
    if later and sum(prompt in base for prompt in later) >= 0.5 * len(later):
        return _by_start(steps, {prompt: float(np.mean(means)) for prompt, means in base.items()})
    return _by_rank(steps)


def _by_start(steps: Sequence[Read], base: dict[int, float]) -> tuple[list[str], list[Ints], str]:
    edges = np.unique(np.quantile(list(base.values()), np.linspace(0.0, 1.0, BUCKETS + 1)))
    if len(edges) < 2:
        edges = np.array([edges[0], edges[0]])
    count = len(edges) - 1
    labels = [f"{edges[row]:.2g} to {edges[row + 1]:.2g} at the start" for row in reversed(range(count))]
    rows = []
    for one in steps:
        level = np.array([base.get(prompt, np.nan) if prompt is not None else np.nan for prompt in one.prompts])
        place = np.clip(np.searchsorted(edges, level, "right") - 1, 0, count - 1)
        rows.append(np.where(np.isfinite(level), count - 1 - place, -1).astype(np.int64))
    how = "Rows are prompts by their mean reward at the start, the hardest last; prompts that came later are left out."
    return labels, rows, how


def _by_rank(steps: Sequence[Read]) -> tuple[list[str], list[Ints], str]:
    count = min(BUCKETS, max(len(one.mean) for one in steps))
    labels = [f"{100 * row // count} to {100 * (row + 1) // count} %" for row in range(count)]
    labels[0] += ", best paid"
    rows = []
    for one in steps:
        order = np.argsort(np.argsort(-np.nan_to_num(one.mean, nan=-np.inf), kind="stable"), kind="stable")
        rows.append(np.where(np.isfinite(one.mean), order * count // max(len(order), 1), -1).astype(np.int64))
    how = "Prompts do not repeat: rows are groups by the rank of their own mean reward in their step, worst paid last."
    return labels, rows, how
