"""The dataset columns of a row other than its prompt (such as the right answer), as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

KEYS = 10_000  # that are looked at; a mapping may have no end
LIMIT = 16 * 1024  # bytes of UTF-8 per row; a dataset may hold more than anybody needs to check an answer


def to_text(facts: Mapping[Any, object]) -> str:
    """The facts as compact JSON, within `LIMIT`: beyond it only the keys that fit stay, the smallest first.

    A fact is whole or absent, because a check against half an answer would be a wrong label.

    >>> to_text({"answer": 12, "choices": np.arange(3), "essay": "x" * LIMIT})
    '{"answer":12,"choices":[0,1,2]}'
    """
    pairs = {str(key): f"{_json(str(key))}:{_value(value)}" for key, value in islice(facts.items(), KEYS)}
    size = {key: len(pair.encode("utf-8", "surrogatepass")) + 1 for key, pair in pairs.items()}
    keys, room = set(), LIMIT - 2
    for key in sorted(size, key=lambda key: size[key]):
        if size[key] <= room:
            keys.add(key)
            room -= size[key]
    return "{" + ",".join(pair for key, pair in pairs.items() if key in keys) + "}"


def from_text(text: str | None) -> dict[str, Any]:
    """The facts again. Raises `ValueError` for text that is not a JSON object; None has none.

    >>> from_text('{"answer":12}'), from_text(None)
    ({'answer': 12}, {})
    """
    if text is None:
        return {}
    try:
        facts = json.loads(text)
    except RecursionError as error:
        raise ValueError("facts are nested too deeply") from error
    if not isinstance(facts, dict):
        raise ValueError(f"facts are a JSON object, not a {type(facts).__name__}")
    return facts


def _value(value: object) -> str:
    try:
        return _json(value)
    except (TypeError, ValueError, RecursionError):  # NaN, a key that is no text, a list inside itself
        return _json(str(value))


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain, allow_nan=False)


def _plain(value: object) -> object:
    """Values JSON cannot encode: arrays and numpy numbers as lists and numbers, anything else as text."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else str(value)
