"""A one-entry cache for functions that several instruments call with the same batch in a row."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import is_
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
_clearers: list[Callable[[], None]] = []


def clear_caches() -> None:
    """Clear all caches, and with them the batches they hold."""
    for drop in _clearers:
        drop()


def cache_last(function: Function) -> Function:
    """Cache the last call's result, and return it for the identical objects; for arrays that are never changed.

    The arguments are kept with the result, so that no new object can get their identity.

    >>> calls = []
    >>> @cache_last
    ... def doubled(values): calls.append(1); return [2 * value for value in values]
    >>> some = [1, 2]
    >>> doubled(some) is doubled(some), doubled([1, 2]) == doubled(some), len(calls)
    (True, True, 3)
    """
    last: tuple[tuple[Any, ...], Any] | None = None

    def drop() -> None:
        nonlocal last
        last = None

    _clearers.append(drop)

    @wraps(function)
    def cached(*arguments: Any) -> Any:
        nonlocal last
        entry = last  # read once: another thread may replace it
        if entry is not None and len(entry[0]) == len(arguments) and all(map(is_, entry[0], arguments)):
            return entry[1]
        answer = function(*arguments)
        last = (arguments, answer)
        return answer

    return cast(Function, cached)
