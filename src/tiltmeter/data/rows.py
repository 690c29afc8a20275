"""Rows as dicts, for whoever has them one by one: the columns of a batch that they make, and their parts with care."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RAGGED_COLUMNS, RolloutBatch
from tiltmeter.data.stops import is_trusted
from tiltmeter.data.turns import prompt_text


class UnscoredError(Exception):
    """Scoring failed for reasons that are not the policy's: the row has no reward and is flagged `infra`."""


def batch_of(step: int, rows: Sequence[Mapping[str, Any]]) -> RolloutBatch:
    """One step's batch from rows with a `group`, `turns`, `rewards` by name, and any other columns.

    >>> from tiltmeter.data.turns import Turn
    >>> turns = [Turn("user", "Mend it."), Turn("assistant", call="rm", arguments='{"path": "tests"}')]
    >>> batch = batch_of(0, [{"group": "a", "turns": turns, "reward": 1.0}])
    >>> batch.prompt, batch.completion
    (('Mend it.',), ('rm({"path": "tests"})',))
    """
    return from_columns(step, **columns_of(rows))


def columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The columns of such rows. One that no row has is left out; so is one of numbers a token that some row lacks."""
    rows = [_without_untrusted(_with_prompt(row)) for row in rows]
    names = dict.fromkeys(name for row in rows for name in row if name not in ("group", "rewards"))
    columns: dict[str, Any] = {"group": [str(row["group"]) for row in rows]}
    for name in names:
        values = [row.get(name) for row in rows]
        full = all(value is not None for value in values)
        if full if name in RAGGED_COLUMNS else any(value is not None for value in values):
            columns[name] = values
    parts = dict.fromkeys(name for row in rows for name in row.get("rewards") or {})
    columns["rewards"] = {name: [(row.get("rewards") or {}).get(name) for row in rows] for name in parts}
    return columns


def _with_prompt(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with its prompt; without turns where the policy never spoke: that is no empty answer."""
    turns = row.get("turns")
    if turns is None:
        return row
    spoke = any(turn.written for turn in turns)
    return {"prompt": prompt_text(turns), **row, "turns": turns if spoke else None}


def _without_untrusted(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row; where a container, a verifier or a clock failed and nothing was scored, that is why."""
    if is_trusted(row.get("stop")):
        return row
    failed = UnscoredError()
    parts = {name: failed if part is None else part for name, part in (row.get("rewards") or {}).items()}
    return {**row, "rewards": parts, "reward": failed if row.get("reward") is None else row["reward"]}


def as_object(value: object) -> Mapping[str, Any]:
    """A JSON object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def as_objects(value: object) -> list[dict[str, Any]]:
    """The JSON objects of a list; none for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_number(value: object) -> float | None:
    """A finite or infinite number as JSON has it; None for anything else, truth values included.

    >>> as_number(3), as_number(10**400), as_number(True), as_number("3")
    (3.0, inf, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf


def compact(values: Sequence[Any]) -> NDArray[Any]:
    """A row's numbers in the dtype of a batch: as Python objects they take eight times the memory."""
    array = np.asarray(values)
    if array.dtype.kind == "i" and array.size and array.min() >= -(2**31) and array.max() < 2**31:
        return array.astype(np.int32)
    with np.errstate(over="ignore"):
        return array.astype(np.float32) if array.dtype.kind == "f" else array
