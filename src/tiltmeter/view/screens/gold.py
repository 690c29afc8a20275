"""The gold of a run: which reading stands for it, stop advice, and the checkpoint to keep."""

from __future__ import annotations

from tiltmeter.verdict.gold_standing import Estimate
from tiltmeter.view.screens.run_reader import RunReader

CHECKPOINT = "training.checkpoint"
NAMES = {"gold.mean": "gold", "gold.answers": "gold of labelled answers", "gold.level": "gold of audited pairs"}


def gold_name(reader: RunReader) -> str:
    """The reading that stands for gold on plots and in words: that of the verdict, else the evaluation with most items;
    empty: there is none."""
    gold = reader.verdict.gold
    if gold is not None and len(reader.columns.lineage_series(gold.source).steps):
        return gold.source
    names = sorted(name for name in reader.columns.names() if name.startswith("eval."))
    return max(names, key=lambda name: int(reader.columns.lineage_series(name).n.sum()), default="")


def checkpoints(reader: RunReader) -> list[int]:
    """Steps at which the model was saved, along the current branch."""
    return sorted({int(value) for value in reader.columns.lineage_series(CHECKPOINT).values})


def last_good(reader: RunReader) -> Estimate | None:
    """The checkpoint to keep, or to go back to: the one that stop advice names. None: no checkpoint can be named."""
    advice = reader.verdict.advice
    return None if advice is None else advice.best
