"""Kernels compiled by numba when first called, so that nobody who only imports this package pays for numba."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


class _Kernel:
    def __init__(self, function: FunctionType) -> None:
        self.function, self.compiled = function, None
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    def __call__(self, *arguments: Any) -> Any:
        if self.compiled is None:
            self.compile()
        assert self.compiled is not None
        return self.compiled(*arguments)

    def compile(self) -> Any:
        """The numba dispatcher; other kernels that this one calls are compiled with it."""
        import numba

        if self.compiled is None:
            source = self.function
            known = source.__globals__
            names = [name for name in source.__code__.co_names if isinstance(known.get(name), _Kernel)]
            # A copy that sees compiled neighbours: numba cannot look into this class.
            copy = FunctionType(source.__code__, {**known, **{name: known[name].compile() for name in names}})
            copy.__qualname__, copy.__module__ = source.__qualname__, source.__module__
            try:
                self.compiled = numba.njit(nogil=True, cache=True)(copy)
            except RuntimeError:  # nowhere to keep the cache: a read-only installation without a home directory
                self.compiled = numba.njit(nogil=True)(copy)
        return self.compiled


def kernel(function: Function) -> Function:
    """Marks a function of arrays as one that numba compiles at its first call; it may call other kernels.

    >>> import numpy as np
    >>> @kernel
    ... def double(x): return 2 * x
    >>> double.compiled is None
    True
    """
    return cast(Function, _Kernel(cast(FunctionType, function)))
