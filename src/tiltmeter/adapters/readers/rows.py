"""Rows of somebody's table as one batch of rollouts: which cell is what, and what a cell that is empty means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from tiltmeter.adapters.readers.tables import Row, number
from tiltmeter.batches import from_columns, plain_text
from tiltmeter.errors import StoreError
from tiltmeter.records import NUMBER_COLUMNS, RAGGED_COLUMNS, RolloutBatch

#: What trainers and engines call an answer that was cut at its limit, and one that was not.
CUT = {"length", "max_tokens", "truncated", "max_length", "true", "1"}
WHOLE = {"stop", "eos", "end_turn", "stop_sequence", "tool_calls", "false", "0"}

Placed = tuple[Row, str]  # a row, and where it stands


def at(row: Row, name: str) -> Any:
    """A cell by its name, or by the way to it through objects: `info.score`.

    >>> at({"info": {"score": 0.5}}, "info.score"), at({"a.b": 1}, "a.b"), at({}, "a.b")
    (0.5, 1, None)
    """
    if name in row or "." not in name:
        return row.get(name)
    first, rest = name.split(".", 1)
    inside = row.get(first)
    return at(inside, rest) if isinstance(inside, dict) else None


def batch(step: int, rows: Sequence[Placed], settings: Mapping[str, Any]) -> RolloutBatch:
    """One step's rows as a batch. Raises `StoreError`, with the place, for a row that cannot be used."""
    columns: Mapping[str, str] = settings["columns"]
    cells = {ours: [at(row, theirs) for row, _ in rows] for ours, theirs in columns.items()}
    where = rows[0][1] if rows else ""
    made: dict[str, Any] = {name: list(map(scored, cells[name])) for name in NUMBER_COLUMNS if name in cells}
    parts = {name.removeprefix("rewards."): name for name in cells if name.startswith("rewards.")}
    made["rewards"] = {name: list(map(scored, cells[key])) for name, key in parts.items()}
    if "reward" not in made and parts:
        made["reward"] = added(made["rewards"], settings["weights"])
    for name in ("prompt", "completion"):
        if name in cells:
            made[name] = cells[name]
    if facts := [name for name in cells if name.startswith("facts.")]:
        made["facts"] = [
            {name.removeprefix("facts."): cells[name][row] for name in facts} for row in range(len(rows))
        ]  # fmt: skip
    whole: dict[str, Callable[[Any], Any]] = dict.fromkeys(RAGGED_COLUMNS, listed)
    for name, meant in {**whole, "length": number, "truncated": cut}.items():
        if name in cells:
            values = [meant(cell) for cell in cells[name]]
            if not any(value is None for value in values):
                made[name] = values
    try:
        return from_columns(step, groups(cells, rows, settings), **made)
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{where}: step {step} cannot be used: {error}; map another column, or mend it") from error


def scored(cell: Any) -> Any:
    """A number of a row; an empty cell is missing, and a text that is no number stays one, to be flagged as such.

    >>> [scored(cell) for cell in ("0.5", "", "True", "n/a", None, 1)]
    [0.5, None, 1.0, 'n/a', None, 1]
    """
    if not isinstance(cell, str):
        return cell
    if cell == "":
        return None
    if cell.lower() in ("true", "false"):
        return float(cell.lower() == "true")
    found = number(cell)
    return cell if found is None else found


def added(parts: Mapping[str, Sequence[Any]], weights: Mapping[str, float]) -> list[float | None]:
    """The reward as the weighted sum of its parts; missing where one of them is: an unscored part is not worth 0."""
    scale = [weights.get(name, 1.0) for name in parts]
    total: list[float | None] = []
    for row in zip(*parts.values(), strict=True):
        values = [None if isinstance(cell, str) else number(cell) for cell in row]
        paid = [weight * value for weight, value in zip(scale, values, strict=True) if value is not None]
        total.append(sum(paid) if len(paid) == len(values) and not isnan(sum(paid)) else None)
    return total


def listed(cell: Any) -> Any:
    """Numbers of a row's tokens: a list, or in CSV a list as JSON writes it; None where there is none."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell) if cell else None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"a list of numbers is written as JSON, not {cell[:40]!r}") from error
    return None if cell is None else cell


def cut(cell: Any) -> bool | None:
    """Whether an answer was cut: said by a flag, or by the reason why generation ended; None where nobody says.

    >>> [cut(cell) for cell in (True, "length", "stop", 0, "", None)]
    [True, True, False, False, None, None]
    """
    if isinstance(cell, str):
        word = cell.strip().lower()
        return True if word in CUT else False if word in WHOLE else None
    return None if cell is None or (isinstance(cell, float) and isnan(cell)) else bool(cell)


def groups(cells: Mapping[str, Sequence[Any]], rows: Sequence[Placed], settings: Mapping[str, Any]) -> Any:
    """A group for each row, in the way that was said when the files were found."""
    how = settings["group"]
    if how == "column":
        for cell, (_, where) in zip(cells["group"], rows, strict=True):
            if cell is None or cell == "" or cell != cell:  # NaN
                raise StoreError(f"{where}: a row without a group; fill it in, or map another column")
        return list(cells["group"])
    if how == "alone":
        return np.arange(len(rows))
    prompts = [plain_text(prompt) for prompt in cells["prompt"]] if "prompt" in cells else None
    if how == "prompt":
        numbers: dict[str | None, int] = {}
        return [numbers.setdefault(prompt, len(numbers)) for prompt in prompts or ()]
    size = int(settings["group_size"])
    if size < 1 or len(rows) % size:
        raise StoreError(f"{rows[0][1]}: {len(rows)} rows of one step are not groups of {size}; mend --group-size")
    ids = np.arange(len(rows)) // size
    if prompts is not None and any(prompts[row] != prompts[row - row % size] for row in range(len(rows))):
        raise StoreError(
            f"{rows[0][1]}: {size} rows that follow each other have different prompts; leave --group-size out to group "
            "by prompt"
        )
    return ids
