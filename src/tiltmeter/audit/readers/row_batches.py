"""Makes a batch of rollouts from table rows: which cell is which column, and what an empty cell means."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np

from tiltmeter.audit.readers.table_files import TableRow, number
from tiltmeter.data.batches import from_columns, plain_text
from tiltmeter.data.messages import turns_from_messages
from tiltmeter.data.records import NUMBER_COLUMNS, RAGGED_COLUMNS, RolloutBatch
from tiltmeter.data.stops import parse_stop
from tiltmeter.data.turns import Turn, parse_turns, prompt_text
from tiltmeter.errors import StoreError

#: Finish reasons of truncated completions, and of complete ones.
TRUNCATED_REASONS = {"length", "max_tokens", "truncated", "max_length", "true", "1"}
FINISHED_REASONS = {"stop", "eos", "end_turn", "stop_sequence", "tool_calls", "false", "0"}

#: Columns that hold a whole conversation, in the order in which they are looked for.
CONVERSATIONS = ("turns", "messages")

LocatedRow = tuple[TableRow, str]  # a row, and its file and line


def cell_at(row: TableRow, name: str) -> Any:
    """A cell by its name, or by its path through nested objects: `info.score`.

    >>> cell_at({"info": {"score": 0.5}}, "info.score"), cell_at({"a.b": 1}, "a.b"), cell_at({}, "a.b")
    (0.5, 1, None)
    """
    if name in row or "." not in name:
        return row.get(name)
    first, rest = name.split(".", 1)
    inside = row.get(first)
    return cell_at(inside, rest) if isinstance(inside, dict) else None


def to_batch(step: int, rows: Sequence[LocatedRow], settings: Mapping[str, Any]) -> RolloutBatch:
    """One step's rows as a batch. Raises `StoreError`, with file and line, for a row that cannot be used."""
    columns: Mapping[str, str] = settings["columns"]
    cells = {ours: [cell_at(row, theirs) for row, _ in rows] for ours, theirs in columns.items()}
    where = rows[0][1] if rows else ""
    batch_columns: dict[str, Any] = {
        name: list(map(parse_score, cells[name])) for name in NUMBER_COLUMNS if name in cells
    }
    parts = {name.removeprefix("rewards."): name for name in cells if name.startswith("rewards.")}
    batch_columns["rewards"] = {name: list(map(parse_score, cells[key])) for name, key in parts.items()}
    if "reward" not in batch_columns and parts:
        batch_columns["reward"] = weighted_sum(batch_columns["rewards"], settings["weights"])
    for name in ("prompt", "completion", "agent", "env", "task", "version", "artifacts"):
        if name in cells:
            batch_columns[name] = cells[name]
    where_from = next((name for name in CONVERSATIONS if name in cells), "")
    talks = [parse_conversation(cell, where_from) for cell in cells[where_from]] if where_from else []
    if any(talk is not None for talk in talks):
        batch_columns["turns"] = talks
        batch_columns.setdefault("prompt", [None if talk is None else prompt_text(talk) for talk in talks])
    if stops := [name for name in cells if name == "stop" or name.startswith("stop.")]:
        batch_columns["stop"] = [parse_stops({name: cells[name][row] for name in stops}) for row in range(len(rows))]
    if "trajectory" in cells and all(isinstance(cell, (str, int)) and cell != "" for cell in cells["trajectory"]):
        batch_columns["trajectory"] = cells["trajectory"]
    if facts := [name for name in cells if name.startswith("facts.")]:
        batch_columns["facts"] = [
            {name.removeprefix("facts."): cells[name][row] for name in facts} for row in range(len(rows))
        ]  # fmt: skip
    whole: dict[str, Callable[[Any], Any]] = dict.fromkeys(RAGGED_COLUMNS, parse_list)
    for name, parse in {**whole, "length": number, "truncated": parse_truncated, "trained": parse_truncated}.items():
        if name in cells:
            values = [parse(cell) for cell in cells[name]]
            if not any(value is None for value in values):
                batch_columns[name] = values
    try:
        prompts = batch_columns.get("prompt")
        return from_columns(step, group_ids(cells, rows, settings, prompts), **batch_columns)
    except (TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{where}: step {step} cannot be used: {error}; map another column, or mend it") from error


def parse_conversation(cell: Any, kind: str) -> tuple[Turn, ...] | None:
    """The turns of a row, from `messages` or `turns`, as JSON text or as the list itself; None for anything else.

    >>> [turn.role for turn in parse_conversation('[{"role": "assistant", "content": "4"}]', "messages") or ()]
    ['assistant']
    """
    if isinstance(cell, str):
        try:
            cell = json.loads(cell) if cell else None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{kind} are written as a list or as JSON, not {cell[:40]!r}") from error
    if not isinstance(cell, list):
        return None
    return parse_turns(cell) if kind == "turns" else turns_from_messages(cell)


def parse_stops(cells: Mapping[str, Any]) -> str | None:
    """Why a row ended: the first `stop.REASON` whose cell is neither empty, 0 nor false; else the word in `stop`.

    >>> parse_stops({"stop.sandbox": 1.0, "stop": "eos"}), parse_stops({"stop.sandbox": 0.0, "stop": "eos"})
    ('sandbox', 'done')
    """
    for name, cell in cells.items():
        if name != "stop" and parse_score(cell) not in (None, 0, 0.0, False):
            return name.removeprefix("stop.")
    return parse_stop(cells.get("stop"))


def parse_score(cell: Any) -> Any:
    """The score in a cell; an empty cell is missing, and a text that is no number is kept, to be flagged.

    >>> [parse_score(cell) for cell in ("0.5", "", "True", "n/a", None, 1)]
    [0.5, None, 1.0, 'n/a', None, 1]
    """
    if not isinstance(cell, str):
        return cell
    if cell == "":
        return None
    if cell.lower() in ("true", "false"):
        return float(cell.lower() == "true")
    value = number(cell)
    return cell if value is None else value


def weighted_sum(parts: Mapping[str, Sequence[Any]], weights: Mapping[str, float]) -> list[float | None]:
    """The reward as the weighted sum of its parts; missing where a part is missing: an unscored part is not 0."""
    scale = [weights.get(name, 1.0) for name in parts]
    total: list[float | None] = []
    for row in zip(*parts.values(), strict=True):
        values = [None if isinstance(cell, str) else number(cell) for cell in row]
        paid = [weight * value for weight, value in zip(scale, values, strict=True) if value is not None]
        total.append(sum(paid) if len(paid) == len(values) and not isnan(sum(paid)) else None)
    return total


def parse_list(cell: Any) -> Any:
    """A list of numbers per token; in CSV it is written as JSON; None where there is none."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell) if cell else None
        except (ValueError, RecursionError) as error:
            raise StoreError(f"a list of numbers is written as JSON, not {cell[:40]!r}") from error
    return None if cell is None else cell


def parse_truncated(cell: Any) -> bool | None:
    """Whether a completion was truncated, from a flag or a finish reason; None where unknown.

    >>> [parse_truncated(cell) for cell in (True, "length", "stop", 0, "", None)]
    [True, True, False, False, None, None]
    """
    if isinstance(cell, str):
        word = cell.strip().lower()
        return True if word in TRUNCATED_REASONS else False if word in FINISHED_REASONS else None
    return None if cell is None or (isinstance(cell, float) and isnan(cell)) else bool(cell)


def group_ids(
    cells: Mapping[str, Sequence[Any]],
    rows: Sequence[LocatedRow],
    settings: Mapping[str, Any],
    stored: Sequence[Any] | None = None,
) -> Any:
    """A group id for each row, by the method chosen when the files were found. `stored`: the prompts, if there are."""
    how = settings["group"]
    if how == "column":
        for cell, (_, where) in zip(cells["group"], rows, strict=True):
            if cell is None or cell == "" or cell != cell:  # NaN
                raise StoreError(f"{where}: a row without a group; fill it in, or map another column")
        return list(cells["group"])
    if how == "alone":
        return np.arange(len(rows))
    prompts = None if stored is None else [plain_text(prompt) for prompt in stored]
    if how == "prompt" and prompts is None:
        return np.arange(len(rows))  # a column of conversations that holds none
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
