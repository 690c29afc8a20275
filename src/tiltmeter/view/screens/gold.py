"""The gold of a run: which reading stands for it, stop advice, and the checkpoint to keep."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.records import Floats
from tiltmeter.verdict.list_entry import last_good_checkpoint
from tiltmeter.verdict.stop_advice import SOURCES, Estimate
from tiltmeter.view.screens.run_reader import RunReader

CHECKPOINT = "training.checkpoint"
NAMES = {"gold.mean": "gold", "gold.answers": "gold of labelled answers", "gold.level": "gold of audited pairs"}


def _sources(reader: RunReader) -> list[str]:
    """Where gold is read from: one name, or every declared evaluation."""
    for name in SOURCES:
        if len(reader.columns.lineage_series(name).steps):
            return [name]
    evaluations = sorted(name for name in reader.columns.names() if name.startswith("eval."))
    return [name for name in evaluations if len(reader.columns.lineage_series(name).steps)]


def gold_name(reader: RunReader) -> str:
    """The reading that stands for gold on plots and in words; of evaluations the one an alarm is about, or the one
    with most items; empty: there is none."""
    names = _sources(reader)
    alarmed = [alarm.name for alarm in reader.run_facts.open_alarms("alarm") if alarm.name in names]
    return (
        alarmed[0]
        if alarmed
        else max(names, key=lambda name: int(reader.columns.lineage_series(name).n.sum()), default="")
    )


def checkpoints(reader: RunReader) -> list[int]:
    """Steps at which the model was saved, along the current branch."""
    return sorted({int(value) for value in reader.columns.lineage_series(CHECKPOINT).values})


def last_good(reader: RunReader) -> Estimate | None:
    """The checkpoint to keep: the one with the most gold around it on the current branch; while an alarm is open, of
    those strictly below the onset's lower end. None: no checkpoint can be named."""
    return reader.cache_until_event("last_good", lambda: last_good_checkpoint(reader.run_facts, reader.verdict))


def highest_window(values: Floats, window: int) -> tuple[int, float, float, float]:
    """The window with the highest mean: its first index, that mean, the newest window's mean, and the noise of such a
    mean.

    >>> highest_window(np.array([0.0, 1.0, 1.0, 0.0, 0.0]), 2)[:3]
    (1, 1.0, 0.0)
    """
    means = np.convolve(values, np.full(window, 1 / window), mode="valid")
    best = int(np.argmax(means))
    noise = float(np.abs(np.diff(values)).mean()) / np.sqrt(window)
    return best, float(means[best]), float(means[-1]), float(noise)
