"""The data of a stage: which columns a method reads, checked before anything is loaded, and rows as TRL takes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.rows import Row, read_rows
from tiltmeter.train.recipe import Method

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
#: Columns that hold text or a conversation; what else a row has is left to reward functions.
SPOKEN = ("prompt", "completion", "chosen", "rejected", "messages", "text")


def rows(path: str | Path) -> Any:
    """A file of rows as a `datasets.Dataset`."""
    return table(path, read_rows(path))


def table(path: str | Path, found: Sequence[Row]) -> Any:
    """Rows of a file as a `datasets.Dataset`."""
    from datasets import Dataset

    try:
        return Dataset.from_list(list(found))
    except (ValueError, TypeError) as error:  # Arrow, about columns of several kinds
        said = " ".join(str(error).split())
        raise AttachError(f"{path} cannot be made a table: {said}; give every row the same kind of value") from error


def checked(path: str | Path, method: Method) -> list[Row]:
    """The rows of a stage's file. Raises `AttachError`, with a row as it should be, for what the method cannot read."""
    if method not in COLUMNS:
        return read_rows(path)
    kinds, example = COLUMNS[method]
    found = read_rows(path, example)
    fitting = [kind for kind in kinds if kind <= set(found[0])]
    if not fitting:
        has = ", ".join(sorted(found[0]))
        raise AttachError(
            f"{path} cannot be trained on by {method}: it has the columns {has}; a row looks like {example}"
        )
    columns = fitting[0]
    if "rejected" in columns and any(row.get("prompt") is not None for row in found):
        columns |= {"prompt"}  # which pairs may have inside them instead, but all of them then
    for number, row in enumerate(found, 1):
        _whole(path, number, row, columns, example)
    _alike(path, found)
    if len({type(found[0][name]) for name in columns - {"label"}}) > 1:
        forms = ", ".join(f"{name} is {_form(found[0][name])}" for name in sorted(columns - {"label"}))
        raise AttachError(f"{path}: {forms}; write all of them in one form")
    return found


def _whole(path: str | Path, number: int, row: Mapping[str, Any], columns: frozenset[str], example: str) -> None:
    for name in sorted(columns):
        value = row.get(name)
        if value is None or (name != "label" and not _spoken(value)) or (name == "label" and not _yes_or_no(value)):
            what = "true or false" if name == "label" else "text or a list of messages, each with a role and a content"
            raise AttachError(f"{path}, row {number}: {name} must be {what}; a row looks like {example}")


def _alike(path: str | Path, found: Sequence[Row]) -> None:
    """A column is text in every row or a conversation in every row: Arrow, and TRL, read it as one kind."""
    for name in SPOKEN:
        kinds = {type(row[name]) for row in found if row.get(name) is not None}
        if len(kinds) > 1:
            raise AttachError(f"{path}: {name} is text in some rows and a list of messages in others; choose one")


def _form(value: object) -> str:
    return "text" if isinstance(value, str) else "a list of messages"


def _spoken(value: object) -> bool:
    if isinstance(value, str):
        return True
    return isinstance(value, list) and all(
        isinstance(message, Mapping) and isinstance(message.get("role"), str) and "content" in message
        for message in value
    )


def _yes_or_no(value: object) -> bool:
    return isinstance(value, bool) or value in (0, 1)
