"""Training data of a stage: the columns that each method needs, checks of the rows, and `datasets.Dataset`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import Row, read_rows
from tiltmeter_workbench.train.recipe import Method

#: By method: the sets of columns it can be trained on, and a row as it should be.
COLUMNS: Mapping[str, tuple[tuple[frozenset[str], ...], str]] = {
    "sft": (
        (frozenset({"text"}), frozenset({"prompt", "completion"}), frozenset({"messages"})),
        '{"prompt": "2 and 2?", "completion": " 4"}, {"text": ...} or {"messages": [{"role": ..., "content": ...}]}',
    ),
    **dict.fromkeys(
        ("reward", "dpo", "ipo"),
        ((frozenset({"chosen", "rejected"}),), '{"prompt": "2 and 2?", "chosen": " 4", "rejected": " 5"}'),
    ),
    "kto": (
        (frozenset({"prompt", "completion", "label"}),),
        '{"prompt": "2 and 2?", "completion": " 4", "label": true}',
    ),
    **dict.fromkeys(
        ("grpo", "rloo", "ppo", "iterative_dpo", "refresh"), ((frozenset({"prompt"}),), '{"prompt": "2 and 2?"}')
    ),
}
#: Columns that hold text or a conversation; all other columns go to the reward functions.
TEXT_COLUMNS = ("prompt", "completion", "chosen", "rejected", "messages", "text")


def rows(path: str | Path) -> Any:
    """A file of rows as a `datasets.Dataset`."""
    return to_dataset(path, read_rows(path))


def to_dataset(path: str | Path, rows: Sequence[Row]) -> Any:
    """Rows of a file as a `datasets.Dataset`."""
    from datasets import Dataset

    try:
        return Dataset.from_list(list(rows))
    except (ValueError, TypeError) as error:  # Arrow, about columns of several kinds
        message = " ".join(str(error).split())
        raise AttachError(f"{path} cannot be made a table: {message}; give every row the same kind of value") from error


def read_checked_rows(path: str | Path, method: Method) -> list[Row]:
    """The rows of a stage's file. Raises `AttachError`, with a row as it should be, for what the method cannot read."""
    if method not in COLUMNS:
        return read_rows(path)
    kinds, example = COLUMNS[method]
    rows = read_rows(path, example)
    fitting = [kind for kind in kinds if kind <= set(rows[0])]
    if not fitting:
        has = ", ".join(sorted(rows[0]))
        raise AttachError(
            f"{path} cannot be trained on by {method}: it has the columns {has}; a row looks like {example}"
        )
    columns = fitting[0]
    if "rejected" in columns and any(row.get("prompt") is not None for row in rows):
        columns |= {"prompt"}  # which pairs may have inside them instead, but all of them then
    for number, row in enumerate(rows, 1):
        _check_row(path, number, row, columns, example)
    _check_same_form(path, rows)
    if len({type(rows[0][name]) for name in columns - {"label"}}) > 1:
        forms = ", ".join(f"{name} is {_form(rows[0][name])}" for name in sorted(columns - {"label"}))
        raise AttachError(f"{path}: {forms}; write all of them in one form")
    return rows


def _check_row(path: str | Path, number: int, row: Mapping[str, Any], columns: frozenset[str], example: str) -> None:
    for name in sorted(columns):
        value = row.get(name)
        if (
            value is None
            or (name != "label" and not _is_text_or_messages(value))
            or (name == "label" and not _is_binary_label(value))
        ):
            what = "true or false" if name == "label" else "text or a list of messages, each with a role and a content"
            raise AttachError(f"{path}, row {number}: {name} must be {what}; a row looks like {example}")


def _check_same_form(path: str | Path, rows: Sequence[Row]) -> None:
    """A column is text in every row or a conversation in every row: Arrow, and TRL, read it as one kind."""
    for name in TEXT_COLUMNS:
        kinds = {type(row[name]) for row in rows if row.get(name) is not None}
        if len(kinds) > 1:
            raise AttachError(f"{path}: {name} is text in some rows and a list of messages in others; choose one")


def _form(value: object) -> str:
    return "text" if isinstance(value, str) else "a list of messages"


def _is_text_or_messages(value: object) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, list) and all(
        isinstance(message, Mapping) and isinstance(message.get("role"), str) and "content" in message
        for message in value
    )


def _is_binary_label(value: object) -> bool:
    return isinstance(value, bool) or value in (0, 1)
