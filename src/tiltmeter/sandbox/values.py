"""Values as typed JSON: how inputs enter a sandbox, how outputs leave it, and when two of them are the same.

This file runs on both sides: its text is the beginning of the program that loads a candidate in the sandbox, so it
imports nothing of the package. JSON alone would make a tuple a list, a key a string and nan an error; here everything
but None, booleans, texts, finite floats and small integers is a list that begins with the letter of its type. Whatever
has no letter is not carried over, so that no object with an `==` of its own ever reaches the comparison.
"""

from __future__ import annotations

import sys
from typing import Any

DEPTH = 60
NODES = 20_000
CHARACTERS = 1 << 20
INFINITY = float("inf")
SMALL = 1 << 53  # up to here every reader of JSON agrees on integers
CLIP = 200  # characters of a canonical form; longer ones are told apart by their beginning and length

LETTERS: dict[type, str] = {list: "l", tuple: "t", set: "s", frozenset: "z"}
CONTAINERS: dict[str, Any] = {letter: make for make, letter in LETTERS.items()}
#: Containers of the standard library that functions return in place of plain ones, by name.
COLLECTIONS = ("Counter", "OrderedDict", "defaultdict", "deque")
#: Types that are arguments of some functions.
TYPES: dict[str, type] = {
    kind.__name__: kind for kind in (int, float, str, bool, list, tuple, dict, set, frozenset, bytes, complex)
}


class NotPlain(ValueError):  # noqa: N818  # a finding about a value
    """A value that cannot be carried over, and why."""


def encode(value: Any) -> Any:
    """A value as something `json.dumps` takes. Raises `NotPlain`.

    >>> encode((1, {"a": {2.5}})), encode(float("inf"))
    (['t', 1, ['d', ['a', ['s', 2.5]]]], ['f', 'inf'])
    >>> encode(object())
    Traceback (most recent call last):
    ...
    tiltmeter.sandbox.values.NotPlain: object
    """
    budget = [NODES, CHARACTERS]
    return _encode(value, DEPTH, budget)


def _encode(value: Any, depth: int, budget: list[int]) -> Any:
    # The type itself, not isinstance: a subclass may compare as it likes.
    kind = type(value)
    budget[0] -= 1
    if depth == 0 or budget[0] < 0:
        raise NotPlain("too deep or too large")
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -SMALL < value < SMALL else ["i", hex(value)]
    if kind is float:
        # nan and the infinities: JSON has no name for them.
        return value if value - value == 0.0 else ["f", repr(value)]
    if kind is str or kind is bytes or kind is bytearray:
        budget[1] -= len(value)
        if budget[1] < 0:
            raise NotPlain("too large")
        return value if kind is str else ["b" if kind is bytes else "y", value.hex()]
    if kind is complex:
        return ["c", _encode(value.real, depth - 1, budget), _encode(value.imag, depth - 1, budget)]
    if kind is range:
        return ["r", *(_encode(part, depth - 1, budget) for part in (value.start, value.stop, value.step))]
    if kind in LETTERS:
        return [LETTERS[kind], *[_encode(one, depth - 1, budget) for one in value]]
    if kind is dict:
        return [
            "d",
            *[[_encode(key, depth - 1, budget), _encode(one, depth - 1, budget)] for key, one in value.items()],
        ]
    if kind is type and value in TYPES.values():
        return ["T", value.__name__]
    # Whoever has such a container has loaded its module.
    module = sys.modules.get("collections")
    for name in COLLECTIONS if module is not None else ():
        if kind is getattr(module, name, None):
            return ["o", name, _encode(list(value) if name == "deque" else dict(value), depth - 1, budget)]
    raise NotPlain(kind.__name__)


def decode(encoded: Any) -> Any:
    """The value that was encoded. Raises `NotPlain` for anything that `encode` would not have written.

    >>> decode(encode({(1, 2): [b"x", 10**40, None]})) == {(1, 2): [b"x", 10**40, None]}
    True
    """
    try:
        return _decode(encoded, DEPTH)
    except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError) as error:
        raise NotPlain(f"not a value: {error}") from None


def _decode(encoded: Any, depth: int) -> Any:
    if not isinstance(encoded, list):
        if isinstance(encoded, dict):
            raise NotPlain("not a value")
        return encoded
    if depth == 0:
        raise NotPlain("too deep")
    letter, rest = encoded[0], encoded[1:]
    if letter in CONTAINERS:
        return CONTAINERS[letter](_decode(one, depth - 1) for one in rest)
    if letter == "d":
        return {_decode(key, depth - 1): _decode(one, depth - 1) for key, one in rest}
    (first, *others) = rest
    if letter == "i":
        return int(first, 16)
    if letter == "f":
        return float(first)
    if letter in ("b", "y"):
        return bytes.fromhex(first) if letter == "b" else bytearray.fromhex(first)
    if letter == "c":
        return complex(_decode(first, 1), _decode(others[0], 1))
    if letter == "T":
        return TYPES[first]
    if letter == "o" and first in COLLECTIONS:
        import collections

        contents = _decode(others[0], depth - 1)
        return (
            collections.defaultdict(None, contents) if first == "defaultdict" else getattr(collections, first)(contents)
        )
    if letter == "r":
        return range(*(_decode(part, 1) for part in rest))
    raise NotPlain("not a value")


def canonical(encoded: Any) -> str:
    """An encoded value as one text that equal values share, whatever the order of their sets and dictionaries.

    >>> canonical(encode({"b": 1, "a": {2, 1}})) == canonical(encode({"a": {1, 2}, "b": 1}))
    True
    """
    if not isinstance(encoded, list):
        return f"{type(encoded).__name__} {encoded!r}"
    letter, rest = str(encoded[0]), encoded[1:]
    if letter == "d":
        parts = sorted(f"{canonical(key)}: {canonical(one)}" for key, one in rest)
    else:
        parts = [canonical(one) for one in rest]
    if letter in ("s", "z"):
        parts = sorted(parts)
    return f"{letter}({', '.join(parts)})"


def clipped(encoded: Any) -> str:
    """The canonical form, short enough to be listed."""
    text = canonical(encoded)
    return text if len(text) <= CLIP else f"{text[:CLIP]}... {len(text)}"


def same(actual: Any, expected: Any, tolerance: float = 0.0, strict: bool = True) -> bool:
    """Whether two decoded values are the same: in type and value, or (`strict=False`) as Python's `==` has it.

    Nan is nan here, because an expected nan is a value like any other. `tolerance` lets floats differ by that much,
    absolutely or relative to the expected one; inside sets and keys they must be equal. An infinity is only itself.
    Raises `NotPlain` for a key that is larger than `encode` would have let through.

    >>> same(1, True), same([1], (1,)), same(1.0, 1), same(1, True, strict=False)
    (False, False, False, True)
    >>> same([0.1 + 0.2], [0.3]), same([0.1 + 0.2], [0.3], tolerance=1e-9)
    (False, True)
    """
    numbers = (int, float)
    if strict and type(actual) is not type(expected):
        return False
    if type(actual) in numbers and type(expected) in numbers and float in (type(actual), type(expected)):
        return _near(actual, expected, tolerance)
    if type(actual) is not type(expected):
        return bool(actual == expected)
    if isinstance(actual, complex):
        return same((actual.real, actual.imag), (expected.real, expected.imag), tolerance)
    if isinstance(actual, (list, tuple)):
        pairs = zip(actual, expected, strict=False)
        return len(actual) == len(expected) and all(same(one, other, tolerance, strict) for one, other in pairs)
    if isinstance(actual, dict):
        keys = {_key(key, strict): key for key in expected}
        return len(actual) == len(expected) and all(
            _key(key, strict) in keys and same(one, expected[keys[_key(key, strict)]], tolerance, strict)
            for key, one in actual.items()
        )
    if isinstance(actual, (set, frozenset)) and strict:
        return {_key(one, True) for one in actual} == {_key(one, True) for one in expected}
    return bool(actual == expected)


def _key(value: Any, strict: bool) -> Any:
    return canonical(encode(value)) if strict else value


def _near(actual: float, expected: float, tolerance: float) -> bool:
    if actual != actual or expected != expected:
        return actual != actual and expected != expected
    if actual == expected or tolerance == 0.0 or expected in (INFINITY, -INFINITY):
        return actual == expected
    try:
        return abs(actual - expected) <= tolerance * max(1.0, abs(expected))
    except OverflowError:  # an integer that no float can hold
        return False
