"""Whatever is rendered for others (a report, a tracker's message, a tool's answer), without secrets in its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from dataclasses import replace as replace_fields
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace as replace_struct

from tiltmeter.safety.secret_scan import SecretScan, scan_environment

T = TypeVar("T")


def without_secrets(value: T) -> T:
    """The same value, in whose texts each secret of this process and each known form of one is `[secret NAME]`.

    >>> without_secrets({"why": ["401 for Bearer x1y2z3a4b5c6d7"], "step": 3})
    {'why': ['401 for [secret bearer token]'], 'step': 3}
    """
    cleaned: T = _clean(value, scan_environment())
    return cleaned


def _clean(value: Any, scan: SecretScan) -> Any:
    """The value itself where nothing has to go: most reports are numbers."""
    if isinstance(value, str):
        return scan.replace(value) if type(value) is str else value
    if isinstance(value, Struct):
        changes = _changes({name: getattr(value, name) for name in value.__struct_fields__}, scan)
        return replace_struct(value, **changes) if changes else value
    if is_dataclass(value) and not isinstance(value, type):
        changes = _changes({field.name: getattr(value, field.name) for field in fields(value) if field.init}, scan)
        return replace_fields(value, **changes) if changes else value
    if isinstance(value, Mapping):
        changes = _changes(value, scan)
        return {**value, **changes} if changes else value
    if type(value) in (list, tuple):
        items = [_clean(item, scan) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else type(value)(items)
    return value


def _changes(items: Mapping[Any, Any], scan: SecretScan) -> dict[Any, Any]:
    cleaned = ((name, item, _clean(item, scan)) for name, item in items.items())
    return {name: new for name, old, new in cleaned if new is not old}
