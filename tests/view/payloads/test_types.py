"""The page's types are those of the payloads, and nothing that JSON cannot hold leaves unnoticed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
import pytest
from msgspec import Struct

from tiltmeter.view.payloads import overview
from tiltmeter.view.payloads.encode import encode, plain
from tiltmeter.view.payloads.overview import Exemplar, FleetRow
from tiltmeter.view.payloads.people import Answer, Control
from tiltmeter.view.payloads.rollouts import Filters
from tiltmeter.view.server.routes import CONTROL, FILTERS, LABEL, Parser

WEB = Path(__file__).parents[3] / "web"
TYPES = WEB / "src" / "types.ts"
sys.path.insert(0, str(WEB))

import write_types as typescript  # noqa: E402


def test_the_pages_types_are_generated_from_the_payloads() -> None:
    same = TYPES.read_text("utf-8") == typescript.render()
    assert same, "web/src/types.ts is not what the payloads say: run make types, then cd web && npx tsc"


class Planted(Struct, frozen=True, kw_only=True):
    """A payload that no file has yet."""

    surprise: list[Literal["yes", "no"] | None]  # and why


def test_a_planted_payload_and_a_planted_field_change_the_types(monkeypatch: pytest.MonkeyPatch) -> None:
    before = typescript.render()
    monkeypatch.setattr(overview, "Planted", Planted, raising=False)
    assert '  surprise: ("yes" | "no" | null)[]; // and why\n' in typescript.render()
    assert typescript.render() != before


def test_a_type_that_has_none_in_typescript_is_refused() -> None:
    with pytest.raises(TypeError, match="give it one"):
        typescript._render_type(set[int], {})


@pytest.mark.parametrize(("payload", "params"), [(Filters, FILTERS), (Control, CONTROL), (Answer, LABEL)])
def test_requests_have_the_fields_that_their_route_takes(payload: type[Struct], params: dict[str, Parser]) -> None:
    assert list(payload.__struct_encode_fields__) == list(params)
    for name, key in zip(payload.__struct_fields__, payload.__struct_encode_fields__, strict=True):
        for value in _choices(get_type_hints(payload)[name]):
            assert params[key](value) == value
    assert any(_choices(hint) for hint in get_type_hints(payload).values())


def _choices(hint: Any) -> list[str]:
    """The texts that a hint allows, if it is a closed list."""
    parts = typescript._render_type(hint, {}).split(" | ")
    return [json.loads(part) for part in parts if part.startswith('"')]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), np.float64("nan")])
def test_a_number_that_json_lacks_is_refused_and_never_becomes_null(value: float) -> None:
    with pytest.raises(ValueError, match="Out of range float values"):
        encode(Exemplar(id="0-1-2", reward=value, gold=None, text=""))


def test_foreign_text_with_half_a_surrogate_pair_is_escaped() -> None:
    body = encode(Exemplar(id="0-1-2", reward=0.5, gold=None, text="\ud800 é"))
    assert body == b'{"id":"0-1-2","reward":0.5,"gold":null,"text":"\\ud800 \\u00e9"}'


def test_a_number_of_numpy_is_a_number_and_an_array_is_refused() -> None:
    assert plain([np.float64(0.5)]) == [0.5]
    with pytest.raises(TypeError, match="ndarray is no value of JSON"):
        plain({"steps": np.zeros(2)})


def test_a_row_of_the_fleet_begins_with_the_headline() -> None:
    head = overview.Headline.__struct_fields__
    assert FleetRow.__struct_fields__[: len(head)] == head
