"""Objects of this package as bytes and back, without pickle: what was shared is shared again, floats keep their bits.

For the monitor's own memory only, which is sealed before it is stored. Nothing is imported and nothing is called: a
class is looked up among the package's modules that are loaded, its attributes are set, and a struct or tuple is built
of what was read. Whatever has no such form (a function, a lock, a plug-in's own class) raises `TypeError`.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

import numpy as np
from msgspec import Struct, msgpack

PACKAGE = __name__.partition(".")[0]
_PLAIN = (type(None), bool, int, float, str, bytes)
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}


def encode_graph(root: object) -> bytes:
    """The object, and all that it refers to."""
    nodes: list[Any] = []
    shapes: dict[tuple[str, bool, tuple[str, ...]], int] = {}  # class, whether it is a struct, and attributes
    index: dict[int, int] = {}
    waiting: list[tuple[int, Any]] = []
    alive: list[Any] = []  # an object that is only made here must not make room for another of the same `id`

    def refer(item: Any) -> Any:
        """What stands for an item: itself, or the number of its node in a list of one."""
        if type(item) in _PLAIN:
            return item
        if id(item) not in index:
            index[id(item)] = len(nodes)
            waiting.append((len(nodes), item))
            nodes.append(None)
            alive.append(item)
        return [index[id(item)]]

    top = refer(root)
    while waiting:
        number, item = waiting.pop()
        kind = type(item)
        if kind in _CONTAINERS:
            ordered = sorted(item, key=repr) if kind in (set, frozenset) else item  # equal sets, equal bytes
            nodes[number] = (_CONTAINERS[kind], [refer(one) for one in ordered])
        elif kind in (dict, Counter):
            name = "dict" if kind is dict else "counter"
            nodes[number] = (name, [(refer(key), refer(value)) for key, value in item.items()])
        elif kind is deque:
            nodes[number] = ("deque", item.maxlen, [refer(one) for one in item])
        elif kind is array:
            nodes[number] = ("numbers", item.typecode, item.tobytes())
        elif isinstance(item, (np.ndarray, np.generic)):
            plain = np.asarray(item)
            if plain.dtype.kind not in "biuf":
                raise TypeError(f"an array of {plain.dtype} is not stored")
            name = "array" if kind is np.ndarray else "scalar"
            nodes[number] = (name, plain.dtype.str, plain.shape, plain.tobytes())
        elif isinstance(item, type) or callable(item) or _find_class(_class_name(kind)) is not kind:
            raise TypeError(f"a {kind.__module__}.{kind.__qualname__} is not stored")
        else:
            names = tuple(_attributes(item))
            shape = shapes.setdefault((_class_name(kind), isinstance(item, Struct), names), len(shapes))
            nodes[number] = (shape, [refer(getattr(item, name)) for name in names])
    return msgpack.encode((top, list(shapes), nodes))


def decode_graph(content: bytes) -> Any:
    """The object that `encode_graph` was given."""
    top, shapes, nodes = msgpack.decode(content)
    shapes = [(_find_class(name), is_struct, names) for name, is_struct, names in shapes]
    objects: list[Any] = [_empty(node, shapes) for node in nodes]
    done = [item is not None for item in objects]

    def resolve(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        (number,) = value
        if not done[number]:  # of what never changes: built of its parts
            kind, *rest = nodes[number]
            if isinstance(kind, int):
                make, _, names = shapes[kind]
                objects[number] = make(**dict(zip(names, map(resolve, rest[0]), strict=True)))
            else:
                objects[number] = (tuple if kind == "tuple" else frozenset)(resolve(part) for part in rest[0])
            done[number] = True
        return objects[number]

    hashed = ("dict", "counter", "set")  # last: a key must be whole before its hash is taken
    for last in (False, True):
        for number, (kind, *rest) in enumerate(nodes):
            if (kind in hashed) is not last:
                continue
            if isinstance(kind, int):
                for name, value in zip(shapes[kind][2], rest[0], strict=True) if not shapes[kind][1] else ():
                    object.__setattr__(objects[number], name, resolve(value))
            elif kind in ("list", "deque"):
                objects[number].extend(map(resolve, rest[-1]))
            elif kind == "set":
                objects[number].update(map(resolve, rest[0]))
            elif last:
                for key, value in rest[0]:
                    objects[number][resolve(key)] = resolve(value)
    return resolve(top)


def _empty(node: list[Any], shapes: list[tuple[Any, bool, list[str]]]) -> Any:
    """What the node's parts will be put into; None for what is built of them."""
    match node:
        case ["list", _]:
            return []
        case ["set", _]:
            return set()
        case ["dict", _]:
            return {}
        case ["counter", _]:
            return Counter()
        case ["deque", most, _]:
            return deque(maxlen=most)
        case ["numbers", typecode, content]:
            return array(typecode, content)
        case ["array", dtype, shape, content]:
            return np.frombuffer(content, dtype).reshape(shape).copy()
        case ["scalar", dtype, _, content]:
            return np.frombuffer(content, dtype)[0]
        case [int(shape), _] if not shapes[shape][1]:
            return object.__new__(shapes[shape][0])
    return None


def _class_name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _find_class(name: str) -> Any:
    """A class of this package, by its module and name; None if there is none that is loaded."""
    module, _, path = name.partition(":")
    target: Any = sys.modules.get(module) if module.partition(".")[0] == PACKAGE else None
    for part in path.split("."):
        target = getattr(target, part, None)
    return target if isinstance(target, type) and _class_name(target) == name else None


def _attributes(item: Any) -> Iterator[str]:
    """The names of what an object holds."""
    if isinstance(item, Struct):
        yield from item.__struct_fields__
        return
    for kind in type(item).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if name not in ("__dict__", "__weakref__") and hasattr(item, name):
                yield name
    yield from getattr(item, "__dict__", ())
