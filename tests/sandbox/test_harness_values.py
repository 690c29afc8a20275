"""Values travel as typed JSON and come back as they were; what is not plain does not travel."""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, defaultdict, deque
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from tests.sizes import size

from tiltmeter.sandbox.values import NODES, NotPlain, canonical, decode, encode, same

hashable = some.recursive(
    some.none()
    | some.booleans()
    | some.integers()
    | some.floats()
    | some.text()
    | some.binary()
    | some.complex_numbers(),
    lambda inner: some.tuples(inner, inner) | some.frozensets(inner, max_size=3),
    max_leaves=6,
)
plain = some.recursive(
    hashable,
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.tuples(inner)
        | some.dictionaries(hashable, inner, max_size=3)
        | some.sets(hashable, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=size(40, 150), deadline=None)
@given(plain)
def test_a_plain_value_survives_the_wire_in_type_and_value(value: Any) -> None:
    wire = json.dumps(encode(value))
    assert wire.isascii()
    back = decode(json.loads(wire))
    assert canonical(encode(back)) == canonical(encode(value))
    assert same(back, value)


@pytest.mark.parametrize(
    "value", [Counter("aab"), OrderedDict(a=1), deque([1, 2]), defaultdict(None, {1: 2}), range(3, 9, 2), int, 2**9000]
)
def test_what_functions_return_in_place_of_plain_values_survives_too(value: Any) -> None:
    back = decode(json.loads(json.dumps(encode(value))))
    assert type(back) is type(value) and back == value


class Anything(float):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


class Odd(int):
    pass


@pytest.mark.parametrize(
    "value",
    [object(), Anything(), Odd(3), [Odd(3)], {"a": (Anything(),)}, Fraction(1, 2), len, Exception(), iter([])],
)
def test_an_object_with_ways_of_its_own_does_not_travel(value: Any) -> None:
    with pytest.raises(NotPlain):
        encode(value)


def test_a_value_without_end_or_of_great_size_is_refused_in_time() -> None:
    endless: list[Any] = []
    endless.append(endless)
    wide: list[Any] = [0]
    for _ in range(40):
        wide = [wide, wide]  # 2 to the 40th leaves
    for value in (endless, wide, [0] * (NODES + 1), "x" * (1 << 21)):
        with pytest.raises(NotPlain):
            encode(value)


@pytest.mark.parametrize(
    "told", [{}, [], ["q"], ["s", ["l"]], ["d", 3], ["d", [["l"], 1]], ["i", 5], ["i", "zz"], ["c", 1], ["b", "x"],
             ["o", "Popen", ["l"]], ["T", "object"], [["l"]], ["r"], ["f", []], ["o", "Counter", 5]]
)  # fmt: skip
def test_what_the_encoder_never_writes_is_not_read(told: Any) -> None:
    with pytest.raises(NotPlain):
        decode(told)


def test_a_deep_forgery_is_not_read() -> None:
    told: Any = 1
    for _ in range(100):
        told = ["l", told]
    with pytest.raises(NotPlain):
        decode(told)


@pytest.mark.parametrize(
    ("one", "other"),
    [(1, True), (0, False), (1, 1.0), ([1], (1,)), ({1}, frozenset({1})), ({1}, {True}), ({1: 2}, {True: 2}), ("1", 1),
     ({1: 2}, {1: 2.0}), (b"a", "a"), (b"a", bytearray(b"a")), (None, 0), ((1, [2]), (1, (2,))),
     (Counter(a=1), {"a": 1})],
)  # fmt: skip
def test_what_python_may_call_equal_is_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other) and not same(other, one)
    assert same(one, other, strict=False) == (one == other)


@pytest.mark.parametrize("given", [1.0, -float("inf"), float("nan"), 1e308])
def test_no_tolerance_reaches_infinity(given: float) -> None:
    assert not same(given, float("inf"), tolerance=1e-6) and not same(float("inf"), given, tolerance=1e-6)
    assert same(float("inf"), float("inf"), tolerance=1e-6)


def test_floats_are_compared_exactly_unless_a_tolerance_is_given() -> None:
    assert not same(0.1 + 0.2, 0.3)
    assert same([{"a": 0.1 + 0.2}], [{"a": 0.3}], tolerance=1e-9)
    assert not same(0.31, 0.3, tolerance=1e-9)
    assert same(1e20 + 1e5, 1e20, tolerance=1e-9)
    assert same(float("nan"), float("nan")) and not same(float("nan"), 1.0, tolerance=1.0)
    assert not same(float("inf"), 1e308, tolerance=0.5) and not same(10**400, 1.0, tolerance=0.1, strict=False)
    assert same(-0.0, 0.0)
    assert same(complex("nan"), complex("nan")) and not same(complex(1, 2), complex(1, 3), tolerance=0.1)


@settings(max_examples=100, deadline=None)
@given(plain, plain)
def test_different_values_have_different_canonical_forms(one: Any, other: Any) -> None:
    assert same(one, other) == (canonical(encode(one)) == canonical(encode(other))) or 0.0 in _floats([one, other])


def _floats(value: Any) -> list[float]:
    """Every float in a value: 0.0 and -0.0 are equal and are written differently."""
    if isinstance(value, float):
        return [value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return [one for part in parts for one in _floats(part)] if isinstance(parts, (list, tuple, set, frozenset)) else []
