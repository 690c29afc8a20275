"""A decorator for kernels that numba compiles at their first call, so that importing this package stays fast."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

from numpy.typing import NDArray

Function = TypeVar("Function", bound=Callable[..., Any])


class _Kernel:
    def __init__(self, function: FunctionType) -> None:
        self.function = function
        self.compiled: Any = None
        self._part: Any = None  # as other kernels call it
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    def __call__(self, *arguments: Any) -> Any:
        if self.compiled is not None:
            return self.compiled(*arguments)
        # The compiler makes a million objects and drops few: collecting meanwhile takes a fifth of its time.
        collects = gc.isenabled()
        gc.disable()
        try:
            self.compiled = self._dispatcher(cache=True)
            return self.compiled(*arguments)
        finally:
            if collects:
                gc.enable()

    def _as_part(self) -> Any:
        if self._part is None:
            self._part = self._dispatcher(no_cpython_wrapper=True)
        return self._part

    def _dispatcher(self, **options: Any) -> Any:
        """The numba dispatcher; other kernels that this one calls are compiled into it."""
        import numba

        source = self.function
        namespace = source.__globals__
        names = [name for name in source.__code__.co_names if isinstance(namespace.get(name), _Kernel)]
        # A copy that sees compiled neighbours: numba cannot look into this class.
        parts = {name: namespace[name]._as_part() for name in names}
        copy = FunctionType(source.__code__, {**namespace, **parts})
        copy.__qualname__, copy.__module__ = source.__qualname__, source.__module__
        # Kernels are not called back from C, fuse no array expressions and divide by nothing that may be 0: what numba
        # does for those that would takes a quarter of the time.
        options |= {"nogil": True, "no_cfunc_wrapper": True, "no_rewrites": True, "error_model": "numpy"}
        try:
            return numba.njit(**options)(copy)
        except RuntimeError:  # nowhere to keep the cache: a read-only installation without a home directory
            return numba.njit(**{**options, "cache": False})(copy)


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """Floats as a read-only array: numba compiles once more for arrays that may be written to, and once per type.

    >>> import numpy as np
    >>> read_only(np.arange(3)).dtype, read_only(np.zeros(3, np.float32)).flags.writeable
    (dtype('float64'), False)
    """
    single = values.dtype.kind == "f" and values.dtype.itemsize == 4
    plain = values.astype("f4" if single else "f8", order="C", copy=False).view()
    plain.flags.writeable = False
    return plain


def kernels_cached() -> bool:
    """Whether kernels were compiled here before, beside their source; else a first use of each takes about a second."""
    return any((Path(__file__).parent / "__pycache__").glob("*.nbi"))


def kernel(function: Function) -> Function:
    """Marks a function of arrays as one that numba compiles at its first call; it may call other kernels.

    >>> import numpy as np
    >>> @kernel
    ... def double(x): return 2 * x
    >>> double.compiled is None
    True
    """
    return cast(Function, _Kernel(cast(FunctionType, function)))
