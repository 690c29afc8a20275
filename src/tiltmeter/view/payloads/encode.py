"""Payloads as JSON. The server, its event stream, the report and the command line all encode here."""

from __future__ import annotations

import json
from typing import Any

from msgspec import to_builtins


def plain(payload: object) -> Any:
    """A payload as dictionaries, lists and plain values, with the keys of the JSON.

    >>> from tiltmeter.view.payloads.overview import VerdictCheck
    >>> plain([VerdictCheck(name="fresh", ok=True, why="")])
    [{'name': 'fresh', 'ok': True, 'why': ''}]
    """
    return to_builtins(payload, enc_hook=_plain_number)


def encode(payload: object) -> bytes:
    """Compact ASCII JSON, so that unpaired surrogates of foreign text are escaped. Raises `ValueError` for NaN and
    infinities: a payload has None there, and msgspec's own encoder would turn them into null unnoticed."""
    return json.dumps(plain(payload), allow_nan=False, separators=(",", ":")).encode("ascii")


def _plain_number(value: object) -> float:
    if isinstance(value, float):  # of NumPy
        return float(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")
