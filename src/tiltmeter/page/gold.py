"""Which reading stands for gold, what stop advice says of it, and which checkpoint to keep."""

from __future__ import annotations

import numpy as np

from tiltmeter.advice import RECENT, SOURCES, WINDOW, Advice, Estimate, advise
from tiltmeter.page.book import Book, Readings
from tiltmeter.records import Floats, Reading

CHECKPOINT = "training.checkpoint"
NAMES = {"gold.mean": "gold", "gold.level": "gold of audited pairs"}


def advice(book: Book) -> Advice | None:
    """What `advice_on` says of the run, made from the few columns that it looks at."""
    return book.kept("advice", lambda: _advice(book))


def _advice(book: Book) -> Advice | None:
    story = book.story
    if not story.steps or not (story.labels or story.evaluations):
        return None
    return advise(story.last_step, _looked_at(book), story.open("alarm"), checkpoints(book))


def _looked_at(book: Book) -> list[Reading]:
    """The source of gold, whole; of the rest only the end, since nothing earlier is looked at."""
    step, columns = book.story.last_step, book.columns
    told = [reading for name in _sources(book) for reading in _readings(name, columns.line(name))]
    for name in ("gold.slope", "policy.kl.k3", "policy.entropy_ratio"):
        line = columns.line(name)
        if len(line.steps):
            early = min(step - RECENT, int(line.steps[-1]) - WINDOW)
            told += _readings(name, line, int(np.searchsorted(line.steps, early)))
    return told


def _readings(name: str, line: Readings, start: int = 0) -> list[Reading]:
    columns = zip(*(column[start:].tolist() for column in line), strict=True)
    return [Reading(0, step, name, value, n, None if error != error else error) for step, value, n, error in columns]


def _sources(book: Book) -> list[str]:
    """Where gold is read from: one name, or every declared evaluation."""
    for name in SOURCES:
        if len(book.columns.line(name).steps):
            return [name]
    evaluations = sorted(name for name in book.columns.names() if name.startswith("eval."))
    return [name for name in evaluations if len(book.columns.line(name).steps)]


def gold_name(book: Book) -> str:
    """The reading that stands for gold on plots and in words; of evaluations the one an alarm is about, or the one
    with most items; empty: there is none."""
    names = _sources(book)
    alarmed = [alarm.name for alarm in book.story.open("alarm") if alarm.name in names]
    return alarmed[0] if alarmed else max(names, key=lambda name: int(book.columns.line(name).n.sum()), default="")


def checkpoints(book: Book) -> list[int]:
    """Steps at which the model was saved, along the current branch."""
    return sorted({int(value) for value in book.columns.line(CHECKPOINT).values})


def last_good(book: Book) -> Estimate | None:
    """The checkpoint to keep: the one with the most gold around it on the current branch; while an alarm is open, of
    those strictly below the onset's lower end. None: no checkpoint can be named."""
    return book.kept("last_good", lambda: _last_good(book))


def _last_good(book: Book) -> Estimate | None:
    alarms, advised = book.story.open("alarm"), advice(book)
    bound = min((alarm.onset_low for alarm in alarms), default=None)
    best = None if advised is None else advised.best
    if bound is None or best is None or best.step < bound:
        return best
    saved = [step for step in checkpoints(book) if step < bound]
    return advise(book.story.last_step, _looked_at(book), alarms, saved).best


def highest(values: Floats, window: int) -> tuple[int, float, float, float]:
    """Where the mean over so many values stands highest (its first value), that mean, the newest mean, and the noise of
    such a mean.

    >>> highest(np.array([0.0, 1.0, 1.0, 0.0, 0.0]), 2)[:3]
    (1, 1.0, 0.0)
    """
    means = np.convolve(values, np.full(window, 1 / window), mode="valid")
    best = int(np.argmax(means))
    noise = float(np.abs(np.diff(values)).mean()) / np.sqrt(window)
    return best, float(means[best]), float(means[-1]), float(noise)
