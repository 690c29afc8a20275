"""A hash of the reward functions: it changes when a function's code, settings or weight change.

It hashes what Python exposes: bytecode, constants, closure values, defaults, the attributes of a callable
object that are plain data, and a model's declared name. An object with mutable state gives a
tuple `identity` instead: its settings and parts, without learned state. A file or a server behind a function cannot be
seen: pass its version yourself as `observe(fingerprint=...)`.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class HasIdentity(Protocol):
    """A callable object that provides the values its fingerprint is computed from."""

    @property
    def identity(self) -> tuple[object, ...]: ...


def fingerprint(functions: Sequence[Callable[..., Any]], weights: Sequence[float] | None = None) -> str:
    """Twelve hex digits over the functions, in order, and their weights.

    >>> def terse(completion): return -len(completion)
    >>> fingerprint([terse]) == fingerprint([terse]), fingerprint([terse], [1.0]) == fingerprint([terse], [0.5])
    (True, False)
    """
    digest = hashlib.sha256()
    for function in functions:
        _add(digest, function, depth=0)
    digest.update(repr(None if weights is None else [float(weight) for weight in weights]).encode())
    return digest.hexdigest()[:12]


def _add(digest: Any, value: object, depth: int) -> None:
    if depth > 6:  # a cycle, or deeper than any reward function needs
        return
    if isinstance(value, types.MethodType):
        _add(digest, value.__func__, depth)
        _add(digest, value.__self__, depth + 1)
    elif isinstance(value, types.FunctionType):
        digest.update(value.__qualname__.encode())
        _add(digest, value.__code__, depth + 1)
        _add(digest, value.__defaults__, depth + 1)
        _add(digest, value.__kwdefaults__, depth + 1)
        for cell in value.__closure__ or ():
            _add(digest, cell.cell_contents, depth + 1)
    elif isinstance(value, types.CodeType):
        digest.update(value.co_code)
        digest.update(repr(value.co_names).encode())
        _add(digest, value.co_consts, depth + 1)
    elif isinstance(value, partial):
        _add(digest, (value.func, value.args, value.keywords), depth + 1)
    elif isinstance(value, (str, bytes, int, float, bool, type(None))):
        digest.update(repr(value).encode("utf-8", "surrogatepass"))
    elif isinstance(value, (set, frozenset)):
        for text in sorted(map(repr, value)):
            digest.update(text.encode("utf-8", "surrogatepass"))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _add(digest, item, depth + 1)
    elif isinstance(value, dict):
        for key in sorted(value, key=repr):
            _add(digest, (key, value[key]), depth + 1)
    else:
        kind = type(value)
        digest.update(f"{kind.__module__}.{kind.__qualname__}".encode())
        if isinstance(value, HasIdentity) and isinstance(value.identity, tuple):
            _add(digest, value.identity, depth + 1)
            return
        state = vars(value) if hasattr(value, "__dict__") else {}
        plain = {
            k: v for k, v in state.items() if isinstance(v, (str, int, float, bool, list, tuple, dict, type(None)))
        }
        _add(digest, plain, depth + 1)
