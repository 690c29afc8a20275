"""Files in an answer that is JSON, or in a fence of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tiltmeter.acts.text_forms.heading_paths import as_path
from tiltmeter.acts.text_forms.text_scan import MOST, TextCall

PATH_KEYS = ("path", "filepath", "filename", "file", "name", "target", "targetfile", "location", "title", "uri")


def json_files(text: str, line: int) -> list[TextCall]:
    """`{"files": [{"path": ..., "content": ...}]}`, a list of such, or `{"files": {path: content}}`."""
    if '"' not in text or not any(map(text.__contains__, ("path", "file", "name"))):
        return []
    try:
        value = msgspec.json.decode(text.encode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return []
    rows = [value, *value.values()] if isinstance(value, dict) else [value]
    calls: list[TextCall] = []
    for row in rows[:MOST]:
        if isinstance(row, list):
            calls += [TextCall(line, "file", one) for one in row[:MOST] if isinstance(one, dict) and _names_file(one)]
        elif isinstance(row, dict) and _names_file(row):
            calls.append(TextCall(line, "file", row))
        elif isinstance(row, dict) and row and all(isinstance(one, str) and as_path(name) for name, one in row.items()):
            calls += [TextCall(line, "file", {"path": name, "content": one}) for name, one in row.items()]
    return calls


def _names_file(row: Mapping[str, Any]) -> bool:
    keys = [key for key in row if isinstance(key, str) and key.replace("_", "").lower() in PATH_KEYS]
    return len(row) > 1 and any(isinstance(row[key], str) and as_path(row[key]) for key in keys)
