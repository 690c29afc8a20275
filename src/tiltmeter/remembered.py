"""One answer kept, for functions that several parts ask the same of one batch, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import is_
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
_kept: list[Callable[[], None]] = []


def forget() -> None:
    """Let go of every kept answer, and of the batch it was about."""
    for drop in _kept:
        drop()


def remembered(function: Function) -> Function:
    """Keeps the answer to the last call, and gives it again to the very same objects; for arrays that nobody changes.

    The objects are kept with the answer, so that another one cannot come to have their identity.

    >>> calls = []
    >>> @remembered
    ... def doubled(values): calls.append(1); return [2 * value for value in values]
    >>> some = [1, 2]
    >>> doubled(some) is doubled(some), doubled([1, 2]) == doubled(some), len(calls)
    (True, True, 3)
    """
    last: tuple[tuple[Any, ...], Any] | None = None

    def drop() -> None:
        nonlocal last
        last = None

    _kept.append(drop)

    @wraps(function)
    def answered(*arguments: Any) -> Any:
        nonlocal last
        known = last  # read once: another thread may be asking about another batch
        if known is not None and len(known[0]) == len(arguments) and all(map(is_, known[0], arguments)):
            return known[1]
        answer = function(*arguments)
        last = (arguments, answer)
        return answer

    return cast(Function, answered)
